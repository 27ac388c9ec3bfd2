"""What a readout offers besides printing itself: its decision, one of its metrics, frames, files and figures."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from python_calamine import CalamineWorkbook
from tests.shop import shop_rows

import kanab as kb
from kanab.analysis.readout import EFFECT_COLUMNS
from kanab.errors import AnalysisError, LevelError
from kanab.stats.cautions import Caution

SPEND = kb.Mean("spend", bounds=(0, 500))


@pytest.fixture(scope="module")
def found() -> kb.Readout:
    metrics = [kb.Mean("bought", role="primary"), SPEND]
    rows = shop_rows(4_000, effect=0.1, arms=["A", "=1+1"])
    return kb.readout(rows, arm="variant", metrics=metrics, adjust=["tier"], segments=["device"])


def test_the_decision_is_a_value_that_prints_itself(found: kb.Readout) -> None:
    decision = found.decision
    assert decision is not None
    assert (decision.answer, decision.arm, decision.arms) == ("ship", "=1+1", {"=1+1": "ship"})
    assert str(decision).startswith("Ship arm =1+1. Arm =1+1 raises bought by")
    assert vars(decision) == found.to_dict()["decision"]
    assert kb.readout(shop_rows(), arm="variant", metrics=["bought", SPEND]).decision is None


def test_a_readout_of_one_metric_has_its_rows_and_the_corrections_of_all(found: kb.Readout) -> None:
    spend = found["spend"]
    assert [row.effect.metric for row in spend.effects] == ["spend", "spend"]
    data, whole = spend.to_dict(), found.to_dict()
    assert data["effects"] == [row for row in whole["effects"] if row["metric"] == "spend"]
    assert {row["metric"] for row in data["segments"]} == {"spend"}
    assert data["decision"] == whole["decision"]
    assert "bought by device" not in str(spend)
    assert "── spend" in str(spend)
    assert "── bought" not in str(spend) + spend.to_markdown()
    assert len(spend.to_pandas()) == 2
    assert found["spend"]["spend"].to_dict() == data
    assert ["spend" in each for each in (found, spend, found["bought"])] == [True, True, False]
    assert spend.plot().to_svg() == found.plot("spend").to_svg()


def test_cautions_about_another_metric_are_left_out_and_those_about_none_stay(found: kb.Readout) -> None:
    about = [Caution("clamped", "So many.", metric) for metric in ("bought", "spend", None)]
    kept = replace(found, cautions=tuple(about))["spend"].to_dict()["cautions"]
    assert [caution["metric"] for caution in kept] == ["spend", None]


def test_what_is_not_there_is_answered_with_what_may_be_meant(found: kb.Readout) -> None:
    for ask in (lambda: found["spent"], lambda: found.plot("spent"), lambda: found["bought"]["spend"]):
        with pytest.raises(AnalysisError, match=r"Did you mean 'spend'\?|Metrics: bought\."):
            ask()
    with pytest.raises(AnalysisError, match=r"Did you mean 'segments'\? Use one of: effects"):
        found.to_pandas("segment")
    with pytest.raises(AnalysisError, match=r"primary names an unknown metric\. Did you mean 'spend'\? Metrics"):
        kb.readout(shop_rows(), arm="variant", metrics=[SPEND], reading=kb.Reading(primary="spent"))
    with pytest.raises(LevelError, match=r"unknown arm of 'variant'\. Did you mean 'Women'\? It has: Men, Women"):
        kb.readout(shop_rows(arms=["Men", "Women"]), arm="variant", metrics=[SPEND], control="women")


def test_frames_of_effects_have_the_main_columns_unless_details_are_asked_for(found: kb.Readout) -> None:
    frame, all_of_it = found.to_pandas(), found.to_polars("effects", details=True)
    ends = [f"{name}_{end}" for name in ("interval", "relative_interval") for end in ("low", "high")]
    assert set(frame) == {*EFFECT_COLUMNS, *ends} - {"interval", "relative_interval"}
    assert {"se_population", "interval_welch_low", "sample_size_gain"} <= set(all_of_it.columns)
    assert (
        frame["estimate"].tolist() == all_of_it["estimate"].to_list() == [row.effect.estimate for row in found.effects]
    )


def test_rows_of_any_table_are_values(found: kb.Readout) -> None:
    assert found.rows("effects") == found.effects
    assert [row.metric for row in found.rows("segments")] == ["bought", "bought", "spend", "spend"]
    assert [row.metric for row in found["spend"].rows("segments")] == ["spend", "spend"]
    assert found.rows("quantiles") == ()
    with pytest.raises(AnalysisError, match=r"no rows of that name\. Did you mean 'segments'\?"):
        found.rows("segment")


def test_tables_become_files_in_which_no_name_is_a_formula(found: kb.Readout, tmp_path: Path) -> None:
    found.to_csv(tmp_path / "effects.csv")
    found.to_csv(tmp_path / "arms.csv", "arms")
    found.to_excel(tmp_path / "all.xlsx")
    with (tmp_path / "effects.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["estimate"]) for row in rows] == [row.effect.estimate for row in found.effects]
    assert {row["arm"] for row in rows} == {"'=1+1"}
    assert (tmp_path / "arms.csv").read_text().splitlines()[1].startswith("'=1+1,False,")
    book = CalamineWorkbook.from_path(tmp_path / "all.xlsx")
    assert {"effects", "segments", "arms", "decision", "notes"} <= set(book.sheet_names)
    header, first, *_ = book.get_sheet_by_name("effects").to_python()
    sheet: dict[Any, Any] = dict(zip(header, first, strict=True))
    assert (sheet["arm"], sheet["carries_verdict"], sheet["p_adjusted"]) == ("=1+1", False, "")
    assert sheet["estimate"] == pytest.approx(found.effects[0].effect.estimate)


def test_the_page_is_returned_and_written_and_the_fragment_is_for_notebooks(found: kb.Readout, tmp_path: Path) -> None:
    page = found.to_html(tmp_path / "readout.html")
    assert page == (tmp_path / "readout.html").read_text() == found.to_html()
    assert page.startswith("<!doctype html>")
    assert found._repr_html_().startswith('<div class="kanab-readout">')


def test_details_are_the_text_and_every_field(found: kb.Readout) -> None:
    details = found["spend"].details()
    assert details.startswith(str(found["spend"]))
    assert {"interval_welch_low", "se_population", "relative_interval_delta_low"} <= set(details.split())
