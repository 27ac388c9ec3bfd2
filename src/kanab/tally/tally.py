"""The tally: one small table of counts and sums, from which everything else is computed.

A tally is counts and sums; adding two tallies is the same as counting everyone together.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from kanab.errors import LevelError, TallyError, listed
from kanab.tabular import Table
from kanab.tally.cell_arrays import DROPPED, Cells, as_cells, check_shape, fold, marginal
from kanab.tally.factor import Factor, Level, as_level, merged_scores
from kanab.tally.metric import Metric
from kanab.tally.moments import By, Cross, Moments, check_cross, check_moments, check_people
from kanab.tally.noise import NO_SUBTRACTION, AddedNoise
from kanab.tally.plain import Parts, read, write


@dataclass(frozen=True, eq=False, repr=False)
class Tally:
    """One linkage's equivalence classes: people, and per metric counts, sums and squares.

    >>> from kanab.datasets import eighteen
    >>> tally = eighteen()
    >>> tally
    Tally of treatment (A, B) × tier (1, 2, 3): minutes in steps of 1e-09, squares by treatment
    >>> tally + tally == tally.empty() + tally + tally
    True
    >>> (tally + tally) - tally == tally
    True
    """

    factors: tuple[Factor, ...]
    people: Cells
    moments: tuple[Moments, ...] = ()
    crosses: tuple[Cross, ...] = ()
    noise: AddedNoise | None = None

    def __post_init__(self) -> None:
        for word, names in (("arm column or covariate", self.axes), ("metric", self.metric_names)):
            if len(set(names)) != len(names):
                raise TallyError(f"the same {word} is named twice", "Give every name once.")
        if not self.arms:
            raise TallyError("a tally needs arms", "Name the column that holds the arm.")
        check_shape(self.shape)
        object.__setattr__(self, "people", as_cells(self.people, self.shape, "people"))
        if self.noise is None:
            check_people(self.people)
        moments = tuple(self._frozen(part) for part in self.moments)
        for part in moments if self.noise is None else ():  # with noise sums need not be possible ones
            check_moments(part, self.people, self.axes)
        object.__setattr__(self, "moments", tuple(part.finest() for part in moments))
        object.__setattr__(self, "crosses", tuple(self._frozen_cross(part) for part in self.crosses))
        if len({(frozenset(cross.pair), cross.by) for cross in self.crosses}) != len(self.crosses):
            raise TallyError("the same pair of metrics is crossed twice", "Declare each pair once.")
        for cross in self.crosses if self.noise is None else ():
            check_cross(cross, tuple(self.moments_of(name) for name in cross.pair), self.axes)

    def _frozen(self, part: Moments) -> Moments:
        name = part.metric.name
        squares = {
            self._by(by): self._in_order(by, as_cells(cells, self.shape_of(by), f"squares of {name!r}"))
            for by, cells in part.squares.items()
        }
        counts = as_cells(part.counts, self.shape, f"counts of {name!r}")
        sums = as_cells(part.sums, self.shape, f"sums of {name!r}")
        return Moments(part.metric, counts, sums, MappingProxyType(squares))

    def _in_order(self, by: By, cells: Cells) -> Cells:
        """Put the axes of a marginal's cells into the order of the factors."""
        names = [self.factor(name).name for name in by]
        return np.transpose(cells, [names.index(name) for name in self._by(by)])

    def _frozen_cross(self, part: Cross) -> Cross:
        by = self._by(part.by)
        name = f"cross-products of {part.pair[0]!r} and {part.pair[1]!r}"
        frozen = part.map(lambda cells: self._in_order(part.by, as_cells(cells, self.shape_of(part.by), name)))
        return replace(frozen, by=by)

    # ── parts ───────────────────────────────────────────────────────────────────────────────

    @cached_property
    def axes(self) -> By:
        """The names of the factors, in order."""
        return tuple(factor.name for factor in self.factors)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of levels of each factor."""
        return tuple(len(factor.levels) for factor in self.factors)

    def shape_of(self, by: By) -> tuple[int, ...]:
        """Return the shape of a marginal."""
        return tuple(len(self.factor(name).levels) for name in by)

    def _by(self, names: Iterable[str]) -> By:
        """Resolve the names of a marginal and put them into the order of the factors."""
        wanted = {self.factor(name).name for name in names}
        return tuple(axis for axis in self.axes if axis in wanted)

    @cached_property
    def arms(self) -> tuple[Factor, ...]:
        """The experiments of this linkage: one, or two for a pair."""
        return tuple(factor for factor in self.factors if factor.role == "arm")

    @property
    def experiment(self) -> Factor:
        """The arms of a linkage with just one experiment."""
        if len(self.arms) > 1:
            names = listed(self.experiment_names)
            raise LevelError("this is a table of several experiments", f"Name one, or collapse the others: {names}.")
        return self.arms[0]

    @property
    def covariates(self) -> tuple[Factor, ...]:
        """The covariates of this linkage."""
        return tuple(factor for factor in self.factors if factor.role == "covariate")

    @cached_property
    def experiment_names(self) -> tuple[str, ...]:
        """The names of the experiments of this linkage."""
        return tuple(factor.name for factor in self.arms)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that were measured."""
        return tuple(part.metric for part in self.moments)

    @cached_property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics."""
        return tuple(part.metric.name for part in self.moments)

    def factor(self, name: str) -> Factor:
        """Return a factor by its name; "arm" is the experiment of a linkage that has just one.

        Raises `LevelError` where there is none of that name.
        """
        for factor in self.factors:
            if factor.name == name:
                return factor
        if name == "arm":
            return self.experiment
        raise LevelError("unknown arm column or covariate", f"This tally has: {listed(self.axes)}.")

    def moments_of(self, metric: str | None = None) -> Moments:
        """Return counts, sums and squares of a metric, or of the only one. Raises `LevelError` where it is unknown."""
        if metric is None and len(self.moments) == 1:
            return self.moments[0]
        for part in self.moments:
            if part.metric.name == metric:
                return part
        fact = "several metrics, and none named" if metric is None else "unknown metric"
        raise LevelError(fact, f"This tally has: {listed(self.metric_names) or 'none'}.")

    def squares(self, metric: str | None = None, by: Sequence[str] | None = None) -> Cells | None:
        """Return the squares of a marginal (per arm if none is named) in steps²; None where only coarser ones exist."""
        wanted = (self.experiment.name,) if by is None else self._by(by)
        return self.moments_of(metric).squares_by(wanted, self.axes)

    def cross(self, first: str, second: str, by: Sequence[str] | None = None) -> Cross:
        """Return the cross-products of two metrics, per arm if no marginal is named.

        Raises `LevelError` where they were not kept.
        """
        wanted = (self.experiment.name,) if by is None else self._by(by)
        for part in self.crosses:
            if part.by == wanted and part.pair == (first, second):
                return part
        raise LevelError(f"no cross-products of {first!r} and {second!r} were kept", "Declare the pair when counting.")

    def people_by(self, name: str = "arm") -> dict[Level, int]:
        """Count the people per level of one factor."""
        factor = self.factor(name)
        totals = marginal(self.people, self.axes, (factor.name,))
        return dict(zip(factor.levels, totals.tolist(), strict=True))

    @cached_property
    def total(self) -> int:
        """Everyone."""
        return int(self.people.sum())

    # ── algebra ────────────────────────────────────────────────────────────────────────────

    def __add__(self, other: Tally) -> Tally:
        if not isinstance(other, Tally):
            return NotImplemented
        return self._combine(other, operator.add)

    def __radd__(self, other: object) -> Tally:
        return self if other == 0 else NotImplemented  # so that sum(tallies) works

    def __sub__(self, other: Tally) -> Tally:
        """Take some of the people out again."""
        if not isinstance(other, Tally):
            return NotImplemented
        return self._combine(other, operator.sub)

    def _combine(self, other: Tally, op: Callable[[Cells, Cells], Cells]) -> Tally:
        if len(self.factors) != len(other.factors) or self.metric_names != other.metric_names:
            raise TallyError(
                "the two tallies have different covariates or metrics",
                "Add tallies of one linkage; collapse or count again to make them alike.",
            )
        factors = tuple(mine.join(theirs) for mine, theirs in zip(self.factors, other.factors, strict=True))
        mine, theirs = self._aligned(factors), other._aligned(factors)
        moments = tuple(part.combine(theirs.moments_of(part.metric.name), op, self.axes) for part in mine.moments)
        scales = {part.metric.name: part.metric.scale for part in moments}
        own_crosses, other_crosses = mine._refined_crosses(scales), theirs._refined_crosses(scales)
        crosses = tuple(own_crosses[key].combine(other_crosses[key], op) for key in own_crosses if key in other_crosses)
        return Tally(factors, op(mine.people, theirs.people), moments, crosses, mine._noise_with(theirs, op))

    def _noise_with(self, other: Tally, op: Callable[[Cells, Cells], Cells]) -> AddedNoise | None:
        """Return the noise of both; raise `TallyError` where just one has noise, or numbers are subtracted."""
        if self.noise is None and other.noise is None:
            return None
        if self.noise is None or other.noise is None:
            raise TallyError("one of the two tallies has noise", "Add tallies with noise to each other.")
        if op is operator.sub:
            raise TallyError(NO_SUBTRACTION, "Add only.")
        if self.metrics != other.metrics:
            raise TallyError("numbers with noise are on different grids", "Count both with the same resolution.")
        return self.noise.add(other.noise)

    def _refined_crosses(self, scales: Mapping[str, int]) -> dict[tuple[tuple[str, str], By], Cross]:
        factors = {metric.name: scales[metric.name] // metric.scale for metric in self.metrics}
        return {
            (part.pair, part.by): part.refine((factors[part.pair[0]], factors[part.pair[1]])) for part in self.crosses
        }

    def _aligned(self, factors: tuple[Factor, ...]) -> Tally:
        tally = self
        for factor in factors:
            tally = tally._fold(factor, [factor.index(level) for level in tally.factor(factor.name).levels])
        return tally

    def _fold(self, new: Factor, into: Sequence[int]) -> Tally:
        """Send the levels of one factor to their places in its new version."""
        if new == self.factor(new.name) and list(into) == list(range(len(into))):
            return self
        size = len(new.levels)
        axis = self.axes.index(new.name)
        complete = DROPPED not in into

        def folded(part: Cross) -> Cross:
            return part.map(lambda cells: fold(cells, part.by.index(new.name), into, size))

        return Tally(
            tuple(new if factor.name == new.name else factor for factor in self.factors),
            fold(self.people, axis, into, size),
            tuple(part.fold(self.axes, new.name, into, size) for part in self.moments),
            tuple(
                folded(part) if new.name in part.by else part
                for part in self.crosses
                if complete or new.name in part.by
            ),
            None if self.noise is None else self.noise.fold(self.axes, new.name, into, size),
        )

    def empty(self) -> Tally:
        """Return the same table with nobody in it: the zero of addition."""
        return self - self

    def coarsen(self, name: str, mapping: Mapping[Any, Any], scores: Mapping[Any, float] | None = None) -> Tally:
        """Merge levels of a covariate with one map for all arms; unnamed levels stay.

        A merged numeric level is scored by the pooled mean of its people, or as ``scores`` say.
        Fitting the result is the same as recoding every row and fitting those.

        >>> from kanab.datasets import eighteen
        >>> eighteen().coarsen("tier", {2: "2+", 3: "2+"}).factor("tier").scores
        (1.0, 2.5)
        """
        factor = self.factor(name)
        targets = list(factor.levels)
        for old, new in mapping.items():
            targets[factor.index(old)] = as_level(new, name)
        levels = tuple(dict.fromkeys(targets))
        places = {level: place for place, level in enumerate(levels)}
        into = [places[target] for target in targets]
        scored = merged_scores(factor, list(zip(targets, self.people_by(name).values(), strict=True)), levels, scores)
        return self._fold(Factor(factor.name, levels, factor.role, scored), into)

    def as_categories(self, names: Iterable[str]) -> Tally:
        """Return the same table with some covariates as categories: without their scores, where they have any.

        >>> from kanab.datasets import eighteen
        >>> eighteen().as_categories(["tier", "device"]).factor("tier").kind
        'categorical'
        """
        wanted = {*names}
        if not any(each.name in wanted and each.scores is not None for each in self.factors):
            return self
        factors = tuple(replace(each, scores=None) if each.name in wanted else each for each in self.factors)
        return replace(self, factors=factors)

    def collapse(self, name: str) -> Tally:
        """Sum over one covariate, or one experiment of a pair. Raises `TallyError` for the only experiment."""
        factor = self.factor(name)
        if len(self.arms) == 1 and factor.role == "arm":
            raise TallyError("the only experiment of a tally cannot be collapsed", "Name a covariate.")
        keep = tuple(axis for axis in self.axes if axis != factor.name)
        return Tally(
            tuple(other for other in self.factors if other.name != factor.name),
            marginal(self.people, self.axes, keep),
            tuple(part.collapse(self.axes, factor.name) for part in self.moments),
            tuple(part for part in self.crosses if factor.name not in part.by),
            None if self.noise is None else self.noise.collapse(self.axes, factor.name),
        )

    def keep(self, *names: str) -> Tally:
        """Collapse everything but the named covariates (and the experiments)."""
        wanted = frozenset(self.factor(name).name for name in names)
        if wanted not in self._kept:
            tally = self
            for factor in self.covariates:
                if factor.name not in wanted:
                    tally = tally.collapse(factor.name)
            self._kept[wanted] = tally
        return self._kept[wanted]

    @cached_property
    def _kept(self) -> dict[frozenset[str], Tally]:
        """What was kept so far: an analysis asks for every metric, and a tally never changes."""
        return {}

    def select_metrics(self, names: Iterable[str]) -> Tally:
        """Return the tally with only some of the metrics, and the products of those."""
        chosen = {self.moments_of(name).metric.name for name in names}
        return Tally(
            self.factors,
            self.people,
            tuple(part for part in self.moments if part.metric.name in chosen),
            tuple(part for part in self.crosses if set(part.pair) <= chosen),
            None if self.noise is None else self.noise.select(chosen),
        )

    def select_arms(self, arms: Sequence[Any], experiment: str = "arm") -> Tally:
        """Return the tally with only the people of some arms, in the given order.

        Squares of other marginals include the people left out, so they go too. Raises `LevelError`
        where an arm is unknown or the name is that of a covariate.
        """
        factor = self._experiment(experiment)
        chosen = [factor.index(arm) for arm in arms]
        new = Factor(factor.name, tuple(factor.levels[old] for old in chosen), "arm")
        into = [chosen.index(old) if old in chosen else DROPPED for old in range(len(factor.levels))]
        return self._fold(new, into)

    def pool_arms(self, groups: Mapping[Any, Sequence[Any]], experiment: str = "arm") -> Tally:
        """Merge arms into one: ``{"any letter": ["B", "C"]}``. Raises `LevelError` where an arm is unknown."""
        factor = self._experiment(experiment)
        return self.coarsen(factor.name, {old: new for new, olds in groups.items() for old in olds})

    def _experiment(self, name: str) -> Factor:
        factor = self.factor(name)
        if factor.role != "arm":
            raise LevelError(f"{factor.name!r} is a covariate, not an experiment", "Name the arm column.")
        return factor

    # ── plain data ─────────────────────────────────────────────────────────────────────────

    def to_dict(self) -> dict[str, Any]:
        """Return the tally as plain data, ready for JSON; integers beyond 2^53 are texts."""
        return write(Parts(self.factors, self.people, self.moments, self.crosses))

    @classmethod
    def from_dict(cls, data: Any) -> Tally:
        """Read a tally from what ``to_dict`` wrote. Raises `KanabError`, with the path, where it is something else."""
        return cls(*read(data))

    # ── display ────────────────────────────────────────────────────────────────────────────

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return self.factors == other.factors and self._numbers() == other._numbers()

    __hash__ = None  # type: ignore[assignment]  # a table of numbers is compared, not looked up

    def _numbers(self) -> list[Any]:
        numbers: list[Any] = [self.people.tolist()]
        for part in self.moments:
            squares = {by: cells.tolist() for by, cells in part.squares.items()}
            numbers.append((part.metric, part.counts.tolist(), part.sums.tolist(), squares))
        for cross in self.crosses:
            numbers.append((cross.pair, cross.by, [cells.tolist() for cells in cross.arrays]))
        return numbers

    def __repr__(self) -> str:
        sides = " × ".join(f"{factor.name} ({listed(factor.labels)})" for factor in self.factors)
        metrics = "; ".join(f"{part.metric.name} {_describe_metric(part)}" for part in self.moments)
        return f"Tally of {sides}: {metrics or 'no metrics'}"

    def _repr_html_(self) -> str:
        factors = tuple((factor.name, factor.kind, listed(factor.labels)) for factor in self.factors)
        metrics = tuple((part.metric.name, "metric", _describe_metric(part)) for part in self.moments)
        title = "Tally: shape and levels; .show() prints counts"
        return Table(("name", "kind", "levels"), factors + metrics, title).to_html()

    def show(self) -> None:
        """Print the table, on purpose: it is the curator's own until it is released."""
        for table in self.tables():
            print(table)
            print()

    def tables(self) -> tuple[Table, ...]:
        """Return the classes, and the squares of each marginal, in units of the metrics."""
        return (_class_table(self), *_square_tables(self))


