from __future__ import annotations

from typing import Any

import pytest

from kanab import KanabError
from kanab.errors import PlanError
from kanab.plan.check import check_plan, find_mistakes, nearest, path_to
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan


def plan_of(*experiments: ExperimentPlan, **parts: Any) -> Plan:
    return Plan(parts.pop("metrics", (MetricPlan("spend"),)), experiments, **parts)


AB = (("A", 1), ("B", 1))
SHOP = ExperimentPlan("checkout", AB)
BINARY = MetricPlan("bought", binary=True)


def metric(one: MetricPlan, *others: MetricPlan) -> Plan:
    return plan_of(SHOP, metrics=(one, *others))


def covariate(one: CovariatePlan) -> Plan:
    return plan_of(SHOP, covariates=(one,))


WRONG: dict[str, tuple[Plan, str]] = {
    "k is 1": (plan_of(SHOP, k=1), "k must be a whole number, at least 2"),
    "k is half": (plan_of(SHOP, k=2.5), "k must be a whole number, at least 2"),
    "k is true": (plan_of(SHOP, k=True), "k must be a whole number, at least 2"),
    "no name": (plan_of(ExperimentPlan(" ", AB)), 'experiments." ": a name must not be empty'),
    "long name": (metric(MetricPlan("s" * 65)), 'metrics."ssssssssssssssssssss…": a name must not be longer than 64'),
    "control character": (metric(MetricPlan("a\nb")), 'metrics."a\\nb": a name must not hold control characters'),
    "name is a number": (metric(MetricPlan(7)), "metrics.7: a name must be a text"),  # type: ignore[arg-type]
    "metric and covariate": (
        plan_of(SHOP, covariates=(CovariatePlan("spend"),)),
        "covariates.spend has a name that is taken by metrics.spend",
    ),
    "covariate and experiment": (
        plan_of(ExperimentPlan("tier", AB, adjust=("tier",))),
        "experiments.tier has a name that is taken by covariates.tier",
    ),
    "metric twice": (metric(BINARY, BINARY), "metrics.bought has a name that is taken by metrics.bought"),
    "reserved": (covariate(CovariatePlan("arm")), "covariates.arm has a name that is kept for experiments; rename it"),
    "bounds in disorder": (metric(MetricPlan("spend", (5, 0))), "metrics.spend.bounds: the bounds of 'spend' must be"),
    "bounds not finite": (metric(MetricPlan("spend", (0, float("inf")))), "metrics.spend.bounds: the bounds"),
    "bounds not two": (metric(MetricPlan("spend", (0, 1, 2))), "metrics.spend.bounds: the bounds"),  # type: ignore[arg-type]
    "resolution": (
        metric(MetricPlan("spend", (0, 9), 0.3)),
        "metrics.spend.resolution: the resolution of 'spend' must",
    ),
    "too fine": (metric(MetricPlan("spend", (0, 1e9), 1e-9)), "metrics.spend.bounds: the bounds of 'spend' do not fit"),
    "too coarse": (metric(MetricPlan("spend", (0, 0.2), 1)), "metrics.spend.bounds: the bounds are closer together"),
    "binary with bounds": (metric(MetricPlan("bought", (0, 1), binary=True)), "metrics.bought is binary"),
    "missing": (metric(MetricPlan("spend", missing="level")), "metrics.spend.missing must be 'zero' or"),  # type: ignore[arg-type]
    "of nothing": (
        metric(MetricPlan("spend", of="bougth"), BINARY),
        "metrics.spend.of names an unknown metric, 'bougth'; nearest: bought",
    ),
    "of itself": (metric(MetricPlan("bought", binary=True, of="bought")), "metrics.bought.of must name another metric"),
    "of an amount": (
        metric(MetricPlan("a"), MetricPlan("b", of="a")),
        "metrics.b.of must name another metric, of kind",
    ),
    "ratio of one": (
        metric(MetricPlan("aov", ratio=("spend", "spend")), MetricPlan("spend")),
        "metrics.aov.ratio must name two metrics",
    ),
    "ratio of unknown": (
        metric(MetricPlan("aov", ratio=("spend", "bought")), BINARY),
        "metrics.aov.ratio names an unknown metric, 'spend'",
    ),
    "ratio of ratio": (
        metric(
            MetricPlan("r", ratio=("q", "bought")),
            MetricPlan("q", ratio=("spend", "bought")),
            MetricPlan("spend"),
            BINARY,
        ),
        "metrics.r.ratio must name metrics that are not ratios themselves",
    ),
    "ratio with bounds": (
        metric(MetricPlan("r", (0, 1), ratio=("spend", "bought")), MetricPlan("spend"), BINARY),
        "metrics.r is a ratio and takes no other key",
    ),
    "levels and top": (
        covariate(CovariatePlan("tier", (1, 2), top=3)),
        "covariates.tier takes one of levels, bins and top",
    ),
    "one level": (covariate(CovariatePlan("tier", (1,))), "covariates.tier must have at least two levels"),
    "level twice": (covariate(CovariatePlan("tier", ("a", "a"))), "covariates.tier names a level twice"),
    "mixed levels": (covariate(CovariatePlan("tier", (1, "2"))), "covariates.tier must have levels of one kind"),
    "true and 1": (covariate(CovariatePlan("tier", (True, 1))), "covariates.tier must have levels of one kind"),
    "missing level": (covariate(CovariatePlan("tier", ("a", None))), "covariates.tier must have levels of one kind"),
    "unsorted numbers": (
        covariate(CovariatePlan("tier", (2, 1))),
        "covariates.tier must have its numbers in increasing order",
    ),
    "empty level": (covariate(CovariatePlan("tier", ("", "b"))), "covariates.tier: a level must not be empty"),
    "one bin": (covariate(CovariatePlan("tier", bins=1)), "covariates.tier.bins must be a whole number of bins"),
    "half a bin": (covariate(CovariatePlan("tier", bins=2.5)), "covariates.tier.bins must be a whole number of bins"),  # type: ignore[arg-type]
    "edges in disorder": (
        covariate(CovariatePlan("tier", bins=(2, 1))),
        "covariates.tier.bins must be finite numbers in",
    ),
    "no edges": (covariate(CovariatePlan("tier", bins=())), "covariates.tier.bins must be finite numbers in"),
    "edges of text": (covariate(CovariatePlan("tier", bins=("a",))), "covariates.tier.bins must be finite numbers in"),  # type: ignore[arg-type]
    "top none": (covariate(CovariatePlan("tier", top=0)), "covariates.tier.top must be a whole number from 1 to 1,000"),
    "one arm": (
        plan_of(ExperimentPlan("checkout", (("A", 1),))),
        "experiments.checkout.arms must name at least two arms",
    ),
    "arm twice": (
        plan_of(ExperimentPlan("checkout", ((1, 1), ("1", 1)))),
        "experiments.checkout.arms names an arm twice",
    ),
    "no share": (
        plan_of(ExperimentPlan("checkout", (("A", 1), ("B", 0)))),
        "experiments.checkout.arms.B must have a positive share",
    ),
    "share of text": (plan_of(ExperimentPlan("checkout", (("A", 1), ("B", "1")))), "experiments.checkout.arms.B must"),  # type: ignore[arg-type]
    "endless share": (
        plan_of(ExperimentPlan("checkout", (("A", 1), ("B", float("inf"))))),
        "experiments.checkout.arms.B must",
    ),
    "nameless arm": (
        plan_of(ExperimentPlan("checkout", (("A", 1), ("", 1)))),
        'experiments.checkout.arms."": an arm\'s name must not be empty',
    ),
    "control": (
        plan_of(ExperimentPlan("checkout", AB, "C")),
        "experiments.checkout.control is not one of its arms; declared: A, B",
    ),
    "adjust twice": (
        plan_of(ExperimentPlan("checkout", AB, adjust=("t", "t"))),
        "experiments.checkout.adjust names a covariate twice",
    ),
    "interaction unknown": (
        plan_of(ExperimentPlan("checkout", AB, interactions=("x",))),
        "experiments.checkout.interactions names an unknown experiment, 'x'; declared: none",
    ),
    "interaction with itself": (
        plan_of(ExperimentPlan("checkout", AB, interactions=("checkout",))),
        "experiments.checkout.interactions names the experiment itself",
    ),
    "exclusion of itself": (
        plan_of(ExperimentPlan("checkout", AB, exclude_with=("checkout",))),
        "experiments.checkout.exclude_with names the experiment itself",
    ),
    "tolerance": (
        plan_of(ExperimentPlan("checkout", AB, tolerance={"spnd": 1})),
        "experiments.checkout.tolerance names an unknown metric, 'spnd'; nearest: spend",
    ),
    "excluded and crossed": (
        plan_of(ExperimentPlan("a", AB, interactions=("b",), exclude_with=("b",)), ExperimentPlan("b", AB)),
        "experiments.a excludes 'b' and asks for its interaction: nobody would be in both",
    ),
    "bins of a 0/1 metric": (
        metric(MetricPlan("bought", binary=True, bins=(0.0, 1.0))),
        "metrics.bought.bins: a 0/1 metric has no bins",
    ),
    "one edge": (metric(MetricPlan("spend", bins=(1.0,))), "metrics.spend.bins must be at least two edges"),
    "edges of a metric in disorder": (
        metric(MetricPlan("spend", bins=(2.0, 1.0))),
        "metrics.spend.bins must be at least two edges",
    ),
    "too many edges": (
        metric(MetricPlan("spend", bins=tuple(map(float, range(1001))))),
        "metrics.spend.bins must be at most 1,000 edges",
    ),
    "one bin of a metric": (metric(MetricPlan("spend", (0, 9), bins=1)), "metrics.spend.bins must be a list of edges"),
    "bins nowhere": (
        metric(MetricPlan("spend", bins=5)),
        "metrics.spend.bins is a number of bins, and nothing says where they lie: give bounds, or the edges",
    ),
    "quantiles without bins": (
        plan_of(ExperimentPlan("checkout", AB, quantiles={"spend": (0.5,)})),
        "experiments.checkout.quantiles.spend needs bins to count people in",
    ),
    "quantiles of nothing": (
        plan_of(ExperimentPlan("checkout", AB, quantiles={"spent": (0.5,)})),
        "experiments.checkout.quantiles names an unknown metric, 'spent'; nearest: spend",
    ),
    "quantiles of a rate": (
        plan_of(ExperimentPlan("checkout", AB, quantiles={"bought": (0.5,)}), metrics=(BINARY,)),
        "experiments.checkout.quantiles.bought: quantiles are of a metric with many values",
    ),
    "quantiles of a number that is adjusted for": (
        plan_of(
            ExperimentPlan("checkout", AB, numbers=("before",), quantiles={"before": (0.5,)}),
            metrics=(MetricPlan("spend"), MetricPlan("before", bins=(0.0, 1.0))),
        ),
        "experiments.checkout.quantiles.before: it is adjusted for, so it is no outcome",
    ),
    "a quantile of everybody": (
        plan_of(ExperimentPlan("checkout", AB, quantiles={"spend": (1,)}), metrics=(MetricPlan("spend", bins=(0, 1)),)),
        "experiments.checkout.quantiles.spend must be shares of people between 0 and 1",
    ),
    "two tables of one name": (
        plan_of(ExperimentPlan("a", AB, adjust=("b/c",)), ExperimentPlan("a/b", AB, adjust=("c",))),
        "experiments needs two tables called 'a/b/c'; rename an experiment or a covariate",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_every_mistake_is_found_alone_with_its_path(case: str) -> None:
    plan, wanted = WRONG[case]
    found = list(find_mistakes(plan))
    assert len(found) == 1
    assert found[0].startswith(wanted)
    with pytest.raises(PlanError, match="1 mistake in the plan: ") as refused:
        check_plan(plan)
    assert "\n" not in str(refused.value)


def test_all_mistakes_come_together_one_to_a_line() -> None:
    plan = plan_of(ExperimentPlan("checkout", (("A", 1),), "C"), k=0)
    with pytest.raises(KanabError) as refused:
        check_plan(plan)
    assert str(refused.value).splitlines() == [
        "3 mistakes in the plan:",
        "  k must be a whole number, at least 2",
        "  experiments.checkout.arms must name at least two arms",
        "  experiments.checkout.control is not one of its arms; declared: A.",
    ]


def test_k_below_five_is_for_the_gate_to_refuse() -> None:
    assert list(find_mistakes(plan_of(SHOP, k=2))) == []


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(PlanError, match="a plan is needed"):
        check_plan({"k": 10})  # type: ignore[arg-type]


def test_paths_are_written_as_in_the_file() -> None:
    assert path_to("metrics", "größe", "bounds") == "metrics.größe.bounds"
    assert path_to("metrics", 'a "b"') == 'metrics."a \\"b\\""'


def test_the_nearest_name_is_suggested_or_all_are_listed() -> None:
    assert nearest("devcie", ["device", "tier"]) == "nearest: device"
    assert nearest("zzz", ["device", "tier"]) == "declared: device, tier"


def test_a_metric_in_bins_is_measured_afterwards_and_no_covariate() -> None:
    shop = ExperimentPlan("checkout", AB, segments=("spend",), quantiles={"spend": (0.5,)})
    with pytest.raises(PlanError, match=r"covariates\.spend has a name that is taken by metrics\.spend"):
        check_plan(plan_of(shop, metrics=(MetricPlan("spend", bins=(0, 1)),)))
