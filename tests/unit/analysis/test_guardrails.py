"""Roles of metrics: families of their own, guardrails read against margins, and what plans say of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.described import as_values, readout_of

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
CHOICES: dict[str, Any] = {
    "arm": "variant", "metrics": METRICS, "primary": "orders", "guardrails": ["latency", "refunds"],
    "lower_is_better": ["latency", "refunds"],
}  # fmt: skip


def readings(data: dict[str, Any]) -> dict[str, str]:
    return {row["metric"]: row["reading"] for row in data["guardrails"]}


def test_each_role_is_a_family_and_primary_metrics_come_first() -> None:
    effects = readout_of(rows(), **CHOICES).to_dict()["effects"]
    assert [(row["metric"], row["role"], row["better"]) for row in effects] == [
        ("orders", "primary", "higher"), ("latency", "guardrail", "lower"), ("refunds", "guardrail", "lower"),
        ("clicks", "secondary", "higher"),
    ]  # fmt: skip
    assert effects[0]["p_adjusted"] == effects[0]["p"]
    guards = effects[1:3]
    assert [row["p_adjusted"] for row in guards] == kb.stats.correct([row["p"] for row in guards], "holm")
    assert effects[3]["p_adjusted"] == effects[3]["p"]


def test_the_only_metric_and_the_only_one_that_is_no_guardrail_are_primary() -> None:
    assert kb.readout(rows(), arm="variant", metrics=["orders"]).to_dict()["decision"]["answer"] == "ship"
    data = kb.readout(
        rows(), arm="variant", metrics=["refunds", "orders"], reading=kb.Reading(guardrails="refunds")
    ).to_dict()
    assert [(row["metric"], row["role"]) for row in data["effects"]] == [
        ("orders", "primary"), ("refunds", "guardrail")
    ]  # fmt: skip


def test_a_guardrail_holds_within_its_margin_even_where_it_is_clearly_worse() -> None:
    margins = {"latency": kb.Margin("non-inferiority", 0.05, relative=True)}
    data = readout_of(rows(slower=4), **CHOICES, margins=margins).to_dict()
    latency = next(row for row in data["effects"] if row["metric"] == "latency")
    assert (latency["verdict"], readings(data)["latency"], data["decision"]["answer"]) == ("up", "holds", "ship")
    assert data["guardrails"][0] == {
        "metric": "latency", "arm": "B", "reading": "holds", "margin": 0.05, "relative": True
    }  # fmt: skip


def test_a_guardrail_beyond_its_margin_is_worse_and_one_near_it_is_not_shown() -> None:
    tight = {"latency": kb.Margin("non-inferiority", 0.01, relative=True)}
    worse = readout_of(rows(slower=8), **CHOICES, margins=tight).to_dict()
    assert (readings(worse)["latency"], worse["decision"]["answer"]) == ("worse", "stop")
    unclear = readout_of(rows(1_500), **CHOICES, margins=tight).to_dict()
    assert readings(unclear)["latency"] == "not shown"


def test_without_a_margin_a_guardrail_holds_unless_it_is_clearly_worse() -> None:
    assert readings(readout_of(rows(), **CHOICES).to_dict()) == {"latency": "holds", "refunds": "holds"}
    worse = readout_of(rows(slower=8), **CHOICES).to_dict()
    assert (readings(worse)["latency"], worse["decision"]["answer"]) == ("worse", "stop")
    better = readout_of(rows(slower=-8), **CHOICES).to_dict()
    assert (readings(better)["latency"], better["decision"]["answer"]) == ("holds", "ship")


def test_harm_is_looked_for_on_both_sides_even_where_only_a_rise_was_hoped_for() -> None:
    choices = CHOICES | {"lower_is_better": []}
    data = readout_of(rows(slower=-8), **choices, alternative="greater")
    assert readings(data.to_dict())["latency"] == "worse"
    assert "guardrails are tested on both sides" in str(data)


def test_a_guardrail_that_never_happened_holds() -> None:
    quiet = rows() | {"crashes": np.zeros(12_000, dtype=int)}
    data = kb.readout(
        quiet, arm="variant", metrics=["orders", "crashes"], reading=kb.Reading(guardrails="crashes")
    ).to_dict()
    assert (readings(data), data["decision"]["answer"]) == ({"crashes": "holds"}, "ship")


def test_a_guardrail_that_only_a_few_people_made_is_to_be_watched() -> None:
    for seed in range(300):
        rng = np.random.default_rng(seed)
        variant = np.where(rng.random(600) < 0.1, "B", "A")
        profit = np.where(rng.random(600) < 0.1, np.round(rng.lognormal(3, 1.5, 600)), 0.0)
        table = {"variant": variant, "bought": rng.integers(0, 2, 600), "profit": profit}
        data = kb.readout(
            table, arm="variant", metrics=["bought", "profit"], reading=kb.Reading(guardrails="profit")
        ).to_dict()
        row = next(row for row in data["effects"] if row["metric"] == "profit")
        alone = row["p_usual"] < 0.05 <= row["p"]
        assert (row["verdict"] == "watch") == (alone and row["estimate"] < 0)
        assert readings(data)["profit"] == {"watch": "watch", "down": "worse"}.get(row["verdict"], "holds")
        if row["verdict"] == "watch":
            assert row["interval"][0] < 0 < row["interval"][1]
            costs = {"guardrails": "profit", "lower_is_better": "profit"}
            better = readout_of(table, arm="variant", metrics=["bought", "profit"], **costs).to_dict()
            assert next(row["verdict"] for row in better["effects"] if row["metric"] == "profit") == "unclear"
            assert readings(better)["profit"] == "holds"
            return
    raise AssertionError("nothing to watch")  # pragma: no cover


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


def test_over_several_looks_a_margin_needs_the_interval_of_the_rule() -> None:
    """Where nobody counted how skewed costs are, that is the wider of Welch's and the one with one variance."""
    rng = np.random.default_rng(7)
    variant = np.where(rng.random(4_000) < 0.1, "B", "A")
    costs = np.where(variant == "B", rng.normal(20, 1, 4_000), rng.normal(20, 6, 4_000)).round(1)
    table = {"variant": variant, "orders": rng.integers(0, 2, 4_000), "costs": costs}
    design: dict[str, Any] = {"guardrails": "costs", "lower_is_better": "costs", "looks": kb.Looks("always-valid")}
    counted = kb.release(kb.count(table, arm="variant", metrics=["orders", "costs"]))
    unknown = replace(counted, receipt=replace(counted.receipt, shapes={}))
    narrow, wide = (
        next(
            row.interval[1]
            for row in kb.analyze(each, **as_values("analyze", **design)).effects
            if row.effect.metric == "costs"
        )
        for each in (counted, unknown)
    )
    counted = unknown
    assert wide > narrow + 0.5
    for size, reading in (((narrow + wide) / 2, "not shown"), (wide + 0.01, "holds")):
        planned = replace(counted.plan.experiment(), non_inferiority={"costs": (size, False)})
        limited = replace(counted, plan=replace(counted.plan, experiments=(planned,)))
        assert readings(kb.analyze(limited, **as_values("analyze", **design)).to_dict())["costs"] == reading


