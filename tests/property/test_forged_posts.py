"""A forged post costs what it touches: a seal publishes whatever posts say, and what they do not name is unchanged."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
from kanab.collector.sealing import people_by_arm, seal_due, stored_ledger
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import CountedPost
from kanab.errors import KanabError, MessageError
from kanab.plan.file import parse_plan
from kanab.privacy.batches import add_releases
from kanab.privacy.release import FORGED, Release
from kanab.tally.tally import Tally

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
minutes = { bounds = [0, 90], resolution = 1, bins = [5, 20, 40] }
basket = { ratio = ["spend", "orders"] }
mood = { ratio = ["rating", "orders"] }
[experiments.calm]
arms = { A = 1, B = 1 }
adjust = ["tier"]
[experiments.checkout]
arms = { A = 1, B = 1, C = 1 }
adjust = ["tier", "device"]
segments = ["device"]
quantiles = { minutes = 0.5 }
[experiments.banner]
arms = { off = 1, on = 1 }
interactions = ["checkout"]
""")
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)  # the first day of week 47: people of week 46 still enroll
WEEK = 2967
ACCEPTOR = PostAcceptor(PLAN)
ARMS = {"calm": "AB", "checkout": "ABC"}
GROUPS = ("checkout", "banner", "pair")
METRICS = ("bought", "spend", "balance", "rating", "orders", "minutes")
FIRST_TABLES = {"calm": "calm/tier", "checkout": "checkout/tier", "banner": "banner"}


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
        moves |= {"minutes": f"0>{int(rng.integers(0, 60))}"}
        moves |= {"orders": f"0>{orders}", "spend/orders": f"0/0>{spend}/{orders}"}
        if rng.random() < 0.7:
            moves |= {"rating": f">{rating}", "rating/orders": f">{rating}/{orders}"}
        for week_number, counters in counted(post(tables, moves, enrolls=True)).items():
            add_counters(total[week_number], counters)
    return total


numbers = st.one_of(st.integers(0, 10), st.sampled_from([-4e6, -1.0, 0.0, 1.0, 100.0, 4e6, 1e300, -1e300]))


class Forged(NamedTuple):
    """A post, how often it comes, and what it names: groups of tables, in which it may enroll somebody, and metrics."""

    body: str
    times: int
    groups: frozenset[str]
    metrics: frozenset[str]
    enrolls: bool


