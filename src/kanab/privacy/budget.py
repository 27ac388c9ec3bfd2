"""How many sums of a metric may leave about so many people, and about so few with an unusual value.

Every published sum is one equation about everybody's values. With as many independent equations as
people, somebody who knows the arms solves for everybody, however large the classes are. Where only a
few people are off the commonest value, far fewer equations find them: a buyer in tier 3, on a phone,
in Norway may be the only one who fits. So a metric may be in so many tables only as there are twice
as many such people as independent numbers; in the others its class sums are withheld, and the arm
totals stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted
from kanab.privacy.shown import Place, ShownTable
from kanab.tally.cells import marginal
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

Experiment = TypeVar("Experiment")
WHY = "too few people differ from its commonest value for so many tables"


def pair_numbers(arms: Sequence[int]) -> int:
    """Count the independent sums of one metric in the tables of all pairs.

    ``arms`` are the numbers of arms of the experiments, all of them about the same people.

    >>> pair_numbers([2] * 100)
    5051
    >>> pair_numbers([2, 3])
    6
    """
    steps = [max(0, count - 1) for count in arms]
    single = sum(steps)
    crossed = (single**2 - sum(step**2 for step in steps)) // 2
    return 1 + single + crossed


def numbers_of_pairs(arms: Mapping[Experiment, int], pairs: Iterable[tuple[Experiment, ...]]) -> int:
    """Count the independent sums of one metric in the tables of some pairs; ``arms`` are the numbers of arms.

    >>> numbers_of_pairs({"a": 2, "b": 3, "c": 2}, [("a", "b"), ("b", "c")])
    9
    """
    tables = list(pairs)
    single = sum(arms[name] - 1 for name in {name for pair in tables for name in pair})
    return 1 + single + sum(math.prod(arms[name] - 1 for name in pair) for pair in tables)


def fewest_off(n: int, s: int, q: int, low: int, high: int) -> int:
    """Return how many people are off the commonest value at least, given count, sum, squares and bounds.

    The commonest value is taken to be 0 or a bound. For a 0/1 metric the answer is exact; for others
    it follows from (Σ y)² ≤ people off 0 × Σ y², and from nobody being beyond the bounds.

    >>> fewest_off(1_000, 20, 20, 0, 1), fewest_off(1_000, 985, 985, 0, 1)
    (20, 15)
    >>> fewest_off(1_000, 60_000, 400_000_000, 0, 50_000)      # nine people at least spent something
    9
    """
    fewest = n
    for value in {low, high, min(max(0, low), high)}:
        above, squares = s - n * value, q - 2 * value * s + n * value**2
        farthest = max(high - value, value - low)
        fewest = min(fewest, max(-(-abs(above) // farthest), -(-(above**2) // squares) if squares else 0))
    return fewest


def enough_people(people: int, numbers: int, k: int) -> bool:
    """Return whether so many independent numbers of a metric may leave about so many people.

    Independent assignments put at most about 1.2 × numbers / people of leverage on one person, so
    that people ≥ 2 (k − 1) × numbers keeps it well below 1/k.
    """
    return people >= 2 * (k - 1) * numbers


def enough_unusual(off_commonest: int, numbers: int) -> bool:
    """Return whether so many independent numbers may leave about so many people with an unusual value.

    Where they are few, the sparsest values that fit the tables are the true ones.
    """
    return off_commonest >= 2 * numbers


def within_budget(people: int, off_commonest: int, numbers: int, k: int) -> bool:
    """Return whether tables with so many independent numbers per metric may leave together.

    ``off_commonest`` are the people whose value is not the commonest one.

    >>> within_budget(50_000, 450, pair_numbers([2] * 100), k=10)
    False
    >>> within_budget(1_000_000, 100_000, pair_numbers([2] * 100), k=10)
    True
    """
    return enough_people(people, numbers, k) and enough_unusual(off_commonest, numbers)


# ── unusual values, in several tables ──────────────────────────────────────────────────────────


def withhold_rare_values(counted: Counted, shown: Sequence[ShownTable]) -> dict[Place, str]:
    """Return the tables and metrics to withhold, later tables first; what is released already stays.

    Arm totals go before tables. Where they are too many themselves, a metric is withheld in whole experiments.
    """
    withheld: dict[Place, str] = {}
    inside = _classes_inside()
    for metric in (planned.name for planned in counted.plan.counted_metrics):
        tables = [table for table in shown if metric in table.tally.metric_names]
        rare = RareValues.of(tables, partial(people_off, counted, metric), inside)
        for table in tables:
            if table.fixed:
                rare.add(table)
        gone: set[str] = set()
        for table in tables:
            experiments = set(table.tally.experiment_names)
            if table.fixed or gone & experiments:
                continue
            if rare.hides(table):
                rare.add(table)
            else:
                where = "altogether" if table.only_arms else f"in {table.name}"
                withheld[table.name, metric] = f"{metric} is withheld {where}: {WHY}"
                gone |= experiments if table.only_arms else set()
    return withheld


def numbers_of(tables: Sequence[Tally]) -> int:
    """Count the independent sums of one metric that some tables hold, at most."""
    total = 0
    for table in tables:
        arms = len(table.arms[0].levels) if total and len(table.arms) == 1 else 0  # another one has them as well
        total += max(int(np.count_nonzero(table.people)) - arms, 0)
    return total


Off = NDArray[np.int64]
"""People of every arm of an experiment who are off the commonest value: a row per arm, a column per way to tell."""


def people_off(counted: Counted, metric: str, table: ShownTable, experiment: str) -> Off:
    """Return who is off the commonest value in every arm: exactly where rows were counted, else at least so many."""
    for each in (counted, *counted.earlier):
        if metric in each.unusual.get(experiment, {}):
            return each.unusual[experiment][metric]
    arms = _by_arm(experiment, metric, table.tally)
    limits = arms.metric.grid_bounds or counted.ranges.get(metric)
    fewest = []
    for place, (n, s) in enumerate(zip(arms.counts, arms.sums, strict=True)):
        if limits is None or (not arms.squares and not arms.metric.binary):
            fewest.append(min(int(n), 1))
        else:
            q = int(s if arms.metric.binary else arms.squares[experiment,][place])
            fewest.append(0 if n * q == s**2 else max(1, fewest_off(int(n), int(s), q, *limits)))
    return np.array(fewest, dtype=np.int64)[:, None]


def most_off(metric: str, table: ShownTable, experiment: str) -> Off:
    """Return how many people are off the commonest value in every arm at most, as far as sums and bounds tell."""
    arms = _by_arm(experiment, metric, table.tally)
    most = [int(n) for n in arms.counts]
    if arms.metric.grid_bounds is not None:
        low, high = arms.metric.grid_bounds
        sums = zip(arms.counts, arms.sums, strict=True)
        most = [min(int(n), int(s) - int(n) * low, int(n) * high - int(s)) for n, s in sums]
    return np.array(most, dtype=np.int64)[:, None]


def _by_arm(experiment: str, metric: str, table: Tally) -> Moments:
    """Return a metric of a table by the arms of one experiment."""
    part, by = table.moments_of(metric), (experiment,)
    counts, sums = (marginal(cells, table.axes, by) for cells in (part.counts, part.sums))
    squares = None if part.metric.binary else part.squares_by(by, table.axes)
    return Moments(part.metric, counts, sums, {} if squares is None else {by: squares})


Inside = Callable[[ShownTable, NDArray[np.bool_] | None], int]
"""How many classes of a table hold some of the people of these signatures."""


def _classes_inside() -> Inside:
    """Return a function that counts classes once for every table and every set of people."""
    known: dict[tuple[int, bytes], int] = {}

    def classes_inside(table: ShownTable, people: NDArray[np.bool_] | None) -> int:
        if people is None or not table.columns:
            return int(np.count_nonzero(table.tally.people))
        key = id(table), people.tobytes()
        if key not in known:
            classes = table.columns[0][people]
            known[key] = int(np.count_nonzero(np.bincount(classes[classes >= 0], minlength=1)))
        return known[key]

    return classes_inside


@dataclass
class _SumsAbout:
    """Sums of a metric about some people: how many independent numbers they are, in how many tables that cross."""

    off: Off
    people: NDArray[np.bool_] | None = None
    numbers: int = 0
    arms: dict[str, int] = field(default_factory=dict)
    crossed: dict[str, int] = field(default_factory=dict)
    tables: int = 0
    known: set[object] = field(default_factory=set)

    @property
    def hides(self) -> bool:
        """Whether enough people are off the commonest value, or nobody is. One table alone tells of classes only."""
        crossing = self.tables + sum(not self.crossed.get(name) for name in self.arms)
        few = (self.off > 0) & ~np.array([enough_unusual(int(off), self.numbers) for off in self.off])
        return crossing < 2 or not few.any()

    def with_table(self, table: ShownTable, inside: Inside) -> _SumsAbout:
        """Return the same people with one table more; their arms are counted once."""
        tally = table.tally
        classes = inside(table, self.people)
        key = tally.factors
        if not classes or key in self.known:
            return self
        more = replace(self, arms=dict(self.arms), crossed=dict(self.crossed), known={*self.known, key})
        for factor in tally.arms:
            if factor.name not in more.arms:
                more.arms[factor.name] = min(len(factor.levels), classes)
                more.numbers += more.arms[factor.name] - (len(more.arms) > 1)
        if not table.only_arms:
            alone = sum(more.arms[name] for name in tally.experiment_names) - (len(tally.arms) - 1)
            more.numbers += max(0, classes - alone)
            more.tables += 1
            for name in tally.experiment_names:
                more.crossed[name] = more.crossed.get(name, 0) + 1
        return more

    def with_arm_of(self, table: ShownTable, experiment: str, arm: int) -> _SumsAbout:
        """Return the people of one arm with one table more of their experiment."""
        axis = table.tally.axes.index(experiment)
        classes = int(np.count_nonzero(table.tally.people.take(arm, axis=axis)))
        key = table.tally.factors
        if classes < 2 or key in self.known:
            return self
        return replace(self, numbers=self.numbers + classes - 1, tables=self.tables + 1, known={*self.known, key})


@dataclass
class RareValues:
    """The sums of one metric so far, about everybody of every experiment and about every arm by itself.

    All tables of an experiment are split by its arms, so that each arm is a system of its own; tables of other
    experiments add to the system of all of its people. ``told`` are experiments whose people are told already.
    """

    everybody: dict[str, _SumsAbout]
    by_arm: dict[str, list[_SumsAbout]]
    inside: Inside
    told: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, tables: Sequence[ShownTable], off: Callable[[ShownTable, str], Off], inside: Inside | None = None
    ) -> RareValues:
        """Return the systems of all experiments that some tables are about, without a number yet.

        ``off`` returns who is off the commonest value in the arms of an experiment, by a table of it.
        """
        first: dict[str, ShownTable] = {}
        for table in tables:
            for name in table.tally.experiment_names:
                first.setdefault(name, table)
        everybody: dict[str, _SumsAbout] = {}
        by_arm: dict[str, list[_SumsAbout]] = {}
        for name, table in first.items():
            arms = off(table, name)
            everybody[name] = _SumsAbout(arms.sum(axis=0), _people_of(name, table, arms[:, 0] > 0))
            by_arm[name] = [_SumsAbout(row, numbers=1) for row in arms]
        return cls(_alike(everybody), by_arm, inside or _classes_inside())

    def hides(self, table: ShownTable) -> bool:
        """Return whether nobody with a rare value could be told if a table joined the others."""
        everybody, by_arm = self._with(table)
        return (
            self.told <= everybody.keys()
            and all(system.hides for system in everybody.values())
            and all(system.hides for arms in by_arm.values() for system in arms)
        )

    def add(self, table: ShownTable) -> None:
        """Add a table to what is published."""
        everybody, by_arm = self._with(table)
        self.everybody |= everybody
        self.by_arm |= by_arm
        self.told = (self.told - everybody.keys()) | {name for name, system in everybody.items() if not system.hides}

    def _with(self, table: ShownTable) -> tuple[dict[str, _SumsAbout], dict[str, list[_SumsAbout]]]:
        """Return the systems that a table adds to, with it."""
        everybody = {name: self.everybody[name].with_table(table, self.inside) for name in self._reached(table)}
        names = () if table.only_arms else table.tally.experiment_names
        arms = {name: self.by_arm[name] for name in names}
        return everybody, {
            name: [system.with_arm_of(table, name, arm) for arm, system in enumerate(systems)]
            for name, systems in arms.items()
        }

    def _reached(self, table: ShownTable) -> list[str]:
        """Return the experiments some of whose people a table is about, or may be."""
        unknown, known, people = self._by_people
        if not table.columns:
            return [*self.everybody]
        inside = np.flatnonzero(table.columns[0] >= 0)
        return [*unknown, *(known[place] for place in np.flatnonzero(people[:, inside].any(axis=1)))]

    @cached_property
    def _by_people(self) -> tuple[list[str], list[str], NDArray[np.bool_]]:
        """The experiments whose people are not known, and those whose are, with the signatures of their people."""
        people = {name: system.people for name, system in self.everybody.items() if system.people is not None}
        unknown = [name for name in self.everybody if name not in people]
        return unknown, [*people], np.array([*people.values()], dtype=bool)


def _people_of(experiment: str, table: ShownTable, arms: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """Return the signatures of an experiment's people, but for arms where everybody is alike; None if unknown."""
    if not table.columns:
        return None
    axis = table.tally.axes.index(experiment)
    column = table.columns[0]
    place = np.unravel_index(np.maximum(column, 0), table.tally.people.shape)[axis]
    return np.asarray((column >= 0) & arms[place])


def _alike(systems: Mapping[str, _SumsAbout]) -> dict[str, _SumsAbout]:
    """Keep one system for experiments that are about the same people, with the fewest of any of them."""
    kept: dict[str, _SumsAbout] = {}
    known: dict[tuple[int, bytes], str] = {}
    for name, system in systems.items():
        people = None if system.people is None else (len(system.off), system.people.tobytes())
        same = name if people is None else known.setdefault(people, name)
        kept[name] = system
        if same != name:
            kept[same] = replace(kept[same], off=np.minimum(kept[same].off, kept.pop(name).off))
    return kept
