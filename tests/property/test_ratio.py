"""Ratios from tallies against ratios from rows, and relative effects of controls near zero."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.api import OLS, add_constant

from kanab import count_columns
from kanab.stats import adjusted_means, against_control, contrast, correct, plain_means, relative_effect
from kanab.stats.ratio import adjusted_ratio_means, ratio_means
from kanab.stats.relative import relative_delta
from kanab.stats.sequential import any_time_look, planned_look

SIDES = ("two-sided", "greater", "less")


@st.composite
def shops(draw):
    """Rows of arms, two scored covariates, orders and revenue that depend on all of them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arms, n = draw(st.integers(2, 4)), draw(st.integers(80, 400))
    arm = rng.choice(arms, n, p=rng.dirichlet([20.0] * arms))
    arm[: 10 * arms] = np.arange(10 * arms) % arms
    tier, device = rng.integers(1, 4, n), rng.choice(["pc", "phone"], n)
    tier[:30], device[:30] = np.arange(30) % 3 + 1, np.array(["pc", "phone"])[np.arange(30) // 3 % 2]
    orders = rng.poisson(draw(st.sampled_from([0.3, 2.0])) * tier) + (rng.random(n) < 0.2)
    price = rng.gamma(2, draw(st.sampled_from([0.01, 1.0, 500.0])), n) * (1 + 0.1 * arm)
    rows = {
        "arm": np.array(list("ABCD"))[arm],
        "tier": tier,
        "device": device,
        "revenue": np.rint(orders * price * 100) / 100,
        "orders": orders + (np.arange(n) < 10 * arms),
    }
    tally = count_columns(
        rows, arm="arm", covariates=["tier", "device"], metrics=["revenue", "orders"],
        resolution={"revenue": 0.01}, products=[("revenue", "orders")], squares="arm",
    )  # fmt: skip
    return rows, tally


@given(shops())
@settings(max_examples=40)
def test_plain_ratios_are_the_delta_method_on_rows(shop):
    rows, tally = shop
    means = ratio_means(tally, "revenue", "orders")
    for place, arm in enumerate(means.arms):
        y, z = (rows[name][rows["arm"] == arm].astype(float) for name in ("revenue", "orders"))
        ratio, (variances, n) = y.mean() / z.mean(), (np.cov(y, z), len(y))
        delta = variances[0, 0] - 2 * ratio * variances[0, 1] + ratio**2 * variances[1, 1]
        assert means.means[place] == pytest.approx(ratio, rel=1e-12)
        assert means.sample[place] == pytest.approx(delta / z.mean() ** 2 / n, rel=1e-9)


@given(shops(), st.sampled_from(["tier", "C(tier)", "tier + device"]))
@settings(max_examples=40)
def test_adjusted_ratios_are_lin_and_ding_on_each_persons_part(shop, covariates):
    rows, tally = shop
    means = adjusted_ratio_means(tally, "revenue", "orders", covariates, variance="paper")
    columns = {"tier": [rows["tier"]], "C(tier)": [rows["tier"] == 2, rows["tier"] == 3]}
    columns["tier + device"] = [rows["tier"], rows["device"] == "phone"]
    x = np.column_stack(columns[covariates]).astype(float)
    x = x - x.mean(axis=0)
    n = len(x)
    slopes = []
    for place, arm in enumerate(means.arms):
        inside = rows["arm"] == arm
        y, z = (rows[name][inside].astype(float) for name in ("revenue", "orders"))
        part = y.mean() / z.mean() + (y - y.mean() / z.mean() * z) / z.mean()
        fit = OLS(part, add_constant(x[inside], has_constant="add")).fit()
        assert means.means[place] == pytest.approx(fit.params[0], rel=1e-9)
        assert means.sample[place] == pytest.approx(fit.ssr / fit.df_resid / inside.sum(), rel=1e-9)
        assert means.df[place] == fit.df_resid
        slopes.append(fit.params[1:])
    drawn = np.array(slopes) @ (x.T @ x) @ np.array(slopes).T / (n * (n - 1))
    assert means.covariance - np.diag(means.sample) == pytest.approx(drawn, rel=1e-7, abs=1e-9 * abs(drawn).max())


@st.composite
def near_zero(draw):
    """Arm means of every kind whose control lies at zero, or next to it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.sampled_from([8, 60]))
    y = np.rint(rng.normal(0, draw(st.sampled_from([0.0, 1e-3, 1.0, 1e6])), n) * 1000)
    arm = np.arange(n) % 2
    control = y[arm == 0]
    y[arm == 0] = control - control.mean().round() * draw(st.booleans())
    y[np.flatnonzero(arm == 0)[0]] -= y[arm == 0].sum() * draw(st.booleans())
    y[np.flatnonzero(arm == 0)[0]] += draw(st.sampled_from([0, 0, 1, -1, 1000]))
    rows = {"arm": np.array(["A", "B"])[arm], "tier": np.arange(n) // 2 % 2, "y": y / 1000, "z": np.arange(n) % 3 + 1}
    tally = count_columns(
        rows, arm="arm", covariates=["tier"], metrics=["y", "z"], resolution={"y": 1e-3}, products=[("y", "z")]
    )
    kind = draw(st.sampled_from(["plain", "adjusted", "ratio", "adjusted ratio"]))
    return {
        "plain": lambda: plain_means(tally, "y"),
        "adjusted": lambda: adjusted_means(tally, "y"),
        "ratio": lambda: ratio_means(tally, "y", "z"),
        "adjusted ratio": lambda: adjusted_ratio_means(tally, "y", "z"),
    }[kind]()


@pytest.mark.slow
@given(near_zero(), st.sampled_from(SIDES))
@settings(max_examples=150)
def test_a_control_near_zero_crashes_nothing(means, alternative):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        effect = against_control(means, alternative=alternative)
        found = [relative_effect(means, effect), relative_delta(means, effect)]
        looks = [planned_look(effect, [10, 20], looks=3), any_time_look(effect, 20)]
    for relative in found:
        assert relative.estimate is None or math.isfinite(relative.estimate)
        if relative.interval is not None:
            low, high = relative.interval
            assert low <= relative.estimate <= high
    assert all(str(one) for one in (effect, *looks))
    assert correct([effect.p, None])[1] is None
    assert contrast(means, {"A": 1}).estimate == float(means.exact[0])


@given(near_zero(), st.sampled_from(SIDES))
@settings(max_examples=60)
def test_far_from_zero_delta_and_fieller_agree(means, alternative):
    spread = math.sqrt(float(means.covariance.max())) + float(np.abs(means.means).max()) + 1.0
    moved = tuple(value + int(1e7 * spread) for value in means.exact)
    means = replace(means, exact=moved)
    effect = against_control(means, alternative=alternative)
    fieller, delta = relative_effect(means, effect).interval, relative_delta(means, effect).interval
    assert (fieller is None) == (delta is None)
    if fieller is not None:
        assert delta == pytest.approx(fieller, rel=1e-5, abs=1e-15)
