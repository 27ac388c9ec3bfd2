"""How long an attack takes: 20 tables of 100 classes, whose people are known with their values, each attack by itself.

    python benchmarks/bench_attack.py

Two arms × 50 levels in each of 20 tables, 9,000 people, an amount and a 0/1 metric. The tables are
published as they are, without any rule, so that attacks find something to do.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.bad_releases import BOUGHT, SPEND, arm_axis, draw_spend, tabulate

from kanab.inspection.attack.differencing import find_differences, find_small_classes
from kanab.inspection.attack.known_people import KnownPeople, place_people
from kanab.inspection.attack.linked_tables import find_linked
from kanab.inspection.attack.published import AttackedRelease, Axis
from kanab.inspection.attack.reconstruct import (
    find_by_least_squares,
    find_contributors,
    find_leverage,
    several_metrics,
)
from kanab.inspection.attack.run import play_attacker
from kanab.inspection.attack.value_bounds import find_exposed_values
from kanab.inspection.attack.whole_numbers import find_whole_numbers

TABLES, LEVELS, PEOPLE, K = 20, 50, 9_000, 10


def made(seed: int = 1) -> tuple[tuple[AttackedRelease, ...], KnownPeople]:
    """A release of 20 tables, and everybody's classes and values."""
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
    known = {"bought": (spend > 0).astype(float), "spend": spend / 100}
    return (AttackedRelease("all", tables),), KnownPeople(people, known)


def main() -> None:
    start = time.perf_counter()
    releases, known = made()
    background = place_people(known, releases)
    print(f"{TABLES} tables × {2 * LEVELS} classes, {PEOPLE:,} people: made in {time.perf_counter() - start:.1f} s")
    alone: Sequence[tuple[str, Callable[[], object]]] = (
        ("small classes", partial(find_small_classes, releases, K)),
        ("differences", partial(find_differences, releases, K)),
        ("linked tables", partial(find_linked, releases, K)),
        ("leverage", partial(find_leverage, background, K)),
        ("least squares", partial(find_by_least_squares, background, K)),
        ("contributors", partial(find_contributors, background, K)),
        ("closed forms", partial(find_exposed_values, releases, K)),
        ("whole numbers", partial(find_whole_numbers, background, K, sensitive=False)),
        ("several metrics", partial(several_metrics, background)),
    )
    for name, action in alone:
        began = time.process_time()
        action()
        print(f"  {name:<18} {time.process_time() - began:6.2f} s of processor time", flush=True)
    wall, began = time.perf_counter(), time.process_time()
    play_attacker(releases, known)
    print(f"all of them: {time.process_time() - began:.1f} s of processor time, {time.perf_counter() - wall:.1f} s")


if __name__ == "__main__":
    main()
