"""A shop whose plan has everything that a release with ε can hold, and its people."""

from typing import Any

import numpy as np
import pytest

from kanab.counted import Counted
from kanab.counting.dispatch import count
from kanab.plan.file import parse_plan
from kanab.privacy.epsilon import mechanism

SHOP = """
k = 10
[privacy]
epsilon = 3
[metrics.spend]
bounds = [0, 100]
resolution = 0.5
missing = "zero"
[metrics.orders]
bounds = [0, 9]
resolution = 1
missing = "zero"
[metrics.order]
ratio = ["spend", "orders"]
[metrics.before]
bounds = [-20, 50]
resolution = 1
missing = "zero"
[metrics.latency]
bounds = [0, 600]
resolution = 1
bins = 4
missing = "exclude"
[metrics.cancelled]
kind = "binary"
missing = "zero"
[covariates]
tier = { levels = [1, 2, 3] }
device = { levels = ["phone", "desktop", "other"] }
age = { bins = [30, 50] }
[experiments.checkout]
arms = { A = 1, B = 1 }
salt = "x"
adjust = ["tier", "device", "age", "before"]
segments = ["tier"]
quantiles = { latency = [0.5] }
interactions = ["banner"]
[experiments.banner]
arms = { off = 1, on = 1 }
"""

SMALL = """
[privacy]
epsilon = 3
[metrics.spend]
bounds = [0, 7]
resolution = 1
missing = "zero"
[covariates]
tier = { levels = [1, 2] }
[experiments.variant]
arms = { A = 1, B = 1 }
adjust = ["tier"]
segments = ["tier"]
"""


def people(n: int = 4000, seed: int = 1) -> dict[str, Any]:
    """Rows of the shop."""
    rng = np.random.default_rng(seed)
    spend = np.round(rng.exponential(10, n)) / 2
    return {
        "checkout": rng.choice(["A", "B"], n),
        "banner": rng.choice(["off", "on"], n),
        "spend": spend,
        "orders": np.ceil(spend / 10),
        "before": np.round(rng.normal(5, 10, n)),
        "latency": np.where(rng.random(n) < 0.1, np.nan, np.round(rng.exponential(200, n))),
        "cancelled": (rng.random(n) < 0.3).astype(int),
        "tier": rng.integers(1, 4, n),
        "device": rng.choice(["phone", "desktop", "tv"], n),
        "age": rng.integers(18, 80, n),
    }


def counted(rows: dict[str, Any], text: str = SHOP) -> Counted:
    """Rows as counted by the plan of the shop, or by another."""
    return count(rows, parse_plan(text))


def few(n: int = 400) -> dict[str, Any]:
    """Rows of the small plan."""
    return {
        "variant": ["A", "B"] * (n // 2),
        "tier": [1, 1, 2, 2] * (n // 4),
        "spend": [0, 7, 3, 1, 1] * (n // 5),
    }


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw noise of 0: what leaves is what was counted."""
    monkeypatch.setattr(mechanism, "draw", lambda size, _: [0] * size)
