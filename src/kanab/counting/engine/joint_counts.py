"""Count a joint plan over a table: columns for its aliases, the people they are about, and each plan's own count."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from kanab.counted import Counted
from kanab.counting.engine.group_keys import as_plain, in_experiment, kind_of, only_where
from kanab.counting.frames import check_column
from kanab.plan.joint_plan import JointPlan, View, column_of
from kanab.plan.model import Linkage, Plan
from kanab.tally.moments import By, Cross, Moments
from kanab.tally.tally import Tally

# ── columns ────────────────────────────────────────────────────────────────────────────────────


def add_alias_columns(table: Any, plan: Plan, names: Iterable[str] | None = None) -> Any:
    """Return the table with a copy of the column behind every alias, or behind those of some names."""
    if not isinstance(plan, JointPlan):
        return table
    copies = {}
    for name in plan.copies if names is None else names:
        base = column_of(plan, name)
        if base != name:
            check_column(base, table.columns)
            copies[name] = table[base]
    return table.mutate(**copies) if copies else table


def restrict_people(people: Any, plan: Plan) -> Any:
    """Return people whose covariates and metrics are missing where these are not about them."""
    if not isinstance(plan, JointPlan) or not plan.about:
        return people
    inside = {}
    for experiment in plan.experiments:
        kind = kind_of(people, experiment.name)
        inside[experiment.name] = in_experiment(as_plain(people[experiment.name], kind), kind, experiment.arms)
    columns = {}
    for name, experiments in plan.about.items():
        check_column(name, people.columns)
        value = people[name]
        if not value.type().is_null():
            there = reduce(operator.or_, (inside[experiment] for experiment in experiments))
            columns[name] = only_where(there, value)
    return people.mutate(**columns)


# ── people made of several rows ────────────────────────────────────────────────────────────────


def twice_flag(place: int) -> str:
    """Return the column that marks people who were seen in two arms of one of the experiments."""
    return f"kanab_twice{place}"


def outside_flag(place: int) -> str:
    """Return the column that marks people who are in none of the experiments, and were in no two arms."""
    return f"kanab_outside{place}"


# ── counts ─────────────────────────────────────────────────────────────────────────────────────


def split_off(counted: Counted, view: View) -> Counted:
    """Return a plan's own count, under its own names, out of everything that is about its people."""
    if counted.plan is view.plan:
        return counted
    linkages = view.plan.linkages
    tallies = {linkage.name: _tally(counted.tallies[view.table(linkage).name], linkage, view) for linkage in linkages}
    grids = {metric.name: metric for tally in tallies.values() for metric in tally.metrics}
    return replace(
        counted,
        plan=view.plan,
        tallies=tallies,
        bounds_declared=all(metric.declared or grids[metric.name].binary for metric in view.plan.counted_metrics),
        clamped=_renamed(counted.clamped, view.metrics),
        missing=_renamed(counted.missing, view.metrics),
        ranges=_renamed(counted.ranges, view.metrics),
    )


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return values under the plan's own names instead of the joint ones."""
    return {name: values[joint] for name, joint in names.items() if joint in values}


def _tally(joint: Tally, linkage: Linkage, view: View) -> Tally:
    """Return a table of a plan: its own names, metrics, squares and products."""
    names = dict(zip(joint.axes, linkage.axes, strict=True))
    plans = view.plan.metrics_of(linkage)
    metrics = {metric.name: view.metrics[metric.name] for metric in plans}
    return Tally(
        tuple(replace(factor, name=names[factor.name]) for factor in joint.factors),
        joint.people,
        tuple(_moments(joint.moments_of(metrics[metric.name]), metric.name, linkage, view, names) for metric in plans),
        tuple(
            _cross(joint, pair, (metrics[pair[0]], metrics[pair[1]]), joint_arm, names[joint_arm])
            for pair in view.plan.products_of(linkage)
            for joint_arm in joint.axes[: len(linkage.experiments)]
        ),
    )


def _moments(joint: Moments, metric: str, linkage: Linkage, view: View, names: Mapping[str, str]) -> Moments:
    by_arm = view.plan.squares_of(linkage, metric) == "arm"
    squares: dict[By, Any] = {}
    for by, cells in joint.squares.items():
        marginal = tuple(names[name] for name in by)
        if not by_arm or marginal != (linkage.covariate,):
            squares[marginal] = cells
    return Moments(replace(joint.metric, name=metric), joint.counts, joint.sums, squares)


def _cross(joint: Tally, pair: tuple[str, str], joint_pair: tuple[str, str], by: str, arm: str) -> Cross:
    """Return the products of a pair in the plan's order, whichever the joint plan has."""
    if any(cross.pair == joint_pair for cross in joint.crosses):
        return replace(joint.cross(*joint_pair, by=(by,)), pair=pair, by=(arm,))
    cross = joint.cross(joint_pair[1], joint_pair[0], by=(by,))
    return replace(cross, pair=pair, by=(arm,), sums=cross.sums[::-1], squares=cross.squares[::-1])
