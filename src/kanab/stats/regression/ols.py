"""Ordinary least squares from classes: the same coefficients and errors as from the rows.

Robust errors (HC0 to HC3) need squares per class: people of a class share their leverage, and their squared residuals
add up to n r² plus the squares within. A 0/1 metric has them always.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError, DesignError
from kanab.stats.distributions import check_sides, f_tail, t_interval, t_tail
from kanab.stats.gram import Classes, Floats, arm_squares, classes_of, refit, solve
from kanab.stats.noise_variance import refuse_noise
from kanab.stats.regression.formula import Design, design, parse
from kanab.tabular import Table, number, p_value
from kanab.tally.tally import Tally

Errors = Literal["HC0", "HC1", "HC2", "HC3"]


@dataclass(frozen=True, eq=False)
class Anova:
    """Regression, residual and total sums of squares about the mean, and the overall F."""

    df: tuple[int, int, int]
    ss: tuple[float, float, float]
    F: float | None
    p: float | None

    def __str__(self) -> str:
        rows = []
        for row, name in enumerate(("Regression", "Residual", "Total")):
            mean = self.ss[row] / self.df[row] if row < 2 and self.df[row] else None
            test = (number(self.F), p_value(self.p)) if row == 0 else ("", "")
            rows.append((name, str(self.df[row]), number(self.ss[row]), number(mean) if mean else "", *test))
        return str(Table(("", "df", "SS", "MS", "F", "p"), tuple(rows)))


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model: coefficients ``b`` with their errors, in units of the metric (paper §6–7).

    ``tss`` is Σ y² as in the paper; ``rss`` the residual sum of squares; ``df`` = n − p. With robust ``errors`` se, t,
    p and intervals hold for any variances; the ANOVA is the ordinary one.
    """

    formula: str
    metric: str
    names: tuple[str, ...]
    b: Floats
    se: Floats
    t: Floats
    p: Floats
    intervals: Floats
    confidence: float
    n: int
    df: int
    tss: float
    rss: float
    xtx: Floats
    xty: Floats
    covariance: Floats
    anova: Anova
    errors: Literal["model"] | Errors = "model"

    @property
    def r2(self) -> float | None:
        """Share of the variance about the mean that the model explains."""
        total = self.anova.ss[2]
        return self.anova.ss[0] / total if total else None

    def __str__(self) -> str:
        rows = tuple(
            (name, number(b), number(se), number(t), p_value(p), f"{number(low)} … {number(high)}")
            for name, b, se, t, p, (low, high) in zip(
                self.names, self.b, self.se, self.t, self.p, self.intervals, strict=True
            )
        )
        header = ("term", "b", "se", "t", "p", f"{self.confidence:.0%} interval")
        errors = "" if self.errors == "model" else f", {self.errors} errors"
        return str(Table(header, rows, f"{self.metric} ~ {self.formula}   (n = {self.n:,}, df = {self.df:,}{errors})"))


