"""How often do checks of balance ring although arms are drawn at random, and how often if they are not?

Three cases: whole experiments through the privacy gate, whose rare levels are merged; one look after the other,
read at any time; and real imbalances, to see what the family of checks finds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kanab import count, release
from kanab.description import Mean
from kanab.errors import PrivacyError
from kanab.stats import check_balance
from kanab.stats.balance import BALANCE_ALARM, log_evidence_of_imbalance

TIERS = np.array([0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.015, 0.005])
LIMITS = (0.05, 0.01, BALANCE_ALARM)


def through_the_gate(
    rng: np.random.Generator, runs: int, people: int = 1500, shift: float = 0.0
) -> NDArray[np.float64]:
    """Return the smallest corrected p of every experiment: 10/90, eight and three levels, 30 % without a value.

    ``shift`` is the share of the smaller arm's people who are moved to the next tier.
    """
    smallest = []
    while len(smallest) < runs:
        arm = np.where(rng.random(people) < 0.1, "B", "A")
        tier = rng.choice(len(TIERS), people, p=TIERS)
        moved = (arm == "B") & (rng.random(people) < shift)
        rows = {
            "arm": arm,
            "tier": np.minimum(tier + moved, len(TIERS) - 1),
            "device": rng.choice(["phone", "desktop", "tablet"], people, p=[0.7, 0.25, 0.05]),
            "y": np.where(rng.random(people) < 0.3, np.nan, rng.random(people) < 0.4),
        }
        counted = count(
            rows,
            arm="arm",
            metrics=[Mean("y", missing="exclude")],
            adjust=["tier", "device"],
            segments=["tier", "device"],
        )
        try:
            tables = release(counted).tables
        except PrivacyError:
            continue
        smallest.append(min(check.p_adjusted for check in check_balance(list(tables.values()), "arm")))
    return np.array(smallest)


def at_any_time(rng: np.random.Generator, runs: int, true: float, planned: float, levels: int) -> NDArray[np.float64]:
    """Return the smallest p over 40 looks of every experiment, 500 people a look."""
    cells = np.outer([true, 1 - true], np.full(levels, 1 / levels)).ravel()
    shares = np.array([planned, 1 - planned])
    most = []
    for _ in range(runs):
        steps = rng.multinomial(500, cells, 40).reshape(40, 2, levels).cumsum(axis=0).astype(np.float64)
        most.append(max(log_evidence_of_imbalance(people, shares, 10_000) for people in steps))
    return np.exp(-np.maximum(0.0, most))


def line(name: str, p: NDArray[np.float64]) -> str:
    """Return how often p was below each limit."""
    return f"{name:58}" + "".join(f"  < {limit:g}: {np.mean(p < limit):.4f}" for limit in LIMITS)


def main(runs: int = 4000) -> None:
    """Print all cases."""
    rng = np.random.default_rng(11)
    cases: list[tuple[str, Callable[[], NDArray[np.float64]]]] = [
        ("through the gate, arms drawn at random", lambda: through_the_gate(rng, runs)),
        ("the same, a fifth of the small arm one tier up", lambda: through_the_gate(rng, runs // 20, shift=0.2)),
    ]
    for true, planned in ((0.5, 0.5), (0.1, 0.1), (0.1, 0.5)):
        for levels in (2, 10):
            name = f"40 looks, {levels} levels, {true:.0%} in B, planned {planned:.0%}"
            cases.append((name, lambda t=true, p=planned, n=levels: at_any_time(rng, runs // 4, t, p, n)))  # type: ignore[misc]
    for name, case in cases:
        print(line(name, case()), flush=True)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
