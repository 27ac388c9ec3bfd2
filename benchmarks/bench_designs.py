"""How often intervals hold the truth, and tests alarm for nothing, in designs beyond people in two arms.

Receiving (Fieller's set, and the delta method's interval) and clusters of 3 to 59 people.
Beside each stands what one would do without the design, as a control: it has to miss.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kanab import count_columns
from kanab.stats import against_control, cluster_means, plain_means, received_effect

Answers = dict[str, tuple[bool, bool]]
"""By method: whether the interval holds the truth, and whether the test alarms at 5 %."""

ARMS = np.array(["A", "B"])


def held(interval: tuple[float, float] | None, truth: float) -> bool:
    """Return whether an interval holds the truth; one that cannot be given misses."""
    return interval is not None and interval[0] <= truth <= interval[1]


def plain(arm: np.ndarray, values: np.ndarray, truth: float) -> tuple[bool, bool]:
    """Compare the means of two groups of people."""
    effect = against_control(plain_means(count_columns({"arm": arm, "y": values}, arm="arm", metrics=["y"])))
    return held(effect.interval, truth), effect.p is not None and effect.p < 0.05


def receiving(rng: np.random.Generator, effect: float, compliers: float) -> Answers:
    """2,000 people, some of whom receive because of their arm, a tenth always; who receives differs from the others."""
    arm, kind = rng.integers(0, 2, 2000), rng.random(2000)
    always, moved = kind < 0.1, (kind >= 0.1) & (kind < 0.1 + compliers)
    got = always | (moved & (arm == 1))
    y = np.round(10 + 4 * always + 2 * moved + effect * got + rng.normal(0, 5, 2000), 1)
    rows = {"arm": ARMS[arm], "y": y, "got": got.astype(int)}
    table = count_columns(rows, arm="arm", metrics=["y", "got"], products=[("y", "got")], resolution={"y": 0.1})
    answer = received_effect(table, "y", "got")
    sets = answer.ranges or ()
    return {
        "Fieller": (any(held(each, effect) for each in sets), not any(held(each, 0.0) for each in sets)),
        "delta method": (held(answer.interval, effect), not held(answer.interval, 0.0)),
        "control: those who received": plain(np.where(got, "B", "A"), y, effect),
    }


def clusters(rng: np.random.Generator, effect: float, number: int) -> Answers:
    """Clusters of 3 to 59 people that differ by half as much as their people do."""
    sizes = rng.integers(3, 60, number)
    shop, arm = np.repeat(np.arange(number), sizes), rng.permutation(np.arange(number) % 2)
    y = np.round(20 + (rng.normal(0, 2, number) + effect * arm)[shop] + rng.normal(0, 4, len(shop)), 1)
    sums = {"arm": ARMS[arm], "y": np.round(np.bincount(shop, y), 1), "people": sizes}
    table = count_columns(
        sums, arm="arm", metrics=["y", "people"], products=[("y", "people")], resolution={"y": 0.1}
    )  # fmt: skip
    answer = against_control(cluster_means(table, "y"))
    return {
        "clusters": (held(answer.interval, effect), answer.p is not None and answer.p < 0.05),
        "control: people": plain(ARMS[arm[shop]], y, effect),
    }


CASES: dict[str, tuple[Callable[..., Answers], float, Any]] = {
    "receiving, 40 % because of their arm": (receiving, 3.0, 0.4),
    "receiving, 5 % because of their arm": (receiving, 3.0, 0.05),
    "20 clusters": (clusters, 2.0, 20),
    "50 clusters": (clusters, 2.0, 50),
}


def main() -> None:
    """Print a table of coverage and alarms."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=2000)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    asked = parser.parse_args()
    times = asked.times
    print(f"{times} experiments a cell; standard error of a share of 0.05: {math.sqrt(0.05 * 0.95 / times):.4f}")
    for name, (draw, effect, argument) in CASES.items():
        if asked.only not in name:
            continue
        began, answers = time.perf_counter(), {}
        for truth in (0.0, effect):
            rng = np.random.default_rng(16)
            answers[truth] = [draw(rng, truth, argument) for _ in range(times)]
        for method in answers[0.0][0]:
            alarms = sum(answer[method][1] for answer in answers[0.0]) / times
            none, some = (sum(answer[method][0] for answer in answers[truth]) / times for truth in (0.0, effect))
            print(f"{name}, {method}: alarms {alarms:.3f}, coverage {none:.3f} without an effect, {some:.3f} with one")
        print(f"  {(time.perf_counter() - began) / times / 2 * 1000:.1f} ms each", flush=True)


if __name__ == "__main__":
    main()
