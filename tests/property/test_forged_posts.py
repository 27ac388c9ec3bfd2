"""Whatever posts the acceptor accepts, a seal publishes, and an experiment that they do not name is as without them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kanab import analyze
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.counters import Counters, add_counters
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.sealing import people_by_arm, seal_ripe, stored_ledger
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import CountedPost
from kanab.errors import KanabError, MessageError
from kanab.plan.file import parse_plan
from kanab.privacy.batches import add_releases
from kanab.privacy.release import Release

PLAN = parse_plan("""
k = 5
nonce_life = "72h"
[cohorts]
every = "7d"
[covariates]
tier = [1, 2, 3]
device = ["phone", "other"]
[metrics]
bought = { kind = "binary" }
spend = { bounds = [0, 20], resolution = 1, of = "bought" }
balance = { bounds = [-4e6, 4e6], resolution = 1e-6, squares = "class" }
rating = { bounds = [1, 5], resolution = 1, missing = "exclude", sensitive = true }
orders = { bounds = [0, 10], resolution = 1 }
basket = { ratio = ["spend", "orders"] }
mood = { ratio = ["rating", "orders"] }
[experiments.calm]
arms = { A = 1, B = 1 }
adjust = ["tier"]
[experiments.checkout]
arms = { A = 1, B = 1, C = 1 }
adjust = ["tier", "device"]
segments = ["device"]
[experiments.banner]
arms = { off = 1, on = 1 }
interactions = ["checkout"]
""")
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)  # the first day of week 47: people of week 46 still enroll
WEEK = 2967
ACCEPTOR = PostAcceptor(PLAN)
ARMS = {"calm": "AB", "checkout": "ABC"}
METRICS = ("bought", "spend", "balance", "rating", "orders")


def heads(experiments: Iterable[str], arm: str, switch: str, tier: str, device: str, week: str) -> list[str]:
    """The tables of some experiments, with one person's levels."""
    tables = {
        "calm": [f"calm/tier:{arm}:{tier}"],
        "checkout": [f"checkout/tier:{arm}:{tier}", f"checkout/device:{arm}:{device}"],
        "banner": [f"banner:{switch}"],
        "pair": [f"banner/checkout:{switch}:{arm}"],
    }
    return [f"{table}@{week}" for name in experiments for table in tables[name]]


def post(tables: list[str], moves: dict[str, str], *, enrolls: bool) -> str:
    lines = [table for table in tables if enrolls]
    return "\n".join(lines + [f"{table}:{name}:{move}" for table in tables for name, move in moves.items()])


def counted(body: str) -> dict[int, Counters]:
    return ACCEPTOR.accept(f"kanab/1 {make_nonce(NOW)}\n{body}\n".encode(), "text/plain", NOW).deltas


@cache
def honest() -> dict[int, Counters]:
    """What two weeks of honest people add up to."""
    rng, total = np.random.default_rng(7), {WEEK - 1: Counters(), WEEK: Counters()}
    for person in range(360):
        experiments = ["calm"] if person % 3 == 0 else ["checkout", "banner", "pair"]
        arm, switch = rng.choice([*ARMS[experiments[0]]]), rng.choice(["off", "on"])
        week = f"2026-W{46 + person % 2}"
        tables = heads(experiments, arm, switch, rng.choice([*"123"]), rng.choice(["phone", "other"]), week)
        bought, orders, rating = int(rng.integers(2)), int(rng.integers(6)), int(rng.integers(1, 6))
        spend = bought * int(rng.integers(1, 20))
        moves = {"bought": f"0>{bought}", "balance": f"0>{rng.normal(0, 1000):.6f}", "spend": f"0>{spend}"}
        moves |= {"orders": f"0>{orders}", "spend/orders": f"0/0>{spend}/{orders}"}
        if rng.random() < 0.7:
            moves |= {"rating": f">{rating}", "rating/orders": f">{rating}/{orders}"}
        for week_number, counters in counted(post(tables, moves, enrolls=True)).items():
            add_counters(total[week_number], counters)
    return total


