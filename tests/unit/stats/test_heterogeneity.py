"""Segments: does the effect differ, the effect at every level, and follow-ups: each level against the rest."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import confint_proportions_2indep
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW
from tests.unit.stats.noisy_tables import noisy_shop, restated

from kanab.counting.columns import count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError
from kanab.stats import correct, effect_differs, follow_ups, robust_f, segment_effects
from kanab.stats.heterogeneity import with_watch_note
from kanab.stats.score import Rates
from kanab.stats.skewness import Shape
from kanab.tally.metric import Metric

# ── does the effect differ? ────────────────────────────────────────────────────────────────────

SYMMETRIC = Shape(0.0, 1.0)


def rates(*cells: tuple[int, int, int, int]) -> dict[str, list[Any]]:
    """People by level from (people in A, events, people in B, events)."""
    rows: dict[str, list[Any]] = {"arm": [], "level": [], "y": []}
    for level, (n0, x0, n1, x1) in enumerate(cells):
        rows["arm"] += ["A"] * n0 + ["B"] * n1
        rows["level"] += [f"l{level}"] * (n0 + n1)
        rows["y"] += [1] * x0 + [0] * (n0 - x0) + [1] * x1 + [0] * (n1 - x1)
    return rows


def answer(rows: dict[str, Any], shape: Shape | None = None, **choices: Any) -> Any:
    binary = set(rows["y"]) <= {0, 1}
    metric = Metric("y", 1, (0, 1)) if binary else Metric("y", 1000)
    return effect_differs(
        count_columns(rows, arm="arm", covariates=["level"], metrics={"y": metric}, **choices), shape=shape
    )


def amounts(people: int, rng: np.random.Generator, *, levels: int = 3, share: float = 0.5) -> dict[str, Any]:
    return {
        "arm": np.where(rng.random(people) < share, "B", "A"),
        "level": [f"l{place}" for place in rng.integers(0, levels, people)],
        "y": rng.normal(3, 1, people),
    }


def test_two_levels_of_a_rate_are_a_score_test_of_two_differences() -> None:
    cells = (400, 40, 300, 60), (500, 100, 200, 30)
    d, v = [], []
    weights = [n0 * n1 / (n0 + n1) for n0, _, n1, _ in cells]
    common = sum(w * (x1 / n1 - x0 / n0) for w, (n0, x0, n1, x1) in zip(weights, cells, strict=True)) / sum(weights)
    for n0, x0, n1, x1 in cells:
        low = (x1 + x0 - n1 * common) / (n0 + n1)
        high, n = low + common, n0 + n1
        d.append(x1 / n1 - x0 / n0)
        v.append((high * (1 - high) / n1 + low * (1 - low) / n0) * n / (n - 1))
    chi2 = (d[0] - d[1]) ** 2 / (v[0] + v[1])
    test = answer(rates(*cells))
    assert (test.variance, test.df) == ("score", (1.0, np.inf))
    assert (test.F, test.p) == (pytest.approx(chi2), pytest.approx(stats.chi2.sf(chi2, 1)))


def test_a_level_without_events_does_not_make_the_others_untestable() -> None:
    clear = (2000, 100, 2000, 300), (2000, 300, 2000, 100)
    test = answer(rates(*clear, (40, 0, 40, 0)))
    assert test.p < 1e-15
    assert "taken as one level" in test.note  # with the smaller of the others, for nobody there has an event
    alone = answer(rates(*clear))
    assert alone.p < 1e-15
    assert alone.note == ""


def test_thin_levels_are_taken_as_one_and_named() -> None:
    test = answer(rates((900, 90, 900, 90), (900, 90, 900, 95), (20, 2, 20, 2), (30, 3, 30, 2), (25, 2, 25, 3)))
    assert test.df == (2.0, np.inf)
    assert test.note == "l2, l3, l4 taken as one level"


def test_where_one_level_is_left_nothing_is_answer() -> None:
    test = answer(rates((30, 1, 30, 0), (30, 0, 30, 1)))
    assert (test.F, test.p) == (None, None)
    assert test.note == "too few people at all levels but one"


@pytest.mark.parametrize("choices", [{"squares": "arm"}, {}, {"squares": "class"}])
def test_of_a_symmetric_amount_in_two_arms_it_is_the_robust_f(choices: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    rows = amounts(3_000, rng, levels=4, share=0.2)
    table = count_columns(rows, arm="arm", covariates=["level"], metrics={"y": Metric("y", 1000)}, **choices)
    expected, test = robust_f(table), effect_differs(table, shape=SYMMETRIC)
    assert (test.F, test.df, test.p) == (
        pytest.approx(expected.F, rel=1e-9), pytest.approx(expected.df, rel=1e-9), pytest.approx(expected.p, rel=1e-9)
    )  # fmt: skip
    assert test.variance == expected.variance


def test_skewness_shrinks_what_lies_on_the_side_at_risk() -> None:
    rng = np.random.default_rng(8)
    rows = amounts(600, rng, share=0.1)
    low = (rows["arm"] == "B") & (np.array(rows["level"]) == "l0")
    rows["y"] = np.where(low, rows["y"] - 0.7, rows["y"])
    symmetric = answer(rows, SYMMETRIC)
    assert answer(rows, Shape(4.0, 1.0)).p > symmetric.p
    assert answer(rows, Shape(-4.0, 1.0)).p > symmetric.p  # the others are high against the common effect
    assert answer(rows, None).p >= symmetric.p  # unknown: a second test has to agree


def test_levels_of_a_skewed_amount_that_few_people_have_are_taken_as_one() -> None:
    rng = np.random.default_rng(1)
    rows = amounts(6_000, rng, levels=3)
    rows["level"] = np.where(rng.random(6_000) < 0.01, "rare", rows["level"])
    assert answer(rows, Shape(4.0, 0.1)).df[0] == 2  # some 30 in an arm, of whom 3 have any, with the smallest level
    assert "rare" in answer(rows, Shape(4.0, 0.1)).note
    assert answer(rows, Shape(4.0, 1.0)).df[0] == 3


def test_several_arms_are_compared_with_the_control_one_by_one() -> None:
    rng = np.random.default_rng(2)
    rows = amounts(9_000, rng)
    rows["arm"] = rng.choice(["A", "B", "C"], 9_000)
    moved = (rows["arm"] == "C") & (np.array(rows["level"]) == "l1")
    rows["y"] = np.where(moved, rows["y"] + 0.5, rows["y"])
    table = count_columns(rows, arm="arm", covariates=["level"], metrics={"y": Metric("y", 1000)})
    test = effect_differs(table, shape=SYMMETRIC)
    assert test.note == "C against A"
    alone = effect_differs(
        count_columns({name: np.asarray(column)[rows["arm"] != "B"] for name, column in rows.items()}, arm="arm",
                      covariates=["level"], metrics={"y": Metric("y", 1000)}), shape=SYMMETRIC,
    )  # fmt: skip
    assert test.p == pytest.approx(2 * alone.p, rel=0.5)  # its marginals of squares have no third arm
    assert effect_differs(table, control="C", shape=SYMMETRIC).p < 1e-6


def test_follow_ups_of_a_level_without_events_are_no_certainties() -> None:
    table = count_columns(
        rates((2000, 200, 2000, 400), (60, 0, 60, 0)), arm="arm", covariates=["level"],
        metrics={"y": Metric("y", 1, (0, 1))},
    )  # fmt: skip
    (row,) = follow_ups(table)
    assert 0.01 < row.se < 0.05


# ── at every level, and each against the rest ──────────────────────────────────────────────────


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
    assert [(comparison.arm, comparison.level) for comparison in comparisons] == [*product("BC", (1, 2, 3))]
    assert {comparison.control for comparison in comparisons} == {"A"}
    assert [comparison.p_adjusted for comparison in comparisons] == correct(
        [comparison.p for comparison in comparisons], "holm"
    )
    plain = follow_ups(crowd("ABC")[1], correction="none")
    assert [comparison.p_adjusted for comparison in plain] == [comparison.p for comparison in plain]


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


def test_levels_at_which_nothing_varies_are_not_followed_up():
    rows = {"arm": list("ABAB") * 3, "level": list("xxyy") * 3, "y": [1, 2, 3, 4] * 3}
    assert follow_ups(count_columns(rows, arm="arm", covariates=["level"], metrics=["y"])) == ()


def test_a_pair_of_experiments_has_no_levels():
    rows = {"one": list("ABAB") * 2, "two": list("XXYY") * 2, "y": range(8)}
    for function in (follow_ups, segment_effects, effect_differs):
        with pytest.raises(AnalysisError, match="a pair of experiments has no levels"):
            function(count_columns(rows, arm=["one", "two"], metrics=["y"]))


def test_a_follow_up_reads_as_a_sentence():
    assert str(follow_ups(eighteen())[1]).startswith(
        "minutes: B − A is -1.500 where tier is 2 and 0.5720 in the rest; difference -2.072 ± 0.2752, p = 8.48e-06"
    )


def welch(rows, arm, level, confidence):
    high, low = values(rows, arm, level), values(rows, "A", level)
    means = CompareMeans(DescrStatsW(high), DescrStatsW(low))
    _, p, df = means.ttest_ind(usevar="unequal")
    return high.mean() - low.mean(), p, df, means.tconfint_diff(1 - confidence, usevar="unequal")


@pytest.mark.slow
@given(
    arms=st.sampled_from(["AB", "ABC"]),
    levels=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    confidence=st.sampled_from([0.8, 0.95, 0.99]),
)
@settings(max_examples=40, deadline=None)
def test_the_effect_at_a_level_is_welchs_t_on_the_rows_of_that_level(arms, levels, seed, confidence):
    rows, tally = crowd(arms, levels, n=120 * len(arms) * levels, seed=seed)
    effects = segment_effects(tally, confidence=confidence)
    assert [(effect.level, effect.arm) for effect in effects] == [
        (level, arm) for level in range(1, levels + 1) for arm in arms[1:]
    ]
    each = confidence ** (1 / len(effects))
    for effect in effects:
        estimate, p, df, interval = welch(rows, effect.arm, effect.level, confidence)
        assert effect.estimate == pytest.approx(estimate, rel=1e-11)
        assert effect.people == tuple(len(values(rows, side, effect.level)) for side in ("A", effect.arm))
        assert effect.means == pytest.approx([values(rows, side, effect.level).mean() for side in ("A", effect.arm)])
        assert (effect.p, effect.df) == pytest.approx((p, df), rel=1e-9)
        assert effect.interval == pytest.approx(interval, rel=1e-9)
        assert effect.interval_adjusted == pytest.approx(welch(rows, effect.arm, effect.level, each)[3], rel=1e-9)
        assert effect.p_adjusted == pytest.approx(1 - (1 - effect.p) ** len(effects), abs=1e-12)
        low, high = effect.interval_adjusted
        assert (effect.p_adjusted < 1 - confidence) == (not low < 0 < high)


def test_a_thin_level_has_means_but_no_interval_and_takes_no_part_in_the_correction():
    rows, _ = crowd(n=400)
    there = ~((rows["arm"] == "B") & (rows["level"] == 2)) | (np.cumsum(rows["arm"] == "B") < 20)
    rows = {name: column[there] for name, column in rows.items()}
    tally = count_columns(rows, arm="arm", covariates=["level"], metrics={"y": Metric("y")}, squares="class")
    first, thin, third = segment_effects(tally)
    assert thin.estimate == pytest.approx(values(rows, "B", 2).mean() - values(rows, "A", 2).mean())
    assert (thin.p, thin.interval, thin.interval_adjusted, thin.se) == (None, None, None, None)
    assert thin.note == "an arm has fewer than 20 people here: too few for an interval"
    assert str(thin).endswith(f"; {thin.note}")
    for effect in (first, third):
        assert effect.p_adjusted == pytest.approx(1 - (1 - effect.p) ** 2, rel=1e-9)
        assert effect.interval_adjusted == pytest.approx(welch(rows, "B", effect.level, 0.95**0.5)[3], rel=1e-9)


@pytest.mark.parametrize("squares", ["marginals", "class"])
def test_a_level_where_nothing_varies_says_so_and_the_others_are_tested(squares):
    rows, _ = crowd(n=600)
    rows["y"] = np.where(rows["level"] == 2, 7, rows["y"])
    tally = count_columns(rows, arm="arm", covariates=["level"], metrics={"y": Metric("y")}, squares=squares)
    first, still, third = segment_effects(tally)
    assert first.p is not None
    assert third.p is not None
    if squares == "class":
        assert still.note == "nothing varies in an arm here, so that there is no error to compare with"
        assert (still.estimate, still.p) == (0.0, None)
    else:  # the fit of two marginals needs all of them; by arm it can be done, with its sentence
        assert {effect.note for effect in (first, still, third)} == {"assumes equal variance across levels"}


def buyers(rates, n=400, seed=3):
    """Two arms in as many levels as there are pairs of rates (control, arm), so many people in each arm of each."""
    rng = np.random.default_rng(seed)
    rows = {"arm": [], "level": [], "y": []}
    for level, pair in enumerate(rates, 1):
        for arm, rate in zip("AB", pair, strict=True):
            rows["arm"] += [arm] * n
            rows["level"] += [level] * n
            rows["y"] += rng.permutation(np.arange(n) < round(rate * n)).astype(int).tolist()
    metrics = {"y": Metric("y", 1, (0, 1))}
    return {name: np.array(column) for name, column in rows.items()}, count_columns(
        rows, arm="arm", covariates=["level"], metrics=metrics
    )


def test_rates_at_a_level_are_compared_by_the_score_test_and_interval():
    rows, tally = buyers([(0.1, 0.2), (0.5, 0.45)])
    for effect in segment_effects(tally):
        here, there = (int(values(rows, arm, effect.level).sum()) for arm in "AB")
        rates = Rates(there, 400, here, 400)
        assert (effect.test, effect.variance, effect.df) == ("score", "by_class", None)
        assert (effect.estimate, effect.p, effect.t) == (rates.difference, rates.p(), rates.z_difference())
        assert effect.interval == effect.interval_at(1 - 0.95, "two-sided") == rates.difference_interval(1 - 0.95)
        assert effect.interval_adjusted == rates.difference_interval(1 - 0.95**0.5)
        low, high = confint_proportions_2indep(there, 400, here, 400, method="score", compare="diff", alpha=0.05)
        assert effect.interval == pytest.approx((low, high), abs=1e-3)


def test_an_effect_at_a_level_reads_as_a_sentence():
    _, tally = buyers([(0.1, 0.2), (0.5, 0.45)])
    assert str(segment_effects(tally)[0]) == (
        "y: B − A where level is 1 = 0.1000, simultaneous interval 0.04415 … 0.1569, p = 7.55e-05, "
        "over all levels 0.000151"
    )


def test_a_second_test_with_one_variance_for_both_arms_has_to_ring_too():
    """One arm of 30 lacks the large values that a few in a hundred of the other have: Welch's t takes it for sure."""
    large = np.where(np.arange(600) % 25 == 0, 400, 10)
    rows = {
        "arm": ["A"] * 600 + ["B"] * 30 + ["A"] * 100 + ["B"] * 100,
        "level": [1] * 630 + [2] * 200,
        "y": [*large, *(np.arange(30) % 3), *(np.arange(100) % 9), *(np.arange(100) % 9 + 5)],
    }
    tally = count_columns(rows, arm="arm", covariates=["level"], metrics={"y": Metric("y")}, squares="class")
    skewed, plain = segment_effects(tally)
    control, arm = (
        np.array(rows["y"])[(np.array(rows["arm"]) == side) & (np.array(rows["level"]) == 1)] for side in "AB"
    )
    assert skewed.p_pooled == pytest.approx(stats.ttest_ind(arm, control).pvalue, rel=1e-9)
    assert skewed.p_pooled_adjusted == pytest.approx(1 - (1 - skewed.p_pooled) ** 2, rel=1e-9)
    assert skewed.p_adjusted < 1e-6
    assert skewed.p_pooled_adjusted > 0.05
    assert skewed.note == (
        "a test with one variance for both arms does not ring here, so a few people could have made it"
    )
    assert (plain.watch(0.95), plain.note) == (False, "")
    assert plain.p_pooled == pytest.approx(plain.p, rel=1e-6)


