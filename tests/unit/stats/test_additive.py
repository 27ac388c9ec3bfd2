"""Adjusting from pair tables gives what one table that crosses everything gives; numbers, what their rows give."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import tea_tasting as tt
from scipy import stats as scipy_stats
from tests.unit.stats.noisy_tables import assert_noise_is_as_stated, stated_noise, with_noise

from kanab import Metric, Tally, count_columns
from kanab.errors import AnalysisError, DesignError
from kanab.stats import additive_ratio_means, adjusted_means, against_control, marginals, plain_means
from kanab.stats.additive import additive_means
from kanab.tally.factor import Factor
from kanab.tally.moments import Cross, Moments

NAMES = ("tier", "device", "country")


def rows(n=900, shift=0.0, seed=2):
    rng = np.random.default_rng(seed)
    tier = rng.integers(1, 5, n).astype(float)
    tier[rng.random(n) < 0.05] = np.nan
    device = rng.choice(["phone", "desktop", "tablet"], n)
    country = np.where((device == "phone") & (rng.random(n) < 0.5), "NO", rng.choice(["SE", "DK"], n))
    arm = rng.choice(["A", "B", "C"], n, p=[0.6, 0.3, 0.1])
    y = np.round(np.nan_to_num(tier) + (device == "phone") + rng.normal(0, 1, n), 2) + shift
    bought = (rng.random(n) < 0.2).astype(int)
    return {"arm": arm, "tier": tier, "device": device, "country": country, "y": y, "bought": bought}


def counted(data, covariates):
    metrics = {"y": Metric("y", 100), "bought": Metric("bought", 1, (0, 1))}
    return count_columns(data, arm="arm", covariates=covariates, metrics=metrics, squares="arm")


def pairs(data, names=NAMES):
    return [counted(data, pair) for pair in combinations(names, 2)]


@pytest.mark.parametrize("variance", ["paper", "exact"])
@pytest.mark.parametrize("metric", ["y", "bought"])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_pair_tables_are_as_good_as_the_full_cross(variance, metric, shift):
    data = rows(shift=shift)
    data["tier"] = data["tier"] / 4 + 0.1 if shift else data["tier"]  # scores may have fractions
    means = additive_means(pairs(data), metric, variance=variance)
    full = adjusted_means(counted(data, NAMES), metric, variance=variance)
    assert means.covariates == full.covariates == NAMES
    assert means.means == pytest.approx(full.means, rel=1e-13)
    assert means.covariance == pytest.approx(full.covariance, rel=1e-9)
    assert means.df == pytest.approx(full.df)
    for arm in "BC":
        one, two = against_control(means, arm), against_control(full, arm)
        assert (one.estimate, one.se, one.se_population, one.p) == pytest.approx(
            (two.estimate, two.se, two.se_population, two.p), rel=1e-9
        )


def test_sums_beyond_machine_words_are_added_as_whole_numbers_of_any_size(monkeypatch):
    quick = additive_means(pairs(rows()), "y")
    monkeypatch.setattr(marginals, "_ROOM", 0)
    assert additive_means(pairs(rows()), "y").exact == quick.exact


def test_a_missing_pair_is_named():
    data = rows()
    with pytest.raises(AnalysisError, match="there is no table of arm × device × country"):
        additive_means(pairs(data)[:2], "y")


def test_tables_of_other_people_are_refused():
    data = rows()
    changed = data | {"y": np.concatenate([[data["y"][0] + 1], data["y"][1:]])}
    with pytest.raises(AnalysisError, match="not about the same people"):
        additive_means([*pairs(data)[:2], pairs(changed)[2]], "y")
    fewer = {name: column[:-1] for name, column in data.items()}
    with pytest.raises(AnalysisError, match="not about the same people"):
        additive_means([*pairs(data)[:2], pairs(fewer)[2]], "bought")


def test_levels_must_be_merged_alike():
    data = rows()
    first, second, third = pairs(data)
    with pytest.raises(AnalysisError, match="different arms or levels"):
        additive_means([first, second, third.coarsen("device", {"phone": "other", "tablet": "other"})], "y")


def test_what_cannot_be_told_apart_is_named():
    data = rows()
    data["twin"] = np.where(data["device"] == "phone", "yes", "no")
    with pytest.raises(DesignError, match="cannot tell these terms apart"):
        additive_means(pairs(data, ("tier", "device", "twin")), "y")


def test_wrong_requests_are_refused():
    data = rows()
    with pytest.raises(AnalysisError, match="in none of the tables"):
        additive_means(pairs(data), "y", ["age"])
    with pytest.raises(AnalysisError, match="in none of the tables"):
        additive_means([], "y")
    with pytest.raises(AnalysisError, match="unknown variance"):
        additive_means(pairs(data), "y", variance="hc3")
    alone = {name: column[:40] for name, column in data.items()} | {"device": ["phone"] * 40}
    with pytest.raises(AnalysisError, match="no covariate to adjust for"):
        additive_means([counted(alone, ["device"])], "y")
    tiny = {name: column[:12] for name, column in data.items()}
    with pytest.raises(DesignError, match="too few people"):
        additive_means(pairs(tiny), "y")


def test_an_arm_without_anybody_is_refused():
    data = rows()
    only = {name: values[data["arm"] == "C"] for name, values in data.items()}
    tables = [counted(data, pair) - counted(only, pair) for pair in combinations(NAMES, 2)]
    with pytest.raises(AnalysisError, match="an arm has nobody in it"):
        additive_means(tables, "y")


def test_the_same_pair_in_the_other_order_says_the_same():
    data = rows()
    twice = [*pairs(data), counted(data, ("device", "tier"))]
    assert additive_means(twice, "y").exact == additive_means(pairs(data), "y").exact


def people_only(tables):
    return [table.select_metrics([]) for table in tables]


def test_a_covariate_needs_a_table_with_the_metric():
    data = rows()
    tables = [*people_only(pairs(data)), counted(data, ["tier"]), counted(data, ["device"])]
    with pytest.raises(AnalysisError, match=r"there are no sums of 'y' by country\. Give a table of each covariate"):
        additive_means(tables, "y")


def test_people_without_a_value_are_not_taken_for_people_with_one():
    data = rows()
    data["y"][:40] = np.nan
    metrics = {"y": Metric("y", 100, missing="exclude")}
    singles = [count_columns(data, arm="arm", covariates=[name], metrics=metrics, squares="arm") for name in NAMES]
    with pytest.raises(AnalysisError, match="some people have no value of 'y', and by tier × device it is not known"):
        additive_means([*singles, *people_only(pairs(data))], "y")


# ── numbers as they are ────────────────────────────────────────────────────────────────────────

NUMBERS = ("before", "age")


def people(n=1200, seed=3, shift=0.0):
    """Return rows with two numbers from before: amounts with a long tail, and ages; slopes differ by arm."""
    rng = np.random.default_rng(seed)
    data = rows(n, seed=seed)
    data["device"] = rng.choice(["phone", "desktop", "tablet"], n)
    data["country"] = rng.choice(["NO", "SE", "DK"], n)
    data["before"] = np.round(rng.lognormal(2, 1, n), 2) + shift
    data["age"] = rng.integers(18, 80, n) + shift
    slope = np.where(data["arm"] == "A", 0.5, 0.8)
    data["y"] = np.round(
        slope * data["before"] + 0.05 * data["age"] + (data["device"] == "phone") + rng.normal(0, 2, n), 2
    )
    return data


def with_numbers(data, covariates=(), numbers=NUMBERS, **choices):
    metrics = {"y": Metric("y", 100), "before": Metric("before", 100), "age": Metric("age")}
    kept = {name: metric for name, metric in metrics.items() if name in ("y", *numbers)}
    products = [*((number, "y") for number in numbers), *combinations(numbers, 2)]
    return count_columns(
        data, arm="arm", covariates=covariates, metrics=kept, squares="arm", products=products, **choices
    )


def tables(data, covariates, numbers=NUMBERS):
    """Return what a release holds: a table of each covariate, tables of people by two, and one of arms."""
    singles = [with_numbers(data, [name], numbers) for name in covariates]
    return [
        with_numbers(data, (), numbers),
        *singles,
        *people_only([counted(data, p) for p in combinations(covariates, 2)]),
    ]


def columns_of(data, covariates, numbers):
    frame = pd.DataFrame({name: np.asarray(data[name], dtype=float) for name in numbers})
    for name in covariates:
        frame = pd.concat(
            [frame, pd.get_dummies(pd.Series(data[name]), prefix=name, drop_first=True, dtype=float)], axis=1
        )
    return frame


def lin_on_rows(data, covariates, numbers, variance="exact"):
    """Return arm means and their covariance by one regression per arm on the rows, columns about the common mean."""
    x = columns_of(data, covariates, numbers)
    x = x - x.mean()
    means, own, slopes = [], [], []
    for arm in sorted(set(data["arm"])):
        inside = np.asarray(data["arm"]) == arm
        fit = sm.OLS(np.asarray(data["y"])[inside], sm.add_constant(x[inside])).fit()
        means.append(fit.params.iloc[0])
        own.append(fit.cov_params().iloc[0, 0] if variance == "exact" else fit.mse_resid / inside.sum())
        slopes.append(fit.params.iloc[1:])
    n, b = len(x), np.array(slopes)
    return np.array(means), np.diag(own) + b @ (x.T @ x).to_numpy() @ b.T / (n * (n - 1)), b


@pytest.mark.parametrize("variance", ["paper", "exact"])
@pytest.mark.parametrize("numbers", [("before",), NUMBERS])
@pytest.mark.parametrize("covariates", [(), ("device",), ("device", "country")])
def test_numbers_and_categories_together_give_what_regressions_on_rows_give(variance, numbers, covariates):
    data = people()
    means = additive_means(tables(data, covariates, numbers), "y", covariates, numbers=numbers, variance=variance)
    expected, covariance, slopes = lin_on_rows(data, covariates, numbers, variance)
    assert means.covariates == (*numbers, *covariates)
    assert means.means == pytest.approx(expected, rel=1e-11)
    assert means.covariance == pytest.approx(covariance, rel=1e-11)
    assert means.slopes == pytest.approx(slopes, rel=1e-9)
    assert means.df.tolist() == [n - 1 - slopes.shape[1] for n in means.people]


@pytest.mark.parametrize("slopes", ["own", "one"])
def test_far_away_numbers_lose_no_digit(slopes):
    near, far = people(), people(shift=1e9)
    assert additive_means([with_numbers(near, ["device"])], "y", numbers=NUMBERS, slopes=slopes).exact == (
        additive_means([with_numbers(far | {"y": near["y"]}, ["device"])], "y", numbers=NUMBERS, slopes=slopes).exact
    )


def nsw():
    """Return the National Supported Work experiment: sums per arm of Dehejia and Wahba's 445 men."""

    def cells(*values):
        return np.array(values, dtype=object)

    n = cells(260, 185)
    x, xx = cells(3293964026, 2834302915), cells(291109780147014716, 234112924782279225)
    y, yy = cells(11842485935, 11745918930), cells(1318278699932595625, 1884652908772902500)
    by = ("arm",)
    moments = Moments(Metric("re75", 10_000), n, x, {by: xx}), Moments(Metric("re78", 10_000), n, y, {by: yy})
    products = Cross(("re75", "re78"), by, n, (x, y), (xx, yy), cells(188628617590873200, 214704329704465900))
    return Tally((Factor("arm", ("control", "training"), "arm"),), n, moments, (products,))


