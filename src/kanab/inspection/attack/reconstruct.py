"""Solving for people: what published sums say to somebody who knows who is in which class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.inspection.attack.background import Equations, Floats, Known
from kanab.inspection.attack.differencing import in_people
from kanab.inspection.attack.findings import Finding
from kanab.privacy.leverage import leverages
from kanab.tally.describe import in_units

LEVERAGE = "leverage"
LEAST_SQUARES = "least squares"
SPARSE = "sparse values"

MOST_CHECKED = 40
"""People who are tried one by one where many values fit."""

_NEAR = 1e-6
_WHOLE = 1e-3  # of a step of the grid


def find_leverage(known: Known, k: int) -> list[Finding]:
    """Combinations of published sums that rest on fewer than k people."""
    found = []
    for one in known.equations:
        h = leverages(one.cells, known.people)
        exposed = np.flatnonzero(h > (1 + _NEAR) / k)
        if len(exposed):
            worst = int(np.argmax(h))
            size = 1 / float(h[worst])
            people = int(known.people[exposed].sum())
            learnt = (
                f"the sums of {one.metric.name} can be combined so that the result rests on {size:.3g} "
                f"{'person' if size < 1.005 else 'people'} only ({known.name(worst)}); "
                f"so exposed {'is' if people == 1 else 'are'} {in_people(people)}"
            )
            found.append(Finding(LEVERAGE, one.title, one.metric.name, max(1, int(size + _NEAR)), learnt))
    return found


def find_by_least_squares(known: Known, k: int) -> list[Finding]:
    """The values that the published sums determine, whatever else is true."""
    found: list[Finding] = []
    for one in known.equations:
        if not one.too_large:
            totals, determined = one.solved
            for signature in np.flatnonzero(determined & (known.people < k)).tolist():
                found.append(_told(LEAST_SQUARES, one, signature, round(float(totals[signature]))))
    return found


def find_sparse_values(known: Known, k: int) -> list[Finding]:
    """People off the commonest value whom the sums and the bounds leave no way around.

    Those whom the sums alone determine are left to least squares.
    """
    found: list[Finding] = []
    for one in known.equations:
        if one.too_large or one.metric.grid_bounds is None or one.solved[1].all():
            continue
        pinned = _Box.of(one).pinned()
        found += [_told(SPARSE, one, place, total) for place, total in pinned.items() if known.people[place] < k]
    return found


def _told(attack: str, one: Equations, signature: int, total: int) -> Finding:
    people = int(one.known.people[signature])
    value = in_units(total, one.metric.scale)
    has = f"has {one.metric.name} = {value}" if people == 1 else f"have {one.metric.name} = {value} between them"
    return Finding(attack, one.title, one.metric.name, people, f"{one.known.name(signature)} {has}")


def _commonest(one: Equations, bounds: tuple[int, int]) -> int:
    """The value that most people are taken to have: 0 between bounds, else the bound that is nearer to the mean."""
    low, high = bounds
    if low < 0 < high:
        return 0
    matrix, sums = one.rows
    mean = sums.sum() / max(1.0, (matrix @ one.known.people).sum())
    return high if 2 * mean > low + high else low


@dataclass(frozen=True, eq=False)
class _Box:
    """All totals that fit the published sums and the bounds of the metric."""

    matrix: Any
    sums: Floats
    low: Floats
    high: Floats
    commonest: Floats
    told: NDArray[np.bool_]  # whom the sums alone determine, or a class whose people all sit at the other bound
    covered: bool

    @classmethod
    def of(cls, one: Equations) -> _Box:
        from scipy.sparse import csr_array  # noqa: PLC0415 - `import kanab` stays light

        low, high = one.metric.grid_bounds or (0, 0)
        people = one.known.people.astype(np.float64)
        matrix, sums = one.rows
        value = _commonest(one, (low, high))
        full = sums == matrix @ people * (low if value == high else high)
        told = one.solved[1] | (matrix[full] > 0).any(axis=0)
        rows, totals = one.independent  # rows that follow from others only slow the solver down
        return cls(csr_array(rows), totals, low * people, high * people, value * people, told, one.covered)

    def pinned(self) -> dict[int, int]:
        """Signatures off the commonest value, with the total that they have.

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
        found = np.flatnonzero(near & off & ~self.told).tolist()
        at_bound = bool((self.commonest == self.low).all() or (self.commonest == self.high).all())
        settled = self.covered if at_bound else 2 * int(off.sum()) <= len(self.sums)
        if not (near.all() and settled):
            found = [place for place in found[:MOST_CHECKED] if self._only(place, whole[place])]
        return {place: int(whole[place]) for place in found}

    def _sparsest(self, weights: Floats) -> Floats | None:
        """Totals that fit with the least weighted distance from the commonest value."""
        from scipy.sparse import hstack  # noqa: PLC0415 - `import kanab` stays light

        above, below = self.high - self.commonest, self.commonest - self.low
        spans = np.column_stack([np.zeros(2 * len(above)), np.concatenate([above, below])])
        both = hstack([self.matrix, -self.matrix]).tocsr()
        found = _program(np.tile(weights, 2), both, self.sums - self.matrix @ self.commonest, spans)
        if found is None:
            return None
        up, down = np.split(found, 2)
        return self.commonest + up - down

    def _only(self, place: int, total: float) -> bool:
        """Can one signature have no other total?"""
        costs = np.zeros(len(self.low))
        costs[place] = 1.0
        spans = np.column_stack([self.low, self.high])
        ends = [_program(sign * costs, self.matrix, self.sums, spans) for sign in (1.0, -1.0)]
        return all(end is not None and abs(end[place] - total) < _WHOLE for end in ends)


def _program(costs: Floats, matrix: Any, sums: Floats, spans: Floats) -> Floats | None:
    from scipy.optimize import linprog  # noqa: PLC0415 - `import kanab` stays light

    bounds: Any = spans
    answer = linprog(costs, A_eq=matrix, b_eq=sums, bounds=bounds, method="highs")
    return np.asarray(answer.x, dtype=np.float64) if answer.status == 0 else None
