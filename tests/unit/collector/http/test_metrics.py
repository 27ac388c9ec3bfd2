"""What a monitoring system reads, by Prometheus' own parser."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.unit.collector.http.conftest import RunningService, ask

from kanab.collector.health import LiveHealth
from kanab.collector.http.app import Collector
from kanab.collector.http.metrics import CollectorFigures, metrics_text
from kanab.collector.readiness import Problem
from kanab.collector.writer import EDGES

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> tuple[dict[str, str], Samples]:
    """The kind of each family, and the samples by their names and labels."""
    kinds: dict[str, str] = {}
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in kinds  # a family is one block
        assert family.documentation
        kinds[family.name] = family.type
        for sample in family.samples:
            name = sample.name, tuple(sample.labels.items())
            assert name not in samples
            samples[name] = sample.value
        if family.type == "histogram":
            buckets = {sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels}
            assert [*buckets] == [*(f"{edge:g}" for edge in EDGES), "+Inf"]
            assert list(buckets.values()) == sorted(buckets.values())
            assert buckets["+Inf"] == samples[f"{family.name}_count", ()]
    return kinds, samples


def test_dashboards_find_the_families_and_labels_that_the_manual_names(running: RunningService) -> None:
    running.service.check_clock()
    kinds, samples = parsed(running.service.metrics())
    manual = (Path(__file__).parents[4] / "docs" / "how-to" / "collector.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`kanab_.*?) \|", manual, re.MULTILINE)
    named = {name: labels.split(", ") for row in rows for name, labels in re.findall(r"`(\w+)\{?([\w, ]*)\}?`", row)}
    shown = {f"{name}_total" if kind == "counter" else name: kind for name, kind in kinds.items()}
    assert {name for name in shown if name.startswith("kanab_")} == named.keys() - {"kanab_noisy"}
    for name, labels in samples:
        assert [label for label, _ in labels if label != "le"] == sorted(filter(None, named.get(name, ()))), name
    assert not [name for name, _ in samples if name.endswith("_created")]


def test_names_that_would_break_the_format_are_escaped() -> None:
    name = 'a "quoted"\nname\\'
    live = LiveHealth(people={name: {"B\n": 10}}, alarms=frozenset({name}))
    _, samples = parsed(metrics_text(CollectorFigures(live, [Problem.CLOCK])))
    assert samples["kanab_people", (("arm", "B\n"), ("experiment", name))] == 10
    assert samples["kanab_sample_ratio_alarm", (("experiment", name),)] == 1
    assert samples["kanab_up", ()] == 0
    assert samples["kanab_problem", (("problem", "clock"),)] == 1
    assert samples["kanab_problem", (("problem", "store"),)] == 0


def test_a_collector_counts_answers_posts_and_commits_in_steps_of_k(running: RunningService) -> None:
    async def send(*bodies: bytes) -> None:
        await asyncio.gather(*(running.service.take(body, None) for body in bodies), return_exceptions=True)

    app, bodies = Collector(running.service), [running.enroll() for _ in range(35)]
    asyncio.run(send(*bodies))
    asyncio.run(send(*bodies[:12]))
    for _ in range(11):
        ask(app, "POST", "/v1/t", b"nonsense")
    for _ in range(9):
        ask(app, "POST", "/v1/t", running.body("unknown/tier:A:1@2026-W46"))
    running.service.check_clock()
    answer = ask(app, "GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    _, samples = parsed(answer.body.decode())
    answers = {
        labels[0][1]: value for (name, labels), value in samples.items() if name == "kanab_posts_total" and value
    }
    assert answers == {"counted": 30, "duplicate": 10, "format": 10}
    assert samples["kanab_post_seconds_count", ()] == 40
    assert samples["kanab_commit_seconds_count", ()] % 10 == 0
    assert samples["kanab_nonces", ()] == 30
    assert samples["kanab_waiting_posts", ()] == 0
    assert samples["kanab_waiting_posts_limit", ()] > 1000


def test_seal_lag_plan_epoch_and_the_process_are_told(running: RunningService) -> None:
    asyncio.run(running.service.take(running.enroll(), None))
    running.now += timedelta(days=21)
    _, samples = parsed(running.service.metrics())
    assert samples["kanab_seal_lag_seconds", ()] == running.service.seal_lag() > 86_400
    (info,) = (dict(labels) for name, labels in samples if name == "kanab_info")
    assert info.keys() == {"version", "plan", "epoch"}
    assert (info["plan"], info["epoch"]) == ("1", "")
    assert samples["process_resident_memory_bytes", ()] > 2**20
    assert samples["process_open_fds", ()] > 2
    assert samples["process_start_time_seconds", ()] > 1.7e9
    assert samples["process_cpu_seconds_total", ()] > 0
