"""A collector's state as Prometheus text: nothing about people or their messages is finer than steps of k."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from prometheus_client import Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from kanab.collector.health import LiveHealth
from kanab.collector.readiness import Problem
from kanab.collector.writer import EDGES, FlooredHistogram
from kanab.privacy.release import PeopleAccounts
from kanab.stats.srm import LIVE_SAMPLE_RATIO_ALARM

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_OTHER_SHARES = "Do people arrive in other shares than planned"
_STEPS = "floored to multiples of k"

COUNTS = frozenset(
    "kanab_people kanab_acknowledged_people kanab_sample_ratio_alarm kanab_posts_total kanab_dropped_total "
    "kanab_waiting_posts kanab_nonces kanab_post_seconds kanab_commit_seconds".split()
)
"""What counts people or their messages: with ε not even its steps of k are shown."""


@dataclass(frozen=True)
class CollectorFigures:
    """What `/metrics` shows; what counts messages in multiples of k, and with an ε (``noisy``) not at all."""

    live: LiveHealth = field(default_factory=LiveHealth)
    problems: Sequence[Problem] = ()
    info: Mapping[str, str] = field(default_factory=dict)
    sealed: int = 0
    forged: int = 0
    deleted: int = 0
    accounts: PeopleAccounts = field(default_factory=dict)
    seal_lag: float = 0.0
    clock_step: float = 0.0
    waiting: int = 0
    most_waiting: int = 0
    nonces: int = 0
    answers: Mapping[str, int] = field(default_factory=dict)
    drops: Mapping[str, int] = field(default_factory=dict)
    posts: FlooredHistogram = field(default_factory=FlooredHistogram)
    commits: FlooredHistogram = field(default_factory=FlooredHistogram)
    noisy: bool = False


def metrics_text(figures: CollectorFigures) -> str:
    r"""Return the text format of Prometheus: one line per number."""
    families = [*_families(figures)]
    if figures.noisy:
        families = [each for each in families if not COUNTS & {each.name, f"{each.name}_total"}]
        families.insert(0, _family("kanab_noisy", "The plan has an ε: nothing that counts messages is shown.", 1))
    registry: Any = SimpleNamespace(collect=lambda: families)
    return generate_latest(registry).decode()


def _families(figures: CollectorFigures) -> Iterator[Metric]:
    live, ready = figures.live, not any(problem.stops for problem in figures.problems)
    people = {(name, arm): count for name, arms in live.people.items() for arm, count in arms.items()}
    accounts = {(name, state): n for name, states in figures.accounts.items() for state, n in states.items()}
    problems = {(problem.value,): problem in figures.problems for problem in Problem}
    alarms = {(name,): name in live.alarms for name in live.people}
    info = {tuple(figures.info.values()): 1}
    of_people = f"People as of the last seal: published, held back for the next one, destroyed; {_STEPS}."
    shares = f"{_OTHER_SHARES} (p below {LIVE_SAMPLE_RATIO_ALARM:g})?"
    yield _family("kanab_up", "Is the collector ready?", ready)
    yield _family("kanab_problem", "Is this wrong now? The words are those of /readyz.", problems, "problem")
    yield _family("kanab_info", "Version, plan and epoch, as labels.", info, *figures.info)
    yield _family("kanab_sealed_batches", "Batches that were sealed.", figures.sealed)
    yield _family("kanab_forged_total", "Metrics of tables that seals withheld as forged.", figures.forged)
    yield _family("kanab_deleted_total", "Seals that found records deleted from the store.", figures.deleted)
    yield _family("kanab_seal_lag_seconds", "Since when something ripe should be sealed.", figures.seal_lag)
    yield _family("kanab_clock_step_seconds", "By how much the clock has jumped ahead.", figures.clock_step)
    yield _family("kanab_people", f"People per arm, {_STEPS}, refreshed hourly.", people, "experiment", "arm")
    yield _family("kanab_acknowledged_people", of_people, accounts, "experiment", "state")
    yield _family("kanab_sample_ratio_alarm", shares, alarms, "experiment")
    answers, drops = ({(word,): n for word, n in counts.items()} for counts in (figures.answers, figures.drops))
    not_counted = f"Lines and posts that were not counted, by reason, {_STEPS}."
    yield _family("kanab_posts_total", f"Posts by what they were answered, {_STEPS}.", answers, "answer")
    yield _family("kanab_dropped_total", not_counted, drops, "reason")
    yield _family("kanab_waiting_posts", f"Posts that wait for a commit, {_STEPS}.", figures.waiting)
    yield _family("kanab_waiting_posts_limit", "Posts that may wait for a commit.", figures.most_waiting)
    yield _family("kanab_nonces", f"Nonces that are remembered, {_STEPS}.", figures.nonces)
    yield _histogram("kanab_post_seconds", f"Until a post is on disk; numbers {_STEPS}.", figures.posts)
    yield _histogram("kanab_commit_seconds", f"Time of a commit; numbers {_STEPS}.", figures.commits)
    for family in ProcessCollector(registry=None).collect():
        for place, sample in enumerate(family.samples):
            if family.name == "process_cpu_seconds":  # in tenths: finer, it would tell of single posts
                family.samples[place] = sample._replace(value=round(sample.value, 1))
        yield family


def _family(name: str, text: str, values: float | Mapping[Any, float], *labels: str) -> Metric:
    """Return a family of one number, or of one for each combination of labels."""
    family = (CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily)(name, text, labels=labels)
    for words, value in values.items() if isinstance(values, Mapping) else [((), values)]:
        family.add_metric(words, value)
    return family


def _histogram(name: str, text: str, numbers: FlooredHistogram) -> Metric:
    buckets = [(f"{edge:g}", count) for edge, count in zip(EDGES, numbers.up_to, strict=True)]
    family = HistogramMetricFamily(name, text)
    family.add_metric([], [*buckets, ("+Inf", numbers.total)], round(numbers.seconds, 6))
    return family
