import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import kanab as kb
from kanab.plan.model import MetricPlan
from kanab.privacy.audit import (
    MEANING,
    REMEDY,
    Audit,
    Worst,
    audit_table,
    class_squares,
    most_squares,
)
from kanab.tally.moments import Moments, least_squares

SPEND = kb.Metric.declare("y", bounds=(0, 500), resolution=0.01)
COUNT = kb.Metric("y")
TEN = [0.0, 0.0, 0.0, 0.0, 1.5, 2.25, 3.5, 7.75, 12.0, 16.5]
COUNTS = [0, 0, 0, 0, 0, 1, 1, 2, 3, 5]
MANY = [0] * 10 + [1, 2, 2, 3, 3, 3, 4, 5, 6, 8]


def table(classes: dict[tuple[str, Any], list[float]], metric: kb.Metric = SPEND, squares: str = "arm") -> kb.Tally:
    """A tally of arm × level from the values of every class."""
    rows: dict[str, list[Any]] = {"arm": [], "level": [], "y": []}
    for (arm, level), values in classes.items():
        rows["arm"] += [arm] * len(values)
        rows["level"] += [level] * len(values)
        rows["y"] += values
    return kb.count_columns(rows, arm="arm", covariates=["level"], metrics={"y": metric}, squares=squares)


def everywhere(values: list[float], **other: list[float]) -> dict[tuple[str, Any], list[float]]:
    """The same values in four classes, other ones in those that are named (A1=…)."""
    return {(arm, level): other.get(f"{arm}{level}", values) for arm in "AB" for level in (1, 2)}


def rules(found: Audit) -> dict[str, int]:
    return {one.rule: one.classes for one in found.broken}


def audit(tally: kb.Tally, **plan: Any) -> Audit:
    return audit_table("arm/level", tally, {"y": MetricPlan("y", **plan)})


# ── intervals ──────────────────────────────────────────────────────────────────────────────────


PAPER = [2.17, 0.0, 0.0]
HALF = [0.5, 1.0, 2.0]
FIXED = [0, 0, 0, 0, 0, 0, 0, 1, 1, 2]
BROKEN_UP = [0, 0, 0, 0, 0, 0, 0, 0.71, 1, 2.29]
NAN = float("nan")
FINE = kb.Metric.declare("y", bounds=(0, 50))
UNBOUNDED = kb.Metric("y", 100)
ONES = [0] * 7 + [1] * 3


@pytest.mark.parametrize(
    ("classes", "metric", "broken", "homogeneous"),
    [
        (everywhere(TEN), SPEND, {}, 0),
        (everywhere(HALF, A1=PAPER), SPEND, {"interval": 1}, 0),
        (everywhere([-0.5, -1.0, -2.0], A1=[-2.17, 0.0, 0.0]),
         kb.Metric.declare("y", bounds=(-500, 0), resolution=0.01), {"interval": 1}, 0),
        # an extreme at its bound says no more than that somebody reached it
        (everywhere(TEN, A1=[0.0] * 8 + [500.0, 500.0]), SPEND, {}, 0),
        (everywhere(TEN, A1=[0.0] * 9 + [499.0]), SPEND, {"interval": 1}, 0),
        # without bounds values of one sign are taken to have one
        (everywhere(HALF, A1=PAPER), UNBOUNDED, {"interval": 1}, 0),
        (everywhere([-0.5, -1.0, -2.0], A1=[-2.17, 0.0, 0.0]), UNBOUNDED, {"interval": 1}, 0),
        (everywhere([-0.5, 1.0, -2.0], A1=PAPER), UNBOUNDED, {}, 0),
        (everywhere([-4.03, 5.01, 3.02]), UNBOUNDED, {}, 0),  # squares that need both signs
        # people without a value are not in the class
        (everywhere([*HALF, NAN], A1=[2.17, 0.0, NAN, NAN]),
         kb.Metric.declare("y", bounds=(0, 500), resolution=0.01, missing="exclude"), {"interval": 1}, 0),
        # whole numbers, on whatever grid
        (everywhere(COUNTS, A1=FIXED), COUNT, {"interval": 1}, 0),
        (everywhere([x / 2 for x in COUNTS], A1=[x / 2 for x in FIXED]),
         kb.Metric.declare("y", bounds=(0, 5), resolution=0.5), {"interval": 1}, 0),
        (everywhere(COUNTS, A1=FIXED), FINE, {"interval": 1}, 0),
        (everywhere(COUNTS, A1=BROKEN_UP), FINE, {}, 0),
        # counts of nothing and one are judged like a 0/1 metric
        (everywhere(COUNTS, A1=ONES, B1=[5 - y for y in ONES]), kb.Metric("y", 1, (0, 5)), {}, 0),
        (everywhere([0] * 9 + [1]), kb.Metric("y", 1, (0, 1)), {}, 0),
        # values a step apart are known, and so is one that everyone has, unless it is a bound
        (everywhere(TEN, A1=[7.0] * 6 + [7.01] * 4), SPEND, {"interval": 1}, 0),
        (everywhere(TEN, A1=[7.0] * 10), SPEND, {"homogeneous": 1}, 1),
        (everywhere(TEN, A1=[0.0] * 10, B1=[500.0] * 10), SPEND, {}, 2),
        (everywhere([0.0, 0.1]), kb.Metric("y", 1, (0, 0.3)), {}, 4),  # a grid with one value
    ],
)  # fmt: skip
def test_squares_by_class_tell_of_nobody(
    classes: dict[tuple[str, Any], list[float]], metric: kb.Metric, broken: dict[str, int], homogeneous: int
) -> None:
    found = audit(table(classes, metric, "class"))
    assert (rules(found), found.homogeneous) == (broken, homogeneous)
    if not homogeneous:  # by arm nothing is refused
        assert audit(table(classes, metric, "arm")).passed
    for each in found.broken:
        assert each.meaning == MEANING[each.rule]
        assert not any(digit in each.meaning + REMEDY for digit in "0123456789")


