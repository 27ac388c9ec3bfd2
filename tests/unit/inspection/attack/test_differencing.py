from collections.abc import Callable
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

People = dict[str, Any]


def crowd(n: int = 200) -> People:
    spend = np.random.default_rng(1).integers(0, 9_000, n)
    return {"arm": np.array(["A", "B"] * (n // 2)), "tier": np.array([1, 1, 2, 2] * (n // 4)), "spend": spend}


def joined(*newcomers: tuple[str, int, int]) -> People:
    arms, tiers, spends = zip(*newcomers, strict=True)
    before = crowd()
    return {
        "arm": np.append(before["arm"], arms),
        "tier": np.append(before["tier"], tiers),
        "spend": np.append(before["spend"], spends),
    }


def with_spend(**cents: int) -> People:
    """The crowd with other spends of some people: ``p17=250`` is person 17's."""
    people = crowd()
    for person, spend in cents.items():
        people["spend"][int(person[1:])] = spend
    return people


def release(name: str, people: People, squares: Any = (("arm",),), **more: Any) -> AttackedRelease:
    spend = people["spend"]
    values = {BOUGHT: (spend > 4_500).astype(np.int64), SPEND: spend}
    return AttackedRelease(name, (tabulate("arm/tier", people, AXES, values, list(squares)),), **more)


def learnt(*releases: AttackedRelease, k: int = 10) -> list[str]:
    return [one.learnt for one in find_differences(releases, k)]


NEWCOMER = joined(("B", 2, 1_234))
SPEND_OF_17 = int(crowd()["spend"][17])
A_1 = np.flatnonzero((crowd()["arm"] == "A") & (crowd()["tier"] == 1))[:12].tolist()
"""The first people of A with tier 1."""


@pytest.mark.parametrize(
    ("before", "after", "sentences"),
    [
        (crowd(), NEWCOMER, ["arm = B, tier = 2 differs by one person; that person's bought is 0; "
                             "that person's spend is 12.34"]),
        (NEWCOMER, crowd(), ["arm = B, tier = 2 differs by one person; that person's bought is 0; "
                             "that person's spend is 12.34"]),
        # two newcomers are told apart by the squares of their arm, which newcomers of two classes share
        (crowd(), joined(("A", 1, 5_000), ("A", 1, 123)), ["their bought adds up to 1; their spend is 1.23 and 50"]),
        (crowd(), joined(("A", 1, 5_000), ("A", 1, 123), ("A", 2, 40)),
         ["their spend adds up to 51.23", "that person's spend is 0.4"]),
        # nobody new: one value changed
        (crowd(), with_spend(p17=SPEND_OF_17 + 250),
         [f"one person's spend went from {SPEND_OF_17 / 100:g} to {SPEND_OF_17 / 100 + 2.5:g}"]),
        (with_spend(**{f"p{i}": 0 for i in A_1[:4]}),
         with_spend(**{f"p{i}": 0 for i in A_1[1:4]}, **{f"p{A_1[0]}": 9_000}),
         ["1 more of them have bought", "one person's spend went from 0 to 90"]),
        (with_spend(**{f"p{i}": 9_000 for i in A_1[:4]}),
         with_spend(**{f"p{i}": 0 for i in A_1[:2]}, **{f"p{i}": 9_000 for i in A_1[2:4]}),
         ["2 fewer of them have bought"]),
        (with_spend(**{f"p{i}": 0 for i in A_1}), with_spend(**{f"p{i}": 9_000 for i in A_1}), []),  # 12 are k
        (crowd(), joined(*[("A", 1, 100)] * 10), []),
    ],
)  # fmt: skip
def test_what_subtracting_two_days_tells(before: People, after: People, sentences: list[str]) -> None:
    found = find_differences([release("mon", before), release("tue", after)], 10)
    assert [one.table for one in found] == ["mon → tue, arm/tier"] * len(sentences)
    assert all(one.learnt.endswith(text) for one, text in zip(found, sentences, strict=True)), found
    assert all(0 < one.people < 10 for one in found)


def test_without_squares_or_with_those_of_no_two_people_only_the_sum_is_known() -> None:
    (text,) = learnt(release("mon", crowd(), []), release("tue", with_spend(p17=SPEND_OF_17 + 250), []))
    assert text.endswith("spend moved by 2.5: if one person's value changed, it changed by that much")
    after = joined(("A", 1, 5_000), ("A", 1, 123))
    after["spend"][0] += 1
    (text,) = learnt(release("mon", crowd()), release("tue", after))
    assert text.endswith("their spend adds up to 51.24")
    spend = crowd()["spend"]
    several = with_spend(p0=spend[0] + 700, p4=spend[4] - 90, p8=spend[8] + 41)
    found = find_differences([release("mon", crowd()), release("tue", several)], 10)
    assert [one for one in found if one.metric == "spend"] == []


def test_batches_of_different_cohorts_are_different_people() -> None:
    one, two = release("mon", crowd(), cohorts="2026-W10"), release("tue", NEWCOMER, cohorts="2026-W11")
    assert learnt(one, two) == []
    assert len(learnt(one, release("again", NEWCOMER, cohorts="2026-W10"))) == 1
    assert len(learnt(one, release("everyone", NEWCOMER))) == 1


def test_merged_levels_are_compared_where_both_can_be_added_up() -> None:
    axis = Axis("tier", ("1 … 2",), "covariate", LevelMap("tier", (("1 … 2", (1, 2)),), {}))
    merged = AttackedRelease("tue", (release("tue", NEWCOMER).tables[0].folded(axis, [0, 0]),))
    (text,) = learnt(release("mon", crowd()), merged)
    assert text.startswith("arm = B, tier = 1 + 2 differs by one person")
    assert "spend is 12.34" in text


def test_people_of_an_experiment_who_are_not_in_the_other_are_found() -> None:
    people = crowd()
    inside, second = np.arange(200) >= 3, Axis("experiment 2", (1, 2), "arm")
    alone = tabulate("arm", people, [ARM], {SPEND: people["spend"]}, [])
    both = {"arm": people["arm"][inside], "experiment 2": people["tier"][inside]}
    pair = tabulate("arm/experiment 2", both, [ARM, second], {SPEND: people["spend"][inside]}, [])
    found = find_differences([AttackedRelease("r", (alone, pair))], 10)
    assert [(one.table, one.people) for one in found] == [("r, arm − arm/experiment 2", n) for n in (2, 1)]
    assert found[1].learnt.endswith(f"that person's spend is {people['spend'][1] / 100:g}")


def _sharing_an_experiment() -> list[AttackedRelease]:
    people, third = crowd(), Axis("experiment 3", (1, 2), "arm")
    second = Axis("experiment 2", (1, 2), "arm")
    arms = {"arm": people["arm"], "experiment 2": people["tier"], "experiment 3": people["tier"]}
    some = {key: value[:198] for key, value in arms.items()}
    return [
        AttackedRelease("r", (tabulate("a", arms, [ARM, second], {}, []), tabulate("b", some, [ARM, third], {}, [])))
    ]


def _another_grid() -> list[AttackedRelease]:
    coarse = {Metric("spend", 10, (0.0, 500.0)): crowd()["spend"] // 10}
    table = tabulate("arm/tier", crowd(), AXES, coarse, [("arm",)])
    return [release("mon", crowd()), AttackedRelease("tue", (table,))]


def _blacked_out() -> list[AttackedRelease]:
    (table,) = release("tue", NEWCOMER).tables
    hidden = table.hidden.copy()
    hidden[1, 1] = True
    after = AttackedTable(table.name, table.axes, table.people, hidden, table.moments)
    return [release("mon", crowd()), AttackedRelease("tue", (after,))]


@pytest.mark.parametrize("releases", [_sharing_an_experiment, _another_grid, _blacked_out])
def test_what_cannot_be_compared_is_not(releases: Callable[[], list[AttackedRelease]]) -> None:
    assert find_differences(releases(), 10) == []


def rated(counts: list[int], sums: list[int], people: tuple[int, int] = (100, 100)) -> AttackedRelease:
    cells = [np.array(values, dtype=object) for values in (people, counts, sums)]
    part = Moments(RATING, cells[1], cells[2], {})
    return AttackedRelease("r", (AttackedTable("arm", (ARM,), cells[0], np.zeros(2, dtype=bool), (part,)),))


def test_values_that_appear_later_are_found_by_their_own_counts() -> None:
    (found,) = find_differences([rated([60, 70], [200, 210]), rated([62, 70], [207, 210])], 10)
    assert (found.people, found.metric) == (2, "rating")
    assert found.learnt == "in arm = A the people who have rating differ by 2 people; their rating adds up to 7"
    (newcomers,) = find_differences([rated([60, 70], [200, 210]), rated([60, 70], [200, 210], (102, 100))], 10)
    assert (newcomers.people, newcomers.learnt) == (2, "arm = A differs by 2 people")


def test_classes_below_k_and_few_people_with_or_without_a_value_are_found_as_they_stand() -> None:
    small = find_small_classes([release("r", crowd(20))], 10)
    assert (small[0].people, small[0].learnt) == (5, "arm = A, tier = 1 holds 5 people")
    assert len(small) == 4
    assert find_small_classes([release("r", crowd(20))], 5) == []
    found = find_small_classes([rated([96, 3], [300, 9])], 10)
    assert [(one.people, one.learnt) for one in found] == [
        (4, "4 people of arm = A have no rating"),
        (3, "3 people of arm = B have rating"),
    ]
    assert find_small_classes([rated([100, 0], [300, 0])], 10) == []
