"""A plan in words: what is collected, why each table is needed, and when it will be whole; and as a file."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kanab.errors import KanabError, listed
from kanab.inspection.officer.table_facts import origin, purposes
from kanab.plan.budget import LARGEST_EPSILON, SMALLEST_EPSILON
from kanab.plan.file import plan_to_dict
from kanab.plan.model import Plan
from kanab.planning.epsilon import epsilon_range
from kanab.planning.forecast import Baseline, Forecast, forecast_plan
from kanab.planning.planning_pictures import epsilon_figure
from kanab.privacy.epsilon.rho import check_epsilon
from kanab.report.figure import Figure
from kanab.tabular import Table
from kanab.tally.factor import label

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def linkage_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return every table that the plan needs, and the questions that it answers."""
    return [
        {
            "table": link.name,
            "why": purposes(link.name, plan),
            "squares": "" if link.people_only else "arm" if link.squares == "arm" else "arm and level",
        }
        for link in plan.linkages
    ]


def linkage_table(plan: Plan) -> Table:
    """Return the rows of ``linkage_rows`` as a table."""
    rows = (
        (row["table"], "; ".join(row["why"]), f"by {row['squares']}" if row["squares"] else "none")
        for row in linkage_rows(plan)
    )
    return Table(("table", "why it is needed", "squares"), tuple(rows))


def metric_table(plan: Plan) -> Table:
    """Return what is measured, within which limits."""
    rows = []
    for metric in plan.metrics:
        if metric.ratio is not None:
            rows.append((metric.name, f"{metric.ratio[0]} per {metric.ratio[1]}", "–", "–"))
            continue
        bounds = "from the data" if metric.bounds is None else " to ".join(f"{bound:,.15g}" for bound in metric.bounds)
        kind, limits = ("yes or no", "0 or 1") if metric.binary else ("a number", bounds)
        kind += ", from before: adjusted for" if metric.name in plan.numbers else ""
        rows.append((metric.name, kind, limits, _MISSING[metric.missing or "zero"]))
    return Table(("metric", "what it is", "clamped to", "a missing value"), tuple(rows))


_MISSING = {"zero": "counts as 0", "exclude": "is left out"}


def covariate_table(plan: Plan) -> Table:
    """Return by what people are grouped, and by nothing else."""
    rows = tuple(
        (
            covariate.name,
            "as found" if covariate.levels is None else listed(map(label, covariate.levels)),
            origin(covariate),
        )
        for covariate in plan.covariates
    )
    return Table(("covariate", "levels", "where they come from"), rows)


def experiment_table(plan: Plan) -> Table:
    """Return arms and shares, and what is asked of each experiment."""
    rows = []
    for experiment in plan.experiments:
        shares = experiment.shares
        arms = "as found" if shares is None else ", ".join(f"{label(arm)} {share:g}" for arm, share in shares)
        adjusted = sorted((*experiment.adjust, *experiment.numbers))
        more = [f"adjusted for {listed(adjusted)}"] if adjusted else []
        more += [f"by {listed(experiment.segments)}"] if experiment.segments else []
        more += [f"effect of receiving ({experiment.received})"] if experiment.received else []
        more += [f"quantiles of {listed(experiment.quantiles)}"] if experiment.quantiles else []
        more += [f"with {listed(experiment.interactions)}"] if experiment.interactions else []
        more += [f"assigned together with {listed(experiment.joint_shares)}"] if experiment.joint_shares else []
        more += [f"primary {listed(experiment.primary)}"] if experiment.primary else []
        more += [f"guardrails {listed(experiment.guardrails)}"] if experiment.guardrails else []
        more += [f"{experiment.looks} looks"] if experiment.looks else []
        more += [f"{100 * experiment.holdout:g} % held out"] if experiment.holdout else []
        rows.append((experiment.name, arms, "; ".join(more) or "–"))
    return Table(("experiment", "arms and shares", "what is asked"), tuple(rows))


def rule_sentence(plan: Plan) -> str:
    """Return what holds of everything that is released by the plan: k, or ε."""
    if plan.budget is None:
        return f"Every class of every table holds nobody or at least k = {plan.k} people."
    promise = f"ε = {plan.budget.epsilon:g} per person, at δ = {plan.budget.delta:g}"
    return f"Every number is released with noise: all releases together keep to {promise}."


def cohort_sentence(plan: Plan) -> str:
    """Return when people are counted, and when their batch is sealed."""
    if plan.cohorts is None:
        return "Everybody is one batch, which is sealed once, at the end (kanab seal)."
    cohorts = plan.cohorts
    seal = "once, at the end (kanab seal)" if cohorts.seal == "end" else f"every {cohorts.seal}"
    return (
        f"Cohorts of {cohorts.every}: people are measured for {cohorts.window} after the one in which they came. "
        f"Ripe cohorts are sealed {seal}."
    )


@dataclass(frozen=True)
class PlanForecast:
    """The forecast at the traffic and ε that were asked for, a picture of what ε costs, and what was wrong."""

    forecast: Forecast
    picture: Figure | None = None
    problem: str = ""


def forecast_of(plan: Plan, query: Mapping[str, str], baseline: Baseline | None) -> PlanForecast:
    """Return the forecast that was asked for; without what does not fit the plan, or is no number."""
    per_day, days = (_positive(query.get(key, "")) for key in ("per_day", "days"))
    epsilons, problem = _epsilons(query.get("epsilon", ""))
    if any(query.get(key, "").strip() and not value for key, value in (("per_day", per_day), ("days", days))):
        problem = "People per day and days must be positive numbers."
    make = partial(forecast_plan, plan, per_day=per_day, days=days)
    try:
        forecast = make(baseline=baseline, epsilons=epsilons)
    except KanabError:  # what is known of earlier people does not fit a plan that was changed since
        return PlanForecast(make(), problem=problem)
    picture = None
    if forecast.epsilons:
        wide = epsilon_range([row.epsilon for row in forecast.epsilons])
        curves = make(baseline=baseline, epsilons=wide)
        picture = epsilon_figure(curves.to_dict()["epsilons"], forecast.to_dict()["epsilons"])
    return PlanForecast(forecast, picture, problem)


def _epsilons(text: str) -> tuple[list[float], str]:
    """Read at most five values of ε; with what is wrong with them, if anything."""
    try:
        values = [check_epsilon(float(part)) for part in text.split(",")[:5]] if text.strip() else []
    except (ValueError, KanabError):
        return [], f"ε must be numbers from {SMALLEST_EPSILON:g} to {LARGEST_EPSILON:g}, for example 0.5,1,2."
    return values, ""


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e12 else None


def plan_toml(plan: Plan) -> str:
    """Return the plan as the file that ``kanab serve --plan`` reads."""
    plain = plan_to_dict(plan)
    experiments = plain.pop("experiments", {})
    lines = [f"{key} = {_toml(value)}" for key, value in plain.items() if not isinstance(value, dict)]
    groups = {name: group for name, group in plain.items() if isinstance(group, dict) and group}
    groups |= {f"experiments.{_key(name)}": group for name, group in experiments.items()}
    for name, group in groups.items():
        lines += ["", f"[{name}]", *(f"{_key(key)} = {_toml(value)}" for key, value in group.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _toml(value: Any) -> str:
    """Return a value as TOML; texts are quoted as in JSON, which TOML reads alike."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(str(key))} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)