def test_earnings_of_nsw_adjusted_for_those_of_1975_as_they_are_are_the_known_1749():
    effect = against_control(additive_means([nsw()], "re78", numbers=["re75"]))
    assert (effect.estimate, effect.se_population) == pytest.approx((1749.0521495600387, 671.3373853676339), rel=1e-11)
    assert against_control(plain_means(nsw(), "re78")).estimate == pytest.approx(1794.34, abs=0.01)


def test_one_number_by_itself_is_of_those_who_have_a_value():
    data = people()
    data["y"][::7] = np.nan
    metrics = {"y": Metric("y", 100, missing="exclude"), "before": Metric("before", 100), "age": Metric("age")}
    products = [("before", "y"), ("age", "y"), ("before", "age")]
    table = count_columns(data, arm="arm", covariates=["device"], metrics=metrics, squares="arm", products=products)
    means = additive_means([table], "y", (), numbers=["before"])
    having = {name: np.asarray(column)[~np.isnan(data["y"])] for name, column in data.items()}
    expected, covariance, _ = lin_on_rows(having, (), ["before"])
    assert means.means == pytest.approx(expected, rel=1e-11)
    assert means.covariance == pytest.approx(covariance, rel=1e-11)
    assert sum(means.people) == len(having["y"])
    for numbers, covariates in ((["before"], ["device"]), (["before", "age"], ())):
        with pytest.raises(AnalysisError, match="some people have only one of 'y' and before"):
            additive_means([table], "y", covariates, numbers=numbers)


