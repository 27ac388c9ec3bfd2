"""Quantiles of a collector's batches: people move between bins as their totals do, and nobody sends a line for it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.collector.posting import send
from tests.unit.collector.counting.test_plan_versions import check_change

import kanab as kb
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.protocol.config import public_config
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.sealing import seal_due, stored_ledger
from kanab.collector.stores.sqlite import SqliteStore
from kanab.counting.levels import Bins
from kanab.errors import MessageError, PlanError
from kanab.inspection.attack.known_people import KnownPeople, place_people
from kanab.inspection.attack.published import published_from_dict
from kanab.plan.file import parse_plan
from kanab.plan.model import ExperimentPlan, Plan
from kanab.privacy.batches import add_releases
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict

PLAN = parse_plan("""
k = 10
[cohorts]
every = "7d"
[covariates]
tier = [1, 2, 3]
device = ["phone", "desktop"]
[metrics]
bought = { kind = "binary" }
seconds = { bounds = [0, 600], resolution = 0.1, bins = [0, 1, 10, 20, 30, 40, 60, 80, 120, 300] }
rating = { bounds = [1, 5], resolution = 1, missing = "exclude", bins = [2, 3, 4, 5] }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier", "device"]
quantiles = { seconds = [0.5, 0.9], rating = 0.5 }
[experiments.banner]
arms = { off = 1, on = 1 }
""")
WEEK, MONDAY = 2966, datetime(2026, 11, 9, 12, tzinfo=UTC)  # of week 46
FORGED = "checkout/tier:B:3@2026-W46:seconds:301>0\ncheckout/device:B:phone@2026-W46:seconds:301>0"

Rows = dict[str, Any]


def visitors(n: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    arms = rng.choice(["A", "B"], n)
    rating = rng.integers(1, 6, n).astype(float)
    rating[rng.random(n) < 0.3] = np.nan
    seconds = np.round(rng.gamma(2, np.where(arms == "B", 14, 20)), 1)
    seconds[rng.random(n) < 0.1] = 0
    return {
        "checkout": arms,
        "banner": rng.choice(["off", "on"], n),
        "tier": rng.integers(1, 4, n),
        "device": rng.choice(["phone", "desktop"], n),
        "bought": (rng.random(n) < 0.3).astype(int),
        "seconds": seconds,
        "rating": rating,
    }


def posts(rows: Rows, week: str, seed: int = 0) -> Iterator[str]:
    """Everybody enrolls, and their totals go up and down before they are what the rows say."""
    rng = np.random.default_rng(seed)
    for arm, other, tier, device, bought, seconds, rating in zip(*(rows[name].tolist() for name in rows), strict=True):
        heads = [f"checkout/tier:{arm}:{tier}@{week}", f"checkout/device:{arm}:{device}@{week}"]
        way = [0.0, *rng.choice([0, 5.5, 45, 599], 2).tolist(), seconds]
        moves = [f":bought:0>{bought}", *(f":seconds:{old}>{new}" for old, new in pairwise(way))]
        if not np.isnan(rating):
            moves += [":rating:>4", f":rating:4>{rating:.0f}"]
        cut = int(rng.integers(0, len(moves) + 1))
        for lines in (["", *moves[:cut]], moves[cut:]):
            if lines:
                yield "\n".join(head + line for head in [*heads, f"banner:{other}@{week}"] for line in lines)


def sealed(path: Path, weeks: Sequence[Sequence[str]], plans: Sequence[Plan] = (PLAN,) * 9) -> Sequence[Release]:
    """Post in several weeks, by a plan each, and seal each week."""
    store, cipher = SqliteStore(path), RecordCipher(Keyring(KeyChain.new()))
    try:
        for week, (bodies, plan) in enumerate(zip(weeks, plans, strict=False)):
            Versions.read(store).record(store, plan, WEEK + week)
            send(store, cipher, bodies, MONDAY + timedelta(days=7 * week), plan)
            [batch] = seal_due(store, cipher, Versions.read(store), WEEK + week)
            assert batch.release is not None, batch.held_back
        return stored_ledger(store).releases
    finally:
        store.close()


@pytest.fixture(scope="module")
def rows() -> Rows:
    return visitors(900, 1)


@pytest.fixture(scope="module")
def honest(rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> Release:
    return sealed(tmp_path_factory.mktemp("honest") / "store", [[*posts(rows, "2026-W46")]])[0]


def test_quantiles_of_a_batch_are_those_of_the_rows(rows: Rows, honest: Release) -> None:
    plain = {name: column.tolist() for name, column in rows.items()}
    plain["rating"] = [None if np.isnan(value) else value for value in plain["rating"]]
    counted = kb.release(replace(kb.count(plain, replace(PLAN, cohorts=None)), signatures=None))  # bins by themselves
    for name in ("checkout/seconds", "checkout/rating"):
        assert honest.tables[name] == counted.tables[name]
        assert honest.receipt.maps.get(name) == counted.receipt.maps.get(name)
    collected, by_rows = (kb.analyze(each, "checkout").to_dict()["quantiles"] for each in (honest, counted))
    assert collected == by_rows
    assert [(row["metric"], row["probability"]) for row in collected] == [
        ("seconds", 0.5), ("seconds", 0.9), ("rating", 0.5),
    ]  # fmt: skip


def test_the_receipt_says_that_bins_are_looked_at_by_themselves(honest: Release) -> None:
    assert honest.receipt.deviations == (
        "effective k of checkout takes people by bins of seconds, rating by themselves, not together with its other "
        "tables",
    )
    assert honest.receipt.effective_k is not None
    bins = [honest.tables[name].people for name in ("checkout/seconds", "checkout/rating")]
    assert honest.receipt.effective_k <= min(int(people) for table in bins for people in table.ravel() if people)


def test_no_combination_of_sums_rests_on_fewer_people_because_of_bins(rows: Rows, honest: Release) -> None:
    """Not even for somebody who knows everybody's levels and bins: there are no sums in bins."""
    known = {name: rows[name] for name in ("checkout", "banner", "tier", "device")}
    for name in ("seconds", "rating"):
        edges = PLAN.metrics_by_name[name].edges
        places = np.searchsorted(edges, rows[name], side="right")
        labels = np.array(Bins(name, edges).labels, dtype=object)[places]
        known[name] = np.where(np.isnan(rows[name]), None, labels)
    background = place_people(KnownPeople(known), [published_from_dict(release_to_dict(honest), "batch")])
    assert {design.metric.name for design in background.designs} >= {"bought", "seconds"}
    hiding = [1 / design.classes.leverages.max() for design in background.designs]
    assert min(hiding) >= (honest.receipt.effective_k or 0) >= 10


