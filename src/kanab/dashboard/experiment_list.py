"""One line per experiment: its state, its people, its health, its next seal and its results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal

from kanab.analysis.decision import ANSWERS, broken, decide, decision_words
from kanab.dashboard.next_seal import CollectionStatus
from kanab.dashboard.results import ExperimentReadout
from kanab.dashboard.timeline import Trend
from kanab.errors import LedgerError
from kanab.report.digits import metric_figures
from kanab.report.words import alarmed, balance_faults, headlines, kind_of, metrics_of, tone
from kanab.stats.srm import LIVE_SAMPLE_RATIO_ALARM, SAMPLE_RATIO_ALARM

State = Literal["waiting", "running", "ended", "released"]
Health = Literal["alarm", "caution", "fine", "unknown"]

STATES: dict[State, str] = {
    "waiting": "nothing is sealed yet",
    "running": "people are counted, and some are sealed",
    "ended": "no longer in the plan",
    "released": "from release files",
}
HEALTHS: tuple[Health, ...] = ("alarm", "caution", "fine", "unknown")

MOST_EXPERIMENTS = 250
"""So many experiments are on one page of the list."""

BEING_READ = "it is being read"
"""Why nothing is known yet of an experiment that was released."""

_RATIO = "people do not arrive in the planned shares (p below {:g})"
_CHAIN = "its ledger could not be verified"
_QUIET_CAUTIONS = ("looked-early", "design-ended")
"""Said on the experiment's own page: they are nothing that anybody has to see to."""


@dataclass(frozen=True)
class Result:
    """One metric and arm, short enough for a line: what it shows, and how much."""

    metric: str
    arm: str
    kind: str
    tone: str
    change: str


@dataclass(frozen=True)
class ExperimentSummary:
    """One experiment in the list. People per arm are floored to multiples of k."""

    name: str
    state: State
    health: Health
    why: str
    people: int
    arms: Mapping[str, int]
    k: int
    seals: int = 0
    next_seal: datetime | None = None
    look: str = ""
    verdict: str = ""
    decision: Mapping[str, Any] | None = None
    results: tuple[Result, ...] = ()
    trend: Trend | None = None

    @property
    def clear(self) -> tuple[Result, ...]:
        """The clear effects."""
        return tuple(result for result in self.results if result.kind in ("up", "down"))

    @property
    def watched(self) -> tuple[Result, ...]:
        """What a few people could have made."""
        return tuple(result for result in self.results if result.kind == "watch")

    @property
    def answer(self) -> str:
        """What to do; empty where no metric is primary."""
        return "" if self.decision is None else self.decision["answer"]

    @property
    def urgent(self) -> bool:
        """Whether somebody could act on it now."""
        return self.answer in ("broken", "stop", "ship") or (not self.answer and self.verdict == "may stop")

    @property
    def decision_words(self) -> str:
        """What to do, with the arm that it is about."""
        return "" if self.decision is None else decision_words(self.decision)

    def to_dict(self) -> dict[str, Any]:
        """Return the line as plain data, ready for JSON."""
        moment = None if self.next_seal is None else self.next_seal.isoformat()
        plain = asdict(replace(self, trend=None)) | {"arms": dict(self.arms), "next_seal": moment}
        return plain | {"trend": None if self.trend is None else self.trend.to_dict()}


def summaries(
    readouts: Mapping[str, Sequence[ExperimentReadout] | None],
    collection: CollectionStatus | None,
    interferes: Mapping[str, Sequence[Mapping[str, str]]] | None = None,
) -> list[ExperimentSummary]:
    """Return every experiment of the plan in force, and every other one that was ever released.

    Where the readouts of one are None it is being read, and its line says so.
    """
    planned = () if collection is None else collection.plan.experiment_names
    lines = []
    for name in dict.fromkeys((*planned, *readouts)):
        own = readouts.get(name, ())
        line = summarize(name, own[-1] if own else None, collection, (interferes or {}).get(name, ()))
        lines.append(line if own is not None else replace(line, why=BEING_READ))
    return lines


