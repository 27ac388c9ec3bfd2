"""Does the effect differ between the levels of a covariate? One answer for each arm against the control.

Rates are compared by a score test: the variances are those of one common difference, so that a level without events
has some, too. Amounts are compared by an F test with variances by class, as Welch's t is, and what is far out at a
level is corrected for skewness as t is. Levels with so few people that neither is near its distribution are taken as
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError, listed
from kanab.stats.cell_variance import marginal
from kanab.stats.distributions import chi2_tail, f_tail
from kanab.stats.ftest import EQUAL_VARIANCES, FTest, TwoWay, cell_spread, finest_variance, robust_f, two_way
from kanab.stats.gram import Floats, arm_squares
from kanab.stats.multiplicity import correct
from kanab.stats.skewness import Shape, corrected_t, tilt
from kanab.tally.factor import Factor, label
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

FEWEST_RARE = 3.0
"""A level of a rate is thin where fewer events (or people without one) than this are expected in an arm."""

FEWEST_UNUSUAL = 10.0
"""A level of a skewed amount is thin where fewer people off the commonest value than this are expected in an arm."""

TOO_FEW = "too few people at all levels but one"


@check_arguments(skip=("shape",))
def effect_differs(
    tally: Tally,
    covariate: str | None = None,
    metric: str | None = None,
    *,
    control: Any = None,
    shape: Shape | None = None,
) -> FTest:
    """Test whether the effect of any arm differs between the levels of a covariate.

    Each arm is compared with the control by itself; what is returned is the test of the arm with the smallest p, which
    is corrected for their number. Of a rate F is χ² over its degrees of freedom. ``note`` names the levels that were
    taken as one. With a ``shape`` of the metric its skewness is reckoned with. Raises `AnalysisError` for a pair of
    experiments.

    >>> from kanab.counting.columns import count_columns
    >>> from kanab.datasets import shop_rows
    >>> shop = count_columns(shop_rows(20_000), arm="variant", covariates=["tier"], metrics=["bought"])
    >>> print(effect_differs(shop))
    bought: variant × tier (score) F(4, inf) = 0.657570, p = 0.621
    """
    cells = two_way(tally, covariate, metric)
    if len(cells.tally.arms) != 1:
        raise AnalysisError("a pair of experiments has no levels", "Ask for arm × covariate.")
    if tally.noise is not None:
        return robust_f(tally, covariate, metric)
    table, part = cells.tally, cells.tally.moments_of(cells.metric)
    arms = table.experiment
    base = arms.index(arms.control if control is None else control)
    others = [arm for arm in range(len(arms.levels)) if arm != base]
    pairs = [(arm, base) for arm in others]
    if part.metric.binary:
        tests = [_score_test(part, cells.between, table.factors[1], pair) for pair in pairs]
    else:
        still = _still_levels(cells)
        tests = [_f_test(cells, pair, still, shape or Shape()) for pair in pairs]
    corrected = correct([test.p for test in tests], "holm")
    tested = [place for place, p in enumerate(corrected) if p is not None]
    if len(others) < 2 or not tested:
        return tests[0]
    smallest = min(tested, key=lambda place: corrected[place] or 0.0)
    test = replace(tests[smallest], p=corrected[smallest])
    return _noted(test, f"{label(arms.levels[others[smallest]])} against {label(arms.levels[base])}")


def _noted(test: FTest, *notes: str) -> FTest:
    return replace(test, note="; ".join(note for note in (*notes, test.note) if note))


def _together(groups: list[list[int]], levels: Factor) -> str:
    """Say which levels were taken as one."""
    names = [label(levels.levels[place]) for group in groups for place in group if len(group) > 1]
    return f"{listed(names)} taken as one level" if names else ""


def _levels_together(
    people: Floats, expected: Callable[[list[int]], float], fewest: float, still: Collection[int] = ()
) -> list[list[int]]:
    """Return the levels in groups: each by itself but for the thin ones, which take small levels until they are not.

    ``expected`` says how many people off the commonest value are to be expected in the smaller arm, if arms are alike.
    """
    thin = [place for place in range(people.shape[1]) if place in still or expected([place]) < fewest]
    kept = [place for place in np.argsort(people.sum(axis=0), kind="stable").tolist() if place not in thin]
    while thin and kept and expected(thin) < fewest:
        thin.append(kept.pop(0))
    return [*([place] for place in sorted(kept)), *([sorted(thin)] if thin else [])]


def _score_test(part: Moments, between: str, levels: Factor, pair: tuple[int, int]) -> FTest:
    """Test two arms of a rate: variances are those of one common difference at all levels (Miettinen and Nurminen)."""
    people, events = (cells[list(pair)].astype(np.float64) for cells in (part.counts, part.sums))

    def expected(group: list[int]) -> float:
        n, x = people[:, group].sum(axis=1), events[:, group].sum()
        return float(n.min() * min(x, n.sum() - x) / max(1.0, n.sum()))

    groups = _levels_together(people, expected, FEWEST_RARE)
    (n1, n0), (x1, x0) = (
        np.stack([cells[:, group].sum(axis=1) for group in groups], axis=1) for cells in (people, events)
    )
    there = (n1 > 0) & (n0 > 0)
    n1, n0, x1, x0 = n1[there], n0[there], x1[there], x0[there]
    n, d = n1 + n0, x1 / n1 - x0 / n0
    weights = n1 * n0 / n
    common = float(weights @ d / weights.sum())
    low = np.clip((x1 + x0 - n1 * common) / n, max(0.0, -common), min(1.0, 1.0 - common))
    high = low + common
    v = (high * (1 - high) / n1 + low * (1 - low) / n0) * n / np.maximum(n - 1, 1)
    d, v = d[v > 0], v[v > 0]
    if len(d) < 2:
        return FTest(part.metric.name, between, "score", None, None, None, TOO_FEW)
    mean = float(np.sum(d / v) / np.sum(1 / v))
    chi2, q = float(np.sum((d - mean) ** 2 / v)), len(d) - 1
    df, p = (float(q), math.inf), chi2_tail(chi2, q)
    return FTest(part.metric.name, between, "score", chi2 / q, df, p, _together(groups, levels))


def _still_levels(cells: TwoWay) -> set[int]:
    """Return at which levels of an amount nothing varies: in a class or, where that is not known, in all arms."""
    variance, places = finest_variance(cells), cells.classes.places
    if variance == "by_class":
        within = cells.classes.within_each(arm_squares(cells.tally, cells.metric, cells.tally.axes))
        return set(places[within <= 0, 1].tolist())
    if variance == "two_marginals":
        _, within, _ = marginal(cells.classes, arm_squares(cells.tally, cells.metric, cells.tally.axes[1:]), 1)
        return set(np.unique(places[:, 1])[within <= 0].tolist())
    return set()


def _f_test(cells: TwoWay, pair: tuple[int, int], still: Collection[int], shape: Shape) -> FTest:
    """Test two arms of an amount by the robust F, with what is far out at a level corrected for skewness.

    Where skewness is unknown an F with one variance for both arms of a level has to agree.
    """
    table, levels = cells.tally, cells.tally.factors[1]
    people = table.moments_of(cells.metric).counts[list(pair)].astype(np.float64)

    def expected(group: list[int]) -> float:
        return float(people[:, group].sum(axis=1).min()) * (shape.unusual if shape.skewness else math.inf)

    groups = _levels_together(people, expected, FEWEST_UNUSUAL, still)
    together = _together(groups, levels)
    if together:
        names = {levels.levels[place]: levels.levels[group[0]] for group in groups for place in group}
        cells = two_way(table.as_categories([levels.name]).coarsen(levels.name, names), levels.name, cells.metric)
    variance = finest_variance(cells)
    spread = cell_spread(cells, variance)
    test = FTest(cells.metric, cells.between, variance, None, None, None)
    rows = {(int(arm), int(level)): row for row, (arm, level) in enumerate(cells.classes.places)}
    both = [level for level in range(cells.tally.shape[1]) if all((arm, level) in rows for arm in pair)]
    if spread.problem or len(both) < 2:
        return replace(test, note=spread.problem or TOO_FEW)
    places = np.array([[rows[arm, level] for level in both] for arm in pair])
    n, group = cells.classes.n[places], spread.group[places]
    d = cells.classes.means[places[0]] - cells.classes.means[places[1]]
    own = spread.variances[group] / n
    weights = np.array([1.0, -1.0])
    z = _standardised(d, own.sum(axis=0))
    if shape.skewness:
        tilts = [tilt(shape.skewness, weights, n[:, level], own[:, level]) for level in range(len(both))]
        z = np.array([corrected_t(value, tilted) for value, tilted in zip(z.tolist(), tilts, strict=True)])
    f, df = _welch_f(z, own, group, spread.df)
    q = len(both) - 1
    p = f_tail(f, q, df)
    if shape.skewness is None:
        alike = np.sum(own * n * (n - 1), axis=0) / np.sum(n - 1, axis=0)
        f_alike = float(np.sum(_standardised(d, alike * np.sum(1 / n, axis=0)) ** 2)) / q
        p = max(p, f_tail(f_alike, q, float(np.sum(n - 1))))
    note = EQUAL_VARIANCES if variance == "by_arm" else ""
    return _noted(replace(test, F=f, df=(float(q), df), p=p, note=together), note)


def _standardised(d: Floats, v: Floats) -> Floats:
    """Return how many errors each effect is off their common mean."""
    mean = float(np.sum(d / v) / np.sum(1 / v))
    return np.asarray((d - mean) / np.sqrt(v))


def _welch_f(z: Floats, own: Floats, group: NDArray[np.intp], freedom: Floats) -> tuple[float, float]:
    """Return F and its second degrees of freedom, as `robust_f` does: Welch's correction, generalised.

    ``own`` are the variances of the two means of every level, in groups that share one estimated variance.
    """
    v, q = own.sum(axis=0), z.size - 1
    # what main effects leave over, of level l and m: √(own_l own_m) (δ/v_l − 1/(v_l v_m Σ 1/v))
    left = np.diag(1 / v) - np.outer(1 / v, 1 / v) / np.sum(1 / v)
    t = np.bincount(group.ravel(), weights=(own * np.diag(left)).ravel(), minlength=len(freedom))
    flat, levels = group.ravel(), np.tile(np.arange(z.size), 2)
    squares = np.outer(own.ravel(), own.ravel()) * left[np.ix_(levels, levels)] ** 2
    u = np.bincount(flat, weights=np.sum(squares * (flat[:, None] == flat), axis=1), minlength=len(freedom))
    h1, h2 = float(np.sum(t**2 / freedom)), float(np.sum(u / freedom))
    f = float(np.sum(z**2)) / q / (1 + 2 * (q * h2 - h1) / (q * (q + 2)))
    return f, q * (q + 2) / (h1 + 2 * h2)
