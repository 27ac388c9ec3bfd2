"""One rule for verdict and interval: Welch's t corrected for skewness, and t with one variance where that is needed."""

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.unit.stats.shaped_means import SIDES, drawn_means, made_means

from kanab import count_columns
from kanab.stats import ArmMeans, Effect, against_control, plain_means
from kanab.stats.effect import alike_error
from kanab.stats.skewness import Shape, corrected_t, critical_t, skewness_class, tilt, unusual_class


def amounts(seed: int, small: int = 60, large: int = 900) -> tuple[Any, Any, ArmMeans]:
    """Log-normal values of a small arm B and a large arm A, and their means."""
    rng = np.random.default_rng(seed)
    b, a = rng.lognormal(0, 1.3, small).round(3), rng.lognormal(0, 1.3, large).round(3)
    rows = {"arm": ["A"] * large + ["B"] * small, "y": [*a.tolist(), *b.tolist()]}
    return b, a, plain_means(count_columns(rows, arm="arm", metrics=["y"], resolution={"y": 0.001}))


def shaped(means: ArmMeans, skewness: float | None, unusual: float = 1.0) -> ArmMeans:
    return replace(means, shape=Shape(skewness, unusual))


def excludes_zero(effect: Effect) -> bool:
    assert effect.interval is not None
    return not effect.interval[0] <= 0 <= effect.interval[1]


def reference_limit(q: float, kappa: float) -> float:
    """h(q) as it is written down: Hall's cube, mirrored."""
    return q if kappa == 0 else ((1 + kappa * q / 3) ** 3 - 1) / kappa + kappa / 6


def reference_t(t: float, kappa: float) -> float:
    """The x with h(x) = t, by halving."""
    low, high = 0.0, t
    if reference_limit(0, kappa) >= t:
        return 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if reference_limit(middle, kappa) < t else (low, middle)
    return low


def reference_tilt(gamma: float, c: list[float], n: list[int], s2: list[float]) -> tuple[float, float]:
    """κ of the side t < 0, and of the side t > 0: sums over arms, one by one; s² are variances of one person."""
    third = variance = own_third = own_variance = 0.0
    for weight, people, square in zip(c, n, s2, strict=True):
        third += weight**3 / people**2
        variance += weight**2 / people
        own_third += weight**3 * square**1.5 / people**2
        own_variance += weight**2 * square / people
    pooled, own = gamma * third / variance**1.5, gamma * own_third / own_variance**1.5
    return max(pooled, own, 0.0), max(-pooled, -own, 0.0)


def test_h_and_its_inverse_are_those_of_the_formula() -> None:
    draw = random.Random(1)
    for _ in range(500):
        kappa, t = 10 ** draw.uniform(-4, 1.5), draw.uniform(0, 12)
        assert critical_t(t, kappa) == pytest.approx(reference_limit(t, kappa), rel=1e-8)
        assert corrected_t(-t, (kappa, 0.0)) == pytest.approx(-reference_t(t, kappa), rel=1e-7, abs=1e-7)
        assert corrected_t(t, (kappa, 0.0)) == t
        assert corrected_t(t, (0.0, kappa)) == pytest.approx(reference_t(t, kappa), rel=1e-7, abs=1e-7)


def test_the_skewness_of_a_difference_is_that_of_the_formula() -> None:
    draw = random.Random(2)
    for _ in range(200):
        c = draw.choice([[1.0, -1.0], [0.5, 0.5, -1.0], [-1.0, 2.0, -1.0]])
        n = [draw.randint(10, 10_000) for _ in c]
        s2, gamma = [10 ** draw.uniform(-2, 2) for _ in c], draw.uniform(-30, 30)
        found = tilt(gamma, np.array(c), np.array(n, dtype=float), np.array(s2) / n)
        assert found == pytest.approx(reference_tilt(gamma, c, n, s2), rel=1e-12)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("seed", range(6))
def test_of_unknown_skewness_the_harder_of_welch_and_student_decides(side: Any, seed: int) -> None:
    b, a, means = amounts(seed)
    effect = against_control(shaped(means, None), alternative=side)
    tests = [stats.ttest_ind(b, a, equal_var=alike, alternative=side) for alike in (False, True)]
    ends = [test.confidence_interval(0.95) for test in tests]
    assert effect.p_usual == pytest.approx(tests[0].pvalue, rel=1e-9)
    assert effect.p == pytest.approx(max(test.pvalue for test in tests), rel=1e-9)
    assert effect.interval == pytest.approx((min(end.low for end in ends), max(end.high for end in ends)), rel=1e-9)
    assert effect.interval_welch == pytest.approx((ends[0].low, ends[0].high), rel=1e-9)


