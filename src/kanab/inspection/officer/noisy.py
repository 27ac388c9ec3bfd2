"""What an officer reads of releases with ε: the promise, the mechanism, the noise, what was spent and is left."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kanab.plan.budget import ROUNDING
from kanab.privacy.epsilon.accountant import spent_rho
from kanab.privacy.epsilon.rho import epsilon_of, rho_of
from kanab.privacy.ledger import Ledger

Plain = dict[str, Any]

GATE = "adds noise to every number"
SEALED = {"Seal": "adds noise to every number; then the key is erased", "Sealed batch": "every number with noise"}
"""What happens otherwise at a seal with ε."""

COVERED = (
    "tables whose overlap is not known",
    "batches whose overlap was not evaluated",
    "who has a value at all",
    "changes that cancel out",
    "who counts as a person",
)
"""Risks of exact numbers that noise is the answer to, or that it has in another form."""

RISKS = (
    (
        "who counts as a person",
        "ε is about one person as the source names people. One human with several accounts or devices has several "
        "times the ε.",
        "Count by the best identifier of a person that you have (--unit).",
    ),
    (
        "what the curator sees",
        "Noise is added after counting: errors and counts on the curator's screen are exact.",
        "Let only those count who may see the rows.",
    ),
    (
        "what is true of many",
        "Noise hides whether one person took part, not what many people have in common; showing that is the purpose.",
        "Leave out covariates about which such a statement would do harm.",
    ),
)
"""What ε does not cover, and what can be done about it."""

TESTS = ("tests/unit/privacy/epsilon/test_noisy_release.py", "tests/unit/privacy/epsilon/test_accountant.py")
"""Which of Kanab's own tests prove the rules behind each question."""

Told = dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]
"""Of every question the rules that bear on it, what holds, and what does not."""

QUESTIONS: Told = {
    "singling out": (
        ("noise", "declared", "receipt", "account", "ledger"),
        (
            "Every number carries noise of a known scale, so that one person more or less can hardly be noticed.",
            "That holds also against somebody who knows all other people.",
        ),
        ("It holds for one person as the source names people; a household is several.",),
    ),
    "linkability": (
        ("noise", "account", "ledger"),
        ("There are no records of people and no identifiers, and what several releases tell adds up in the ledger.",),
        ("What left elsewhere about the same people, by another ledger or tool, is not added up.",),
    ),
    "inference": (
        ("noise", "declared", "receipt"),
        ("Whatever is worked out of these numbers about a person would come out much the same without that person.",),
        ("What is true of a whole class, such as its average, can be read, and is the purpose.",),
    ),
}


def all_noisy(releases: Sequence[Plain]) -> bool:
    """Return whether every number of these releases carries noise."""
    return all("noise" in release for release in releases)


def claim(releases: Sequence[Plain]) -> str:
    """Say what releases with ε promise together."""
    noises = [release["noise"] for release in releases]
    spent, total = max(noise["spent"] for noise in noises), max(noise["total"] for noise in noises)
    return f"differential privacy at ε = {spent:.3g} of {total:g} in all, δ = {max(n['delta'] for n in noises):g}"


def figures(release: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the promise of a release in figures, term by term."""
    noise = release["noise"]
    factor = math.exp(noise["epsilon"])
    return [
        ("Promise", f"differential privacy at ε = {noise['epsilon']:g} and δ = {noise['delta']:g}"),
        (
            "What it means",
            f"whether any one person took part changes the chance of any result by at most a factor of {factor:.3g}, "
            f"but for one chance in {1 / noise['delta']:,.0f}",
        ),
        ("Mechanism", f"{noise['mechanism']} noise, drawn once, added to whole numbers before anything else is done"),
        *_account(release),
        *((f"Noise in {table}", _scales(scales)) for table, scales in noise["scales"].items()),
        (
            "Classes",
            f"{release['classes']:,}, merged until counts with noise are at least k = {release['k']}, and more",
        ),
    ]


def _account(release: Mapping[str, Any]) -> list[tuple[str, str]]:
    noise = release["noise"]
    if release["previous"] is None:
        return [("Spent", f"ε = {noise['epsilon']:g}; in no ledger, nobody adds up what else was spent")]
    return [
        ("Spent", f"ε = {noise['spent']:.3g} of {noise['total']:g} by all releases of the ledger up to this one"),
        ("Left", left_words(noise["left"])),
    ]


def left_words(left: float) -> str:
    """Say what is left of a total, rounded down.

    >>> left_words(0.8279), left_words(0.0002)
    ('ε = 0.827 for a further release about these people', 'nothing')
    """
    whole = math.floor(1000 * left) / 1000
    return f"ε = {whole:g} for a further release about these people" if whole else "nothing"


def spent_in(ledger: Ledger) -> Plain | None:
    """Return what the releases of a ledger have spent together, added up again; None where none has an ε."""
    last = ledger.noisy[-1].receipt.noise if ledger.noisy else None
    if last is None:
        return None
    rho = spent_rho(ledger.noisy)
    budget = ledger.noisy[-1].plan.budget
    stores = 1 if budget is None else budget.stores  # that share the total
    rest = rho_of(last.total, last.delta) / stores - rho
    left = epsilon_of(rest, last.delta) if rest > ROUNDING else 0.0
    spent = epsilon_of(rho, last.delta)
    return {
        "releases": len(ledger.noisy), "total": last.total, "delta": last.delta, "spent": spent, "left": left,
    }  # fmt: skip


def spent_sentence(noise: Plain) -> str:
    """Say what a ledger has spent."""
    many = f"its {noise['releases']:,} releases with ε have" if noise["releases"] > 1 else "its release with ε has"
    return (
        f"Added up again, {many} spent ε = {noise['spent']:.3g} of {noise['total']:g} at δ = {noise['delta']:g}. "
        f"Left: {left_words(noise['left'])}."
    )


def _scales(scales: Plain) -> str:
    return "standard deviations: " + "; ".join(f"{value:.3g} in {label}" for label, value in scales.items())
