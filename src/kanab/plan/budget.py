"""What is wrong with an ε, a δ or the weights of tables: the same in plans, flags and Python."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kanab.plan.model import Plan
from kanab.plan.pairs import planned_pairs

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-3, 100.0
"""Below, noise leaves nothing to read; above, it hides nobody."""

SMALLEST_DELTA, LARGEST_DELTA = 1e-15, 1e-4
"""δ is to be below one divided by the number of people, which nobody may look up: so it is small for 10,000 at least.

A receipt says, by people with noise, where it is not small enough for those who came.
"""

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-3, 1e3
"""What no table needs, or nothing is left for the others."""


def epsilon_problem(epsilon: object) -> str:
    """Say what is wrong with an ε; an empty text where nothing is.

    >>> epsilon_problem(1), epsilon_problem(0)
    ('', 'must lie between 0.001 and 100')
    """
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not math.isfinite(epsilon):
        return "must be a finite number"
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        return f"must lie between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}"
    return ""


def delta_problem(delta: object) -> str:
    """Say what is wrong with a δ; an empty text where nothing is."""
    number = isinstance(delta, (int, float)) and not isinstance(delta, bool)
    if not number or not SMALLEST_DELTA <= delta <= LARGEST_DELTA:  # type: ignore[operator]
        return f"must be a small probability, at most {LARGEST_DELTA:g}"
    return ""


def table_names(plan: Plan) -> tuple[str, ...]:
    """Return the names of all tables of a release with noise: arms alone, what the plan needs, pairs of covariates."""
    return tuple(dict.fromkeys((*plan.experiment_names, *plan.linkage_names, *planned_pairs(plan))))


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
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if name not in names:
            yield f"privacy.weights names an unknown table, {name!r}; tables: {', '.join(names)}"
        elif not number or not SMALLEST_WEIGHT <= weight <= LARGEST_WEIGHT:
            yield f"privacy.weights: that of {name!r} must be a number from {SMALLEST_WEIGHT:g} to {LARGEST_WEIGHT:,g}"
