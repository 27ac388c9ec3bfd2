"""What ``count`` returns: one tally per linkage, and how the tables overlap; and how numbers of people are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.plan.model import Plan
from kanab.plan.periods import Span
from kanab.stats.skewness import skewness_class, unusual_class
from kanab.tally.cell_arrays import Cells
from kanab.tally.tally import Tally

MOST_STEPS = 20
"""Whole numbers of up to so many steps are counts of things: that somebody ordered twice identifies nobody."""


def floor_to_k(people: int, k: int) -> int:
    """Return a number of people as it may be shown: the multiple of k that is not above it."""
    return people // k * k


@dataclass(frozen=True, eq=False, repr=False)
class SignatureValues:
    """Of every signature, how far its people are off the commonest value of a metric, in grid steps.

    ``off`` are the people with another value than ``commonest``, ``squares`` the sum of the squares of how far they are
    off, ``largest`` and ``second`` how far the two are who are farthest; the second may be overstated.
    """

    commonest: int
    off: NDArray[np.int64]
    squares: NDArray[np.float64]
    largest: NDArray[np.float64]
    second: NDArray[np.float64]

    def of(self, places: NDArray[np.intp]) -> SignatureValues:
        """Return the values of some signatures alone."""
        return SignatureValues(
            self.commonest, self.off[places], self.squares[places], self.largest[places], self.second[places]
        )

    def added_up(self, number: NDArray[np.intp], size: int) -> SignatureValues:
        """Return the values of groups, given the number of everybody's group, or of every smaller group's."""
        largest, second = np.zeros(size), np.zeros(size)
        np.maximum.at(largest, number, self.largest)
        somebody = np.full(size, -1, dtype=np.intp)
        at_the_top = np.flatnonzero(self.largest == largest[number])
        somebody[number[at_the_top]] = at_the_top
        rest = self.largest.copy()
        rest[somebody[somebody >= 0]] = 0  # one of every group, so that others who are as far off stay
        np.maximum.at(second, number, np.maximum(rest, self.second))
        off = np.bincount(number, self.off, size).astype(np.int64)
        squares = np.bincount(number, self.squares, size).astype(np.float64)
        return SignatureValues(self.commonest, off, squares, largest, second)


@dataclass(frozen=True)
class CountedShape:
    """How the values of a metric are spread within the arms: their skewness, and who is off the commonest one."""

    skewness: float
    unusual: int
    people: int

    def classes(self, k: int) -> tuple[float, float]:
        """Return skewness and share of unusual people as they may be told."""
        return skewness_class(self.skewness), unusual_class(self.unusual, self.people, k)


@dataclass(frozen=True)
class Relation:
    """A metric that is a weighted sum of others for most people, in units, up to the ``slack`` of their grids."""

    target: str
    weights: tuple[tuple[str, float], ...]
    slack: float

    @property
    def metrics(self) -> frozenset[str]:
        """All metrics that it is about."""
        return frozenset((self.target, *(name for name, _ in self.weights)))


@dataclass(frozen=True, eq=False, repr=False)
class SignatureNumbers:
    """Of every signature what leverage needs of metrics that weigh sums of others, in grid steps; missing ones are 0.

    A row per signature and a column per number: its smallest and its largest value, and its sum. ``products[i, j, l]``
    are the sums of number j times number l, squares on the diagonal.
    """

    names: tuple[str, ...]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    sums: NDArray[np.float64]
    products: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Signatures:
    """The combinations of classes, one per table, that people are in: what the leverage rule needs.

    ``cells[i, j]`` is the class of signature i in table j, as a flat index into that tally's
    people, or −1 for people who are not in the table. ``present[i, m]`` says whether its people
    have a value of metric m, for the ``metrics`` whose missing values are excluded. Kept in memory
    by the curator, never written out.

    A collector knows them ``within`` one "experiment" only: signatures of two experiments, and of pairs of
    experiments, then stand below each other as if their people were different. ``unknown`` are experiments of
    which not even that is known: the tables of each are as if they were about different people.

    ``values`` are of amounts and of sensitive metrics: of 0/1 and other small counts nobody asks who is off the
    commonest value. ``cut[name][i]`` says whether the people of a signature have 1 of a 0/1 metric whose products with
    others are published, and ``left`` is what relations between metrics leave. Earlier plans have neither values nor
    what is left. None of these is pickled, nor are the ``numbers`` that weigh sums of others.
    """

    tables: tuple[str, ...]
    cells: NDArray[np.int64]
    people: NDArray[np.int64]
    metrics: tuple[str, ...] = ()
    present: NDArray[np.bool_] | None = None
    within: str = ""
    unknown: tuple[str, ...] = ()
    values: Mapping[str, SignatureValues] = field(default_factory=dict, repr=False)
    numbers: SignatureNumbers | None = field(default=None, repr=False)
    cut: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict, repr=False)
    left: Mapping[Relation, SignatureValues] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "values": {}, "numbers": None, "cut": {}, "left": {}}


@dataclass(frozen=True, eq=False)
class Counted:
    """A source, counted by a plan. It stays with the curator until it is released.

    ``bounds_declared`` is False where a metric's grid was taken from the data. ``clamped`` and
    ``missing`` are people per metric, ``excluded`` people seen in two arms, ``outside`` people
    whose arm is missing or not in the plan. ``ranges`` are the grid bounds of metrics that nobody
    declared, widened to the next 1-2-5 step. ``earlier`` are older plans counted
    again over the same rows, whose signatures go row by row with these. Without ``signatures`` the
    overlap of the tables is unknown. ``span`` are the cohorts, where only some were
    counted. ``repeats`` are columns that look like a person's id and repeat, where rows were people.
    ``choices`` say which rows counted and how they became people, as texts. ``rates`` are the metrics that are 0 or 1
    for everybody, where clusters of people were counted and nobody declared it. ``undecided`` are metrics whose missing
    values had no rule, so that the people decided it. ``contributors`` are of a collector: by table and metric the
    people of every class whose value is not 0; tables of which that is not known are not there, and forged messages may
    have made numbers below 0. ``arms`` are a collector's totals of the arms by experiment: they may have metrics that
    its tables lack. Without ``for_release`` all that only the gate asks for was left out, and the gate refuses it:
    whoever holds the rows reads it on their own screen. ``shapes`` are of amounts and ratios, by experiment; where rows
    were not seen there are none.
    """

    plan: Plan
    tallies: Mapping[str, Tally]
    signatures: Signatures | None
    bounds_declared: bool = True
    clamped: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    excluded: int = 0
    outside: int = 0
    where: str = ""
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    earlier: tuple[Counted, ...] = ()
    span: Span | None = None
    repeats: tuple[str, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)
    rates: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    contributors: Mapping[str, Mapping[str, Cells]] = field(default_factory=dict)
    arms: Mapping[str, Tally] = field(default_factory=dict)
    for_release: bool = True
    shapes: Mapping[str, Mapping[str, CountedShape]] = field(default_factory=dict)

    def shape_classes(self, k: int) -> dict[str, dict[str, tuple[float, float]]]:
        """Return the shapes in classes that say nothing about anybody, as receipts hold them."""
        return {
            experiment: {name: shape.classes(k) for name, shape in shapes.items()}
            for experiment, shapes in self.shapes.items()
        }

    def arm_totals(self, experiment: str) -> Tally:
        """Return the totals of the arms of an experiment: of one of its tables, which all add up to the same."""
        if experiment in self.arms:
            return self.arms[experiment]
        return self.tallies[self.plan.linkages_of(experiment)[0].name].keep()

    @property
    def spans_experiments(self) -> bool:
        """Whether it is known who is in which classes of several experiments."""
        return self.signatures is not None and not self.signatures.within

    @property
    def ranges_in_units(self) -> dict[str, tuple[float, float]]:
        """The ranges of metrics that nobody declared, in units instead of grid steps."""
        metrics = chain.from_iterable(tally.metrics for tally in self.tallies.values())
        scales = {metric.name: metric.scale for metric in metrics}
        return {
            name: (low / scales[name], high / scales[name])
            for name, (low, high) in self.ranges.items()
            if name in scales
        }

    def __repr__(self) -> str:
        lines = [f"  {name}: {tally!r}" for name, tally in self.tallies.items()]
        return "\n".join(["Counted, not yet released:", *lines])


def decided_plan(counted: Counted) -> Plan:
    """Return the plan of what was counted without what the people decided: missing values without a rule are apart."""
    metrics = tuple(
        replace(metric, missing="exclude") if metric.name in counted.undecided else metric
        for metric in counted.plan.metrics
    )
    return replace(counted.plan, metrics=metrics)
