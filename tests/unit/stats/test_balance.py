"""Balance: the arms hold alike people and have values equally often, or an alarm says who and where."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import Table as Contingency
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW
from tests.unit.stats.noisy_tables import restated, stated_noise, with_noise

from kanab import count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError, LevelError
from kanab.stats import check_balance, check_balance_any_time
from kanab.stats.balance import BALANCE_ALARM, log_evidence_of_imbalance
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.moments import Moments
from kanab.tally.noise import AddedNoise
from kanab.tally.tally import Tally


def table(people, name="tier", levels=None, scores=None, arms="AB"):
    people = np.asarray(people)
    levels = tuple(levels or (f"L{place}" for place in range(people.shape[1])))
    return Tally((Factor("arm", tuple(arms), "arm"), Factor(name, levels, "covariate", scores)), people)


def with_values(have, people, name="y"):
    """Return a tally in which so many of so many people per arm have a value."""
    arms = [arm for arm, n in zip("ABC", people, strict=False) for _ in range(n)]
    y = [1.0 if place < n else float("nan") for n, of in zip(have, people, strict=True) for place in range(of)]
    return count_columns({"arm": arms, name: y}, arm="arm", metrics={name: Metric(name, 1, (0, 1), "exclude")})


@given(
    st.lists(st.lists(st.integers(0, 300), min_size=4, max_size=4), min_size=2, max_size=3),
    st.lists(st.floats(-50, 50), min_size=4, max_size=4, unique=True),
)
@settings(max_examples=100, deadline=None)
@pytest.mark.slow
def test_chi2_and_standardised_differences_are_those_of_the_rows(people, scores):
    people = np.array(people)
    people[:, 0] += 1  # everybody is somewhere, and two levels are held
    people[:, 1] += 1
    arms = "ABC"[: len(people)]
    rows = pd.DataFrame(
        [(arm, level) for i, arm in enumerate(arms) for level in range(4) for _ in range(people[i, level])],
        columns=["arm", "level"],
    )
    check = check_balance([table(people, levels=(1, 2, 3, 4), scores=tuple(scores), arms=arms)], control="A")[0]
    crossed = pd.crosstab(rows["arm"], rows["level"])
    expected = stats.chi2_contingency(crossed, correction=False)
    assert (check.df, check.chi2) == (expected.dof, pytest.approx(expected.statistic, rel=1e-11, abs=1e-11))
    assert check.p == pytest.approx(expected.pvalue, rel=1e-9)
    residuals = np.abs(Contingency(crossed.to_numpy(), shift_zeros=False).standardized_resids)
    level = {1: 0, 2: 1, 3: 2, 4: 3}[check.level]
    place = list(crossed.columns).index(level)
    assert residuals[arms.index(check.arm), place] == pytest.approx(np.nanmax(residuals), rel=1e-6, abs=1e-9)
    for i, arm in enumerate(arms[1:], 1):
        a, b = (np.repeat(scores, people[j]) for j in (0, i))
        compared = CompareMeans(DescrStatsW(b), DescrStatsW(a))
        d = (b.mean() - a.mean()) / np.sqrt(compared.std_meandiff_pooledvar**2 / (1 / len(a) + 1 / len(b)))
        if np.isfinite(d):
            assert check.differences[arm] == pytest.approx(d, rel=1e-6, abs=1e-9)


def test_the_arm_and_level_that_fit_least_are_named_with_their_shares():
    check = check_balance([table([[500, 300, 200], [500, 300, 200], [300, 300, 400]], arms="ABC")])[0]
    assert (check.level, check.arm, check.share, check.elsewhere) == ("L2", "C", 0.4, 0.2)
    assert check.alarm
    assert str(check) == "tier: χ²(4) = 161.5, p = 6.84e-34; tier = L2: C 40.0%, elsewhere 20.0%"


def test_of_two_arms_the_one_that_is_not_the_control_is_named():
    unlike = [table([[600, 400], [300, 700]])]
    assert [check_balance(unlike, control=control)[0].arm for control in ("A", "B")] == ["B", "A"]
    assert check_balance(unlike)[0].arm == "B"


def test_who_has_a_value_is_compared_between_arms():
    check = check_balance([with_values([900, 700], [1000, 1000])])[0]
    assert (check.about, check.name, check.level, check.arm) == ("values", "y", True, "B")
    assert (check.share, check.elsewhere, check.differences) == (0.7, 0.9, {})
    assert check.p == pytest.approx(stats.chi2_contingency([[900, 100], [700, 300]], correction=False).pvalue, rel=1e-9)
    assert str(check) == "y: χ²(1) = 125.0, p = 5.09e-29; has a value of y: B 70.0%, elsewhere 90.0%"


def test_where_everybody_has_a_value_or_the_same_level_there_is_nothing_to_check():
    assert check_balance([with_values([10, 10], [10, 10])]) == []
    assert check_balance([table([[10, 0], [12, 0]])]) == []
    assert check_balance([]) == []
    arm = count_columns({"arm": ["A", "B"] * 20, "y": [0.0, 1.0] * 20}, arm="arm", metrics=["y"])
    assert check_balance([arm]) == []  # missing values count as 0: who has one is not known


def test_a_covariate_may_stand_before_the_arms():
    tally = table([[50, 30, 20], [20, 30, 50]])
    turned = Tally(tuple(reversed(tally.factors)), tally.people.T)
    assert check_balance([turned]) == check_balance([tally])


def test_a_missing_level_takes_part_in_chi2_and_not_in_the_mean():
    people = [[100, 100, 0], [100, 100, 60]]
    check = check_balance([table(people, levels=(1, 2, None), scores=(1.0, 2.0, None))])[0]
    assert (check.level, check.arm, check.alarm) == (None, "B", True)
    assert check.differences == {"B": 0.0}


def test_where_scores_do_not_vary_no_difference_is_standardised():
    nobody_scored = table([[100, 0, 30], [60, 0, 70]], levels=(1, 2, None), scores=(1.0, 2.0, None))
    assert check_balance([nobody_scored])[0].differences == {}
    single = table([[0, 1, 30], [1, 0, 70]], levels=(1, 2, None), scores=(1.0, 2.0, None))
    assert check_balance([single])[0].differences == {}


def test_p_is_corrected_over_all_checks_by_holm():
    tables = [table([[130, 70], [100, 100]], "a"), table([[90, 110], [100, 100]], "b")]
    first, second = check_balance(tables)
    assert (first.p_adjusted, second.p_adjusted) == (2 * first.p, second.p)
    assert first.p == pytest.approx(stats.chi2_contingency([[130, 70], [100, 100]], correction=False).pvalue)


def test_an_experiment_must_be_named_and_the_control_be_one_of_its_arms():
    with pytest.raises(AnalysisError, match="'tier' is a covariate, not an experiment"):
        check_balance([eighteen()], "tier")
    with pytest.raises(LevelError, match="unknown arm of 'treatment'"):
        check_balance([eighteen()], control="Z")
    with pytest.raises(AnalysisError, match="optimal_at must be a positive whole number"):
        check_balance_any_time([eighteen()], optimal_at=0)


@pytest.mark.slow
def test_at_any_time_few_of_many_looks_ring_under_no_imbalance():
    """300 experiments of three levels, 40 looks each; their arms are 30/70, and planned as 25/75 or as equal."""
    rng = np.random.default_rng(5)
    for planned in ([0.25, 0.75], [0.5, 0.5]):
        rung = 0
        for _ in range(300):
            steps = rng.multinomial(400, np.outer([0.3, 0.7], [0.5, 0.3, 0.2]).ravel(), 40).reshape(40, 2, 3)
            looks = steps.cumsum(axis=0).astype(np.float64)
            most = max(log_evidence_of_imbalance(people, np.array(planned), 10_000) for people in looks)
            rung += most > -np.log(0.05)
        assert rung <= 15  # 5 % of 300


def test_at_any_time_a_real_imbalance_rings_and_an_unplanned_ratio_does_not():
    unlike, uneven = [table([[5000, 5000], [4500, 5500]])], [table([[9000, 9000], [1000, 1000]])]
    assert check_balance_any_time(unlike)[0].alarm
    assert check_balance_any_time(unlike)[0].p_any_time > check_balance(unlike)[0].p
    assert check_balance_any_time(uneven)[0].p_any_time == 1
    assert check_balance_any_time(uneven, {"A": 9, "B": 1})[0].p_any_time == 1


# ── numbers from before the experiment ─────────────────────────────────────────────────────────


def of_numbers(rng, n=900, arms="ABC", shift=0.0):
    arm = rng.choice(list(arms), n)
    before = np.round(rng.lognormal(2, 1, n) + shift * (arm == "B"), 2)
    rows = {"arm": arm, "before": before}
    return arm, before, count_columns(rows, arm="arm", metrics={"before": Metric("before", 100)})


def test_means_of_a_number_are_compared_by_the_share_of_its_squares_between_arms():
    arm, before, tally = of_numbers(np.random.default_rng(1))
    (check,) = check_balance([tally], numbers=["before"], control="A")
    groups = [before[arm == each] for each in "ABC"]
    between = sum(len(group) * (group.mean() - before.mean()) ** 2 for group in groups)
    chi2 = (len(before) - 1) * between / np.sum((before - before.mean()) ** 2)
    assert (check.about, check.name, check.df) == ("number", "before", 2)
    assert (check.chi2, check.p) == pytest.approx((chi2, stats.chi2.sf(chi2, 2)), rel=1e-10)
    others = before[arm != check.arm]
    assert (check.share, check.elsewhere) == pytest.approx((before[arm == check.arm].mean(), others.mean()), rel=1e-12)
    for place, each in enumerate("BC", 1):
        compared = CompareMeans(DescrStatsW(groups[place]), DescrStatsW(groups[0]))
        pooled = np.sqrt(compared.std_meandiff_pooledvar**2 / (1 / len(groups[0]) + 1 / len(groups[place])))
        assert check.differences[each] == pytest.approx((groups[place].mean() - groups[0].mean()) / pooled, rel=1e-9)
    assert str(check).startswith(f"before: χ²(2) = {check.chi2:.4g}"[:18])
    assert f"mean: {check.arm}" in str(check)


def test_a_number_is_checked_at_any_time():
    _, _, alike = of_numbers(np.random.default_rng(3))
    _, _, apart = of_numbers(np.random.default_rng(3), shift=12)
    (fine,) = check_balance_any_time([alike], numbers=["before"], optimal_at=900)
    (alarm,) = check_balance_any_time([apart], numbers=["before"], optimal_at=900)
    assert (fine.p_any_time, fine.alarm) == (1.0, False)
    assert alarm.p < alarm.p_any_time == alarm.p_adjusted < BALANCE_ALARM
    assert check_balance_any_time([]) == []


def test_a_number_that_nothing_can_be_compared_of_is_left_out():
    same = count_columns({"arm": ["A", "B"] * 4, "x": [5] * 8}, arm="arm", metrics=["x"])
    assert check_balance([same], numbers=["x"]) == check_balance([same], numbers=["y"]) == []
    nobody = of_numbers(np.random.default_rng(4))[2]
    without = nobody - nobody.select_arms(["B"]).coarsen("arm", {})
    (check,) = check_balance([without], numbers=["before"])
    assert (check.df, check.arm in "AC", set(check.differences)) == (1, True, {"C"})


# ── people with noise ──────────────────────────────────────────────────────────────────────────


def noisy_arms(rng, people=2_000):
    """Return levels, values that some lack, and a number, none of which differ between arms, with noise."""
    counts = rng.multinomial(people, np.outer([0.5, 0.5], [0.5, 0.3, 0.2]).ravel()).reshape(2, 3)
    have = rng.binomial(counts, 0.9)
    age, squares = np.zeros((2, 3), dtype=object), np.zeros(2, dtype=object)
    for arm, level in np.ndindex(2, 3):
        values = rng.integers(0, 41, counts[arm, level])
        age[arm, level] = int(values.sum())
        squares[arm] += int((values**2).sum())
    cells = counts.astype(object)
    parts = (
        Moments(Metric("y", 1, (0, 1), "exclude"), have.astype(object), rng.binomial(have, 0.4).astype(object), {}),
        Moments(Metric("age", 1, (0, 40)), cells, age, {("arm",): squares}),
    )
    exact = replace(table(cells, levels=("1", "2", "3")), moments=parts)
    return with_noise(exact, stated_noise(exact, 0.003), rng)


@pytest.mark.slow
def test_checks_of_noisy_people_keep_their_size_and_those_that_ignore_noise_do_not():
    rng, known, ignored = np.random.default_rng(2), [], []
    for _ in range(200):
        noisy = noisy_arms(rng)
        known.append([check.p for check in check_balance([noisy], numbers=["age"])])
        ignored.append([check.p for check in check_balance([restated(noisy, 1e-9)], numbers=["age"])])
    assert np.shape(known) == (200, 3)  # levels, who has a value, and the number
    rings = np.mean(np.array(known) < 0.05, axis=0)
    assert np.all(abs(rings - 0.05) < 0.045)
    assert np.all(np.mean(np.array(ignored) < 0.05, axis=0) > 0.12)


def test_an_imbalance_is_seen_through_noise_and_at_any_time():
    tables = [replace(table(np.array(people, dtype=object)), noise=AddedNoise(np.full((2, 3), 90.0, dtype=object)))
              for people in ([[1_000, 600, 400], [1_000, 600, 400]], [[1_200, 500, 300], [900, 700, 400]])]  # fmt: skip
    even, uneven = (check_balance_any_time([each])[0] for each in tables)
    assert (even.p_any_time, even.alarm) == (1.0, False)
    assert uneven.p_any_time < 1e-6
    assert uneven.alarm
    assert (uneven.arm, uneven.level) == ("B", "L0")


def test_a_number_whose_squares_are_lost_in_noise_is_compared_by_the_noise_of_its_means():
    noisy = noisy_arms(np.random.default_rng(4))
    part = noisy.moments_of("age")
    lost = replace(
        noisy, moments=(noisy.moments_of("y"), replace(part, squares={("arm",): part.squares[("arm",)] * 0}))
    )
    (check,) = [each for each in check_balance([lost], numbers=["age"]) if each.about == "number"]
    assert 0 < check.p <= 1
    assert check.differences == {}
