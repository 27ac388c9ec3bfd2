"""Whatever comes, is sealed and is voided: everybody who was acknowledged is published, held back or destroyed."""

import os
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.counters import Counters
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.restoring import begin_epoch
from kanab.collector.sealing import seal_due, stored_ledger
from kanab.collector.store_ledger import people_accounts, shown_accounts, void_cohorts
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import CountedPost, PostOutcome
from kanab.plan.file import parse_plan

PLAN = parse_plan("""
k = 5
[cohorts]
every = "7d"
[covariates]
tier = [1, 2]
device = ["phone", "other"]
[metrics]
bought = { kind = "binary" }
spend = { bounds = [0, 100], resolution = 1 }
[experiments.large]
arms = { A = 1, B = 1 }
adjust = ["tier", "device"]
[experiments.small]
arms = { A = 1, B = 1 }
adjust = ["tier"]
interactions = ["large"]
[experiments.ends]
arms = { A = 1, B = 1 }
""")
LAST = replace(PLAN, experiments=PLAN.experiments[:2])
FIRST_DAY = datetime(2026, 11, 9, 12, tzinfo=UTC)
WEEK = 2966
WEEKS = 5
TABLES = {"large": ("large/tier:{}:1", "large/device:{}:phone"), "small": ("small/tier:{}:2",), "ends": ("ends:{}",)}


@cache
def added(name: str, arm: str, week: int) -> Counters:
    """What one person adds: enrolled, and an amount."""
    now = FIRST_DAY + timedelta(weeks=week)
    heads = [f"{table.format(arm)}@2026-W{46 + week}" for table in TABLES[name]]
    lines = [f"kanab/1 {make_nonce(now)}", *heads, *(f"{head}:spend:0>7" for head in heads), ""]
    return PostAcceptor(PLAN).accept("\n".join(lines).encode(), "text/plain", now).deltas[WEEK + week]


sizes = st.tuples(st.integers(0, 9), st.integers(0, 9))
weeks = st.fixed_dictionaries(
    {"large": st.tuples(st.integers(3, 30), st.integers(3, 30)), "small": sizes, "ends": sizes}
)
steps = st.lists(
    st.tuples(weeks, st.sampled_from(["seal", "seal", "wait", "void", "epoch"])), min_size=WEEKS, max_size=WEEKS
)


@settings(max_examples=int(os.environ.get("KANAB_ACCOUNTS", "25")), deadline=None)
@given(steps, st.integers(1, WEEKS - 1))
def test_acknowledged_people_are_published_held_back_or_destroyed_to_the_last_one(
    plans: list[tuple[dict[str, tuple[int, int]], str]], ends: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, keyring = SqliteStore(Path(folder) / "store.db"), Keyring(KeyChain.from_secret("5e" * 32))
        cipher, nonces = RecordCipher(keyring), count()
        acknowledged = dict.fromkeys(PLAN.experiment_names, 0)
        try:
            versions, _ = Versions().record(store, PLAN, WEEK)
            for week, (people, action) in enumerate(plans):
                if week == ends:
                    versions, _ = versions.record(store, LAST, WEEK + week)
                for name, arms in people.items():
                    posts = [
                        CountedPost(
                            next(nonces).to_bytes(16, "big"), 0, {WEEK + week: added(name, arm, week)}, store.epoch()
                        )
                        for arm, number in zip("AB", arms, strict=True)
                        for _ in range(number)
                    ]
                    outcomes = store.append(posts, cipher.encrypt).outcomes
                    acknowledged[name] += outcomes.count(PostOutcome.NEW)
                now = FIRST_DAY + timedelta(weeks=week)
                if action == "seal":
                    seal_due(store, cipher, versions, WEEK + week)
                elif action == "void":
                    void_cohorts(store, keyring, WEEK + week, "a test", now)
                elif action == "epoch":
                    begin_epoch(store, "a test", now, keyring=keyring)
                ledger, counters = stored_ledger(store), cipher.genuine(store.records()).counters
                accounts, shown = (people_accounts(versions.known, ledger.releases, counters, k) for k in (1, PLAN.k))
                assert {name: sum(account.values()) for name, account in accounts.items()} == acknowledged
                if store.sealed_through() == WEEK + week:  # nobody is open but who is held back
                    assert shown == {**shown, **shown_accounts(ledger)}
                    assert {name for name, states in accounts.items() if states["destroyed"] >= PLAN.k} <= {
                        *shown_accounts(ledger)
                    }
        finally:
            store.close()
