from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.bad_releases import tabulate

from kanab.inspection.attack.differencing import find_differences, find_small_classes
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, Axis
from kanab.privacy.merging import LevelMap
from kanab.tally.metric import Metric
from kanab.tally.moments import Moments

BOUGHT = Metric("bought", 1, (0.0, 1.0))
SPEND = Metric("spend", 100, (0.0, 500.0))
RATING = Metric("rating", 1, (1.0, 5.0), "exclude")
ARM = Axis("arm", ("A", "B"), "arm")
AXES = (ARM, Axis("tier", (1, 2)))


def other(number: int) -> Axis:
    return Axis(f"experiment {number}", (1, 2), "arm")


def crowd(n: int = 200, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "arm": np.array(["A", "B"] * (n // 2)),
        "tier": np.array([1, 1, 2, 2] * (n // 4)),
        "spend": rng.integers(0, 9_000, n),
    }


def joined(people: dict[str, Any], *newcomers: tuple[str, int, int]) -> dict[str, Any]:
    arms, tiers, spends = zip(*newcomers, strict=True)
    return {
        "arm": np.append(people["arm"], arms),
        "tier": np.append(people["tier"], tiers),
        "spend": np.append(people["spend"], spends),
    }


def release(name: str, people: dict[str, Any], squares: Any = (("arm",),), **more: Any) -> AttackedRelease:
    spend = people["spend"]
    values = {BOUGHT: (spend > 4_500).astype(np.int64), SPEND: spend}
    return AttackedRelease(name, (tabulate("arm/tier", people, AXES, values, list(squares)),), **more)


def learnt(*releases: AttackedRelease, k: int = 10) -> list[str]:
    return [one.learnt for one in find_differences(releases, k)]


def test_one_newcomer_gives_their_value_away() -> None:
    before = crowd()
    (found,) = find_differences([release("mon", before), release("tue", joined(before, ("B", 2, 1_234)))], 10)
    assert found.attack == "differences"
    assert found.table == "mon → tue, arm/tier"
    assert found.metric == "bought, spend"
    assert found.people == 1
    assert (
        found.learnt == "arm = B, tier = 2 differs by one person; that person's bought is 0; "
        "that person's spend is 12.34"
    )


def test_somebody_who_left_gives_theirs_away_too() -> None:
    before = crowd()
    (found,) = find_differences([release("mon", joined(before, ("B", 2, 1_234))), release("tue", before)], 10)
    assert found.people == 1
    assert "that person's spend is 12.34" in found.learnt


def test_two_newcomers_are_told_apart_by_the_squares_of_their_arm() -> None:
    before = crowd()
    after = joined(before, ("A", 1, 5_000), ("A", 1, 123))
    (text,) = learnt(release("mon", before), release("tue", after))
    assert text.endswith("their bought adds up to 1; their spend is 1.23 and 50")


def test_squares_that_no_two_newcomers_have_tell_only_their_sum() -> None:
    before = crowd()
    after = joined(before, ("A", 1, 5_000), ("A", 1, 123))
    after["spend"][0] += 1
    (text,) = learnt(release("mon", before), release("tue", after))
    assert text.endswith("their spend adds up to 51.24")


def test_newcomers_in_two_classes_of_an_arm_share_its_squares() -> None:
    before = crowd()
    after = joined(before, ("A", 1, 5_000), ("A", 1, 123), ("A", 2, 40))
    first, second = learnt(release("mon", before), release("tue", after))
    assert first.endswith("their spend adds up to 51.23")
    assert second.endswith("that person's spend is 0.4")


def test_k_newcomers_say_nothing_about_fewer() -> None:
    before = crowd()
    nine = joined(before, *[("A", 1, 100)] * 9)
    ten = joined(before, *[("A", 1, 100)] * 10)
    assert len(learnt(release("mon", before), release("tue", nine))) == 1
    assert learnt(release("mon", before), release("tue", ten)) == []
    assert learnt(release("mon", before), release("tue", nine), k=5) == []


def test_a_value_that_changes_with_nobody_new_is_found_from_sums_and_squares() -> None:
    before, after = crowd(), crowd()
    old = int(before["spend"][17])
    after["spend"][17] = old + 250
    (found,) = find_differences([release("mon", before), release("tue", after)], 10)
    assert found.people == 1
    assert found.metric == "spend"
    assert f"one person's spend went from {old / 100:g} to {(old + 250) / 100:g}" in found.learnt


def test_without_squares_only_the_change_is_known() -> None:
    before, after = crowd(), crowd()
    after["spend"][17] += 250
    (text,) = learnt(release("mon", before, []), release("tue", after, []))
    assert text.endswith("spend moved by 2.5: if one person's value changed, it changed by that much")


def test_a_sum_that_no_single_person_can_have_moved_is_no_finding() -> None:
    before, after = crowd(), crowd()
    after["spend"][[0, 4, 8]] = [before["spend"][0] + 700, before["spend"][4] - 90, before["spend"][8] + 41]
    squares = int((after["spend"] ** 2 - before["spend"] ** 2).sum())
    assert (squares - 651**2) % (2 * 651)
    found = [
        one for one in find_differences([release("mon", before), release("tue", after)], 10) if one.metric == "spend"
    ]
    assert found == []


@pytest.mark.parametrize(("buyers", "words"), [(1, "1 more of them have bought"), (-2, "2 fewer of them have bought")])
def test_a_few_more_buyers_with_nobody_new_are_a_finding(buyers: int, words: str) -> None:
    before, after = crowd(), crowd()
    here = np.flatnonzero((before["arm"] == "A") & (before["tier"] == 1))
    before["spend"][here[:4]] = 0 if buyers > 0 else 9_000
    after["spend"][here[:4]] = before["spend"][here[:4]]
    after["spend"][here[: abs(buyers)]] = 9_000 if buyers > 0 else 0
    found = [one for one in find_differences([release("a", before), release("b", after)], 10) if one.metric == "bought"]
    assert [one.people for one in found] == [abs(buyers)]
    assert found[0].learnt == f"nobody joined or left arm = A, tier = 1, and {words}"


def test_many_more_buyers_are_not_about_fewer_than_k() -> None:
    before, after = crowd(), crowd()
    here = np.flatnonzero((before["arm"] == "A") & (before["tier"] == 1))
    before["spend"][here[:12]] = 0
    after["spend"][here[:12]] = 9_000
    found = find_differences([release("a", before), release("b", after)], 10)
    assert [one.metric for one in found] == []


def test_batches_of_different_cohorts_are_different_people() -> None:
    before = crowd()
    after = joined(before, ("B", 2, 1_234))
    one, two = release("mon", before, cohorts="2026-W10"), release("tue", after, cohorts="2026-W11")
    assert learnt(one, two) == []
    again = release("again", after, cohorts="2026-W10")
    assert len(learnt(one, again)) == 1
    assert len(learnt(one, release("everyone", after))) == 1


def test_merged_levels_are_compared_where_both_can_be_added_up() -> None:
    before = crowd()
    after = release("tue", joined(before, ("B", 2, 1_234)))
    axis = Axis("tier", ("1 … 2",), "covariate", LevelMap("tier", (("1 … 2", (1, 2)),), {}))
    merged = AttackedRelease("tue", (after.tables[0].folded(axis, [0, 0]),))
    (text,) = learnt(release("mon", before), merged)
    assert text.startswith("arm = B, tier = 1 + 2 differs by one person")
    assert "spend is 12.34" in text


def test_people_of_an_experiment_who_are_not_in_the_other_are_found() -> None:
    people = crowd()
    inside = np.arange(200) >= 3
    values = {SPEND: people["spend"]}
    alone = tabulate("arm", people, [ARM], values, [])
    both = {"arm": people["arm"][inside], "experiment 2": people["tier"][inside]}
    pair = tabulate("arm/experiment 2", both, [ARM, other(2)], {SPEND: people["spend"][inside]}, [])
    first, second = find_differences([AttackedRelease("r", (alone, pair))], 10)
    assert first.table == "r, arm − arm/experiment 2"
    assert (first.people, second.people) == (2, 1)
    assert second.learnt.endswith(f"that person's spend is {people['spend'][1] / 100:g}")


def test_pairs_that_only_share_an_experiment_are_not_compared() -> None:
    people = crowd()
    arms = {"experiment 1": people["arm"], "experiment 2": people["tier"], "experiment 3": people["tier"]}
    first = Axis("experiment 1", ("A", "B"), "arm")
    some = {key: value[:198] for key, value in arms.items()}
    one = tabulate("a", arms, [first, other(2)], {}, [])
    two = tabulate("b", some, [first, other(3)], {}, [])
    assert find_differences([AttackedRelease("r", (one, two))], 10) == []


def test_another_grid_is_not_compared() -> None:
    before = crowd()
    other = Metric("spend", 10, (0.0, 500.0))
    coarse = tabulate("arm/tier", before, AXES, {other: before["spend"] // 10}, [("arm",)])
    assert learnt(release("mon", before), AttackedRelease("tue", (coarse,))) == []


def test_blacked_out_classes_are_not_compared() -> None:
    before = crowd()
    (table,) = release("tue", joined(before, ("B", 2, 1_234))).tables
    hidden = table.hidden.copy()
    hidden[1, 1] = True
    after = AttackedTable(table.name, table.axes, table.people, hidden, table.moments)
    assert learnt(release("mon", before), AttackedRelease("tue", (after,))) == []


def rated(counts: list[int], sums: list[int]) -> AttackedRelease:
    axis = Axis("arm", ("A", "B"), "arm")
    cells = [np.array(values, dtype=object) for values in ([100, 100], counts, sums)]
    part = Moments(RATING, cells[1], cells[2], {})
    return AttackedRelease("r", (AttackedTable("arm", (axis,), cells[0], np.zeros(2, dtype=bool), (part,)),))


def test_values_that_appear_later_are_found_by_their_own_counts() -> None:
    (found,) = find_differences([rated([60, 70], [200, 210]), rated([62, 70], [207, 210])], 10)
    assert (found.people, found.metric) == (2, "rating")
    assert found.learnt == "in arm = A the people who have rating differ by 2 people; their rating adds up to 7"


def test_newcomers_without_a_value_say_nothing_about_the_metric() -> None:
    before, after = rated([60, 70], [200, 210]), rated([60, 70], [200, 210])
    (table,) = after.tables
    grown = AttackedTable(
        table.name, table.axes, table.people + np.array([2, 0], dtype=object), table.hidden, table.moments
    )
    (found,) = find_differences([before, AttackedRelease("r", (grown,))], 10)
    assert (found.people, found.learnt) == (2, "arm = A differs by 2 people")


def test_classes_below_k_are_found_as_they_stand() -> None:
    small = release("r", crowd(20))
    found = find_small_classes([small], 10)
    assert [one.people for one in found] == [5, 5, 5, 5]
    assert found[0].learnt == "arm = A, tier = 1 holds 5 people"
    assert find_small_classes([small], 5) == []


def test_few_people_with_or_without_a_value_are_found() -> None:
    found = find_small_classes([rated([96, 3], [300, 9])], 10)
    assert [(one.people, one.learnt) for one in found] == [
        (4, "4 people of arm = A have no rating"),
        (3, "3 people of arm = B have rating"),
    ]
    assert find_small_classes([rated([100, 0], [300, 0])], 10) == []
