"""Odds ratios over strata in a readout: where they come from, and what forbids them."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import kanab as kb
from kanab.cli.main import cli
from kanab.datasets import shop_rows
from kanab.errors import AnalysisError
from kanab.stats import common_odds

ROWS = shop_rows(6000)
RELEASE = kb.release(
    kb.count(ROWS, arm="variant", metrics=["bought", "spend"], bounds={"spend": (0, 500)}, segments=["device", "tier"])
)


def test_a_readout_has_the_odds_ratios_of_the_tables_of_the_release():
    answer = kb.analyze(RELEASE, strata=["device", "tier"])
    assert [(row.metric, row.covariates) for row in answer.strata] == [("bought", ("device",)), ("bought", ("tier",))]
    (own,) = common_odds(RELEASE.tables["variant/device"], "device", "bought")
    assert answer.strata[0] == own
    assert kb.analyze(RELEASE, strata="device").strata == (own,)
    assert kb.analyze(RELEASE).strata == ()
    assert kb.analyze(RELEASE).to_dict()["strata"] == []


def test_the_plain_data_hold_levels_and_tests_and_are_json():
    (row,) = json.loads(json.dumps(kb.analyze(RELEASE, strata="tier").to_dict(), allow_nan=False))["strata"]
    assert (row["metric"], row["covariate"], row["arm"], row["control"]) == ("bought", "tier", "B", "A")
    assert row["odds_ratio_interval"][0] < row["odds_ratio"] < row["odds_ratio_interval"][1]
    assert set(row["equal_odds"]) == {"chi2", "df", "p", "plain_chi2", "plain_p"}
    assert [level["level"] for level in row["levels"]] == ["1", "2", "3", "4", "5"]
    assert sum(level["people_arm"] for level in row["levels"]) == kb.analyze(RELEASE).arms["B"]
    assert sum(level["weight"] for level in row["levels"]) == pytest.approx(1)


@pytest.mark.slow
def test_the_section_stands_in_text_markdown_notebook_and_report():
    answer = kb.analyze(RELEASE, strata="device")
    for shown in (str(answer), answer.to_markdown(), answer.to_html(), answer.to_report()):
        assert "Odds ratios over strata" in shown
        assert "common odds ratio" in shown
    assert answer.to_report().count("all levels, Mantel–Haenszel") >= 1
    assert "Odds ratios over strata" not in str(kb.analyze(RELEASE))


def test_readout_takes_the_same_word():
    answer = kb.readout(ROWS, arm="variant", metrics=["bought"], adjust=["device"], strata="device", control="B")
    assert (answer.strata[0].arm, answer.strata[0].control) == ("A", "B")


def test_the_flag_does_the_same(tmp_path):
    path = tmp_path / "checkout.release.json"
    kb.write_release(RELEASE, path)
    result = CliRunner().invoke(cli, ["analyze", str(path), "--strata", "device,tier", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.output)["strata"]
    assert [row["covariate"] for row in rows] == ["device", "tier"]
    assert rows == kb.analyze(RELEASE, strata=["device", "tier"]).to_dict()["strata"]


def test_what_was_not_counted_is_refused_with_what_was():
    words = r"not counted: 'country'\. Counted are: device, tier\. Name it in adjust or segments"
    with pytest.raises(AnalysisError, match=words):
        kb.analyze(RELEASE, strata="country")


def test_a_number_has_no_strata():
    with pytest.raises(AnalysisError, match=r"'spend' is adjusted for as a number, .*--bin spend=5.*: device"):
        kb.readout(
            ROWS, arm="variant", metrics=["bought"], adjust=["spend"], segments=["device"], numbers=["spend"],
            strata="spend",
        )  # fmt: skip


def test_amounts_have_no_odds():
    spend = kb.release(
        kb.count(ROWS, arm="variant", metrics=["spend"], bounds={"spend": (0, 500)}, segments=["device"])
    )
    with pytest.raises(AnalysisError, match="odds ratios need a 0/1 metric"):
        kb.analyze(spend, strata="device")


def test_several_looks_are_refused():
    with pytest.raises(AnalysisError, match=r"read at one look\. Leave out the strata \(--strata\)\."):
        kb.analyze(RELEASE, strata="device", looks=kb.Looks("always"))


def test_a_table_that_k_forbids_is_a_note():
    rows = {"variant": np.tile(["A", "B"], 40), "shop": np.repeat(np.arange(40), 2), "bought": [0, 1, 1, 0] * 20}
    rows["device"] = np.repeat(["pc", "tv"], 40)
    few = kb.release(kb.count(rows, arm="variant", metrics=["bought"], segments=["shop", "device"]))
    answer = kb.analyze(few, strata=["shop", "device"])
    assert [row.covariates for row in answer.strata] == [("device",)]
    assert "Odds ratios of bought over shop are not given: its table was left out or withheld." in answer.notes
