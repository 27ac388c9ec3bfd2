"""Effective k at the seal: what the batches tell somebody who knows everybody's device, system and browser."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.collector.posting import cohort, send

from kanab import count, release
from kanab.analysis.api import analyze
from kanab.collector.counting import signatures
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.counters import Counters, add_counters
from kanab.collector.counting.plan_versions import Version, Versions
from kanab.collector.counting.signatures import OLDER, TOO_MANY, signatures_of
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.sealing import seal_cohorts
from kanab.collector.stores.sqlite import MemoryStore
from kanab.inspection.attack.known_people import KnownPeople, place_people
from kanab.inspection.attack.published import published_from_dict
from kanab.plan.file import parse_plan
from kanab.plan.model import MetricPlan, Plan
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict

PLAN = parse_plan("""
k = 10
[cohorts]
every = "7d"
window = "7d"
[covariates]
device = ["phone", "tablet", "desktop"]
os = ["iOS", "Android", "Windows", "macOS", "Linux"]
browser = ["Chrome", "Safari", "Edge", "Firefox", "other"]
[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 0.01 }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["device", "os", "browser"]
""")
COVARIATES = ("browser", "device", "os")
MONDAY = datetime(2026, 11, 9, 12, tzinfo=UTC)  # of week 46
BATCHES, VISITORS = 40, 1_000

Rows = dict[str, Any]


def visitors(n: int, seed: int) -> Rows:
    """People whose systems follow from their devices and whose browsers from their systems, nearly."""
    rng = np.random.default_rng(seed)
    systems = {
        "phone": (("iOS", "Android", "Windows"), (0.48, 0.515, 0.005)),
        "tablet": (("iOS", "Android", "Windows"), (0.7, 0.295, 0.005)),
        "desktop": (("Windows", "macOS", "Linux", "Android"), (0.68, 0.26, 0.055, 0.005)),
    }
    browsers = {
        "iOS": (("Safari", "Chrome"), (0.995, 0.005)),
        "Android": (("Chrome", "other"), (0.9, 0.1)),
        "Windows": (("Edge", "Firefox", "Chrome"), (0.45, 0.25, 0.3)),
        "macOS": (("Safari", "Chrome"), (0.6, 0.4)),
        "Linux": (("Firefox", "Chrome"), (0.995, 0.005)),
    }
    device = rng.choice(["phone", "tablet", "desktop"], n, p=[0.5, 0.12, 0.38])
    os = np.array([rng.choice(systems[each][0], p=systems[each][1]) for each in device])
    browser = np.array([rng.choice(browsers[each][0], p=browsers[each][1]) for each in os])
    return {
        "checkout": rng.choice(["A", "B"], n),
        "device": device,
        "os": os,
        "browser": browser,
        "bought": (rng.random(n) < 0.3).astype(int),
        "minutes": np.round(rng.gamma(2, 30, n), 2),
    }


def posts(rows: Rows, week: str, covariates: Sequence[str] = COVARIATES) -> Iterator[str]:
    """One post per person: enrolled in every table, and both totals."""
    for person in range(len(rows["checkout"])):
        heads = [f"checkout/{name}:{rows['checkout'][person]}:{rows[name][person]}@{week}" for name in covariates]
        bought, minutes = rows["bought"][person], rows["minutes"][person]
        yield "\n".join(
            line
            for head in heads
            for line in (head, f"{head}:bought:0>{bought}", f"{head}:minutes:0>{minutes}")
        )  # fmt: skip


def sealed(rows: Rows, folder: Path, *, older: int = 0, compact: bool = False) -> Release:
    """The batch of one week, from posts; the first so many went to a collector that knew no signatures."""
    store, cipher = MemoryStore(folder / "store.sqlite"), RecordCipher(Keyring(KeyChain.new()))
    bodies = list(posts(rows, "2026-W46"))
    for at in (0, 1):  # records to be merged
        send(store, cipher, bodies[at::2], MONDAY, PLAN, lambda n, name, at=at: 2 * n + at < older and "/*|" in name)
    if compact:
        store.compact(cohort(MONDAY), cipher.merge)
    made = seal_cohorts(store, cipher, Versions((Version(0, PLAN),)), cohort(MONDAY)).release
    store.close()
    assert made is not None
    return made


def hiding(batch: Release, rows: Rows, metric: str = "minutes") -> np.ndarray[Any, Any]:
    """Among how many people everybody hides from somebody who knows all covariates."""
    background = place_people(KnownPeople(rows), [published_from_dict(release_to_dict(batch), "batch")])
    design = next(each for each in background.designs if each.metric.name == metric)
    return np.repeat(1 / design.classes.leverages, design.people)


def naive(rows: Rows) -> Release:
    """A batch as it was sealed when nobody knew how its tables overlap."""
    return release(replace(count(rows, plan=PLAN), signatures=None))


@pytest.fixture(scope="module")
def batches() -> list[Rows]:
    return [visitors(VISITORS, seed) for seed in range(BATCHES)]


@pytest.fixture(scope="module")
def without_signatures(batches: list[Rows]) -> list[np.ndarray[Any, Any]]:
    """Among how many people everybody of every batch would hide if nobody knew how its tables overlap."""
    return [hiding(naive(rows), rows) for rows in batches]


def test_without_signatures_a_few_people_of_forty_batches_are_solved_exactly(
    without_signatures: list[np.ndarray[Any, Any]],
) -> None:
    sizes = np.concatenate(without_signatures)
    assert ((sizes < 1.001).sum(), (sizes < 2.999).sum(), (sizes < 9.999).sum()) == (16, 129, 204)


def test_at_the_seal_of_the_batches_that_give_people_away_everybody_hides_among_k(
    batches: list[Rows], without_signatures: list[np.ndarray[Any, Any]], tmp_path: Path
) -> None:
    telling = [rows for rows, sizes in zip(batches, without_signatures, strict=True) if sizes.min() < 1.001]
    assert len(telling) >= 8
    sizes = [hiding(sealed(rows, tmp_path / str(number)), rows).min() for number, rows in enumerate(telling)]
    assert min(sizes) >= 9.999


def test_a_batch_is_what_the_gate_makes_of_the_same_rows(batches: list[Rows], tmp_path: Path) -> None:
    crossed = 0
    for number, rows in enumerate(batches[:3]):
        batch, whole = sealed(rows, tmp_path / str(number)), release(count(rows, plan=PLAN))
        assert batch.tables == whole.tables
        crossed += sum(len(table.covariates) == 2 for table in batch.tables.values())
        mine, theirs = batch.receipt, whole.receipt
        assert (mine.effective_k, mine.maps, mine.left_out) == (theirs.effective_k, theirs.maps, theirs.left_out)
        assert mine.effective_k_within == "experiment"
        assert mine.deviations == ()
    assert crossed  # tables of two covariates, for joint adjustment


# ── what is kept, and what is not known ────────────────────────────────────────────────────────


def accepted(lines: str, plan: Plan = PLAN) -> Counters:
    """What one post adds to its one cohort."""
    body = f"kanab/1 {make_nonce(MONDAY)}\n{lines}\n".encode()
    (counters,) = PostAcceptor(plan).accept(body, "text/plain", MONDAY).deltas.values()
    return counters


def joint(counters: Counters) -> Counters:
    return {name: value for name, value in counters.items() if "/*|" in name}


def test_an_enrollment_adds_one_person_to_one_signature_and_totals_add_nothing_to_any() -> None:
    heads = [
        f"checkout/{name}:B:{level}@2026-W46" for name, level in (("os", "iOS"), ("browser", ""), ("device", "phone"))
    ]
    enrolled = accepted("\n".join(heads))
    assert joint(enrolled) == {"checkout/*|B::phone:iOS|n": 1}
    assert joint(accepted("\n".join(f"{head}:minutes:0>4" for head in heads))) == {}


def test_an_experiment_with_one_table_needs_no_signatures_and_several_experiments_get_none_in_common() -> None:
    plan = parse_plan("""
        [cohorts]
        [covariates]
        tier = [1, 2]
        device = ["phone", "other"]
        [metrics]
        bought = { kind = "binary" }
        [experiments.checkout]
        arms = { A = 1, B = 1 }
        adjust = ["tier", "device"]
        [experiments.banner]
        arms = { off = 1, on = 1 }
        adjust = ["tier"]
        interactions = ["checkout"]
    """)
    heads = ("checkout/tier:A:1", "checkout/device:A:phone", "banner/tier:on:1", "banner/checkout:on:A")
    assert joint(accepted("\n".join(f"{head}@2026-W46" for head in heads), plan)) == {"checkout/*|A:phone:1|n": 1}


def test_records_of_an_earlier_version_are_not_evaluated_and_the_receipt_says_so(tmp_path: Path) -> None:
    rows = visitors(VISITORS, 1)
    batch = sealed(rows, tmp_path, older=1)  # of a thousand people one was counted by an older collector
    assert (batch.receipt.effective_k, batch.receipt.effective_k_within) == (None, "")
    assert batch.receipt.deviations == (f"effective k of checkout was not evaluated: {OLDER}",)
    assert batch.tables == naive(rows).tables
    assert f"effective k of checkout was not evaluated: {OLDER}" in " ".join(str(analyze(batch)).split())


def test_too_many_signatures_are_dropped_when_records_are_merged_and_the_receipt_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signatures, "MOST_SIGNATURES", 10)
    cipher = RecordCipher(Keyring(KeyChain.new()))
    plain = {"checkout/os|A:iOS|n": 22} | {f"checkout/*|A:phone:{number}|n": 2 for number in range(11)}
    merged, _ = cipher.merge(7, [cipher.encrypt(7, plain), cipher.encrypt(7, {"banner/*|on:1:2|n": 5})])
    assert cipher.decrypt(7, merged) == {"checkout/os|A:iOS|n": 22, "checkout/*||over": 1, "banner/*|on:1:2|n": 5}
    again, _ = cipher.merge(7, [merged, cipher.encrypt(7, {"checkout/*|A:phone:1|n": 2})])
    assert joint(cipher.decrypt(7, again)) == {"checkout/*||over": 1, "banner/*|on:1:2|n": 5}
    batch = sealed(visitors(VISITORS, 1), tmp_path, compact=True)
    assert batch.receipt.effective_k is None
    assert batch.receipt.deviations == (f"effective k of checkout was not evaluated: {TOO_MANY}",)


def test_one_unknown_experiment_does_not_keep_the_others_from_being_looked_at() -> None:
    rows = visitors(VISITORS, 4)
    plan = replace(PLAN, experiments=(*PLAN.experiments, replace(PLAN.experiments[0], name="banner")))
    counted = count(rows | {"banner": rows["checkout"]}, plan=plan)
    counters = {}
    for lines in posts(rows, "2026-W46"):
        add_counters(counters, joint(accepted("\n".join(line for line in lines.split("\n") if line.count(":") == 2))))
    made, unknown = signatures_of(plan, counted.tallies, counters)
    assert unknown == {"banner": OLDER}
    gated = release(replace(counted, signatures=made))
    assert gated.receipt.effective_k is None
    assert {name for name in gated.tables if "checkout" in name} == {*release(count(rows, plan=PLAN)).tables}
    assert gated.tables["checkout/os"] == release(count(rows, plan=PLAN)).tables["checkout/os"]
    assert gated.tables["banner/os"].shape == naive(rows).tables["checkout/os"].shape


def test_a_metric_that_some_people_lack_is_sealed_without_knowing_who_they_are() -> None:
    rating = MetricPlan("rating", (1, 5), 1, missing="exclude")
    rows = visitors(4_000, 2)
    rng = np.random.default_rng(3)
    rows["rating"] = np.where(rng.random(4_000) < 0.5, rng.integers(1, 6, 4_000), np.nan)
    counted = count(rows, plan=replace(PLAN, metrics=(*PLAN.metrics, rating)))
    assert counted.signatures is not None
    collected = replace(counted.signatures, within="experiment", metrics=(), present=None)
    batch = release(replace(counted, signatures=collected))
    assert (batch.receipt.effective_k or 0) >= 10
    assert any("rating" in table.metric_names for table in batch.tables.values())