@check_arguments()
def fit(
    tally: Tally,
    formula: str,
    metric: str | None = None,
    *,
    confidence: float = 0.95,
    errors: Literal["model"] | Errors = "model",
) -> Fit:
    """Fit a formula on the classes by ordinary least squares.

    ``errors`` are the model's, or heteroscedasticity-consistent ones: for these, covariates that the formula does not
    name are collapsed first, so that coarser squares may do (those of ``arm`` alone are always there). Raises
    `FormulaError` for what is not a formula of this tally, `AnalysisError` where squares are missing, `DesignError`
    where people or classes are too few, or a class of one person fits itself (HC2, HC3).

    >>> from kanab.datasets import eighteen
    >>> print(fit(eighteen(), "arm + C(tier)"))
    minutes ~ arm + C(tier)   (n = 18, df = 14)
    term                b      se        t       p  95% interval
    ────────────  ───────  ──────  ───────  ──────  ────────────────
    Intercept      0.6583  0.3387    1.944  0.0723  -0.06813 … 1.385
    treatment[B]  -0.1188  0.3387  -0.3509   0.731  -0.8453 … 0.6076
    tier[2]        0.7211  0.4148    1.738   0.104  -0.1686 … 1.611
    tier[3]         1.116  0.4148    2.690  0.0176  0.2262 … 2.006
    """
    if errors not in ("model", *get_args(Errors)):
        raise AnalysisError("unknown kind of errors", f"Use one of: model, {', '.join(get_args(Errors))}.")
    refuse_noise(tally, "a fit of a formula")
    check_sides(confidence, "two-sided")
    terms = parse(formula)
    if errors != "model":
        named = {variable.name for term in terms for variable in term}
        tally = tally.keep(*(factor.name for factor in tally.covariates if factor.name in named))
    classes = classes_of(tally, metric)
    model = design(tally, terms, classes)
    squares = int(arm_squares(tally, metric).sum())
    n, df, scale = classes.total, classes.total - len(model.names), classes.scale
    if df < 1:
        raise DesignError(
            f"there are too few people for the {len(model.names)} coefficients of this formula",
            "Use a simpler formula, or wait for more people.",
        )
    within = classes.within(squares)
    solution = solve(model.matrix, classes.n, classes, model.names, within)
    rss = within + float(classes.n @ solution.residuals**2)
    covariance = solution.inverse * (rss / df / scale**2)
    if errors != "model":
        covariance = _robust(classes, model, classes.within_each(arm_squares(tally, metric, tally.axes)), errors)
    b = np.array([float((value + (classes.centre if not j else 0)) / scale) for j, value in enumerate(solution.exact)])
    se = np.sqrt(np.maximum(0.0, np.diag(covariance)))
    t, p, intervals = _coefficient_tests(b, se, df, confidence)
    return Fit(
        formula, tally.moments_of(metric).metric.name, model.names, b, se, t, p, intervals,
        confidence, n, df, squares / scale**2, rss / scale**2,
        model.matrix.T @ (model.matrix * classes.n[:, None]),
        model.matrix.T @ np.asarray((classes.sums + classes.counts * classes.centre) / scale, dtype=np.float64),
        covariance, _anova(classes, model, rss, df), errors,
    )  # fmt: skip


def _coefficient_tests(b: Floats, se: Floats, df: float, confidence: float) -> tuple[Floats, Floats, Floats]:
    """Return t, p and interval of every coefficient; t and p are not numbers where nothing varies."""
    t = np.divide(b, se, out=np.full_like(b, np.nan), where=se > 0)
    p = np.array([np.nan if np.isnan(value) else t_tail(value, df) for value in t])
    return t, p, np.array([t_interval(x, error, df, confidence) for x, error in zip(b, se, strict=True)])


def _anova(classes: Classes, model: Design, rss: float, df: int) -> Anova:
    flat = solve(np.ones((len(classes.counts), 1)), classes.n, classes, ("Intercept",), rss)
    explained = float(classes.n @ refit(model.matrix, classes.n, flat.residuals) ** 2)
    parameters = len(model.names) - 1
    unit = classes.scale**2
    f = explained / parameters / (rss / df) if parameters and rss else None
    return Anova(
        (parameters, df, parameters + df),
        (explained / unit, rss / unit, (explained + rss) / unit),
        f,
        None if f is None else f_tail(f, parameters, df),
    )


def _robust(classes: Classes, model: Design, within: Floats, errors: Errors) -> Floats:
    """Return the covariance of coefficients that holds for any variances, given the squares within each class."""
    solution = solve(model.matrix, classes.n, classes, model.names, float(within.sum()))
    squares = within + classes.n * solution.residuals**2
    leverage = np.einsum("ij,jk,ik->i", model.matrix, solution.inverse, model.matrix)
    grown = classes.total / (classes.total - len(model.names))
    middle = model.matrix.T @ (model.matrix * (squares * _weights(errors, leverage, grown))[:, None])
    return np.asarray(solution.inverse @ middle @ solution.inverse / classes.scale**2)


def _weights(errors: Errors, leverage: Floats, grown: float) -> Floats:
    """Return what squared residuals are multiplied by; a person that fits itself has none left."""
    if errors == "HC0":
        return np.ones(len(leverage))
    if errors == "HC1":
        return np.full(len(leverage), grown)
    if np.any(leverage > 1 - 1e-9):
        raise DesignError(
            f"a class of one person fits itself, so {errors} does not exist", "Merge levels, or use HC0 or HC1."
        )
    return np.asarray((1 - leverage) ** (-1.0 if errors == "HC2" else -2.0))
