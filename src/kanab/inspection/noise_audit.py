"""The auditor of releases with ε: the rules that hold there, and the account, added up again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from kanab.errors import LedgerError, SourceError
from kanab.inspection.checks import Check
from kanab.privacy.epsilon.account import epsilon_of, rho_of
from kanab.privacy.epsilon.accountant import spent_rho
from kanab.privacy.epsilon.noise_receipt import NoiseReceipt
from kanab.privacy.epsilon.tables import stated_noise
from kanab.privacy.epsilon.witness import check_witness
from kanab.privacy.ledger import Ledger
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict

_CLOSE = 1e-6
"""A share by which two sums of floats may differ."""


def check_noise(release: Release, noise: NoiseReceipt) -> tuple[Check, ...]:
    """Check every rule for one release with ε. Rules about exact numbers say nothing about numbers with noise."""
    try:
        stated_noise(release.plan, noise)
        implied = all(table.noise is not None for table in release.tables.values())
    except SourceError:
        implied = False
    receipt = release.receipt
    exact = [
        *receipt.clamped.values(), *receipt.missing.values(), receipt.excluded, receipt.outside,
        receipt.effective_k, receipt.narrowest, receipt.homogeneous, *receipt.shapes,
    ]  # fmt: skip
    undeclared = sum(not metric.declared for metric in release.plan.counted_metrics)
    undeclared += sum(experiment.arms is None for experiment in release.plan.experiments)
    return (
        Check(
            "noise", implied, f"{noise.mechanism} noise in every number, of the scales that ε = {noise.epsilon:g}, "
            f"δ = {noise.delta:g} and the plan imply", "Do not use it.",
        ),
        Check(
            "declared", not undeclared, "arms, levels and bounds are those of the plan, not of the data",
            "Declare them, and release it again.", undeclared,
        ),
        Check(
            "receipt", not any(exact), "the receipt holds no exact number about people", "Do not use it.",
            sum(map(bool, exact)),
        ),
    )  # fmt: skip


def check_spent(release: Release, noise: NoiseReceipt, ledger: Ledger | None) -> Check:
    """Add up what was spent until a release, and compare it with what its receipt states."""
    if not release.chained:
        return Check("account", None, "it is in no ledger, so nobody adds up what else was spent about these people")
    if ledger is None:
        return Check("account", None, "its ledger was not given, so what was spent before it is not added up")
    digest = release_to_dict(release)["hash"]
    until = []
    for entry, other in zip(ledger.entries, ledger.hashes, strict=True):
        until += [entry] if isinstance(entry, Release) else []
        if other == digest:
            break
    else:
        return Check("account", False, "what was spent stands in its ledger", "The ledger is another one.")
    noises = [entry.receipt.noise for entry in until if entry.receipt.noise is not None]
    if len(noises) < len(until):
        return _MIXED
    rho = spent_rho(until)
    spent = epsilon_of(rho, noise.delta)
    kept = all(later.total <= earlier.total and later.delta == earlier.delta for earlier, later in pairwise(noises))
    holds = kept and _close(min(spent, noise.total), noise.spent) and rho <= _most_rho(release) * (1 + _CLOSE)
    return Check(
        "account", holds, f"added up again, ε = {spent:.3g} of {noise.total:g} was spent when it was released",
        "Do not release more about these people: the promise is broken, or the receipt is not true.",
    )  # fmt: skip


def check_together(releases: Iterable[Release]) -> Iterator[Check]:
    """Add up what several releases spend about people who may be the same, where any has an ε."""
    apart = {release_to_dict(release)["hash"]: release for release in releases}
    noises = [release.receipt.noise for release in apart.values() if release.receipt.noise is not None]
    if len(apart) < 2 or not noises:
        return
    one_ledger = (
        all(release.chained for release in apart.values()) and len({r.receipt.ledger for r in apart.values()}) == 1
    )
    if len(noises) < len(apart):
        says = "some are with ε and some without: if they are about the same people, ε promises nothing"
        yield _MIXED if one_ledger else Check("account", None, says)
        return
    delta, total = max(noise.delta for noise in noises), min(noise.total for noise in noises)
    rho = spent_rho(apart.values())
    says = f"together they spend ε = {epsilon_of(rho, delta):.3g} at δ = {delta:g}"
    if not one_ledger:
        yield Check("account", None, f"{says}, if they are about the same people; no one ledger has them all")
        return
    most = min(_most_rho(release) for release in apart.values())
    yield Check(
        "account", rho <= most * (1 + _CLOSE), f"{says}, which is within their total of {total:g}",
        "Do not release more about these people: the promise is broken.",
    )  # fmt: skip


_MIXED = Check(
    "account",
    False,
    "a ledger is with ε or without, for beside exact numbers about the same people ε promises nothing",
    "Do not release more into it: begin one ledger with ε, about other people.",
)
"""What is wrong with ledgers of before that took both kinds."""


def _most_rho(release: Release) -> float:
    """Return the ρ that a release's ledger may spend about one person: its total, or its part of it."""
    noise, budget = release.receipt.noise, release.plan.budget
    assert noise is not None
    return rho_of(noise.total, noise.delta) / (1 if budget is None else budget.stores)


def check_newest(ledger: Ledger) -> Check | None:
    """Compare a ledger with ε with how far it had come on this machine; None for one without."""
    if not ledger.noisy:
        return None
    try:
        check_witness(ledger.hashes, ledger.name)
    except LedgerError as problem:
        return Check("newest copy", False, "no entry is missing of those that this machine has seen", problem.remedy)
    return Check("newest copy", True, "no entry is missing of those that this machine has seen")


def _close(first: float, second: float) -> bool:
    return abs(first - second) <= _CLOSE * max(first, second, 1.0)
