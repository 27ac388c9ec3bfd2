"""The ledger as an accountant: what its releases have spent, what is left, and what may not be mixed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kanab.errors import PrivacyError
from kanab.plan.model import Budget, Plan
from kanab.privacy.epsilon.account import DEFAULT_DELTA, check_delta, check_epsilon, epsilon_of, rho_of
from kanab.privacy.ledger import Ledger
from kanab.privacy.release import Release

NOBODY_ADDS_UP = "in no ledger: nobody adds up what else was spent about these people"
"""What deviates where a release with ε is in no ledger."""

ROUNDING = 1e-9
"""A share of the total by which sums of floats may seem to overspend."""


@dataclass(frozen=True)
class Spending:
    """What a release costs: its own ε, that of all releases together, and the ρ of what was spent with it, at one δ."""

    epsilon: float
    delta: float
    total: float
    after: float

    @property
    def rho(self) -> float:
        """What the release costs."""
        return rho_of(self.epsilon, self.delta)

    @property
    def spent(self) -> float:
        """The ε of all releases, this one included; never above the total."""
        return min(self.total, epsilon_of(self.after, self.delta))

    @property
    def left(self) -> float:
        """The ε that a single further release about the same people may have."""
        rest = rho_of(self.total, self.delta) - self.after
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


def within_ledger(budget: Budget, plan: Plan, ledger: Ledger) -> Budget:
    """Return the budget of a call with the total of a ledger, where the plan of the call says none of its own."""
    total = _total_of(ledger)
    if plan.budget is not None or total is None or budget.epsilon >= total:
        return budget
    return replace(budget, epsilon=total, per_release=budget.epsilon)


def spent_rho(releases: Iterable[Release]) -> float:
    """Return the ρ of releases together: cohorts are different people, so that of their batches the largest counts."""
    return add_costs(_costs(releases))


def _costs(releases: Iterable[Release]) -> list[tuple[float, bool]]:
    """Return the ρ of every release with ε, and whether it is a batch of cohorts."""
    return [
        (rho_of(noise.epsilon, noise.delta), release.receipt.batch is not None)
        for release in releases
        if (noise := release.receipt.noise) is not None
    ]


def add_costs(costs: Iterable[tuple[float, bool]]) -> float:
    """Return what releases cost together; of those that are batches of cohorts the largest counts."""
    alone, batches = 0.0, 0.0
    for rho, batch in costs:
        alone, batches = (alone, max(batches, rho)) if batch else (alone + rho, batches)
    return alone + batches


def check_beside(budget: Budget | None, ledger: Ledger) -> tuple[str, ...]:
    """Return what deviates where a release stands beside those of the other kind, without ε or with it.

    Raises `PrivacyError` where no plan with ε says why: whatever stands beside them, ε promises nothing about.
    """
    if budget is None:
        others: Sequence[Release] = ledger.noisy
        asked = ledger.noisy[-1].plan.budget if ledger.noisy else None
        fact = "the ledger has a total of ε, and this release is without"
        remedy = "Give --epsilon (epsilon=…)"
    else:
        others, asked = ledger.exact, budget
        fact, remedy = "the ledger has releases without ε, about which an ε promises nothing", "Leave ε out"
    if not others:
        return ()
    if asked is None or not asked.beside_exact:
        why = 'say in the plan with ε why both stand beside each other ([privacy] beside_exact = "…")'
        raise PrivacyError(fact, f"{remedy}, begin another ledger about other people, or {why}.")
    return (f"releases with and without ε in one ledger, and ε is no promise about the latter: {asked.beside_exact}",)


def _total_of(ledger: Ledger) -> float | None:
    """Return the total of a ledger: the smallest that its releases promise."""
    return min((old.receipt.noise.total for old in ledger.noisy if old.receipt.noise is not None), default=None)


def check_spending(budget: Budget, ledger: Ledger, *, batch: bool = False) -> Spending:
    """Return what a release into a ledger spends; a ``batch`` of cohorts is about other people than those before it.

    Raises `PrivacyError` where that is more than is left, or where the ledger promises a smaller total or another δ.
    """
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
    spends = budget.per_release or budget.epsilon
    after = add_costs([*_costs(ledger.noisy), (rho_of(spends, budget.delta), batch)])
    if after > rho_of(budget.epsilon, budget.delta) * (1 + ROUNDING):
        raise PrivacyError(
            f"the ledger's total of ε = {budget.epsilon:g} does not allow another release of ε = {spends:g}",
            "Spend less (--epsilon), or stop here: more would break the promise of the releases before.",
        )
    return Spending(spends, budget.delta, budget.epsilon, after)