def test_a_number_that_tells_nothing_is_named():
    data = people()
    with pytest.raises(DesignError, match="before is the same for everybody"):
        additive_means([with_numbers(data | {"before": np.full(1200, 5.0)})], "y", numbers=NUMBERS)
    within = data | {"before": np.where(data["arm"] == "B", 5.0, data["before"])}
    with pytest.raises(DesignError, match="in arm 'B' before is the same for everybody"):
        additive_means([with_numbers(within)], "y", numbers=NUMBERS)
    assert additive_means([with_numbers(within)], "y", numbers=NUMBERS, slopes="one").method == "adjusted"
    twice = data | {"before": 2.0 * data["age"] + 3}
    for slopes in ("own", "one"):
        with pytest.raises(DesignError, match=r"cannot tell these terms apart: .*before, age"):
            additive_means([with_numbers(twice)], "y", numbers=NUMBERS, slopes=slopes)
    with pytest.raises(DesignError, match=r"cannot tell these terms apart: .*age"):
        additive_means(
            [with_numbers(data | {"age": 1 * (data["device"] == "phone")}, ["device"])], "y", numbers=["age"]
        )


def test_too_few_people_for_numbers_are_refused():
    tiny = {"arm": [*"AAABBB"], "before": [1, 2, 4, 1, 3, 5], "age": [1, 0, 2, 1, 1, 0], "y": range(6)}
    with pytest.raises(DesignError, match="arm 'A' has too few people for its 3 coefficients"):
        additive_means([with_numbers(tiny)], "y", numbers=NUMBERS)
    single = {name: list(column)[:4] for name, column in tiny.items()}
    with pytest.raises(DesignError, match="arm 'B' has too few people for its 1 coefficients"):
        additive_means([with_numbers(single)], "y", numbers=["before"], slopes="one")


