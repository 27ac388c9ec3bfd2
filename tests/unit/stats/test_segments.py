"""Follow-ups: each level against the rest."""

import numpy as np
import pytest
from scipy import stats

from kanab import Metric, count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError, LevelError
from kanab.stats import correct, follow_ups, robust_f


def crowd(arms="AB", levels=3, n=300, seed=1, squares="class"):
    rng = np.random.default_rng(seed)
    arm, level = rng.integers(0, len(arms), n), rng.integers(1, levels + 1, n)
    y = np.rint(rng.normal(10 * arm + 5 * level * arm, 3 + 4 * level)).astype(int)
    rows = {"arm": np.array(list(arms))[arm], "level": level, "y": y}
    return rows, count_columns(rows, arm="arm", covariates=["level"], metrics={"y": Metric("y")}, squares=squares)


def values(rows, arm, level):
    return rows["y"][(rows["arm"] == arm) & (rows["level"] == level)]


def test_a_follow_up_is_the_effect_in_a_level_minus_the_effect_in_the_rest():
    rows, tally = crowd()
    for comparison in follow_ups(tally):
        rest = [level for level in (1, 2, 3) if level != comparison.level]
        people = np.array([len(values(rows, "A", level)) + len(values(rows, "B", level)) for level in rest])
        share = people / people.sum()
        cells = [(comparison.level, 1.0), *zip(rest, -share, strict=True)]
        own = values(rows, "B", comparison.level).mean() - values(rows, "A", comparison.level).mean()
        others = sum(
            s * (values(rows, "B", k).mean() - values(rows, "A", k).mean()) for k, s in zip(rest, share, strict=True)
        )
        parts = {
            (arm, level): w**2 * np.var(values(rows, arm, level), ddof=1) / len(values(rows, arm, level))
            for arm in "AB"
            for level, w in cells
        }
        total = sum(parts.values())
        df = total**2 / sum(part**2 / (len(values(rows, *key)) - 1) for key, part in parts.items())
        assert comparison.effect == pytest.approx(own, rel=1e-12)
        assert comparison.rest == pytest.approx(others, rel=1e-12)
        assert comparison.difference == pytest.approx(own - others, rel=1e-11)
        assert comparison.se == pytest.approx(total**0.5, rel=1e-12)
        assert comparison.df == pytest.approx(df, rel=1e-12)
        assert comparison.p == pytest.approx(2 * stats.t.sf(abs(comparison.t), df), rel=1e-11)


def test_holm_runs_over_all_arms_and_levels():
    comparisons = follow_ups(crowd("ABC")[1])
    assert [(comparison.arm, comparison.level) for comparison in comparisons] == [
        ("B", 1),
        ("B", 2),
        ("B", 3),
        ("C", 1),
        ("C", 2),
        ("C", 3),
    ]
    assert {comparison.control for comparison in comparisons} == {"A"}
    assert [comparison.p_adjusted for comparison in comparisons] == correct(
        [comparison.p for comparison in comparisons], "holm"
    )
    plain = follow_ups(crowd("ABC")[1], correction="none")
    assert [comparison.p_adjusted for comparison in plain] == [comparison.p for comparison in plain]


def test_two_levels_make_one_comparison_that_is_the_robust_f():
    _, tally = crowd(levels=2)
    (comparison,) = follow_ups(tally)
    test = robust_f(tally)
    assert comparison.level == 2
    assert comparison.t**2 == pytest.approx(test.F, rel=1e-12)
    assert comparison.p == pytest.approx(test.p, rel=1e-11)
    assert comparison.p_adjusted == comparison.p


def test_two_levels_with_people_make_one_comparison_beside_empty_ones():
    _, tally = crowd(levels=2)
    with_empty = tally + crowd(levels=3)[1].empty()
    assert len(follow_ups(with_empty)) == 1


@pytest.mark.parametrize("squares", ["arm", "marginals", "class"])
def test_variances_are_those_of_the_robust_f(squares):
    _, tally = crowd(levels=2, squares=squares)
    (comparison,) = follow_ups(tally)
    assert comparison.p == pytest.approx(robust_f(tally).p, rel=1e-11)


