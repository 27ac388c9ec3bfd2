"""Survival in a readout: asked for in words, counted alike everywhere, in plain data, text and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from statsmodels.duration.survfunc import SurvfuncRight, survdiff

import kanab as kb
from kanab.cli.main import cli
from kanab.collector.counting.layout import layouts
from kanab.errors import PlanError
from kanab.inspection.officer.fields import purposes
from kanab.plan.file import plan_from_dict, plan_to_dict
from kanab.privacy.batches import _added
from kanab.privacy.release_json import release_to_dict
from kanab.report.charts import survival_chart
from kanab.report.pictures import report_pictures
from kanab.stats.multiplicity import correct


def people(n: int = 6_000, seed: int = 2, rates: tuple[float, ...] = (0.08, 0.06, 0.08)) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    arm = rng.integers(0, len(rates), n)
    leaves, seen = rng.geometric(np.array(rates)[arm]), rng.integers(5, 31, n)
    return {
        "variant": np.array(list("ABC"))[arm],
        "days": np.minimum(leaves, seen),
        "cancelled": (leaves <= seen).astype(int),
        "spend": rng.integers(0, 50, n),
    }


ROWS = people()
ASKED: dict[str, Any] = {"arm": "variant", "metrics": ["spend"], "survival": {"cancelled": "days"}}


@pytest.fixture(scope="module")
def answer() -> kb.Readout:
    return kb.readout(ROWS, **ASKED, lower_is_better=["cancelled"])


def test_every_arm_is_compared_with_the_control_as_on_the_rows(answer: kb.Readout) -> None:
    rows = answer.to_dict()["survival"]
    assert [(row["arm"], row["verdict"], row["better"]) for row in rows] == [
        ("B", "down", "lower"), ("C", "unclear", "lower"),
    ]  # fmt: skip
    merged = ROWS["days"] + (ROWS["days"] == 27) + (ROWS["days"] == 29)  # what the gate does to the last days
    assert answer.receipt.maps["variant/days"].merged == {"27 … 28": (27, 28), "29 … 30": (29, 30)}
    for row in rows:
        both = np.isin(ROWS["variant"], ["A", row["arm"]])
        chi2 = survdiff(merged[both], ROWS["cancelled"][both], ROWS["variant"][both])[0]
        assert row["z"] ** 2 == pytest.approx(chi2, rel=0.01)
        for side, arm in (("control", "A"), ("arm", row["arm"])):
            own = ROWS["variant"] == arm
            assert row[f"median_{side}"] == SurvfuncRight(ROWS["days"][own], ROWS["cancelled"][own]).quantile(0.5)


def test_curves_are_those_of_the_rows_up_to_merged_days(answer: kb.Readout) -> None:
    curves = answer.to_dict()["survival_curves"][0]["curves"]
    for curve in curves:
        own = ROWS["variant"] == curve["arm"]
        oracle = SurvfuncRight(ROWS["days"][own], ROWS["cancelled"][own])
        for day in curve["days"][:26]:
            place = oracle.surv_times.tolist().index(day["day"])
            assert day["share"] == pytest.approx(oracle.surv_prob[place], rel=1e-12)
            assert day["at_risk"] == oracle.n_risk[place]


def test_p_values_of_survival_are_a_family_of_their_own(answer: kb.Readout) -> None:
    rows = answer.to_dict()["survival"]
    assert [row["p_adjusted"] for row in rows] == correct([row["p"] for row in rows], "holm")
    alone = kb.readout(ROWS, arm="variant", metrics=["spend", "cancelled"], lower_is_better=["cancelled"])
    assert alone.to_dict()["effects"] == answer.to_dict()["effects"]


def test_the_text_says_sooner_or_later_and_frames_have_the_rows(answer: kb.Readout) -> None:
    text = " ".join(str(answer).split())
    assert "How long is it until the event?" in text
    assert "cancelled comes clearly later in B than in A" in text
    assert "cancelled comes not clearly sooner or later in C than in A" in text
    assert "It is corrected over all 2 comparisons (Holm)." in text
    assert "Half have it after 12 days in B, after 8 days in A." in text
    assert answer.to_pandas("survival")["median_interval_arm_low"].tolist() == [11, 8]
    json.dumps(answer.to_dict(), allow_nan=False)


@pytest.mark.slow
def test_the_picture_has_steps_bands_and_people_at_risk(answer: kb.Readout) -> None:
    data = answer.to_dict()
    svg = report_pictures(data)["survival: cancelled"]
    assert "Without cancelled after 30 days: A" in svg
    assert f"{data['survival_curves'][0]['curves'][0]['days'][6]['at_risk']:,}" in svg  # after day 6
    assert survival_chart(data, "spend") is None
    spec = survival_chart(data, "cancelled")
    assert spec is not None
    assert spec["description"] in svg


@pytest.mark.slow
def test_memory_and_engine_count_alike(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    pd.DataFrame(ROWS).to_parquet(path)
    for more in ({}, {"bins": {"days": [4, 8, 15, 22]}}):
        memory = kb.count(ROWS, **ASKED, **more)
        assert kb.count(str(path), **ASKED, **more, where="spend >= 0").tallies == memory.tallies
        assert memory.tallies["variant/days"].metric_names == ("cancelled",)  # spend by day is nobody's business


def test_bins_step_at_their_upper_edges_and_the_open_one_is_not_drawn() -> None:
    curve = kb.readout(ROWS, **ASKED, bins={"days": [4, 8, 15, 22]}).survival_curves[0].curves[0]
    assert curve.days.tolist() == [4, 8, 15, 22]
    assert curve.later[0] == ((ROWS["variant"] == "A") & (ROWS["days"] >= 22)).sum()


def test_rare_last_days_are_not_told_and_curves_end_before_them() -> None:
    few = {name: values[:700] for name, values in ROWS.items()}
    answer = kb.readout(few, **ASKED)
    last = answer.survival_curves[0].curves[0]
    assert last.days[-1] == 21
    assert last.later[0] > 0
    assert "≥ 21.5" in str(answer)


def test_release_and_plan_keep_survival(tmp_path: Path) -> None:
    counted = kb.count(ROWS, **ASKED, bounds={"spend": (0, 50)})
    assert plan_from_dict(plan_to_dict(counted.plan)).experiment().survival == {"cancelled": "days"}
    released = kb.release(counted)
    kb.write_release(released, tmp_path / "release.json")
    again = kb.analyze(kb.read_release(tmp_path / "release.json"))
    assert again.to_dict()["survival"] == kb.analyze(released).to_dict()["survival"]
    assert purposes("variant/days", counted.plan) == [
        "survival: how long is it until cancelled? People by days, and who had the event"
    ]


def test_a_collector_refuses_it() -> None:
    plan = kb.count(ROWS, **ASKED).plan
    with pytest.raises(PlanError, match=r"variant\.survival needs days that messages do not carry; count rows instead"):
        layouts(plan)


def test_the_command_line_asks_for_it(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    pd.DataFrame(ROWS).to_csv(path, index=False)
    args = ["analyze", str(path), "--arm", "variant", "--survival", "cancelled=days", "--json"]
    result = CliRunner().invoke(cli, args, catch_exceptions=False)
    assert json.loads(result.stdout)["survival"][0]["metric"] == "cancelled"


def test_several_looks_and_a_table_that_k_forbids_leave_a_note() -> None:
    looked = kb.readout(ROWS, **ASKED, looks=kb.Looks("always"))
    assert "Survival is compared once, at the end: without looks." in looked.notes
    assert looked.survival == ()
    tiny = {name: values[:60] for name, values in ROWS.items()}
    answer = kb.readout(tiny, **{**ASKED, "arms": ["A", "B"]})
    assert any(
        note.startswith("There is no survival until cancelled: people by days did not pass") for note in answer.notes
    )


def test_pooled_arms_have_one_curve() -> None:
    answer = kb.readout(ROWS, **ASKED, pool={"new": ["B", "C"]})
    assert [curve.arm for curve in answer.survival_curves[0].curves] == ["A", "new"]


@pytest.mark.slow
def test_intervals_and_the_test_hold_where_days_were_merged() -> None:
    """100 experiments of 500 people, 8 % of whom leave every day: about 18 days with a name are left."""
    held = {"share": 0, "mean": 0, "p": 0}
    for seed in range(100):
        rows = people(500, seed, (0.08, 0.08))
        row = kb.readout(rows, arm="variant", metrics=[], survival={"cancelled": "days"}).survival[0].effect
        held["share"] += row.interval[0] <= 0 <= row.interval[1]
        held["mean"] += row.mean_interval[0] <= 0 <= row.mean_interval[1]
        held["p"] += row.p is not None and row.p < 0.05
    assert held["share"] >= 90
    assert held["mean"] >= 90
    assert held["p"] <= 11


def test_batches_add_up_and_days_that_they_merge_differently_end_with_the_last() -> None:
    asked = {"arm": "variant", "metrics": [], "survival": {"cancelled": "days"}, "shares": {"A": 1, "B": 1, "C": 1}}
    parts = [{name: values[part] for name, values in ROWS.items()} for part in (slice(2_000), slice(2_000, None))]
    batches = [kb.release(kb.count(part, **asked)) for part in parts]
    added, _ = _added("variant/days", batches)
    ends = [batch.tables["variant/days"].factors[1].scores or () for batch in batches]
    assert ends[0] != ends[1]
    assert added.factors[1].scores == tuple(sorted({*ends[0]} & {*ends[1]}))  # a mean would be no day at all
    assert added.total == len(ROWS["days"])


def test_a_day_that_few_people_have_is_not_told_and_days_are_no_covariate() -> None:
    rng = np.random.default_rng(4)
    days = np.minimum(rng.geometric(0.1, 3000), 40)
    days[7] = 9173
    rows = {"variant": rng.choice(["A", "B"], 3000), "days": days, "left": (rng.random(3000) < 0.7).astype(int)}
    released = kb.release(kb.count(rows, arm="variant", metrics=["left"], survival={"left": "days"}))
    assert "9173" not in json.dumps(release_to_dict(released))
    data = kb.analyze(released).to_dict()
    assert "9173" not in json.dumps(data)
    assert data["survival"]
    assert not [row for row in data["balance"]["rows"] if row["name"] == "days"]


def test_an_event_that_is_withheld_by_day_leaves_a_note_and_its_effect() -> None:
    answer = kb.readout(ROWS, **ASKED, least_events={"cancelled": 400})
    assert not answer.survival
    assert any(note.startswith("There is no survival until cancelled") for note in answer.notes)
    assert "cancelled" in {row.effect.metric for row in answer.effects}
