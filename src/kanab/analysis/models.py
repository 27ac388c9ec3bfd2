"""Fit a formula to what is there: a tally, or the table of a release that crosses what the formula names."""

from __future__ import annotations

from typing import Literal

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError, PrivacyError, listed
from kanab.privacy.release import Release
from kanab.stats.regression import Errors, Fit, parse
from kanab.stats.regression import fit as fit_tally
from kanab.tally.tally import Tally


@check_arguments(skip=("source",))
def fit(
    source: Tally | Release,
    formula: str,
    metric: str | None = None,
    *,
    experiment: str | None = None,
    confidence: float = 0.95,
    errors: Literal["model"] | Errors = "model",
) -> Fit:
    """Fit a formula to a tally, or to the table of a release that crosses the covariates it names.

    It is fitted by least squares, with ``errors`` as for ``kanab.stats.fit``, which does the work and raises what it
    says. Raises `PrivacyError` for what was counted but not released, `AnalysisError` where the release has no such
    table.

    >>> from kanab.counting.dispatch import count
    >>> from kanab.datasets import shop_rows
    >>> from kanab.privacy.gate import release
    >>> shop = release(count(shop_rows(), arm="variant", metrics=["bought"], segments=["device"]))
    >>> fit(shop, "arm + device").b.round(4)
    array([0.0996, 0.0099, 0.0139, 0.0098])
    """
    if not isinstance(source, Tally | Release):
        raise PrivacyError("only a Tally or a Release can be fitted", "Call release() on what count() returned.")
    tally = source if isinstance(source, Tally) else _table(source, formula, metric, experiment)
    return fit_tally(tally, formula, metric, confidence=confidence, errors=errors)


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
