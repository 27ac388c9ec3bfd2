"""A readout of a release with ε: what knows the noise is given, what does not is a note or an error that says so."""

import numpy as np
import pytest

import kanab as kb
from kanab.errors import AnalysisError
from kanab.plan.file import parse_plan
from kanab.stats import adjusted_ratio_means, contrast

pytest.importorskip("opendp")

PLAN = parse_plan("""
[metrics.bought]
bounds = [0, 1]
resolution = 1
missing = "zero"
[metrics.spend]
bounds = [0, 100]
resolution = 1
missing = "zero"
bins = [0, 10, 20, 30, 50, 100]
[covariates]
tier = { levels = ["1", "2", "3"] }
[experiments.checkout]
arms = { A = 1, B = 1 }
segments = ["tier"]
quantiles = { spend = [0.5] }
""")


@pytest.fixture(scope="module")
def released():
    rng, people = np.random.default_rng(1), 8_000
    rows = {
        "checkout": rng.choice(["A", "B"], people),
        "tier": rng.choice(["1", "2", "3"], people),
        "bought": rng.random(people) < 0.3,
        "spend": np.minimum(100, rng.exponential(20, people)).astype(int),
    }
    return kb.release(kb.count(rows, PLAN), epsilon=8.0)


@pytest.fixture(scope="module")
def answer(released):
    return kb.analyze(released)


def test_the_robust_test_decides_and_the_pooled_one_says_why_it_is_not_made(answer):
    tests = answer.to_dict()["segments"]
    pooled, robust = ([row for row in tests if row["decides"] == decides] for decides in (False, True))
    assert all(row["p"] is not None for row in robust)
    assert {row["note"] for row in pooled} == {"noise differs between classes, so that only the robust test is made"}


def test_effects_at_levels_have_simultaneous_intervals_by_welchs_t(answer):
    effects = [row for row in answer.to_dict()["segment_effects"] if row["metric"] == "bought"]
    assert len(effects) == 3
    assert all(row["test"] == "welch" and row["interval_adjusted"] is not None for row in effects)


def test_the_sample_ratio_and_balance_are_tested(answer):
    assert answer.sample_ratio.p > 1e-6
    assert [check.name for check in answer.balance] == ["tier"]


def test_quantiles_have_intervals_and_bins_of_which_none_is_below_nothing(answer):
    (row,) = answer.to_dict()["quantiles"]
    low, high = row["interval"]
    assert low < row["estimate"] < high
    (bins,) = answer.to_dict()["distributions"]
    assert all(min(people) >= 0 for people in bins["people"].values())


def test_formulas_are_refused(released):
    with pytest.raises(AnalysisError, match="a fit of a formula cannot be had from numbers with noise"):
        kb.fit(released, "arm + tier", "spend")


ADJUSTED = parse_plan("""
[metrics.spend]
bounds = [0, 100]
resolution = 1
missing = "zero"
[metrics.orders]
bounds = [0, 5]
resolution = 1
missing = "zero"
[metrics.basket]
ratio = ["spend", "orders"]
[covariates]
tier = { levels = ["1", "2", "3"] }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
""")


def test_adjusted_ratios_of_a_readout_start_from_the_combined_totals_of_all_tables():
    rng, people = np.random.default_rng(2), 8_000
    orders = rng.integers(0, 6, people)
    rows = {
        "checkout": rng.choice(["A", "B"], people),
        "tier": rng.choice(["1", "2", "3"], people),
        "orders": orders,
        "spend": np.minimum(100, orders * rng.integers(5, 15, people)),
    }
    released = kb.release(kb.count(rows, ADJUSTED), epsilon=8.0)
    tables = released.tables_of("checkout")
    row = next(
        row for row in kb.analyze(released).effects
        if (row.effect.metric, row.effect.method) == ("spend/orders", "adjusted")
    )  # fmt: skip
    made = [
        contrast(adjusted_ratio_means(tables["checkout/tier"], "spend", "orders", totals=totals), {"B": 1, "A": -1})
        for totals in (released.totals("checkout"), None)
    ]
    assert row.effect.estimate == made[0].estimate != made[1].estimate
    assert row.effect.se_noise == made[0].se_noise < 0.9 * made[1].se_noise
