"""The noise that was added to a tally on purpose: the variance of what was added to each of its numbers.

AddedNoise of different numbers is independent, so that variances are added where numbers are: they are folded,
collapsed and joined like the tally they belong to.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kanab.errors import TallyError
from kanab.tally.cell_arrays import DROPPED, Cells, fold, marginal
from kanab.tally.metric import Metric
from kanab.tally.moments import By, combine_squares

NO_SUBTRACTION = "numbers with noise cannot be taken out of each other"


def twice_centre(metric: Metric) -> int:
    """Return twice the middle of a metric's bounds, in grid steps: noise is of values about it."""
    if metric.grid_bounds is None:
        raise TallyError(f"{metric.name!r} has no bounds, so nobody's influence on it is known", "Declare its bounds.")
    return sum(metric.grid_bounds)


@dataclass(frozen=True, eq=False)
class MetricNoise:
    """Variances of the noise in one metric, in grid steps about the middle of its bounds, c.

    ``counts`` go with the people who have a value, where these are counted apart from everybody; ``sums`` with
    Σ (y − c), ``squares`` with Σ (y − c)² by marginal. A combination of metrics has no bounds: ``twice_middles``
    are its 2 c, one for every arm.
    """

    counts: Cells | None
    sums: Cells
    squares: Mapping[By, Cells] = field(default_factory=dict)
    twice_middles: Cells | None = None


@dataclass(frozen=True, eq=False)
class AddedNoise:
    """Variances of the noise in a tally: in people per class, in every metric, and in products by pair and marginal.

    Products are those of values about the middles of both metrics' bounds, in grid steps.
    """

    people: Cells
    metrics: Mapping[str, MetricNoise] = field(default_factory=dict)
    products: Mapping[tuple[tuple[str, str], By], Cells] = field(default_factory=dict)

    def counts_of(self, metric: str) -> Cells:
        """Return the variances of the people who have a value of a metric."""
        own = self.metrics[metric].counts
        return self.people if own is None else own

    def fold(self, axes: By, name: str, into: Sequence[int], size: int) -> AddedNoise:
        """Send the levels of one factor to new places."""
        complete = DROPPED not in into

        def folded(cells: Cells, by: By) -> Cells:
            return fold(cells, by.index(name), into, size) if name in by else cells

        return self._map(axes, folded, lambda by: by if complete or name in by else None)

    def collapse(self, axes: By, name: str) -> AddedNoise:
        """Sum over one factor."""

        def rest(by: By) -> By:
            return tuple(axis for axis in by if axis != name)

        return self._map(axes, lambda cells, by: marginal(cells, by, rest(by)), lambda by: rest(by) or None)

    def _map(self, axes: By, change: Callable[[Cells, By], Cells], place: Callable[[By], By | None]) -> AddedNoise:
        """Change every array; squares and products go where their marginal has a place, the first to come stays."""
        metrics = {}
        for name, part in self.metrics.items():
            squares: dict[By, Cells] = {}
            for by, cells in part.squares.items():
                new = place(by)
                if new is not None and new not in squares:
                    squares[new] = change(cells, by)
            counts = None if part.counts is None else change(part.counts, axes)
            metrics[name] = MetricNoise(counts, change(part.sums, axes), squares, part.twice_middles)
        products = {
            (pair, place(by) or by): change(cells, by) for (pair, by), cells in self.products.items() if place(by) == by
        }
        return AddedNoise(change(self.people, axes), metrics, products)

    def add(self, other: AddedNoise) -> AddedNoise:
        """Return the noise of two groups of people together; squares stay at the marginals that both have."""
        metrics = {}
        for name, mine in self.metrics.items():
            theirs = other.metrics[name]
            separate = mine.counts is not None or theirs.counts is not None
            squares = combine_squares(mine.squares, theirs.squares, operator.add)
            counts = self.counts_of(name) + other.counts_of(name) if separate else None
            metrics[name] = MetricNoise(counts, mine.sums + theirs.sums, squares)
        products = {key: cells + other.products[key] for key, cells in self.products.items() if key in other.products}
        return AddedNoise(self.people + other.people, metrics, products)

    def select(self, metrics: Iterable[str]) -> AddedNoise:
        """Return the noise of some of the metrics."""
        chosen = {*metrics}
        return replace(
            self,
            metrics={name: part for name, part in self.metrics.items() if name in chosen},
            products={key: cells for key, cells in self.products.items() if set(key[0]) <= chosen},
        )