def test_what_numbers_lack_is_named():
    data = people()
    table = count_columns(data, arm="arm", metrics=["y", "age"], products=[("y", "age")], squares="arm")
    with pytest.raises(AnalysisError, match="the products of before and y are not in the tables"):
        additive_means([table], "y", numbers=["before"])
    both = count_columns(
        data, arm="arm", metrics=["y", "age", "before"], products=[("y", "age"), ("y", "before")], squares="arm"
    )
    with pytest.raises(AnalysisError, match="the products of before and age are not in the tables"):
        additive_means([both], "y", numbers=NUMBERS)
    with pytest.raises(AnalysisError, match="there are no sums of 'before' by device"):
        additive_means([with_numbers(data, ["device"], ["age"]), with_numbers(data)], "y", numbers=NUMBERS)
    with pytest.raises(AnalysisError, match="unknown choice of slopes"):
        additive_means([with_numbers(data)], "y", numbers=NUMBERS, slopes="each")
    other = people(seed=4) | {"arm": data["arm"], "y": data["y"], "device": data["device"]}
    with pytest.raises(AnalysisError, match="not about the same people"):
        additive_means([with_numbers(data), with_numbers(other, ["device"])], "y", numbers=["before"])


# ── one slope for all arms ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("metric", "p"), [("orders", 0.00733), ("revenue", 0.00674)])
def test_one_slope_gives_the_figures_that_tea_tasting_prints_for_its_cuped_example(metric, p):
    data = tt.make_users_data(rng=42, covariates=True)
    rows_of = {name: data[name].to_numpy() for name in ("variant", metric, f"{metric}_covariate")}
    before = f"{metric}_covariate"
    exact = {name: Metric(name, 1 << 40) for name in (metric, before)}
    table = count_columns(rows_of, arm="variant", metrics=exact, squares="arm", products=[(before, metric)])
    effect = against_control(additive_means([table], metric, numbers=[before], slopes="one"))
    peer = tt.Experiment(it=tt.Mean(metric, before)).analyze(data)["it"]
    assert effect.p == pytest.approx(p, abs=5e-6)
    assert (effect.estimate, *effect.interval, effect.t, effect.p) == pytest.approx(
        (peer.effect_size, peer.effect_size_ci_lower, peer.effect_size_ci_upper, peer.statistic, peer.pvalue), rel=1e-8
    )


