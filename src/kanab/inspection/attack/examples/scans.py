"""A bad example of a scan: no table, only F of every pair."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.examples.making import BadExample
from kanab.inspection.attack.published import AttackedRelease, ShownStatistics

PEOPLE, EXPERIMENTS = 300, 40


def scan_statistics(name: str) -> BadExample:
    """Make the F, to two digits, of all pairs of forty experiments on three hundred people."""
    rng = np.random.default_rng(17)
    arms = {f"experiment {i + 1}": rng.choice(["A", "B"], PEOPLE) for i in range(EXPERIMENTS)}
    bought = (rng.random(PEOPLE) < 0.3).astype(np.int64)
    pairs = tuple(combinations(arms, 2))
    f = np.array([float(f"{_pooled_f(arms[a] == 'B', arms[b] == 'B', bought):.1e}") for a, b in pairs])
    everybody = np.full(len(pairs), PEOPLE)
    releases = (AttackedRelease("scan", (), statistics=(ShownStatistics("bought", pairs, f, everybody, 0.05),)),)
    story = (
        f"A scan of all {len(pairs)} pairs of {EXPERIMENTS} experiments on {PEOPLE} people shows no table, no mean and "
        "no effect, only F to two digits. The attacker knows everybody's arms."
    )
    return BadExample(name, story, releases, {**arms, "bought": bought}, place_people(arms, releases))


def _pooled_f(first: np.ndarray, second: np.ndarray, values: np.ndarray) -> float:
    """Return the F of whether effects add up, of two arms by two."""
    classes = [values[(first == a) & (second == b)] for a in (False, True) for b in (False, True)]
    means, sizes = np.array([part.mean() for part in classes]), np.array([len(part) for part in classes])
    rest = sum(float(np.sum((part - part.mean()) ** 2)) for part in classes) / (len(values) - 4)
    return float((means @ [1, -1, -1, 1]) ** 2 / np.sum(1 / sizes) / rest)
