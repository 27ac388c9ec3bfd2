"""What a plan will give: classes, people, days, merging, detectable effects."""

import numpy as np
import pytest
from scipy import stats

from kanab import count, make_plan, release
from kanab.datasets import shop_rows
from kanab.description import Mean, Ratio
from kanab.errors import AnalysisError, PlanError
from kanab.plan.file import parse_plan
from kanab.plan.model import Cohorts, CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.planning.forecast import Baseline, baseline_from_release, forecast_plan, people_needed
from kanab.planning.power import solve_power
from kanab.planning.spread import spread_of_means
from kanab.stats.ratio import adjusted_ratio_means, ratio_means

BOUGHT = MetricPlan("bought", binary=True)
SPEND = MetricPlan("spend", bounds=(0, 500), resolution=0.01)
EVEN = (("A", 1), ("B", 1))


def plan(shares=EVEN, covariate=None, cohorts=None, **choices):
    tier = covariate or CovariatePlan("tier", (1, 2, 3, 4, 5))
    checkout = ExperimentPlan("checkout", shares, "A", adjust=("tier",), **choices)
    return Plan((BOUGHT, SPEND), (checkout,), (tier,), cohorts=cohorts)


def only(found):
    assert len(found.linkages) == 1
    return found.linkages[0]


def test_with_the_forecast_people_nothing_is_merged_in_95_of_100_draws():
    shares = np.array([0.3, 0.3, 0.2, 0.15, 0.05])
    baseline = Baseline(levels={"tier": dict(zip(range(1, 6), shares, strict=True))})
    for arms in (EVEN, (("A", 9), ("B", 1))):
        people = only(forecast_plan(plan(arms), baseline=baseline)).people
        arm = np.array([share for _, share in arms]) / sum(share for _, share in arms)
        rng = np.random.default_rng(1)
        drawn = rng.multinomial(people, np.outer(arm, shares).ravel(), size=4_000).reshape(-1, 2, 5)
        fine = np.all(drawn >= 10, axis=(1, 2)) & np.all(drawn.sum(1) >= 15 / arm.min(), axis=1)
        assert 0.94 < fine.mean() < 0.985  # chances are added up: never too few people


@pytest.mark.parametrize("privacy", ["", "[privacy]\nepsilon = 1\n"])
def test_leverage_is_a_question_of_exact_releases_only(privacy):
    text = "[metrics]\nbought = { kind = 'binary' }\n" + privacy
    text += "".join(f"[experiments.{name}]\narms = {{ A = 1, B = 1 }}\n" for name in ("checkout", "banner"))
    assert ("leverage" in " ".join(forecast_plan(parse_plan(text)).notes)) == (not privacy)


def test_days_follow_from_traffic_and_holdout():
    people = only(forecast_plan(plan())).people
    assert only(forecast_plan(plan(), per_day=20)).days == pytest.approx(people / 20, abs=0.1)
    assert only(forecast_plan(plan(holdout=0.5), per_day={"checkout": 40})).days == pytest.approx(people / 20, abs=0.1)


@pytest.mark.parametrize(("per_day", "kept"), [(100, 5), (60, 4), (12, 2)])
def test_merging_at_a_weekly_seal_is_the_gates(per_day, kept):
    weekly = Cohorts("7d", "7d", "7d")
    baseline = Baseline(levels={"tier": {1: 6, 2: 6, 3: 4, 4: 3, 5: 1}})
    linkage = only(forecast_plan(plan(cohorts=weekly), per_day=per_day, baseline=baseline))
    assert (linkage.batch, linkage.levels_kept, linkage.left_out) == (7 * per_day, kept, False)


def test_too_few_people_leave_the_table_out():
    assert only(forecast_plan(plan(), per_day=3, days=7)).left_out is True  # two levels would need 60
    assert only(forecast_plan(plan(), per_day=1, days=7)).left_out is True  # an arm below k


def test_the_first_seal_waits_for_period_window_and_late_messages():
    assert forecast_plan(plan(cohorts=Cohorts("7d", "7d", "7d"))).first_seal == 21
    assert forecast_plan(plan(cohorts=Cohorts("1d", "14d", "7d"))).first_seal == 21
    assert forecast_plan(plan(cohorts=Cohorts("7d", "7d", "end"))).first_seal is None
    daily = only(forecast_plan(plan(cohorts=Cohorts("7d", "7d", "1d")), per_day=10))
    assert daily.batch == 70  # a cohort of a week is sealed whole


def test_a_pair_holds_the_people_of_both():
    banner = ExperimentPlan("banner", (("off", 9), ("on", 1)), interactions=("checkout",))
    both = Plan((BOUGHT,), (ExperimentPlan("checkout", EVEN), banner))
    found = forecast_plan(both, per_day={"checkout": 50, "banner": 20}, days=10).linkages
    linkages = {linkage.linkage: linkage for linkage in found}
    assert (linkages["banner/checkout"].classes, linkages["banner/checkout"].batch) == (4, 200)
    assert linkages["banner/checkout"].people > linkages["banner"].people > linkages["checkout"].people


def test_a_pair_assigned_together_waits_for_its_smallest_planned_class():
    def people(*shares):
        cells = zip(("A", "A", "B", "B"), ("off", "on", "off", "on"), shares, strict=True)
        joint = {"banner": tuple(cells)} if shares else {}
        checkout = ExperimentPlan("checkout", EVEN, interactions=("banner",), joint_shares=joint)
        both = Plan((BOUGHT,), (checkout, ExperimentPlan("banner", (("off", 1), ("on", 1)))))
        found = {linkage.linkage: linkage for linkage in forecast_plan(both, per_day=1000, days=1).linkages}
        assert not found["checkout/banner"].left_out
        return found["checkout/banner"].people

    assert people(0.25, 0.25, 0.25, 0.25) == people()
    assert people(0.45, 0.05, 0.25, 0.25) == people_needed([(np.array([0.45, 0.05, 0.25, 0.25]), 10)], least=14)
    assert people(0.5, 0.0, 0.25, 0.25) < people(0.45, 0.05, 0.25, 0.25)