@st.composite
def forged_posts(draw: st.DrawFn) -> Forged:
    """A post that names one person's classes with any totals, and how often it comes."""
    groups = draw(st.sets(st.sampled_from(GROUPS), min_size=1))
    tables = heads(
        sorted(groups), draw(st.sampled_from("ABC")), draw(st.sampled_from(["off", "on"])),
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
    enrolls = draw(st.booleans())
    times = draw(st.sampled_from([1, 2, 30, 200]))
    return Forged(post(tables, moves, enrolls=enrolls), times, frozenset(groups), frozenset(totals), enrolls)


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
                [batch] = seal_due(store, cipher, Versions.read(store), week)
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
        assert release.receipt.forged == {}
        assert {*release.plan.experiment_names} == {"calm", "checkout", "banner"}


class Sums(NamedTuple):
    """The people of an arm, those who have a value, its sum and squares, and who is off 0; in steps."""

    people: int
    counts: int
    total: int
    squares: int
    contributors: int


def sums_of(counters: Counters, experiment: str, arm: str, metric: str) -> Sums:
    """Add up an arm anew, from the names of the counters of its first table."""
    table, sums = FIRST_TABLES[experiment], Counter[str]()
    for name, value in counters.items():
        own, place, *rest = name.split("|")
        if own == table and place.partition(":")[0] == arm:
            sums["/".join(rest)] += value
        elif own == table and rest == [metric, "q"] and f"{experiment}={arm}" in place.split(","):
            sums["q"] += value
    counts = sums[f"{metric}/n"] if metric == "rating" else sums["n"]
    return Sums(sums["n"], counts, sums[f"{metric}/s"], sums["q"], sums[f"{metric}/c"])


def is_possible(sums: Sums, metric: str) -> bool:
    """Whether any people could have sent these sums."""
    declared = PLAN.metrics_by_name[metric].metric()
    low, high = declared.grid_bounds or (0, 1)
    n, s, q = sums.counts, sums.total, sums.squares
    within = 0 <= n <= sums.people and n * low <= s <= n * high and (n > 0 or s == 0)
    if declared.binary or not within:
        return within
    whole, rest = divmod(s, max(n, 1))
    spread = n * whole**2 + rest * (2 * whole + 1) <= q <= (low + high) * s - low * high * n
    return spread and sums.contributors >= 0 and (sums.contributors > 0 or s == 0)


def arms_of(release: Release, experiment: str, metric: str) -> tuple[list[int], list[int], list[int]] | None:
    """Counts, sums and squares of a metric by arm; None where it is not published."""
    totals = release.totals(experiment)
    if metric not in totals.metric_names:
        return None
    part, squares = totals.moments_of(metric), totals.squares(metric)
    assert squares is not None
    return part.counts.tolist(), part.sums.tolist(), squares.tolist()


def group_of(table: Tally) -> str:
    return table.experiment_names[0] if len(table.experiment_names) == 1 else "pair"


def check_unnamed(release: Release, honest: Release, forged: list[Forged]) -> None:
    """Tables that no post names are as without them, and of the others the metrics that none names."""
    named = {group for each in forged for group in each.groups}
    touched = {(group, metric) for each in forged for group in each.groups for metric in each.metrics}
    enrolled = {group for each in forged if each.enrolls for group in each.groups}
    for name, table in honest.tables.items():
        group = group_of(table)
        if group not in named:
            refused = [left.split(": ")[1] for left in release.receipt.left_out if left.split(": ")[0] in GROUPS]
            names = [metric for metric in table.metric_names if group != "pair" or metric not in refused]
            assert release.tables[name].select_metrics(names) == table.select_metrics(names)
        elif name == group or group in enrolled or (group, table.axes[-1]) in touched:
            continue  # arms are compared below, and people who move between bins are named
        elif release.receipt.maps.get(name) == honest.receipt.maps.get(name):
            names = [metric for metric in table.metric_names if (group, metric) not in touched]
            now, before = (replace(each.select_metrics(names), crosses=()) for each in (release.tables[name], table))
            assert now == before
    for experiment in honest.plan.experiment_names:
        for metric in METRICS:
            before, now = (arms_of(each, experiment, metric) for each in (honest, release))
            if (experiment, metric) not in touched and before is not None and experiment not in enrolled:
                assert now == before
            elif (experiment, metric) not in touched and before is not None and now is not None:
                assert now[1:] == before[1:]


def check_named(release: Release, counters: Counters) -> None:
    """Arms' totals of everything are published as they were counted, or withheld, where nobody could have sent them."""
    left_out = release.receipt.left_out
    for experiment in release.plan.experiment_names:
        arms = [arm for arm, _ in PLAN.experiment(experiment).shares or ()]
        for metric in METRICS:
            sums = [sums_of(counters, experiment, str(arm), metric) for arm in arms]
            possible = all(is_possible(each, metric) for each in sums)
            why = left_out.get(f"{experiment}: {metric}", "")
            assert possible is (FORGED not in why)
            published = arms_of(release, experiment, metric)
            assert (published is None) is bool(why)
            if published is not None:
                assert published[0] == [each.counts for each in sums]
                assert published[1] == [each.total for each in sums]
                assert metric == "bought" or published[2] == [each.squares for each in sums]


def test_one_post_to_classes_of_nobody_costs_no_effect_and_rings_an_alarm() -> None:
    tables = heads(["checkout", "banner", "pair"], "A", "on", "", "", "2026-W46")
    moves = {"bought": "0>1", "minutes": "0>90", "spend": "0>20", "orders": "0>1"}
    releases = sealed(counted(post(tables, moves | {"spend/orders": "0/0>20/1"}, enrolls=False)))
    release = releases[0]
    for experiment in ("checkout", "banner"):
        assert {*release.totals(experiment).metric_names} == {*METRICS}
    assert {*release.receipt.forged} == {
        f"checkout/{covariate}: {metric}" for covariate in ("tier", "device") for metric in (*moves, "basket", "mood")
    }  # fmt: skip
    whole = analyze(add_releases(releases), experiment="checkout").to_dict()["effects"]
    assert {row["metric"] for row in whole} == {*METRICS, "spend/orders", "rating/orders"}
    cautions = analyze(release, experiment="checkout").cautions
    assert {caution.metric for caution in cautions if caution.code == "forged-messages"} >= {*moves}


@settings(max_examples=int(os.environ.get("KANAB_FORGED", "12")), deadline=None)
@given(st.lists(forged_posts(), min_size=1, max_size=8))
def test_whatever_is_posted_both_weeks_are_sealed_and_what_nobody_named_is_unchanged(posts: list[Forged]) -> None:
    extra: dict[int, Counters] = {}
    forged = []
    for each in posts:
        with suppress(MessageError):
            for week, counters in counted(each.body).items():
                more = {name: each.times * value for name, value in counters.items()}
                add_counters(extra.setdefault(week, {}), more)
            forged.append(each)
    releases = sealed(extra)
    for week, release, undisturbed in zip((WEEK - 1, WEEK), releases, sealed_honestly(), strict=True):
        check_unnamed(release, undisturbed, forged)
        counters = dict(honest()[week])
        add_counters(counters, extra.get(week, {}))
        check_named(release, counters)
    whole = add_releases(releases)
    for experiment in whole.plan.experiment_names:
        with suppress(KanabError):
            analyze(whole, experiment=experiment).to_dict()
