"""What every table of a release holds and why it is needed, as plain data."""

from collections.abc import Mapping
from typing import Any

from kanab.errors import listed
from kanab.inspection.auditor import Audited, audit_release
from kanab.plan.model import CovariatePlan, MetricPlan, Plan
from kanab.plan.paired_covariates import planned_pairs
from kanab.privacy.audit import NARROW
from kanab.privacy.exposure import LEAST_CONTRIBUTORS
from kanab.privacy.merging import LevelMap
from kanab.privacy.release import Release
from kanab.tally.factor import OTHER, Factor
from kanab.tally.metric import Metric
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

Plain = dict[str, Any]


def fields_of(release: Release, audited: Mapping[str, Audited] | None = None) -> list[Plain]:
    """Return every table with its arms, covariate, metrics and question; ``audited`` is its audit, if done."""
    audits = audit_release(release) if audited is None else audited
    return [_table(name, table, release, audits) for name, table in release.tables.items()]


def _table(name: str, table: Tally, release: Release, audits: Mapping[str, Audited]) -> Plain:
    plan = release.plan
    plans = plan.metrics_by_name
    declared = {experiment.name for experiment in plan.experiments if experiment.arms is not None}
    return {
        "table": name,
        "why": purposes(name, plan),
        "arms": [
            {"name": factor.name, "levels": list(factor.labels), "declared": factor.name in declared}
            for factor in table.arms
        ],
        "covariate": (
            _covariate(table.covariates[0], plan, release.receipt.maps.get(name))
            if len(table.covariates) == 1
            else None
        ),
        "metrics": [_metric(part, table, plans.get(part.metric.name), plan.k) for part in table.moments],
        "products": [{"metrics": list(cross.pair), "by": list(cross.by)} for cross in table.crosses],
    } | (_audited(table, audits[name]) if table.noise is None else _noisy(table))


def _audited(table: Tally, audited: Audited) -> Plain:
    sizes = [int(n) for n in table.people.ravel() if n]
    worst = (audited.classes + audited.arms).worst
    # what the numbers let infer most closely, and how close they may come before they are withheld
    narrowest = None if worst is None else {"metric": worst.metric, "share": worst.ratio, "least": 1 / NARROW}
    return {
        "classes": len(sizes),
        "smallest_class": min(sizes),
        "degrees_of_freedom": table.total - len(sizes),
        "homogeneous": audited.classes.homogeneous,
        "narrowest": narrowest,
    }


def _noisy(table: Tally) -> Plain:
    """Return the same of a table with noise, of which nothing but its size is known."""
    return {
        "classes": table.people.size,
        "smallest_class": None,
        "degrees_of_freedom": None,
        "homogeneous": 0,
        "narrowest": None,
    }


def purposes(name: str, plan: Plan) -> list[str]:
    """Return the questions that a table answers."""
    link = next((link for link in plan.linkages if link.name == name), None)
    pair = planned_pairs(plan).get(name)
    if pair is not None:
        return [f"adjustment: for {pair.first} and {pair.second} together; people only, no metric"]
    if link is None and plan.budget is not None:
        return [f"effect: how do the arms of {name} differ?"]
    if link is None:
        return ["effect: arm totals of what the tables by class do not carry"]
    if len(link.experiments) > 1:
        return [f"interaction: do {' and '.join(link.experiments)} interfere with each other?"]
    experiment, covariate = plan.experiment(link.experiments[0]), link.covariate
    if link.people_only:
        return [f"quantiles: do those of {covariate} differ? People by its bins; no metric"]
    questions = []
    if experiment.numbers:
        names = listed(experiment.numbers)
        each = "as it is, by its" if len(experiment.numbers) == 1 else "as they are, by their"
        questions.append(f"adjustment: for {names} {each} products with every metric")
    if covariate is None:
        return [f"effect: how do the arms of {experiment.name} differ?", *questions]
    if covariate in experiment.adjust:
        questions.append(f"adjustment: a more precise effect, comparing people who are alike in {covariate}")
    if covariate in experiment.segments:
        questions.append(f"segments: does the effect differ by {covariate}?")
    return questions


def _covariate(factor: Factor, plan: Plan, levels: LevelMap | None) -> Plain:
    covariate = plan.covariate(factor.name)
    return {
        "name": factor.name,
        "kind": factor.kind,
        "levels": list(factor.labels),
        "declared": covariate.levels is not None or isinstance(covariate.bins, tuple),
        "origin": origin(covariate),
        "merged": {} if levels is None else levels.merged_labels,
    }


def origin(covariate: CovariatePlan) -> str:
    """Return where the levels of a covariate come from."""
    if covariate.levels is not None:
        return "declared in the plan"
    if isinstance(covariate.bins, tuple):
        return "numbers, cut at edges that the plan declares"
    if covariate.bins is not None:
        return f"numbers, cut into {covariate.bins} ranges with about as many people in each"
    if covariate.top is not None:
        return f"the {covariate.top} commonest in the data; all others are {OTHER}"
    return "as found in the data; names that fewer than k people have are left out"


def _metric(part: Moments, table: Tally, plan: MetricPlan | None, k: int) -> Plain:
    metric = part.metric
    judged = plan is not None and (metric.binary or plan.of is not None)
    least = plan.events(k) if plan is not None and judged else 1
    return {
        "name": metric.name,
        "binary": metric.binary,
        "bounds": None if metric.bounds is None else list(metric.bounds),
        "resolution": metric.resolution,
        "missing": metric.missing,
        "sensitive": "no" if plan is None else plan.sensitive,
        "of": None if plan is None else plan.of,
        "least_events": least if least > 1 else None,
        "sums": "class" if len(table.axes) > 1 else "arm",
        "squares": [list(by) for by in part.squares],
        "limits": limits_of(metric, plan, least),
    }


def limits_of(metric: Metric, plan: MetricPlan | None, least: int) -> list[str]:
    """Return what keeps a metric from saying much about one person."""
    limits = []
    if metric.binary:
        limits.append("only 0 or 1")
    elif metric.bounds is not None:
        low, high = (f"{end:,.10g}" for end in metric.bounds)
        limits.append(f"values are cut to {low} … {high}, in steps of {metric.resolution:.10g}")
    missing = {"zero": "no value counts as 0", "exclude": "people without a value are not in it"}
    limits.append(missing[metric.missing])
    if plan is not None and plan.sensitive != "no":
        ends = "greatest" if plan.sensitive == "yes" else "greatest, or the least,"
        limits.append(f"sensitive: in no class everybody has the {ends} value")
    if plan is not None and plan.of is not None:
        limits.append(f"{plan.of} tells who has any: nobody or at least {LEAST_CONTRIBUTORS} of a class")
    if least > 1:
        limits.append(f"nobody or at least {least} people of a class have it, and nobody or as many lack it")
    return limits
