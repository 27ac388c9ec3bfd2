"""Solving for people: what published sums say to somebody who knows who is in which class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.inspection.attack.background import Background, Equations, Floats, minimize_linear
from kanab.inspection.attack.findings import Finding, in_people
from kanab.privacy.pinned_totals import all_free
from kanab.tally.describe import in_units

LEVERAGE = "leverage"
LEAST_SQUARES = "least squares"
SPARSE = "sparse values"

MOST_CHECKED = 40
"""People who are tried one by one where many values fit."""

_NEAR = 1e-6
_WHOLE = 1e-3  # of a step of the grid


def find_leverage(background: Background, k: int) -> list[Finding]:
    """Find combinations of published sums that rest on fewer than k people."""
    findings = []
    for equations in background.equations:
        h = equations.leverages
        exposed = np.flatnonzero(h > (1 + _NEAR) / k)
        if len(exposed):
            worst = int(np.argmax(h))
            size = 1 / float(h[worst])
            people = int(background.people[exposed].sum())
            learnt = (
                f"the sums of {equations.metric.name} can be combined so that the result rests on {size:.3g} "
                f"{'person' if size < 1.005 else 'people'} only ({background.name(worst)}); "
                f"so exposed {'is' if people == 1 else 'are'} {in_people(people)}"
            )
            findings.append(
                Finding(LEVERAGE, equations.title, equations.metric.name, max(1, int(size + _NEAR)), learnt)
            )
    return findings


def find_by_least_squares(background: Background, k: int) -> list[Finding]:
    """Find the values that the published sums determine, whatever else is true."""
    findings: list[Finding] = []
    for equations in background.equations:
        if not equations.too_large and not equations.nothing_determined:
            totals, determined = equations.solved
            for signature in np.flatnonzero(determined & (background.people < k)).tolist():
                findings.append(_finding(LEAST_SQUARES, equations, signature, round(float(totals[signature]))))
    return findings


def find_sparse_values(background: Background, k: int) -> list[Finding]:
    """Find people off the commonest value to whom the sums and the bounds leave no other value.

    Those whom the sums alone determine are left to least squares.
    """
    findings: list[Finding] = []
    for equations in background.equations:
        if equations.too_large or equations.metric.grid_bounds is None or _all_free(equations):
            continue
        if equations.solved[1].all():
            continue
        exposed = _FeasibleTotals.of(equations).determined()
        findings += [
            _finding(SPARSE, equations, place, total)
            for place, total in exposed.items()
            if background.people[place] < k
        ]
    return findings


def _all_free(equations: Equations) -> bool:
    """Tell whether everybody's total can be more and less than it is, so that no program needs to be solved.

    Where 0 is the commonest value between bounds, those who are off it may be found among many that fit.
    """
    low, high = equations.metric.grid_bounds or (0, 0)
    if low < 0 < high:
        return False
    sums = []
    for number in equations.tables:
        table = equations.background.tables[number]
        part = table.part(equations.metric.name)
        if part is None or table.hidden.any():
            return False
        sums.append((part.sums - low * part.counts).astype(np.float64).ravel() / (high - low))
    return all_free(equations.cells, equations.background.people, sums)


def _finding(attack: str, equations: Equations, signature: int, total: int) -> Finding:
    people = int(equations.background.people[signature])
    value = in_units(total, equations.metric.scale)
    has = (
        f"has {equations.metric.name} = {value}"
        if people == 1
        else f"have {equations.metric.name} = {value} between them"
    )
    return Finding(
        attack, equations.title, equations.metric.name, people, f"{equations.background.name(signature)} {has}"
    )


def _commonest(equations: Equations, bounds: tuple[int, int]) -> int:
    """Return the value that most people are taken to have: 0 between bounds, else the bound nearer to the mean."""
    low, high = bounds
    if low < 0 < high:
        return 0
    matrix, sums = equations.rows
    mean = sums.sum() / max(1.0, (matrix @ equations.background.people).sum())
    return high if 2 * mean > low + high else low


@dataclass(frozen=True, eq=False)
class _FeasibleTotals:
    """All totals that fit the published sums and the bounds of the metric."""

    matrix: Any
    sums: Floats
    low: Floats
    high: Floats
    commonest: Floats
    excluded: NDArray[np.bool_]  # whom the sums alone determine, or a class whose people all sit at the other bound
    covered: bool

    @classmethod
    def of(cls, equations: Equations) -> _FeasibleTotals:
        from scipy.sparse import csr_array  # noqa: PLC0415 - `import kanab` stays light

        low, high = equations.metric.grid_bounds or (0, 0)
        people = equations.background.people.astype(np.float64)
        matrix, sums = equations.rows
        value = _commonest(equations, (low, high))
        full = sums == matrix @ people * (low if value == high else high)
        excluded = equations.solved[1] | (matrix[full] > 0).any(axis=0)
        rows, totals = equations.independent  # rows that follow from others only slow the solver down
        return cls(csr_array(rows), totals, low * people, high * people, value * people, excluded, equations.covered)

    def determined(self) -> dict[int, int]:
        """Return signatures off the commonest value, with the only total that they can have.

        Two searches with opposite random weights that end in the same totals have found all there
        are, if the commonest value is a bound (they are the two ends of one line), and else the
        sparsest there are, if at most half as many are off it as there are equations. Otherwise
        what the two agree on is tried one by one.
        """
        draw = np.random.default_rng(0).uniform(0.5, 1.5, len(self.low))
        first, second = self._sparsest(draw), self._sparsest(2 - draw)
        if first is None or second is None:
            return {}
        near = np.abs(first - second) < _WHOLE
        whole = np.round(first)
        off = (np.abs(first - whole) < _WHOLE) & (whole != self.commonest)
        places = np.flatnonzero(near & off & ~self.excluded).tolist()
        at_bound = bool((self.commonest == self.low).all() or (self.commonest == self.high).all())
        settled = self.covered if at_bound else 2 * int(off.sum()) <= len(self.sums)
        if not (near.all() and settled):
            places = [place for place in places[:MOST_CHECKED] if self._only(place, whole[place])]
        return {place: int(whole[place]) for place in places}

    def _sparsest(self, weights: Floats) -> Floats | None:
        """Return totals that fit with the least weighted distance from the commonest value."""
        from scipy.sparse import hstack  # noqa: PLC0415 - `import kanab` stays light

        above, below = self.high - self.commonest, self.commonest - self.low
        spans = np.column_stack([np.zeros(2 * len(above)), np.concatenate([above, below])])
        both = hstack([self.matrix, -self.matrix]).tocsr()
        answer = minimize_linear(np.tile(weights, 2), both, self.sums - self.matrix @ self.commonest, spans)
        if answer is None:
            return None
        up, down = np.split(answer, 2)
        return self.commonest + up - down

    def _only(self, place: int, total: float) -> bool:
        """Tell whether one signature can have no other total."""
        costs = np.zeros(len(self.low))
        costs[place] = 1.0
        spans = np.column_stack([self.low, self.high])
        ends = [minimize_linear(sign * costs, self.matrix, self.sums, spans) for sign in (1.0, -1.0)]
        return all(end is not None and abs(end[place] - total) < _WHOLE for end in ends)
