"""Seeded studies: populations are as described, and known methods do what is known of them."""

import math

import numpy as np
import pytest

from kanab.errors import AnalysisError
from kanab.planning.noise import noise_of_amounts
from kanab.planning.power import solve_power
from kanab.planning.simulation import Population, simulate
from kanab.stats import adjusted_effect, difference_in_means, plain_means


def drawn(**choices):
    return Population(200_000, **choices).draw(np.random.default_rng(5))


@pytest.mark.parametrize(
    ("choices", "variance"),
    [
        ({"kind": "rate", "mean": 0.3}, 0.21),
        ({"kind": "number", "mean": -4.0, "spread": 3.0}, 9.0),
        ({"kind": "count", "mean": 2.0, "spread": 0.0}, 2.0),
        ({"kind": "count", "mean": 2.0, "spread": 0.5}, 2.0 + 0.25 * 4),
        ({"kind": "amount", "mean": 6.0, "spread": 0.5, "paying": 0.25}, (1 + 0.25) * 24**2 * 0.25 - 36),
        ({"kind": "amount", "mean": 6.0, "spread": 0.8, "tail": "gamma"}, 0.64 * 36),
        ({"kind": "amount", "mean": 0.001, "spread": 0.5}, 0.25e-6),
        ({"kind": "amount", "mean": 2.0, "spread": 0.0, "paying": 0.5}, 4.0),
    ],
)
def test_metrics_have_the_mean_and_variance_that_were_asked_for(choices, variance):
    means = plain_means(drawn(**choices))
    se = np.sqrt(means.sample)
    assert means.means == pytest.approx([choices["mean"]] * 2, abs=4 * se.max())
    assert means.sample * means.people == pytest.approx([variance] * 2, rel=0.05)


@pytest.mark.parametrize("kind", ["rate", "amount", "count", "number"])
def test_effects_are_added_to_the_arms_mean(kind):
    world = {"kind": kind, "mean": 0.4, "spread": 0.7, "shares": {"off": 1, "on": 1}, "effects": {"on": 0.2}}
    effect = difference_in_means(drawn(**world))
    assert effect.estimate == pytest.approx(0.2, abs=4 * effect.se)


def test_shares_and_levels_are_as_planned():
    table = drawn(shares={"A": 9, "B": 1}, levels=4)
    assert table.people_by("arm")["B"] / table.total == pytest.approx(0.1, abs=0.003)
    assert np.array(list(table.people_by("level").values())) / table.total == pytest.approx([0.25] * 4, abs=0.005)


def test_the_covariate_explains_what_its_correlation_says():
    table = drawn(kind="number", mean=0.0, spread=1.0, levels=20, correlation=0.6)
    plain, adjusted = difference_in_means(table), adjusted_effect(table)
    assert (adjusted.se / plain.se) ** 2 == pytest.approx(1 - 0.36, abs=0.03)  # twenty levels lose a little


def test_the_same_seed_gives_the_same_study():
    world = Population(300, "count", 1.0, 0.5)
    assert simulate(world, runs=20, seed=3) == simulate(world, runs=20, seed=3)
    assert simulate(world, runs=20, seed=3) != simulate(world, runs=20, seed=4)


@pytest.mark.slow
def test_an_aa_study_rings_in_one_of_twenty():
    study = simulate(Population(200, "number", 5.0, 2.0, shares={"A": 7, "B": 3}), runs=1_500, seed=1)
    room = 3.5 * math.sqrt(0.05 * 0.95 / 1_500)
    assert study.truth == 0
    assert study.rejected == pytest.approx(0.05, abs=room)
    assert study.covered == pytest.approx(1 - study.rejected)
    assert study.error_ratio == pytest.approx(1, abs=0.08)
    assert "finds an effect falsely" in str(study)


@pytest.mark.slow
def test_an_ab_study_has_the_planned_power():
    planned = solve_power(noise_of_amounts(2), people=200, power=0.7).effect
    study = simulate(Population(200, "number", 5.0, 2.0, effects={"B": planned}), runs=1_000, seed=2)
    assert study.rejected == pytest.approx(0.7, abs=3.5 * math.sqrt(0.21 / 1_000))
    assert study.covered == pytest.approx(0.95, abs=0.025)
    assert study.truth == pytest.approx(planned)
    assert "finds the effect of" in str(study)


@pytest.mark.slow
def test_adjustment_finds_more():
    world = Population(400, "number", 0.0, 1.0, effects={"B": 0.2}, levels=5, correlation=0.7)
    plain, adjusted = (simulate(world, how, runs=300, seed=4) for how in (difference_in_means, adjusted_effect))
    assert adjusted.rejected > plain.rejected + 0.1
    assert adjusted.width < plain.width


def test_studies_that_cannot_be_tested_are_counted():
    def welch(tally):
        return difference_in_means(tally, test="welch")

    study = simulate(Population(30, "rate", 0.03), welch, runs=100, seed=1)
    assert 0 < study.untestable < 100
    assert simulate(Population(30, "rate", 0.03), runs=100, seed=1).untestable < study.untestable
    with pytest.raises(AnalysisError, match="hardly any"):
        simulate(Population(4, "rate", 0.0001), welch, runs=5)


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({"people": 3}, "four people"),
        ({"kind": "time"}, "unknown kind"),
        ({"tail": "cauchy"}, "unknown kind"),
        ({"levels": 0}, "levels must be"),
        ({"correlation": 1.5}, "correlation lies"),
        ({"paying": 0}, "paying share"),
        ({"spread": -1}, "the spread"),
        ({"shares": {"A": 1}}, "shares need"),
        ({"effects": {"Z": 0.1}}, "unknown arm"),
        ({"effects": {"B": 0.95}}, "between 0 and 1"),
        ({"kind": "amount", "effects": {"B": -0.2}}, "must be positive"),
        ({"mean": math.inf, "kind": "number"}, "finite numbers"),
    ],
)
def test_impossible_populations_are_refused(wrong, fact):
    with pytest.raises(AnalysisError, match=fact):
        Population(**({"people": 100} | wrong))


def test_a_study_needs_runs():
    with pytest.raises(AnalysisError, match="at least 2"):
        simulate(Population(100), runs=1)
