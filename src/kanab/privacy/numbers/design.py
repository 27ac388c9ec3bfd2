"""The leverage rule with numbers: among how many people everyone hides when numbers weigh published sums.

Σ x·y per arm is linear in y with weights x. A person's row in the design is then (marks of classes, x in the columns
of its arms), and h = row G⁺ rowᵀ as before. With r, what classes do not explain of x, and S = Σ r rᵀ over people,

    h = h of the classes + r S⁻¹ rᵀ.

That is convex in x, so that between the smallest and the largest values of a signature it is largest at a corner. With
several numbers nobody may stand there, and what the squares within a signature allow can be less. S is added up of what
lies within signatures and between them, so that nothing cancels. What rounding can do is added to h; where it could do
too much, nobody hides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted, SignatureNumbers
from kanab.privacy.leverage import DOUBTFUL, Leverage, explain, leverage
from kanab.tally.moments import Cross

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rows = NDArray[np.bool_]

MOST_CORNERS = 256
"""Corners that are tried; with more of them h is bounded from above."""

_ROUNDING = 2.0**-50  # of a sum, relatively: some times what an operation can be off


@dataclass(frozen=True, eq=False)
class Weighted:
    """A column of sums that a number weighs: its name, and the signatures whose people are in it, those of an arm."""

    number: str
    rows: Rows


@dataclass(frozen=True, eq=False)
class NumberDesign:
    """The classes that people are in, and columns that numbers weigh, some of which are to be published.

    ``class_leverages`` are those of the classes alone. ``low``, ``mean`` and ``high`` are by signature and column what
    classes do not explain of the smallest value, the mean and the largest; ``off`` is by how much they can be off.
    ``within`` are by two columns and signature the products about the signature's means, ``squares`` those about 0.
    ``left`` is S, and ``doubt`` the share of its diagonal that may be rounding.
    """

    columns: tuple[Weighted, ...]
    people: Ints
    class_leverages: Floats
    low: Floats
    mean: Floats
    high: Floats
    off: Floats
    within: Floats
    squares: Floats
    left: Floats
    doubt: Floats

    @classmethod
    def of(cls, cells: Ints, people: Ints, numbers: SignatureNumbers, columns: Sequence[Weighted]) -> NumberDesign:
        """Take out of every column what the classes explain. Who is in a column counts as a class, too."""
        places = [numbers.names.index(column.number) for column in columns]
        rows = np.array([column.rows & (people > 0) for column in columns]).T.reshape(len(people), len(columns))
        n = people[:, None]
        low, high = (np.where(rows, values[:, places], 0.0) for values in (numbers.low, numbers.high))
        sums = np.where(low == high, low * n, np.where(rows, numbers.sums[:, places], 0.0))
        inside = people @ rows
        centre = np.where(rows, sums.sum(axis=0) / inside.clip(1), 0.0)
        explained = explain(np.column_stack([cells, np.where(rows, 0, -1)]), people, sums - n * centre)
        mean = (sums / n.clip(1) - centre) - explained.fitted
        within = _within_signatures(people, numbers, places, rows)
        left = (n * mean).T @ mean + within.sum(axis=2)

        h = 1 / explained.sizes
        step = (n * explained.last_step**2).sum(axis=0)
        unit = _ROUNDING * np.maximum(np.abs(low), np.abs(high)).max(axis=0, initial=0)
        squares = np.where(rows, np.einsum("ijj->ij", numbers.products)[:, places], 0.0)
        spread = np.where(np.diag(left) > 0, np.diag(left), np.nan)
        doubt = (step + _ROUNDING * squares.sum(axis=0)) / spread + 2 * unit * np.sqrt(inside / spread)
        constant = ((low == centre) & (high == centre)).all(axis=0)  # it weighs as the arm's own sum does
        return cls(
            tuple(columns), people, h, low - centre - explained.fitted, mean, high - centre - explained.fitted,
            np.sqrt(h[:, None] * step) + unit * (1 + np.sqrt(h[:, None] * inside)), within, squares, left,
            np.where(constant, 0, np.where(np.isfinite(doubt), doubt, np.inf)),
        )  # fmt: skip

    def leverage(self, chosen: Sequence[bool]) -> Leverage:
        """Return among how many people the most exposed one hides, where the chosen columns are published."""
        h = self.leverages(chosen)
        if not self.class_leverages.any():
            return Leverage(float("inf"), -1)
        if h is None:
            return Leverage(1.0, int(np.argmax(self.class_leverages)))
        worst = int(np.argmax(h))
        return Leverage(float(1 / h[worst]), worst)

    def leverages(self, chosen: Sequence[bool]) -> Floats | None:
        """Return the largest leverage of every signature, where the chosen columns are published; None if in doubt."""
        kept = np.flatnonzero(np.asarray(chosen, dtype=bool) & ((np.diag(self.left) > 0) | (self.doubt > 0)))
        h = self.class_leverages
        if len(kept):
            more = self._weighted(kept)
            return None if more is None else np.minimum(np.where(h > 0, h + more, 0), 1.0)
        return h

    def _weighted(self, kept: Ints) -> Floats | None:
        """Return r S⁻¹ rᵀ at the worst corner of every signature, or more than it; None where in doubt."""
        left = self.left[np.ix_(kept, kept)]
        if not np.isfinite(self.doubt[kept]).all() or not np.isfinite(left).all():
            return None
        scale = np.sqrt(np.diag(self.left)[kept])
        values, vectors = np.linalg.eigh(left / np.outer(scale, scale))
        error = len(kept) * (self.doubt[kept].max() + _ROUNDING)
        if values[0] <= 0 or error > DOUBTFUL * values[0]:
            return None
        white = vectors / np.sqrt(values - error) / scale[:, None]
        middle = (self.low + self.high)[:, kept] / 2 @ white
        names = [self.columns[place].number for place in kept]
        half = (self.high - self.low)[:, kept] / 2
        steps = np.array([half * [name == other for other in names] @ white for name in dict.fromkeys(names)])
        largest = np.sqrt(_largest_square(middle, steps))
        if len(steps) > 1:
            within = np.einsum("ijk,ij->k", self.within[np.ix_(kept, kept)], white @ white.T)
            others = 1 - 1 / self.people.clip(1)  # one of n people is at most so far from their mean, squared
            squares = (self.squares[:, kept] / scale**2).sum(axis=1)
            unsure = _ROUNDING * len(kept) * squares / (values[0] - error)  # what rounding can have taken from `within`
            apart = np.sqrt(others * (within.clip(0) + unsure))
            largest = np.minimum(largest, np.linalg.norm(self.mean[:, kept] @ white, axis=1) + apart)
        doubt = np.linalg.norm(self.off[:, kept] / scale, axis=1) / np.sqrt(values[0] - error)
        weighted: Floats = (largest + doubt) ** 2
        return weighted


def _within_signatures(people: Ints, numbers: SignatureNumbers, places: Sequence[int], rows: Rows) -> Floats:
    """Return by two columns and signature the products about the signature's means."""
    n = people.clip(1)[:, None, None]
    products = numbers.products - numbers.sums[:, :, None] * numbers.sums[:, None, :] / n
    varies = numbers.low < numbers.high
    products = np.where(varies[:, :, None] & varies[:, None, :], products, 0.0)
    within = np.empty((len(places), len(places), len(people)))
    for i, first in enumerate(places):
        for j, second in enumerate(places):
            within[i, j] = np.where(rows[:, i] & rows[:, j], products[:, first, second], 0.0)
    return within


