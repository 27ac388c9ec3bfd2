from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.errors import AnalysisError, ArgumentError, PlanError, PrivacyError
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
from kanab.scan.scan import scan_interactions, scan_segments

COUNTING: dict[str, Any] = {"bounds": {"y": (-50, 100)}, "resolution": {"y": 0.01}}


def users(n: int = 6_000, tests: int = 5, seed: int = 1) -> dict[str, Any]:
    """Of five tests t1 and t3 interfere in y; the effect of t2 on y differs by device."""
    rng = np.random.default_rng(seed)
    rows: dict[str, Any] = {f"t{i}": rng.choice(["off", "on"], n) for i in range(tests)}
    rows["device"] = rng.choice(["phone", "desktop", "tablet"], n)
    y = rng.normal(20, 5, n)
    y += 2.0 * ((rows["t1"] == "on") & (rows[f"t{tests - 2}"] == "on"))
    y += 2.0 * ((rows["t2"] == "on") & (rows["device"] == "phone"))
    return rows | {"y": np.round(y, 2), "d": (rng.random(n) < 0.3).astype(int)}


def test_the_planted_pair_is_found_and_told() -> None:
    found = scan_interactions(users(), "t*", ["y", "d"], **COUNTING)
    data = found.to_dict()
    alarms = [(row["a"], row["b"], row["metric"]) for row in data["pairs"] if row["verdict"] == "interference"]
    assert alarms == [("t1", "t3", "y")]
    assert len(data["pairs"]) == 20
    assert data["privacy"] == {"k": 10, "shows": {"y": "tables", "d": "tables"}, "chained": False}
    assert [(one["a"], one["b"], one["metric"]) for one in data["effects"]] == [("t1", "t3", "y")]
    text = str(found)
    assert "interference" in text
    assert "where t3 shows" in text
    row = next(row for row in data["pairs"] if (row["a"], row["b"], row["metric"]) == ("t1", "t3", "y"))
    tally = kb.count_columns(
        users(), arm=["t1", "t3"], metrics={"y": kb.Metric.declare("y", bounds=(-50, 100), resolution=0.01)}
    )
    truth = kb.stats.pooled_f(tally, metric="y")
    assert row["F"] == pytest.approx(truth.F, rel=1e-11)
    assert row["p"] == pytest.approx(truth.p, rel=1e-9)


def test_over_the_budget_numbers_have_three_digits() -> None:
    found = scan_interactions(users(600, 14), "t*", ["y"], **COUNTING).to_dict()
    assert found["privacy"]["shows"] == {"y": "statistics"}
    for row in found["pairs"]:
        for name in ("F", "p", "F_robust", "p_robust", "p_adjusted", "assignment_p"):
            assert row[name] is None or row[name] == float(f"{row[name]:.2e}")
        assert row["could_miss"] is None or row["could_miss"] == float(f"{row['could_miss']:.1e}")


def test_stored_pair_tables_give_the_same_answer() -> None:
    plan = Plan(
        (MetricPlan("y", (-50, 100), 0.01),),
        (ExperimentPlan("t1", interactions=("t3", "t2")), ExperimentPlan("t2"), ExperimentPlan("t3")),
    )
    stored = kb.release(kb.count(users(), plan))
    rows = {(row["a"], row["b"]): row for row in scan_interactions(stored).to_dict()["pairs"]}
    direct = scan_interactions(users(), ["t1", "t2", "t3"], ["y"], **COUNTING).to_dict()["pairs"]
    for row in direct:
        if (row["a"], row["b"]) in rows:
            other = rows[row["a"], row["b"]]
            assert other["F_robust"] == pytest.approx(row["F_robust"], rel=1e-11)
            assert other["p"] == pytest.approx(row["p"], rel=1e-9)
    assert set(rows) == {("t1", "t3"), ("t1", "t2")}


