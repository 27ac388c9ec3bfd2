from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kanab.errors import PrivacyError
from kanab.scan.count.counting import count_pairs
from kanab.scan.gate import Spent, release_pairs, select_experiments, shown_pairs, spent_on_pairs
from kanab.scan.pairs import Pairs


def counted(n: int = 4_000, tests: int = 4, seed: int = 1, **more: Any) -> Pairs:
    rng = np.random.default_rng(seed)
    rows: dict[str, Any] = {f"t{i}": rng.choice(["off", "on"], n) for i in range(tests)}
    rows |= {"y": np.round(rng.normal(20, 5, n), 2), "d": (rng.random(n) < 0.3).astype(int)} | more
    return count_pairs(
        rows, [f"t{i}" for i in range(tests)], ["y", "d"], bounds={"y": (-50, 100)}, resolution={"y": 0.01}
    )


def test_within_the_budget_every_table_may_be_shown() -> None:
    released = release_pairs(counted())
    assert released.open_metrics == {"y", "d"}
    assert released.testable.sum() == 12
    assert released.left_out == ()
    assert repr(released) == "Pairs of 4 experiments: k-anonymous at k = 10"


def test_over_the_budget_only_a_few_flagged_tables_are_shown() -> None:
    pairs = counted(n=400, tests=12)  # 79 independent numbers, for which 2 × 9 × 79 people are needed
    released = release_pairs(pairs)
    assert released.open_metrics == frozenset()
    shown = shown_pairs(released, released.pairs.pairs, "y")
    assert 0 < len(shown) < 12
    assert shown == released.pairs.pairs[: len(shown)]


def test_few_people_off_the_commonest_value_close_the_tables_of_that_metric() -> None:
    rare = (np.arange(4_000) < 12).astype(int)
    released = release_pairs(counted(d=rare))
    assert released.open_metrics == {"y"}
    assert shown_pairs(released, released.pairs.pairs, "d") != released.pairs.pairs


def test_an_experiment_with_an_arm_below_k_is_left_out_without_a_count() -> None:
    few = np.where(np.arange(4_000) < 7, "on", "off")
    released = release_pairs(counted(t2=few))
    assert [factor.name for factor in released.pairs.experiments] == ["t0", "t1", "t3"]
    assert released.left_out == ("t2 is left out: an arm holds fewer than k = 10 people",)
    with pytest.raises(PrivacyError, match="fewer than two experiments have k = 10"):
        release_pairs(counted(n=30, tests=2, t1=np.where(np.arange(30) < 3, "on", "off")))


def test_an_experiment_that_differs_from_another_in_a_few_people_is_left_out_without_a_count() -> None:
    rng = np.random.default_rng(7)
    almost = rng.choice(["off", "on"], 4_000).astype(object)
    almost[17] = None
    released = release_pairs(counted(t1=almost))
    assert [factor.name for factor in released.pairs.experiments] == ["t0", "t2", "t3"]
    assert released.left_out == (
        "t1 is left out: fewer than k = 10 people of an arm are in it and not in another experiment, or the other way "
        "round",
    )
    almost[:200] = None
    assert len(release_pairs(counted(t1=almost)).pairs.experiments) == 4
    almost[:200], almost[17] = "on", None
    with pytest.raises(PrivacyError, match="in every arm and apart from each other"):
        release_pairs(counted(tests=2, t1=almost))


def test_what_a_scan_leaves_of_the_budget_is_what_it_shows() -> None:
    whole = release_pairs(counted())
    assert spent_on_pairs(whole, [], "y").per_person == pytest.approx(11 / 4_000)
    over = release_pairs(counted(n=400, tests=12))
    assert spent_on_pairs(over, [], "y") == Spent()
    shown = shown_pairs(over, over.pairs.pairs, "y")
    assert spent_on_pairs(over, shown, "y").within(10)
    assert spent_on_pairs(over, shown, "y").per_person > 0


def test_a_pair_with_a_small_class_is_not_testable_and_never_shown() -> None:
    rng = np.random.default_rng(5)
    base = rng.choice(["off", "on"], 4_000)
    other = np.where(base == "on", "x", "y")
    other[np.flatnonzero(base == "off")[:4]] = "x"
    released = release_pairs(counted(t0=base, t1=other))
    assert not released.testable[0, 1]
    assert released.testable[0, 2]
    assert (0, 1) not in shown_pairs(released, released.pairs.pairs, "y")


def test_k_below_5_needs_a_reason() -> None:
    with pytest.raises(PrivacyError, match="below 5"):
        release_pairs(counted(), 3)
    assert release_pairs(counted(), 3, override="made-up people").deviations == ("k = 3: made-up people",)


def test_only_counted_pairs_pass() -> None:
    with pytest.raises(PrivacyError, match="only what count_pairs"):
        release_pairs({"t0": []})  # type: ignore[arg-type]


def test_selecting_experiments_is_counting_them_alone() -> None:
    pairs = counted()
    some = select_experiments(pairs, [0, 3])
    assert some.tally(0, 1) == pairs.tally(0, 3)
    assert select_experiments(pairs, [0, 1, 2, 3]) is pairs
    assert replace(some).experiments == some.experiments
