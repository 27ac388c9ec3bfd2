"""The effect of receiving: published trials, two-stage least squares on rows, Fieller's set, and simulated coverage."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from statsmodels.sandbox.regression.gmm import IV2SLS
from tests.unit.stats.noisy_tables import stated_noise, with_noise

from kanab import count_columns
from kanab.errors import AnalysisError, LevelError
from kanab.stats import additive_means, adjusted_effect, contrast, difference_in_means, received_effect
from kanab.stats.cace import _fieller, means_together, received_from_means


def counted(rows, **choices):
    metrics = [name for name in rows if name not in ("arm", "tier")]
    pairs = [("opened", name) for name in metrics if name != "opened"]
    return count_columns(rows, arm="arm", metrics=metrics, products=pairs, **choices)


def trial(*cells):
    """Return rows of (arm, received, outcome, people)."""
    arm, opened, y = ([cell[i] for cell in cells for _ in range(cell[3])] for i in range(3))
    return {"arm": arm, "opened": opened, "spend": y}


VITAMIN_A = trial(
    ("control", 0, 1, 74), ("control", 0, 0, 11_588 - 74),
    ("vitamin", 1, 1, 12), ("vitamin", 1, 0, 9_675 - 12), ("vitamin", 0, 1, 34), ("vitamin", 0, 0, 2_419 - 34),
)  # fmt: skip


def test_the_vitamin_a_trial_of_sommer_and_zeger_gives_the_printed_effect_on_compliers():
    effect = received_effect(counted(VITAMIN_A), "spend", "opened")
    assert effect.shares == (0, 9_675 / 12_094)
    assert round(effect.assignment, 4) == -0.0026
    assert (round(effect.estimate, 4), round(effect.se, 4)) == (-0.0032, 0.0012)  # Imbens and Rubin (1997)
    # deaths per thousand; 1.2 in the trial's table
    assert [round(1000 * mean, 1) for mean in effect.means] == [4.5, 1.2]
    assert effect.one_sided
    assert not effect.weak
    assert effect.f > 10_000


def made(n=900, seed=5, two_sided=True):
    rng = np.random.default_rng(seed)
    arm = rng.integers(0, 2, n)
    willing = rng.random(n)
    opened = ((arm == 1) & (willing < 0.6)) | (two_sided & (willing < 0.15))
    spend = np.round(rng.gamma(1.5, 8, n) + 5 * opened + 12 * (willing < 0.3), 2)
    return {"arm": np.where(arm == 1, "B", "A"), "opened": opened.astype(int), "spend": spend}


def two_stages(rows, dose="opened"):
    """Return estimate and robust error (HC2) of two-stage least squares on rows."""
    z = np.column_stack([np.ones(len(rows["arm"])), np.asarray(rows["arm"]) == "B"]).astype(float)
    x = np.column_stack([np.ones(len(rows["arm"])), rows[dose]]).astype(float)
    y = np.asarray(rows["spend"], dtype=float)
    estimate = IV2SLS(y, x, z).fit().params
    leverage = np.einsum("ij,jk,ik->i", z, np.linalg.inv(z.T @ z), z)
    bread = np.linalg.inv(z.T @ x)
    residuals = (y - x @ estimate) ** 2 / (1 - leverage)
    return estimate[1], math.sqrt((bread @ (z.T * residuals @ z) @ bread.T)[1, 1])


@pytest.mark.parametrize("two_sided", [True, False])
def test_sums_give_what_two_stage_least_squares_gives_on_rows(two_sided):
    rows = made(two_sided=two_sided)
    effect = received_effect(counted(rows, resolution={"spend": 0.01}), "spend", "opened")
    assert (effect.estimate, effect.se) == pytest.approx(two_stages(rows), rel=1e-10)
    assert effect.one_sided is not two_sided


def test_a_dose_is_read_per_unit_and_has_no_means_of_compliers():
    rows = made()
    rows["opened"] = rows["opened"] * 1.5 + (np.arange(900) % 3) * 0.5
    effect = received_effect(counted(rows, resolution={"spend": 0.01, "opened": 0.5}), "spend", "opened")
    assert (effect.estimate, effect.se) == pytest.approx(two_stages(rows), rel=1e-10)
    assert effect.means is None
    assert not effect.one_sided


def test_fiellers_set_holds_exactly_the_effects_that_welchs_test_does_not_reject():
    rows = made(n=160)
    effect = received_effect(counted(rows, resolution={"spend": 0.01}), "spend", "opened")
    ((low, high),) = effect.ranges
    assert low < effect.estimate < high
    df = difference_in_means(counted(rows, resolution={"spend": 0.01}), "spend").df
    for end in (low, high):
        shifted = rows["spend"] - end * rows["opened"]
        a, b = shifted[rows["arm"] == "A"], shifted[rows["arm"] == "B"]
        t = (b.mean() - a.mean()) / math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
        assert 2 * stats.t.sf(abs(t), df) == pytest.approx(0.05, rel=1e-8)


def weak(effect, n=400, seed=1):
    rng = np.random.default_rng(seed)
    arm = np.arange(n) % 2
    opened = (np.arange(n) // 2 % 10 < np.where(arm == 1, 6, 5)).astype(int)
    return {
        "arm": np.where(arm == 1, "B", "A"),
        "opened": opened,
        "spend": np.round(rng.normal(50, 1, n) + effect * arm),
    }


def test_a_weak_assignment_leaves_two_rays_or_the_whole_line():
    rays = received_effect(counted(weak(3.0)), "spend", "opened", confidence=0.9999)
    (left, low), (high, right) = rays.ranges
    assert (left, right) == (-math.inf, math.inf)
    assert low < 0 < high  # some effect there is, in one direction or the other
    assert rays.weak
    line = received_effect(counted(weak(0.0)), "spend", "opened", confidence=0.9999)
    assert line.ranges == ((-math.inf, math.inf),)


def test_at_the_edge_between_an_interval_and_rays_the_set_is_one_ray():
    zero = Fraction(0)
    spreads = (Fraction(1, 4), zero, Fraction(1))
    up = _fieller(Fraction(2), Fraction(1), spreads, Fraction(1))
    assert up == ((pytest.approx((4 - 0.25) / 4), math.inf),)
    down = _fieller(Fraction(-2), Fraction(1), spreads, Fraction(1))
    assert down == ((-math.inf, pytest.approx(-(4 - 0.25) / 4)),)
    assert _fieller(zero, Fraction(1), spreads, Fraction(1)) == ((-math.inf, math.inf),)


def test_a_metric_that_does_not_vary_has_no_interval():
    rows = made(n=60) | {"spend": np.ones(60)}
    effect = received_effect(counted(rows), "spend", "opened")
    assert (effect.estimate, effect.se, effect.df, effect.interval, effect.ranges) == (0, 0, None, None, None)


def test_what_cannot_be_had_is_said_with_a_remedy():
    rows = made(n=100)
    turned = count_columns(rows, arm="arm", metrics=["spend", "opened"], products=[("spend", "opened")])
    assert received_effect(turned, "spend", "opened") == received_effect(counted(rows), "spend", "opened")
    bare = count_columns(rows, arm="arm", metrics=["spend", "opened"])
    with pytest.raises(AnalysisError, match="no products of 'spend' and 'opened' were kept"):
        received_effect(bare, "spend", "opened")
    with pytest.raises(LevelError, match="unknown metric"):
        received_effect(counted(rows), "spend", "seen")
    with pytest.raises(LevelError):
        received_effect(counted(rows), "spend", "opened", arm="Z")
    with pytest.raises(AnalysisError, match="confidence"):
        received_effect(counted(rows), "spend", "opened", confidence=2)
    alike = {"arm": ["A", "B"] * 4, "opened": [0, 0, 1, 1] * 2, "spend": [1, 2, 3, 4] * 2}
    with pytest.raises(AnalysisError, match="both arms have the same mean of 'opened'"):
        received_effect(counted(alike), "spend", "opened")
    gone = {"arm": ["A"] * 4 + ["B"] * 4, "opened": [0, 1, None, None, 1, 0, 1, 1], "spend": [None, 1, 2, 3] * 2}
    with pytest.raises(AnalysisError, match="'A' has too few people who have both"):
        received_effect(counted(gone, missing={"spend": "exclude", "opened": "exclude"}), "spend", "opened")


# ── adjusted ───────────────────────────────────────────────────────────────────────────────────


def with_levels(n=1_200, seed=9):
    rows = made(n, seed)
    tier, device = np.arange(n) % 3, np.arange(n) // 3 % 2
    return rows | {"tier": tier, "device": device, "spend": np.round(rows["spend"] + 9 * tier + 4 * device, 2)}


def tally_of(rows, *covariates, pairs=(("opened", "spend"),), metrics=("opened", "spend"), **choices):
    return count_columns(
        rows, arm="arm", covariates=list(covariates), metrics=list(metrics), products=list(pairs),
        resolution={"spend": 0.01} if metrics else None, **choices,
    )  # fmt: skip


def adjusted(table, numbers=(), slopes="own"):
    """The effect of receiving by adjusted means, as a readout has it."""
    means = means_together([table], "spend", "opened", variance="exact", numbers=numbers, slopes=slopes)
    return received_from_means(received_effect(table, "spend", "opened"), table, means)


def test_adjusted_the_error_is_that_of_each_persons_y_minus_the_effect_times_d():
    rows = with_levels()
    effect = adjusted(tally_of(rows, "tier"))
    y, d = (adjusted_effect(tally_of(rows, "tier"), name) for name in ("spend", "opened"))
    assert effect.covariates == ("tier",)
    assert (effect.assignment, effect.difference) == pytest.approx((y.estimate, d.estimate), rel=1e-12)
    assert effect.estimate == pytest.approx(y.estimate / d.estimate, rel=1e-12)
    left = rows["spend"] - effect.estimate * rows["opened"]
    residual = count_columns(
        {"arm": rows["arm"], "tier": rows["tier"], "left": left}, arm="arm", covariates=["tier"], metrics=["left"],
        resolution={"left": 1e-9},
    )  # fmt: skip
    expected = adjusted_effect(residual, "left")
    assert expected.estimate == pytest.approx(0, abs=1e-7)
    assert effect.se == pytest.approx(expected.se_population / abs(d.estimate), rel=1e-7)
    assert effect.df == pytest.approx(expected.df, rel=1e-6)
    assert effect.se < received_effect(tally_of(rows), "spend", "opened").se
    assert effect.f == pytest.approx((d.estimate / d.se_population) ** 2, rel=1e-10)


@pytest.mark.parametrize("covariates", [(), ("tier",)])
@pytest.mark.parametrize("slopes", ["own", "one"])
def test_numbers_are_adjusted_for_as_they_are_and_the_error_is_that_of_y_minus_the_effect_times_d(slopes, covariates):
    rows = with_levels()
    before = np.round(np.random.default_rng(4).gamma(2, 5, len(rows["arm"])), 2)
    rows |= {"before": before, "spend": np.round(rows["spend"] + 2 * before, 2)}
    names = ("opened", "spend", "before")
    pairs = [("opened", "spend"), ("before", "spend"), ("before", "opened")]
    table = tally_of(rows, *covariates, pairs=pairs, metrics=names)
    asked = {"numbers": ["before"], "slopes": slopes}
    effect = adjusted(table, **asked)
    y, d = (contrast(additive_means([table], name, **asked), {"B": 1, "A": -1}) for name in ("spend", "opened"))
    assert effect.estimate == pytest.approx(y.estimate / d.estimate, rel=1e-12)
    left = rows | {"left": rows["spend"] - effect.estimate * rows["opened"]}
    residual = count_columns(
        left, arm="arm", covariates=list(covariates), metrics=["left", "before"], products=[("before", "left")],
        resolution={"left": 1e-9, "before": 0.01},
    )  # fmt: skip
    expected = contrast(additive_means([residual], "left", **asked), {"B": 1, "A": -1})
    assert effect.se == pytest.approx(expected.se_population / abs(d.estimate), rel=1e-7)
    assert effect.se < 0.9 * received_effect(table, "spend", "opened").se
    with pytest.raises(AnalysisError, match="products of before and opened are not in the tables"):
        adjusted(tally_of(rows, pairs=pairs[:2], metrics=names), **asked)


def test_what_cannot_be_adjusted_is_said_with_a_remedy():
    rows = with_levels(60)
    gone = rows | {"opened": [None if i % 7 == 0 else value for i, value in enumerate(rows["opened"])]}
    with pytest.raises(AnalysisError, match="some people have only one of 'spend' and 'opened'"):
        adjusted(tally_of(gone, "tier", missing={"opened": "exclude"}))
    mixed = trial(("A", 0, 1, 2), ("A", 1, 3, 2), ("B", 0, 2, 4), ("B", 1, 5, 4))  # half of each arm opened
    other = trial(("A", 0, 1, 6), ("A", 1, 3, 2), ("B", 0, 2, 3), ("B", 1, 5, 1))  # a quarter of each
    level = {name: [*mixed[name], *other[name]] for name in mixed} | {"tier": [0] * 12 + [1] * 12}
    assert received_effect(tally_of(level), "spend", "opened").difference == pytest.approx(1 / 12)
    with pytest.raises(AnalysisError, match="both arms have the same mean of 'opened'"):
        adjusted(tally_of(level, "tier"))


def test_adjusted_effects_of_what_does_not_vary_have_no_interval():
    rows = with_levels(120) | {"spend": np.ones(120)}
    effect = adjusted(tally_of(rows, "tier"))
    assert (effect.estimate, effect.interval, effect.ranges) == (0, None, None)
    full = with_levels(120)
    full["opened"] = (full["arm"] == "B").astype(int)
    assert adjusted(tally_of(full, "tier")).f == math.inf


# ── with noise ─────────────────────────────────────────────────────────────────────────────────


def noisy_trial(people=8000):
    rng = np.random.default_rng(3)
    arm, tier = rng.choice(["A", "B"], people), rng.choice(["x", "y"], people)
    before = np.round(rng.gamma(2, 6, people)).clip(0, 60)
    opened = ((arm == "B") & (rng.random(people) < 0.6)).astype(int)
    spend = np.round(before / 2 + 5 * opened + 4 * (tier == "x") + rng.gamma(1, 8, people)).clip(0, 100)
    rows = {"arm": arm, "tier": tier, "before": before, "opened": opened, "spend": spend}
    return count_columns(
        rows, arm="arm", covariates=["tier"], metrics=["before", "opened", "spend"],
        bounds={"before": (0, 60), "opened": (0, 1), "spend": (0, 100)}, resolution={"before": 1, "spend": 1},
        products=[("opened", "spend"), ("before", "opened"), ("before", "spend")],
    )  # fmt: skip


def plainly(table):
    return received_effect(table, "spend", "opened")


def by_tier(table):
    return adjusted(table)


def by_number(table):
    return adjusted(table.keep(), numbers=["before"])


@pytest.mark.slow
@pytest.mark.parametrize("effect", [plainly, by_tier, by_number])
def test_the_error_with_noise_is_that_of_people_and_that_of_noise(effect):
    tally, rng, draws = noisy_trial(), np.random.default_rng(2), 80
    noise = stated_noise(tally, 0.02)
    drawn = [effect(with_noise(tally, noise, rng)) for _ in range(draws)]
    exact = effect(tally)
    noise_in_it = np.var([each.estimate for each in drawn])
    assert noise_in_it > exact.se**2 / 4
    assert np.mean([each.se**2 for each in drawn]) == pytest.approx(exact.se**2 + noise_in_it, rel=0.35)
    assert not any(each.one_sided for each in drawn)
    assert all(each.df < exact.df for each in drawn)
    assert np.mean([each.f for each in drawn]) < exact.f


def test_an_effect_of_receiving_that_drowns_in_noise_is_too_noisy_to_tell():
    tally = noisy_trial(3000)
    lost = with_noise(tally, stated_noise(tally, 6e-5), np.random.default_rng(1)).keep()
    with pytest.raises(AnalysisError, match="the effect of receiving 'opened' is too noisy to tell"):
        received_effect(lost, "spend", "opened")
    means = means_together([tally], "spend", "opened", variance="exact", numbers=[], slopes="own")
    hidden = tuple(replace(each, sample=np.zeros(2), noise=np.eye(2)) for each in means)
    with pytest.raises(AnalysisError, match="the adjusted effect of receiving 'opened' is too noisy to tell"):
        received_from_means(received_effect(tally, "spend", "opened"), tally, hidden)


def test_noise_of_products_that_were_not_kept_is_not_made_up():
    tally, noise = noisy_trial(3000), stated_noise(noisy_trial(3000), 0.05)
    table = with_noise(tally, noise, np.random.default_rng(1))
    kept = {key: cells for key, cells in noise.products.items() if key[0] != ("before", "opened")}
    fewer = replace(table, crosses=(table.crosses[0], table.crosses[2]), noise=replace(noise, products=kept))
    with pytest.raises(AnalysisError, match="the products of before and opened are not in the tables"):
        adjusted(fewer, numbers=["before"])
