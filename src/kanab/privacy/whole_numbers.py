"""What whole numbers give away: sums of fewer than k people that follow from all tables, because values come in steps.

A class of 30 people with 29 buyers says little about each of them; three such classes that share two people may say
everything. The sums of all tables are equations about whole numbers between bounds, and where they leave fewer than
k people who are alike in all tables one total only, a table gives way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted
from kanab.plan.model import MetricPlan
from kanab.privacy.overlap import Column
from kanab.privacy.pinned_totals import Ints, PinnedTotals, Work, pin_totals
from kanab.privacy.shown import Place, ShownTable
from kanab.tally.moments import Moments

MOST_STEPS = 20
"""Between the bounds of a metric, on the coarsest grid that its sums lie on: finer ones are hardly whole numbers."""

NOT_EVALUATED = "whole numbers"
"""Under this name the receipt says of which metrics it was not found out."""

_QUICK = Work(programs=4, certain=6.0)  # to choose a table by; what is left is then solved with all the work
_WHY = "values come in whole steps, and together with the other tables those of fewer than k people would follow"


def withhold_whole_numbers(counted: Counted, shown: Sequence[ShownTable]) -> dict[Place, str]:
    """Return the tables and metrics to withhold, each time the table that frees most people; later ones on ties."""
    withheld: dict[Place, str] = {}
    if counted.signatures is None:
        return withheld
    for plan in counted.plan.counted_metrics:
        metric = plan.name
        tables = [table for table in shown if metric in table.tally.metric_names and table.knows(metric)]
        exposed = expose(counted, plan, tables)
        while exposed.people:
            trials = {
                table.name: [other for other in tables if other is not table]
                for table in reversed(tables)
                if not (table.fixed or table.only_arms)
            }
            if not trials:  # what was released before tells it
                break
            name = min(trials, key=lambda name: expose(counted, plan, trials[name], _QUICK).people)
            withheld[name, metric] = f"{metric} is withheld in {name}: {_WHY}"
            tables = trials[name]
            exposed = expose(counted, plan, tables)
        if exposed.unsettled:
            withheld[NOT_EVALUATED, metric] = (
                f"whether values of {metric} follow for fewer than k people, because they come in whole steps, "
                "was not evaluated for everybody: it is too much work"
            )
    return withheld


@dataclass(frozen=True)
class Exposed:
    """How many people's values or sums follow, of fewer than k alike; and whether that was found out for all."""

    people: int
    unsettled: bool


def expose(counted: Counted, plan: MetricPlan, tables: Sequence[ShownTable], work: Work | None = None) -> Exposed:
    """Solve the sums of one metric in some tables."""
    assert counted.signatures is not None, "callers check this"
    parts = [table.tally.moments_of(plan.name) for table in tables]
    steps = whole_steps(parts, counted.ranges.get(plan.name))
    if steps is None or len(tables) < 2:
        return Exposed(0, unsettled=False)
    columns = [_column(table, plan.name) for table in tables]
    cells, people = alike(columns, counted.signatures.people)
    unknowns = SignatureTotals.of(cells, people, parts, steps)
    k = counted.plan.k
    looked_for = people < k if plan.sensitive == "no" else people > 0
    solved = unknowns.solve(looked_for, work or Work(until_pinned=plan.sensitive == "no"))
    marked = {"no": (), "yes": (1,), "both": (0, 1)}[plan.sensitive]
    at_marked = np.isin(solved.totals, [0]) & (0 in marked) | (solved.totals == unknowns.most) & (1 in marked)
    bad = solved.pinned & unknowns.wanted(people > 0) & ((people < k) | at_marked)
    return Exposed(int(people[bad].sum()), bool(solved.unsettled.any()))


def _column(table: ShownTable, metric: str) -> Column:
    """Return the classes of the people who have a value."""
    having = [part.metric.name for part in table.tally.moments if part.metric.missing == "exclude"]
    everybody, *others = table.columns
    return others[having.index(metric)] if metric in having and len(others) == len(having) else everybody


def alike(columns: Sequence[Column], people: Ints) -> tuple[Ints, Ints]:
    """Return the combinations of classes that somebody is in, and how many people are in each.

    >>> alike([np.array([0, 0, 1, -1]), np.array([1, 1, 0, -1])], np.array([2, 3, 4, 5]))
    (array([[0, 1],
           [1, 0]]), array([5, 4]))
    """
    groups = np.zeros(len(people), dtype=np.int64)
    for column in columns:
        _, groups = np.unique(groups * (int(column.max(initial=0)) + 2) + column + 1, return_inverse=True)
    _, first = np.unique(groups, return_index=True)
    cells = np.stack(columns, axis=1)[first]
    counts = np.bincount(groups, people).astype(np.int64)
    inside = (cells >= 0).any(axis=1) & (counts > 0)
    return cells[inside], counts[inside]


@dataclass(frozen=True)
class WholeSteps:
    """The bounds of a metric on the coarsest grid that its sums lie on: from ``low``, ``count`` steps of ``size``."""

    low: int
    size: int
    count: int


def whole_steps(parts: Sequence[Moments], bounds: tuple[int, int] | None = None) -> WholeSteps | None:
    """Return the steps of a metric of few whole numbers; None for amounts, and where bounds are not known."""
    stated = parts[0].metric.grid_bounds or bounds if parts else None
    if stated is None:
        return None
    low, high = stated
    size = math.gcd(parts[0].metric.scale, low, high, *(int(s) for part in parts for s in part.sums.ravel()))
    count = (high - low) // size
    return WholeSteps(low, size, count) if count <= MOST_STEPS else None


@dataclass(frozen=True, eq=False)
class SignatureTotals:
    """The sums of one metric as equations: one unknown for the people who are alike in all tables."""

    cells: Ints
    most: Ints
    sums: tuple[Ints, ...]
    alike: NDArray[np.bool_]  # in some published class all of whose people are at the same bound: that is said already

    @classmethod
    def of(cls, cells: Ints, people: Ints, parts: Sequence[Moments], steps: WholeSteps) -> SignatureTotals:
        """Make equations of people by combination of classes and of the tables' sums."""
        sums, said = [], np.zeros(len(people), dtype=bool)
        for column, part in zip(cells.T, parts, strict=True):
            above = ((part.sums - steps.low * part.counts) // steps.size).astype(np.int64).ravel()
            counts = part.counts.astype(np.int64).ravel()
            same = (above == 0) | (above == counts * steps.count)
            said |= (column >= 0) & same[column]
            sums.append(above)
        return cls(cells, people * steps.count, tuple(sums), said)

    def wanted(self, who: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return those of some unknowns whose totals are not said by a published class."""
        return who & ~self.alike

    def solve(self, who: NDArray[np.bool_], work: Work | None = None) -> PinnedTotals:
        """Find the totals of some unknowns that follow."""
        return pin_totals(self.cells, self.most, self.sums, self.wanted(who), work)