def test_how_close_an_interval_is_by_squares_of_an_arm_is_told_and_refuses_nothing() -> None:
    classes = everywhere([0.5, 1.0, 2.0], A1=[2.17, 0.0, 0.0], A2=[0.0, 0.0, 0.0])
    found = audit(table(classes, squares="arm"))
    assert found.passed  # contributors and dominance are rule 3's matter, from the rows
    assert found.worst == Worst("arm/level", "y", 0.0)
    assert found.homogeneous == 1


def test_one_heavy_user_is_told_of_unless_clamped() -> None:
    near = [0.0] * 19 + [1.0] * 19 + [2.0] * 8 + [3.0] * 3 + [4.0]
    heavy = {("A", level): near for level in (2, 3, 4)} | {("A", 1): [200.0, *near[:19], *near[20:]], ("B", 1): near}
    found = audit(table(heavy))
    assert found.worst is not None
    assert found.worst.ratio == pytest.approx((200.5 - 162) / (200.5 - 4.94), abs=0.003)
    clamped = audit(table(heavy, kb.Metric.declare("y", bounds=(0, 20), resolution=0.01)))
    assert clamped.worst is not None
    assert clamped.worst.ratio > found.worst.ratio


def test_ranges_stand_in_for_bounds() -> None:
    tally = table(everywhere([10.53, 11.01, 12.02], A1=[12.0, 10.0, 10.0]), kb.Metric("y", 100), "class")
    assert audit(tally).passed
    found = audit_table("t", tally, {}, ranges={"y": (1_000, 2_000)})
    assert rules(found) == {"interval": 1}


# ── everyone alike ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("sensitive", "classes"), [("no", 0), ("yes", 1), ("both", 2)])
@pytest.mark.parametrize("metric", [kb.Metric("y", 1, (0, 1)), kb.Metric("y", 1, (0, 7))])
def test_a_sensitive_value_that_everyone_has_is_blocked(metric, sensitive, classes) -> None:
    top = int(metric.bounds[1])
    mixed = [0, 0, 0, 0, 0, 0, top, top, top, top]
    found = audit(table(everywhere(mixed, A1=[0] * 10, B1=[top] * 10), metric), sensitive=sensitive)
    assert rules(found) == ({"sensitive": classes} if classes else {})
    assert found.homogeneous == 2


def test_a_class_with_nobody_in_it_is_no_class() -> None:
    classes = everywhere(TEN)
    del classes["A", 1]
    found = audit(table(classes, kb.Metric("y", 1, (0, 500))), sensitive="both")
    assert found.homogeneous == 0
    assert found.passed


# ── the result ─────────────────────────────────────────────────────────────────────────────────


def test_a_pair_of_experiments_is_judged_with_both_margins() -> None:
    rows: dict[str, list[Any]] = {"checkout": [], "banner": [], "y": []}
    for one in "AB":
        for two in "XY":
            values = [2.17] + [0.0] * 9 if (one, two) == ("A", "X") else [0.0] * 10 if one == "A" else TEN
            rows["checkout"] += [one] * 10
            rows["banner"] += [two] * 10
            rows["y"] += values
    tally = kb.count_columns(rows, arm=["checkout", "banner"], metrics={"y": SPEND}, squares="marginals")
    assert audit(tally).worst == Worst("arm/level", "y", 0.0)


def test_somebody_of_a_level_is_known_although_it_is_not_known_of_which_arm() -> None:
    classes = everywhere(MANY, A1=[0] * 7 + [1, 1, 1], B1=[0] * 8 + [1, 2])  # one of level 1 has 2
    by_arm, by_level = (audit(table(classes, COUNT, squares)).worst for squares in ("arm", "marginals"))
    assert by_arm is not None
    assert by_level is not None
    assert by_level.ratio < 0.25 < by_arm.ratio


