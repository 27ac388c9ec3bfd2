"""Readouts to be shown: a real one, and small ones made for a purpose."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kanab.analysis.methods import METHODS

Readout = dict[str, Any]
TABLES = [table for method in METHODS for table in method.tables]
HILLSTROM = json.loads((Path(__file__).parent / "hillstrom.json").read_text("utf-8"))

PLAIN: Readout = {
    "metric": "spend", "control": "A", "arm": "B", "method": "difference", "covariates": [],
    "mean_control": 10.0, "mean_arm": 10.5, "estimate": 0.5, "se": 0.1, "se_population": 0.1,
    "interval": [0.3, 0.7], "df": 500.0, "t": 5.0, "p": 1e-6, "p_adjusted": 1e-6,
    "relative": 0.05, "relative_interval": [0.03, 0.07], "test": "welch", "role": None, "better": "higher",
    "early": False, "sequential": None, "sample_size_gain": None, "p_usual_adjusted": None,
}  # fmt: skip
UNTESTABLE = {
    "se": 0.0, "se_population": 0.0, "interval": None, "df": None, "t": None, "p": None, "p_adjusted": None,
    "relative": None, "relative_interval": None,
}  # fmt: skip


@pytest.fixture(scope="session")
def published() -> Readout:
    """The e-mail experiment: three arms, two metrics, one adjustment, two segments; not to be changed."""
    return copy.deepcopy(HILLSTROM)


@pytest.fixture
def hillstrom() -> Readout:
    """The same, to be changed at will."""
    return copy.deepcopy(HILLSTROM)


@pytest.fixture
def effect() -> Callable[..., Readout]:
    """A plain effect of B on spend, changed as asked, with the verdict that its p-values give."""

    def make(**changes: Any) -> Readout:
        row = copy.deepcopy(PLAIN) | changes
        return {"verdict": decided(row), "carries_verdict": True} | row

    return make


def decided(row: Readout, alpha: float = 0.05) -> str:
    """Return what the p-values of a row decide, as an analysis does."""
    if row["p"] is None:
        return "untestable"
    if row["p_adjusted"] < alpha:
        return "up" if row["estimate"] > 0 else "down"
    return "hint" if row["p"] < alpha else "unclear"


@pytest.fixture
def untestable() -> Readout:
    """What an effect has where nothing varies."""
    return dict(UNTESTABLE)


@pytest.fixture
def small() -> Callable[..., Readout]:
    """Arms A and B of 500 people each, with these effects."""

    def make(*effects: Readout, **changes: Any) -> Readout:
        ratio = {
            "chi2": 0.0, "df": 1, "p": 1.0, "residuals": {"A": 0.0, "B": 0.0}, "shares": {"A": 0.5, "B": 0.5},
            "declared": True,
        }  # fmt: skip
        privacy = {
            "k": 10, "effective_k": None, "smallest_class": 500, "classes": 2, "merged": {}, "left_out": {},
            "deviations": [], "audit": "passed", "chained": True,
        }  # fmt: skip
        made = {
            "experiment": "checkout", "people": 1000, "k": 10, "control": "A", "arms": {"A": 500, "B": 500},
            "confidence": 0.95, "alternative": "two-sided", "correction": "holm", "sample_ratio": ratio,
            "effects": list(effects) or [copy.deepcopy(PLAIN) | {"verdict": "up", "carries_verdict": True}],
            "privacy": privacy, "notes": [],
        }  # fmt: skip
        return made | {table: [] for table in TABLES} | changes

    return make


@pytest.fixture
def crowded(small: Callable[..., Readout], effect: Callable[..., Readout]) -> Readout:
    """Eight arms, ten metrics of very different sizes, an adjustment."""
    arms = ["A", *(f"variant {number}" for number in range(1, 8))]
    effects = [
        effect(
            metric=f"metric {place}", arm=arm, method=method, covariates=covariates,
            carries_verdict=method == "adjusted",
            **{name: PLAIN[name] * 10.0 ** (place - 5) for name in ("estimate", "se", "mean_control", "mean_arm")},
            interval=[end * 10.0 ** (place - 5) for end in PLAIN["interval"]],
        )
        for place in range(10)
        for method, covariates in (("difference", []), ("adjusted", ["tier"]))
        for arm in arms[1:]
    ]  # fmt: skip
    ratio = {
        "chi2": 1.0, "df": 7, "p": 0.99, "residuals": dict.fromkeys(arms, 0.1), "shares": dict.fromkeys(arms, 1 / 8),
        "declared": False,
    }  # fmt: skip
    return small(*effects, arms=dict.fromkeys(arms, 500), people=4000, sample_ratio=ratio)
