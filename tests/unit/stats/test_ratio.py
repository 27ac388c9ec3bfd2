"""Ratios of two metrics: numbers by hand, the same people under every missing rule, and what cannot be had."""

import math

import numpy as np
import pytest
from tests.unit.stats.noisy_tables import assert_noise_is_as_stated, stated_noise, with_noise

from kanab import count_columns
from kanab.errors import AnalysisError, LevelError
from kanab.plan.file import parse_plan
from kanab.privacy.epsilon.combined import combine_arms
from kanab.stats import contrast
from kanab.stats.ratio import additive_ratio_means, adjusted_ratio_means, ratio_means

ROWS = {
    "arm": ["A"] * 4 + ["B"] * 4,
    "tier": [1, 2, 1, 2, 1, 1, 2, 2],
    "revenue": [10.0, 0.0, 25.5, 4.5, 30.0, 12.25, 0.0, 7.75],
    "orders": [1, 0, 2, 1, 2, 1, 0, 1],
}
PAIR = [("revenue", "orders")]


def shop(rows=ROWS, products=PAIR, **choices):
    return count_columns(
        rows, arm="arm", metrics=["revenue", "orders"], resolution={"revenue": 0.25, "orders": 1},
        products=products, **choices,
    )  # fmt: skip


def test_people_without_both_values_are_left_out_of_the_plain_ratio():
    rows = ROWS | {"revenue": [10.0, np.nan, 25.5, 4.5, 30.0, 12.25, np.nan, 7.75]}
    rows = rows | {"orders": [1, 0, 2, np.nan, 2, 1, 0, 1]}
    tally = shop(rows, covariates=["tier"], missing={"revenue": "exclude", "orders": "exclude"})
    means = ratio_means(tally, "revenue", "orders")
    assert means.people == (2, 3)
    assert means.means.tolist() == pytest.approx([35.5 / 3, 50 / 4], rel=1e-15)
    with pytest.raises(AnalysisError, match="some people have only one of 'revenue' and 'orders'") as problem:
        adjusted_ratio_means(tally, "revenue", "orders")
    assert "missing = 'zero'" in problem.value.remedy


def test_missing_products_name_the_line_of_the_plan_that_would_have_kept_them():
    with pytest.raises(AnalysisError, match="no cross-products of 'revenue' and 'orders' were kept") as problem:
        ratio_means(shop(products=[]), "revenue", "orders")
    line = 'revenue_per_orders = { ratio = ["revenue", "orders"] }'
    assert line in problem.value.remedy
    plan = parse_plan(
        "[metrics]\nrevenue = { bounds = [0, 500] }\norders = { bounds = [0, 9] }\n"
        f"{line}\n[experiments.arm]\narms = {{ A = 1, B = 1 }}\n"
    )
    assert plan.metrics[2].ratio == ("revenue", "orders")


def test_a_denominator_that_adds_up_to_nothing_is_refused_without_a_number():
    with pytest.raises(AnalysisError, match="'orders' has a mean of 0 in arm 'B'") as problem:
        ratio_means(shop(ROWS | {"orders": [1, 0, 2, 1, 0, 0, 0, 0]}), "revenue", "orders")
    assert "another denominator" in problem.value.remedy
    with pytest.raises(AnalysisError, match="has a mean of 0"):
        ratio_means(shop(ROWS | {"orders": [1, 0, 2, 1, -1, 1, -2, 2]}), "revenue", "orders")


def test_unknown_metrics_and_empty_arms_are_refused():
    with pytest.raises(LevelError, match="unknown metric"):
        ratio_means(shop(), "revenue", "visits")
    nobody = shop() - shop().select_arms(["B"])
    with pytest.raises(AnalysisError, match="arm 'B' has nobody in it"):
        ratio_means(nobody, "revenue", "orders")


