"""A collector's state as Prometheus text: nothing about people or their messages is finer than steps of k."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kanab.collector.figures import EDGES, FlooredHistogram
from kanab.collector.health import LiveHealth
from kanab.collector.readiness import Problem
from kanab.privacy.release import PeopleAccounts
from kanab.stats.srm import LIVE_SAMPLE_RATIO_ALARM

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_OTHER_SHARES = "Do people arrive in other shares than planned"
_STEPS = "floored to multiples of k"

_PROCESS = {
    "process_cpu_seconds_total": ("counter", "Processor time that was used, in seconds."),
    "process_start_time_seconds": ("gauge", "When the process started, in seconds since 1970."),
    "process_resident_memory_bytes": ("gauge", "Memory that the process has."),
    "process_open_fds": ("gauge", "Open files and connections."),
    "process_threads": ("gauge", "Threads of Python."),
}

COUNTS = frozenset(
    "kanab_people kanab_acknowledged_people kanab_sample_ratio_alarm kanab_posts_total kanab_dropped_total "
    "kanab_waiting_posts kanab_nonces kanab_post_seconds kanab_commit_seconds".split()
)
"""What counts people or their messages: with ε not even its steps of k are shown."""

Samples = Iterable[tuple[str, float]]


@dataclass(frozen=True)
class CollectorFigures:
    """What `/metrics` shows: states and times as they are, whatever counts messages floored to multiples of k.

    With a plan that has an ε (``noisy``) it shows nothing that counts people or messages.
    """

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
    process: Mapping[str, float] = field(default_factory=dict)
    noisy: bool = False


def metrics_text(figures: CollectorFigures) -> str:
    r"""Return the text format of Prometheus: one line per number.

    >>> text = metrics_text(CollectorFigures(LiveHealth(people={"checkout": {"A": 120}}), answers={"counted": 240}))
    >>> print(*(line for line in text.splitlines() if "kanab_people" in line or "posts_total" in line), sep="\n")
    # HELP kanab_people People per arm, floored to multiples of k, refreshed hourly.
    # TYPE kanab_people gauge
    kanab_people{experiment="checkout",arm="A"} 120
    # HELP kanab_posts_total Posts by what they were answered, floored to multiples of k.
    # TYPE kanab_posts_total counter
    kanab_posts_total{answer="counted"} 240
    """
    live, ready = figures.live, not any(problem.stops for problem in figures.problems)
    people: Samples = [
        (_labels(experiment=name, arm=arm), count) for name, arms in live.people.items() for arm, count in arms.items()
    ]
    accounts: Samples = [
        (_labels(experiment=name, state=state), count)
        for name, states in figures.accounts.items()
        for state, count in states.items()
    ]
    alarms: Samples = [(_labels(experiment=name), name in live.alarms) for name in live.people]
    problems: Samples = [(_labels(problem=problem.value), problem in figures.problems) for problem in Problem]
    drops: Samples = [(_labels(reason=reason), count) for reason, count in figures.drops.items()]
    answers: Samples = [(_labels(answer=answer), count) for answer, count in figures.answers.items()]
    families: list[tuple[str, str, str, Samples]] = [
        ("kanab_up", "gauge", "Is the collector ready?", [("", ready)]),
        ("kanab_problem", "gauge", "Is this wrong now? The words are those of /readyz.", problems),
        ("kanab_info", "gauge", "Version, plan and epoch, as labels.", [(_labels(**figures.info), 1)]),
        ("kanab_sealed_batches", "gauge", "Batches that were sealed.", [("", figures.sealed)]),
        ("kanab_forged_total", "counter", "Metrics of tables that seals withheld as forged.", [("", figures.forged)]),
        ("kanab_deleted_total", "counter", "Seals that found records deleted from the store.", [("", figures.deleted)]),
        ("kanab_seal_lag_seconds", "gauge", "Since when something ripe should be sealed.", [("", figures.seal_lag)]),
        ("kanab_clock_step_seconds", "gauge", "By how much the clock has jumped ahead.", [("", figures.clock_step)]),
        ("kanab_people", "gauge", f"People per arm, {_STEPS}, refreshed hourly.", people),
        (
            "kanab_acknowledged_people",
            "gauge",
            f"People as of the last seal: published, held back for the next one, destroyed; {_STEPS}.",
            accounts,
        ),
        ("kanab_sample_ratio_alarm", "gauge", f"{_OTHER_SHARES} (p below {LIVE_SAMPLE_RATIO_ALARM:g})?", alarms),
        ("kanab_posts_total", "counter", f"Posts by what they were answered, {_STEPS}.", answers),
        ("kanab_dropped_total", "counter", f"Lines and posts that were not counted, by reason, {_STEPS}.", drops),
        ("kanab_waiting_posts", "gauge", f"Posts that wait for a commit, {_STEPS}.", [("", figures.waiting)]),
        ("kanab_waiting_posts_limit", "gauge", "Posts that may wait for a commit.", [("", figures.most_waiting)]),
        ("kanab_nonces", "gauge", f"Nonces that are remembered, {_STEPS}.", [("", figures.nonces)]),
        ("kanab_post_seconds", "histogram", f"Until a post is on disk; numbers {_STEPS}.", _buckets(figures.posts)),
        ("kanab_commit_seconds", "histogram", f"Time of a commit; numbers {_STEPS}.", _buckets(figures.commits)),
        *((name, *_PROCESS[name], [("", value)]) for name, value in figures.process.items()),
    ]
    if figures.noisy:
        families = [family for family in families if family[0] not in COUNTS]
        families.insert(
            0, ("kanab_noisy", "gauge", "The plan has an ε: nothing that counts messages is shown.", [("", 1)])
        )
    lines = []
    for name, kind, text, samples in families:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{rest} {_number(value)}" for rest, value in samples]
    return "\n".join(lines) + "\n"


def _buckets(histogram: FlooredHistogram) -> Samples:
    for edge, count in zip(EDGES, histogram.up_to, strict=True):
        yield "_bucket" + _labels(le=_number(edge)), count
    yield "_bucket" + _labels(le="+Inf"), histogram.total
    yield "_sum", round(histogram.seconds, 6)
    yield "_count", histogram.total


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _labels(**labels: str) -> str:
    parts = []
    for name, text in labels.items():
        safe = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        parts.append(f'{name}="{safe}"')
    return "{" + ",".join(parts) + "}" if parts else ""
