"""The attacker who knows everybody but one person, which ε is about: how often it can tell whether she took part."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kanab.inspection.attack.findings import Attempt, Finding
from kanab.inspection.attack.published import AttackedRelease
from kanab.privacy.epsilon.account import rho_of

ALL_BUT_ONE = "all but one"
TOLD = 0.95
"""Whoever can tell it so often has learnt it."""


def try_all_but_one(releases: Sequence[AttackedRelease]) -> Attempt:
    """Subtract everybody else, who is known, from every number with noise; what is left is one person and the noise.

    All numbers together tell her presence as well as a single one would in Gaussian noise with μ = √(2ρ): a guess
    between two cases that are as likely is right in Φ(μ / 2) of cases, and none is better.
    """
    alone = math.fsum(_rho(release) for release in releases if not release.cohorts)
    rho = alone + max((_rho(release) for release in releases if release.cohorts), default=0.0)
    right = (1 + math.erf(math.sqrt(2 * rho) / 2 / math.sqrt(2))) / 2
    does = (
        "Knows all people but one, and takes them out of every number. "
        f"Whether that one took part it guesses right in {100 * right:.1f} % of cases; a coin does in 50 %."
    )
    learnt = "whether one person took part, who is not known, can be told from all others"
    names = ", ".join(release.name for release in releases)
    return Attempt(ALL_BUT_ONE, does, (Finding(ALL_BUT_ONE, names, "", 1, learnt),) if right >= TOLD else ())


def _rho(release: AttackedRelease) -> float:
    return 0.0 if release.noise is None else rho_of(*release.noise)
