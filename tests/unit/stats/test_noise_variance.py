"""Noise in what was measured: its variance in means and squares, against many draws of it on one exact table."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.stats.noisy_tables import stated_noise, with_noise

from kanab import count_columns
from kanab.errors import DesignError
from kanab.stats.effect import against_control, plain_means
from kanab.stats.gram import arm_squares
from kanab.stats.noise_variance import (
    class_mean_noise,
    freedom_with_noise,
    lost_squares,
    measured,
    squares_noise,
    variances_above_noise,
)
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

DRAWS = 500


def shop(people=1000, **choices):
    rng = np.random.default_rng(1)
    rows = {
        "arm": rng.choice(["A", "B"], people, p=[0.75, 0.25]),
        "spend": np.round(rng.gamma(1.0, 12.0, people)),
        "bought": (rng.random(people) < 0.2).astype(int),
    }
    bounds = {"spend": (0, 100), "bought": (0, 1)}
    return count_columns(
        rows, arm="arm", metrics=["spend", "bought"], bounds=bounds, resolution={"spend": 1}, **choices
    )


def drawn(tally, of, rho=0.02, draws=DRAWS, seed=7):
    rng, noise = np.random.default_rng(seed), stated_noise(tally, rho)
    return np.array([of(with_noise(tally, noise, rng)) for _ in range(draws)])


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["spend", "bought"])
def test_the_noise_of_an_arm_mean_varies_as_much_as_it_says(metric):
    tally = shop()
    exact = class_mean_noise(with_noise(tally, stated_noise(tally, 1e9), np.random.default_rng(3)), metric) * 5e10
    means = drawn(tally, lambda table: plain_means(table, metric).means)
    assert means.mean(axis=0) == pytest.approx(plain_means(tally, metric).means, abs=4 * means.std() / DRAWS**0.5)
    assert means.var(axis=0) == pytest.approx(exact, rel=0.2)


@pytest.mark.parametrize("metric", ["spend", "bought"])
def test_squares_within_an_arm_are_right_on_average_and_vary_as_they_say(metric):
    tally = shop()

    def squares(table):
        known = measured(table, metric, arm_squares(table, metric))
        left, variance = known.left(known.t / known.n)
        return left + lost_squares(table, metric), variance

    within = drawn(tally, squares)
    plain = plain_means(tally, metric)
    people = np.array(plain.people, dtype=float)
    exact = plain.sample * people * (people - 1)
    assert within[:, 0].mean(axis=0) == pytest.approx(exact, abs=4 * within[:, 0].std() / DRAWS**0.5)
    assert within[:, 0].var(axis=0) == pytest.approx(within[:, 1].mean(axis=0), rel=0.2)


def test_a_rate_has_no_squares_of_its_own_and_people_with_a_value_have_their_own_noise():
    tally = shop(missing={"spend": "exclude"})
    noisy = with_noise(tally, stated_noise(tally), np.random.default_rng(1))
    assert squares_noise(noisy, "bought").tolist() == [0.0, 0.0]
    assert squares_noise(noisy, "spend") == pytest.approx([2500.0**2 / 0.02] * 2)
    known = measured(noisy, "spend", arm_squares(noisy, "spend"))
    assert known.n_noise == pytest.approx([50.0, 50.0])


def test_an_arm_with_fewer_people_than_the_noise_could_have_made_has_no_mean():
    tally = shop(40)
    noisy = with_noise(tally, stated_noise(tally, 1e-3), np.random.default_rng(5))
    with pytest.raises(DesignError, match=r"^arm 'A' has too few people for this noise. Wait for more people"):
        measured(noisy, "bought", arm_squares(noisy, "bought"))


def test_a_variance_below_its_own_noise_is_no_variance():
    assert variances_above_noise(np.array([4.0, 4.0, -1.0]), np.array([2.0, 1.9, 50.0])).tolist() == [4.0, 0.0, 0.0]
    freedom = freedom_with_noise(np.array([100.0, -1.0]), np.array([50.0, 9.0]), np.array([400.0, 1.0]))
    assert freedom.tolist() == [25, 9]


@pytest.mark.slow
def test_intervals_of_amounts_with_noise_cover_and_those_that_ignore_it_do_not():
    rng, runs, kept, ignored = np.random.default_rng(8), 300, 0, 0
    chances = [np.array([0.7, *np.full(20, 0.3 / 20)]), np.array([0.6, *np.full(20, 0.4 / 20)])]
    values = np.arange(21)
    truth = float((chances[1] - chances[0]) @ values)
    for _ in range(runs):
        seen = np.array([rng.multinomial(n, p) for n, p in zip((18_000, 2_000), chances, strict=True)]).astype(object)
        counts, squares = seen.sum(axis=1), {("arm",): seen @ values**2}
        table = Tally(
            (Factor("arm", ("A", "B"), "arm"),), counts,
            (Moments(Metric("spend", 1, (0, 20)), counts, seen @ values, squares),),
        )  # fmt: skip
        means = plain_means(with_noise(table, stated_noise(table, 0.0006), rng))
        for known, noise in ((True, means.noise), (False, means.noise * 0)):
            low, high = against_control(replace(means, noise=noise)).interval
            kept += known and low <= truth <= high
            ignored += not known and low <= truth <= high
    assert 0.93 <= kept / runs <= 0.97
    assert ignored / runs < 0.85
