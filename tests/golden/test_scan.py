"""Scans of published experiments: the paper's table, and New Haven 1998 with three tests per person."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.benchmarks import load_benchmark

import kanab as kb
from kanab.datasets import eighteen
from kanab.scan.pair_tables import Pairs
from kanab.scan.stats.scan_kinds import PairScan, scan_covariates, scan_pairs
from kanab.scan.stats.scan_verdicts import Rules

TESTS = ["persngrp", "phongotv", "mailings"]
V98 = kb.Metric("v98", 1, (0, 1))


bench = load_benchmark("bench_scan_tests")


def near(value: Any, *, rel: float = 1e-12) -> Any:
    return pytest.approx(value, rel=rel, abs=0)


@pytest.fixture
def as_pair() -> kb.Tally:
    """The paper's table as if the tier had been an experiment too."""
    table = eighteen()
    tier = kb.tally.Factor("tier", table.factor("tier").levels, "arm")
    return kb.Tally((table.experiment, tier), table.people, table.moments)


def test_the_papers_table_has_its_f_as_a_pair(as_pair: kb.Tally) -> None:
    (row,) = scan_pairs({("treatment", "tier"): as_pair}, Rules(k=3)).rows
    assert near(41.7046498028901) == row.F
    assert row.df == (2, 12)
    assert row.p == near(3.95861467139e-6, rel=1e-11)
    assert (row.F_robust, row.df_robust) == (near(41.70464980289008), (2, near(11.602611174621845)))
    assert row.p_robust == row.p_adjusted == near(5.0364e-6, rel=1e-4)
    assert row.variance == "by_arm"
    assert row.note == "assumes equal variance across levels"
    assert row.verdict == "interference"


def test_the_papers_table_has_its_f_and_follow_ups_as_segments() -> None:
    (row,) = scan_covariates([eighteen()], Rules(k=3, correction="bh")).rows
    assert (row.experiment, row.covariate, row.metric) == ("treatment", "tier", "minutes")
    assert near(41.7046498028901) == row.F
    assert row.verdict == "differs"
    assert row.follow_ups == kb.stats.follow_ups(eighteen())


def test_the_papers_classes_are_too_small_for_ten_people(as_pair: kb.Tally) -> None:
    (row,) = scan_pairs({("treatment", "tier"): as_pair}).rows
    assert (row.verdict, row.note) == ("not testable", "a class holds fewer than k = 10 people")
    assert (row.F, row.p, row.F_robust, row.p_adjusted, row.assignment_p, row.could_miss) == (None,) * 6


@pytest.fixture(scope="module")
def rows(shared: Path) -> pd.DataFrame:
    return pd.read_csv(shared / "newhaven_1998_factorial.csv.gz", usecols=[*TESTS, "v98"])


@pytest.fixture(scope="module")
def pairs(rows: pd.DataFrame) -> Pairs:
    codes, levels = {}, {}
    for test in TESTS:
        levels[test], codes[test] = np.unique(rows[test], return_inverse=True)
    names = {test: tuple(found.tolist()) for test, found in levels.items()}
    return bench.count_pairs(codes, {V98: rows["v98"].to_numpy(dtype=np.int64)}, names)


@pytest.fixture(scope="module")
def scan(pairs: Pairs) -> PairScan:
    return scan_pairs(pairs)


def test_new_haven_has_the_reference_f(scan: PairScan, reference: dict[str, Any]) -> None:
    names = {"persngrp": "visit", "phongotv": "phone", "mailings": "mail"}
    assert [f"{row.p:.3g}" for row in scan] == ["0.523", "0.0484", "0.967"]
    for row in scan:
        entry = reference[f"newhaven_{names[row.a]}_x_{names[row.b]}"]
        assert row.df == (entry["df_num"], entry["df_den"])
        assert near(entry["F"], rel=2.5e-14 * entry["rss_main"] / (entry["rss_main"] - entry["rss_full"])) == row.F


@pytest.mark.parametrize("correction", ["holm", "bh"])
def test_new_haven_has_no_interference_left_after_correction(pairs: Pairs, correction: Any) -> None:
    found = scan_pairs(pairs, Rules(correction=correction))
    assert min(row.p_adjusted for row in found) > 0.14
    assert "interference" not in found.verdicts()
    assert "watch" not in found.verdicts()


def test_new_haven_phone_and_mail_were_not_assigned_independently(scan: PairScan) -> None:
    by_pair = {(row.a, row.b): row for row in scan}
    broken = by_pair["phongotv", "mailings"]
    assert broken.verdict == "assignment broken"
    assert broken.note == "the arms of phongotv and mailings are not independent"
    assert broken.assignment_p < 1e-300


def test_new_haven_phone_and_mail_fit_their_design_once_it_is_declared(pairs: Pairs, rows: pd.DataFrame) -> None:
    cells = (rows.groupby(["phongotv", "mailings"]).size() / len(rows)).round(3)
    cells.iloc[0] += 1 - cells.sum()  # as a design on paper: to the third digit
    shares = tuple((phone, mail, share) for (phone, mail), share in cells.items())
    found = scan_pairs(pairs, joint_shares={("phongotv", "mailings"): shares})
    assert [row.verdict for row in found] == ["nothing found"] * 3
    assert found.rows[2].assignment_p > 0.5


def test_new_haven_expects_a_sixth_of_an_alarm(scan: PairScan) -> None:
    assert (scan.tested, scan.families) == (3, {"v98": 3})
    assert scan.expected == near(0.15)
    assert scan.observed == sum(row.p_robust < 0.05 for row in scan) == 1