def with_events(*events: int, people: int = 40) -> kb.Tally:
    """Four classes of a 0/1 metric with so many people who have it."""
    places = [("A", 1), ("A", 2), ("B", 1), ("B", 2)]
    classes = {place: [1.0] * n + [0.0] * (people - n) for place, n in zip(places, events, strict=True)}
    return table(classes, kb.Metric("y", 1, (0, 1)))


@pytest.mark.parametrize(
    ("events", "classes"),
    [((10, 20, 30, 0), 0), ((9, 20, 20, 20), 1), ((31, 1, 20, 20), 2), ((40, 20, 20, 20), 0), ((39, 38, 2, 1), 4)],
)
def test_classes_have_so_many_events_on_both_sides_or_none(events: tuple[int, ...], classes: int) -> None:
    assert rules(audit(with_events(*events), min_events=10)) == ({"events": classes} if classes else {})
    assert audit(with_events(*events)).passed
    assert audit(with_events(*events), min_events=1).passed


def test_sensitive_metrics_have_k_events_unless_their_plan_says_otherwise() -> None:
    plan = MetricPlan("y", binary=True, sensitive="yes")
    for k, passes in ((10, False), (3, True)):
        assert audit_table("arm/level", with_events(3, 20, 20, 20), {"y": plan}, k=k).passed is passes
    other = dataclasses.replace(plan, min_events=2)
    assert audit_table("arm/level", with_events(3, 20, 20, 20), {"y": other}, k=10).passed
    assert audit_table("arm/level", with_events(3, 20, 20, 20), {"y": MetricPlan("y", binary=True)}, k=10).passed


def test_amounts_have_so_many_people_with_any_also_where_it_is_withheld_who_they_are() -> None:
    rng = np.random.default_rng(1)
    bought = np.r_[np.ones(4), np.zeros(36), np.ones(20), np.zeros(20)]
    rows = {"arm": ["A"] * 40 + ["B"] * 40, "bought": bought, "y": bought * rng.integers(100, 9000, 80) / 100}
    metrics = {"bought": kb.Metric("bought", 1, (0, 1)), "y": SPEND}
    both = kb.count_columns(rows, arm="arm", metrics=metrics)
    plans = {"y": MetricPlan("y", of="bought", min_events=5)}
    alone = both.select_metrics(["y"])
    assert rules(audit_table("arm", both, plans)) == {"events": 1}
    assert audit_table("arm", alone, plans).passed  # nobody knows
    assert rules(audit_table("arm", alone, plans, whole=both)) == {"events": 1}


AXES = ("arm", "level")


def cells(values: object) -> np.ndarray:
    return np.array(values, dtype=object)


def moments(n: object, s: object, squares: dict[tuple[str, ...], object]) -> Moments:
    return Moments(kb.Metric("y", 100), cells(n), cells(s), {by: cells(q) for by, q in squares.items()})


@pytest.mark.parametrize("bounds", [(0, 4), (-2, 3)])
def test_greatest_squares_are_those_of_brute_force(bounds) -> None:
    low, high = bounds
    for n in range(1, 5):
        found: dict[int, int] = {}
        for y in itertools.combinations_with_replacement(range(low, high + 1), n):
            found[sum(y)] = max(found.get(sum(y), 0), sum(value**2 for value in y))
        assert found == {s: most_squares(n, s, low, high) for s in found}


def test_where_all_other_classes_are_empty_handed_a_margin_says_as_much_as_the_class() -> None:
    part = moments([[3, 3, 3]], [[217, 0, 0]], {("arm",): [47089]})
    least, most = class_squares(part, AXES, 0, 10_000)
    assert least.tolist() == most.tolist() == [[47089, 0, 0]]


@pytest.mark.parametrize("seed", range(30))
def test_two_marginals_of_a_two_arm_table_leave_what_linear_programming_leaves(seed) -> None:
    rng = np.random.default_rng(seed)
    y = np.where(rng.random((2, 4, 5)) < 0.4, rng.integers(0, 30, (2, 4, 5)), 0)
    n, s, q = np.full((2, 4), 5), y.sum(axis=2), (y**2).sum(axis=2)
    part = moments(n.tolist(), s.tolist(), {("arm",): q.sum(axis=1).tolist(), ("level",): q.sum(axis=0).tolist()})
    least, most = class_squares(part, AXES, 0, 30)
    box = [*zip(least_squares(part.counts, part.sums).ravel(), most_squares(5, part.sums, 0, 30).ravel(), strict=True)]
    rows = [np.kron(np.eye(2), np.ones(4)), np.kron(np.ones(2), np.eye(4))]
    totals = np.concatenate([q.sum(axis=1), q.sum(axis=0)])
    for place in range(8):
        goal = np.eye(8)[place]
        ends = [
            sign * linprog(sign * goal, A_eq=np.vstack(rows), b_eq=totals, bounds=box, method="highs").fun
            for sign in (1, -1)
        ]
        assert ends == pytest.approx([least.flat[place], most.flat[place]], abs=1e-6)
