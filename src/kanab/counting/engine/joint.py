"""A joint plan over a table: columns for its aliases, whose people they are about, and each plan's own count."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, TypeVar

import ibis

from kanab.counted import Counted
from kanab.counting.engine.group_keys import in_experiment, kind_of, plain
from kanab.counting.frames import get_column
from kanab.plan.joint import JointPlan, View, column_of, populations
from kanab.plan.model import ExperimentPlan, Linkage, MetricPlan, Plan
from kanab.tally.factor import Factor
from kanab.tally.moments import By, Cross, Moments
from kanab.tally.tally import Tally

_T = TypeVar("_T")

# ── columns ────────────────────────────────────────────────────────────────────────────────────


def add_alias_columns(table: Any, plan: Plan, names: Iterable[str] | None = None) -> Any:
    """The table with a copy of the column behind every alias, or behind those of some names."""
    if not isinstance(plan, JointPlan):
        return table
    copies = {}
    for name in plan.copies if names is None else names:
        base = column_of(plan, name)
        if base != name:
            get_column(dict.fromkeys(table.columns, ()), base)  # an unknown name fails here, with a hint
            copies[name] = table[base]
    return table.mutate(**copies) if copies else table


def restrict_people(people: Any, plan: Plan) -> Any:
    """People whose covariates and metrics are missing where these are not about them."""
    if not isinstance(plan, JointPlan) or not plan.about:
        return people
    inside = {one.name: _inside(people, one) for one in plan.experiments}
    columns = {}
    for name, experiments in plan.about.items():
        get_column(dict.fromkeys(people.columns, ()), name)
        value = people[name]
        if not value.type().is_null():
            there = reduce(operator.or_, (inside[one] for one in experiments))
            columns[name] = ibis.ifelse(there, value, ibis.null(value.type()))
    return people.mutate(**columns)


def _inside(people: Any, plan: ExperimentPlan) -> Any:
    kind = kind_of(people, plan.name)
    return in_experiment(plain(people[plan.name], kind), kind, plan.arms)


# ── people made of several rows ────────────────────────────────────────────────────────────────


def flag_names(plan: Plan) -> tuple[str, ...]:
    """What is known of people who were made of several rows each: for each group of experiments two flags."""
    return tuple(flag(place) for place in range(len(populations(plan))) for flag in (twice_flag, outside_flag))


def twice_flag(place: int) -> str:
    """The column that marks people who were seen in two arms of one of the experiments."""
    return f"kanab_twice{place}"


def outside_flag(place: int) -> str:
    """The column that marks people who are in none of the experiments, and were in no two arms."""
    return f"kanab_outside{place}"


# ── counts ─────────────────────────────────────────────────────────────────────────────────────


def split_off(counted: Counted, view: View) -> Counted:
    """One plan's own count, under its own names, out of everything that is about its people."""
    if counted.plan is view.plan:
        return counted
    tallies = {own.name: _tally(counted.tallies[view.table(own).name], own, view) for own in view.plan.linkages}
    grids = {metric.name: metric for metric in next(iter(tallies.values())).metrics}
    return replace(
        counted,
        plan=view.plan,
        tallies=tallies,
        bounds_declared=all(one.declared or grids[one.name].binary for one in view.plan.counted_metrics),
        clamped=_renamed(counted.clamped, view.metrics),
        missing=_renamed(counted.missing, view.metrics),
        ranges=_renamed(counted.ranges, view.metrics),
        largest={
            own.name: largest
            for own in view.plan.linkages
            if (largest := _renamed(counted.largest.get(view.table(own).name, {}), view.metrics))
        },
    )


def _renamed(found: Mapping[str, _T], names: Mapping[str, str]) -> dict[str, _T]:
    """What is known under joint names, under the plan's own."""
    return {own: found[joint] for own, joint in names.items() if joint in found}


def _tally(joint: Tally, own: Linkage, view: View) -> Tally:
    """One of a plan's tables: its own names, metrics, squares and products."""
    names = dict(zip(joint.axes, own.axes, strict=True))
    metrics = {one.name: view.metrics[one.name] for one in view.plan.counted_metrics}
    pairs = dict.fromkeys(view.plan.ratios)
    return Tally(
        tuple(Factor(names[one.name], one.levels, one.role, one.scores) for one in joint.factors),
        joint.people,
        tuple(_moments(joint.moments_of(metrics[one.name]), one, own, names) for one in view.plan.counted_metrics),
        tuple(
            _cross(joint, pair, (metrics[pair[0]], metrics[pair[1]]), joint_arm, names[joint_arm])
            for pair in pairs
            for joint_arm in joint.axes[: len(own.experiments)]
        ),
    )


def _moments(joint: Moments, plan: MetricPlan, own: Linkage, names: Mapping[str, str]) -> Moments:
    squares: dict[By, Any] = {}
    for by, cells in joint.squares.items():
        margin = tuple(names[name] for name in by)
        if plan.squares == "class" or own.squares == "margins" or margin != (own.covariate,):
            squares[margin] = cells
    return Moments(replace(joint.metric, name=plan.name), joint.counts, joint.sums, squares)


def _cross(joint: Tally, pair: tuple[str, str], found: tuple[str, str], by: str, arm: str) -> Cross:
    """The products of a pair in the plan's order, whichever the joint plan has."""
    if any(one.pair == found for one in joint.crosses):
        return replace(joint.cross(*found, by=(by,)), pair=pair, by=(arm,))
    one = joint.cross(found[1], found[0], by=(by,))
    return replace(one, pair=pair, by=(arm,), sums=(one.sums[1], one.sums[0]), squares=(one.squares[1], one.squares[0]))
