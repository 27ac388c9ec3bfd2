"""Segments: does the effect differ between levels, what is it at every level, and each level against the rest.

Rates are compared by score tests, amounts by an F with variances by class, as Welch's t is; thin levels are one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kanab.arguments import check_arguments
from kanab.choices import Alternative, Correction
from kanab.errors import AnalysisError, listed
from kanab.stats.distributions import check_sides, chi2_tail, f_tail, satterthwaite_df, t_interval, t_tail
from kanab.stats.ftest import (
    EQUAL_VARIANCES,
    KNOWN,
    CellVariance,
    FTest,
    TwoWay,
    Variance,
    cell_spread,
    finest_variance,
    marginal,
    robust_f,
    two_way,
)
from kanab.stats.gram import Classes, Floats, arm_squares
from kanab.stats.multiplicity import correct
from kanab.stats.noise_variance import TOO_NOISY
from kanab.stats.score import Rates
from kanab.stats.skewness import Shape, corrected_t, tilt
from kanab.tabular import number, p_value
from kanab.tally.factor import Factor, Level, label
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

_FEW_EVENTS = "few events are to be expected here, so p is at least that of the exact test"

_FEW_PEOPLE = "a test with one variance for both arms does not ring here, so a few people could have made it"

THIN = 20
"""An arm with fewer people in a level has a mean of amounts there, but no interval that could be trusted."""


_SMALLEST_LEVEL = 1e-12
"""Below this no interval can be told from an infinite one."""


@dataclass(frozen=True)
class SegmentEffect:
    """The effect of one arm at one level. ``people`` and ``means`` are the control's and the arm's there.

    ``interval`` and ``p`` are of this level by itself, ``interval_adjusted`` and ``p_adjusted`` hold for all
    levels and arms together (Šidák). None where a level is too thin or nothing varies; ``note`` says which.
    ``p_pooled`` is the p of a second t, with one variance for both arms, which has to ring too, as for
    `Effect`. ``rates`` are the people and events of a 0/1 metric, whose test is the score test; its t is
    normal, without df.
    """

    metric: str
    covariate: str
    level: Level
    arm: Level
    control: Level
    people: tuple[int, int]
    means: tuple[float, float]
    estimate: float
    variance: Variance
    se: float | None = None
    df: float | None = None
    t: float | None = None
    p: float | None = None
    interval: tuple[float, float] | None = None
    p_adjusted: float | None = None
    interval_adjusted: tuple[float, float] | None = None
    note: str = ""
    rates: Rates | None = None
    p_pooled: float | None = None
    p_pooled_adjusted: float | None = None

    @property
    def test(self) -> Literal["score", "welch"]:
        """Which test it is: Miettinen and Nurminen's for rates, Welch's for amounts."""
        return "welch" if self.rates is None else "score"

    def watch(self, confidence: float) -> bool:
        """Return whether Welch's t rings for all levels together, and the second one does not."""
        p, second, alpha = self.p_adjusted, self.p_pooled_adjusted, 1 - confidence
        return p is not None and second is not None and p < alpha <= second

    def interval_at(self, alpha: float, alternative: Alternative) -> tuple[float, float] | None:
        """Return the values that the test does not reject at another level; None where there is no test."""
        return _tested(self, 1 - max(alpha, _SMALLEST_LEVEL), alternative).interval

    def __str__(self) -> str:
        head = (
            f"{self.metric}: {label(self.arm)} − {label(self.control)} where {self.covariate} is {label(self.level)} "
            f"= {number(self.estimate)}"
        )
        note = f"; {self.note}" if self.note else ""
        if self.interval_adjusted is None:
            return head + note
        low, high = (number(end) for end in self.interval_adjusted)
        tests = f"p = {p_value(self.p)}, over all levels {p_value(self.p_adjusted)}"
        return f"{head}, simultaneous interval {low} … {high}, {tests}{note}"


