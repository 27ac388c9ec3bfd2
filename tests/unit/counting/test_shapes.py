"""How skewed metrics are within their arms, and how many people are off the commonest value."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

import kanab as kb
from kanab.counted import CountedShape
from kanab.counting.columns import MetricSteps
from kanab.counting.in_memory import shapes_of_rows, skewness_of
from kanab.description import Mean
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan, make_plan
from kanab.tally.metric import Metric

SHOP = Metric.declare("spend", bounds=(0, 500), resolution=0.01)


def column(values: Any, has: Any = None, metric: Metric = SHOP) -> MetricSteps:
    steps = np.asarray(values, dtype=np.int64)
    return MetricSteps(metric, steps, np.ones(len(steps), dtype=bool) if has is None else np.asarray(has, dtype=bool))


def shape(values: Any, arm: Any, **choices: Any) -> CountedShape:
    return shapes_of_rows({"spend": column(values, **choices)}, [], np.asarray(arm, dtype=np.intp))["spend"]


def test_the_skewness_is_that_of_distances_from_the_mean_of_ones_own_arm() -> None:
    rng = np.random.default_rng(1)
    values, arm = np.round(rng.lognormal(3, 1, 5_000)), rng.integers(0, 3, 5_000)
    values += 10_000 * arm  # how far arms are apart is not skewness
    away = np.concatenate([values[arm == each] - values[arm == each].mean() for each in range(3)])
    assert shape(values, arm).skewness == pytest.approx(stats.skew(away), rel=1e-9)
    assert shape(-values, arm).skewness == pytest.approx(-stats.skew(away), rel=1e-9)
    assert skewness_of(np.array([-1.0, 0.0, 1.0])) == 0


def test_nobody_and_people_who_are_all_alike_have_no_skewness() -> None:
    assert shape([], []) == CountedShape(0.0, 0, 0)
    assert shape([7] * 9, [0] * 9) == CountedShape(0.0, 0, 9)


def test_people_who_are_in_no_arm_or_lack_a_value_do_not_count() -> None:
    rng = np.random.default_rng(2)
    values, arm, has = rng.integers(0, 9, 400), rng.integers(-1, 2, 400), rng.random(400) < 0.8
    kept = (arm >= 0) & has
    expected = shape(values[kept], arm[kept])
    assert shape(np.where(kept, values, 9_999), arm, has=has) == expected
    assert expected.people == kept.sum()


def test_unusual_people_are_those_off_the_commonest_value() -> None:
    found = shape([0] * 80 + [5] * 15 + [7] * 5, [0, 1] * 50)
    assert (found.unusual, found.people) == (20, 100)


def test_a_ratio_has_the_shape_of_what_its_denominator_leaves_in_each_arm() -> None:
    rng = np.random.default_rng(3)
    arm, z = rng.integers(0, 2, 3_000), 1 + rng.poisson(2, 3_000)
    y = z * rng.poisson(3, 3_000) + 50 * arm * z
    steps = {"y": column(y, metric=Metric("y")), "z": column(z, metric=Metric("z"))}
    found = shapes_of_rows(steps, [("y", "z")], arm)["y/z"]
    u = np.empty(3_000)
    for each in (0, 1):
        u[arm == each] = (y - y[arm == each].sum() / z[arm == each].sum() * z)[arm == each]
    assert found.skewness == pytest.approx(float(np.mean(u**3) / np.mean(u**2) ** 1.5), rel=1e-9)
    assert 0 < found.unusual < 3_000
    alike = {"y": column([0] * 90 + [3] * 10, metric=Metric("y")), "z": column([1] * 100, metric=Metric("z"))}
    assert shapes_of_rows(alike, [("y", "z")], np.arange(100) % 2)["y/z"].unusual == 10


def test_rates_have_none_because_sums_tell_everything() -> None:
    counted = kb.count({"arm": ["A", "B"] * 20, "y": [0, 1] * 20, "x": range(40)}, arm="arm", metrics=["y", "x"])
    assert list(counted.shapes["arm"]) == ["x"]


def test_values_are_cut_to_the_bounds_before_their_skewness_is_taken() -> None:
    rng = np.random.default_rng(4)
    rows = {"variant": rng.choice(["A", "B"], 4_000), "spend": np.round(rng.lognormal(2, 1.5, 4_000), 2)}
    cut = rows | {"spend": rows["spend"].clip(0, 50)}
    bounded = make_plan("variant", [Mean("spend", bounds=(0, 50), resolution=0.01)])
    shapes = [kb.count(each, bounded).shapes["variant"]["spend"] for each in (rows, cut)]
    assert shapes[0] == shapes[1]
    free = kb.count(rows, make_plan("variant", [Mean("spend", resolution=0.01)]))
    assert free.shapes["variant"]["spend"].skewness > 2 * shapes[0].skewness


def test_every_experiment_has_the_shape_of_its_own_people() -> None:
    rng = np.random.default_rng(5)
    first = np.array([*rng.choice(["A", "B"], 1_000), *[None] * 1_000], dtype=object)
    rows = {"first": first, "second": rng.choice(["off", "on"], 2_000)}
    spend = np.round(np.where(first == None, rng.normal(50, 2, 2_000), rng.lognormal(2, 1, 2_000)), 1)  # noqa: E711
    plan = Plan(
        (MetricPlan("spend", (0, 500), 0.1),),
        (ExperimentPlan("first", (("A", 1), ("B", 1))), ExperimentPlan("second", (("off", 1), ("on", 1)))),
    )
    shapes = kb.count(rows | {"spend": spend}, plan).shapes
    assert {name: of["spend"].people for name, of in shapes.items()} == {"first": 1_000, "second": 2_000}
    assert shapes["first"]["spend"].skewness > 1
