"""The effect after regression adjustment: one regression per arm (Lin), Ding's variance (paper §10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from kanab.errors import AnalysisError, DesignError
from kanab.factor import label
from kanab.stats.distributions import Alternative
from kanab.stats.effect import ArmMeans, Effect, against_control, arm_parts
from kanab.stats.formula import design, parse
from kanab.stats.gram import Classes, Floats, classes_of, solve
from kanab.tally import Tally

Variance = Literal["ding", "exact"]


def adjusted_means(
    tally: Tally,
    metric: str | None = None,
    covariates: str | Sequence[str] | None = None,
    *,
    variance: Variance = "ding",
) -> ArmMeans:
    """Arm means at the covariates' mean over all arms, each arm with slopes of its own.

    ``covariates`` is a formula ("tier + C(device)") or a list of names; by default all of the
    tally's, added. A categorical covariate makes this post-stratification.

        Cov(α) = diag(rss_a / (n_a (n_a − p_a))) + B Sxx B' / (N (N − 1))

    ``variance="exact"`` adds what Ding's formula leaves out: the arm's own distance from the
    common covariate mean.
    """
    if variance not in ("ding", "exact"):
        raise AnalysisError("unknown variance", "Use 'ding' (the paper's) or 'exact'.")
    factor = tally.factor("arm")
    classes = classes_of(tally, metric)
    names, matrix, mean, sxx = _centred(tally, covariates, classes)
    offsets, sample, df, slopes = [], [], [], []
    parts = arm_parts(tally, metric, classes, parameters=1 + len(names))
    for position, (arm, within, n, part) in enumerate(parts):
        rows = classes.places[:, tally.axes.index(factor.name)] == position
        own = np.column_stack([np.ones(len(part.counts)), matrix[rows]])
        try:
            solution = solve(own, part.n, part, ("Intercept", *names))
        except DesignError as problem:
            raise DesignError(f"in arm {label(arm)!r} {problem.fact}", problem.remedy) from None
        freedom = n - own.shape[1]
        rss = within + float(part.n @ solution.residuals**2)
        at_mean = np.array([1.0, *mean])
        share = 1 / n if variance == "ding" else float(at_mean @ solution.inverse @ at_mean)
        offsets.append(float(at_mean @ solution.b))
        sample.append(rss / freedom * share)
        df.append(float(freedom))
        slopes.append(solution.b[1:])
    scale, total = classes.scale, classes.total
    beta = np.array(slopes) / scale
    return ArmMeans(
        tally.moments_of(metric).metric.name, "adjusted", names, factor.levels, factor.control,
        classes.centre / scale, np.array(offsets) / scale, np.array(sample) / scale**2,
        beta @ sxx @ beta.T / (total * (total - 1)), np.array(df), beta,
        tuple(n for _, _, n, _ in parts),
    )  # fmt: skip


def _centred(
    tally: Tally, covariates: str | Sequence[str] | None, classes: Classes
) -> tuple[tuple[str, ...], Floats, Floats, Floats]:
    """Covariate columns about a whole number near their mean, the mean there, and Sxx.

    Whole-number scores stay whole numbers, so that the fits stay exact.
    """
    if covariates is None:
        covariates = [factor.name for factor in tally.covariates]
    formula = covariates if isinstance(covariates, str) else " + ".join(map(_quoted, covariates))
    terms = parse(formula) if formula else ()
    experiment = tally.factor("arm").name
    if any(variable.name in (experiment, "arm") for term in terms for variable in term):
        raise AnalysisError("an effect cannot be adjusted for the arm itself", "Name covariates only.")
    model = design(tally, terms, classes)
    names, matrix = model.names[1:], model.matrix[:, 1:]
    if not names:
        raise AnalysisError("there is no covariate to adjust for", "Count with a covariate of two or more levels.")
    n = classes.n
    matrix = matrix - np.rint(n @ matrix / n.sum())
    mean = n @ matrix / n.sum()
    about = matrix - mean
    return names, matrix, mean, about.T @ (about * n[:, None])


def _quoted(name: str) -> str:
    return name if name.isidentifier() or name.startswith("C(") else f"`{name}`"


def adjusted_effect(
    tally: Tally,
    metric: str | None = None,
    covariates: str | Sequence[str] | None = None,
    *,
    arm: Any = None,
    control: Any = None,
    variance: Variance = "ding",
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
) -> Effect:
    """The regression-adjusted effect of one arm against the control.

    >>> from kanab.datasets import eighteen
    >>> effect = adjusted_effect(eighteen(altered=True))
    >>> round(effect.estimate, 12), round(effect.se**2, 12), round(effect.se_population**2, 12)
    (-0.187081763491, 0.081130195989, 0.099110826578)
    """
    means = adjusted_means(tally, metric, covariates, variance=variance)
    return against_control(means, arm, control, confidence=confidence, alternative=alternative)
