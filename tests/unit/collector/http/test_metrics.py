"""What a monitoring system reads, by a strict reader of its format."""

from __future__ import annotations

import asyncio
import math
import re
from datetime import timedelta

import pytest
from tests.unit.collector.http.conftest import RunningService, ask

from kanab.collector.figures import EDGES, Histogram
from kanab.collector.health import LiveHealth
from kanab.collector.http.app import Collector
from kanab.collector.http.metrics import COUNTS, CollectorFigures, metrics_text
from kanab.collector.readiness import Problem

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'
_SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (\S+)")
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> tuple[dict[str, str], Samples]:
    """Read the text format (version 0.0.4) as its specification says, and refuse everything else."""
    assert text.endswith("\n")
    kinds: dict[str, str] = {}
    samples: Samples = {}
    family = helped = ""
    for line in text[:-1].split("\n"):
        if match := re.fullmatch(rf"# HELP ({_NAME}) (?:[^\\\n]|\\[\\n])+", line):
            helped = match[1]
        elif match := re.fullmatch(rf"# TYPE ({_NAME}) (counter|gauge|histogram)", line):
            family = match[1]
            assert family == helped
            assert family not in kinds  # a family is one block
            kinds[family] = match[2]
            assert (match[2] == "counter") == family.endswith("_total")
        else:
            sample = _SAMPLE.fullmatch(line)
            assert sample is not None, line
            ends = ("_bucket", "_sum", "_count") if kinds[family] == "histogram" else ("",)
            assert sample[1] in {family + end for end in ends}
            labels = tuple((name, value) for name, value in re.findall(_LABEL, sample[2] or ""))
            assert len(dict(labels)) == len(labels)
            assert (sample[1], labels) not in samples
            samples[sample[1], labels] = float(sample[_SAMPLE.groups])
    for name in (name for name, kind in kinds.items() if kind == "histogram"):
        buckets = {
            float(dict(labels)["le"]): value for (own, labels), value in samples.items() if own == f"{name}_bucket"
        }
        assert list(buckets) == sorted(buckets)
        assert list(buckets.values()) == sorted(buckets.values())
        assert buckets[math.inf] == samples[f"{name}_count", ()]
    return kinds, samples


def test_names_that_would_break_the_format_are_escaped() -> None:
    name = 'a "quoted"\nname\\'
    live = LiveHealth(people={name: {"B\n": 10}}, alarms=frozenset({name}))
    _, samples = parsed(metrics_text(CollectorFigures(live, [Problem.CLOCK])))
    escaped = r"a \"quoted\"\nname\\"
    assert samples["kanab_people", (("experiment", escaped), ("arm", r"B\n"))] == 10
    assert samples["kanab_sample_ratio_alarm", (("experiment", escaped),)] == 1
    assert samples["kanab_up", ()] == 0
    assert samples["kanab_problem", (("problem", "clock"),)] == 1
    assert samples["kanab_problem", (("problem", "store"),)] == 0


def test_a_histogram_changes_when_k_more_were_added_and_then_in_steps_of_k() -> None:
    posts = Histogram()
    for _ in range(9):
        posts.add(0.004)
    assert posts.floored(10).total == 0
    posts.add(0.3)
    first = posts.floored(10)
    assert (first.total, first.up_to[-1], first.seconds) == (10, 10, pytest.approx(0.336))
    assert first.up_to[2] == 0  # nine of them: floored, too
    posts.add(99.0, 9)
    assert posts.floored(10) is first
    posts.add(99.0)
    assert posts.floored(10).total == 20
    assert posts.floored(10).up_to[EDGES.index(10.0)] == 10


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


def test_with_epsilon_nothing_that_counts_messages_is_shown() -> None:
    figures = CollectorFigures(LiveHealth(people={"checkout": {"A": 120}}), answers={"counted": 240}, noisy=True)
    text = metrics_text(figures)
    assert not COUNTS & {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert "kanab_noisy 1\n" in text
    assert "kanab_noisy" not in metrics_text(CollectorFigures())
