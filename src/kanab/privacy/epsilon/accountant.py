"""The ledger as an accountant: what its releases have spent, what is left, and what may not be mixed."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kanab.errors import PrivacyError
from kanab.plan.budget import ROUNDING
from kanab.plan.model import Budget, Plan
from kanab.plan.periods import Periods
from kanab.privacy.epsilon.rho import (
    DEFAULT_DELTA,
    SpentRho,
    check_delta,
    check_epsilon,
    epsilon_of,
    release_rho,
    rho_of,
    rho_per_person,
)
from kanab.privacy.epsilon.split import promised_epsilon, spent_by, split_budget, stated_noise
from kanab.privacy.ledger import Ledger
from kanab.privacy.release import Batch, Release

NO_LEDGER = "in no ledger: nobody adds up what else was spent about these people"
"""What deviates where a release with ε is in no ledger."""


@dataclass(frozen=True)
class Spending:
    """What a release costs one person: its own ε, and in ρ what was spent with it, of what may be (``most``)."""

    epsilon: float
    budget: Budget
    after: float
    most: float

    @property
    def spent(self) -> float:
        """The ε of all releases, this one included; never above the total."""
        return min(self.budget.epsilon, epsilon_of(self.after, self.budget.delta))

    @property
    def left(self) -> float:
        """The ε that a single further release about the same people may have."""
        rest = self.most - self.after
        return epsilon_of(rest, self.budget.delta) if rest > ROUNDING * self.most else 0.0


def asked_budget(plan: Plan, epsilon: float | None, delta: float | None) -> Budget | None:
    """Return the budget of a call, that of its plan; raise `PrivacyError` where ε and δ contradict it."""
    if epsilon is None:
        if delta is not None:
            raise PrivacyError("delta is given without epsilon", "Give both (--epsilon 1 --delta 1e-6), or neither.")
        if plan.budget is None:
            return None
    if epsilon is not None:
        check_epsilon(epsilon)
    budget = plan.budget or Budget(check_epsilon(epsilon), DEFAULT_DELTA if delta is None else check_delta(delta))
    if delta is not None and check_delta(delta) != budget.delta:
        raise PrivacyError("delta is not that of the plan", "Leave it out (--delta), or change the plan.")
    total, spends = check_epsilon(budget.epsilon), epsilon or budget.per_release or budget.epsilon
    if check_epsilon(spends) > total:
        raise PrivacyError("a release may not spend more than the plan's total", f"Spend at most {total:g}.")
    check_delta(budget.delta)
    return replace(budget, per_release=None if spends == total else float(spends))


def with_budget(plan: Plan, budget: Budget | None) -> Plan:
    """Return the plan of a release of rows that spends a budget.

    Nobody knows whether people of rows keep to what collectors' clients see to: that experiments exclude each other.
    """
    if budget is None:
        return replace(plan, budget=None)
    together = tuple(replace(experiment, exclude_with=()) for experiment in plan.experiments)
    return replace(plan, budget=budget, experiments=together)


def within_ledger(budget: Budget, plan: Plan, ledger: Ledger) -> Budget:
    """Return the budget of a call with the total of a ledger, where the plan of the call says none of its own."""
    total = _total_of(ledger)
    if plan.budget is not None or total is None or budget.epsilon >= total:
        return budget
    return replace(budget, epsilon=total, per_release=budget.epsilon)


def check_one_kind(plan: Plan, ledger: Ledger) -> None:
    """Raise `PrivacyError` where a ledger has releases of the other kind: exact numbers end what ε promises."""
    if plan.budget is None and ledger.noisy:
        raise PrivacyError(
            "the ledger is one with ε, and this release is without",
            "Give --epsilon (epsilon=…), or begin another ledger about other people.",
        )
    if plan.budget is not None and len(ledger.noisy) < len(ledger.releases):
        raise PrivacyError(
            "the ledger has releases without ε, about whose people an ε promises nothing",
            "Leave ε out, or begin another ledger about other people.",
        )


def cohort_numbers(batch: Batch | None) -> tuple[float, float]:
    """Return the cohorts of a batch as numbers, the one after which they begin and the last; everybody without one."""
    if batch is None:
        return -math.inf, math.inf
    periods = Periods(batch.every)
    return -math.inf if batch.after is None else periods.number(batch.after), periods.number(batch.through)


def spent_of(release: Release) -> SpentRho:
    """Return what a release costs its people, by the noise that it states; exact numbers cost everything."""
    after, through = cohort_numbers(release.receipt.batch)
    if release.receipt.noise is None:
        return SpentRho(dict.fromkeys(release.plan.experiment_names, math.inf), after, through)
    return spent_by(release.plan, stated_noise(release.plan, release.receipt.noise), after, through)


def planned_spending(plan: Plan, after: float = -math.inf, through: float = math.inf) -> SpentRho:
    """Return what a release by a plan costs; of a collector, what all batches after a cohort do."""
    assert plan.budget is not None
    return spent_by(plan, split_budget(plan, release_rho(plan.budget)), after, through)


def spent_rho(releases: Iterable[Release]) -> float:
    """Return the ρ that releases cost one person together."""
    return rho_per_person([spent_of(release) for release in releases])


def check_account(plan: Plan, releases: Sequence[Release], next_release: SpentRho) -> Spending:
    """Return what a release spends after others. Raises `PrivacyError` where that is more than the plan allows."""
    budget = plan.budget
    assert budget is not None
    most = rho_of(budget.epsilon, budget.delta) / budget.stores
    after = rho_per_person([*map(spent_of, releases), next_release])
    epsilon = promised_epsilon(budget, next_release)
    if after > most * (1 + ROUNDING):
        raise PrivacyError(
            f"the total of ε = {budget.epsilon:g} per person does not allow another release of ε = {epsilon:.3g}",
            "Spend less (--epsilon, [privacy] shares), or stop here: more would break the promise made before.",
        )
    return Spending(epsilon, budget, after, most)


def check_spending(plan: Plan, ledger: Ledger, batch: Batch | None) -> Spending:
    """Return what a release by a plan into a ledger spends; a batch is about its cohorts.

    Raises `PrivacyError` where that is more than is left, or where the ledger promises a smaller total or another δ.
    """
    budget = plan.budget
    assert budget is not None
    total = _total_of(ledger)
    deltas = {old.receipt.noise.delta for old in ledger.noisy if old.receipt.noise is not None}
    if total is not None and budget.epsilon > total:
        raise PrivacyError(
            f"earlier releases of the ledger promise a total of ε = {total:g}",
            "Keep to it: a total may be made smaller, never larger ([privacy] epsilon).",
        )
    if deltas - {budget.delta}:
        raise PrivacyError(
            f"earlier releases of the ledger promise their ε at δ = {min(deltas):g}", "Give that δ (--delta)."
        )
    return check_account(plan, ledger.releases, planned_spending(plan, *cohort_numbers(batch)))


def _total_of(ledger: Ledger) -> float | None:
    """Return the total of a ledger: the smallest that its releases promise."""
    return min((old.receipt.noise.total for old in ledger.noisy if old.receipt.noise is not None), default=None)
