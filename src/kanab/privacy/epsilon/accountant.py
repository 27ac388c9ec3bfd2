"""The ledger as an accountant: what its releases have spent, what is left, and what may not be mixed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kanab.errors import PrivacyError
from kanab.plan.model import Budget, Plan
from kanab.privacy.epsilon.account import DEFAULT_DELTA, check_delta, check_epsilon, epsilon_of, rho_of
from kanab.privacy.ledger import Ledger
from kanab.privacy.release import Release

ROUNDING = 1e-9
"""A share of the total by which sums of floats may seem to overspend."""


@dataclass(frozen=True)
class Spending:
    """What a release may cost: its own ε, that of all releases together, and what was spent before, at one δ."""

    epsilon: float
    delta: float
    total: float
    before: float

    @property
    def rho(self) -> float:
        """What the release costs."""
        return rho_of(self.epsilon, self.delta)

    @property
    def spent(self) -> float:
        """The ε of all releases, this one included; never above the total."""
        return min(self.total, epsilon_of(self.before + self.rho, self.delta))

    @property
    def left(self) -> float:
        """The ε that a single further release may have."""
        rest = rho_of(self.total, self.delta) - self.before - self.rho
        return epsilon_of(rest, self.delta) if rest > ROUNDING * self.rho else 0.0


def asked_budget(plan: Plan, epsilon: float | None, delta: float | None) -> Budget | None:
    """Return the budget of a call: that of the plan, with what a release spends; None for a release without ε.

    Raises `PrivacyError` where the numbers are no ε and δ, or contradict the plan.
    """
    if epsilon is None:
        if delta is not None:
            raise PrivacyError("delta is given without epsilon", "Give both (--epsilon 1 --delta 1e-6), or neither.")
        if plan.budget is None:
            return None
    budget = plan.budget or Budget(check_epsilon(epsilon), DEFAULT_DELTA if delta is None else delta)
    if delta is not None and check_delta(delta) != budget.delta:
        raise PrivacyError("delta is not that of the plan", "Leave it out (--delta), or change the plan.")
    total, spends = check_epsilon(budget.epsilon), epsilon or budget.per_release or budget.epsilon
    if check_epsilon(spends) > total:
        raise PrivacyError("a release may not spend more than the plan's total", f"Spend at most {total:g}.")
    check_delta(budget.delta)
    return replace(budget, per_release=None if spends == total else float(spends))


def spent_rho(releases: Iterable[Release]) -> float:
    """Return the ρ of releases together: cohorts are different people, so that of their batches the largest counts."""
    alone, batches = 0.0, [0.0]
    for release in releases:
        noise = release.receipt.noise
        if noise is not None and release.receipt.batch is not None:
            batches.append(rho_of(noise.epsilon, noise.delta))
        elif noise is not None:
            alone += rho_of(noise.epsilon, noise.delta)
    return alone + max(batches)


def check_spending(budget: Budget, ledger: Ledger) -> Spending:
    """Return what a release into a ledger spends. Raises `PrivacyError` where that is more than is left."""
    before = spent_rho(ledger.releases)
    spending = Spending(budget.per_release or budget.epsilon, budget.delta, budget.epsilon, before)
    allowed = rho_of(budget.epsilon, budget.delta)
    if before + spending.rho > allowed * (1 + ROUNDING):
        raise PrivacyError(
            f"the ledger's total of ε = {budget.epsilon:g} does not allow another release of ε = {spending.epsilon:g}",
            "Spend less (--epsilon), or stop here: more would break the promise of the releases before.",
        )
    return spending