def test_bins_and_top_have_known_numbers_of_levels_and_others_have_not():
    assert only(forecast_plan(plan(covariate=CovariatePlan("tier", bins=5)))).levels == 5
    assert only(forecast_plan(plan(covariate=CovariatePlan("tier", bins=(18.0, 65.0))))).levels == 3
    assert only(forecast_plan(plan(covariate=CovariatePlan("tier", top=4)), per_day=500, days=2)).levels_kept == 5
    forecast = forecast_plan(plan(covariate=CovariatePlan("tier")))
    assert (only(forecast).classes, only(forecast).people) == (None, None)
    assert any("not declared" in note for note in forecast.notes)


METRICS = [Mean("bought", bounds=(0, 1)), Mean("spend", bounds=(0, 500))]


def test_an_earlier_release_says_what_is_known():
    rows = shop_rows(6_000)
    earlier = release(count(rows, arm="variant", metrics=METRICS, adjust=["tier"], arms={"A": 1, "B": 1}))
    baseline = baseline_from_release(earlier)
    assert sum(baseline.levels["tier"].values()) == pytest.approx(1)
    forecast = forecast_plan(earlier.plan, per_day=1_000, days=10, baseline=baseline)
    named = {(effect.metric, effect.adjusted_for): effect.detectable for effect in forecast.effects}
    assert set(named) == {("bought", None), ("bought", "tier"), ("spend", None), ("spend", "tier")}
    assert named["spend", "tier"].effect < named["spend", None].effect
    again = solve_power(baseline.spreads["variant", "spend"][""], people=10_000, power=0.8)
    assert named["spend", None].effect == again.effect


def test_ratios_of_an_earlier_release_are_known_too():
    metrics = [*METRICS, Ratio("spend", "bought")]
    asked = make_plan("variant", metrics, adjust=["tier"], arms={"A": 1, "B": 1})
    earlier = release(count(shop_rows(6_000), asked))
    baseline = baseline_from_release(earlier)
    table = earlier.tables["variant/tier"]
    plain, adjusted = ratio_means(table, "spend", "bought"), adjusted_ratio_means(table, "spend", "bought")
    forecast = forecast_plan(earlier.plan, per_day=1_000, days=10, baseline=baseline)
    of_ratio = [effect for effect in forecast.effects if effect.metric == "spend/bought"]
    named = {effect.adjusted_for: effect.detectable.effect for effect in of_ratio}
    for name, means in ((None, plain), ("tier", adjusted)):
        noise = spread_of_means(means, shares={"A": 1, "B": 1})
        assert named[name] == solve_power(noise, people=10_000, power=0.8).effect


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({"per_day": 0}, "positive numbers"),
        ({"per_day": 10, "days": -1}, "positive numbers"),
        ({"per_day": {"other": 10}}, "unknown experiment"),
        ({"baseline": Baseline(levels={"tier": {1: 0.0, 2: 1.0}})}, "must be positive"),
    ],
)
def test_impossible_traffic_and_shares_are_refused(wrong, fact):
    with pytest.raises(PlanError, match=fact):
        forecast_plan(plan(), **wrong)


def test_it_is_the_fewest_by_the_added_binomial_chances():
    shares = np.array([0.6, 0.3, 0.1])
    n = people_needed([(shares, 10)])
    assert stats.binom.cdf(9, n, shares).sum() <= 0.05 < stats.binom.cdf(9, n - 1, shares).sum()


def test_a_share_of_nothing_is_refused():
    with pytest.raises(AnalysisError, match="positive share"):
        people_needed([(np.array([0.0, 1.0]), 10)])
    with pytest.raises(AnalysisError, match="next to no share"):
        people_needed([(np.array([1e-14, 1.0]), 10)])


def test_amounts_with_a_mean_have_a_second_detectable_effect_that_multiplies_them():
    plan = parse_plan(
        """
        covariates.tier = [1, 2]
        metrics.spend = { bounds = [0, 500] }
        metrics.bought = { kind = "binary" }
        experiments.checkout = { arms = { A = 9, B = 1 } }
        """
    )
    baseline = Baseline(rates={"bought": 0.1}, sds={"spend": 30}, means={"spend": 12})
    forecast = forecast_plan(plan, per_day=1_000, days=20, baseline=baseline)
    rows = {row["metric"]: (row["relative"], row["multiplying"]) for row in forecast.to_dict()["effects"]}
    assert rows["spend"] == pytest.approx((0.1651, 0.1943), abs=5e-4)
    assert rows["bought"][1] is None
    assert "+16.5 %" in str(forecast)
    assert "+19.4 %" in str(forecast)
    assert "if it multiplies" in str(forecast)


def test_numbers_that_are_adjusted_for_have_no_effects_to_forecast() -> None:
    plan = parse_plan(
        """
        [metrics]
        spend = { bounds = [0, 300] }
        before = { bounds = [0, 150] }
        [experiments.variant]
        arms = { A = 1, B = 1 }
        adjust = ["before"]
        """
    )
    forecast = forecast_plan(plan, per_day=500, days=7, baseline=Baseline(sds={"spend": 30.0, "before": 20.0}))
    assert {effect.metric for effect in forecast.effects} == {"spend"}