def summarize(
    name: str,
    readout: ExperimentReadout | None,
    collection: CollectionStatus | None,
    interferes: Sequence[Mapping[str, str]] = (),
) -> ExperimentSummary:
    """Return the line of one experiment: what was sealed, and what may be seen before the next seal.

    ``interferes`` are the experiments that change its effects, where a scan of pairs knows of any, and the metrics.
    """
    running = collection is not None and collection.runs(name)
    next_seal = collection.next_seal if running and collection is not None else None
    live = collection.live if running and collection is not None else None
    people = {} if live is None else live.people.get(name) or {}
    live_arms = dict(people) if sum(people.values()) else {}
    ratio_alarm = live is not None and name in live.alarms
    if readout is None or readout.readout is None:
        k = collection.plan.k if collection is not None else 0
        health: Health = "alarm" if ratio_alarm else "unknown"
        why = _RATIO.format(LIVE_SAMPLE_RATIO_ALARM) if ratio_alarm else STATES["waiting"]
        if readout is not None and readout.problem is not None:
            health, why = "alarm", f"it cannot be analyzed: {readout.problem.fact}"
        state: State = "released" if readout is not None and collection is None else "waiting"
        return ExperimentSummary(name, state, health, why, sum(live_arms.values()), live_arms, k, next_seal=next_seal)
    data = readout.data
    arms = live_arms or {arm: count // data["k"] * data["k"] for arm, count in data["arms"].items()}
    state = "running" if running else "ended" if collection is not None else "released"
    health, why = _health(data, readout, ratio_alarm=ratio_alarm)
    look, verdict = _look(data)
    return ExperimentSummary(
        name, state, health, why, sum(arms.values()), arms, data["k"], len(readout.bundle.releases), next_seal,
        look, verdict, _decision(data | {"interferes": interferes}, health, why, running=running),
        tuple(_results(data)),
    )  # fmt: skip


def _decision(data: Mapping[str, Any], health: Health, why: str, *, running: bool) -> dict[str, Any] | None:
    """Return what to do now; where something is an alarm here, its cause has to be found first."""
    decision = decide(data, running=running)
    if decision is None or health != "alarm" or decision["answer"] == "broken":
        return decision
    return broken(data, why)


def _health(data: Mapping[str, Any], readout: ExperimentReadout, *, ratio_alarm: bool) -> tuple[Health, str]:
    """Return the health: a wrong sample ratio, unlike arms or a broken ledger are alarms; other cautions are said."""
    if ratio_alarm or alarmed(data):
        return "alarm", _RATIO.format(SAMPLE_RATIO_ALARM if alarmed(data) else LIVE_SAMPLE_RATIO_ALARM)
    if unlike := balance_faults(data):
        return "alarm", f"{'; '.join(unlike)} (corrected p below {data['balance']['limit']:g})"
    if isinstance(readout.bundle.chain.ledger, LedgerError):
        return "alarm", _CHAIN
    cautions = [caution for caution in data["cautions"] if caution["kind"] not in _QUIET_CAUTIONS]
    if cautions:
        more = f", and {len(cautions) - 1} more" if len(cautions) > 1 else ""
        return "caution", f"{cautions[0]['kind'].replace('-', ' ')}{more}"
    return "fine", "people arrive as planned"


def _look(data: Mapping[str, Any]) -> tuple[str, str]:
    """Return which of the planned looks this is, and whether one may stop: as soon as any arm may, on any metric."""
    looks = [row["sequential"] for metric in metrics_of(data) for row in headlines(data, metric) if row["sequential"]]
    if not looks:
        return "", ""
    first = looks[0]
    of = f" of {first['looks']}" if first["looks"] else ""
    verdicts = {look["verdict"] for look in looks}
    strongest = next((verdict for verdict in ("may stop", "keep going", "ended") if verdict in verdicts), "")
    return f"look {first['look']}{of}", strongest


def _results(data: Mapping[str, Any]) -> Iterable[Result]:
    for metric in metrics_of(data):
        figures, relative = metric_figures(data, metric)
        for row in headlines(data, metric):
            change = figures.change(row["estimate"], signed=True)
            if row["relative"] is not None and row["relative_interval"] is not None:
                change = f"{relative.bare(row['relative'], signed=True)} %"
            yield Result(metric, row["arm"], kind_of(row), tone(row), change)


@dataclass(frozen=True)
class ListFilter:
    """Which experiments a reader of the list asked for, and in which order, from the address of the page."""

    q: str = ""
    state: str = ""
    health: str = ""
    sort: str = "attention"
    decision: str = ""

    @property
    def query(self) -> dict[str, str]:
        """The filter as the query of an address."""
        return asdict(self)

    @classmethod
    def read(cls, query: Mapping[str, str]) -> ListFilter:
        """Read the filter from the query of an address; what is not known is ignored."""
        state, health, sort, decision = (query.get(name, "") for name in ("state", "health", "sort", "decision"))
        return cls(
            query.get("q", "")[:200].strip(),
            state if state in STATES else "",
            health if health in HEALTHS else "",
            sort if sort.removeprefix("-") in _SORT_KEYS else "attention",
            decision if decision in ANSWERS else "",
        )

    def select(self, experiments: Iterable[ExperimentSummary]) -> list[ExperimentSummary]:
        """Return the experiments that were asked for, in the order that was asked for."""
        text = self.q.casefold()
        selected = [
            experiment
            for experiment in experiments
            if text in experiment.name.casefold()
            and self.state in ("", experiment.state)
            and self.health in ("", experiment.health)
            and self.decision in ("", experiment.answer)
        ]
        selected.sort(key=_SORT_KEYS["name"])
        return sorted(selected, key=_SORT_KEYS[self.sort.removeprefix("-")], reverse=self.sort.startswith("-"))


_SORT_KEYS: dict[str, Callable[[ExperimentSummary], Any]] = {
    "attention": lambda line: (HEALTHS.index(line.health), not line.urgent, line.state == "ended"),
    "name": lambda line: line.name.casefold(),
    "people": lambda line: -line.people,
    "seals": lambda line: -line.seals,
    "result": lambda line: -len(line.clear),
    "decision": lambda line: ANSWERS.index(line.answer) if line.answer in ANSWERS else len(ANSWERS),
}


class ListPage:
    """What the page of all experiments shows: a page of those that were asked for, and facts about all."""

    def __init__(self, experiments: Sequence[ExperimentSummary], filters: ListFilter, number: str = "") -> None:
        self.total = len(experiments)
        read = [line for line in experiments if line.why != BEING_READ]
        self.unread = len(experiments) - len(read)
        self.counts = {health: sum(line.health == health for line in read) for health in HEALTHS}
        self.may_stop = sum(line.verdict == "may stop" for line in experiments)
        self.mixed = len({line.state for line in experiments}) > 1
        self.sealing = any(line.next_seal for line in experiments)
        self.sealed = any(line.seals for line in experiments)
        self.drawn = any(line.trend for line in experiments)
        self.looking = any(line.verdict for line in experiments)
        answers = [line.answer for line in experiments]
        self.decisions = {answer: answers.count(answer) for answer in ANSWERS if answer in answers}
        selected = filters.select(experiments)
        self.selected = len(selected)
        self.pages = max(1, math.ceil(len(selected) / MOST_EXPERIMENTS))
        self.number = min(max(int(number) if number.isdecimal() and len(number) < 6 else 1, 1), self.pages)
        self.shown = selected[(self.number - 1) * MOST_EXPERIMENTS : self.number * MOST_EXPERIMENTS]
