"""Quantiles in a readout: words, plain data, pictures, notes, and one family of their own."""

from typing import Any

import numpy as np
import pytest
from tests.described import count_of, readout_of

import kanab as kb
from kanab.analysis.methods.quantiles import binned_people
from kanab.errors import AnalysisError
from kanab.inspection.officer.table_facts import purposes
from kanab.plan.model import MetricPlan
from kanab.tally.factor import Factor
from kanab.tally.tally import Tally

EDGES = [0, *range(25, 500, 25), 600, 800, 1000]


def visits(people: int = 6_000) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    arm = rng.choice(["A", "B", "C"], people)
    latency = np.round(np.exp(rng.normal(5, 0.6, people)) * np.where(arm == "B", 0.9, 1), 2)
    return {"variant": arm, "tier": rng.integers(1, 4, people), "latency": latency}


ROWS = visits()
ASKED: dict[str, Any] = {
    "arm": "variant", "metrics": ["latency"], "adjust": ["tier"], "bounds": {"latency": (0, 5000)},
    "bins": {"latency": EDGES}, "quantiles": {"latency": [0.5, 0.9]},
}  # fmt: skip


@pytest.fixture(scope="module")
def answer() -> kb.Readout:
    return readout_of(ROWS, **ASKED)


def test_every_share_and_arm_is_a_row_near_the_quantiles_of_the_rows(answer: kb.Readout) -> None:
    rows = answer.to_dict()["quantiles"]
    assert [(row["probability"], row["arm"]) for row in rows] == [(0.5, "B"), (0.5, "C"), (0.9, "B"), (0.9, "C")]
    for row in rows:
        for arm, side in (("A", "quantile_control"), (row["arm"], "quantile_arm")):
            real = np.quantile(ROWS["latency"][ROWS["variant"] == arm], row["probability"])
            assert row[side] == pytest.approx(real, rel=0.01)
    assert [row["verdict"] for row in rows] == ["down", "unclear", "down", "unclear"]


def test_the_bins_that_are_published_are_all_people(answer: kb.Readout) -> None:
    read = answer.to_dict()["distributions"][0]
    assert (read["edges"][0], read["edges"][-1]) == (0, 450)  # beyond, arms have fewer than k people in a bin
    assert {arm: sum(people) for arm, people in read["people"].items()} == answer.to_dict()["arms"]
    assert min(count for people in read["people"].values() for count in people if count) >= 10
    frame = answer.to_pandas("distributions")
    assert frame["people"].sum() == sum(answer.arms.values())
    assert frame["low"].isna().sum() == frame["high"].isna().sum() == 3


def test_a_quantile_beyond_the_bins_is_a_note() -> None:
    narrow = readout_of(ROWS, **{**ASKED, "bins": {"latency": [100, 150, 200]}})
    p90 = next(row for row in narrow.to_dict()["quantiles"] if row["probability"] == 0.9)
    assert (p90["estimate"], p90["interval"], p90["p"], p90["verdict"]) == (None, None, None, "untestable")
    assert p90["note"].startswith("that of A lies above 200, where the bins end")
    assert "P90 of latency: B against A is not told: that of A lies above 200" in " ".join(str(narrow).split())


def test_bins_that_were_merged_away_are_a_note() -> None:
    few = readout_of(visits(75), **{**ASKED, "adjust": []})
    assert few.to_dict()["quantiles"] == []
    assert any(note.startswith("latency is left out: its levels are too sparse") for note in few.notes)


def test_with_looks_and_arms_as_one() -> None:
    released = kb.release(count_of(ROWS, **ASKED))
    looked = kb.analyze(released, reading=kb.Reading(looks=kb.Looks("always-valid")))
    assert looked.to_dict()["quantiles"] == []
    assert "Quantiles are compared once, at the end: without looks." in looked.notes
    pooled = kb.analyze(released, reading=kb.Reading(pool={"any": ["B", "C"]}, correction="dunnett"))
    assert [row["arm"] for row in pooled.to_dict()["quantiles"]] == ["any", "any"]


def test_a_release_proposes_bins_or_says_that_it_has_none() -> None:
    edges = kb.planning.propose_bins(kb.release(count_of(ROWS, **ASKED)), "latency", 20)
    assert (edges[0], edges[-1]) == (0, 450)
    assert list(edges) == sorted(edges)
    with pytest.raises(AnalysisError, match="the release has no bins of 'spend'"):
        kb.planning.propose_bins(kb.release(count_of(ROWS, **ASKED)), "spend")


def test_merged_bins_and_missing_values_are_read_back_from_their_names() -> None:
    levels = ("< 0 … 0 – 10", "10 – 20 or missing", "30 – 40 … ≥ 40", None)
    table = Tally(
        (Factor("variant", ("A", "B"), "arm"), Factor("y", levels)),
        np.array([[10, 20, 30, 5], [11, 21, 31, 6]], dtype=object),
    )
    read = binned_people(table, MetricPlan("y", (0, 100), bins=(0.0, 10.0, 20.0, 30.0, 40.0)))
    assert read["A"].edges == (10.0, 20.0, 30.0)
    assert [people.people for people in read.values()] == [(10, 20, 0, 30), (11, 21, 0, 31)]


def test_batches_add_up_and_the_officer_reads_what_the_table_is_for() -> None:
    shares = {**ASKED, "shares": {"A": 1, "B": 1, "C": 1}, "resolution": {"latency": 0.01}}
    first, second = (kb.release(count_of(rows, **shares)) for rows in (visits(3_000), ROWS))
    both = kb.add_releases([first, second])
    assert both.tables["variant/latency"].total == 9_000
    assert len(kb.analyze(both).to_dict()["quantiles"]) == 4
    assert purposes("variant/latency", both.plan) == [
        "quantiles: do those of latency differ? People by its bins; no metric"
    ]
