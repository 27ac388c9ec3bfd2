"""Solving in whole numbers, within a small budget: k rules it out for metrics that are marked sensitive only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.inspection.attack.findings import Finding
from kanab.inspection.attack.known_people import Background, Floats, MetricDesign
from kanab.inspection.attack.reconstruct import total_finding

WHOLE_NUMBERS = "whole numbers"

MOST_CHECKED = 20
"""Signatures that are tried one by one where many values fit."""
MOST_STEPS = 100
"""Between the bounds of a metric; amounts in cents are not tried."""
MOST_ENTRIES = 2_000_000
"""Of the equations of one program; larger ones are not tried."""
NODES = 50
"""Of the search of one program."""


@dataclass(frozen=True)
class WholeFindings:
    """What follows in whole numbers; ``unsettled`` says that some of it was too much work."""

    findings: tuple[Finding, ...] = ()
    unsettled: bool = False


def find_whole_numbers(background: Background, k: int, *, sensitive: bool) -> WholeFindings:
    """Find fewer than k people, alike in all tables, to whom sums, bounds and whole numbers leave one total only."""
    findings: list[Finding] = []
    unsettled = False
    for design in background.designs:
        if design.sensitive != sensitive:
            continue
        low, high = design.metric.grid_bounds or (0, MOST_STEPS + 1)
        entries = sum(map(len, design.sums)) * len(design.people)
        if high - low > MOST_STEPS or entries > MOST_ENTRIES:
            unsettled = True
            continue
        pinned = _WholeTotals.of(design).pinned((design.people < k) & ~design.solved[1])
        unsettled |= pinned is None
        for signature, total in (pinned or {}).items():
            findings.append(total_finding(WHOLE_NUMBERS, design, signature, total))
    return WholeFindings(tuple(findings), unsettled)


@dataclass(frozen=True, eq=False)
class _WholeTotals:
    """All whole totals that fit published sums and the bounds of a metric."""

    matrix: Floats
    sums: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, design: MetricDesign) -> _WholeTotals:
        low, high = design.metric.grid_bounds or (0, 0)
        people = design.people.astype(np.float64)
        return cls(*design.rows, low * people, high * people)

    def pinned(self, wanted: NDArray[np.bool_]) -> dict[int, int] | None:
        """Return signatures with the only total that they can have; None where that was too much work.

        The least and the greatest of a random sum of totals are two corners of what fits: only what they agree on can
        be pinned, and all of it is where they agree in everything. Of the rest, those at a bound are pushed off it
        together, and whoever stays is pinned; totals between bounds are tried one by one.
        """
        draw = np.random.default_rng(0).uniform(0.5, 1.5, len(self.low))
        first, second = (self._fitting(sign * draw) for sign in (1, -1))
        if first is None or second is None:
            return None
        left = np.flatnonzero((first == second) & wanted & ~self._at_bounds())
        if not (first == second).all():
            at_low, at_high = first[left] == self.low[left], first[left] == self.high[left]
            between = left[~at_low & ~at_high][:MOST_CHECKED]
            groups = [(left[at_low], (-1,)), (left[at_high], (1,)), *(([place], (-1, 1)) for place in between)]
            left = np.concatenate([self._stay(np.array(group), first, signs) for group, signs in groups])
        return {int(place): int(first[place]) for place in left}

    def _stay(self, group: NDArray[np.int64], first: Floats, signs: tuple[int, ...]) -> NDArray[np.int64]:
        """Return those of a group who cannot be pushed up (−1) or down (1); in doubt nobody."""
        for sign in signs:
            for _ in range(MOST_CHECKED if len(group) else 0):
                costs = np.zeros(len(first))
                costs[group] = sign
                answer = self._solve(costs)
                stays = (
                    np.zeros(len(group), dtype=bool) if answer.x is None else np.round(answer.x[group]) == first[group]
                )
                if stays.all() and answer.status == 0:
                    break
                group = group[stays] if not stays.all() else group[:0]
        return group

    def _at_bounds(self) -> NDArray[np.bool_]:
        """Return whose class has everybody at the same bound."""
        full = [self.sums == self.matrix @ bound for bound in (self.low, self.high)]
        marked: NDArray[np.bool_] = (self.matrix[full[0] | full[1]] > 0).any(axis=0)
        return marked

    def _fitting(self, costs: Floats) -> Floats | None:
        """Return whole totals that fit with the least costs; None where that is too much work."""
        answer = self._solve(costs)
        return np.round(answer.x) if answer.status == 0 else None

    def _solve(self, costs: Floats) -> Any:
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - `import kanab` stays light

        fits = LinearConstraint(self.matrix, self.sums, self.sums)
        return milp(costs, constraints=fits, bounds=Bounds(self.low, self.high),
                    integrality=np.ones(len(costs), dtype=np.int64),
                    options={"node_limit": NODES, "mip_rel_gap": 0})  # fmt: skip