def test_the_papers_second_tier_is_the_one_that_differs():
    comparisons = follow_ups(eighteen())
    assert [comparison.level for comparison in comparisons] == [1, 2, 3]
    assert str(comparisons[1]) == (
        "minutes: B − A is -1.500 where tier is 2 and 0.5720 in the rest; difference -2.072 ± 0.2752, "
        f"p = 8.48e-06, adjusted {comparisons[1].p_adjusted:.2e}"
    )
    assert sorted(comparison.p for comparison in comparisons)[1] == comparisons[1].p
    assert comparisons[1].p_adjusted == pytest.approx(2 * comparisons[1].p, rel=1e-14)


def test_another_control_turns_the_sign():
    _, tally = crowd()
    for comparison, two in zip(follow_ups(tally), follow_ups(tally, control="B"), strict=True):
        assert (two.arm, two.control) == ("A", "B")
        assert two.difference == pytest.approx(-comparison.difference, rel=1e-11)


def test_a_level_that_one_arm_lacks_is_left_out():
    rows, _ = crowd()
    there = ~((rows["arm"] == "B") & (rows["level"] == 2))
    rows = {name: column[there] for name, column in rows.items()}
    tally = count_columns(rows, arm="arm", covariates=["level"], metrics={"y": Metric("y")})
    assert [comparison.level for comparison in follow_ups(tally)] == [1, 3]


def test_without_two_shared_levels_there_is_nothing_to_follow_up():
    rows = {"arm": list("AAABBB") * 3, "level": ["x", "y", "y", "x", "z", "z"] * 3, "y": range(18)}
    tally = count_columns(rows, arm="arm", covariates=["level"], metrics=["y"])
    assert follow_ups(tally) == ()


def test_a_single_level_or_arm_gives_no_follow_up():
    _, tally = crowd()
    assert follow_ups(tally.coarsen("level", {1: "all", 2: "all", 3: "all"})) == ()
    assert follow_ups(tally.select_arms(["A"])) == ()


def test_what_cannot_be_tested_says_why():
    rows = {"arm": list("ABAB") * 3, "level": list("xxyy") * 3, "y": [1, 2, 3, 4] * 3}
    tally = count_columns(rows, arm="arm", covariates=["level"], metrics=["y"])
    with pytest.raises(AnalysisError, match=r"not testable: nothing varies in .*Merge levels, or wait for more people"):
        follow_ups(tally)


def test_a_pair_of_experiments_has_no_levels():
    rows = {"one": list("ABAB") * 2, "two": list("XXYY") * 2, "y": range(8)}
    with pytest.raises(AnalysisError, match="a pair of experiments has no levels to follow up"):
        follow_ups(count_columns(rows, arm=["one", "two"], metrics=["y"]))


def test_unknown_names_are_refused():
    with pytest.raises(LevelError, match=r"unknown arm of 'treatment'\. It has: A, B\."):
        follow_ups(eighteen(), control="Z")
    with pytest.raises(LevelError, match="unknown arm column or covariate"):
        follow_ups(eighteen(), "device")
    with pytest.raises(AnalysisError, match="unknown correction"):
        follow_ups(eighteen(), correction="fdr")


def test_effects_keep_their_digits_when_levels_are_far_apart():
    base = {("A", 1): [0, 1, 1], ("A", 2): [0, 1, 2], ("B", 1): [1, 2, 2], ("B", 2): [3, 3, 5]}
    rows = {
        "arm": [arm for (arm, _), ys in base.items() for _ in ys],
        "level": [level for (_, level), ys in base.items() for _ in ys],
        "y": [y + (4e12 if level == 2 else 0) for (_, level), ys in base.items() for y in ys],
    }
    (comparison,) = follow_ups(count_columns(rows, arm="arm", covariates=["level"], metrics={"y": Metric("y", 1024)}))
    assert comparison.difference == pytest.approx(11 / 3 - 1 - 1, rel=1e-12)
    assert (comparison.effect, comparison.rest) == pytest.approx((11 / 3 - 1, 1), rel=1e-12)
