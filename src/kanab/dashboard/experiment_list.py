"""One line per experiment: how it stands, who is in it, is it healthy, when it seals next, what it says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from kanab.dashboard.next_seal import Standing
from kanab.dashboard.results import Reading
from kanab.errors import LedgerError
from kanab.report.figures import figures_of, is_share, relative_figures
from kanab.report.words import alarmed, headlines, kind_of, metrics_of

State = Literal["waiting", "running", "ended", "released"]
Health = Literal["alarm", "caution", "fine", "unknown"]

STATES: dict[State, str] = {
    "waiting": "nothing is sealed yet",
    "running": "people are counted, and some are sealed",
    "ended": "no longer in the plan",
    "released": "from release files",
}
HEALTHS: tuple[Health, ...] = ("alarm", "caution", "fine", "unknown")
SORTS = ("attention", "name", "people", "seals", "result")
MARKS = {"up": "▲", "down": "▼", "hint": "△", "unclear": "○", "untestable": "–"}

MOST_ENTRIES = 250
"""So many experiments are on one page of the list."""

_RATIO = "people do not arrive in the planned shares"
_CHAIN = "its ledger could not be verified"
_QUIET_CAUTIONS = ("looked-early",)
"""Said on the experiment's own page: nearly every experiment has it, so it tells none from the others."""


@dataclass(frozen=True)
class Result:
    """One metric and arm, short enough for a line: what it shows, and how much."""

    metric: str
    arm: str
    kind: str
    change: str


@dataclass(frozen=True)
class Entry:
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
    results: tuple[Result, ...] = field(default_factory=tuple)

    @property
    def clear(self) -> tuple[Result, ...]:
        """The results that say something."""
        return tuple(one for one in self.results if one.kind in ("up", "down"))

    def to_dict(self) -> dict[str, Any]:
        """As plain data, ready for JSON."""
        moment = None if self.next_seal is None else self.next_seal.isoformat()
        return asdict(self) | {"arms": dict(self.arms), "next_seal": moment}


def entries(readings: Mapping[str, Sequence[Reading]], standing: Standing | None) -> list[Entry]:
    """Every experiment of the plan in force, and every other one that was ever released."""
    planned = () if standing is None else standing.plan.experiment_names
    names = dict.fromkeys((*planned, *readings))
    return [entry(name, readings[name][-1] if name in readings else None, standing) for name in names]


