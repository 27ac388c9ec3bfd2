"""Planned shares of pairs of arms: read from plan files, checked with their paths, turned and written again."""

from dataclasses import replace

import numpy as np
import pytest
from tests.approved import assert_approved

from kanab.errors import PlanError
from kanab.plan.check import check_plan
from kanab.plan.file import parse_plan, plan_digest, plan_from_dict, plan_to_dict
from kanab.plan.joint_shares import are_independent, joint_share_mistakes, share_table
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan

TEXT = """
[metrics]
spend = { bounds = [0, 500] }
[experiments.checkout]
arms = { A = 6, B = 4 }
interactions = ["search"]
[experiments.checkout.joint_shares.search]
A = { off = 0.4, on = 0.2 }
B = { off = 0.2, on = 0.2 }
[experiments.search]
arms = { off = 6, on = 4 }
"""
SHARES = (("A", "off", 0.4), ("A", "on", 0.2), ("B", "off", 0.2), ("B", "on", 0.2))


def test_a_plan_file_declares_the_shares_of_pairs_of_arms() -> None:
    plan = parse_plan(TEXT)
    assert plan.joint_shares("checkout", "search") == SHARES
    assert plan.joint_shares("search", "checkout") == tuple((b, a, share) for a, b, share in SHARES)
    assert not are_independent(SHARES)
    assert share_table(SHARES, ("B", "A"), ("off", "on")).tolist() == [[0.2, 0.2], [0.4, 0.2]]


def test_joint_shares_survive_the_way_through_json_and_change_the_digest() -> None:
    plan = parse_plan(TEXT)
    assert plan_from_dict(plan_to_dict(plan)) == plan
    assert plan_to_dict(plan)["experiments"]["checkout"]["joint_shares"] == {
        "search": {"A": {"off": 0.4, "on": 0.2}, "B": {"off": 0.2, "on": 0.2}}
    }
    checkout, search = plan.experiments
    assert plan_digest(replace(plan, experiments=(replace(checkout, joint_shares={}), search))) != plan_digest(plan)


def test_arms_that_are_numbers_are_written_as_a_list() -> None:
    rows = ((0, "off", 0.5), (0, "on", 0), (1, "off", 0.25), (1, "on", 0.25))
    one = ExperimentPlan("one", ((0, 1), (1, 1)), joint_shares={"two": rows})
    plan = Plan((MetricPlan("y", (0, 1)),), (one, ExperimentPlan("two", (("off", 3), ("on", 1)))))
    data = plan_to_dict(check_plan(plan))
    assert data["experiments"]["one"]["joint_shares"] == {"two": [list(row) for row in rows]}
    assert plan_from_dict(data).joint_shares("one", "two") == rows
    assert share_table(rows, (0, 1), ("off", "on")).tolist() == [[0.5, 0.0], [0.25, 0.25]]


CHANGES = [
    ("off = 0.4", "off = 0.5"),
    ("off = 0.4", "off = -0.4"),
    ("off = 0.4, ", ""),
    ("A = { off = 0.4", "C = { off = 0.4"),
    ("on = 0.2 }\n[", "onn = 0.2 }\n["),
    ("shares.search]", "shares.serch]"),
    ("shares.search]", "shares.checkout]"),
    ('interactions = ["search"]', 'exclude_with = ["search"]'),
    ("off = 0.4", "off = true"),
    ("A = { off = 0.4, on = 0.2 }", "A = 0.6"),
    ("on = 4 }", "on = 4 }\njoint_shares = { checkout = { off = { A = 0.6, B = 0.4 } } }"),
]


def test_every_mistake_is_named_with_its_path() -> None:
    said = []
    for old, new in CHANGES:
        with pytest.raises(PlanError) as problem:
            parse_plan(TEXT.replace(old, new))
        said.append(str(problem.value))
    assert_approved("plan/joint_shares.txt", "\n".join(said) + "\n")


def test_a_list_may_not_name_a_pair_twice_and_must_have_three_entries() -> None:
    rows = (*SHARES[:3], ("A", "off", 0.2))
    assert "names a pair of arms twice" in list(joint_share_mistakes(rows, (None, None)))
    for wrong in ('joint_shares = [["A", "off", 1]]', 'joint_shares = { search = [["A", "off"]] }'):
        text = TEXT.replace("[experiments.checkout.joint", "[ignored").replace('["search"]', f'["search"]\n{wrong}')
        with pytest.raises(PlanError, match=r"joint_shares (must be a table of shares|of 'search' must be tables)"):
            parse_plan(text)


def test_where_arms_are_not_declared_the_named_ones_must_be_complete() -> None:
    assert list(joint_share_mistakes(SHARES, (None, None))) == []
    assert next(joint_share_mistakes(SHARES[1:], (None, None))).startswith("leaves out A × off")


def test_thirds_may_be_rounded() -> None:
    thirds = (("A", "x", 0.333333), ("A", "y", 0.333333), ("B", "x", 0.333334), ("B", "y", 0.0))
    assert list(joint_share_mistakes(thirds, (("A", "B"), ("x", "y")))) == []
    assert share_table(thirds, ("A", "B"), ("x", "y")).sum() == pytest.approx(1, abs=1e-15)
    assert np.all(share_table(thirds, ("A", "B"), ("x", "y")) >= 0)
