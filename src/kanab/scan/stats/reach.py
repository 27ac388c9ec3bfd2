"""How large an interaction could still be there? The largest contrast that the test does not rule out.

A contrast is a difference of effects: what changing the first arm does under one second arm, minus
what it does under another. Its interval is the one that agrees with the F test (Scheffé's; for two
arms by two just Welch's t): F is beyond its limit if and only if some contrast excludes 0.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy import special

from kanab.scan.stats.cells import Cells
from kanab.scan.stats.tests import FTests
from kanab.stats.gram import Floats

_AT_ONCE = 4_000_000
"""Numbers held at once while looking through the contrasts."""


def critical(tested: FTests, level: Floats) -> Floats:
    """How many standard errors wide an interval at 1 − level is, for each table; the level may differ by table."""
    num, den = tested.robust.num, tested.robust.den
    fine = ~np.isnan(tested.robust.F)
    found = np.full(len(num), np.nan)
    x = special.betaincinv(den[fine] / 2, num[fine] / 2, level[fine])
    with np.errstate(divide="ignore"):
        limit = den[fine] * (1 - x) / x  # q × the F that is exceeded with probability `level`
    found[fine] = np.sqrt(limit * tested.shrink[fine])
    return found


def reach(cells: Cells, variances: Floats, critical: Floats) -> Floats:
    """The largest |contrast| + critical × its standard error, in units of the metric.

    Not a number where no two arms share two others.
    """
    found = np.full(len(critical), np.nan)
    levels = cells.n.shape[2]
    step = max(1, _AT_ONCE // max(1, levels**2))
    for start in range(0, len(found), step):
        some = slice(start, start + step)
        found[some] = _reach(cells, variances, critical, some)
    return found / cells.part.metric.scale


def _reach(cells: Cells, variances: Floats, critical: Floats, some: slice) -> Floats:
    means, filled = cells.means[some], cells.filled[some]
    noise = np.where(filled, variances[some] / np.where(filled, cells.n[some], 1.0), np.inf)
    left, right = np.triu_indices(noise.shape[2], 1)
    found = np.full(len(noise), -np.inf)
    for one, two in combinations(range(noise.shape[1]), 2):
        effect = (means[:, one] - means[:, two]).high
        variance = noise[:, one] + noise[:, two]
        size = np.abs(effect[:, left] - effect[:, right])
        error = np.sqrt(variance[:, left] + variance[:, right])
        far = np.where(np.isfinite(error), size + critical[some, None] * error, -np.inf)
        found = np.maximum(found, far.max(axis=1, initial=-np.inf))
    return np.where(np.isfinite(found), found, np.nan)
