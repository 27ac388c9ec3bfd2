"""Example data: the paper's eighteen people and their classes, and a made-up shop."""

from typing import Any

import numpy as np

from kanab.counting.columns import Squares, count_columns
from kanab.tally.tally import Tally

_MINUTES = (
    "1.035051833 2.052761778 0.818065309 0.445755940 2.192969747 1.351287088 0.690041547 1.965163288 0.885217757 "
    "0.836158231 0.224290470 2.689670150 0.286027328 0.668558807 2.138392457 0.300483978 0.816659567 2.406463861"
)


def eighteen_rows(*, altered: bool = False) -> dict[str, list[Any]]:
    """Return the paper's Table 1; altered: user 9 has moved from level 3 to level 2 (Table 6A)."""
    tier = [1, 2, 3] * 6
    if altered:
        tier[8] = 2
    minutes = [float(text) for text in _MINUTES.split()]
    return {"treatment": ["A"] * 9 + ["B"] * 9, "tier": tier, "minutes": minutes}


def eighteen(*, altered: bool = False) -> Tally:
    """Return the paper's Tables 2 and 3 (or 6A): six classes and two sums of squares.

    >>> eighteen().show()
    treatment  tier  people    Σ minutes
    ─────────  ────  ──────  ───────────
    A             1       3   2.17084932
    A             2       3  6.210894813
    A             3       3  3.054570154
    B             1       3  1.422669537
    B             2       3  1.709508844
    B             3       3  7.234526468
    <BLANKLINE>
    treatment        Σ minutes²
    ─────────  ────────────────
    A          17.9098200898989
    B          19.6335889126438
    <BLANKLINE>
    """
    return count_eighteen(eighteen_rows(altered=altered))


def count_eighteen(rows: dict[str, list[Any]], *, squares: Squares = "arm") -> Tally:
    """Count rows of the paper's kind into a tally on its grid of nine decimals."""
    return count_columns(
        rows,
        arm="treatment",
        covariates=["tier"],
        metrics=["minutes"],
        bounds={"minutes": (0, 100)},
        resolution={"minutes": 1e-9},
        squares=squares,
    )


def shop_rows(people: int = 40_000, seed: int = 7) -> dict[str, Any]:
    """Return the rows of a made-up shop: a new checkout (B) that helps on phones and does nothing elsewhere.

    >>> rows = shop_rows(1_000)
    >>> sorted(rows), len(rows["spend"])
    (['bought', 'country', 'device', 'prior_spend', 'spend', 'tier', 'variant'], 1000)
    """
    rng = np.random.default_rng(seed)
    variant = rng.choice(["A", "B"], people)
    device = rng.choice(["phone", "desktop", "tablet"], people, p=[0.55, 0.38, 0.07])
    country = rng.choice(["DE", "FR", "ES", "IT", "PT", "MT"], people, p=[0.4, 0.25, 0.2, 0.1, 0.049, 0.001])
    tier = rng.choice([1, 2, 3, 4, 5], people, p=[0.3, 0.3, 0.2, 0.15, 0.05])
    prior = np.round(rng.gamma(1.5, 20.0, people) * tier / 2, 2)
    rate = 0.06 + 0.02 * tier + 0.025 * ((variant == "B") & (device == "phone"))
    bought = rng.random(people) < rate
    spend = np.round(bought * np.minimum(500, 10 + 0.4 * prior + rng.gamma(2.0, 12.0, people)), 2)
    return {
        "variant": variant,
        "device": device,
        "country": country,
        "tier": tier,
        "prior_spend": prior,
        "bought": bought.astype(int),
        "spend": spend,
    }


def experiments_rows(experiments: int = 20, people: int = 40_000, seed: int = 7) -> dict[str, Any]:
    """Return people who are in many experiments at once: two of them, in the middle, get in each other's way.

    >>> rows = experiments_rows(4, 1_000)
    >>> sorted(rows)
    ['bought', 'device', 'revenue', 'test_1', 'test_2', 'test_3', 'test_4']
    """
    rng = np.random.default_rng(seed)
    arms = {f"test_{number}": rng.choice(["off", "on"], people) for number in range(1, experiments + 1)}
    first, second = (f"test_{max(1, experiments // 2 + step)}" for step in (0, 1))
    both = (arms[first] == "on") & (arms.get(second, arms[first]) == "on")
    bought = rng.random(people) < 0.12 + 0.01 * (arms["test_1"] == "on")
    revenue = np.round(bought * np.maximum(0, rng.gamma(2.0, 12.0, people) - 12 * both), 2)
    return {
        **arms,
        "device": rng.choice(["phone", "desktop", "tablet"], people, p=[0.55, 0.38, 0.07]),
        "bought": bought.astype(int),
        "revenue": revenue,
    }
