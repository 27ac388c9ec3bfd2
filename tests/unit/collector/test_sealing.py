"""Where the gate fails on a part of a batch, that part is left out, and the smallest one that can be told."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kanab import count
from kanab.collector import sealing
from kanab.collector.counting.counters import Counters
from kanab.collector.sealing import Passed, release_what_holds
from kanab.collector.store_ledger import (
    destroyed_counters,
    people_accounts,
)
from kanab.counted import Counted
from kanab.errors import PrivacyError
from kanab.plan.file import parse_plan
from kanab.plan.model import ExperimentPlan, Plan
from kanab.privacy.gate import make_release
from kanab.privacy.ledger import Ledger
from kanab.privacy.release import Release

PLAN = parse_plan("""
k = 5
[covariates]
tier = [1, 2, 3]
device = ["phone", "other"]
[metrics]
bought = { kind = "binary" }
spend = { bounds = [0, 20], resolution = 1, of = "bought" }
orders = { bounds = [0, 9], resolution = 1 }
basket = { ratio = ["spend", "orders"] }
[experiments.banner]
arms = { off = 1, on = 1 }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
segments = ["device"]
""")
Fails = Callable[[Counted, dict[str, str]], bool]


@pytest.fixture(scope="module")
def counted() -> Counted:
    rng = np.random.default_rng(3)
    bought = rng.integers(0, 2, 400)
    rows = {"banner": rng.choice(["off", "on"], 400), "checkout": rng.choice(["A", "B"], 400)}
    rows |= {"tier": rng.choice([1, 2, 3], 400), "device": rng.choice(["phone", "other"], 400)}
    rows |= {"bought": bought, "spend": bought * rng.integers(1, 20, 400), "orders": rng.integers(0, 9, 400)}
    return replace(count(rows, plan=PLAN), signatures=None)  # a collector knows no values


def released(monkeypatch: pytest.MonkeyPatch, counted: Counted, fails: Fails) -> Passed:
    """Release by a gate that fails on something."""

    def gate(given: Counted, *, ledger: Ledger, without: dict[str, str] | None = None) -> Release:
        if fails(given, without or {}):
            raise ZeroDivisionError("17 people")
        return make_release(given, ledger=ledger, without=without)

    monkeypatch.setattr(sealing, "make_release", gate)
    return release_what_holds(counted, Ledger())


def metrics_of(given: Counted, table: str) -> tuple[str, ...]:
    return given.tallies[table].metric_names if table in given.tallies else ()


def test_nothing_is_left_out_where_everything_passes(monkeypatch: pytest.MonkeyPatch, counted: Counted) -> None:
    release, left, failed = released(monkeypatch, counted, lambda *_: False)
    assert (left, failed) == ({}, {})
    assert {*release.tables} >= {"banner", "checkout/tier", "checkout/device"}


def test_a_metric_that_the_gate_fails_on_is_withheld_in_its_experiment_with_what_is_defined_by_it(
    monkeypatch: pytest.MonkeyPatch, counted: Counted
) -> None:
    release, left, failed = released(
        monkeypatch, counted, lambda given, _: "bought" in metrics_of(given, "checkout/tier")
    )
    assert failed == {}
    assert left["checkout: bought"] == "bought is withheld altogether: a rule fails on its numbers (ZeroDivisionError)"
    assert metrics_of_tables(release, "checkout") == {"orders"}
    assert metrics_of_tables(release, "banner") == {"bought", "spend", "orders"}
    assert "17" not in str(left)


def test_a_table_that_the_gate_fails_on_is_left_out_alone(monkeypatch: pytest.MonkeyPatch, counted: Counted) -> None:
    release, left, failed = released(monkeypatch, counted, lambda _, without: "checkout/device" not in without)
    assert (left, failed) == ({}, {})
    assert "checkout/device" not in release.tables
    assert release.receipt.left_out["checkout/device"] == (
        "device is left out: a rule fails on its numbers (ZeroDivisionError)"
    )
    assert metrics_of_tables(release, "checkout") >= {"bought", "spend"}


def test_where_nothing_passes_the_cohorts_wait_and_a_refusal_keeps_its_words(
    monkeypatch: pytest.MonkeyPatch, counted: Counted
) -> None:
    with pytest.raises(PrivacyError, match=r"a rule fails on its numbers \(ZeroDivisionError\)\. Update kanab"):
        released(monkeypatch, counted, lambda *_: True)

    def refuse(*_: Any, **__: Any) -> Release:
        raise PrivacyError("an arm holds fewer than k = 5 people", "Wait.")

    monkeypatch.setattr(sealing, "make_release", refuse)
    with pytest.raises(PrivacyError, match="an arm holds fewer than k = 5 people"):
        release_what_holds(counted, Ledger())


def metrics_of_tables(release: Release, experiment: str) -> set[str]:
    return {metric for table in release.tables_of(experiment).values() for metric in table.metric_names}


ARMS = (("A", 1.0), ("B", 1.0))
ENDING = Plan((), (ExperimentPlan("checkout", ARMS), ExperimentPlan("a/b c", ARMS)))
COUNTERS: Counters = {"checkout|A|n": 20, "checkout|B|n": 9, "a%2Fb%20c|A|n": 4, "a%2Fb%20c/!|n": 7}


def test_people_in_counters_are_held_back_or_were_destroyed_and_names_are_decoded() -> None:
    assert people_accounts(ENDING, [], COUNTERS, 1) == {
        "checkout": {"published": 0, "held_back": 29, "destroyed": 0},
        "a/b c": {"published": 0, "held_back": 4, "destroyed": 7},
    }
    assert destroyed_counters(ENDING, COUNTERS, ["a/b c"]) == {"a%2Fb%20c/!|n": 11}
    assert destroyed_counters(ENDING, COUNTERS, []) == {"a%2Fb%20c/!|n": 7}