def quantiles(release: Release, experiment: str) -> Any:
    return kb.analyze(release, experiment).to_dict()["quantiles"]


def test_batches_with_bins_add_up_over_weeks(rows: Rows, tmp_path: Path) -> None:
    later = visitors(700, 2)
    later["seconds"] = np.minimum(later["seconds"], 50.0)  # bins of the first week are empty in the second one
    batches = sealed(tmp_path / "store", [[*posts(rows, "2026-W46")], [*posts(later, "2026-W47")]])
    together = add_releases(batches)
    assert together.tables["checkout/seconds"].total == 1600
    effect = quantiles(together, "checkout")[0]
    both = np.concatenate([rows["checkout"], later["checkout"]]), np.concatenate([rows["seconds"], later["seconds"]])
    medians = [float(np.median(both[1][both[0] == arm])) for arm in ("A", "B")]
    assert effect["estimate"] == pytest.approx(medians[1] - medians[0], abs=1.5)


def test_forged_moves_cost_the_bins_and_nothing_else(rows: Rows, honest: Release, tmp_path: Path) -> None:
    """Somebody leaves a bin in which nobody was."""
    [batch] = sealed(tmp_path / "store", [[*posts(rows, "2026-W46"), FORGED]])
    assert batch.receipt.left_out == honest.receipt.left_out | {
        "checkout/seconds": "seconds is left out: messages do not add up, some were forged or lost"
    }
    assert "checkout/seconds" not in batch.tables
    assert batch.tables["checkout/rating"] == honest.tables["checkout/rating"]
    assert batch.tables["banner"] == honest.tables["banner"]
    assert "seconds" in batch.tables["checkout/tier"].metric_names
    assert [row["metric"] for row in quantiles(batch, "checkout")] == ["rating"]
    [undone] = sealed(tmp_path / "undone", [[*posts(rows, "2026-W46"), FORGED, FORGED.replace("301>0", "0>301")]])
    assert undone.tables["checkout/seconds"] == honest.tables["checkout/seconds"]