@check_arguments()
def segment_effects(
    tally: Tally,
    covariate: str | None = None,
    metric: str | None = None,
    *,
    control: Any = None,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
) -> tuple[SegmentEffect, ...]:
    """Return the effect of every arm at every level of a covariate, with intervals that hold together.

    Rates (0/1 metrics) are compared by the score test and interval of Miettinen and Nurminen. Others have
    variances by class where class squares are known, else from the two marginals of squares, else by
    arm, which assumes equal variance across levels; Satterthwaite's degrees of freedom. Numbers with noise, rates
    too, have Welch's t with the noise of both classes in the error. Levels hold
    different people and arms share a control, so Šidák's level over levels × arms is exact for two arms
    and a little wide for more. A level that an arm lacks is left out. Raises `AnalysisError` for a
    pair of experiments.
    """
    check_sides(confidence, alternative)
    cells = two_way(tally, covariate, metric)
    if len(cells.tally.arms) != 1:
        raise AnalysisError("a pair of experiments has no levels", "Ask for arm × covariate.")
    arms, levels = cells.tally.factors
    base = arms.index(control) if control is not None else arms.levels.index(arms.control)
    spreads = _spreads(cells)
    row = {(int(a), int(b)): position for position, (a, b) in enumerate(cells.classes.places)}
    effects = [
        _in_level(cells, spreads, ((arm, row[arm, level]), (base, row[base, level])), level, alternative)
        for level in range(len(levels.levels))
        for arm in range(len(arms.levels))
        if arm != base and {(arm, level), (base, level)} <= row.keys()
    ]
    return _simultaneous([_tested(effect, confidence, alternative) for effect in effects], confidence, alternative)


def _spreads(cells: TwoWay) -> tuple[Variance, CellVariance]:
    """Return the finest variances that can be had: one still or lonely class takes them from itself alone."""
    variance: Variance = finest_variance(cells)
    spread = cell_spread(cells, variance)
    if spread.problem == TOO_NOISY:
        return variance, spread
    if variance == "two_marginals" and spread.problem:
        variance, spread = "by_arm", cell_spread(cells, "by_arm")
    if spread.problem:  # the squares are not yet divided: some group has none, or nobody to spare
        spread = replace(spread, variances=spread.variances / np.maximum(spread.df, 1), problem="")
    return variance, spread


def _in_level(
    cells: TwoWay,
    spreads: tuple[Variance, CellVariance],
    sides: tuple[tuple[int, int], tuple[int, int]],
    level: int,
    alternative: Alternative,
) -> SegmentEffect:
    """Return one arm's effect at one level with its error, not yet tested."""
    (arm, there), (base, here) = sides
    arms, levels = cells.tally.factors
    classes, (variance, spread) = cells.classes, spreads
    places = np.array([here, there])
    people = (int(classes.counts[here]), int(classes.counts[there]))
    low, high = (
        float((Fraction(int(classes.sums[place]), int(classes.counts[place])) + classes.centre) / classes.scale)
        for place in places
    )
    effect = SegmentEffect(
        cells.metric, levels.name, levels.levels[level], arms.levels[arm], arms.levels[base], people, (low, high),
        _exact_difference(classes, there, here) / classes.scale, variance,
        note=EQUAL_VARIANCES if variance == "by_arm" else "",
    )  # fmt: skip
    if spread.problem:
        return replace(effect, note=spread.problem)
    group = spread.group[places]
    parts = spread.variances[group] / classes.n[places]
    noise = 0.0 if spread.noise is None else float(spread.noise[places].sum())
    if spread.noise is None and cells.tally.moments_of(cells.metric).metric.binary:
        (control, events) = (
            int(classes.sums[place]) + classes.centre * n for place, n in zip(places, people, strict=True)
        )
        rates = Rates(events, people[1], control, people[0])
        return replace(effect, rates=rates, se=float(np.sqrt(parts.sum())), note=_FEW_EVENTS if rates.thin else "")
    if spread.noise is None and min(people) < THIN:
        return replace(effect, note=f"an arm has fewer than {THIN} people here: too few for an interval")
    if spread.noise is None and np.any(parts <= 0):
        return replace(effect, note="nothing varies in an arm here, so that there is no error to compare with")
    n = classes.n[places]
    df = satterthwaite_df(np.append(parts, noise), np.append(spread.df[group], KNOWN))
    common = spread.variances[group] @ (n - 1) / (n.sum() - 2) * np.sum(1 / n)
    se, wide = (float(np.sqrt(variance + noise)) / classes.scale for variance in (parts.sum(), common))
    freedom = float(n.sum() - 2) if spread.noise is None else df
    return replace(effect, se=se, df=df, p_pooled=t_tail(effect.estimate / wide, freedom, alternative))


