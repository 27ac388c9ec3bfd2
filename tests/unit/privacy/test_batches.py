from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.analysis.api import analyze
from kanab.description import Mean
from kanab.errors import PrivacyError
from kanab.plan.model import make_plan
from kanab.privacy.batches import about_the_same_people, add_releases
from kanab.privacy.gate import release
from kanab.privacy.release import Batch, Release
from kanab.privacy.release_json import release_to_dict

Counting = Callable[..., Any]
PLAN = make_plan("arm", [Mean("y", bounds=(-50, 50), resolution=0.01)], adjust=["tier"], segments=["device"], k=10)


def batch(seed: int, n: int = 800, **shares: list[float]) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "arm": rng.choice(["A", "B"], n),
        "tier": rng.choice([1, 2, 3, 4], n, p=shares.get("tier", [0.25] * 4)),
        "device": rng.choice(["phone", "desktop", "tablet", "tv"], n, p=shares.get("device", [0.25] * 4)),
        "y": np.round(rng.normal(5, 2, n), 2),
    }


def joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {name: np.concatenate([first[name], second[name]]) for name in first}


def test_two_batches_without_merging_add_up_to_everyone(counting: Counting) -> None:
    one, two = batch(1), batch(2)
    added = add_releases([release(counting(one, PLAN)), release(counting(two, PLAN))])
    whole = release(counting(joined(one, two), PLAN))
    assert added.tables == whole.tables
    assert added.receipt.smallest_class == whole.receipt.smallest_class


def test_levels_merged_in_any_batch_are_merged_in_the_sum(counting: Counting) -> None:
    one = batch(1, device=[0.48, 0.46, 0.03, 0.03])
    two = batch(2)
    added = add_releases([release(counting(one, PLAN)), release(counting(two, PLAN))])
    table = added.tables["arm/device"]
    assert set(table.factor("device").levels) == {"phone", "desktop", "other"}
    people = joined(one, two)
    merged = sum(np.isin(people["device"], ["tablet", "tv"]))
    assert table.people_by("device")["other"] == merged
    assert added.receipt.maps["arm/device"].merged == {"other": ("tablet", "tv")}


def test_overlapping_merges_join_and_numeric_scores_are_pooled(counting: Counting) -> None:
    one = batch(1, tier=[0.02, 0.33, 0.33, 0.32])
    two = batch(2, tier=[0.33, 0.33, 0.32, 0.02])
    added = add_releases([release(counting(one, PLAN)), release(counting(two, PLAN))])
    factor = added.tables["arm/tier"].factor("tier")
    tiers = joined(one, two)["tier"]
    assert len(factor.levels) == 2
    expected = sorted([tiers[tiers <= 2].mean(), tiers[tiers >= 3].mean()])
    assert sorted(factor.scores or ()) == pytest.approx(expected)
    assert analyze(added).effects[1].effect.method == "adjusted"


def test_a_table_that_one_batch_left_out_is_left_out_of_the_sum(counting: Counting) -> None:
    one, two = batch(1), batch(2, n=60, device=[0.97, 0.01, 0.01, 0.01])
    added = add_releases([release(counting(one, PLAN)), release(counting(two, PLAN))])
    assert "arm/device" not in added.tables
    assert "arm/device" in added.receipt.left_out
    assert added.tables["arm"].total == 860
    assert [row.effect.method for row in analyze(added).effects] == ["difference"]


def test_releases_of_different_plans_are_refused(counting: Counting) -> None:
    other = make_plan("arm", [Mean("y", bounds=(-60, 60), resolution=0.01)])
    found = [release(counting(batch(1), PLAN)), release(counting(batch(2), other))]
    with pytest.raises(PrivacyError, match="different plans"):
        add_releases(found)
    with pytest.raises(PrivacyError, match="no release"):
        add_releases([])


def test_batches_add_up_although_the_plan_became_stricter_between_them(counting: Counting) -> None:
    strict = replace(PLAN, metrics=(replace(PLAN.metrics[0], sensitive="yes"),))
    added = add_releases([release(counting(batch(1), PLAN)), release(counting(batch(2), strict))])
    assert added.tables["arm/tier"].total == 1600
    assert added.plan.metrics[0].sensitive == "yes"


def test_ranges_of_undeclared_metrics_are_kept_in_units_and_joined_over_batches(counting: Counting) -> None:
    plan = make_plan("arm", ["y"], k=10)
    people = [batch(1) | {"y": np.round(np.linspace(1, high, 800), 2)} for high in (9, 400)]
    released = [release(counting(rows, plan)) for rows in people]
    assert [part.ranges for part in released] == [{"y": (1.0, 10.0)}, {"y": (1.0, 500.0)}]
    assert add_releases(released).ranges == {"y": (1.0, 500.0)}
    assert release(counting(batch(1), PLAN)).ranges == {}


def spend(seed: int, skewed: float, buyers: float) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    paid = np.where(rng.random(800) < buyers, rng.lognormal(1, skewed, 800), 0.0).clip(0, 50)
    return batch(seed) | {"y": np.round(paid, 2)}