def test_where_a_metric_does_not_add_up_its_bins_stay_if_they_do(rows: Rows, honest: Release, tmp_path: Path) -> None:
    """600 seconds go to 300, which is the same bin; but nobody had so many."""
    moves = ["\n".join(f"checkout/{place}@2026-W46:seconds:600>300" for place in ("tier:B:3", "device:B:phone"))] * 99
    [batch] = sealed(tmp_path / "store", [[*posts(rows, "2026-W46"), *moves]])
    assert [*batch.receipt.forged] == ["checkout: seconds"]
    assert all("seconds" not in table.metric_names for name, table in batch.tables.items() if "checkout" in name)
    assert batch.tables["checkout/seconds"] == honest.tables["checkout/seconds"]


def test_seals_go_on_after_bins_were_forged(rows: Rows, tmp_path: Path) -> None:
    second = [*posts(visitors(700, 2), "2026-W47"), FORGED.replace("W46", "W47")]
    third = [*posts(visitors(700, 3), "2026-W48")]
    batches = sealed(tmp_path / "store", [[*posts(rows, "2026-W46")], second, third])
    assert ["checkout/seconds" in batch.tables for batch in batches] == [True, False, False]
    assert "checkout/rating" in add_releases(batches).tables


def test_clients_send_no_lines_for_bins() -> None:
    bare = replace(PLAN, experiments=tuple(replace(each, quantiles={}) for each in PLAN.experiments))
    assert public_config(PLAN) == public_config(bare)
    with pytest.raises(MessageError, match=r"unknown table.*: checkout/device, checkout/tier, banner"):
        PostAcceptor(PLAN).accept(
            f"kanab/1 {make_nonce(MONDAY)}\ncheckout/seconds:A:0@2026-W46\n".encode(), "text/plain", MONDAY
        )


def with_quantiles(name: str, **quantiles: tuple[float, ...]) -> Plan:
    experiments = tuple(replace(each, quantiles=quantiles) if each.name == name else each for each in PLAN.experiments)
    return replace(PLAN, experiments=experiments)


def test_quantiles_begin_with_an_experiment_and_not_while_it_runs() -> None:
    with pytest.raises(PlanError, match=r"the table banner/seconds would begin while the experiment runs"):
        check_change(PLAN, with_quantiles("banner", seconds=(0.5,)))
    new = ExperimentPlan("search", (("A", 1), ("B", 1)), quantiles={"seconds": (0.5,)})
    assert check_change(PLAN, replace(PLAN, experiments=(*PLAN.experiments, new))).at_once == (
        "experiments.search begins",
    )


def test_other_shares_of_people_are_read_from_the_same_bins() -> None:
    assert check_change(PLAN, with_quantiles("checkout", seconds=(0.75,), rating=(0.5,))).at_once == (
        "experiments.checkout.quantiles changes: results are read so from the next seal on",
    )


def test_bins_may_be_added_to_a_metric_and_not_changed(rows: Rows, tmp_path: Path) -> None:
    bought, seconds, rating = PLAN.metrics
    with pytest.raises(PlanError, match=r"metrics\.seconds\.bins may not change: people are counted by them already"):
        check_change(PLAN, replace(PLAN, metrics=(bought, replace(seconds, bins=(0.0, 300.0)), rating)))
    before = replace(with_quantiles("checkout"), metrics=(bought, replace(seconds, bins=None), rating))
    new = ExperimentPlan("search", (("A", 1), ("B", 1)), quantiles={"seconds": (0.5,)})
    after = replace(before, metrics=PLAN.metrics, experiments=(*before.experiments, new))
    assert check_change(before, after).at_once == ("experiments.search begins",)
    later = [
        *posts(rows, "2026-W47"),
        *(f"search:{'AB'[n % 2]}@2026-W47\nsearch:{'AB'[n % 2]}@2026-W47:seconds:0>{n}" for n in range(200)),
    ]
    together = add_releases(sealed(tmp_path / "store", [[*posts(rows, "2026-W46")], later], [before, after]))
    assert together.tables["checkout/tier"].total == 1800
    assert [row["metric"] for row in quantiles(together, "search")] == ["seconds"]
    assert quantiles(together, "checkout") == []
