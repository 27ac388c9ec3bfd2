"""Releases of made-up experiments: regions of one, and many."""

from collections.abc import Callable

import numpy as np
import pytest

import kanab as kb
from kanab.privacy.release import Release

Maker = Callable[..., Release]


def made_up(seed: int, effect: float, experiment: str = "checkout", arms: tuple[str, ...] = ("A", "B")) -> Release:
    """Return a release of 2,000 people; every arm but the first has the effect."""
    rng = np.random.default_rng(seed)
    arm = rng.choice(arms, 2000)
    spend = (rng.gamma(2, 5, 2000) + effect * (arm != arms[0])).round(2)
    rows = {experiment: arm, "spend": spend, "bought": rng.random(2000) < 0.2}
    return kb.release(kb.count(rows, arm=experiment, metrics=[kb.Mean("spend", bounds=(0, 80)), "bought"]))


@pytest.fixture(scope="session")
def make_release() -> Maker:
    """Return what makes releases."""
    return made_up


@pytest.fixture(scope="session")
def regions() -> dict[str, Release]:
    """Return four regions of one experiment."""
    effects = {"de": 1, "fr": 2, "nl": 0, "es": 1}
    return {name: made_up(seed, effect) for seed, (name, effect) in enumerate(effects.items())}


@pytest.fixture(scope="session")
def folder() -> dict[str, Release]:
    """Return twelve experiments, two of which have an effect."""
    return {f"e{n}": made_up(100 + n, 2.0 if n < 2 else 0.0, f"e{n}") for n in range(12)}
