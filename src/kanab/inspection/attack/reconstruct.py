"""Solving for people: what published sums say to somebody who knows who is in which class."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.counting.unusual import CENTS, REMAINDERS
from kanab.inspection.attack.background import (
    Background,
    Equations,
    Floats,
    independent_rows,
    is_large,
    minimize_linear,
    solve,
)
from kanab.inspection.attack.findings import Finding, in_people
from kanab.inspection.attack.published import OUT
from kanab.privacy.pinned_totals import all_free
from kanab.tally.describe import in_units

LEVERAGE = "leverage"
LEAST_SQUARES = "least squares"
SPARSE = "sparse values"

MOST_CHECKED = 40
"""People who are tried one by one where many values fit."""

_NEAR = 1e-6
_UNLIKELY = 1e-6
_WHOLE = 1e-3  # of a step of the grid
_ROUNDS = 300


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

    The commonest value may be any, and another one in every arm; values may also be off a grid that all others are on,
    such as odd cents. Those whom the sums alone determine are left to least squares.
    """
    findings: dict[tuple[str, int], Finding] = {}
    for equations in background.equations:
        if equations.too_large or equations.metric.grid_bounds is None:
            continue
        binary = equations.metric.binary
        if not binary and equations.solved[1].all():
            continue
        free = _all_free(equations)
        if binary and (free or equations.solved[1].all()):
            continue
        for people in _parts(equations):
            for place, total in _off_commonest(equations, people, free=free).items():
                if background.people[place] < k:
                    findings.setdefault((equations.metric.name, place), _finding(SPARSE, equations, place, total))
            for place, (rest, step) in _off_grid(equations, people).items():
                if background.people[place] < k:
                    findings.setdefault((equations.metric.name, place), _odd(equations, place, rest, step))
    return list(findings.values())


def _parts(equations: Equations) -> list[NDArray[np.bool_]]:
    """Return everybody, and the people of every arm: what tables say of an arm needs no knowledge of the others."""
    everybody = np.ones(len(equations.background.people), dtype=bool)
    arms: dict[bytes, NDArray[np.bool_]] = {}
    experiments: set[str] = set()
    for number in equations.tables:
        table, column = equations.background.tables[number], equations.background.cells[:, number]
        for axis, side in enumerate(table.axes):
            if side.role == "arm":
                experiments.add(side.name)
                places = np.unravel_index(np.maximum(column, 0), table.people.shape)[axis]
                for arm in range(len(side.levels)):
                    there = (column != OUT) & (places == arm)
                    if there.any() and len(table.axes) > 1:
                        arms[there.tobytes()] = there
    return [*([everybody] if len(experiments) != 1 or not arms else []), *arms.values()]


def _off_commonest(equations: Equations, people: NDArray[np.bool_], *, free: bool) -> dict[int, int]:
    """Return signatures off the commonest value, with their totals."""
    system = _FeasibleTotals.of(equations, people)
    if system is None:
        return {}
    system = replace(system, free=free)
    exposed: dict[int, int] = {}
    for value in dict.fromkeys([system.usual(), system.middle()]):
        exposed = exposed or system.around(value).determined()
    places = np.flatnonzero(people)
    return {int(places[place]): total for place, total in exposed.items()}


def _off_grid(equations: Equations, people: NDArray[np.bool_]) -> dict[int, tuple[int, int]]:
    """Return signatures off a coarser grid that all others are on, with what is left over, and the grid's step.

    Sums leave over what the few people leave over between them, as long as it is less than a step.
    """
    scale, (low, high) = equations.metric.scale, equations.metric.grid_bounds or (0, 0)
    system = _FeasibleTotals.of(equations, people)
    if system is None:
        return {}
    places = np.flatnonzero(people)
    for cents in reversed(REMAINDERS):
        step = cents if scale <= CENTS else cents * scale // CENTS
        if step < 2 or step > high - low or (scale > CENTS and cents * scale % CENTS):
            continue
        for shift in (0, -1):  # 10.00 or 9.99
            left = np.mod(system.sums - shift * (system.matrix @ system.sizes), step)
            if left.any() and _no_chance(int(np.count_nonzero(left == 0)), len(left), step):
                odd = replace(system, sums=left, low=0 * system.low, high=(step - 1) * system.sizes, whole=False)
                exposed = odd.around(0).determined()
                if exposed:
                    return {int(places[place]): (rest, step) for place, rest in exposed.items()}
    return {}


def _no_chance(hits: int, draws: int, step: int) -> bool:
    """Tell whether so many sums leave nothing over though they would by chance in one of ``step`` cases each."""
    ways = math.lgamma(draws + 1) - math.lgamma(hits + 1) - math.lgamma(draws - hits + 1)
    return ways - hits * math.log(step) < math.log(_UNLIKELY)


def _odd(equations: Equations, signature: int, rest: int, step: int) -> Finding:
    people, scale = int(equations.background.people[signature]), equations.metric.scale
    who, verb = equations.background.name(signature), "is" if people == 1 else "are"
    off = f"{in_units(rest, scale)} off the steps of {in_units(step, scale)}"
    learnt = f"{who} {verb} {off} that all other {equations.metric.name} is in"
    return Finding(SPARSE, equations.title, equations.metric.name, people, learnt)


def _all_free(equations: Equations) -> bool:
    """Tell whether everybody's total can be more and less than it is, so that the bounds determine nobody's.

    Where the commonest value lies between bounds, those who are off it may still be the fewest of all that fit.
    """
    low, high = equations.metric.grid_bounds or (0, 0)
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


