"""How long an attack takes: 20 tables of 100 classes, whose people are known, each attack by itself.

    python benchmarks/bench_attack.py

Two arms × 50 levels in each of 20 tables, 20,000 people, an amount and a 0/1 metric. The tables are
published as they are, without any rule, so that attacks find something to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from kanab.inspection.attack.background import Background, place_people
from kanab.inspection.attack.count_bounds import bound_counts
from kanab.inspection.attack.differencing import find_differences, find_small_classes
from kanab.inspection.attack.examples.making import BOUGHT, SPEND, arm_axis, draw_spend, tabulate
from kanab.inspection.attack.published import AttackedRelease, Axis
from kanab.inspection.attack.reconstruct import find_by_least_squares, find_leverage, find_sparse_values
from kanab.inspection.attack.run import play_attacker
from kanab.inspection.attack.value_bounds import find_exposed_values
from kanab.inspection.attack.whole_numbers import find_whole_numbers

TABLES, LEVELS, PEOPLE, K = 20, 50, 9_000, 10


def made(seed: int = 1) -> tuple[tuple[AttackedRelease, ...], Background]:
    """A release of 20 tables, and everybody's classes."""
    rng = np.random.default_rng(seed)
    people = {"variant": rng.choice(["A", "B"], PEOPLE)}
    people |= {f"x{place:02d}": rng.integers(0, LEVELS, PEOPLE) for place in range(TABLES)}
    spend = draw_spend(rng, PEOPLE, 0.3)
    values = {BOUGHT: (spend > 0).astype(np.int64), SPEND: spend}
    tables = tuple(
        tabulate(f"variant/{name}", people, [arm_axis("variant", "AB"), Axis(name, tuple(range(LEVELS)))], values,
                 [("variant",)])
        for name in list(people)[1:]
    )  # fmt: skip
    releases = (AttackedRelease("all", tables),)
    return releases, place_people(people, releases)


def main() -> None:
    start = time.perf_counter()
    releases, background = made()
    print(f"{TABLES} tables × {2 * LEVELS} classes, {PEOPLE:,} people: made in {time.perf_counter() - start:.1f} s")
    alone: Sequence[Callable[[], object]] = (
        lambda: find_small_classes(releases, K),
        lambda: find_differences(releases, K),
        lambda: bound_counts(releases, K),
        lambda: find_exposed_values(releases, K),
        lambda: find_leverage(background, K),
        lambda: find_by_least_squares(background, K),
        lambda: find_sparse_values(background, K),
        lambda: find_whole_numbers(background, K),
    )
    names = "small classes, differences, bounds on counts, closed forms, leverage, least squares, sparse, whole numbers"
    for name, action in zip(names.split(", "), alone, strict=True):
        began = time.process_time()
        action()
        print(f"  {name:<18} {time.process_time() - began:6.2f} s of processor time", flush=True)
    wall, began = time.perf_counter(), time.process_time()
    play_attacker(releases, background, exact=True)
    print(f"all of them: {time.process_time() - began:.1f} s of processor time, {time.perf_counter() - wall:.1f} s")


if __name__ == "__main__":
    main()
