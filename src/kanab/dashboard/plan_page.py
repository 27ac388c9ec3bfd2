"""A plan in words: what is collected, why each table is needed, and when it will be whole; and as a file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kanab.errors import KanabError, listed
from kanab.inspection.officer.fields import origin, purposes
from kanab.plan.file import plan_to_dict
from kanab.plan.model import Plan
from kanab.planning.forecast import Baseline, Forecast, forecast_plan
from kanab.tabular import Table, number
from kanab.tally.factor import label

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def linkage_rows(plan: Plan) -> list[dict[str, Any]]:
    """Every table that the plan needs, and the questions that it answers."""
    return [
        {
            "table": link.name,
            "why": purposes(link.name, plan),
            "squares": "arm" if link.squares == "arm" else "arm and level",
        }
        for link in plan.linkages
    ]


def linkage_table(plan: Plan) -> Table:
    """The same for people."""
    rows = tuple((one["table"], "; ".join(one["why"]), f"by {one['squares']}") for one in linkage_rows(plan))
    return Table(("table", "why it is needed", "squares"), rows)


def metric_table(plan: Plan) -> Table:
    """What is measured, within which limits."""
    rows = []
    for one in plan.metrics:
        if one.ratio is not None:
            rows.append((one.name, f"{one.ratio[0]} per {one.ratio[1]}", "–", "–"))
            continue
        limits = (
            "0 or 1" if one.binary else "from the data" if one.bounds is None else " to ".join(map(number, one.bounds))
        )
        rows.append((one.name, "yes or no" if one.binary else "a number", limits, _MISSING[one.missing]))
    return Table(("metric", "what it is", "clamped to", "a missing value"), tuple(rows))


_MISSING = {"zero": "counts as 0", "exclude": "is left out"}


def covariate_table(plan: Plan) -> Table:
    """By what people are grouped, and by nothing else."""
    rows = tuple(
        (one.name, "as found" if one.levels is None else listed(map(label, one.levels)), origin(one))
        for one in plan.covariates
    )
    return Table(("covariate", "levels", "where they come from"), rows)


def experiment_table(plan: Plan) -> Table:
    """Arms and shares, and what is asked of each experiment."""
    rows = []
    for one in plan.experiments:
        arms = "as found" if one.shares is None else ", ".join(f"{label(arm)} {share:g}" for arm, share in one.shares)
        more = [f"adjusted for {listed(one.adjust)}"] if one.adjust else []
        more += [f"by {listed(one.segments)}"] if one.segments else []
        more += [f"with {listed(one.interactions)}"] if one.interactions else []
        more += [f"{one.looks} looks"] if one.looks else []
        more += [f"{100 * one.holdout:g} % held out"] if one.holdout else []
        rows.append((one.name, arms, "; ".join(more) or "–"))
    return Table(("experiment", "arms and shares", "what is asked"), tuple(rows))


def cohort_sentence(plan: Plan) -> str:
    """When people are counted, and when their batch is sealed."""
    if plan.cohorts is None:
        return "Everybody is one batch, which is sealed once, at the end (kanab seal)."
    one = plan.cohorts
    seal = "once, at the end (kanab seal)" if one.seal == "end" else f"every {one.seal}"
    return (
        f"Cohorts of {one.every}: people are measured for {one.window} after the one in which they came. "
        f"Ripe cohorts are sealed {seal}."
    )


def forecast_of(plan: Plan, query: Mapping[str, str], baseline: Baseline | None) -> tuple[Forecast, str]:
    """The forecast at the traffic that was asked for; and what was wrong with the question, if anything."""
    asked = {key: _positive(query.get(key, "")) for key in ("per_day", "days")}
    wrong = any(query.get(key, "").strip() and value is None for key, value in asked.items())
    said = "People per day and days are positive numbers." if wrong else ""
    try:
        return forecast_plan(plan, per_day=asked["per_day"], days=asked["days"], baseline=baseline), said
    except KanabError:  # what is known of earlier people does not fit a plan that was changed since
        return forecast_plan(plan, per_day=asked["per_day"], days=asked["days"]), said


def _positive(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if 0 < found < 1e12 else None


def plan_toml(plan: Plan) -> str:
    """The plan as the file that ``kanab serve --plan`` reads.

    >>> from kanab.plan.file import parse_plan
    >>> text = 'metrics.spend = { bounds = [0, 500] }\\nexperiments.checkout.arms = { A = 1, B = 1 }'
    >>> print(plan_toml(parse_plan(text)))
    k = 10
    <BLANKLINE>
    [metrics]
    spend = { bounds = [0, 500] }
    <BLANKLINE>
    [experiments.checkout]
    arms = { A = 1, B = 1 }
    control = "A"
    <BLANKLINE>
    """
    plain = plan_to_dict(plan)
    experiments = plain.pop("experiments", {})
    lines = [f"{key} = {_toml(value)}" for key, value in plain.items() if not isinstance(value, dict)]
    for name, group in plain.items():
        if isinstance(group, dict) and group:
            lines += ["", f"[{name}]", *(f"{_key(key)} = {_toml(value)}" for key, value in group.items())]
    for name, one in experiments.items():
        lines += ["", f"[experiments.{_key(name)}]", *(f"{_key(key)} = {_toml(value)}" for key, value in one.items())]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _toml(value: Any) -> str:
    """A value; texts are quoted as in JSON, which TOML reads alike."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(str(key))} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    return json.dumps(value, ensure_ascii=False)