def test_the_note_that_a_few_people_could_have_made_it_comes_and_goes_with_its_reason():
    rows = {"arm": ["A", "B"] * 100, "level": [1] * 200, "y": [value % 7 for value in range(200)]}
    tally = count_columns(rows, arm="arm", covariates=["level"], metrics={"y": Metric("y")}, squares="class")
    (effect,) = segment_effects(tally)
    rung = replace(effect, note="assumed", p_adjusted=0.01, p_pooled_adjusted=0.2)
    watched = with_watch_note(rung, 0.95)
    assert watched.note.startswith("assumed; a test with one variance for both arms does not ring here")
    assert with_watch_note(watched, 0.95) == watched
    assert with_watch_note(replace(watched, p_adjusted=0.3), 0.95).note == "assumed"


# ── numbers with noise ─────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["bought", "spend"])
def test_simultaneous_intervals_of_noisy_levels_cover_and_those_that_ignore_noise_do_not(metric):
    missed = {1.0: 0, 1e-9: 0}
    rings = {1.0: 0, 1e-9: 0}
    for seed in range(80):
        table = noisy_shop(seed, rho=0.002)
        for factor in missed:
            stated = restated(table, factor)
            intervals = [effect.interval_adjusted for effect in segment_effects(stated, "tier", metric)]
            missed[factor] += any(not low <= 0 <= high for low, high in intervals)
            rings[factor] += any(row.p_adjusted < 0.05 for row in follow_ups(stated, "tier", metric))
    assert missed[1.0] <= 9
    assert rings[1.0] <= 9
    assert missed[1e-9] > 20
    assert rings[1e-9] > 20


def test_levels_that_noise_hides_have_no_test_and_say_so():
    table = noisy_shop(3, rho=1e-5)
    effects = segment_effects(table, "tier", "bought")
    assert effects
    assert all((effect.p, effect.note) == (None, "too noisy to tell") for effect in effects)
    with pytest.raises(AnalysisError, match="too noisy to tell"):
        follow_ups(table, "tier", "bought")
