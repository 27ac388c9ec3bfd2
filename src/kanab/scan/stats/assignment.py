"""Were people assigned to two experiments independently? If not, a difference is no interaction.

Three checks per pair: the arms among the people in both; and, for each experiment, its arms against
being in the other one. The first alone misses an experiment that lets people into the other by arm.
A pair that is assigned together by plan has one check instead: people in both against the planned joint shares.
"""

import math
from collections.abc import Mapping

import numpy as np
import scipy

from kanab.scan.pair_tables import Whole
from kanab.scan.stats.table_blocks import Places, TableBlock, tables_last
from kanab.stats.gram import Floats

CHECKS = (
    "the arms of {0} and {1} are not independent",
    "being in {1} depends on the arm of {0}",
    "being in {0} depends on the arm of {1}",
    "people are not in the joint shares that were planned for {0} and {1}",
)
"""What a failed check means, in the order of the checks."""


def check_assignment(block: TableBlock, planned: Mapping[int, Floats] | None = None) -> Floats:
    """Return p of every check of every table; not a number where there is nothing to check.

    Column 0: arm × arm. Column 1: arm of the first × being in the second. Column 2: the other way. Column 3: arm × arm
    against ``planned`` joint shares, by the number of the table in the scan; the others are not checked there.
    """
    people = tables_last(block.people.astype(np.float64))
    inside = people.sum(axis=2), people.sum(axis=1)
    sides = [_enrollment_p(arms, counts) for arms, counts in zip(block.arms, inside, strict=True)]
    p = np.stack([independence_p(people), *sides, np.full(len(people), np.nan)], axis=1)
    for place, shares in (planned or {}).items():
        for line in np.flatnonzero(block.places == place):
            p[line] = np.nan, np.nan, np.nan, planned_p(people[line], shares)
    return p


def combine_checks(p: Floats) -> tuple[Floats, Places]:
    """Return one p per table, the smallest times the number of checks, and which check has the smallest."""
    known = ~np.isnan(p)
    least = np.min(p, axis=1, initial=1.0, where=known)
    combined = np.where(known.any(axis=1), np.minimum(1.0, least * known.sum(axis=1)), np.nan)
    return combined, np.argmin(np.where(known, p, np.inf), axis=1)


def _enrollment_p(arms: Whole | None, inside: Floats) -> Floats:
    """Test arm × in the other experiment or not."""
    if arms is None:
        return np.full(len(inside), np.nan)
    outside = arms.astype(np.float64) - inside
    known = np.all(outside >= 0, axis=1)  # stored tables of other cohorts may hold fewer people
    p = independence_p(np.stack([inside, np.maximum(outside, 0.0)], axis=2))
    return np.where(known, p, np.nan)


def independence_p(observed: Floats) -> Floats:
    """Return p of the likelihood-ratio test (G, with Williams' correction) of rows × columns, per table.

    G, because thousands of checks are judged at p near 1e-5, where χ² rings ten times too often if
    a class expects three or five people. G does not (measured: 0.3 to 1.2 times).

    >>> independence_p(np.array([[[50.0, 50.0], [50.0, 50.0]], [[100.0, 50.0], [50.0, 100.0]]])).round(10)
    array([1.0e+00, 6.1e-09])
    """
    total = observed.sum(axis=(1, 2))
    rows, columns = observed.sum(axis=2), observed.sum(axis=1)
    some = np.where(total > 0, total, 1.0)
    expected = rows[:, :, None] * columns[:, None, :] / some[:, None, None]
    g = 2 * scipy.special.kl_div(observed, expected).sum(axis=(1, 2))
    steps = [np.maximum(np.sum(side > 0, axis=1) - 1, 0) for side in (rows, columns)]
    df = steps[0] * steps[1]
    sides = [_excess(side, some) for side in (rows, columns)]
    williams = 1 + sides[0] * sides[1] / (6 * some * np.maximum(df, 1))
    return _chi2_tail(g / williams, df)


def planned_p(observed: Floats, shares: Floats) -> float:
    """Return p of the likelihood-ratio test (G, with Williams' correction) of people against planned shares.

    Somebody where nobody was planned has p = 0. Not a number where there is nobody, or nothing to compare.

    >>> round(planned_p(np.array([[400.0, 200.0], [210.0, 190.0]]), np.array([[0.4, 0.2], [0.2, 0.2]])), 3)
    0.801
    """
    total, used = observed.sum(), shares > 0
    df = int(used.sum()) - 1
    if np.any(observed[~used] > 0):
        return 0.0
    if total == 0 or df < 1:
        return math.nan
    g = 2 * scipy.special.kl_div(observed[used], total * shares[used]).sum()
    williams = 1 + (np.sum(1 / shares[used]) - 1) / (6 * total * df)
    return float(scipy.special.chdtrc(df, g / williams))


def _excess(side: Floats, total: Floats) -> Floats:
    """Return N Σ 1/n − 1 over the levels that hold somebody."""
    shares = np.where(side > 0, total[:, None] / np.where(side > 0, side, 1.0), 0.0)
    return np.asarray(shares.sum(axis=1) - 1)


def _chi2_tail(x: Floats, df: Places) -> Floats:
    """Return χ² tails; one degree of freedom is a normal tail, which is ten times as quick."""
    p = np.full(len(x), np.nan)
    single, more = df == 1, df > 1
    p[single] = scipy.special.erfc(np.sqrt(np.maximum(x[single], 0.0) / 2))
    p[more] = scipy.special.chdtrc(df[more], x[more])
    return p
