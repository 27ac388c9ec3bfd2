"""The head of a line (everything before its totals) and what it stands for: a class, a cohort, a metric.

Heads are few and come again and again, so each is read once and then looked up as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import floor
from typing import NamedTuple

from kanab.collector.counting.apply import ENROLLED, Place
from kanab.collector.counting.cohorts import Calendar
from kanab.collector.counting.layout import Layout, layouts
from kanab.collector.protocol.encoding import decode, encode, respell, spell
from kanab.collector.protocol.post import Line, number
from kanab.collector.protocol.reasons import Reason, refused
from kanab.errors import MessageError, listed
from kanab.plan.model import Plan
from kanab.tally.factor import Level
from kanab.tally.metric import Metric

MOST_HEADS = 65_536
"""So many heads are remembered; then all are forgotten, and read again."""

_OLD = "_old"


class Gauge(NamedTuple):
    """A metric's grid: steps per unit, its bounds in steps, and whether everybody begins with 0."""

    scale: float
    low: int
    high: int
    whole: bool

    def steps(self, value: float) -> int:
        """A finite number on the grid, by the rule of ``Metric.to_grid``: plus one half, floor, clamp.

        >>> Gauge(100.0, 0, 50_000, True).steps(0.29), Gauge(100.0, 0, 50_000, True).steps(9_999.0)
        (29, 50000)
        """
        scale, low, high, _ = self
        found = value * scale + 0.5
        return high if found >= high else low if found < low else floor(found)


class Spot:
    """One class in one cohort; ``own`` is its experiment, but None for a pair of experiments."""

    __slots__ = ("cohort", "own", "place")

    def __init__(self, place: Place, cohort: int) -> None:
        self.place = place
        self.cohort = cohort
        names = place.layout.linkage.experiments
        self.own = names[0] if len(names) == 1 else None


Found = tuple[Spot, int, tuple[Gauge, ...]]
"""Where a line counts, what it counts (an enrollment, a metric or a ratio), and the grids of its totals."""


class Heads:
    """What a plan lets the lines of posts say."""

    def __init__(self, plan: Plan, calendar: Calendar, began: Mapping[str, Sequence[str]] | None = None) -> None:
        every = layouts(plan, began)
        self.experiments = set(plan.experiment_names)
        self.own = {name: [one for one in every if one.linkage.experiments == (name,)] for name in self.experiments}
        self._calendar = calendar
        self._tables = listed(one.linkage.name for one in every)
        self._layouts = {one.name: one for one in every}
        self._paper = plan.cohorts is None
        if self._paper:  # the paper names a table by its experiment alone
            self._layouts |= {encode(name): own[0] for name, own in self.own.items() if len(own) == 1}
        metrics = every[0].metrics
        gauges = {one.name: _gauge(one) for one in metrics}
        self._whats: dict[str, tuple[int, tuple[Gauge, ...]]] = {
            encode(one.name): (what, (gauges[one.name],)) for what, one in enumerate(metrics)
        }
        for what, ratio in enumerate(every[0].ratios, len(metrics)):
            first, second = ratio.pair
            self._whats[ratio.name] = what, (gauges[first], gauges[second])
        self._levels = {
            one.name: tuple({encode(spell(level)): level for level in factor.levels} for factor in one.factors)
            for one in every
        }
        self._places: dict[tuple[str, tuple[Level, ...]], Place] = {}
        self._spots: dict[tuple[Place, int], Spot] = {}
        self.known: dict[str, Found] = {}

    def trim(self) -> None:
        """Forget all heads when there are too many: only then, and never within a post."""
        if len(self.known) > MOST_HEADS:
            self.known.clear()
            self._spots.clear()

    def find(self, line: Line, at: str) -> tuple[Found, Line] | None:
        """What a line stands for, and the line, which may have been in the paper's spelling.

        None if its experiment is unknown.
        """
        head, _, new = line
        if self._paper and new is None:
            line = self._from_paper(head, at)
            head, _, new = line
        found = self._read(head, at, total=new is not None)
        if found is not None:
            self.known[head] = found
        return None if found is None else (found, line)

    def _read(self, head: str, at: str, *, total: bool) -> Found | None:
        before, dated, after = head.partition("@")
        if dated:
            cohort, named, metric = after.partition(":")
        else:
            named = ""
            if total:
                before, named, metric = before.rpartition(":")
        table, *levels = before.split(":")
        if bool(named) != total or not levels:
            raise _unreadable(at)
        if decode(table.partition("/")[0]) not in self.experiments:
            return None
        layout = self._layouts.get(respell(table))
        if layout is None:
            raise refused(Reason.LINKAGE, "unknown table", f"The plan has: {self._tables}.", at)
        place = self._place(layout, levels, at)
        number = self._calendar.number(cohort if dated else None, at)
        what = self._what(metric, at) if total else (ENROLLED, ())
        spot = self._spots.setdefault((place, number), Spot(place, number))  # last, so that each has a known head
        return (spot, *what)

    def _place(self, layout: Layout, levels: list[str], at: str) -> Place:
        declared = self._levels[layout.name]
        if len(levels) != len(declared):
            raise _unreadable(at)
        found: list[Level] = []
        for factor, known, text in zip(layout.factors, declared, levels, strict=True):
            spelled = encode(decode(text))
            if spelled not in known:
                word = "arm" if factor.role == "arm" else "level"
                names = listed(spell(level) for level in factor.levels if level is not None)
                raise refused(Reason.LEVEL, f"unknown {word} for {factor.name!r}", f"Declared {word}s: {names}.", at)
            found.append(known[spelled])
        key = layout.name, tuple(found)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place(layout, found)
        return place

    def _what(self, metric: str, at: str) -> tuple[int, tuple[Gauge, ...]]:
        found = self._whats.get(respell(metric))
        if found is None:
            known = listed(decode(name) for name in self._whats)
            raise refused(Reason.METRIC, "unknown metric", f"The plan has: {known}.", at)
        return found

    def _from_paper(self, head: str, at: str) -> Line:
        """A line in the paper's spelling: Test1:B:3, …:minutes:4 and …:minutes_old:4:minutes:2 (two more)."""
        table, *rest = head.split(":")
        layout = self._layouts.get(respell(table))
        size = 0 if layout is None else len(layout.factors)
        totals = rest[size:]
        if layout is None or not totals:
            return head, None, None
        before = ":".join([table, *rest[:size]])
        if len(totals) == 2:
            metric, new = totals
            _, gauges = self._what(metric, at)
            return f"{before}:{metric}", 0.0 if gauges[0].whole else None, _number(new, at)
        if len(totals) != 4 or decode(totals[0]) != decode(totals[2]) + _OLD:
            raise _unreadable(at)
        old, more = _number(totals[1], at), _number(totals[3], at)
        return f"{before}:{totals[2]}", old, old + more


def _number(text: str, at: str) -> float:
    with suppress(ValueError):  # Python's own error repeats the text: ours is raised where that one is gone
        return number(text)
    raise refused(Reason.NUMBER, "a total is not a finite number", "Write it in digits.", at)


def _gauge(metric: Metric) -> Gauge:
    low, high = metric.grid_bounds or (0, 0)
    return Gauge(float(metric.scale), low, high, metric.missing == "zero")


def _unreadable(at: str) -> MessageError:
    return refused(
        Reason.LINE, "a line cannot be read", "Write table:arm:level@cohort, and for a total :metric:old>new.", at
    )
