from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.published import published_from_dict
from kanab.inspection.attack.run import play_attacker
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.plan.periods import Span
from kanab.scan.gate import Spent
from kanab.scan.read_together import TableGroup, group_tables, number_gates
from kanab.scan.scan import BESIDE_PAIRS, MOST_JOINT_TABLES, scan_interactions, scan_segments, scan_stored_pairs
from kanab.scan.stats.segments import scan_covariates

FIELDS = ("F", "df", "p", "F_robust", "df_robust", "p_robust", "p_adjusted", "assignment_p", "could_miss")


def people(n: int, tests: int, covariates: int, *, effect: float = 0.0, seed: int = 1) -> dict[str, Any]:
    """Return people with 0/1 values d; the effect of t0 on y differs by c0."""
    rng = np.random.default_rng(seed)
    rows: dict[str, Any] = {f"t{i}": rng.choice(["off", "on"], n) for i in range(tests)}
    rows |= {f"c{i}": rng.choice(["x", "y"], n) for i in range(covariates)}
    different = (rows["t0"] == "on") & (rows["c0"] == "x")
    rows["y"] = np.round(rng.normal(20, 5, n) + effect * different, 1)
    return rows | {"d": (rng.random(n) < 0.3).astype(int)}


def numbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if any(row[name] is not None for name in FIELDS)]


def attacked(data: dict[str, Any], rows: dict[str, Any]) -> int:
    released = published_from_dict(json.loads(json.dumps(data)), "scan.json")
    known = {name: column for name, column in rows.items() if name[0] in "tc"}
    return len(play_attacker([released], place_people(known, [released])).findings)


@pytest.mark.slow
def test_segments_of_many_experiments_that_each_pass_the_gate_solve_everybody_and_the_scan_shows_nothing() -> None:
    rows = people(300, 60, 10)
    tests, covariates = [f"t{i}" for i in range(60)], [f"c{i}" for i in range(10)]
    releases = [kb.release(kb.count(rows, arm=arm, metrics=["d"], segments=covariates)) for arm in tests]
    naive = scan_covariates([table for stored in releases for table in stored.tables.values()])
    plain = {"segments": [row.to_dict() for row in naive.rows], "shares": ["d"], "privacy": {"k": 10}}
    assert attacked(plain, rows) == 300
    for scan in (scan_segments(rows, tests, ["d"], covariates), scan_segments(releases)):
        data = scan.to_dict()
        assert data["privacy"]["shows"] == {"d": "flagged"}
        assert len(numbered(data["segments"])) <= 10  # of releases the first one is shown
        assert attacked(data, rows) == 0
        assert np.isnan(scan.scan.lines.df_robust[20:]).all()


@pytest.mark.slow
def test_few_experiments_are_checked_together_by_the_leverage_rule() -> None:
    rows = people(150, 4, 3)
    tests, covariates = ["t0", "t1", "t2", "t3"], ["c0", "c1", "c2"]
    assert len(tests) * len(covariates) <= MOST_JOINT_TABLES
    alone = [scan_segments(rows, [test], ["d"], covariates).to_dict() for test in tests]
    assert sum(len(data["segments"]) for data in alone) == 12
    assert all(data["notes"] == [] for data in alone)
    together = scan_segments(rows, tests, ["d"], covariates).to_dict()
    assert len(together["segments"]) < 12
    assert any("left out" in note for note in together["notes"])
    assert together["withheld"] == {}


def test_within_the_budget_all_segments_of_many_experiments_are_shown() -> None:
    rows = people(5_000, 7, 2)
    data = scan_segments(rows, [f"t{i}" for i in range(7)], ["d"], ["c0", "c1"]).to_dict()
    assert len(numbered(data["segments"])) == 14
    assert data["withheld"] == {}


@pytest.mark.slow
def test_over_the_budget_flagged_segments_are_shown_with_their_levels() -> None:
    rows = people(1_000, 13, 2, effect=6.0)
    found = scan_segments(rows, [f"t{i}" for i in range(13)], ["y"], ["c0", "c1"], bounds={"y": (-50, 100)})
    data = found.to_dict()
    shown = numbered(data["segments"])
    assert [(row["experiment"], row["covariate"], row["verdict"]) for row in shown] == [("t0", "c0", "differs")]
    assert shown[0]["follow_ups"]
    assert list(found.scan.followed) == [0]
    quiet = {row["verdict"] for row in data["segments"] if row not in shown}
    assert quiet <= {"nothing found", "assignment broken"}
    text = " ".join(str(found).split())
    assert "Over the budget: y. Tables of all tests hold too many independent numbers for so many people" in text
    assert "to whoever knows the arms and levels" in text
    assert "P-values of all pairs" not in found.to_report()


@pytest.mark.slow
def test_pairs_and_segments_that_are_shown_together_share_one_budget() -> None:
    rows = people(900, 8, 1)
    tests = [f"t{i}" for i in range(8)]
    pairs = scan_interactions(rows, tests, ["d"])
    assert pairs.to_dict()["privacy"]["shows"] == {"d": "tables"}
    assert len(numbered(scan_segments(rows, tests, ["d"], ["c0"]).to_dict()["segments"])) == 8
    beside = scan_segments(rows, tests, ["d"], ["c0"], beside=pairs).to_dict()
    assert beside["privacy"]["shows"] == {"d": "flagged"}
    assert numbered(beside["segments"]) == []
    assert beside["notes"] == [BESIDE_PAIRS]
    text = str(scan_segments(rows, tests, ["d"], ["c0"], beside=pairs))
    assert "tests by p" not in text  # fewer than k tests are no histogram


