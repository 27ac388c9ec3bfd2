"""A readout of a release with ε: what knows the noise is given, what does not is a note or an error that says so."""

import numpy as np
import pytest

import kanab as kb
from kanab.errors import AnalysisError
from kanab.plan.file import parse_plan

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


def test_quantiles_have_intervals_and_bins_of_which_none_is_below_nothing(answer):
    (row,) = answer.to_dict()["quantiles"]
    low, high = row["interval"]
    assert low < row["estimate"] < high
    (bins,) = answer.to_dict()["distributions"]
    assert all(min(people) >= 0 for people in bins["people"].values())


def test_formulas_are_refused(released):
    with pytest.raises(AnalysisError, match="a fit of a formula cannot be had from numbers with noise"):
        kb.fit(released, "arm + tier", "spend")
