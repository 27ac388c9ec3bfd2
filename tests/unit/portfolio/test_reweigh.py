"""Shares that follow results: chances to be best, valid effects by batches, and less regret than equal shares."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

import kanab as kb
from kanab.errors import AnalysisError, PrivacyError
from kanab.portfolio import propose_shares
from kanab.portfolio.reweigh import batched_effect, best_chances
from kanab.privacy.release import Release


def batch(seed: int, rates: dict[str, float], people: int = 2000) -> Release:
    """Return a batch in which arms buy at these rates."""
    rng = np.random.default_rng(seed)
    arm = rng.choice(list(rates), people)
    bought = rng.random(people) < np.array([rates[name] for name in arm])
    return kb.release(kb.count({"button": arm, "bought": bought}, arm="button", metrics=["bought"]))


BATCHES = [batch(1, {"A": 0.10, "B": 0.13, "C": 0.10}), batch(2, {"A": 0.30, "B": 0.33, "C": 0.30})]


def each_alone(variances: np.ndarray) -> np.ndarray:
    """Return the covariances of arms that have nothing in common."""
    return np.array([np.diag(row) for row in variances])


def test_with_two_arms_the_chance_is_that_of_the_normal_distribution() -> None:
    means, variances = np.array([[0.1, 0.12], [0.3, 0.31]]), each_alone(np.full((2, 2), 1e-4))
    weights = np.full(2, 1 / 2e-4)
    z = float(weights @ (means[:, 1] - means[:, 0]) / math.sqrt(weights.sum()))
    assert best_chances(means, variances, 0)[1] == pytest.approx(stats.norm.cdf(z), abs=0.01)
    assert best_chances(means, variances, 1)[1] == pytest.approx(stats.norm.cdf(z), abs=0.01)
    assert best_chances(means, variances, 0, better="lower")[1] == pytest.approx(stats.norm.sf(z), abs=0.01)


def test_a_good_week_does_not_pass_for_a_good_arm() -> None:
    # In the second batch everybody buys more, and B has most of its people there.
    means = np.array([[0.10, 0.10], [0.30, 0.30]])
    variances = each_alone(np.array([[1e-5, 1e-3], [1e-3, 1e-5]]))
    assert best_chances(means, variances, 0)[1] == pytest.approx(0.5, abs=0.02)


def test_shares_are_chances_above_the_least_share_and_add_up() -> None:
    proposed = propose_shares(BATCHES, least_share=0.05)
    assert sum(arm.next_share for arm in proposed.arms) == pytest.approx(1)
    assert sum(arm.best for arm in proposed.arms) == pytest.approx(1)
    for arm in proposed.arms:
        assert arm.next_share >= 0.05
        assert arm.next_share == pytest.approx(0.05 + 0.85 * arm.best, abs=0.01)
    assert max(proposed.arms, key=lambda arm: arm.next_share).arm == "B"
    assert propose_shares(BATCHES, least_share=0.05).to_dict() == proposed.to_dict()


def test_effects_are_combined_over_batches_with_weights_1_over_se() -> None:
    row = propose_shares(BATCHES).arms[1]
    means = [kb.stats.plain_means(part.totals("button"), "bought") for part in BATCHES]
    z = [(m.means[1] - m.means[0]) / math.sqrt(m.sample[0] + m.sample[1]) for m in means]
    inverse = [1 / math.sqrt(m.sample[0] + m.sample[1]) for m in means]
    assert row.estimate == pytest.approx(sum(z) / sum(inverse))
    half = 1.959963984540054 * math.sqrt(2) / sum(inverse)
    assert row.interval == pytest.approx((row.estimate - half, row.estimate + half))


def simulate(rates: list[float], *, adaptive: bool, seed: int, batches: int = 8, people: int = 600):
    """Return regret in events, and whether the batched interval of the last arm holds its effect."""
    rng = np.random.default_rng(seed)
    p, shares = np.array(rates), np.full(len(rates), 1 / len(rates))
    means, variances, regret = [], [], 0.0
    for _ in range(batches):
        n = np.maximum(5, rng.multinomial(people, shares))
        events = np.clip(rng.binomial(n, p), 1, n - 1)
        means.append(events / n)
        variances.append(means[-1] * (1 - means[-1]) / (n - 1))
        regret += float(n @ (p.max() - p))
        if adaptive:
            best = best_chances(np.array(means), each_alone(np.array(variances)), 0, draws=500)
            shares = 0.1 + (1 - 0.1 * len(p)) * best
    y, v = np.array(means), np.array(variances)
    low, high = batched_effect(y[:, -1] - y[:, 0], v[:, -1] + v[:, 0], 0.95)[1]
    return regret, low <= p[-1] - p[0] <= high


def test_reweighing_costs_fewer_events_than_equal_shares() -> None:
    runs = 40
    fixed = np.mean([simulate([0.2, 0.25, 0.3], adaptive=False, seed=seed)[0] for seed in range(runs)])
    adaptive = np.mean([simulate([0.2, 0.25, 0.3], adaptive=True, seed=seed)[0] for seed in range(runs)])
    assert adaptive < 0.7 * fixed


@pytest.mark.slow
@pytest.mark.parametrize("rates", [[0.3, 0.3, 0.3], [0.3, 0.3, 0.4]])
def test_intervals_by_batches_hold_although_shares_followed_results(rates: list[float]) -> None:
    held = [simulate(rates, adaptive=True, seed=seed)[1] for seed in range(300)]
    assert 0.92 <= np.mean(held) <= 0.98


def test_plain_data_text_and_page_show_the_shares() -> None:
    proposed = propose_shares(BATCHES)
    data = json.loads(json.dumps(proposed.to_dict(), allow_nan=False))
    assert (data["experiment"], data["metric"], data["batches"], data["control"]) == ("button", "bought", 2, "A")
    assert data["arms"][0]["interval"] is None
    text = str(proposed)
    assert text.startswith("button: shares for the next period, from 2 batches, by bought.")
    assert f"arms = {{ A = {round(100 * proposed.arms[0].next_share)}, B = " in text
    page = proposed.to_report()
    assert "<title>Shares of button</title>" in page
    assert "from 1 batch," in str(propose_shares(BATCHES[:1]))


def test_refusals_say_what_to_do() -> None:
    with pytest.raises(AnalysisError, match="every arm cannot have that least share"):
        propose_shares(BATCHES, least_share=0.4)
    with pytest.raises(AnalysisError, match="unknown metric"):
        propose_shares(BATCHES, metric="spend")
    with pytest.raises(AnalysisError, match="better is"):
        propose_shares(BATCHES, better="faster")  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="have the same arms"):
        propose_shares([BATCHES[0], batch(3, {"A": 0.1, "B": 0.1})])
    with pytest.raises(PrivacyError, match="about the same people"):
        propose_shares([BATCHES[0], BATCHES[0]])
    other = kb.release(kb.count({"colour": ["A", "B"] * 100, "bought": [0, 1, 1] * 66 + [0, 1]}, arm="colour",
                                metrics=["bought"]))  # fmt: skip
    with pytest.raises(PrivacyError, match=r"of different experiments\. Give the batches of one experiment\."):
        propose_shares([BATCHES[0], other])
    with pytest.raises(AnalysisError, match="nothing varies"):
        propose_shares([batch(4, {"A": 0.0, "B": 0.0})])


def test_a_number_that_is_adjusted_for_is_nothing_to_be_best_at() -> None:
    rng = np.random.default_rng(3)
    rows = {"button": rng.choice(["A", "B"], 2000), "before": rng.gamma(2, 5, 2000).round(2)}
    rows["spend"] = (rows["before"] + rng.gamma(2, 5, 2000)).round(2)
    week = kb.release(
        kb.count(
            rows, arm="button", metrics=["spend"], adjust=["before"], bounds={"before": (0, 40), "spend": (0, 100)},
        )
    )  # fmt: skip
    assert propose_shares([week]).metric == "spend"
    with pytest.raises(AnalysisError, match=r"before was measured before the experiment. Name one of: spend."):
        propose_shares([week], metric="before")


def test_effects_are_adjusted_as_the_plan_says() -> None:
    weeks = []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        rows = {"button": rng.choice(["A", "B", "C"], 3000), "before": rng.gamma(2, 5, 3000).round(2)}
        rows["tier"] = rng.choice(["x", "y"], 3000)
        rows["spend"] = (rows["before"] + 5 * (rows["tier"] == "x") + rng.gamma(2, 2, 3000)).round(2)
        choices = {"bounds": {"before": (0, 40), "spend": (0, 100)}, "adjust": ["before", "tier"]}
        weeks.append(kb.release(kb.count(rows, arm="button", metrics=["spend"], **choices)))
    proposed = propose_shares(weeks)
    effects = [
        row.effect
        for week in weeks
        for row in kb.analyze(week).effects
        if row.effect.method == "adjusted" and row.effect.arm == "C"
    ]
    weights = [1 / effect.se_population for effect in effects]
    assert proposed.arms[2].estimate == pytest.approx(
        sum(w * effect.estimate for w, effect in zip(weights, effects, strict=True)) / sum(weights)
    )
    assert proposed.arms[2].interval is not None
    half = (proposed.arms[2].interval[1] - proposed.arms[2].interval[0]) / 2
    assert half == pytest.approx(1.959963984540054 * math.sqrt(2) / sum(weights))
    assert proposed.to_dict()["covariates"] == ["before", "tier"]
    assert "They are adjusted for before, tier." in " ".join(str(proposed).split())
    assert "adjusted for" not in str(propose_shares(BATCHES))


def test_batches_of_clusters_are_compared_per_person() -> None:
    rng = np.random.default_rng(5)
    shop = np.repeat(np.arange(60), rng.integers(5, 60, 60))
    rows = {"shop": shop, "button": np.where(shop % 2, "B", "A"), "bought": (rng.random(len(shop)) < 0.3).astype(int)}
    week = kb.release(kb.count(rows, arm="button", metrics=["bought"], assigned_by="shop"))
    proposed = propose_shares([week])
    (row,) = kb.analyze(week).effects
    assert (proposed.metric, proposed.binary) == ("bought", True)
    assert proposed.arms[1].estimate == pytest.approx(row.effect.estimate)
