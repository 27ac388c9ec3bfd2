"""Sums of known numbers over few people: whom a search names, and what leaves instead."""

from __future__ import annotations

from itertools import combinations
from math import comb, log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanab.counted import Counted
from kanab.counting.dispatch import count
from kanab.privacy.gate import release
from kanab.privacy.ledger import read_ledger
from kanab.privacy.numbers.subset_sums import SEARCHED, bits_of_groups
from kanab.privacy.release import Release


def shop(people: int, buyers: int, seed: int = 2) -> dict[str, Any]:
    """So many people and buyers in each of two arms; everybody's spending before, to the cent."""
    rng = np.random.default_rng(seed)
    bought = np.zeros(2 * people, dtype=int)
    for arm in range(2):
        bought[arm * people + rng.permutation(people)[:buyers]] = 1
    return {
        "arm": np.repeat(["A", "B"], people),
        "tier": rng.integers(1, 3, 2 * people),
        "before": rng.uniform(0, 400, 2 * people).round(2),
        "visits": rng.uniform(0, 40, 2 * people).round(2),
        "bought": bought,
    }


def counted(rows: dict[str, Any], step: float = 0.01, **choices: Any) -> Counted:
    return count(
        rows, arm="arm", metrics=["bought"], bounds={"before": (0, 500)}, resolution={"before": step},
        **({"adjust": ["before"]} | choices),
    )  # fmt: skip


def products(made: Release) -> set[tuple[str, str]]:
    return {cross.pair for table in made.tables.values() for cross in table.crosses}


def test_digits_are_those_of_all_groups() -> None:
    assert bits_of_groups(60, 10) == pytest.approx(log2(comb(60, 10)))
    assert bits_of_groups(60, 50) == bits_of_groups(60, 30)  # amounts: at least as many as halves
    assert bits_of_groups(60, 0) == bits_of_groups(0, 0) == 0


@pytest.mark.slow
def test_a_search_names_every_buyer_although_each_is_of_many() -> None:
    """Why there is a rule: forty people, ten buyers, one sum of numbers of 12 digits."""
    rng = np.random.default_rng(4)
    x = rng.integers(0, 10**12, 40)
    bought = np.zeros(40, dtype=bool)
    bought[rng.permutation(40)[:10]] = True
    target = int(x[bought].sum())
    five = np.array(list(combinations(range(40), 5)))
    sums = x[five].sum(axis=1)
    order = np.argsort(sums)
    at = np.searchsorted(sums[order], target - sums)
    at = np.minimum(at, len(order) - 1)
    groups = {
        frozenset((*five[i], *five[order[at[i]]])) for i in np.flatnonzero(sums[order[at]] == target - sums).tolist()
    }
    assert {group for group in groups if len(group) == 10} == {frozenset(np.flatnonzero(bought))}


def test_products_with_a_metric_that_few_have_are_withheld() -> None:
    made = release(counted(shop(200, 12)))
    assert products(made) == set()
    assert made.receipt.left_out["arm: before and bought"] == SEARCHED.format(
        number="before", metric="bought", experiment="arm", flag="--resolution before=STEP"
    )
    assert {"before", "bought"} <= {name for table in made.tables.values() for name in table.metric_names}


def test_those_with_a_metric_that_many_have_leave() -> None:
    made = release(counted(shop(2000, 200)))
    assert products(made) == {("before", "bought")}
    assert made.receipt.left_out == {}


def test_an_arm_in_which_nobody_has_it_names_nobody() -> None:
    """A mail that only one arm was sent: nobody of the other opened it, and the sum over nobody is 0."""
    rows = shop(4_000, 1_000)
    rows["bought"][rows["arm"] == "A"] = 0
    assert ("before", "bought") in products(release(counted(rows)))
    few = shop(60, 10)
    few["bought"][few["arm"] == "A"] = 0
    assert ("before", "bought") not in products(release(counted(few)))


def test_coarser_steps_are_the_remedy() -> None:
    rows = shop(200, 14)
    assert products(release(counted(rows, 0.000001))) == set()
    assert products(release(counted(rows, 1.0))) == {("before", "bought")}


def test_a_second_number_joins_as_far_as_digits_are_left() -> None:
    rows = shop(200, 18)
    both = {"adjust": ["before", "visits"], "bounds": {"before": (0, 500), "visits": (0, 50)}}
    made = release(count(rows, arm="arm", metrics=["bought"], resolution={"before": 1, "visits": 1e-6}, **both))
    assert products(made) == {("before", "bought"), ("before", "visits")}
    assert "arm: bought and visits" in made.receipt.left_out


def test_what_was_released_before_counts(tmp_path: Path) -> None:
    rows = shop(400, 18)
    ledger = tmp_path / "kanab.ledger"
    steps = {"before": 1e-4, "visits": 1e-4}
    bounds = {"before": (0, 500), "visits": (0, 50)}
    for adjust in (["before"], ["before", "visits"]):
        last = release(
            count(
                rows, arm="arm", metrics=["bought"], adjust=adjust, bounds={name: bounds[name] for name in adjust},
                resolution={name: steps[name] for name in adjust},
                earlier=read_ledger(ledger).plans if ledger.exists() else (),
            ),
            ledger=ledger, new_ledger=not ledger.exists(),
        )  # fmt: skip
    alone = release(
        count(rows, arm="arm", metrics=["bought"], adjust=["visits"], bounds={"visits": (0, 50)},
              resolution={"visits": 1e-4})
    )  # fmt: skip
    assert ("visits", "bought") in products(alone)
    assert ("visits", "bought") not in products(last)
