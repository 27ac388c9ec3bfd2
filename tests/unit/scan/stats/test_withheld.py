from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

import kanab as kb
from kanab.scan.count.counting import count_pairs
from kanab.scan.stats.pairs import PairScan, scan_pairs
from kanab.scan.stats.segments import scan_covariates
from kanab.scan.stats.verdicts import Rules
from kanab.scan.stats.withheld import BARS, FEW_BARS, withhold_tests


def scanned(n: int = 2_000, tests: int = 8, **rules: Any) -> PairScan:
    rng = np.random.default_rng(1)
    rows: dict[str, Any] = {f"t{i}": rng.choice(["off", "on"], n) for i in range(tests)}
    rows |= {"y": rng.integers(0, 20, n) + 8 * ((rows["t0"] == "on") & (rows["t1"] == "on"))}
    rows |= {"d": (rng.random(n) < 0.3).astype(int)}
    return scan_pairs(count_pairs(rows, "t*", ["y", "d"]), Rules(**rules))


def test_hidden_lines_keep_no_number_and_the_others_keep_all() -> None:
    scan = scanned()
    line = next(at for at, row in enumerate(scan.rows) if row.verdict == "interference")
    less = withhold_tests(scan, {"y": [line]}, 10)
    for column in fields(less.lines):
        values, before = getattr(less.lines, column.name), getattr(scan.lines, column.name)
        mine = scan.metric_of == 0
        mine[line] = False
        if values.dtype == np.float64:
            assert np.isnan(values[mine]).all()
        assert np.array_equal(values[~mine], before[~mine], equal_nan=values.dtype == np.float64)
    assert [row.verdict for row in less.flagged] == ["interference"]
    assert not np.isnan(scan.lines.F).any()


def test_sums_are_in_steps_of_k() -> None:
    scan = scanned()
    less = withhold_tests(scan, {"y": [], "d": []}, 10)
    part = less.withheld["d"]
    assert (part.tests, part.flagged, part.more_flagged) == (20, 0, False)
    assert less.withheld["y"].more_flagged
    assert {row.verdict for row in less.rows if row.metric == "y"} == {"not shown"}
    assert {row.verdict for row in less.rows if row.metric == "d"} == {"nothing found"}
    assert (less.tested, less.families, less.expected) == (40, {"y": 20, "d": 20}, 2.0)
    assert len(part.histogram) == FEW_BARS
    assert less.observed % 10 == 0
    assert len(withhold_tests(scanned(400, 21), {"d": []}, 10).withheld["d"].histogram) == BARS
    half = np.median(scan.lines.could_miss[scan.metric_of == 1])
    assert half <= part.could_miss <= 2.5 * half
    assert part.could_miss in (0.1, 0.2, 0.5)


def test_a_family_of_everything_is_counted_at_least() -> None:
    less = withhold_tests(scanned(family="all"), {"d": []}, 10)
    assert less.families == {"all": 48}
    assert len(less.quantiles().observed) == 28
    assert len(less.quantiles("d").observed) == 0


def test_small_tables_stay_not_testable_and_whatever_hangs_on_values_does_not() -> None:
    rng = np.random.default_rng(2)
    rows: dict[str, Any] = {f"t{i}": rng.choice(["off", "on"], 400) for i in range(3)}
    rows["t2"] = np.where(rows["t1"] == "on", "on", "off")
    rows["t2"][:4] = np.where(rows["t1"][:4] == "on", "off", "on")
    scan = scan_pairs(count_pairs(rows | {"d": (np.arange(400) < 3).astype(int)}, "t*", ["d"]))
    assert {row.note for row in scan.rows} == {
        "nothing varies in a class, an arm or a level", "a class holds fewer than k = 10 people",
    }  # fmt: skip
    less = withhold_tests(scan, {"d": []}, 10)
    assert [(row.a, row.b, row.verdict) for row in less.rows if row.note] == [("t1", "t2", "not testable")]
    assert {row.verdict for row in less.rows if not row.note} == {"nothing found"}
    assert less.withheld["d"].could_miss is None


def test_segments_are_withheld_alike() -> None:
    rng = np.random.default_rng(3)
    rows = {"arm": rng.choice(["a", "b"], 900), "c": rng.choice(["x", "y"], 900), "y": rng.integers(0, 9, 900)}
    tally = kb.count_columns(rows, arm="arm", metrics=["y"], covariates=["c"])
    (row,) = withhold_tests(scan_covariates([tally]), {"y": []}, 10).rows
    assert (row.F, row.p_robust, row.verdict) == (None, None, "nothing found")