def at_the_margin(seed: int, arms: int = 6, people: int = 400) -> dict[str, Any]:
    """No arm of these is any better than .02 below the control, and costs are alike."""
    rng = np.random.default_rng(seed)
    variant = np.repeat(np.arange(arms + 1), people)
    return {
        "variant": variant,
        "speed": rng.normal(1, 0.2, len(variant)) - 0.02 * (variant > 0),
        "costs": rng.normal(1, 0.2, len(variant)),
    }


def test_claims_about_a_primary_metric_are_corrected_over_arms_and_margins_of_guardrails_are_not() -> None:
    margins = {name: kb.Margin("non-inferiority", 0.02) for name in ("speed", "costs")}
    choices = {"arm": "variant", "metrics": list(margins), "primary": "speed", "guardrails": "costs"}
    ships = alone = 0
    for seed in range(40):
        data = readout_of(at_the_margin(seed), **choices, control=0, margins=margins).to_dict()
        speed, costs = ([row for row in data["margins"] if row["metric"] == name] for name in margins)
        assert [row["p_adjusted"] for row in speed] == kb.stats.correct([row["p"] for row in speed], "holm")
        assert [row["p_adjusted"] for row in costs] == [None] * 6
        assert [row["shown"] for row in speed] == [row["p_adjusted"] < 0.05 for row in speed]
        ships += any(row["reading"] == "holds" for row in data["claims"])
        alone += any(row["p"] < 0.05 for row in speed)
    assert (ships, alone) == (1, 11)
    uncorrected = readout_of(at_the_margin(0), **choices, control=0, margins=margins, correction="none").to_dict()[
        "margins"
    ]
    assert [row["p_adjusted"] for row in uncorrected[:6]] == [row["p"] for row in uncorrected[:6]]


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


def test_what_a_plan_says_is_read_and_may_be_overridden() -> None:
    counted = kb.release(kb.count(rows(), parse_plan(PLAN + ROLES)))
    data = kb.analyze(counted).to_dict()
    assert data["decision"]["answer"] == "ship"
    assert data["rule"] == {"primary": "any", "guardrails": "not-worse", "people": 8_000, "worth": None}
    assert [row["margin"] for row in data["guardrails"]] == [0.02, 0.01]
    other = kb.analyze(
        counted, reading=kb.Reading(primary="clicks", guardrails="orders", decision={"people": 20_000})
    ).to_dict()
    assert {row["metric"]: row["role"] for row in other["effects"] if row["role"] != "secondary"} == {
        "clicks": "primary", "orders": "guardrail"
    }  # fmt: skip
    assert other["rule"]["people"] == 20_000
    moved = kb.analyze(counted, reading=kb.Reading(primary="latency")).to_dict()
    assert {row["metric"] for row in moved["guardrails"]} == {"refunds"}


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
