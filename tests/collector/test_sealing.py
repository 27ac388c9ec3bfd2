"""From posts to sealed batches, through the gate, in every store."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.collector import posting
from tests.collector.posting import cohort

from kanab import count
from kanab.collector import sealing
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.plan_versions import Version, Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.protocol.nonces import hour_of, make_nonce
from kanab.collector.sealing import people_by_arm, seal_cohorts, seal_due, stored_ledger
from kanab.collector.stores.store import CountedPost, Store
from kanab.errors import StoreError
from kanab.inspection.auditor import check_release, passes
from kanab.plan.file import parse_plan
from kanab.plan.joint_shares import turned
from kanab.privacy.batches import add_releases

PLAN_TEXT = """
k = 10
[cohorts]
every = "7d"
window = "7d"
[covariates]
tier = [1, 2, 3]
[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 0.01 }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
[experiments.banner]
arms = { off = 1, on = 1 }
interactions = ["checkout"]
"""
PLAN = parse_plan(PLAN_TEXT)
VERSIONS = Versions((Version(0, PLAN),))
MONDAY = datetime(2026, 11, 9, 12, tzinfo=UTC)  # of week 46

Rows = dict[str, Any]
send = partial(posting.send, plan=PLAN)


def people(n: int, seed: int = 1, *, banner: int | None = None) -> Rows:
    """Everybody's final row; only the first so many are in the banner experiment."""
    rng = np.random.default_rng(seed)
    inside = np.arange(n) < (n if banner is None else banner)
    return {
        "checkout": rng.choice(["A", "B"], n),
        "banner": np.where(inside, rng.choice(["off", "on"], n), None),
        "tier": rng.choice([1, 2, 3], n),
        "bought": (rng.random(n) < 0.4).astype(int),
        "minutes": np.round(rng.gamma(2, 30, n), 2),
    }


def posts(rows: Rows, week: str) -> Iterator[str]:
    """One post per person: enrolled, and both totals."""
    for arm, banner, tier, bought, minutes in zip(*(rows[name] for name in rows), strict=True):
        heads = [f"checkout/tier:{arm}:{tier}@{week}"]
        heads += [f"banner:{banner}@{week}", f"banner/checkout:{banner}:{arm}@{week}"] if banner else []
        lines = list(heads)
        for head in heads:
            lines += [f"{head}:bought:0>{bought}"] * int(bought) + [f"{head}:minutes:0>{minutes}"]
        yield "\n".join(lines)


