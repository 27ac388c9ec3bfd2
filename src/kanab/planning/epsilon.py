"""What ε will cost, before anything is spent: what one person spends, how much wider intervals become for it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kanab.errors import KanabError
from kanab.plan.budget import LARGEST_EPSILON, SMALLEST_EPSILON, epsilon_shares
from kanab.plan.declared import declared_levels
from kanab.plan.model import Budget, Plan
from kanab.planning.spread import Spread
from kanab.privacy.epsilon.accountant import cohort_numbers, planned_spending, spent_of
from kanab.privacy.epsilon.rho import check_delta, check_epsilon, epsilon_of, release_rho, rho_per_person
from kanab.privacy.epsilon.split import Statistic, noisy_tables, split_budget
from kanab.privacy.release import Release
from kanab.tabular import Table


@dataclass(frozen=True)
class EpsilonForecast:
    """The plain effect on one metric at one ε, with the arm that noise hits hardest.

    ``wider`` is by what share the interval is wider than without noise, at so many ``people``; ``people_needed``
    make it as wide as those people do without noise.
    """

    experiment: str
    metric: str
    epsilon: float
    people: int
    wider: float
    people_needed: int


@dataclass(frozen=True)
class EpsilonPart:
    """The part of a plan's ε that an experiment has, or a table of two, and the ε that this is by itself."""

    name: str
    share: float
    epsilon: float


@dataclass(frozen=True)
class PersonAccount:
    """What one person who takes part in everything spends of a plan's ``total`` ε, and who has which part of it."""

    epsilon: float
    total: float
    delta: float
    stores: int
    parts: tuple[EpsilonPart, ...]

    @property
    def sentence(self) -> str:
        """What one person spends, in words."""
        shared = f" {self.stores} stores share the total." if self.stores > 1 else ""
        return (
            f"Whoever takes part in everything spends ε = {self.epsilon:.3g} of {self.total:g} at δ = {self.delta:g}."
            f"{shared} What is spent adds up as ρ over experiments, but for those that exclude each other "
            "(zero-concentrated differential privacy; ε by Canonne, Kamath and Steinke, 2020)."
        )

    @property
    def table(self) -> Table:
        """Who has which part."""
        rows = [(part.name, f"{100 * part.share:.3g} %", f"{part.epsilon:.3g}") for part in self.parts]
        return Table(("experiment", "part of the total", "ε by itself"), tuple(rows))


def person_account(plan: Plan, sealed: Sequence[Release] = ()) -> PersonAccount | None:
    """Return what a plan, after the batches that a collector has sealed, spends of one person; None without ε."""
    budget = plan.budget
    if budget is None:
        return None
    after = cohort_numbers(sealed[-1].receipt.batch)[1] if sealed else -math.inf
    planned = planned_spending(plan, after)
    parts = [
        EpsilonPart(name, share, epsilon_of(planned.costs[name], budget.delta))
        for name, share in epsilon_shares(plan).items()
    ]
    rho = rho_per_person([*map(spent_of, sealed), planned])
    return PersonAccount(epsilon_of(rho, budget.delta), budget.epsilon, budget.delta, budget.stores, tuple(parts))


def check_budgets(plan: Plan, epsilons: Sequence[float], delta: float | None) -> tuple[Budget, ...]:
    """Return one budget per ε, with δ and the weights of the plan; where none is named, that of the plan."""
    planned = plan.budget
    own = () if planned is None else (planned.per_release or planned.epsilon,)
    at = check_delta(delta if delta is not None else Budget.delta if planned is None else planned.delta)
    budget = planned or Budget(1.0)
    return tuple(
        replace(budget, epsilon=check_epsilon(epsilon), delta=at, per_release=None)
        for epsilon in (epsilons if len(epsilons) else own)
    )


def forecast_epsilon(
    plan: Plan, budget: Budget, names: tuple[str, str], varies: Spread, people: int
) -> EpsilonForecast | None:
    """Return what one ε costs the plain effect on a metric; None where that cannot be known (a ratio, no bounds).

    ``names`` are those of experiment and metric; ``varies`` says how people differ.
    """
    experiment, metric = names[0], plan.metrics_by_name[names[1]]
    if metric.ratio is not None or not metric.declared or people < varies.fewest:
        return None
    grid = metric.metric()
    low, high = grid.bounds or (0.0, 1.0)
    try:
        people_variance, sums_variance = _combined(replace(plan, budget=budget), experiment, metric.name)
    except KanabError:  # a plan that does not declare enough for ε is refused when it is released
        return None
    sums_variance /= grid.scale**2
    # of an unknown mean, the worst: at one of the bounds
    off_centre = (high - low) / 2 if varies.mean is None else abs(varies.mean - (low + high) / 2)
    numerator = sums_variance + off_centre**2 * people_variance
    shares = dict(zip(varies.arms, varies.shares.tolist(), strict=True))
    ratio = 0.0
    for arm in varies.others:
        error, _ = varies.error(arm, people, 0.0)
        added = sum(numerator / (shares[side] * people) ** 2 for side in (arm, varies.control))
        ratio = max(ratio, added / error**2)
    # the error without noise falls with 1/n, the noise with 1/n²: the n at which both together are as they were
    needed = people * (1 + math.sqrt(1 + 4 * ratio)) / 2
    return EpsilonForecast(experiment, metric.name, budget.epsilon, people, math.sqrt(1 + ratio) - 1, math.ceil(needed))


def _combined(plan: Plan, experiment: str, metric: str) -> tuple[float, float]:
    """Return the variances of the noise in an arm's people and its sum about the middle of bounds, in grid steps.

    Every table of the experiment has measured them again, level by level; all are weighed by the inverse of noise.
    """
    assert plan.budget is not None
    scales = split_budget(plan, release_rho(plan.budget))
    people, sums = 0.0, 0.0
    for linkage in noisy_tables(plan):
        levels = None if linkage.covariate is None else declared_levels(plan, linkage.covariate)
        if linkage.experiments != (experiment,) or (linkage.covariate is not None and levels is None):
            continue
        table, classes = scales[linkage.name], 1 if levels is None else len(levels.levels)
        people += 1 / (classes * table[Statistic("people", by=linkage.axes)].variance)
        if (own := table.get(Statistic("sums", (metric,), linkage.axes))) is not None:
            sums += 4 / (classes * own.variance)
    return 1 / people, 1 / sums


def epsilon_range(epsilons: Sequence[float]) -> list[float]:
    """Return 25 values of ε from half the smallest to twice the largest, for a picture."""
    low, high = math.log(min(epsilons) / 2), math.log(max(epsilons) * 2)
    values = [math.exp(low + (high - low) * step / 24) for step in range(25)]
    return [min(max(round(value, 6), SMALLEST_EPSILON), LARGEST_EPSILON) for value in values]