def test_an_experiment_that_differs_from_another_in_one_person_is_left_out_of_a_scan_of_segments() -> None:
    rows = people(2_000, 3, 1)
    rows["t1"] = rows["t1"].astype(object)
    rows["t1"][5] = None
    data = scan_segments(rows, ["t0", "t1", "t2"], ["d"], ["c0"]).to_dict()
    assert {row["experiment"] for row in data["segments"]} == {"t0", "t2"}
    assert data["notes"][0].startswith("t1 is left out: fewer than k = 10 people of an arm are in it and not in")
    apart = people(2_000, 2, 1)
    apart["t0"], apart["t1"] = (
        np.where((np.arange(2_000) < 1_000) == first, apart[name], None)
        for name, first in (("t0", True), ("t1", False))
    )
    assert len(scan_segments(apart, ["t0", "t1"], ["d"], ["c0"]).to_dict()["segments"]) == 2


# ── releases ───────────────────────────────────────────────────────────────────────────────────

BOUNDS: dict[str, Any] = {"bounds": {"d": (0, 1)}, "resolution": {"d": 1}}


def released(rows: dict[str, Any], arm: str) -> kb.Release:
    return kb.release(kb.count(rows, arm=arm, metrics=["d"], segments=["c0", "c1", "c2"], **BOUNDS))


def test_releases_that_were_checked_apart_are_withheld_together_and_said_to_be_out() -> None:
    rows = people(400, 4, 3)
    releases = [released(rows, f"t{i}") for i in range(4)]
    assert number_gates(releases) == [0, 1, 2, 3]
    found = scan_segments(releases)
    data = found.to_dict()
    shown = numbered(data["segments"])
    assert len([row for row in shown if row["experiment"] == "t0"]) == 3
    assert all(row["verdict"] in ("differs", "watch") for row in shown if row["experiment"] != "t0")
    assert data["privacy"]["shows"] == {"d": "flagged"}
    text = " ".join(str(found).split())
    assert "Read together, these releases tell more about the same people than each of them alone" in text
    assert "d is over the budget. The files are published already" in text
    assert len(numbered(scan_segments(releases[0]).to_dict()["segments"])) == 3


def test_many_people_may_be_read_in_several_releases() -> None:
    rows = people(5_000, 3, 3)
    data = scan_segments([released(rows, f"t{i}") for i in range(3)]).to_dict()
    assert len(numbered(data["segments"])) == 9
    assert data["notes"] == []


def test_releases_of_one_ledger_passed_one_gate(tmp_path: Path) -> None:
    rows = people(1_200, 2, 3)
    plans = [
        Plan((MetricPlan("d", (0, 1), 1),), (ExperimentPlan("t0", segments=(name,)),), k=10) for name in ("c0", "c1")
    ]
    first = kb.release(kb.count(rows, plans[0]), ledger=tmp_path / "shop.ledger", new_ledger=True)
    second = kb.release(kb.count(rows, plans[1], earlier=[plans[0]]), ledger=tmp_path / "shop.ledger")
    other = released(rows, "t1")
    assert number_gates([first, other, second]) == [0, 1, 0]
    assert [len(group.tables) for group in group_tables([first, other, second], [0, 1, 0])] == [2, len(other.tables)]


def test_batches_of_other_cohorts_are_other_people() -> None:
    rows = people(1_000, 1, 1) | {"day": np.repeat(["2026-11-02", "2026-11-03"], 500)}
    experiment = ExperimentPlan("t0", (("off", 1.0), ("on", 1.0)), segments=("c0",))
    plan = Plan((MetricPlan("d", (0, 1), 1),), (experiment,), (CovariatePlan("c0", ("x", "y")),), k=10)
    spans = [Span("day", "1d", None, "2026-11-02"), Span("day", "1d", "2026-11-02", "2026-11-03")]
    batches = [kb.release(kb.count(rows, plan, span=span)) for span in spans]
    assert number_gates(batches) == [0, 0]


def test_people_off_the_commonest_value_are_counted_by_the_scarcest_arm() -> None:
    rows = people(1_000, 1, 1)
    rows["d"] = np.where((rows["t0"] == "on") & (np.arange(1_000) < 400), rows["d"], 0)
    rows["y"] = np.round(np.abs(rows["y"]))
    counted = kb.count(rows, arm="t0", metrics=["d", "y"], segments=["c0"])
    table = counted.tallies["t0/c0"]
    known, guessed = TableGroup((table,), counted.unusual), TableGroup((table,))
    off = int(rows["d"].sum())
    assert known.people(table, "d") == guessed.people(table, "d") == (1_000, 2 * off)
    assert 0 < guessed.people(table, "y")[1] <= 1_000
    bare = kb.Tally(table.factors, table.people, tuple(part for part in table.moments if part.metric.binary))
    assert TableGroup((bare,)).spent("d") == Spent().plus(4, 1_000, 2 * off)
    assert TableGroup((bare,)).spent("y") == Spent()


def test_stored_pairs_of_several_ledgers_share_one_budget() -> None:
    rows = people(300, 6, 1)
    releases = []
    for first, second, third in (("t0", "t1", "t2"), ("t3", "t4", "t5")):
        experiments = (
            ExperimentPlan(first, interactions=(second, third)),
            ExperimentPlan(second),
            ExperimentPlan(third),
        )
        releases.append(kb.release(kb.count(rows, Plan((MetricPlan("d", (0, 1), 1),), experiments, k=10))))
    data = scan_interactions(releases).to_dict()
    assert data["privacy"]["shows"] == {"d": "flagged"}
    assert {row["a"] for row in numbered(data["pairs"])} == {"t0"}
    assert any(note.startswith("Read together, these releases") for note in data["notes"])
    together = scan_stored_pairs(releases, gates=[0, 0]).to_dict()
    assert len(numbered(together["pairs"])) == len(together["pairs"]) == 4
