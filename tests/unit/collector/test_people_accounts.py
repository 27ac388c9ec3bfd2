"""What is shown of the account of a store's people: the last receipt, and what was voided since."""

from __future__ import annotations

from dataclasses import replace

from kanab import count, release
from kanab.collector.counting.counters import Counters
from kanab.collector.store_ledger import (
    PeopleAccount,
    destroyed_counters,
    noted_accounts,
    people_accounts,
    shown_accounts,
    would_be_destroyed,
)
from kanab.plan.model import ExperimentPlan, Plan
from kanab.privacy.ledger import Ledger, LedgerNote

ARMS = (("A", 1.0), ("B", 1.0))
PLAN = Plan((), (ExperimentPlan("checkout", ARMS), ExperimentPlan("a/b c", ARMS)))
COUNTERS: Counters = {"checkout|A|n": 20, "checkout|B|n": 9, "a%2Fb%20c|A|n": 4, "a%2Fb%20c/!|n": 7}


def test_people_in_counters_are_held_back_or_were_destroyed_and_names_are_decoded() -> None:
    assert people_accounts(PLAN, [], COUNTERS) == {
        "checkout": PeopleAccount(held_back=29),
        "a/b c": PeopleAccount(held_back=4, destroyed=7),
    }
    assert destroyed_counters(PLAN, COUNTERS, ["a/b c"]) == {"a%2Fb%20c/!|n": 11}
    assert destroyed_counters(PLAN, COUNTERS, []) == {"a%2Fb%20c/!|n": 7}


def test_an_experiment_that_has_ended_is_lost_where_an_arm_is_below_k_and_somebody_is_in_it() -> None:
    assert would_be_destroyed(PLAN, {"checkout", "a/b c"}, COUNTERS) == ["checkout", "a/b c"]
    assert would_be_destroyed(PLAN, {"checkout"}, {}) == []
    assert would_be_destroyed(PLAN, {"checkout"}, {"checkout|A|n": 20, "checkout|B|n": 10}) == []


def test_a_void_after_the_last_batch_destroys_who_was_held_back() -> None:
    batch = release(count({"checkout": ["A", "B"] * 20}, arm="checkout", metrics=[]))
    people = {"checkout": {"published": 40, "held_back": 10, "destroyed": 0}}
    batch = replace(batch, receipt=replace(batch.receipt, people=people))
    after = {
        "checkout": {"published": 40, "held_back": 0, "destroyed": 20},
        "a/b c": dict.fromkeys(people["checkout"], 0),
    }
    note = LedgerNote("voided", "a test", {"through": "2026-W46", **noted_accounts(after)})
    assert shown_accounts(Ledger((batch,))) == people
    assert shown_accounts(Ledger((batch, note))) == {"checkout": after["checkout"]}
    new = LedgerNote("voided", "a test", noted_accounts({"banner": {"destroyed": 30}}))
    assert shown_accounts(Ledger((new,))) == {"banner": {"published": 0, "held_back": 0, "destroyed": 30}}
