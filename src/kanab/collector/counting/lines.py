"""The prefix of a line (everything before its totals) and what it stands for: a class, a cohort, a metric.

Prefixes are few and come again and again, so each is read once and then looked up as it was written. Reading costs
as many steps as it has bytes, however large the plan is: whoever sends many prefixes makes the others' be read again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import floor
from typing import NamedTuple

from kanab.collector.counting.apply import ENROLLED, ClassCounters
from kanab.collector.counting.cohorts import Calendar
from kanab.collector.counting.layout import TableLayout, layouts
from kanab.collector.protocol.encoding import decode, encode, respell, spell
from kanab.collector.protocol.post import Line, read_number
from kanab.collector.protocol.reasons import Reason, refused
from kanab.errors import MessageError, listed
from kanab.plan.model import Plan
from kanab.tally.factor import Factor, Level
from kanab.tally.metric import Metric

MOST_PREFIXES = 65_536
"""Prefixes that are remembered; then all are forgotten, and read again."""

_OLD_SUFFIX = "_old"


class MetricGrid(NamedTuple):
    """A metric's grid: steps per unit, its bounds in steps, and whether everybody begins with 0."""

    scale: float
    low: int
    high: int
    starts_at_zero: bool

    @classmethod
    def of(cls, metric: Metric) -> MetricGrid:
        """Return the grid of a metric."""
        low, high = metric.grid_bounds or (0, 0)
        return cls(float(metric.scale), low, high, metric.missing == "zero")

    def steps(self, value: float) -> int:
        """Return a finite number on the grid, by the rule of ``Metric.to_grid``: plus one half, floor, clamp."""
        scale, low, high, _ = self
        position = value * scale + 0.5
        return high if position >= high else low if position < low else floor(position)


class CohortClass:
    """One class in one cohort, with its counters and its experiment, which is None for a pair of experiments."""

    __slots__ = ("cohort", "counters", "experiment")

    def __init__(self, counters: ClassCounters, cohort: int) -> None:
        self.counters = counters
        self.cohort = cohort
        names = counters.layout.linkage.experiments
        self.experiment = names[0] if len(names) == 1 else None


class _Declared(NamedTuple):
    """The levels of a factor as messages spell them, and what an error says instead of an unknown one."""

    levels: Mapping[str, Level]
    fact: str
    remedy: str


Meaning = tuple[CohortClass, int, tuple[MetricGrid, ...]]
"""The class of a line, what it measures (an enrollment, a metric or a ratio), and the grids of its totals."""