def test_a_known_skewness_corrects_the_side_where_a_small_arm_lacks_large_values() -> None:
    b, a, means = amounts(11)
    welch = stats.ttest_ind(b, a, equal_var=False)
    assert welch.statistic < 0
    below, above = reference_tilt(4.0, [1, -1], [60, 900], [b.var(ddof=1), a.var(ddof=1)])
    assert below > above == 0
    effect = against_control(shaped(means, 4.0))
    assert effect.p == pytest.approx(2 * stats.t.sf(reference_t(-welch.statistic, below), welch.df), rel=1e-7)
    reach = stats.t.isf(0.025, welch.df)
    low, high = welch.confidence_interval(0.95)
    assert effect.interval == pytest.approx(
        (low, effect.estimate + reference_limit(reach, below) * effect.se_population), rel=1e-9
    )
    assert effect.interval[1] > high
    mirrored = against_control(shaped(means, 4.0), "A", "B")
    assert mirrored.interval == pytest.approx((-effect.interval[1], -effect.interval[0]), rel=1e-12)
    assert mirrored.p == pytest.approx(effect.p, rel=1e-12)


@settings(deadline=None, max_examples=400, derandomize=True)
@given(drawn_means(), st.sampled_from(SIDES), st.sampled_from([0.9, 0.95, 0.99]))
def test_p_and_interval_agree_and_are_never_surer_than_welchs(means: ArmMeans, side: Any, confidence: float) -> None:
    effect = against_control(means, alternative=side, confidence=confidence)
    assert effect.p is not None
    assert effect.p_usual is not None
    assert effect.interval is not None
    assert effect.interval_welch is not None
    assert (effect.p < 1 - confidence) == excludes_zero(effect)
    assert effect.interval[0] <= effect.interval_welch[0]
    assert effect.interval[1] >= effect.interval_welch[1]
    # at a p in the tail where nothing is sought, the smaller of two numbers near 1 says nothing
    assert effect.p >= effect.p_usual - 1e-12 or effect.p > 0.5
    if 0 < effect.p < 0.5:
        touching = effect.interval_at(effect.p)
        near = min(touching, key=abs)
        assert near == pytest.approx(0, abs=1e-6 * effect.se_population * (1 + abs(effect.t or 0)))


@pytest.mark.parametrize(("unusual", "few"), [(0.5, False), (0.25, False), (0.24, True), (0.0, True)])
def test_with_few_people_off_the_commonest_value_arms_have_to_differ_with_one_variance_too(
    unusual: float, few: bool
) -> None:
    means = made_means([10.0, 12.0], [0.1, 0.3], [5_000, 60])
    effect = against_control(shaped(means, 0.0, unusual))  # 60 · 0.25 = 15
    assert (effect.se_alike is not None) == few
    error, df = alike_error(means, np.array([-1.0, 1.0]))
    assert error > effect.se_population
    if few:
        assert effect.p == pytest.approx(2 * stats.t.sf(2 / error, df), rel=1e-9)
    else:
        assert effect.p == effect.p_usual


def test_where_nothing_varies_no_shape_makes_it_testable() -> None:
    still = made_means([1.0, 2.0], [0.0, 0.0], [20, 20], Shape(None))
    effect = against_control(still)
    assert (effect.p, effect.interval, effect.p_usual, effect.interval_welch) == (None, None, None, None)


def test_a_class_of_skewness_is_the_next_half_octave_away_from_zero() -> None:
    for skewness in (0.0, 0.3, -0.49, math.nan):
        assert skewness_class(skewness) == 0.0
    draw = random.Random(3)
    for _ in range(500):
        skewness = draw.choice([-1, 1]) * 10 ** draw.uniform(-0.3, 2)
        told = skewness_class(skewness)
        assert math.copysign(1, told) == math.copysign(1, skewness)
        assert abs(skewness) <= abs(told) * (1 + 1e-9)
        assert abs(told) < abs(skewness) * math.sqrt(2) * (1 + 1e-9)
        assert 2 * math.log2(abs(told)) == pytest.approx(round(2 * math.log2(abs(told))), abs=1e-9)
    assert skewness_class(0.5) == pytest.approx(math.sqrt(0.5))
    assert skewness_class(2.0) == 2.0  # what lies on a border stays there


@pytest.mark.parametrize("k", [2, 10, 40])
def test_the_share_of_unusual_people_is_never_overstated_and_never_that_of_fewer_than_k(k: int) -> None:
    for people in (50, 999, 10_000):
        for unusual in range(people + 1) if people < 1_000 else range(0, people, 37):
            told = unusual_class(unusual, people, k)
            assert told <= unusual / people * (1 + 1e-9)
            assert (told == 0) == (unusual < max(15, k))
            if told:
                assert told * people > unusual / math.sqrt(2) * (1 - 1e-9)
