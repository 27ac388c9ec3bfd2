"""The public part of a plan: what clients need, in an order and a form that every language reads alike."""

import json
from typing import Any

from kanab.collector.protocol.config import config_digest, public_config
from kanab.plan.model import Cohorts, CovariatePlan, ExperimentPlan, MetricPlan, Plan


def config(*experiments: ExperimentPlan, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(public_config(Plan((MetricPlan("bought", binary=True),), experiments, **more)))
    return found


def test_arms_keep_the_plans_order_even_where_their_names_are_numbers() -> None:
    found = config(ExperimentPlan("size", ((10, 1), (9, 3), ("a", 0.5)), 10))
    assert found["experiments"]["size"]["arms"] == [["10", 1], ["9", 3], ["a", 0.5]]
    assert found["experiments"]["size"]["control"] == "10"


def test_exclusion_is_told_to_both_sides() -> None:
    arms = (("A", 1), ("B", 1))
    found = config(
        ExperimentPlan("one", arms, "A", exclude_with=("two",)),
        ExperimentPlan("two", arms, "A"),
        ExperimentPlan("three", arms, "A", exclude_with=("two",)),
        ExperimentPlan("four", arms, "A"),
    )["experiments"]
    told = {name: experiment.get("exclude_with") for name, experiment in found.items()}
    assert told == {"one": ["two"], "two": ["one", "three"], "three": ["two"], "four": None}


def test_what_clients_need_not_know_is_left_out() -> None:
    arms = (("A", 1), ("B", 1))
    found = config(
        ExperimentPlan("shop", arms, "A", adjust=("tier",), tolerance={"bought": 0.1}, looks=3, primary=("bought",)),
        covariates=(CovariatePlan("tier", (1, 2)), CovariatePlan("unused", ("x", "y"))),
        cohorts=Cohorts("7d", "36h"),
        k=17,
        origins=("https://shop.example",),
    )
    assert found["experiments"] == {"shop": {"arms": [["A", 1], ["B", 1]], "control": "A", "covariates": ["tier"]}}
    assert found["covariates"] == {"tier": ["1", "2"]}
    assert found["cohorts"] == {"days": 7, "window": 36}
    assert found["nonce_life"] == 24
    assert not {"k", "origins", "looks", "tolerance"} & {*found, *found["experiments"]["shop"]}
    assert "shop.example" not in json.dumps(found)


def test_the_first_epoch_is_not_mentioned_and_a_later_one_gives_another_config() -> None:
    plan = Plan((MetricPlan("a", binary=True),), ())
    assert "epoch" not in json.loads(public_config(plan))
    later = public_config(plan, epoch="5f3a9c01")
    assert json.loads(later)["epoch"] == "5f3a9c01"
    assert config_digest(later) != config_digest(public_config(plan))