def _tested(effect: SegmentEffect, confidence: float, alternative: Alternative) -> SegmentEffect:
    """Return the effect with its test by itself: the score test of rates, or Welch's t where it has an error."""
    interval = _interval(effect, confidence, alternative)
    if effect.rates is not None:
        rates = effect.rates
        p = max(rates.p(alternative), rates.p_exact(alternative)) if rates.thin else rates.p(alternative)
        return replace(effect, t=rates.z_difference(), p=p, interval=interval)
    if effect.se is None or effect.df is None:
        return effect
    t = effect.estimate / effect.se
    return replace(effect, t=t, p=t_tail(t, effect.df, alternative), interval=interval)


def _interval(effect: SegmentEffect, confidence: float, alternative: Alternative) -> tuple[float, float] | None:
    if effect.rates is not None:
        return effect.rates.difference_interval(1 - confidence, alternative)
    if effect.se is None or effect.df is None:
        return None
    return t_interval(effect.estimate, effect.se, effect.df, confidence, alternative)


def _simultaneous(
    effects: list[SegmentEffect], confidence: float, alternative: Alternative
) -> tuple[SegmentEffect, ...]:
    """Return the effects with p-values and intervals that hold for all that could be tested (Šidák)."""
    each = confidence ** (1 / max(1, sum(effect.p is not None for effect in effects)))
    corrected, second = (
        correct(ps, "sidak") for ps in ([effect.p for effect in effects], [effect.p_pooled for effect in effects])
    )
    wider = (_interval(effect, each, alternative) for effect in effects)
    together = [
        replace(effect, p_adjusted=p, interval_adjusted=interval, p_pooled_adjusted=p_pooled)
        for effect, p, interval, p_pooled in zip(effects, corrected, wider, second, strict=True)
    ]
    return tuple(with_watch_note(effect, confidence) for effect in together)


def with_watch_note(effect: SegmentEffect, confidence: float) -> SegmentEffect:
    """Return the effect with a note that a few people could have made it, exactly where that is so."""
    notes = [note for note in effect.note.split("; ") if note not in ("", _FEW_PEOPLE)]
    return replace(effect, note="; ".join([*notes, _FEW_PEOPLE] if effect.watch(confidence) else notes))


@dataclass(frozen=True)
class FollowUp:
    """The effect in one level, the effect in the rest, and whether the two differ."""

    metric: str
    covariate: str
    level: Level
    arm: Level
    control: Level
    effect: float
    rest: float
    difference: float
    se: float
    df: float
    t: float
    p: float
    p_adjusted: float

    def __str__(self) -> str:
        return (
            f"{self.metric}: {label(self.arm)} − {label(self.control)} is {number(self.effect)} where "
            f"{self.covariate} is {label(self.level)} and {number(self.rest)} in the rest; difference "
            f"{number(self.difference)} ± {number(self.se)}, p = {p_value(self.p)}, "
            f"adjusted {p_value(self.p_adjusted)}"
        )


