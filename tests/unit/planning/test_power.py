"""People, effect, power: any two give the third, and the same numbers as statsmodels."""

import math

import pytest
from scipy import integrate, stats
from statsmodels.stats.power import TTestIndPower

from kanab.errors import AnalysisError
from kanab.planning.power import PlannedTest, beyond, both_beyond, solve_power
from kanab.planning.spread import spread_of_amounts, spread_of_rate
from kanab.stats.margins import Margin

ORACLE = TTestIndPower()
SIDES = {"two-sided": "two-sided", "greater": "larger", "less": "smaller"}


@pytest.mark.parametrize("alternative", SIDES)
@pytest.mark.parametrize(("n", "d"), [(5, 1.2), (50, 0.5), (4_000, 0.06), (400_000, 0.006)])
def test_power_is_that_of_statsmodels(alternative, n, d):
    d = -d if alternative == "less" else d
    solved = solve_power(spread_of_amounts(3), people=2 * n, effect=3 * d, test=PlannedTest(alternative=alternative))
    assert solved.power == pytest.approx(ORACLE.power(d, n, 0.05, alternative=SIDES[alternative]), abs=1e-9)


@pytest.mark.parametrize(("d", "power"), [(0.5, 0.8), (0.02, 0.9), (3.0, 0.8)])
def test_the_solved_people_are_the_fewest_by_statsmodels(d, power):
    solved = solve_power(spread_of_amounts(1), effect=d, power=power)
    n = solved.people // 2
    assert ORACLE.power(d, n, 0.05) >= power > ORACLE.power(d, n - 1, 0.05)
    assert solved.arms == (("A", n), ("B", n))
    assert solved.power == pytest.approx(ORACLE.power(d, n, 0.05), abs=1e-9)


def test_unequal_shares_and_variances_use_welchs_error_and_df():
    spread = spread_of_amounts({"A": 1, "B": 3}, shares={"A": 9, "B": 1})
    a, b = 1 / 900, 9 / 100
    df = (a + b) ** 2 / (a**2 / 899 + b**2 / 99)
    t = stats.t.ppf(0.975, df)
    nc = 1 / math.sqrt(a + b)
    expected = stats.nct.sf(t, df, nc) + stats.nct.cdf(-t, df, nc)
    assert solve_power(spread, people=1_000, effect=1).power == pytest.approx(expected, abs=1e-9)


def test_a_relative_effect_of_a_negative_mean_is_a_share_of_its_size():
    solved = solve_power(spread_of_amounts(1, mean=-2), people=1_000, effect=0.1, relative=True)
    assert (solved.effect, solved.relative) == pytest.approx((0.2, 0.1))


def test_bonferroni_is_a_stricter_confidence():
    spread = spread_of_amounts(1, shares={"A": 1, "B": 1, "C": 1})
    corrected = solve_power(spread, people=900, effect=0.2, test=PlannedTest(correction="bonferroni", tests=10))
    assert corrected.power == pytest.approx(
        solve_power(spread, people=900, effect=0.2, test=PlannedTest(confidence=0.995)).power, abs=1e-12
    )


def test_the_hardest_arm_decides():
    spread = spread_of_amounts({"A": 1, "B": 1, "C": 2}, shares={"A": 1, "B": 1, "C": 1})
    assert solve_power(spread, people=900, effect=0.2).arm == "C"