@dataclass(frozen=True, eq=False)
class _FeasibleTotals:
    """All totals of some people that fit the published sums about them and the bounds of the metric.

    ``excluded`` are those whom the sums alone determine, or a class whose people all sit at the other bound. ``whole``
    says that sums are sums, not what is left over of them; ``free``, that everybody's total can be more and less.
    """

    matrix: Any
    sums: Floats
    sizes: Floats
    bounds: tuple[int, int]
    low: Floats
    high: Floats
    commonest: Floats
    excluded: NDArray[np.bool_]
    covered: bool
    whole: bool = True
    free: bool = False

    @classmethod
    def of(cls, equations: Equations, people: NDArray[np.bool_]) -> _FeasibleTotals | None:
        """Return the sums about some people only; None where there are none, or they say everything."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - `import kanab` stays light

        matrix, sums = equations.independent  # rows that follow from others only slow the solver down
        if not people.all():
            matrix, sums = equations.rows
            about = ~(matrix[:, ~people] > 0).any(axis=1)
            matrix, sums = matrix[about][:, people], sums[about]
            rows = independent_rows(matrix)
            matrix, sums = matrix[rows], sums[rows]
        determined = solve(matrix, sums)[1]
        if not len(sums) or determined.all():
            return None
        low, high = equations.metric.grid_bounds or (0, 0)
        sizes = equations.background.people[people].astype(np.float64)
        return cls(
            csr_array(matrix), sums, sizes, (low, high), low * sizes, high * sizes, low * sizes, determined,
            equations.covered,
        )  # fmt: skip

    def usual(self) -> int:
        """Return the value that most people are taken to have: 0 between bounds, else the bound nearer to the mean."""
        low, high = self.bounds
        if low < 0 < high:
            return 0
        mean = self.sums.sum() / max(1.0, (self.matrix @ self.sizes).sum())
        return high if 2 * mean > low + high else low

    def middle(self) -> int:
        """Return the value that most classes are alike in, or else the middle one of their means."""
        low, high = self.bounds
        means = self.sums / (self.matrix @ self.sizes)
        whole = means[means == np.round(means)]
        values, classes = np.unique(whole, return_counts=True)
        value = values[np.argmax(classes)] if len(whole) else np.round(np.median(means))
        return int(min(max(value, low), high))

    def around(self, value: int) -> _FeasibleTotals:
        """Return the same with a commonest value."""
        low, high = self.bounds
        excluded = self.excluded
        if self.whole:
            full = self.sums == self.matrix @ self.sizes * (low if value == high else high)
            excluded = excluded | np.asarray(self.matrix[full].sum(axis=0) > 0).ravel()
        return replace(self, commonest=value * self.sizes, excluded=excluded)

    def determined(self) -> dict[int, int]:
        """Return signatures off the commonest value, with the only total that they can have.

        Two searches with opposite random weights that end in the same totals have found all there
        are, if the commonest value is a bound (they are the two ends of one line), and else the
        sparsest there are, if at most half as many are off it as there are equations. Otherwise
        what the two agree on is tried one by one; in vain where everybody is free.
        """
        at_bound = bool((self.commonest == self.low).all() or (self.commonest == self.high).all())
        width = 0.5 if at_bound else 0.05  # between bounds, people above would make up for people below
        draw = np.random.default_rng(0).uniform(1 - width, 1 + width, len(self.low))
        hopeless = self.free and (at_bound or (is_large(self.matrix) and not self._look_sparse(draw)))
        first = None if hopeless else self._sparsest(draw)
        if first is None:
            return {}
        whole = np.round(first)
        off = (np.abs(first - whole) < _WHOLE) & (whole != self.commonest)
        settled = self.covered if at_bound and self.whole else 2 * int(off.sum()) <= len(self.sums)
        second = None if self.free and not settled else self._sparsest(2 - draw)
        if second is None:
            return {}
        near = np.abs(first - second) < _WHOLE
        places = np.flatnonzero(near & off & ~self.excluded).tolist()
        if not (near.all() and settled):
            places = [place for place in places[:MOST_CHECKED] if self.whole and self._only(place, whole[place])]
        return {place: int(whole[place]) for place in places}

    def _look_sparse(self, weights: Floats) -> bool:
        """Tell whether few people come out off the commonest value; a fraction of the work of a linear program.

        Splitting (Douglas and Rachford): towards the commonest value, and back to what fits, in turns. Where a program
        would end with so few people off it, this comes near them soon.
        """
        from scipy.linalg import cho_factor, cho_solve  # noqa: PLC0415 - `import kanab` stays light

        factor = cho_factor((self.matrix @ self.matrix.T).toarray())
        rest = self.sums - self.matrix @ self.commonest
        low, high = self.low - self.commonest, self.high - self.commonest

        def fitted(values: Floats) -> Floats:
            return np.asarray(values - self.matrix.T @ cho_solve(factor, self.matrix @ values - rest))

        place = fitted(np.zeros(len(low)))
        pull = weights * np.abs(place).mean()
        for _ in range(_ROUNDS):
            near = np.clip(np.sign(place) * np.maximum(np.abs(place) - pull, 0), low, high)
            if 2 * np.count_nonzero(near) <= len(rest):
                return True
            place = place + fitted(2 * near - place) - near
        return False

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
