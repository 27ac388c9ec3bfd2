"""The nearest peer on the same aggregates: where tea-tasting computes the same thing, the digits are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kanab as kb

tt = pytest.importorskip("tea_tasting", reason="tea-tasting is a development dependency: pip install 'kanab[dev]'")

SIDES = ("two-sided", "greater", "less")


def people(seed: int, share: float = 0.5, n: int = 6_000) -> dict[str, Any]:
    """Orders and revenue, which go together and with a covariate; B has a little more of both."""
    rng = np.random.default_rng(seed)
    in_b = rng.random(n) < share
    x = rng.integers(1, 6, n)
    orders = 1 + rng.poisson(0.3 * x + 0.05 * in_b)
    revenue = np.round(orders * rng.gamma(2, 5 + x, n) * (1 + 0.03 * in_b), 2)
    return {
        "arm": np.where(in_b, "B", "A"), "x": x, "orders": orders, "revenue": revenue,
        "bought": (rng.random(n) < 0.05 + 0.01 * x).astype(int),
    }  # fmt: skip


def counted(rows: dict[str, Any]) -> kb.Tally:
    return kb.count_columns(
        rows, arm="arm", covariates=["x"], metrics=["revenue", "orders", "bought"], products=[("revenue", "orders")],
        resolution={"revenue": 0.01},
    )  # fmt: skip


def aggregates(tally: kb.Tally, place: int | slice) -> Any:
    """What tea-tasting needs of one arm, or of everybody, from the tally's sums alone."""

    def total(cells: Any) -> float:
        return float(np.sum(cells[place]))

    n = total(tally.people)
    x = np.array(tally.factor("x").scores)
    mean, var, cov, sums = {}, {}, {}, {}
    for part in tally.moments:
        name, scale = part.metric.name, part.metric.scale
        sums[name] = total(part.sums) / scale
        squares = tally.squares(name)
        assert squares is not None
        mean[name] = sums[name] / n
        var[name] = (total(squares) / scale**2 - sums[name] ** 2 / n) / (n - 1)
        cov[name, "x"] = (total(part.sums * x) / scale - sums[name] * total(tally.people * x) / n) / (n - 1)
    mean["x"] = total(tally.people * x) / n
    var["x"] = (total(tally.people * x**2) - total(tally.people * x) ** 2 / n) / (n - 1)
    cross = tally.cross("revenue", "orders")
    products = float(np.sum(cross.products[place])) / tally.moments_of("revenue").metric.scale
    cov["revenue", "orders"] = (products - sums["revenue"] * sums["orders"] / n) / (n - 1)
    return tt.aggr.Aggregates(int(n), mean, var, cov)


def theirs(metric: Any, tally: kb.Tally) -> Any:
    return metric.analyze_aggregates(aggregates(tally, 0), aggregates(tally, 1))


def agree(ours: kb.stats.Effect, peer: Any) -> None:
    assert ours.estimate == pytest.approx(peer.effect_size, rel=1e-10)
    assert ours.t == pytest.approx(peer.statistic, rel=1e-10)
    assert ours.p == pytest.approx(peer.pvalue, rel=1e-9)
    assert ours.interval == pytest.approx((peer.effect_size_ci_lower, peer.effect_size_ci_upper), rel=1e-9)


@pytest.mark.parametrize("alternative", SIDES)
@pytest.mark.parametrize(("metric", "share"), [("revenue", 0.5), ("revenue", 0.05), ("bought", 0.1)])
def test_means_have_the_same_error_interval_and_p(metric: str, share: float, alternative: Any) -> None:
    tally = counted(people(1, share))
    agree(
        kb.stats.difference_in_means(tally, metric, alternative=alternative, test="welch"),
        theirs(tt.Mean(metric, alternative=alternative), tally),
    )


@pytest.mark.parametrize("alternative", SIDES)
@pytest.mark.parametrize("share", [0.5, 0.05])
def test_ratios_have_the_same_delta_method(share: float, alternative: Any) -> None:
    tally = counted(people(2, share))
    agree(
        kb.stats.against_control(kb.stats.ratio_means(tally, "revenue", "orders"), alternative=alternative),
        theirs(tt.RatioOfMeans("revenue", "orders", alternative=alternative), tally),
    )


