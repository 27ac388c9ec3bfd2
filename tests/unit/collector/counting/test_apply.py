from __future__ import annotations

from itertools import pairwise

from kanab.collector.counting.apply import ENROLLED, ClassCounters, increment
from kanab.collector.counting.counters import Counters, add_counters
from kanab.collector.counting.layout import layouts
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan

PLAN = Plan(
    (
        MetricPlan("minutes", (-600, 600), 1),
        MetricPlan("rating", (1, 5), 1, missing="exclude"),
        MetricPlan("per", ratio=("minutes", "rating")),
    ),
    (ExperimentPlan("checkout", (("A", 1), ("B", 1)), segments=("tier",)),),
    (CovariatePlan("tier", (1, 2, 3)),),
)
PLACE = ClassCounters(layouts(PLAN)[0], ("B", 3))
MINUTES, RATING, RATIO = 0, 1, 2


def test_an_increment_is_a_tally_of_one_row() -> None:
    assert increment(PLACE, {ENROLLED: (None, None), MINUTES: (0, -4), RATING: (None, 5)}) == {
        "checkout/tier|B:3|n": 1,
        "checkout/tier||c": 1,
        "checkout/tier|B:3|minutes|s": -4,
        "checkout/tier|B:3|minutes|c": 1,
        "checkout/tier|checkout=B|minutes|q": 16,
        "checkout/tier|tier=3|minutes|q": 16,
        "checkout/tier|B:3|rating|n": 1,
        "checkout/tier|B:3|rating|s": 5,
        "checkout/tier|B:3|rating|c": 1,
        "checkout/tier|checkout=B|rating|q": 25,
        "checkout/tier|tier=3|rating|q": 25,
    }


def test_the_steps_of_a_total_add_up_to_the_way_from_first_to_last() -> None:
    """And so do squares and products: any chain of moves is worth its ends."""
    chain = [0, 9, -3, 250, 250, -1]
    total: Counters = {}
    for old, new in pairwise(chain):
        add_counters(total, increment(PLACE, {MINUTES: (old, new), RATIO: ((old, 2), (new, 2))}))
    assert total == increment(PLACE, {MINUTES: (0, -1), RATIO: ((0, 2), (-1, 2))})


def test_somebody_contributes_while_a_total_is_not_zero_and_forged_moves_may_count_below() -> None:
    name = "checkout/tier|B:3|minutes|c"
    assert [increment(PLACE, {MINUTES: move}).get(name) for move in ((0, 9), (9, -3), (9, 0), (0, 0))] == [
        1,
        None,
        -1,
        None,
    ]
    plan = Plan((MetricPlan("bought", binary=True),), (ExperimentPlan("checkout", (("A", 1), ("B", 1))),))
    place = ClassCounters(layouts(plan)[0], ("B",))
    assert increment(place, {ENROLLED: (None, None), 0: (0, 1)}) == {"checkout|B|n": 1, "checkout|B|bought|s": 1}


def test_a_ratio_begins_with_nothing_and_then_moves() -> None:
    prefix = "checkout/tier|checkout=B|minutes/rating|"
    first = increment(PLACE, {RATIO: (None, (30, 4))})
    assert first == {f"{prefix}{part}": value for part, value in zip("nstqrp", (1, 30, 4, 900, 16, 120), strict=True)}
    moved = increment(PLACE, {RATIO: ((30, 4), (50, 5))})
    assert moved == {f"{prefix}{part}": value for part, value in zip("nstqrp", (0, 20, 1, 1600, 9, 130), strict=True)}