def test_segments_of_many_experiments_are_scanned_together() -> None:
    found = scan_segments(users(seed=2), ["t0", "t2"], ["y"], ["device"], **COUNTING)
    data = found.to_dict()
    assert [(row["experiment"], row["covariate"], row["verdict"]) for row in data["segments"]] == [
        ("t0", "device", "nothing found"),
        ("t2", "device", "differs"),
    ]
    assert data["segments"][1]["follow_ups"][0]["covariate"] == "device"
    assert "t2" in str(found)
    assert data["privacy"] == {"k": 10, "chained": False}


def test_frames_have_a_row_per_test() -> None:
    found = scan_interactions(users(1_000, 3), "t*", ["y"], **COUNTING)
    assert list(found.to_pandas().columns[:2]) == ["a", "b"] or {"a", "b", "df_numerator"} <= set(
        found.to_pandas().columns
    )
    assert found.to_polars().height == 3
    assert scan_segments(users(), ["t0"], ["y"], ["device"], **COUNTING).to_pandas().shape[0] == 1


def test_what_is_missing_or_too_much_is_said() -> None:
    with pytest.raises(PlanError, match="what to compare is not said"):
        scan_segments(users())
    plain = kb.release(kb.count(users(), arm="t1", metrics=["y"], **COUNTING))
    with pytest.raises(AnalysisError, match="hold no table of two experiments"):
        scan_interactions(plain)
    with pytest.raises(AnalysisError, match="no table by a covariate"):
        scan_segments(plain)
    with pytest.raises(PlanError, match="releases already say"):
        scan_interactions(plain, ["t1"])


def test_a_mistyped_or_wrong_argument_is_one_sentence_with_a_remedy() -> None:
    with pytest.raises(ArgumentError, match=r"no argument 'tolerence'. Did you mean 'tolerance'"):
        scan_interactions(users(), "t*", ["y"], tolerence={"y": 1.0})
    with pytest.raises(ArgumentError, match=r"no argument 'covariate'. Did you mean 'covariates'"):
        scan_segments(users(), ["t0"], ["y"], covariate=["device"])
    with pytest.raises(ArgumentError, match=r"tolerance of scan_interactions\(\) must be a dict"):
        scan_interactions(users(), "t*", ["y"], tolerance=0.5)
    with pytest.raises(ArgumentError, match=r"progress of scan_interactions\(\) must be a function"):
        scan_interactions(users(), "t*", ["y"], progress=1)
    with pytest.raises(PrivacyError, match="k must be a whole number"):
        scan_segments(users(), ["t0"], ["y"], ["device"], k="ten")
    with pytest.raises(AnalysisError, match="alpha must lie between 0 and 1"):
        scan_interactions(users(), "t*", ["y"], alpha=5)


def test_single_names_need_no_list() -> None:
    listed = scan_segments(users(), ["t2"], ["y"], ["device"], **COUNTING).to_dict()
    assert scan_segments(users(), "t2", "y", "device", **COUNTING).to_dict() == listed
    stored = kb.release(kb.count(users(), arm="t2", metrics=["y"], segments=["device"], **COUNTING))
    assert scan_segments(stored, metrics="y").to_dict()["segments"] == listed["segments"]


def test_releases_take_no_choices_of_counting() -> None:
    stored = kb.release(kb.count(users(), arm="t2", metrics=["y"], segments=["device"], **COUNTING))
    with pytest.raises(PlanError, match="releases already say what was counted"):
        scan_segments(stored, experiments=["checkout"], covariates=["device"])
    with pytest.raises(PlanError, match="releases already say what was counted"):
        scan_segments(stored, where="d > 0")


def test_the_reference_names_every_field_of_both_scans() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference.md").read_text(encoding="utf-8")
    documented = text.split("### A scan\n")[1].split("### ")[0]
    pairs = scan_interactions(users(1_000, 3), "t*", ["y"], **COUNTING).to_dict()
    segments = scan_segments(users(), ["t2"], ["y"], ["device"], **COUNTING).to_dict()
    rows = {*pairs["pairs"][0], *segments["segments"][0]}
    assert [name for name in {*pairs, *segments, *rows} if f"`{name}`" not in documented] == []