def test_a_sealed_batch_holds_what_counting_the_rows_would_give(store: Store, cipher: RecordCipher) -> None:
    rows = people(600)
    send(store, cipher, posts(rows, "2026-W46"), MONDAY)
    sealed = seal_cohorts(store, cipher, VERSIONS, cohort(MONDAY))
    assert sealed.release is not None
    counted = count(rows, plan=PLAN)
    assert set(sealed.release.tables) == {"checkout/tier", "banner", "banner/checkout"}
    for name, table in sealed.release.tables.items():
        assert table == counted.tallies[name]
    receipt = sealed.release.receipt
    assert (receipt.effective_k, receipt.effective_k_within) == (receipt.smallest_class // 10 * 10, "experiment")
    assert receipt.batch is not None
    assert (receipt.batch.after, receipt.batch.through) == (None, "2026-W46")
    assert passes(check_release(sealed.release))
    assert store.records() == []
    with pytest.raises(StoreError, match="has been erased"):
        cipher.encrypt(cohort(MONDAY), {})
    again = seal_cohorts(store, cipher, VERSIONS, cohort(MONDAY))
    assert (again.release, again.held_back) == (None, "another collector has sealed these cohorts")


def test_nobody_at_all_is_told_in_the_same_words(store: Store, cipher: RecordCipher) -> None:
    nobody = seal_cohorts(store, cipher, VERSIONS, cohort(MONDAY)).held_back
    send(store, cipher, posts(people(9), "2026-W46"), MONDAY)
    assert seal_cohorts(store, cipher, VERSIONS, cohort(MONDAY)).held_back == nobody


def test_joint_shares_with_an_experiment_that_is_left_out_are_left_out_and_come_back(
    store: Store, cipher: RecordCipher
) -> None:
    shares = tuple((banner, arm, 0.25) for banner in ("off", "on") for arm in ("A", "B"))
    checkout, banner = PLAN.experiments
    plan = replace(PLAN, experiments=(replace(checkout, joint_shares={"banner": turned(shares)}), banner))
    versions = Versions((Version(0, plan),))
    weeks = [MONDAY + timedelta(weeks=number) for number in range(4)]
    sealed = []
    for week, inside in zip(weeks, (400, 400, 12, 400), strict=True):
        send(store, cipher, posts(people(400, inside, banner=inside), f"2026-W{46 + len(sealed)}"), week)
        sealed.append(seal_cohorts(store, cipher, versions, cohort(week)).release)
    _, second, third, fourth = (release for release in sealed if release is not None)
    assert second.plan.joint_shares("banner", "checkout") == shares
    assert third.plan.experiment("checkout").joint_shares == {}
    assert third.receipt.left_out["banner"].startswith("banner is held back until the next seal")
    sizes = {name: table.total for name, table in fourth.tables.items()}
    assert sizes == {"checkout/tier": 400, "banner": 412, "banner/checkout": 412}
    total = add_releases([release for release in sealed if release is not None])
    assert total.plan.joint_shares("banner", "checkout") == shares


def test_before_a_seal_people_are_seen_in_steps_of_k_only(store: Store, cipher: RecordCipher) -> None:
    assert people_by_arm(store, cipher, PLAN)["checkout"] == {"A": 0, "B": 0}
    rows = people(309)
    send(store, cipher, posts(rows, "2026-W46"), MONDAY)
    exact = {arm: int((rows["checkout"] == arm).sum()) for arm in "AB"}
    assert people_by_arm(store, cipher, PLAN)["checkout"] == {arm: n // 10 * 10 for arm, n in exact.items()}
    seal_cohorts(store, cipher, VERSIONS, cohort(MONDAY))
    assert people_by_arm(store, cipher, PLAN)["checkout"] == {arm: n // 10 * 10 for arm, n in exact.items()}


def test_a_plan_without_cohorts_is_sealed_once_at_the_end(store: Store, cipher: RecordCipher) -> None:
    plan = replace(PLAN, cohorts=None)
    acceptor, rows = PostAcceptor(plan), people(400)
    entries = []
    for body in posts(rows, ""):
        text = f"kanab/1 {make_nonce(MONDAY)}\n{body.replace('@', '')}\n"
        accepted = acceptor.accept(text.encode(), "text/plain", MONDAY)
        entries.append(CountedPost(cipher.keyring.nonce_hash(accepted.nonce), hour_of(accepted.nonce), accepted.deltas))
    store.append(entries, cipher.encrypt)
    sealed = seal_cohorts(store, cipher, Versions((Version(0, plan),)), 0)
    assert sealed.release is not None
    assert sealed.release.receipt.batch is None
    assert sealed.release.tables["banner"] == count(rows, plan=plan).tallies["banner"]


def test_other_shares_make_a_batch_of_their_own(store: Store, cipher: RecordCipher) -> None:
    uneven = replace(
        PLAN,
        experiments=tuple(
            replace(one, shares=(("A", 3), ("B", 1))) if one.name == "checkout" else one for one in PLAN.experiments
        ),
    )
    later = MONDAY + timedelta(weeks=1)
    versions = Versions((Version(cohort(MONDAY), PLAN), Version(cohort(MONDAY), uneven)))
    send(store, cipher, posts(people(400), "2026-W46"), MONDAY)
    send(store, cipher, posts(people(300, 2), "2026-W47"), later)
    first, second = seal_due(store, cipher, versions, cohort(later))
    assert first.release is not None
    assert second.release is not None
    shares = [one.plan.experiment("checkout").shares for one in (first.release, second.release)]
    assert shares == [(("A", 1), ("B", 1)), (("A", 3), ("B", 1))]
    assert [one.tables["checkout/tier"].total for one in (first.release, second.release)] == [400, 300]
    ledger = stored_ledger(store)
    assert [batch.receipt.batch and batch.receipt.batch.through for batch in ledger.releases] == [
        "2026-W46",
        "2026-W47",
    ]
    assert ledger.releases[1].previous == ledger.hashes[0]
    assert seal_due(store, cipher, versions, cohort(MONDAY) - 1) == []
    both = add_releases(stored_ledger(store).releases)
    assert both.plan.experiment("checkout").shares == (("A", 425.0), ("B", 275.0))


def test_a_phase_that_is_too_small_joins_the_next(store: Store, cipher: RecordCipher) -> None:
    uneven = replace(PLAN, experiments=tuple(replace(one, holdout=0.1) for one in PLAN.experiments))
    later = MONDAY + timedelta(weeks=1)
    versions = Versions((Version(cohort(MONDAY), PLAN), Version(cohort(MONDAY), uneven)))
    send(store, cipher, posts(people(8), "2026-W46"), MONDAY)
    send(store, cipher, posts(people(300, 2), "2026-W47"), later)
    first, second = seal_due(store, cipher, versions, cohort(later))
    assert first.release is None
    assert second.release is not None
    assert second.release.tables["checkout/tier"].total == 308


def test_an_experiment_counts_the_metrics_that_it_began_with(store: Store, cipher: RecordCipher) -> None:
    """People who enrolled before a metric existed must not count as people who had none of it."""
    old = replace(PLAN, metrics=PLAN.metrics[:1], experiments=PLAN.experiments[:1])
    versions = Versions((Version(cohort(MONDAY), old), Version(cohort(MONDAY), PLAN)))
    send(store, cipher, posts(people(400), "2026-W46"), MONDAY)
    (sealed,) = seal_due(store, cipher, versions, cohort(MONDAY))
    assert sealed.release is not None
    metrics = {name: [one.name for one in table.metrics] for name, table in sealed.release.tables.items()}
    assert metrics == {"checkout/tier": ["bought"], "banner": ["bought", "minutes"], "banner/checkout": ["bought"]}


def test_the_gate_is_passed_before_the_transaction_and_again_if_the_store_has_changed(
    store: Store, cipher: RecordCipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    passed, stored = sealing.release_what_holds, store.seal

    def gate(*given: Any, **choices: Any) -> Any:
        order.append("gate")
        return passed(*given, **choices)

    def seal(through: int, make: Any, carry: Any) -> bool:
        order.append("transaction")
        if len(order) > 2:  # somebody posts before the second one
            send(store, cipher, posts(people(50, 9), "2026-W47"), MONDAY + timedelta(weeks=1))
        return stored(through, make, carry)

    monkeypatch.setattr(sealing, "release_what_holds", gate)
    monkeypatch.setattr(store, "seal", seal)
    for week in range(2):
        now = MONDAY + timedelta(weeks=week)
        send(store, cipher, posts(people(400, week), f"2026-W{46 + week}"), now)
        batch = seal_cohorts(store, cipher, VERSIONS, cohort(now)).release
        assert batch is not None
        assert batch.totals("checkout").total == 400 + 50 * week
    assert order == ["gate", "transaction", "gate", "transaction", "gate"]
