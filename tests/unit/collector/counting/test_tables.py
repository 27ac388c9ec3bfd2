from dataclasses import replace
from typing import Any

import pytest
from tests.unit.collector.counting.tables_of_counters import counters_of, tables

import kanab as kb
from kanab.collector.counting.counters import add_counters, pack, unpack
from kanab.collector.counting.tables import possible_tables, unchecked_tables
from kanab.errors import StoreError, TallyError
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan

ARMS = (("A", 1.0), ("B", 1.0))
PLAN = Plan(
    (
        MetricPlan("bought", binary=True),
        MetricPlan("spend", (0, 100), 0.01),
        MetricPlan("rating", (1, 5), 1, missing="exclude"),
        MetricPlan("visits", (0, 50), 1, squares="class"),
        MetricPlan("basket", ratio=("spend", "visits")),
        MetricPlan("joy", ratio=("rating", "bought")),
    ),
    (
        ExperimentPlan("checkout", ARMS, adjust=("tier",), segments=("device",)),
        ExperimentPlan("banner", (("off", 1.0), ("on", 1.0)), interactions=("checkout",)),
    ),
    (CovariatePlan("tier", (1, 2.5)), CovariatePlan("device", ("phone", "tv set"))),
)
ROWS = {
    "checkout": ["A", "B", "B", "A", None],
    "banner": ["on", "on", None, "off", "off"],
    "tier": [1, 2.5, 1, 1, 1],
    "device": ["phone", "tv set", "phone", "phone", "tv set"],
    "bought": [1, 0, 1, 1, 0],
    "spend": [12.5, 0, 99.99, 3, 0],
    "rating": [4, None, 5, None, None],
    "visits": [2, 1, 7, 3, 0],
}


def test_tallies_become_counters_and_come_back_equal() -> None:
    counted = kb.count(ROWS, PLAN)
    counters = counters_of(PLAN, counted.tallies)
    assert tables(PLAN, counters) == counted.tallies
    assert counters["checkout/tier|A:1|n"] == 2
    assert counters["checkout/tier|B:2.5|visits|s"] == 1
    assert counters["checkout/device|device=phone|spend|q"] == 1250**2 + 9999**2 + 300**2
    assert counters["checkout/device|checkout=A,device=phone|visits|q"] == 13
    assert counters["checkout/device|checkout=A|spend/visits|p"] == 1250 * 2 + 300 * 3
    assert counters["checkout/tier|checkout=B|rating/bought|p"] == 5
    assert 0 not in counters.values()


BINNED = Plan(
    (MetricPlan("spend", (0, 100), 0.01, missing="zero", bins=(0.0, 0.07, 50.0)), *PLAN.metrics[2:3]),
    (ExperimentPlan("checkout", ARMS, quantiles={"spend": (0.5,), "rating": (0.5,)}),),
)
BINNED = replace(BINNED, metrics=(BINNED.metrics[0], replace(BINNED.metrics[1], bins=(3.0, 5.0))))


@pytest.mark.parametrize(
    "forged",
    [{"checkout/spend|A:%3C%200|n": -1}, {"checkout/spend|A:%3C%200|n": 1}, {"checkout|A|n": 1}],
    ids=["nobody left it", "somebody from nowhere", "somebody in no bin"],
)
def test_bins_that_are_not_the_people_of_the_arms_are_impossible(forged: dict[str, int]) -> None:
    counters = counters_of(BINNED, kb.count(ROWS, BINNED).tallies)
    assert possible_tables(BINNED, counters)["checkout/spend"].impossible == ()
    add_counters(counters, forged)
    found = possible_tables(BINNED, counters)
    assert found["checkout/spend"].impossible == ("spend",)
    assert found["checkout/spend"].tally.people_by("checkout") == found["checkout"].tally.people_by("checkout")
    assert found["checkout/spend"].tally.factor("spend").levels == (None,)
    assert found["checkout"].impossible == ()


def test_the_missing_level_is_there_if_somebody_has_it() -> None:
    found = tables(PLAN, {"checkout/tier|A:|n": 1})["checkout/tier"]
    assert found.factor("tier").levels == (1, 2.5, None)
    assert found.factor("tier").scores == (1.0, 2.5, None)
    assert found.people.tolist() == [[0, 0, 1], [0, 0, 0]]
    assert tables(PLAN, {"checkout/tier|A:|n": 0})["checkout/tier"].factor("tier").levels == (1, 2.5)


SPEND, RATING = ("spend", ("spend", "visits")), ("rating", ("rating", "bought"))


@pytest.mark.parametrize(
    ("counters", "impossible"),
    [
        ({"banner|on|spend|s": 5}, SPEND),
        ({"banner|on|n": 1, "banner|on|bought|s": 2}, ("bought", RATING[1])),
        ({"banner|on|n": 1, "banner|on|spend|s": 500}, SPEND),
        ({"banner|on|n": 1, "banner|on|spend|s": 500, "banner|banner=on|spend|q": 10**9}, SPEND),
        ({"banner|on|n": 1, "banner|on|rating|n": 2}, RATING),
        ({"banner|on|n": 1, "banner|banner=on|spend/visits|p": 9}, SPEND[1:]),
        ({"banner|on|n": 1, "banner|banner=on|rating/bought|n": 1}, RATING[1:]),
        ({"checkout/tier|A:|rating|s": 4}, RATING),
    ],
)
def test_metrics_and_ratios_that_no_people_could_have_sent_are_named(counters: dict[str, int], impossible: Any) -> None:
    wrong = {name: table.impossible for name, table in possible_tables(PLAN, counters).items() if table.impossible}
    assert wrong == {next(iter(counters)).partition("|")[0]: impossible}
    assert [*unchecked_tables(PLAN, counters)] == [*PLAN.linkage_names]  # with ε it is noise that goes on top


def test_fewer_than_no_people_are_refused() -> None:
    with pytest.raises(TallyError, match="negative count"):
        possible_tables(PLAN, {"banner|on|n": -1})
    assert [*unchecked_tables(PLAN, {"banner|on|n": -1})] == [*PLAN.linkage_names]


@pytest.mark.parametrize("name", ["basket|on|n", "banner|maybe|n", "banner|on|hours|s", "banner|on|spend|n", "x"])
def test_counters_of_another_plan_are_left_alone(name: str) -> None:
    assert possible_tables(PLAN, {name: 1}) == possible_tables(PLAN, {})


@pytest.mark.parametrize(
    "value", [0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**128, -(3**90)]
)
def test_every_whole_number_comes_back_as_it_was(value: int) -> None:
    assert unpack(pack({"checkout/tier|B:3|minutes|q": value})) == {"checkout/tier|B:3|minutes|q": value}


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x93\x01\x02\x03", pack({"a": 1})[:-1], b"\x81\xa1a\xa1x", b"\x81\xa1a\xcb" + b"\0" * 8]
)
def test_anything_else_is_no_record(data: bytes) -> None:
    with pytest.raises(StoreError, match="does not hold counters"):
        unpack(data)