@pytest.mark.parametrize("covariates", [(), ("device",), ("device", "country")])
def test_one_slope_is_welch_on_what_a_regression_without_arms_leaves(covariates):
    data = people()
    means = additive_means(tables(data, covariates), "y", covariates, numbers=NUMBERS, slopes="one")
    x = columns_of(data, covariates, NUMBERS)
    fit = sm.OLS(data["y"], sm.add_constant(x - x.mean())).fit()
    left = fit.resid + data["y"].mean()
    for arm in "BC":
        effect = against_control(means, arm)
        welch = scipy_stats.ttest_ind(left[data["arm"] == arm], left[data["arm"] == "A"], equal_var=False)
        difference = left[data["arm"] == arm].mean() - left[data["arm"] == "A"].mean()
        assert (effect.estimate, effect.t, effect.df, effect.p) == pytest.approx(
            (difference, welch.statistic, welch.df, welch.pvalue), rel=1e-9
        )
        assert effect.se_population == pytest.approx(effect.se, rel=1e-12)
    assert means.slopes == pytest.approx(np.tile(fit.params.iloc[1:], (3, 1)), rel=1e-10)


def noisy_shop(people=6000, seed=2):
    """Tables of tier, of device, and of both, as a release with ε has them."""
    rng = np.random.default_rng(seed)
    tier, device = rng.choice([1, 2, 3], people, p=[0.5, 0.3, 0.2]), rng.choice(["pc", "phone"], people, p=[0.4, 0.6])
    before = np.round(rng.gamma(2.0, 6.0, people)).clip(0, 60)
    orders = rng.poisson(1.0 + 0.3 * tier, people).clip(0, 9)
    rows = {
        "arm": rng.choice(["A", "B"], people, p=[0.6, 0.4]),
        "tier": tier,
        "device": device,
        "before": before,
        "member": (rng.random(people) < 0.3).astype(int),
        "orders": orders,
        "spend": np.round(4 * tier + 3 * (device == "pc") + before / 2 + rng.gamma(1, 4, people) + orders).clip(0, 100),
    }
    bounds = {"before": (0, 60), "member": (0, 1), "orders": (0, 9), "spend": (0, 100)}
    pairs = [*combinations(bounds, 2)]

    def table(covariates, metrics=tuple(bounds)):
        return count_columns(
            rows, arm="arm", covariates=covariates, metrics=list(metrics), resolution=dict.fromkeys(metrics, 1),
            bounds={name: bounds[name] for name in metrics}, products=pairs if metrics else [],
        )  # fmt: skip

    return [table(["tier"]), table(["device"]), table(["tier", "device"], ())]


