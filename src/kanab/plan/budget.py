"""Who has which part of a plan's ε, and what is wrong with an ε, a δ, shares or weights: in plans, flags and Python.

Parts add up over groups of experiments that exclude each other, with the largest of each; tables of two have their own.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import chain, product

from kanab.fields import is_finite
from kanab.plan.model import Budget, Plan
from kanab.plan.paired_covariates import planned_pairs

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-3, 100.0
"""Below, noise leaves nothing to read; above, it hides nobody."""

SMALLEST_DELTA, LARGEST_DELTA = 1e-15, 1e-4
"""δ is to be below one divided by the number of people, which nobody may look up: so it is small for 10,000 at least.

A receipt says, by people with noise, where it is not small enough for those who came.
"""

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-3, 1e3
"""What no table needs, or nothing is left for the others."""

SMALLEST_SHARE = 1e-3
"""The least part of ε that an experiment may have: below, its noise leaves nothing to read."""

ROUNDING = 1e-9
"""A share of the total by which sums of floats may seem to overspend."""


def epsilon_problem(epsilon: object) -> str:
    """Say what is wrong with an ε; an empty text where nothing is."""
    if not is_finite(epsilon):
        return "must be a finite number"
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:  # type: ignore[operator]
        return f"must lie between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}"
    return ""


def delta_problem(delta: object) -> str:
    """Say what is wrong with a δ; an empty text where nothing is."""
    if not is_finite(delta) or not SMALLEST_DELTA <= delta <= LARGEST_DELTA:  # type: ignore[operator]
        return f"must be a small probability, at most {LARGEST_DELTA:g}"
    return ""


def table_names(plan: Plan) -> tuple[str, ...]:
    """Return the names of all tables of a release with noise: arms alone, what the plan needs, pairs of covariates."""
    return tuple(dict.fromkeys((*plan.experiment_names, *plan.linkage_names, *planned_pairs(plan))))


def account_names(plan: Plan) -> tuple[str, ...]:
    """Return what has a part of ε: every experiment, and every table of two experiments."""
    both = [linkage.name for linkage in plan.linkages if len(linkage.experiments) > 1]
    return (*plan.experiment_names, *both)


Exclusions = frozenset[frozenset[str]]
"""Pairs of experiments that nobody is in both of."""


def exclusions(plan: Plan) -> Exclusions:
    """Return which experiments of a plan exclude each other, whichever of the two says so."""
    pairs = chain.from_iterable(product((each.name,), each.exclude_with) for each in plan.experiments)
    return frozenset(map(frozenset, pairs))


def exclusive_groups(names: Iterable[str], apart: Exclusions) -> list[list[str]]:
    """Return names in groups of experiments that all exclude each other; what excludes nothing is a group by itself."""
    groups: list[list[str]] = []
    for name in names:
        for group in groups:
            if all(frozenset((name, other)) in apart for other in group):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def epsilon_shares(plan: Plan) -> dict[str, float]:
    """Return the part of ε of every experiment and every table of two, as declared or equal parts of what is left.

    Nobody is in two experiments that exclude each other, so that each of them has the whole part of its group.
    """
    declared = {} if plan.budget is None else plan.budget.shares
    groups = exclusive_groups(account_names(plan), exclusions(plan))
    parts = [max((declared[name] for name in group if name in declared), default=None) for group in groups]
    left = 1 - math.fsum(part for part in parts if part is not None)
    equal = max(0.0, left) / max(1, parts.count(None))
    shares: dict[str, float] = {}
    for group, part in zip(groups, parts, strict=True):
        for name in group:
            shares[name] = declared.get(name, equal if part is None else part)
    return {name: shares[name] for name in account_names(plan)}


def budget_mistakes(plan: Plan) -> Iterator[str]:
    """Yield what contradicts itself in what releases may spend."""
    budget = plan.budget
    if budget is None:
        return
    problems = {"epsilon": epsilon_problem(budget.epsilon), "delta": delta_problem(budget.delta)}
    if budget.per_release is not None:
        problems["per_release"] = epsilon_problem(budget.per_release)
        if not problems["epsilon"] and not problems["per_release"] and budget.per_release > budget.epsilon:
            problems["per_release"] = "must not be more than epsilon, which all releases share"
    for name, problem in problems.items():
        if problem:
            yield f"privacy.{name} {problem}"
    names = table_names(plan)
    for name, weight in budget.weights.items():
        if name not in names:
            yield f"privacy.weights names an unknown table, {name!r}; tables: {', '.join(names)}"
        elif not is_finite(weight) or not SMALLEST_WEIGHT <= weight <= LARGEST_WEIGHT:
            yield f"privacy.weights: that of {name!r} must be a number from {SMALLEST_WEIGHT:g} to {LARGEST_WEIGHT:,g}"
    if type(budget.stores) is not int or budget.stores < 1:
        yield "privacy.stores must be a whole number: how many stores and ledgers about these people share epsilon"
    yield from _share_mistakes(plan, budget)


def _share_mistakes(plan: Plan, budget: Budget) -> Iterator[str]:
    if not budget.shares:
        return
    names = account_names(plan)
    for name, share in budget.shares.items():
        if name not in names:
            yield f"privacy.shares names an unknown experiment, {name!r}; known: {', '.join(names)}"
        elif not is_finite(share) or not SMALLEST_SHARE <= share <= 1:
            yield f"privacy.shares: that of {name!r} must be a part of the total, from {SMALLEST_SHARE:g} to 1"
            return
    shares = epsilon_shares(plan)
    groups = exclusive_groups(names, exclusions(plan))
    whole = math.fsum(max(shares[name] for name in group) for group in groups)
    nothing = [name for name, share in shares.items() if share < SMALLEST_SHARE]
    if whole > 1 + ROUNDING:
        yield "privacy.shares add up to more than 1, and one person may take part in everything"
    elif nothing:
        yield f"privacy.shares leave nothing for {', '.join(nothing)}: declare smaller ones, or one for each"