def test_non_inferiority_is_a_shifted_one_sided_test():
    asked = PlannedTest(margin=Margin("non-inferiority", 0.3))
    solved = solve_power(spread_of_amounts(1), people=200, effect=0.0, test=asked)
    assert solved.power == pytest.approx(ORACLE.power(0.3, 100, 0.05, alternative="larger"), abs=1e-9)
    people = solve_power(spread_of_amounts(1), effect=0.0, power=0.8, test=asked).people
    assert ORACLE.power(0.3, people // 2, 0.05, alternative="larger") >= 0.8
    assert ORACLE.power(0.3, people // 2 - 1, 0.05, alternative="larger") < 0.8


def equivalence_by_integration(limit, df, below, above):
    """E over s = χ/√df of Φ(below − limit s) − Φ(limit s − above), where that is positive."""

    def inside(s):
        return (
            2 * df * s * stats.chi2.pdf(df * s**2, df)
            * max(0.0, stats.norm.cdf(below - limit * s) - stats.norm.cdf(limit * s - above))
        )  # fmt: skip

    return integrate.quad(inside, 0, (below + above) / (2 * limit), points=[0.5, 1], epsabs=1e-12)[0]


@pytest.mark.parametrize(("df", "below", "above"), [(8, 3, 3), (30, 4, 2.5), (500, 1.7, 1.8), (18, 1.0, 1.0)])
def test_the_power_of_equivalence_is_the_integral_over_the_estimated_error(df, below, above):
    limit = stats.t.ppf(0.95, df)
    expected = equivalence_by_integration(limit, df, below, above)
    assert both_beyond(limit, df, below, above) == pytest.approx(expected, abs=1e-7)


def test_the_far_tails_do_not_fail():
    assert beyond(2.0, 1.5, 40) == pytest.approx(1, abs=1e-6)
    assert beyond(2.0, 10, -40) == 0
    assert beyond(1.96, 1e12, 2.8) == pytest.approx(stats.norm.sf(1.96 - 2.8), abs=1e-9)


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({"effect": 0, "power": 0.8}, "wrong side"),
        ({"effect": math.inf, "power": 0.8}, "finite"),
        ({"effect": 1e-9, "power": 0.8}, "would be enough"),
        ({"people": 100, "power": 0.04}, "without any effect"),
    ],
)
def test_questions_that_have_no_answer_are_refused(wrong, fact):
    with pytest.raises(AnalysisError, match=fact):
        solve_power(spread_of_amounts(1), **wrong)


@pytest.mark.parametrize(
    ("test", "asks", "fact"),
    [
        (PlannedTest(alternative="greater"), {"effect": -0.1, "power": 0.8}, "wrong side"),
        (PlannedTest(margin=Margin("non-inferiority", 0.1)), {"effect": -0.2, "power": 0.8}, "wrong side"),
        (PlannedTest(margin=Margin("equivalence", 0.01)), {"people": 100, "power": 0.8}, "so few people"),
        (PlannedTest(margin=Margin("superiority", 0.1, relative=True)), {"people": 100, "power": 0.8}, "control mean"),
    ],
)
def test_effects_on_the_wrong_side_of_a_margin_are_refused(test, asks, fact):
    with pytest.raises(AnalysisError, match=fact):
        solve_power(spread_of_amounts(1), test=test, **asks)


def test_a_rate_cannot_leave_its_range():
    with pytest.raises(AnalysisError, match="below 0 or above 1"):
        solve_power(spread_of_rate(0.9), people=1_000, effect=0.2)
    with pytest.raises(AnalysisError, match="largest possible effect"):
        solve_power(spread_of_rate(0.99), people=40, power=0.9)


@pytest.mark.parametrize(
    ("choices", "fact"),
    [
        ({"correction": "holm"}, "unknown correction"),
        ({"tests": 0}, "at least 1"),
        ({"tests": 3, "correction": "dunnett"}, "over arms"),
        ({"alternative": "greater", "margin": Margin("superiority", 1)}, "its own side"),
    ],
)
def test_impossible_tests_are_refused(choices, fact):
    with pytest.raises(AnalysisError, match=fact):
        PlannedTest(**choices)


def test_a_huge_effect_needs_the_fewest_people_there_can_be():
    assert solve_power(spread_of_amounts(1.0), effect=1000.0, power=0.8).people == 6


def test_multiplied_amounts_are_planned_like_arms_that_have_that_deviation():
    grown = spread_of_amounts(15, mean=4, shares={"A": 9, "B": 1}, grows=True)
    for effect in (1.5, -1.5):
        own = spread_of_amounts({"A": 15, "B": 15 * (1 + effect / 4)}, mean=4, shares={"A": 9, "B": 1})
        assert solve_power(grown, effect=effect, power=0.8).people == solve_power(own, effect=effect, power=0.8).people
    solved = solve_power(grown, people=10_000, power=0.8)
    assert solved.power == pytest.approx(0.8)
    less = solve_power(grown, people=10_000, power=0.8, test=PlannedTest(alternative="less"))
    assert -4 < less.effect < 0
    assert -less.effect < solved.effect  # a smaller spread makes a fall easier to see


def test_where_spread_grows_as_fast_as_the_effect_no_effect_is_large_enough():
    with pytest.raises(AnalysisError, match="even the largest possible effect"):
        solve_power(spread_of_amounts(15, mean=4, grows=True), people=40, power=0.8)
