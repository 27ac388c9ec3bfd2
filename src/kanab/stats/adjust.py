"""The effect after regression adjustment: one regression per arm (Lin), exact variance or Ding's (paper §10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, get_args

import numpy as np

from kanab.arguments import check_arguments
from kanab.choices import Alternative, Variance
from kanab.errors import AnalysisError, DesignError
from kanab.stats.effect import ArmMeans, Effect, against_control, arm_parts
from kanab.stats.gram import Classes, Floats, arm_squares, classes_of, solve
from kanab.stats.noise_variance import (
    Measured,
    floats,
    freedom_with_noise,
    measured,
    twice_middle,
    variances_above_noise,
)
from kanab.stats.regression import Term, Variable, design, parse
from kanab.tally.factor import label
from kanab.tally.tally import Tally


def check_variance(variance: str) -> None:
    """Check that the variance of adjusted means is a known one; raises `AnalysisError`."""
    if variance not in get_args(Variance):
        raise AnalysisError("unknown variance", "Use 'exact', or 'paper' (Ding's).")


@check_arguments(skip=("covariates",))
def adjusted_means(
    tally: Tally,
    metric: str | None = None,
    covariates: str | Sequence[str] | None = None,
    *,
    variance: Variance = "exact",
    totals: Tally | None = None,
) -> ArmMeans:
    """Return arm means at the covariates' mean over all arms, each arm with slopes of its own.

    ``covariates`` is a formula ("tier + C(device)") or a list of names; by default all of the
    tally's, added. A categorical covariate makes this post-stratification.

        Cov(α) = diag(rss_a / (n_a − p_a) · x̄' (X_a' X_a)⁻¹ x̄) + B Sxx B' / (N (N − 1))

    with x̄ = (1, the common covariate mean). ``variance="paper"`` takes 1 / n_a in place of the quadratic form, as
    Ding does: it leaves out the arm's own distance from the common mean, and is a little too small. ``totals`` are
    the arms of a release with noise, combined from all its tables: classes then only say by how much means move from
    there, which takes far less noise with it. Raises `AnalysisError` for what cannot be adjusted for, `DesignError`
    where an arm has too few people or classes for its coefficients, or a class too few for its noise.
    """
    check_variance(variance)
    axis = tally.axes.index(tally.experiment.name)
    classes = classes_of(tally, metric)
    terms = _terms(tally, covariates)
    used = tuple(dict.fromkeys(variable.name for term in terms for variable in term))
    names, matrix, mean, spread = _centred(tally, terms, classes)
    parts = arm_parts(tally, metric, classes, parameters=1 + len(names))
    at_mean = np.array([1.0, *map(float, mean)])
    exact, sample, df, slopes, fits, shares = [], [], [], [], [], []
    for position, (arm, within, n, part) in enumerate(parts):
        columns = np.column_stack([np.ones(len(part.counts)), matrix[classes.places[:, axis] == position]])
        try:
            solution = solve(columns, part.n, part, ("Intercept", *names), within)
        except DesignError as problem:
            raise DesignError(f"in arm {label(arm)!r} {problem.fact}", problem.remedy) from None
        freedom = n - columns.shape[1]
        rss = within + float(part.n @ solution.residuals**2)
        share = 1 / n if variance == "paper" else float(at_mean @ solution.inverse @ at_mean)
        centre, *beta = solution.exact
        alpha = centre + sum((b * x for b, x in zip(beta, mean, strict=True)), Fraction(0))
        exact.append((alpha + classes.centre) / classes.scale)
        slopes.append(tuple(b / classes.scale for b in beta))
        sample.append(rss / freedom * share / classes.scale**2)
        df.append(float(freedom))
        fits.append((np.array([float(centre), *map(float, beta)]), solution.inverse))
        shares.append(share / classes.scale**2)
    means = ArmMeans(
        tally.moments_of(metric).metric.name, "adjusted", used, tally.experiment.levels, tally.experiment.control,
        tuple(n for _, _, n, _ in parts), tuple(exact), np.array(sample), np.array(df), tuple(slopes), spread,
    )  # fmt: skip
    if tally.noise is None:
        return means
    columns = np.column_stack([np.ones(len(matrix)), matrix])
    return _with_noise(tally, means, classes, _Fits(columns, at_mean, fits, np.array(shares)), totals)


@dataclass(frozen=True, eq=False)
class _Fits:
    """The regressions of all arms: columns of every class, x̄, and per arm its coefficients, (X'X)⁻¹ and share of σ²."""

    columns: Floats
    at_mean: Floats
    arms: list[tuple[Floats, Floats]]
    shares: Floats


def _with_noise(tally: Tally, means: ArmMeans, classes: Classes, fits: _Fits, totals: Tally | None) -> ArmMeans:
    """Return adjusted means with the covariance of their noise, and variances without what noise does to them.

    To first order dα = x̄'(X'X)⁻¹ Σ x (dT − f dn) + dx̄'β, with f the fit of a class about the middle of the bounds
    and dx̄ = Σ (x − x̄) dn / N over the classes of all arms, which arms share. With totals the arm's plain mean in this
    table is taken off and that of the totals is added: of these a share ω is this table's own.
    """
    known = measured(tally, means.metric, arm_squares(tally, means.metric))
    axis = tally.axes.index(tally.experiment.name)
    arm = classes.places[:, axis]
    places = (arm, *np.delete(classes.places, axis, axis=1).T)
    own = arm == np.arange(len(means.arms))[:, None]
    fitted, reach, leverage = (np.zeros(len(arm)) for _ in range(3))
    middle = np.broadcast_to(floats(twice_middle(tally, means.metric)) / 2, tally.shape)[tuple(classes.places.T)]
    through = np.zeros(own.shape)
    for place, (beta, inverse) in enumerate(fits.arms):
        inside = own[place]
        x = fits.columns[inside]
        fitted[inside] = x @ beta + classes.centre - middle[inside]
        reach[inside] = x @ inverse @ fits.at_mean
        leverage[inside] = np.einsum("ij,jk,ik->i", x, inverse, x)
        through[place] = (fits.columns - fits.at_mean) @ beta / classes.total
    of_sums, of_people = own * reach, through - own * reach * fitted
    n_noise, t_noise = known.n_noise[places], known.t_noise[places]
    exact, beside = means.exact, np.zeros(len(means.arms))
    if totals is not None:
        moved = moved_to_totals(tally, totals, means.metric, known)
        exact = tuple(mean + shift for mean, shift in zip(exact, moved.shifts, strict=True))
        of_sums, of_people = of_sums - own * moved.of_sums[:, None], of_people - own * moved.of_people[:, None]
        beside = moved.beside
    noise = (of_sums * t_noise) @ of_sums.T + (of_people * n_noise) @ of_people.T + np.diag(beside)
    shaped = np.zeros(known.n.shape)
    shaped[places] = fitted
    left, left_noise = known.left(shaped)
    rss = left + own @ (leverage * (t_noise + fitted**2 * n_noise))
    df = freedom_with_noise(rss, means.df, left_noise)
    sample = variances_above_noise(rss, df) / means.df * fits.shares
    return replace(means, exact=exact, sample=sample, df=df, noise=noise / classes.scale**2)


@dataclass(frozen=True, eq=False)
class Moved:
    """By how much arm means move to those of the totals, how that takes noise of the table off, and what it adds."""

    shifts: list[Fraction]
    of_sums: Floats
    of_people: Floats
    beside: Floats


def moved_to_totals(tally: Tally, totals: Tally, metric: str, known: Measured) -> Moved:
    """Return the way from the arm means of a table to those of the totals, in steps; a mean has (dT − m dn) / n."""
    here, there = tally.keep(), totals.keep()
    assert there.noise is not None
    old, new = here.moments_of(metric), there.moments_of(metric)
    shifts = [
        (Fraction(int(s), int(n)) - Fraction(int(t), int(m))) / old.metric.scale
        for t, m, s, n in zip(old.sums, old.counts, new.sums, new.counts, strict=True)
    ]
    by_arm = tuple(range(1, known.n.ndim))
    n, t, n_noise, t_noise = (
        cells.sum(axis=by_arm) for cells in (known.n, known.t, known.n_noise, known.t_noise)
    )  # fmt: skip
    better_t, better_n = floats(there.noise.metrics[metric].sums), floats(there.noise.counts_of(metric))
    other_sums, other_people = (
        np.maximum(0.0, 1 - noise[0] / noise[1]) for noise in ((better_t, t_noise), (better_n, n_noise))
    )
    off = t / n
    beside = (better_t * other_sums + off**2 * better_n * other_people) / n**2
    return Moved(shifts, other_sums / n, -off * other_people / n, beside)


def _centred(
    tally: Tally, terms: Sequence[Term], classes: Classes
) -> tuple[tuple[str, ...], Floats, list[Fraction], Floats]:
    """Return covariate columns about a whole number near their mean, the exact mean there, and Sxx / (N (N − 1))."""
    model = design(tally, terms, classes)
    names, matrix = model.names[1:], model.matrix[:, 1:]
    if not names:
        raise AnalysisError("there is no covariate to adjust for", "Count with a covariate of two or more levels.")
    n, total = classes.n, classes.total
    matrix = matrix - np.rint(n @ matrix / n.sum())
    counts = classes.counts.tolist()
    mean = [
        sum((Fraction(x) * count for x, count in zip(column, counts, strict=True) if x), Fraction(0)) / total
        for column in matrix.T.tolist()
    ]
    about = matrix - np.array([float(x) for x in mean])
    return names, matrix, mean, about.T @ (about * n[:, None]) / (total * (total - 1))


def _terms(tally: Tally, covariates: str | Sequence[str] | None) -> tuple[Term, ...]:
    if covariates is None:
        return tuple((Variable(factor.name),) for factor in tally.covariates)
    if isinstance(covariates, str):
        terms = parse(covariates) if covariates.strip() else ()
    elif isinstance(covariates, Iterable) and all(isinstance(name, str) for name in covariates):
        terms = ()
        for name in covariates:  # a covariate's name may hold any characters; what is none is a formula such as C(tier)
            terms += ((Variable(name),),) if name in tally.axes else parse(name)
    else:
        raise AnalysisError("covariates must be a formula or a list of names", "For example ['tier'].")
    arm_names = {tally.experiment.name} | ({"arm"} - set(tally.axes))
    if any(variable.name in arm_names for term in terms for variable in term):
        raise AnalysisError("an effect cannot be adjusted for the arm itself", "Name covariates only.")
    return terms


@check_arguments(skip=("covariates",))
def adjusted_effect(
    tally: Tally,
    metric: str | None = None,
    covariates: str | Sequence[str] | None = None,
    *,
    arm: Any = None,
    control: Any = None,
    variance: Variance = "exact",
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
) -> Effect:
    """Return the regression-adjusted effect of one arm against the control; raises what `adjusted_means` raises."""
    means = adjusted_means(tally, metric, covariates, variance=variance)
    return against_control(means, arm, control, confidence=confidence, alternative=alternative)
