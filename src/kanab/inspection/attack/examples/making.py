"""Make people and tables for bad examples, without any rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.inspection.attack.background import Background
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, Axis
from kanab.tally.cells import Cells
from kanab.tally.metric import Metric
from kanab.tally.moments import By, Moments

Ints = NDArray[np.int64]

BOUGHT = Metric("bought", 1, (0.0, 1.0))
SPEND = Metric("spend", 100, (0.0, 500.0))
ORDERS = Metric("orders", 1, (0.0, 20.0))


@dataclass(frozen=True, eq=False)
class BadExample:
    """Releases to break, their story, what the attacker knows besides, and who the people were.

    ``exact``: it takes an attacker who solves in whole numbers.
    """

    name: str
    story: str
    releases: tuple[AttackedRelease, ...]
    people: Mapping[str, Any]
    background: Background | None = None
    exact: bool = False


def tabulate(
    name: str,
    people: Mapping[str, Any],
    sides: Sequence[Axis],
    values: Mapping[Metric, Ints],
    squares: Sequence[By],
) -> AttackedTable:
    """Count people into a table, without any rule."""
    shape = tuple(len(side.levels) for side in sides)
    codes = [
        np.array([side.place(value) for value in np.asarray(people[side.name]).tolist()], dtype=np.int64)
        for side in sides
    ]

    def added(weights: Ints, by: By) -> Cells:
        axes = [i for i, side in enumerate(sides) if side.name in by]
        cells = np.zeros([shape[i] for i in axes], dtype=np.int64)
        np.add.at(cells, tuple(codes[i] for i in axes), weights)
        return cells.astype(object)

    everybody = tuple(side.name for side in sides)
    counts = added(np.ones(len(codes[0]), dtype=np.int64), everybody)
    moments = tuple(
        Moments(
            metric, counts, added(steps, everybody), {by: added(steps**2, by) for by in squares if not metric.binary}
        )
        for metric, steps in values.items()
    )
    return AttackedTable(name, tuple(sides), counts, np.zeros(shape, dtype=bool), moments)


def arm_axis(name: str, arms: str) -> Axis:
    """Return the axis of an experiment whose arms are single letters."""
    return Axis(name, tuple(arms), "arm")


def draw_spend(rng: np.random.Generator, total: int, rate: float) -> Ints:
    """Draw amounts in cents: most people spend nothing."""
    amounts = np.minimum(50_000, (1_000 + rng.gamma(2.0, 1_500.0, total)).astype(np.int64))
    return np.where(rng.random(total) < rate, amounts, 0)