def test_a_ratio_is_adjusted_for_covariates_that_were_never_crossed():
    rng = np.random.default_rng(4)
    arm, tier, device = rng.choice(["A", "B"], 400), rng.integers(1, 4, 400), rng.choice(["phone", "desk"], 400)
    orders = rng.poisson(1 + tier, 400)
    rows = {"arm": arm, "tier": tier, "device": device, "orders": orders, "revenue": orders * rng.integers(1, 40, 400)}
    tables = [shop(rows, covariates=[name], squares="arm") for name in ("tier", "device")]
    crossed = shop(rows, covariates=["tier", "device"], squares="arm")
    means = additive_ratio_means([crossed.select_metrics([]), *tables], "revenue", "orders", ["tier", "device"])
    full = adjusted_ratio_means(crossed, "revenue", "orders", ["tier", "device"])
    assert means.means == pytest.approx(full.means, rel=1e-12)
    assert means.covariance == pytest.approx(full.covariance, rel=1e-9)
    with pytest.raises(AnalysisError, match="no table holds the two metrics of the ratio"):
        additive_ratio_means([crossed.select_metrics([])], "revenue", "orders")


def visitors(n=600):
    rng = np.random.default_rng(8)
    orders = rng.poisson(2, n)
    before, age = rng.poisson(20, n) + 4 * orders, rng.integers(18, 80, n)
    return {
        "arm": rng.choice(["A", "B"], n), "tier": rng.integers(1, 4, n), "orders": orders, "before": before, "age": age,
        "revenue": orders * rng.integers(1, 40, n) + before,
    }  # fmt: skip


def counted(rows, numbers=("before", "age"), **choices):
    parts = ("revenue", "orders")
    products = [PAIR[0], *((x, part) for x in numbers for part in parts), ("before", "age")]
    return count_columns(
        rows, arm="arm", metrics=[*parts, "before", "age"], products=products, squares="arm", **choices
    )


@pytest.mark.parametrize("slopes", ["own", "one"])
@pytest.mark.parametrize(
    ("numbers", "covariates"), [(["before"], []), (["before", "age"], []), (["before", "age"], ["tier"])]
)
def test_a_ratio_is_adjusted_for_numbers_as_its_distances_from_the_arms_ratio_are(slopes, numbers, covariates):
    rows = visitors()
    table = counted(rows, covariates=["tier"]).as_categories(["tier"])
    means = additive_ratio_means([table], "revenue", "orders", covariates, numbers=numbers, slopes=slopes)
    y, z, arms = rows["revenue"].astype(float), rows["orders"].astype(float), rows["arm"]
    x = np.column_stack(
        [*(rows[name] for name in numbers), *((rows["tier"] == 2, rows["tier"] == 3) if covariates else ())]
    )
    x = np.column_stack([np.ones(len(y)), x - x.mean(axis=0)])
    ratio = {arm: y[arms == arm].sum() / z[arms == arm].sum() for arm in "AB"}
    mean_z = {arm: z[arms == arm].mean() for arm in "AB"}
    u = np.array([(yi - ratio[arm] * zi) / mean_z[arm] for yi, zi, arm in zip(y, z, arms, strict=True)])
    everyone = np.ones(len(y), dtype=bool)
    for place, arm in enumerate("AB"):
        inside = arms == arm
        fitted = inside if slopes == "own" else everyone
        b, *_ = np.linalg.lstsq(x[fitted], u[fitted], rcond=None)
        left = u[inside] - x[inside, 1:] @ b[1:]
        rss = float(np.sum((left - left.mean()) ** 2))
        share = np.linalg.inv(x[inside].T @ x[inside])[0, 0] if slopes == "own" else 1 / inside.sum()
        freedom = inside.sum() - (x.shape[1] if slopes == "own" else 1)
        assert means.means[place] == pytest.approx(ratio[arm] + left.mean(), rel=1e-11)
        assert means.sample[place] == pytest.approx(rss / freedom * share, rel=1e-11)
        assert means.slopes[place] == pytest.approx(b[1:], rel=1e-9)


def test_a_ratio_needs_a_numbers_products_with_both_its_parts():
    table = count_columns(
        visitors(), arm="arm", metrics=["revenue", "orders", "before"],
        products=[PAIR[0], ("before", "revenue")], squares="arm",
    )  # fmt: skip
    with pytest.raises(AnalysisError, match="the products of before and revenue/orders are not in the tables"):
        additive_ratio_means([table], "revenue", "orders", numbers=["before"])


