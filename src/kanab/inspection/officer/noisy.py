"""What an officer reads of releases with ε: the promise, the mechanism, the noise, what was spent and is left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

Plain = dict[str, Any]

COVERED = (
    "tables whose overlap is not known",
    "invented people",
    "knowledge from elsewhere",
    "changes that cancel out",
)
"""Risks of exact numbers that noise is the answer to."""

TESTS = ("tests/unit/privacy/epsilon/test_door.py", "tests/unit/privacy/epsilon/test_accountant.py")
"""Which of Kanab's own tests prove the rules behind each question."""

QUESTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
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
"""Of every question the rules that bear on it, what holds, and what does not."""


def all_noisy(releases: Sequence[Plain]) -> bool:
    """Return whether every number of these releases carries noise."""
    return all("noise" in release for release in releases)


def claim(releases: Sequence[Plain]) -> str:
    """Say what releases with ε promise together.

    >>> claim([{"noise": {"epsilon": 0.5, "delta": 1e-6, "spent": 0.5, "total": 1.0}}])
    'differential privacy at ε = 0.5 of 1 in all, δ = 1e-06'
    """
    noises = [release["noise"] for release in releases]
    spent, total = max(noise["spent"] for noise in noises), max(noise["total"] for noise in noises)
    return f"differential privacy at ε = {spent:.3g} of {total:g} in all, δ = {max(n['delta'] for n in noises):g}"


def figures(release: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the promise of a release in figures, term by term."""
    noise = release["noise"]
    factor = math.exp(noise["epsilon"])
    left = math.floor(1000 * noise["left"]) / 1000
    return [
        ("Promise", f"differential privacy at ε = {noise['epsilon']:g} and δ = {noise['delta']:g}"),
        (
            "What it means",
            f"whether any one person took part changes the chance of any result by at most a factor of {factor:.3g}, "
            f"but for one chance in {1 / noise['delta']:,.0f}",
        ),
        ("Mechanism", f"{noise['mechanism']} noise, drawn once, added to whole numbers before anything else is done"),
        ("Spent", f"ε = {noise['spent']:.3g} of {noise['total']:g} by all releases of the ledger up to this one"),
        ("Left", f"ε = {left:g} for a further release about these people" if left else "nothing"),
        *((f"Noise in {table}", _scales(scales)) for table, scales in noise["scales"].items()),
        (
            "Classes",
            f"{release['classes']:,}, merged until counts with noise are at least k = {release['k']}, and more",
        ),
    ]


def _scales(scales: Plain) -> str:
    return "standard deviations: " + "; ".join(f"{value:.3g} in {label}" for label, value in scales.items())
