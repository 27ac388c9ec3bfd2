"""Unrelated experiments in one store: all of them are published at a seal, and a small one waits for the next."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.closing import Keep
from tests.collector.collector_process import Place, Server
from tests.collector.posting import cohort, send

from kanab import analyze
from kanab.cli.operating.status import _store_lines, store_state
from kanab.collector import sealing
from kanab.collector.counting.plan_versions import Version, Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.sealing import seal_cohorts, stored_ledger
from kanab.collector.store_ledger import people_accounts
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Store
from kanab.counted import Counted
from kanab.plan.file import parse_plan
from kanab.plan.model import Plan
from kanab.privacy.batches import add_releases
from kanab.privacy.gate import make_release
from kanab.privacy.release import Release

MONDAY = datetime(2026, 11, 9, 12, tzinfo=UTC)  # of week 46


HEAD = """
k = 10
[cohorts]
every = "7d"
window = "7d"
[covariates]
tier = [1, 2, 3]
[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 0.01 }
"""


@pytest.fixture
def store(tmp_path: Path, closing: Keep) -> Store:
    """One kind of them; test_sealing.py has all."""
    return closing(SqliteStore(tmp_path / "store.db"))


def plan_of(experiments: int, *, covariate: bool) -> Plan:
    adjusted = 'adjust = ["tier"]\n' if covariate else ""
    texts = [f"[experiments.e{number}]\narms = {{ A = 1, B = 1 }}\n{adjusted}" for number in range(experiments)]
    return parse_plan(HEAD + "".join(texts))


def bodies(plan: Plan, sizes: dict[str, int], week: str, rng: np.random.Generator) -> Iterator[str]:
    """One post per person, each of one experiment: enrolled, a rate and an amount."""
    for name, people in sizes.items():
        for _ in range(people):
            table = f"{name}/tier" if plan.experiment(name).adjust else name
            level = f":{rng.integers(1, 4)}" if "/" in table else ""
            head = f"{table}:{rng.choice(['A', 'B'])}{level}@{week}"
            lines = [head, f"{head}:minutes:0>{round(rng.gamma(2, 30), 2)}"]
            yield "\n".join([*lines, *([f"{head}:bought:0>1"] if rng.random() < 0.3 else [])])


@pytest.mark.slow
def test_a_plan_of_a_thousand_experiments_starts_within_three_seconds_of_processor_time(
    place: Place, closing: Keep
) -> None:
    texts = [f'[experiments.e{number}]\narms = {{ A = 1, B = 1 }}\nadjust = ["tier"]\n' for number in range(1000)]
    plan = place.plan(HEAD + "".join(texts))
    server = closing(Server(place, "--plan", plan, "--data", place.data, fresh=True)).start()
    _, _, text = server.ask("GET", "/metrics")
    [seconds] = [float(line.split()[1]) for line in text.decode().splitlines() if line.startswith("process_cpu_sec")]
    assert 0.1 < seconds < 3, seconds  # with the import of everything


@pytest.mark.parametrize("covariate", [False, True])
def test_twenty_unrelated_experiments_of_three_hundred_people_are_all_published(
    store: Store, cipher: RecordCipher, covariate: bool
) -> None:
    plan, rng = plan_of(20, covariate=covariate), np.random.default_rng(1)
    sizes = {name: int(rng.poisson(300)) for name in plan.experiment_names}
    send(store, cipher, bodies(plan, sizes, "2026-W46", rng), MONDAY, plan)
    release = seal_cohorts(store, cipher, Versions((Version(0, plan),)), cohort(MONDAY)).release
    assert release is not None
    assert {name: release.totals(name).total for name in release.plan.experiment_names} == sizes
    assert all(release.totals(name).metric_names == ("bought", "minutes") for name in sizes)
    assert not [why for why in release.receipt.left_out.values() if "of this batch" in why or "held back" in why]
    assert store.records() == []


def test_an_experiment_with_an_arm_below_k_is_held_back_and_published_at_the_next_seal(
    store: Store, cipher: RecordCipher
) -> None:
    plan, rng = plan_of(3, covariate=True), np.random.default_rng(3)
    versions, later = Versions((Version(0, plan),)), MONDAY + timedelta(weeks=1)
    send(store, cipher, bodies(plan, {"e0": 300, "e1": 300, "e2": 12}, "2026-W46", rng), MONDAY, plan)
    first = seal_cohorts(store, cipher, versions, cohort(MONDAY)).release
    assert first is not None
    assert first.plan.experiment_names == ("e0", "e1")
    assert first.receipt.left_out["e2"] == ("e2 is held back until the next seal: an arm holds fewer than k people")
    assert {record.cohort for record in store.records()} == {cohort(later)}
    Versions().record(store, plan, 0)
    state = store_state(store, later)
    assert state["people"]["e0"] == {"published": 300, "held_back": 0, "destroyed": 0}
    assert state["people"]["e2"] == {"published": 0, "held_back": 10, "destroyed": 0}
    assert "people of e2, in steps of k: 0 published, 10 held back, 0 destroyed" in [*_store_lines(state)]
    send(store, cipher, bodies(plan, {"e0": 300, "e1": 300, "e2": 100}, "2026-W47", rng), later, plan)
    second = seal_cohorts(store, cipher, versions, cohort(later)).release
    assert second is not None
    assert second.totals("e2").total == 112
    assert second.totals("e0").total == 300
    assert store.records() == []
    assert "e2 also holds its people of earlier cohorts, who were held back" in second.receipt.deviations
    whole = add_releases(stored_ledger(store).releases)
    assert {name: whole.totals(name).total for name in plan.experiment_names} == {"e0": 600, "e1": 600, "e2": 112}
    readout = analyze(whole, experiment="e2")
    assert readout.to_dict()["privacy"]["people"] == {"published": 110, "held_back": 0, "destroyed": 0}
    assert "until this seal, in steps of k = 10: 110 published, 0 held back, 0 destroyed." in " ".join(
        str(readout).split()
    )
    assert not [why for why in whole.receipt.left_out.values() if "held back" in why]


def test_an_experiment_that_ends_with_an_arm_below_k_is_destroyed_and_said_so(
    store: Store, cipher: RecordCipher
) -> None:
    plan, rng = plan_of(2, covariate=False), np.random.default_rng(4)
    week = cohort(MONDAY)
    versions = Versions((Version(week - 1, plan), Version(week, plan_of(1, covariate=False))))
    send(store, cipher, bodies(plan, {"e0": 300, "e1": 12}, "2026-W46", rng), MONDAY, plan)
    sealed = seal_cohorts(store, cipher, versions, week)
    assert sealed.release is not None
    assert sealed.waiting == {}
    assert sealed.destroyed == {"e1": "e1 has ended, and its people are destroyed: an arm holds fewer than k people"}
    assert sealed.release.receipt.left_out == sealed.destroyed
    counters = cipher.genuine(store.records()).counters
    assert counters == {"e1/!|n": 12}
    assert people_accounts(plan, [sealed.release], counters, 1) == {
        "e0": {"published": 300, "held_back": 0, "destroyed": 0},
        "e1": {"published": 0, "held_back": 0, "destroyed": 12},
    }
    assert sealed.release.receipt.people == {
        "e0": {"published": 300, "held_back": 0, "destroyed": 0},
        "e1": {"published": 0, "held_back": 0, "destroyed": 10},
    }


def test_an_experiment_that_the_gate_fails_on_is_held_back_whole(
    store: Store, cipher: RecordCipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(counted: Counted, **choices: Any) -> Release:
        if "e1" in counted.plan.experiment_names:
            raise ZeroDivisionError("17 people")
        return make_release(counted, **choices)

    plan, rng = plan_of(2, covariate=True), np.random.default_rng(5)
    send(store, cipher, bodies(plan, {"e0": 300, "e1": 300}, "2026-W46", rng), MONDAY, plan)
    before = cipher.genuine(store.records()).counters
    monkeypatch.setattr(sealing, "make_release", fails)
    sealed = seal_cohorts(store, cipher, Versions((Version(0, plan),)), cohort(MONDAY))
    assert sealed.waiting == {
        "e1": "e1 is held back until the next seal: a rule fails on its numbers (ZeroDivisionError)"
    }
    carried = cipher.genuine(store.records()).counters
    assert carried == {name: value for name, value in before.items() if name.startswith("e1") and value}


def few_spenders(plan: Plan, spenders: int, rng: np.random.Generator) -> Iterator[str]:
    """300 people of one experiment, of whom only so many of arm A have some minutes."""
    for number in range(300):
        head = f"e0/tier:{'AB'[number % 2]}:{rng.integers(1, 4)}@2026-W46"
        some = number % 2 or number < 2 * spenders
        yield "\n".join([head, f"{head}:bought:0>1", *([f"{head}:minutes:0>{number + 1}"] if some else [])])


@pytest.mark.parametrize(("spenders", "metrics"), [(0, 2), (2, 1), (40, 2)])
def test_an_amount_that_one_or_two_people_of_an_arm_have_is_left_out_of_the_batch_and_said(
    store: Store, cipher: RecordCipher, spenders: int, metrics: int
) -> None:
    plan = plan_of(1, covariate=True)
    send(store, cipher, few_spenders(plan, spenders, np.random.default_rng(6)), MONDAY, plan)
    release = seal_cohorts(store, cipher, Versions((Version(0, plan),)), cohort(MONDAY)).release
    assert release is not None
    assert len(release.totals("e0").metric_names) == metrics
    assert ("e0: minutes" in release.receipt.left_out) is (metrics == 1)
    if metrics == 1:
        why = "minutes is withheld altogether: too few people of an arm have some of it"
        assert release.receipt.left_out["e0: minutes"] == why


def test_records_of_before_contributors_were_counted_are_sealed_and_the_receipt_says_what_was_not_evaluated(
    store: Store, cipher: RecordCipher
) -> None:
    plan, rng = plan_of(2, covariate=True), np.random.default_rng(7)

    def lacks(number: int, name: str) -> bool:
        return number == 17 and name.endswith("|c")  # one person of e0

    send(store, cipher, bodies(plan, {"e0": 300, "e1": 300}, "2026-W46", rng), MONDAY, plan, lacks)
    release = seal_cohorts(store, cipher, Versions((Version(0, plan),)), cohort(MONDAY)).release
    assert release is not None
    assert release.totals("e0").metric_names == ("bought", "minutes")
    assert release.receipt.deviations == (
        "how many people have some of each amount in e0 was not evaluated: some of its people were counted by an "
        "earlier version of kanab",
    )