def test_adjusted_effects_are_near_to_a_single_slope_and_not_wider() -> None:
    """CUPED takes one slope for both arms; Lin takes one for each. In a 10/90 split that is narrower."""
    tally = counted(people(3, 0.5))
    ours, peer = kb.stats.adjusted_effect(tally, "revenue"), theirs(tt.Mean("revenue", "x"), tally)
    error = peer.effect_size / peer.statistic
    assert ours.estimate == pytest.approx(peer.effect_size, abs=0.02 * error)
    assert ours.se_population == pytest.approx(error, rel=0.005)
    rng = np.random.default_rng(4)
    rows = people(4, 0.1, 5_000)
    rows["revenue"] = np.round(10 + 2 * rows["x"] * (rows["arm"] == "B") + rng.normal(0, 1, 5_000), 2)
    tally = counted(rows)
    peer = theirs(tt.Mean("revenue", "x"), tally)
    assert kb.stats.adjusted_effect(tally, "revenue").se_population < 0.6 * peer.effect_size / peer.statistic


@pytest.mark.parametrize("seed", range(5))
def test_corrections_for_many_tests_are_the_same(seed: int) -> None:
    p = np.random.default_rng(seed).beta(0.4, 2, 9)
    family = tt.experiment.ExperimentResult({f"m{i}": {"pvalue": value} for i, value in enumerate(p.tolist())})

    def adjusted(found: Any) -> list[float]:
        by_name = {row["metric"]: row["pvalue_adj"] for row in found.to_dicts()}
        return [by_name[f"m{i}"] for i in range(len(p))]

    for method, found in (
        ("holm", tt.adjust_fwer(family, arbitrary_dependence=True, method="bonferroni")),
        ("bh", tt.adjust_fdr(family)),
        ("by", tt.adjust_fdr(family, arbitrary_dependence=True)),
    ):
        assert kb.stats.correct(p.tolist(), method) == pytest.approx(adjusted(found), rel=1e-12)


@pytest.mark.parametrize("alternative", SIDES)
@pytest.mark.parametrize("ratio", [1, 1 / 9])
def test_people_effect_and_power_are_the_same(ratio: float, alternative: Any) -> None:
    everybody = aggregates(counted(people(5)), slice(None))
    noise = kb.planning.spread_of_amounts(everybody.var("revenue") ** 0.5, shares={"A": 1, "B": ratio})
    asked = kb.planning.PlannedTest(alternative=alternative)
    sign = -1 if alternative == "less" else 1
    same = {"alternative": alternative, "ratio": ratio}

    found = tt.Mean("revenue", n_obs=8_000, **same).solve_power_from_aggregates(everybody, "effect_size")[0]
    ours = kb.planning.solve_power(noise, people=8_000, power=0.8, test=asked)
    assert ours.effect == pytest.approx(found.effect_size, rel=1e-7)

    def power(n: int) -> float:
        peer = tt.Mean("revenue", effect_size=sign * 1.5, n_obs=n, **same)
        value: float = peer.solve_power_from_aggregates(everybody, "power")[0].power
        return value

    assert kb.planning.solve_power(noise, people=8_000, effect=sign * 1.5, test=asked).power == pytest.approx(
        power(8_000), rel=1e-9
    )
    many = kb.planning.solve_power(noise, effect=sign * 1.5, power=0.8, test=asked).people
    assert power(many - 2) < 0.8 <= power(many)  # ours are whole people in every arm
    if ratio == 1:  # theirs starts its search with arms of less than one person, and fails if they differ
        found = tt.Mean("revenue", effect_size=sign * 1.5, **same).solve_power_from_aggregates(everybody, "n_obs")[0]
        assert 0 <= many - found.n_obs <= 1


def test_the_sample_ratio_is_the_same_without_continuity_correction() -> None:
    rows = people(6, 0.52)
    peer = tt.SampleRatio(method="norm", correction=False)
    counts = {arm: tt.aggr.Aggregates(n) for arm, n in counted(rows).people_by("arm").items()}
    result = peer.analyze(counts, "A", "B")
    assert kb.stats.sample_ratio(counted(rows), {"A": 1, "B": 1}).p == pytest.approx(result.pvalue, rel=1e-9)
