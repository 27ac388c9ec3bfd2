"""Fit a formula to what is there: a tally, or the table of a release that crosses what the formula names."""

from __future__ import annotations

from typing import Literal, overload

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError, PrivacyError, listed
from kanab.privacy.release import Release
from kanab.stats.counts.glm import CountErrors, CountFamily, CountFit, Family
from kanab.stats.formula import parse
from kanab.stats.ols import Errors, Fit
from kanab.stats.ols import fit as fit_tally
from kanab.tally.tally import Tally


@overload
def fit(
    source: Tally | Release, formula: str, metric: str | None = ..., *, experiment: str | None = ...,
    confidence: float = ..., family: Literal["gaussian"] = ..., errors: Literal["model"] | Errors = ...,
) -> Fit: ...  # fmt: skip
@overload
def fit(
    source: Tally | Release, formula: str, metric: str | None = ..., *, experiment: str | None = ...,
    confidence: float = ..., family: CountFamily, errors: CountErrors = ...,
) -> CountFit: ...  # fmt: skip
@check_arguments(skip=("source",))
def fit(
    source: Tally | Release,
    formula: str,
    metric: str | None = None,
    *,
    experiment: str | None = None,
    confidence: float = 0.95,
    family: Family = "gaussian",
    errors: Literal["model"] | Errors | CountErrors = "model",
) -> Fit | CountFit:
    """Fit a formula to a tally, or to the table of a release that crosses the covariates it names.

    ``family`` is "gaussian" (least squares), "binomial" (logistic regression of a 0/1 metric) or "poisson" (of
    counts); ``errors`` as for ``kanab.stats.fit``, which does the work and raises what it says. Raises `PrivacyError`
    for what was counted but not released, `AnalysisError` where the release has no such table.

    >>> from kanab.counting.dispatch import count
    >>> from kanab.datasets import shop_rows
    >>> from kanab.privacy.gate import release
    >>> shop = release(count(shop_rows(), arm="variant", metrics=["bought"], segments=["device"]))
    >>> fit(shop, "arm + device", family="binomial").ratios.round(3)
    array([0.111, 1.104, 1.15 , 1.106])
    """
    if not isinstance(source, Tally | Release):
        raise PrivacyError("only a Tally or a Release can be fitted", "Call release() on what count() returned.")
    tally = source if isinstance(source, Tally) else _table(source, formula, metric, experiment)
    return fit_tally(tally, formula, metric, confidence=confidence, family=family, errors=errors)  # type: ignore[arg-type]


def _table(released: Release, formula: str, metric: str | None, experiment: str | None) -> Tally:
    """Return the smallest table of an experiment that has what a formula names."""
    plan = released.plan.experiment(experiment)
    tables = released.tables_of(plan.name)
    named = {variable.name for term in parse(formula) for variable in term} - {"arm", plan.name}
    fitting = [
        table
        for table in tables.values()
        if named <= {*table.axes} and table.moments and metric in (None, *table.metric_names)
    ]
    if not fitting:
        raise AnalysisError(
            f"the release holds no table of {plan.name} that crosses what the formula names",
            f"Its tables: {listed(tables) or 'none'}. A covariate has one if it is in adjust or segments.",
        )
    return min(fitting, key=lambda table: table.people.size)
