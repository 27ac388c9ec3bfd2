"""Robust (heteroscedasticity-consistent) errors, HC0 to HC3 of any formula, from squares per class.

The paper says that they need rows. They need squares per class: people of a class share their
leverage, and their squared residuals add up to n r² plus the squares within. A 0/1 metric has them
always; others only if the plan asked for squares per class, at a cost to privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError, DesignError
from kanab.stats.formula import design, parse
from kanab.stats.gram import Floats, arm_squares, classes_of, solve
from kanab.stats.ols import Fit, coefficient_tests, fit
from kanab.tally.tally import Tally

Errors = Literal["HC0", "HC1", "HC2", "HC3"]


@dataclass(frozen=True, eq=False)
class RobustFit(Fit):
    """A fit whose errors, t, p and intervals hold for any variances; its ANOVA is the ordinary one."""

    errors: Errors

    def __str__(self) -> str:
        head, *rest = super().__str__().split("\n")
        return "\n".join([f"{head[:-1]}, {self.errors} errors)", *rest])


@check_arguments()
def robust_fit(
    tally: Tally, formula: str, metric: str | None = None, *, errors: Errors = "HC3", confidence: float = 0.95
) -> RobustFit:
    """Fit a formula by OLS, with heteroscedasticity-consistent errors.

    Covariates that the formula does not name are collapsed first, so that coarser squares may do:
    the errors of ``arm`` alone need squares per arm, which are always there. Raises `AnalysisError`
    where squares are missing, `DesignError` where a class of one person fits itself (HC2, HC3).

    >>> from kanab.datasets import eighteen
    >>> print(robust_fit(eighteen(), "arm", errors="HC2"))
    minutes ~ arm   (n = 18, df = 16, HC2 errors)
    term                b      se        t         p  95% interval
    ────────────  ───────  ──────  ───────  ────────  ────────────────
    Intercept       1.271  0.2166    5.867  2.39e-05  0.8115 … 1.730
    treatment[B]  -0.1188  0.3921  -0.3031     0.766  -0.9501 … 0.7124
    """
    if errors not in get_args(Errors):
        raise AnalysisError("unknown kind of errors", f"Use one of: {', '.join(get_args(Errors))}.")
    terms = parse(formula)
    named = {variable.name for term in terms for variable in term}
    table = tally.keep(*(factor.name for factor in tally.covariates if factor.name in named))
    plain = fit(table, formula, metric, confidence=confidence)
    classes = classes_of(table, metric)
    model = design(table, terms, classes)
    within = classes.within_each(arm_squares(table, metric, table.axes))
    solution = solve(model.matrix, classes.n, classes, model.names, float(within.sum()))
    squares = within + classes.n * solution.residuals**2
    leverage = np.einsum("ij,jk,ik->i", model.matrix, solution.inverse, model.matrix)
    middle = model.matrix.T @ (model.matrix * (squares * _weights(errors, leverage, plain))[:, None])
    covariance = solution.inverse @ middle @ solution.inverse / classes.scale**2
    se = np.sqrt(np.maximum(0.0, np.diag(covariance)))
    t, p, intervals = coefficient_tests(plain.b, se, plain.df, confidence)
    changed = {"se": se, "t": t, "p": p, "intervals": intervals, "covariance": covariance}
    return RobustFit(**({field.name: getattr(plain, field.name) for field in fields(Fit)} | changed), errors=errors)


def _weights(errors: Errors, leverage: Floats, plain: Fit) -> Floats:
    """Return what squared residuals are multiplied by; a person that fits itself has none left."""
    if errors == "HC0":
        return np.ones(len(leverage))
    if errors == "HC1":
        return np.full(len(leverage), plain.n / plain.df)
    if np.any(leverage > 1 - 1e-9):
        raise DesignError(
            f"a class of one person fits itself, so {errors} does not exist", "Merge levels, or use HC0 or HC1."
        )
    return np.asarray((1 - leverage) ** (-1.0 if errors == "HC2" else -2.0))
