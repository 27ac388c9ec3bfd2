"""Could a few people have made this alarm? What counts, sums and squares can say about that.

An F test trusts that class means are nearly normal. With a long tail and a small class they are not:
at p = 1e-5, 10/90 × 10/90 of 10,000 people with skewness 9 ring ten times too often, and a 0/1 metric
with twenty ones in its smallest class fifteen times. Skewness cannot be known from n, S and Q, but
how far out one person can be is limited: by the bounds; by the squares of the arm; and where neither
helps, we reckon with people up to 30 standard deviations out, which covers skewness up to 30.

With ``pull`` the standard errors by which one such person moves the statistic, Bernstein's inequality
says that z behaves no worse than z / √(1 + pull·z/3) of a normal. An alarm that does not survive this
deflation is for watching, not for acting. For 0/1 metrics the variances are also those that the
additive fit implies, where these are larger: a class with by chance few ones looks steadier than it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kanab.scan.stats.fit import interaction
from kanab.scan.stats.tests import FTests, f_tails
from kanab.stats.gram import Floats

FARTHEST = 30.0
"""Standard deviations: how far out a person is taken to be where bounds and squares allow more."""

Range = tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class Guard:
    """The careful version of a block's robust tests.

    ``p`` never lies below the robust p; ``pull`` is what one person can move, in standard errors;
    ``variances`` are the larger ones (steps²).
    """

    p: Floats
    pull: Floats
    variances: Floats


def guard(tested: FTests, bounds: Range) -> Guard:
    """Deflate the robust tests of a block. ``bounds`` are in units of the metric, if known."""
    cells, n, q = tested.cells, tested.cells.n, tested.q
    fit, variances = tested.fit, tested.variances
    if cells.part.metric.binary:
        additive = np.clip(cells.part.sums / np.maximum(n, 1.0) - interaction(cells.means, n).residuals, 0.0, 1.0)
        variances = np.maximum(variances, additive * (1 - additive))
        fit = interaction(cells.means, np.where(cells.filled, n / variances, 0.0))
    people = np.where(cells.filled, n, 1.0)
    pull = np.max(_farthest(tested, variances, bounds) * np.sqrt(fit.free / (people * variances)), axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        f = fit.extra / q / tested.shrink / (1 + pull * np.sqrt(fit.extra) / 3)
        f = np.minimum(f, tested.robust.F)
    return Guard(f_tails(f, tested.robust.num, tested.robust.den), pull, variances)


def _farthest(tested: FTests, variances: Floats, bounds: Range) -> Floats:
    """How far from its class's mean can one person be, in steps?"""
    cells = tested.cells
    metric = cells.part.metric
    known = metric.bounds or bounds
    limits = []
    if known is not None:
        means = cells.means.high + cells.centre.astype(np.float64)[:, None, None]
        limits.append(np.maximum(known[1] * metric.scale - means, means - known[0] * metric.scale))
    if metric.binary:
        return limits[0]
    limits.append(FARTHEST * np.sqrt(variances))
    for spread, axis in ((cells.row_spread, 2), (cells.column_spread, 1)):
        if spread is not None:
            limits.append(np.broadcast_to(np.expand_dims(np.sqrt(spread), axis), cells.n.shape))
    return np.asarray(np.maximum(np.min(limits, axis=0), 0.0))


def widened(critical: Floats, pull: Floats) -> Floats:
    """The standard errors that keep a promise which the normal distribution keeps with ``critical`` ones.

    >>> widened(np.array([2.0, 4.0]), np.array([0.0, 0.3])).round(3)
    array([2.   , 4.879])
    """
    lean = pull * critical / 6
    return np.asarray(critical * (lean + np.sqrt(1 + lean**2)))