def _largest_square(middle: Floats, steps: Floats) -> Floats:
    """Return the largest |middle ± steps|² of every row over all choices of signs, or more where there are too many."""
    along = np.einsum("ijk,jk->ij", steps, middle)
    shared = np.einsum("ijk,ljk->ilj", steps, steps)
    base = (middle**2).sum(axis=1)
    if 2 ** len(steps) > MOST_CORNERS:
        bound: Floats = base + 2 * np.abs(along).sum(axis=0) + np.abs(shared).sum(axis=(0, 1))
        return bound
    largest: Floats = base
    for corner in product((-1.0, 1.0), repeat=len(steps)):
        signs = np.array(corner)
        square = base + 2 * signs @ along + np.einsum("i,l,ilj->j", signs, signs, shared)
        largest = np.maximum(largest, square)
    return largest


# ── sums that numbers weigh, as they are published ───────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Weights:
    """Columns of sums that are published, and what is known of the numbers that weigh them; None where nothing is."""

    numbers: SignatureNumbers | None = None
    columns: tuple[Weighted, ...] = ()

    def with_columns(self, more: Iterable[Weighted]) -> Weights:
        """Return the same with further columns, each once."""
        distinct = {(column.number, column.rows.tobytes()): column for column in (*self.columns, *more)}
        return replace(self, columns=tuple(distinct.values()))

    def leverage(self, cells: Ints, people: Ints) -> Leverage:
        """Return among how many people the most exposed one hides, with classes as in `kanab.privacy.leverage`."""
        if not self.columns:
            return leverage(cells, people)
        if self.numbers is None or not {column.number for column in self.columns} <= {*self.numbers.names}:
            return Leverage(1.0, 0)
        return NumberDesign.of(cells, people, self.numbers, self.columns).leverage([True] * len(self.columns))


def weighted_sums(counted: Counted, linkage: str, crosses: Sequence[Cross]) -> list[Weighted]:
    """Return the columns of products with numbers: those of each arm who have a value of the other metric."""
    signatures = counted.signatures
    assert signatures is not None, "callers check this"
    weighing = [name for name in counted.plan.weights if name not in signatures.cut]
    tally, classes = counted.tallies[linkage], signatures.cells[:, signatures.tables.index(linkage)]
    columns = []
    for cross in crosses:
        arms = np.indices(tally.shape)[tally.axes.index(cross.by[0])].ravel()[classes]
        for number, other in (cross.pair, cross.pair[::-1]):
            if number in weighing:
                there = classes >= 0
                if signatures.present is not None and other in signatures.metrics:
                    there &= signatures.present[:, signatures.metrics.index(other)]
                columns += [Weighted(number, there & (arms == arm)) for arm in np.unique(arms[there])]
    return columns


def known_numbers(counted: Counted) -> SignatureNumbers | None:
    """Return the numbers of a plan and of the earlier ones as those of one; NaN where a product was not counted."""
    plans = [
        (plan.signatures.numbers, (plan.signatures.cells >= 0).any(axis=1))
        for plan in (counted, *counted.earlier)
        if plan.signatures is not None and plan.signatures.numbers is not None
    ]
    names = tuple(dict.fromkeys(name for numbers, _ in plans for name in numbers.names))
    if len(plans) < 2:
        return plans[0][0] if plans else None
    size = len(plans[0][0].sums)
    low, high, sums = (np.zeros((size, len(names))) for _ in range(3))
    products = np.full((size, len(names), len(names)), np.nan)
    for numbers, inside in plans:
        places = np.array([names.index(name) for name in numbers.names])
        own = np.ix_(inside, places)
        low[own], high[own], sums[own] = numbers.low[inside], numbers.high[inside], numbers.sums[inside]
        products[np.ix_(inside, places, places)] = numbers.products[inside]
    return SignatureNumbers(names, low, high, sums, products)
