"""Sums that numbers weigh, as they are published: which people are in them, and what is known of the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kanab.counted import Counted, SignatureNumbers
from kanab.privacy.leverage import Leverage, leverage
from kanab.privacy.numbers.design import Ints, NumberDesign, Weighted
from kanab.tally.moments import Cross


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