# ── in words and as tables ──────────────────────────────────────────────────────────────────────


def _describe_metric(part: Moments) -> str:
    if part.metric.binary:
        return "is 0/1"
    marginals = ", ".join(" × ".join(by) for by in part.squares) or "nothing"
    return f"in steps of {part.metric.resolution:g}, squares by {marginals}"


def _class_table(tally: Tally) -> Table:
    """Return every class that holds somebody, with its people and sums."""
    header = [*(factor.name for factor in tally.factors), "people"]
    for part in tally.moments:
        name = part.metric.name
        header += [f"with {name}", f"Σ {name}"] if part.metric.missing == "exclude" else [f"Σ {name}"]
    rows = []
    for place in np.ndindex(*tally.people.shape):
        if tally.people[place]:
            row = [factor.labels[i] for factor, i in zip(tally.factors, place, strict=True)]
            row.append(str(tally.people[place]))
            for part in tally.moments:
                row += [str(part.counts[place])] if part.metric.missing == "exclude" else []
                row.append(in_units(part.sums.item(place), part.metric.scale))
            rows.append(tuple(row))
    return Table(tuple(header), tuple(rows))


def _square_tables(tally: Tally) -> Iterator[Table]:
    """Yield the squares of every metric, one table for each marginal."""
    factors = {factor.name: factor for factor in tally.factors}
    for part in tally.moments:
        for by, cells in part.squares.items():
            rows = tuple(
                (
                    *(factors[name].labels[i] for name, i in zip(by, place, strict=True)),
                    in_units(cells.item(place), part.metric.scale**2),
                )
                for place in np.ndindex(*cells.shape)
            )
            yield Table((*by, f"Σ {part.metric.name}²"), rows)


def in_units(steps: int, scale: int) -> str:
    """Format a whole number of steps in units, to 15 significant digits."""
    return f"{steps / scale:.15g}"