def test_a_ratio_is_not_adjusted_for_numbers_that_some_people_lack():
    rows = visitors() | {"before": np.r_[np.nan, visitors()["before"][1:]]}
    with pytest.raises(AnalysisError, match="some people have no value of before"):
        additive_ratio_means([counted(rows, missing={"before": "exclude"})], "revenue", "orders", numbers=["before"])


def noisy_shop(people=4000, seed=1):
    rng = np.random.default_rng(seed)
    tier = rng.choice([1, 2], people, p=[0.6, 0.4])
    orders = rng.poisson(0.5 + 0.5 * tier, people).clip(0, 8)
    rows = {
        "arm": rng.choice(["A", "B"], people, p=[0.6, 0.4]),
        "tier": tier.astype(str),
        "revenue": np.clip(np.round(orders * rng.gamma(3, 3, people) * 4) / 4, 0, 100),
        "orders": orders,
        "opened": (rng.random(people) < 0.2).astype(int) | (orders > 1),
    }
    bounds = {"revenue": (0, 100), "orders": (0, 8), "opened": (0, 1)}
    return count_columns(
        rows, arm="arm", covariates=["tier"], metrics=list(bounds), bounds=bounds,
        resolution={"revenue": 0.25, "orders": 1}, products=[("revenue", "orders"), ("revenue", "opened")],
    )  # fmt: skip


def draws_of_ratios(draws, make):
    """Ratios that start from the combined totals of a table of arms and one of classes, and the classes' alone."""
    tally, rng = noisy_shop(), np.random.default_rng(9)
    arms = tally.keep()
    classes, alone = stated_noise(tally, 0.05), stated_noise(arms, 0.05)
    drawn, beside = [], []
    for _ in range(draws):
        table = with_noise(tally, classes, rng)
        drawn.append(make(table, totals=combine_arms(with_noise(arms, alone, rng), [table])))
        beside.append(make(table))
    return make(tally), drawn, beside


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda table, **totals: adjusted_ratio_means(table, "revenue", "orders", "C(tier)", **totals),
        lambda table, **totals: additive_ratio_means([table], "revenue", "orders", ["tier"], **totals),
        lambda table, **totals: additive_ratio_means([table], "revenue", "orders", ["tier"], slopes="one", **totals),
    ],
    ids=["one table", "several tables", "one slope for all arms"],
)
def test_ratios_that_start_from_combined_totals_have_shorter_intervals_and_say_how_short(make):
    draws = 120
    exact, drawn, beside = draws_of_ratios(draws, make)
    assert_noise_is_as_stated(drawn, exact)
    contrasts = [[contrast(means, {"B": 1, "A": -1}) for means in some] for some in (drawn, beside)]
    truth = contrast(exact, {"B": 1, "A": -1}).estimate
    widths = [np.mean([high - low for low, high in (each.interval for each in some)]) for some in contrasts]
    assert widths[0] < 0.9 * widths[1]
    noise_alone = [abs(each.estimate - truth) < 1.96 * each.se_noise for each in contrasts[0]]
    assert np.mean(noise_alone) == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / draws))


def test_nothing_is_divided_by_what_noise_could_have_made():
    tally = noisy_shop(300)
    table = with_noise(tally, stated_noise(tally, 1e-4), np.random.default_rng(1))
    with pytest.raises(AnalysisError, match="noise could have made all 'orders' of arm 'A'"):
        ratio_means(table, "revenue", "orders")


def test_with_noise_a_ratio_needs_a_numbers_products_with_both_its_parts_too():
    tally = noisy_shop()
    table = with_noise(tally, stated_noise(tally, 0.05), np.random.default_rng(1))
    with pytest.raises(AnalysisError, match="the products of opened and revenue/orders are not in the tables"):
        additive_ratio_means([table], "revenue", "orders", numbers=["opened"])