class LinePrefixes:
    """Reads the prefixes of lines by a plan, and remembers them."""

    def __init__(self, plan: Plan, calendar: Calendar, began: Mapping[str, Sequence[str]] | None = None) -> None:
        every = [layout for layout in layouts(plan, began) if not layout.linkage.people_only]
        own: dict[str, list[TableLayout]] = {name: [] for name in plan.experiment_names}
        for layout in every:
            if len(layout.linkage.experiments) == 1:
                own[layout.linkage.experiments[0]].append(layout)
        self.own_tables = {name: [layout.linkage.name for layout in tables] for name, tables in own.items()}
        self._experiments = {encode(name) for name in own}
        self._calendar = calendar
        self._tables = listed(layout.linkage.name for layout in every)
        self._layouts = {layout.name: layout for layout in every}
        self._paper = plan.cohorts is None
        if self._paper:  # the paper names a table by its experiment alone
            self._layouts |= {encode(name): tables[0] for name, tables in own.items() if len(tables) == 1}
        metrics = every[0].metrics
        grids = {metric.name: MetricGrid.of(metric) for metric in metrics}
        self._measures: dict[str, tuple[int, tuple[MetricGrid, ...]]] = {
            encode(metric.name): (measure, (grids[metric.name],)) for measure, metric in enumerate(metrics)
        }
        for measure, ratio in enumerate(every[0].ratios, len(metrics)):
            first, second = ratio.pair
            self._measures[ratio.name] = measure, (grids[first], grids[second])
        self._metrics = listed(decode(name) for name in self._measures)
        factors = {(factor.role, factor.name): factor for layout in every for factor in layout.factors}
        declared = {key: _declared(factor) for key, factor in factors.items()}
        self._levels = {
            layout.name: tuple(declared[factor.role, factor.name] for factor in layout.factors) for layout in every
        }
        spelled = chain(self._layouts, self._measures, *(levels for levels, _, _ in declared.values()))
        self._longest = 3 * max(map(len, spelled))
        self._classes: dict[str, ClassCounters] = {}
        self._targets: dict[tuple[ClassCounters, int], CohortClass] = {}
        self.known: dict[str, Meaning] = {}

    def trim(self) -> None:
        """Forget all prefixes when there are too many: only then, and never within a post."""
        if len(self.known) > MOST_PREFIXES:
            self.known.clear()
            self._targets.clear()

    def find(self, line: Line, at: str) -> tuple[Meaning, Line] | None:
        """Return what a line stands for, and the line as it is spelled now; None if its experiment is unknown."""
        prefix, _, new = line
        if self._paper and new is None:
            line = self._from_paper(prefix, at)
            prefix, _, new = line
        meaning = self._read(prefix, at, total=new is not None)
        if meaning is None:
            return None
        self.known[prefix] = meaning
        return meaning, line

    def _read(self, prefix: str, at: str, *, total: bool) -> Meaning | None:
        before, dated, after = prefix.partition("@")
        if dated:
            cohort, named, metric = after.partition(":")
        else:
            named = ""
            if total:
                before, named, metric = before.rpartition(":")
        if bool(named) != total or ":" not in before:
            raise _unreadable(at)
        counters = self._classes.get(before) or self._class(before, at)
        if counters is None:
            return None
        number = self._calendar.number(cohort if dated else None, at)
        measure = self._measure(metric, at) if total else (ENROLLED, ())
        # last, so that each has a known prefix
        target = self._targets.setdefault((counters, number), CohortClass(counters, number))
        return (target, *measure)

    def _class(self, text: str, at: str) -> ClassCounters | None:
        """Return the class of a table and levels, in whatever spelling; None if its experiment is unknown."""
        table, *texts = text.split(":")
        if self._spelling(table.partition("/")[0], self._experiments) is None:
            return None
        name = self._spelling(table, self._layouts)
        if name is None:
            raise refused(Reason.LINKAGE, "unknown table", f"The plan has: {self._tables}.", at)
        layout = self._layouts[name]
        factors = self._levels[layout.name]
        if len(texts) != len(factors):
            raise _unreadable(at)
        words, values = [layout.name], []
        for level, (known, fact, remedy) in zip(texts, factors, strict=True):
            word = self._spelling(level, known, lambda text: encode(decode(text)))  # it may hold slashes
            if word is None:
                raise refused(Reason.LEVEL, fact, remedy, at)
            words.append(word)
            values.append(known[word])
        spelled = ":".join(words)  # each class once, and never forgotten: there are as many as the plan declares
        counters = self._classes.get(spelled)
        if counters is None:
            counters = self._classes[spelled] = ClassCounters(layout, values)
        return counters

    def _measure(self, metric: str, at: str) -> tuple[int, tuple[MetricGrid, ...]]:
        name = self._spelling(metric, self._measures)
        if name is None:
            raise refused(Reason.METRIC, "unknown metric", f"The plan has: {self._metrics}.", at)
        return self._measures[name]

    def _spelling(self, text: str, known: Container[str], again: Callable[[str], str] = respell) -> str | None:
        """Return the one spelling of a known name, of which none is more than three times as long; None otherwise."""
        if text in known:
            return text
        if len(text) > self._longest or (spelled := again(text)) not in known:
            return None
        return spelled

    def _from_paper(self, text: str, at: str) -> Line:
        """Read a line in the paper's spelling: Test1:B:3, …:minutes:4 and …:minutes_old:4:minutes:2 (two more)."""
        table, *rest = text.split(":")
        name = self._spelling(table, self._layouts)
        size = 0 if name is None else len(self._layouts[name].factors)
        totals = rest[size:]
        if name is None or not totals:
            return text, None, None
        before = ":".join([table, *rest[:size]])
        if len(totals) == 2:
            metric, new = totals
            _, grids = self._measure(metric, at)
            return f"{before}:{metric}", 0.0 if grids[0].starts_at_zero else None, _number(new, at)
        if len(totals) != 4 or decode(totals[0]) != decode(totals[2]) + _OLD_SUFFIX:
            raise _unreadable(at)
        old, more = _number(totals[1], at), _number(totals[3], at)
        return f"{before}:{totals[2]}", old, old + more


def _declared(factor: Factor) -> _Declared:
    word = "arm" if factor.role == "arm" else "level"
    names = listed(spell(level) for level in factor.levels if level is not None)
    levels = {encode(spell(level)): level for level in factor.levels}
    return _Declared(levels, f"unknown {word} for {factor.name!r}", f"Declared {word}s: {names}.")


def _number(text: str, at: str) -> float:
    with suppress(ValueError):  # Python's own error repeats the text: ours is raised where that one is gone
        return read_number(text)
    raise refused(Reason.NUMBER, "a total is not a finite number", "Write it in digits.", at)


def _unreadable(at: str) -> MessageError:
    return refused(
        Reason.LINE, "a line cannot be read", "Write table:arm:level@cohort, and for a total :metric:old>new.", at
    )