@check_arguments()
def follow_ups(
    tally: Tally,
    covariate: str | None = None,
    metric: str | None = None,
    *,
    control: Any = None,
    correction: Correction = "holm",
) -> tuple[FollowUp, ...]:
    """Return, for every arm and level, the effect there minus the effect in the rest.

    The rest weighs its levels by their people in both arms together, so that an uneven mix of
    levels is not taken for a difference. Variances are those of the robust F; p-values are
    corrected over all levels and arms. Two levels make one comparison, not two. Raises `AnalysisError`
    for a pair of experiments, and where noise hides variances.
    """
    cells = two_way(tally, covariate, metric)
    if len(cells.tally.arms) != 1:
        raise AnalysisError("a pair of experiments has no levels to follow up", "Test arm × covariate.")
    _, spread = _spreads(cells)
    if spread.problem:
        raise AnalysisError(f"not testable: {spread.problem}", "Merge levels, or wait for more people.")
    spread = replace(spread, df=np.maximum(spread.df, 1.0))
    if cells.tally.moments_of(cells.metric).metric.binary and spread.noise is None:
        # a class without events has a variance, too: half an event more, and half a person without one
        n, classes = cells.classes.n, cells.classes
        rates = ((classes.means + classes.centre) * n + 0.5) / (n + 1)
        spread = replace(spread, variances=np.maximum(spread.variances, rates * (1 - rates)))
    arms = cells.tally.factors[0]
    base = arms.levels[arms.index(control)] if control is not None else arms.control
    residuals = cells.residuals(cells.classes.n)
    present = sorted(set(cells.classes.places[:, 1].tolist()))
    chosen = frozenset(present if len(present) > 2 else present[1:])
    others = [arm for arm in arms.levels if arm != base]
    comparisons = [each for arm in others for each in _against_the_rest(cells, spread, residuals, (arm, base), chosen)]
    corrected = correct([comparison.p for comparison in comparisons], correction)
    return tuple(replace(comparison, p_adjusted=p or 0.0) for comparison, p in zip(comparisons, corrected, strict=True))


def _against_the_rest(
    cells: TwoWay, spread: CellVariance, residuals: Floats, pair: tuple[Level, Level], chosen: Set[int]
) -> Iterator[FollowUp]:
    """Yield each level against the rest, but for those where a cell that this needs is empty, or nothing varies."""
    arms, levels = cells.tally.factors
    row = {(int(a), int(b)): position for position, (a, b) in enumerate(cells.classes.places)}
    arm, base = (arms.levels.index(name) for name in pair)
    shared = [level for level in range(len(levels.levels)) if {(arm, level), (base, level)} <= row.keys()]
    if len(shared) < 2:
        return
    rows, others = (np.array([row[side, level] for level in shared]) for side in (arm, base))
    n, scale = cells.classes.n, cells.classes.scale
    everybody = n[rows] + n[others]
    effects = np.array([_exact_difference(cells.classes, *two) for two in zip(rows, others, strict=True)])
    for place in (place for place, level in enumerate(shared) if level in chosen):
        people = np.delete(everybody, place)
        shares = np.insert(-people / people.sum(), place, 1.0)
        weights = np.zeros(len(n))
        weights[rows], weights[others] = shares, -shares
        difference = float(weights @ residuals) / scale  # main effects cancel: nothing large is subtracted
        own = weights**2 * spread.variances[spread.group] / n
        parts: Floats = np.bincount(spread.group, weights=own, minlength=len(spread.df)).astype(np.float64)
        freedom = spread.df
        if spread.noise is not None:
            parts, freedom = np.append(parts, weights**2 @ spread.noise), np.append(freedom, KNOWN)
        if not np.all(own[[rows[place], others[place]]] > 0):
            continue
        df = satterthwaite_df(parts, freedom)
        se = float(np.sqrt(parts.sum())) / scale
        t = difference / se
        p = t_tail(t, df)
        yield FollowUp(
            cells.metric, levels.name, levels.levels[shared[place]], *pair,
            float(effects[place]) / scale, float(people @ np.delete(effects, place) / people.sum()) / scale,
            difference, se, df, t, p, p,
        )  # fmt: skip


def _exact_difference(classes: Classes, first: int, second: int) -> float:
    """Return one cell's mean minus another's, in steps, rounded once."""
    (s, t), (n, m) = (classes.sums[[first, second]].tolist(), classes.counts[[first, second]].tolist())
    return float(Fraction(s, n) - Fraction(t, m))


# ── does the effect differ? ────────────────────────────────────────────────────────────────────


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
    """Return F and its second degrees of freedom, as `robust_f` does: Welch's correction, generalised."""
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