def test_the_sum_has_the_larger_skewness_and_the_smaller_share_of_unusual_people(counting: Counting) -> None:
    parts = [release(counting(spend(1, 1.5, 0.1), PLAN)), release(counting(spend(2, 0.2, 0.9), PLAN))]
    (high, few), (low, many) = (part.receipt.shapes["arm"]["y"] for part in parts)
    assert high > low + 1
    assert few < many
    for order in (parts, parts[::-1]):
        assert add_releases(order).receipt.shapes == {"arm": {"y": (high, few)}}
    losses = release(counting(spend(3, 1.5, 0.1) | {"y": -spend(3, 1.8, 0.02)["y"]}, PLAN))
    negative = losses.receipt.shapes["arm"]["y"][0]
    assert negative < -high
    assert add_releases([parts[0], losses]).receipt.shapes["arm"]["y"][0] == negative


def test_the_sum_knows_no_shape_unless_every_batch_does(counting: Counting) -> None:
    known, other = release(counting(batch(1), PLAN)), release(counting(batch(2), PLAN))
    before = replace(other, receipt=replace(other.receipt, shapes={}))
    assert add_releases([known, other]).receipt.shapes == {"arm": {"y": (0.0, 1.0)}}
    assert add_releases([known, before]).receipt.shapes == {}
    (effect,) = [
        row.effect for row in analyze(add_releases([known, before])).effects if row.effect.method == "difference"
    ]
    assert effect.se_alike is not None


def test_the_same_people_released_twice_are_not_added_whatever_their_salts(counting: Counting) -> None:
    made = [release(counting(batch(1), PLAN)) for _ in range(2)]
    assert made[0].salt != made[1].salt
    with pytest.raises(PrivacyError, match="about the same people"):
        add_releases(made)


def released(seed: int, previous: str | None, *, experiment: str = "checkout", **receipt: object) -> Release:
    """A release that says where it is from."""
    rng = np.random.default_rng(seed)
    rows = {experiment: rng.choice(["A", "B"], 400), "spend": rng.integers(0, 9, 400)}
    made = kb.release(kb.count(rows, arm=experiment, metrics=[kb.Mean("spend", bounds=(0, 9))]))
    return replace(made, previous=previous, receipt=replace(made.receipt, **receipt))


def week(number: int, weeks: int = 1) -> Batch:
    return Batch("7d", f"2026-09-{number * 7:02d}", f"2026-09-{(number + weeks) * 7:02d}", "enrolled")


LEDGER = {"ledger": "shop.ledger"}


def test_releases_of_a_ledger_are_kept_apart_by_cohorts_conditions_or_experiments_alone() -> None:
    first = released(1, "a" * 64, batch=week(1), **LEDGER)
    assert not about_the_same_people([first, released(2, "b" * 64, batch=week(2), **LEDGER)])
    assert about_the_same_people([first, released(2, "b" * 64, batch=week(0, 2), **LEDGER)])
    assert about_the_same_people([first, released(2, "b" * 64, batch=week(1), **LEDGER)])
    assert about_the_same_people([first, released(2, "b" * 64, **LEDGER)])
    german, french = (released(n, str(n) * 64, where=f"country = '{n}'", **LEDGER) for n in (3, 4))
    assert not about_the_same_people([german, french])
    assert about_the_same_people([german, released(5, "b" * 64, **LEDGER)])  # everybody, Germans too
    other = released(6, "b" * 64, experiment="search", **LEDGER)
    assert not about_the_same_people([first, other])
    assert not about_the_same_people([first, other], "checkout")


def test_two_ledgers_of_one_name_are_told_apart_where_their_beginnings_are_given() -> None:
    begins = [released(n, "", batch=week(1), **LEDGER) for n in (1, 2)]
    later = [released(3 + n, release_to_dict(first)["hash"], batch=week(2), **LEDGER) for n, first in enumerate(begins)]
    assert not about_the_same_people([*begins, *later])
    assert about_the_same_people([*later, begins[0], released(9, "c" * 64, batch=week(2), **LEDGER)])


def test_a_collectors_key_chain_says_more_than_the_name_of_a_ledger() -> None:
    one, two = (released(n, str(n) * 64, store=store, **LEDGER) for n, store in ((1, "x"), (2, "y")))
    assert not about_the_same_people([one, two])
    assert about_the_same_people([one, released(3, "3" * 64, store="x", ledger="other.ledger")])


def test_releases_in_no_ledger_are_taken_at_their_word_unless_their_numbers_are_equal() -> None:
    one, two = released(1, None), released(2, None)
    assert not about_the_same_people([one, two])
    assert about_the_same_people([one, replace(one, salt="f" * 32)])


def test_what_is_about_the_same_people_is_not_added_up_either() -> None:
    one, two = (released(n, str(n) * 64, **LEDGER) for n in (1, 2))
    with pytest.raises(PrivacyError, match="these releases are about the same people"):
        add_releases([one, two])
