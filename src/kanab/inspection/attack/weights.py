"""An attacker who knows a number of everybody, such as what they spent before, and sums that it weighs.

Σ x·y of an arm is an equation about everybody's y, with weights x. Whoever stands far off in x weighs most in it, and
what all sums together say of that person is the fit of a regression at their place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kanab.counted import SignatureNumbers
from kanab.inspection.attack.background import Background, Equations, Floats, Ints
from kanab.inspection.attack.findings import Finding, in_people
from kanab.inspection.attack.published import OUT, AttackedTable
from kanab.privacy.numbers.design import NumberDesign, Weighted
from kanab.tally.moments import Cross

WEIGHTS = "weights"

MOST_CLASSES = 2_000
"""Of the regression that says what is learnt; with more of them it is only said how much weighs on whom."""

_NEAR = 1e-6
_TELLING = 0.5  # of a combination's squared weight: from here on the fit is about that person


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """The sum of a metric that a known number weighs in one arm, and the sums of both by themselves."""

    column: Weighted
    total: int
    plain: int


def find_by_weights(background: Background, k: int) -> list[Finding]:
    """Find combinations of plain and weighted sums that rest on fewer than k people."""
    if not background.numbers or not len(background.signatures):
        return []
    findings = []
    for equations in background.equations:
        steps, sums = weighted_sums(equations)
        if not sums:
            continue
        cells = equations.cells[background.signatures]
        design = _design(cells, steps, [added.column for added in sums])
        chosen = _solvable(design)
        h = design.leverages(chosen)
        if h is None or not any(chosen) or not (h > (1 + _NEAR) / k).any():
            continue
        worst = int(np.argmax(h))
        size, exposed = 1 / float(h[worst]), int((h > (1 + _NEAR) / k).sum())
        names = " and ".join(dict.fromkeys(added.column.number for added in sums))
        learnt = (
            f"the sums of {equations.metric.name}, weighted by {names}, can be combined so that the result rests on "
            f"{size:.3g} {'person' if size < 1.005 else 'people'} only (person {worst + 1})"
        )
        kept = [added for added, is_kept in zip(sums, chosen, strict=True) if is_kept]
        if h[worst] >= _TELLING and sum(t.people.size for t in background.tables) <= MOST_CLASSES:
            value = _fit(equations, cells, steps, kept, worst) / equations.metric.scale
            learnt += f", whose {equations.metric.name} is about {value:.4g}"
        learnt += f"; so exposed {'is' if exposed == 1 else 'are'} {in_people(exposed)}"
        findings.append(Finding(WEIGHTS, equations.title, equations.metric.name, max(1, int(size + _NEAR)), learnt))
    return findings


def weighted_sums(equations: Equations) -> tuple[dict[str, Floats], list[WeightedSum]]:
    """Return known numbers on their grids, and the weighted sums of a metric whose numbers are these people's."""
    background, secret = equations.background, equations.metric.name
    steps: dict[str, Floats] = {}
    sums: dict[tuple[str, bytes], WeightedSum] = {}
    for number in equations.tables:
        table, column = background.tables[number], background.cells[background.signatures, number]
        for cross in table.crosses:
            name = next((other for other in cross.pair if other != secret), "")
            if secret in cross.pair and name in background.numbers and cross.by[0] in table.names:
                steps.setdefault(name, _on_grid(table, name, background.numbers[name]))
                for added in _by_arm(table, cross, column, name, steps[name]):
                    sums.setdefault((name, added.column.rows.tobytes()), added)
    return steps, list(sums.values())


def _on_grid(table: AttackedTable, name: str, values: Floats) -> Floats:
    """Clamp and round known values as they were counted."""
    part = table.part(name)
    if part is None:
        return values
    low, high = part.metric.grid_bounds or (-np.inf, np.inf)
    return np.clip(np.rint(values * part.metric.scale), low, high)


def _by_arm(table: AttackedTable, cross: Cross, column: Ints, name: str, steps: Floats) -> list[WeightedSum]:
    place = cross.pair.index(name)
    axis = table.names.index(cross.by[0])
    arms = np.unravel_index(np.maximum(column, 0), table.people.shape)[axis]
    sums = []
    for arm in range(table.people.shape[axis]):
        rows = (column != OUT) & (arms == arm)
        if rows.sum() == cross.counts[arm] and steps[rows].sum() == cross.sums[place][arm]:
            sums.append(WeightedSum(Weighted(name, rows), cross.products[arm], cross.sums[1 - place][arm]))
    return sums


def _design(cells: Ints, steps: dict[str, Floats], columns: list[Weighted]) -> NumberDesign:
    """Return the design in which everybody is a signature of their own."""
    x = np.column_stack([*steps.values()])
    numbers = SignatureNumbers(tuple(steps), x, x, x, x[:, :, None] * x[:, None, :])
    return NumberDesign.of(cells, np.ones(len(cells), dtype=np.int64), numbers, columns)


def _solvable(design: NumberDesign) -> list[bool]:
    """Choose columns that do not follow from classes and from columns before them."""
    chosen = [False] * len(design.columns)
    for place in range(len(chosen)):
        chosen[place] = True
        if design.leverages(chosen) is None:
            chosen[place] = False
    return chosen


def _fit(equations: Equations, cells: Ints, steps: dict[str, Floats], sums: list[WeightedSum], person: int) -> float:
    """Return what all sums together say of one person, by the published numbers alone."""
    marks: list[NDArray[np.bool_]] = []
    totals: list[float] = []
    for column, number in zip(cells.T, equations.tables, strict=True):
        part = equations.background.tables[number].part(equations.metric.name)
        if part is not None:
            for cell in np.unique(column[column != OUT]).tolist():
                marks.append(column == cell)
                totals.append(float(part.sums.ravel()[cell]))
    columns: list[Floats] = [inside.astype(np.float64) for inside in marks]
    for added in sums:
        rows, x = added.column.rows, steps[added.column.number]
        centre, spread = round(float(x[rows].mean())), float(x[rows].std())
        columns.append(np.where(rows, x - centre, 0.0) / spread)
        totals.append((added.total - centre * added.plain) / spread)
    matrix = np.column_stack(columns)
    weights = np.linalg.pinv(matrix.T @ matrix, hermitian=True) @ matrix[person]
    return float(weights @ np.array(totals))