numbers = st.one_of(st.integers(0, 10), st.sampled_from([-4e6, -1.0, 0.0, 1.0, 100.0, 4e6, 1e300, -1e300]))


@st.composite
def forged_posts(draw: st.DrawFn) -> tuple[str, int]:
    """A post that names one person's classes with any totals, and how often it comes."""
    named = draw(st.sets(st.sampled_from(["checkout", "banner", "pair"]), min_size=1))
    tables = heads(
        sorted(named), draw(st.sampled_from("ABC")), draw(st.sampled_from(["off", "on"])),
        draw(st.sampled_from(["1", "2", "3", ""])), draw(st.sampled_from(["phone", "other", ""])),
        draw(st.sampled_from(["2026-W46", "2026-W47"])),
    )  # fmt: skip
    moves, totals = {}, {}
    for name in draw(st.sets(st.sampled_from(METRICS))):
        old, new = draw(numbers), draw(numbers)
        first = name == "rating" and draw(st.booleans())
        totals[name] = (None if first else old), new
        moves[name] = f"{'' if first else old}>{new}"
    for first, second in (("spend", "orders"), ("rating", "orders")):
        (u, y), (v, z) = (totals.get(name) or (still, still) for name, still in ((first, draw(numbers)), (second, 3)))
        if first in totals or second in totals or draw(st.booleans()):
            begins = first == "rating" and (u is None or draw(st.booleans()))
            moves[f"{first}/{second}"] = f"{'' if begins else f'{u}/{v}'}>{y}/{z}"
    return post(tables, moves, enrolls=draw(st.booleans())), draw(st.sampled_from([1, 2, 30, 200]))


def sealed(extra: dict[int, Counters]) -> list[Release]:
    """Seal both weeks, one after the other, as a collector does."""
    with tempfile.TemporaryDirectory() as folder:
        store, cipher = SqliteStore(Path(folder) / "store.db"), RecordCipher(Keyring(KeyChain.from_secret("5e" * 32)))
        try:
            Versions().record(store, PLAN, WEEK - 1)
            posts = [CountedPost(bytes(15) + bytes([n]), 0, delta) for n, delta in enumerate((honest(), extra))]
            store.append(posts, cipher.encrypt)
            people = people_by_arm(store, cipher, PLAN)
            assert people.keys() == {*PLAN.experiment_names}
            for week in (WEEK - 1, WEEK):
                [batch] = seal_ripe(store, cipher, Versions.read(store), week)
                assert batch.release is not None, batch.held_back
            assert store.records() == []
            return [*stored_ledger(store).releases]
        finally:
            store.close()


@cache
def sealed_honestly() -> list[Release]:
    return sealed({})


def test_of_honest_people_nothing_is_left_out_for_their_messages() -> None:
    for release in sealed_honestly():
        assert {*release.plan.experiment_names} == {"calm", "checkout", "banner"}
        assert not [sentence for sentence in release.receipt.left_out.values() if "forged" in sentence]


@settings(max_examples=int(os.environ.get("KANAB_FORGED", "5")), deadline=None)
@given(st.lists(forged_posts(), min_size=1, max_size=8))
def test_whatever_is_posted_both_weeks_are_sealed_and_the_experiment_that_nobody_named_is_as_before(
    forged: list[tuple[str, int]],
) -> None:
    extra: dict[int, Counters] = {}
    for body, times in forged:
        with suppress(MessageError):
            for week, counters in counted(body).items():
                more = {name: times * value for name, value in counters.items()}
                add_counters(extra.setdefault(week, {}), more)
    releases = sealed(extra)
    for release, undisturbed in zip(releases, sealed_honestly(), strict=True):
        assert release.tables_of("calm") == undisturbed.tables_of("calm") != {}
    whole = add_releases(releases)
    for experiment in whole.plan.experiment_names:
        with suppress(KanabError):
            analyze(whole, experiment=experiment).to_dict()