NOISY_FITS = {
    "a number": (slice(0, 1), [], ["before"], "own"),
    "two numbers, one of them 0/1": (slice(0, 1), [], ["before", "member"], "own"),
    "two covariates": (slice(0, 3), ["tier", "device"], [], "own"),
    "everything": (slice(0, 3), ["device", "tier"], ["before"], "own"),
    "one slope for all arms": (slice(0, 3), ["tier", "device"], ["before"], "one"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fit", NOISY_FITS)
def test_the_noise_of_means_adjusted_together_varies_as_it_says(fit):
    which, covariates, numbers, slopes = NOISY_FITS[fit]
    tables, rng, draws = noisy_shop()[which], np.random.default_rng(5), 120
    tables = [table.select_metrics(["spend", *numbers]) if table.moments else table for table in tables]
    stated = [stated_noise(table, 0.2) for table in tables]

    def means(metrics_of):
        return additive_means(metrics_of, "spend", covariates, numbers=numbers, slopes=slopes)

    drawn = [means([with_noise(*table, rng) for table in zip(tables, stated, strict=True)]) for _ in range(draws)]
    exact = means(tables)
    assert_noise_is_as_stated(drawn, exact, sample=0.15)
    assert np.all(drawn[0].df < exact.df)


def test_noise_is_of_all_tables_or_none_and_people_must_be_more_than_it():
    tables, rng = noisy_shop(), np.random.default_rng(1)
    noisy = [with_noise(table, stated_noise(table, 0.2), rng) for table in tables]
    with pytest.raises(AnalysisError, match="one of the tables has noise, and another has none"):
        additive_means([noisy[0], tables[1], noisy[2]], "spend")
    with pytest.raises(DesignError, match="arm 'A' has too few people for this noise"):
        additive_means([with_noise(tables[0], stated_noise(tables[0], 1e-6), rng)], "spend", [], numbers=["before"])
    arms = tables[0].keep().select_metrics(["spend", "before"])
    noise = stated_noise(arms, 3e-5)
    with pytest.raises(DesignError, match="in arm 'B' the classes cannot tell these terms apart: before"):
        additive_means([with_noise(arms, noise, np.random.default_rng(1))], "spend", [], numbers=["before"])
    with pytest.raises(DesignError, match="in arm 'A' noise hides what before would explain"):
        additive_means([with_noise(arms, noise, np.random.default_rng(0))], "spend", [], numbers=["before"])
    with pytest.raises(DesignError, match=r"^noise hides what before would explain"):
        additive_means(
            [with_noise(arms, noise, np.random.default_rng(0))], "spend", [], numbers=["before"], slopes="one"
        )


def test_with_noise_people_without_a_value_cannot_be_told_from_a_table_of_pairs():
    rows = {"arm": ["A", "B"] * 200, "tier": ["x", "x", "y", "y"] * 100, "device": ["p", "q", "q", "p", "p"] * 80}
    rows["spend"] = [*range(10)] * 40
    choices = {"metrics": ["spend"], "bounds": {"spend": (0, 10)}, "missing": {"spend": "exclude"}}
    tables = [count_columns(rows, arm="arm", covariates=[name], **choices) for name in ("tier", "device")]
    tables.append(count_columns(rows, arm="arm", covariates=["tier", "device"]))
    rng = np.random.default_rng(1)
    with pytest.raises(AnalysisError, match="some people have no value of 'spend', and by tier × device"):
        additive_means([with_noise(table, stated_noise(table, 0.5), rng) for table in tables], "spend")


def test_a_ratio_from_several_noisy_tables_is_of_the_same_line_in_all():
    tables, rng = noisy_shop(), np.random.default_rng(3)
    noisy = [with_noise(table, stated_noise(table, 0.2), rng) for table in tables]
    exact = additive_ratio_means(tables, "spend", "orders", ["tier", "device"])
    for _ in range(5):  # totals of which some have common factors
        noisy[1] = with_noise(tables[1], stated_noise(tables[1], 0.2), rng)
        means = additive_ratio_means(noisy, "spend", "orders", ["tier", "device"])
        assert means.sample == pytest.approx(exact.sample, rel=0.1)
        assert np.all(np.abs(means.means - exact.means) < 5 * np.sqrt(np.diag(means.noise)))


@pytest.mark.slow
def test_a_ratio_adjusted_for_a_number_knows_the_noise():
    table, rng = noisy_shop()[0].keep(), np.random.default_rng(5)
    tables = [with_noise(table, stated_noise(table, 0.2), rng) for _ in range(80)]
    drawn = [additive_ratio_means([noisy], "spend", "orders", [], numbers=["before"]) for noisy in tables]
    seen = np.var([each.means for each in drawn], axis=0)
    assert seen == pytest.approx(np.mean([np.diag(each.noise) for each in drawn], axis=0), rel=0.5)