def entry(name: str, reading: Reading | None, standing: Standing | None) -> Entry:
    """One experiment: what was sealed, and what may be seen before the next seal."""
    running = standing is not None and name in standing.plan.experiment_names
    next_seal = standing.next_seal if running and standing is not None else None
    live = _live(name, standing) if running else None
    ringing = running and standing is not None and standing.live is not None and name in standing.live.alarms
    if reading is None or reading.readout is None:
        k = standing.plan.k if standing is not None else 0
        arms = live or {}
        health, why = _unread(reading, ringing=ringing)
        state: State = "released" if reading is not None and standing is None else "waiting"
        return Entry(name, state, health, why, sum(arms.values()), arms, k, next_seal=next_seal)
    data = reading.data
    arms = live or {arm: people // data["k"] * data["k"] for arm, people in data["arms"].items()}
    state = "running" if running else "ended" if standing is not None else "released"
    health, why = _health(data, reading, ringing=ringing)
    look, verdict = _look(data)
    return Entry(
        name, state, health, why, sum(arms.values()), arms, data["k"], len(reading.bundle.releases), next_seal,
        look, verdict, tuple(_results(data)),
    )  # fmt: skip


def _live(name: str, standing: Standing | None) -> dict[str, int] | None:
    found = None if standing is None or standing.live is None else standing.live.people.get(name)
    return None if not found or not sum(found.values()) else dict(found)


def _unread(reading: Reading | None, *, ringing: bool) -> tuple[Health, str]:
    if reading is not None and reading.problem is not None:
        return "alarm", f"it cannot be analyzed: {reading.problem.fact}"
    return ("alarm", _RATIO) if ringing else ("unknown", "nothing is sealed yet")


def _health(data: Mapping[str, Any], reading: Reading, *, ringing: bool) -> tuple[Health, str]:
    """A broken split or a broken ledger rings; other cautions are said."""
    if ringing or alarmed(data):
        return "alarm", _RATIO
    if isinstance(reading.bundle.chain.ledger, LedgerError):
        return "alarm", _CHAIN
    cautions = [one for one in data["cautions"] if one["kind"] not in _QUIET_CAUTIONS]
    if cautions:
        more = f", and {len(cautions) - 1} more" if len(cautions) > 1 else ""
        return "caution", f"{cautions[0]['kind'].replace('-', ' ')}{more}"
    return "fine", "people arrive as planned"


def _look(data: Mapping[str, Any]) -> tuple[str, str]:
    """Which of the planned looks this is, and whether one may stop: as soon as any arm may, on any metric."""
    looks = [row["sequential"] for metric in metrics_of(data) for row in headlines(data, metric) if row["sequential"]]
    if not looks:
        return "", ""
    first = looks[0]
    of = f" of {first['looks']}" if first["looks"] else ""
    verdicts = {one["verdict"] for one in looks}
    chosen = next((one for one in ("may stop", "keep going", "ended") if one in verdicts), "")
    return f"look {first['look']}{of}", chosen


def _results(data: Mapping[str, Any]) -> Iterable[Result]:
    for metric in metrics_of(data):
        share = is_share(data, metric)
        for row in headlines(data, metric):
            change = figures_of([row], share=share, brief=True).change(row["estimate"], signed=True)
            if row["relative"] is not None and row["relative_interval"] is not None:
                change = f"{relative_figures([row], brief=True).bare(row['relative'], signed=True)} %"
            yield Result(metric, row["arm"], kind_of(row, data["confidence"]), change)


@dataclass(frozen=True)
class Wish:
    """What a reader of the list asked for, from the address of the page."""

    text: str = ""
    state: str = ""
    health: str = ""
    sort: str = "attention"

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Wish:
        """A wish that makes no sense is none."""
        state, health, sort = (query.get(name, "") for name in ("state", "health", "sort"))
        return cls(
            query.get("q", "")[:200].strip(),
            state if state in STATES else "",
            health if health in HEALTHS else "",
            sort if sort.removeprefix("-") in SORTS else "attention",
        )

    def grant(self, found: Iterable[Entry]) -> list[Entry]:
        """The entries that were asked for, in the order that was asked for."""
        text = self.text.casefold()
        chosen = [
            one
            for one in found
            if text in one.name.casefold() and self.state in ("", one.state) and self.health in ("", one.health)
        ]
        chosen.sort(key=lambda one: one.name.casefold())
        return sorted(chosen, key=_KEYS[self.sort.removeprefix("-")], reverse=self.sort.startswith("-"))


_KEYS: dict[str, Any] = {
    "attention": lambda one: (HEALTHS.index(one.health), one.verdict != "may stop", one.state == "ended"),
    "name": lambda one: one.name.casefold(),
    "people": lambda one: -one.people,
    "seals": lambda one: -one.seals,
    "result": lambda one: -len(one.clear),
}


class Listing:
    """What the page of all experiments shows: a page of those that were asked for, and facts about all."""

    def __init__(self, everything: Sequence[Entry], wish: Wish, page: str = "") -> None:
        self.total = len(everything)
        self.counts = {health: sum(one.health == health for one in everything) for health in HEALTHS}
        self.may_stop = sum(one.verdict == "may stop" for one in everything)
        self.mixed = len({one.state for one in everything}) > 1
        self.sealing = any(one.next_seal for one in everything)
        self.looking = any(one.verdict for one in everything)
        chosen = wish.grant(everything)
        self.chosen = len(chosen)
        self.pages = max(1, math.ceil(len(chosen) / MOST_ENTRIES))
        self.number = min(max(int(page) if page.isdecimal() and len(page) < 6 else 1, 1), self.pages)
        self.shown = chosen[(self.number - 1) * MOST_ENTRIES : self.number * MOST_ENTRIES]
