"""What a test cannot rule out: that a few people made its alarm, and how large an interaction it could miss.

An F test trusts that class means are nearly normal. With a long tail and a small class they are not:
at p = 1e-5, 10/90 × 10/90 of 10,000 people with skewness 9 ring ten times too often, and a 0/1 metric
with twenty ones in its smallest class fifteen times. Skewness cannot be known from n, S and Q, but
how far out one person can be is limited: by the bounds; by the squares of the arm; and where neither
helps, we reckon with people up to 30 standard deviations out, which covers skewness up to 30.

With ``pull`` the standard errors by which one such person moves the statistic, Bernstein's inequality
says that z behaves no worse than z / √(1 + pull·z/3) of a normal. An alarm that does not survive this
deflation is for watching, not for acting. For 0/1 metrics the variances are also those that the
additive fit implies, where these are larger: a class with by chance few ones looks steadier than it is.

What could be missed is the largest contrast inside its interval. A contrast is a difference of effects:
what changing the first arm does under one second arm, minus what it does under another. Its interval
agrees with the F test (Scheffé's; for two arms by two just Welch's t): F is beyond its limit if and
only if some contrast excludes 0.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy

from kanab.scan.stats.f_tests import FTests, f_tails, fit_interaction
from kanab.scan.stats.table_blocks import CentredCells
from kanab.stats.gram import Floats

FARTHEST = 30.0
"""Standard deviations: how far out a person is taken to be where bounds and squares allow more."""

_AT_ONCE = 4_000_000
"""Numbers held at once while looking through the contrasts."""


@dataclass(frozen=True, eq=False)
class GuardedTests:
    """The careful version of a block's robust tests.

    ``p`` never lies below the robust p; ``pull`` is what one person can move, in standard errors;
    ``variances`` are the larger ones (steps²).
    """

    p: Floats
    pull: Floats
    variances: Floats


def guard_tests(tested: FTests) -> GuardedTests:
    """Deflate the robust tests of a block."""
    cells, n, q = tested.cells, tested.cells.n, tested.q
    fit, variances = tested.fit, tested.variances
    if cells.part.metric.binary:
        additive = np.clip(cells.part.sums / np.maximum(n, 1.0) - fit_interaction(cells.means, n).residuals, 0.0, 1.0)
        variances = np.maximum(variances, additive * (1 - additive))
        fit = fit_interaction(cells.means, np.where(cells.filled, n / variances, 0.0))
    people = np.where(cells.filled, n, 1.0)
    pull = np.max(_farthest(tested, variances) * np.sqrt(fit.free / (people * variances)), axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        f = fit.extra / q / tested.shrink / (1 + pull * np.sqrt(fit.extra) / 3)
        f = np.minimum(f, tested.robust.F)
    return GuardedTests(f_tails(f, tested.robust.num, tested.robust.den), pull, variances)


def _farthest(tested: FTests, variances: Floats) -> Floats:
    """Return how far from its class's mean one person can be, in steps."""
    cells = tested.cells
    metric = cells.part.metric
    limits = []
    if metric.bounds is not None:
        means = cells.means + cells.centre.astype(np.float64)[:, None, None]
        limits.append(np.maximum(metric.bounds[1] * metric.scale - means, means - metric.bounds[0] * metric.scale))
    if metric.binary:
        return limits[0]
    limits.append(FARTHEST * np.sqrt(variances))
    for spread, axis in ((cells.row_spread, 2), (cells.column_spread, 1)):
        if spread is not None:
            limits.append(np.broadcast_to(np.expand_dims(np.sqrt(spread), axis), cells.n.shape))
    return np.asarray(np.maximum(np.min(limits, axis=0), 0.0))


def critical_values(tested: FTests, level: Floats) -> Floats:
    """Return how many standard errors wide an interval at 1 − level is; the level may differ by table."""
    num, den = tested.robust.num, tested.robust.den
    fine = ~np.isnan(tested.robust.F)
    critical = np.full(len(num), np.nan)
    x = scipy.special.betaincinv(den[fine] / 2, num[fine] / 2, level[fine])
    with np.errstate(divide="ignore"):
        limit = den[fine] * (1 - x) / x  # q × the F that is exceeded with probability `level`
    critical[fine] = np.sqrt(limit * tested.shrink[fine])
    return critical


def widen_critical(critical: Floats, pull: Floats) -> Floats:
    """Return the standard errors that keep a promise which the normal distribution keeps with ``critical`` ones.

    >>> widen_critical(np.array([2.0, 4.0]), np.array([0.0, 0.3])).round(3)
    array([2.   , 4.879])
    """
    lean = pull * critical / 6
    return np.asarray(critical * (lean + np.sqrt(1 + lean**2)))


def largest_contrast(cells: CentredCells, variances: Floats, critical: Floats) -> Floats:
    """Return the largest |contrast| + critical × its standard error, in units of the metric.

    Not a number where no two arms share two others.
    """
    largest = np.full(len(critical), np.nan)
    levels = cells.n.shape[2]
    step = max(1, _AT_ONCE // max(1, levels**2))
    for start in range(0, len(largest), step):
        some = slice(start, start + step)
        largest[some] = _largest_contrast(cells, variances, critical, some)
    return largest / cells.part.metric.scale


def _largest_contrast(cells: CentredCells, variances: Floats, critical: Floats, some: slice) -> Floats:
    means, filled = cells.means[some], cells.filled[some]
    noise = np.where(filled, variances[some] / np.where(filled, cells.n[some], 1.0), np.inf)
    left, right = np.triu_indices(noise.shape[2], 1)
    largest = np.full(len(noise), -np.inf)
    for first, second in combinations(range(noise.shape[1]), 2):
        effect = means[:, first] - means[:, second]
        variance = noise[:, first] + noise[:, second]
        size = np.abs(effect[:, left] - effect[:, right])
        error = np.sqrt(variance[:, left] + variance[:, right])
        far = np.where(np.isfinite(error), size + critical[some, None] * error, -np.inf)
        largest = np.maximum(largest, far.max(axis=1, initial=-np.inf))
    return np.where(np.isfinite(largest), largest, np.nan)
