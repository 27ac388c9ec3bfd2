"""Roles of metrics: families of their own, guardrails read against margins, and what plans say of them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.described import readout_of

import kanab as kb
from kanab.errors import AnalysisError
from kanab.plan import parse_plan
from kanab.plan.joint_plan import counting_terms

PLAN = """
[metrics]
orders = { kind = "binary" }
latency = { bounds = [0, 2000], resolution = 1 }
refunds = { kind = "binary" }
clicks = { bounds = [0, 50], resolution = 1 }
pace = { ratio = ["latency", "clicks"] }
[experiments.variant]
arms = { A = 1, B = 1 }
"""
ROLES = """
primary = ["orders"]
guardrails = ["latency", "refunds"]
lower_is_better = ["latency", "refunds"]
non_inferiority = { latency = "2%", refunds = 0.01 }
decision = { people = 8000 }
"""


def rows(people: int = 12_000, *, slower: float = 0.0) -> dict[str, Any]:
    """B raises orders, is slower by so much, and changes nothing else."""
    rng = np.random.default_rng(3)
    variant = rng.choice(["A", "B"], people)
    return {
        "variant": variant,
        "orders": (rng.random(people) < 0.10 + 0.03 * (variant == "B")).astype(int),
        "latency": np.round(rng.gamma(16, 12.5, people) + slower * (variant == "B")),
        "refunds": (rng.random(people) < 0.02).astype(int),
        "clicks": 1 + rng.poisson(3, people),
    }


METRICS = ["clicks", "latency", "refunds", "orders"]


def readings(data: dict[str, Any]) -> dict[str, str]:
    return {row["metric"]: row["reading"] for row in data["guardrails"]}


def test_the_only_metric_and_the_only_one_that_is_no_guardrail_are_primary() -> None:
    assert kb.readout(rows(), arm="variant", metrics=["orders"]).to_dict()["decision"]["answer"] == "ship"
    data = kb.readout(
        rows(), arm="variant", metrics=["refunds", "orders"], reading=kb.Reading(guardrails="refunds")
    ).to_dict()
    assert [(row["metric"], row["role"]) for row in data["effects"]] == [
        ("orders", "primary"), ("refunds", "guardrail")
    ]  # fmt: skip


@pytest.mark.slow
def test_over_several_looks_a_margin_is_kept_once_the_interval_over_all_looks_lies_within_it() -> None:
    plan = parse_plan(PLAN + ROLES)
    counted = kb.release(kb.count(rows(), plan))
    for looks in (kb.Looks("always-valid"), kb.Looks("spending", looks=3, earlier=(4_000, 8_000))):
        data = kb.analyze(counted, reading=kb.Reading(looks=looks)).to_dict()
        row = next(row for row in data["effects"] if row["metric"] == "latency")
        assert row["relative_interval"][1] < 0.02
        assert readings(data)["latency"] == "holds"
        assert data["margins"] == []
    tight = replace(plan.experiment(), non_inferiority={"latency": (0.1, False), "refunds": (0.01, False)})
    data = kb.analyze(
        replace(counted, plan=replace(plan, experiments=(tight,))), reading=kb.Reading(looks=kb.Looks("always-valid"))
    ).to_dict()
    assert readings(data)["latency"] == "not shown"


def at_the_margin(seed: int, arms: int = 6, people: int = 400) -> dict[str, Any]:
    """No arm of these is any better than .02 below the control, and costs are alike."""
    rng = np.random.default_rng(seed)
    variant = np.repeat(np.arange(arms + 1), people)
    return {
        "variant": variant,
        "speed": rng.normal(1, 0.2, len(variant)) - 0.02 * (variant > 0),
        "costs": rng.normal(1, 0.2, len(variant)),
    }


def test_over_several_looks_a_claim_is_read_at_the_level_of_all_arms() -> None:
    counted = kb.release(kb.count(at_the_margin(1), arm="variant", metrics=["speed", "costs"], control=0))
    for relative in (False, True):
        limits = dict.fromkeys(("speed", "costs"), (0.5, relative))
        planned = replace(counted.plan.experiment(), non_inferiority=limits, primary=("speed",), guardrails=("costs",))
        limited = replace(counted, plan=replace(counted.plan, experiments=(planned,)))
        rows = kb.analyze(limited, reading=kb.Reading(looks=kb.Looks("spending", looks=2, earlier=[]))).effects
        ends = [row.limit_interval[1] for row in rows]
        wide = kb.analyze(
            limited,
            reading=kb.Reading(
                looks=kb.Looks("spending", looks=2, earlier=[]), confidence=1 - 0.05 / 6, correction="none"
            ),
        )
        same = [row.relative.interval[1] if relative else row.interval[1] for row in wide.effects[:6]]
        assert ends[:6] == pytest.approx(same)
        alone = [row.relative.interval[1] if relative else row.interval[1] for row in rows[6:]]
        assert ends[6:] == pytest.approx(alone)


def test_a_ratio_may_have_a_role_by_its_name_in_the_plan() -> None:
    plan = parse_plan(PLAN + 'primary = ["pace"]\nlower_is_better = ["pace"]\n')
    effects = kb.analyze(kb.release(kb.count(rows(), plan))).to_dict()["effects"]
    assert [(row["metric"], row["better"]) for row in effects if row["role"] == "primary"] == [
        ("latency/clicks", "lower")
    ]  # fmt: skip


def test_roles_do_not_change_what_is_counted() -> None:
    assert counting_terms(parse_plan(PLAN)) == counting_terms(parse_plan(PLAN + ROLES))


@pytest.mark.parametrize(
    ("asked", "fact"),
    [
        ({"primary": "order"}, "primary names an unknown metric"),
        ({"guardrails": ["x"]}, "guardrails names an unknown metric"),
        ({"primary": "orders", "guardrails": "orders"}, "a metric is primary and a guardrail"),
        ({"decision": {"people": 0}}, "a switch of the decision is not known"),
        ({"decision": {"primry": "all"}}, "a switch of the decision is not known"),
        ({"decision": {"primary": "some"}}, "a switch of the decision is not known"),
        ({"decision": {"worth": "much"}}, "a switch of the decision is not known"),
        (
            {"guardrails": "refunds", "decision": {"guardrails": "non-inferior"}},
            "the decision demands a margin of every guardrail, and refunds has none",
        ),
    ],
)
def test_roles_and_switches_that_cannot_be_are_refused(asked: dict[str, Any], fact: str) -> None:
    with pytest.raises(AnalysisError, match=fact):
        readout_of(rows(300), arm="variant", metrics=METRICS, **asked)
