"""Odds ratios over strata in sentences, tables and pictures."""

from __future__ import annotations

from typing import Any

import pytest

from kanab.report.charts import strata_chart
from kanab.report.forest import ratio_ticks
from kanab.report.palette import INK, QUIET
from kanab.report.strata_section import strata_parts, strata_sentences
from kanab.tabular import Table

Plain = dict[str, Any]


def level(name: str, **changes: Any) -> Plain:
    return {
        "level": name, "people_control": 100, "people_arm": 120, "events_control": 20, "events_arm": 30,
        "odds_ratio": 1.333, "odds_ratio_interval": [0.7, 2.5], "weight": 0.5,
    } | changes  # fmt: skip


def strata(**changes: Any) -> Plain:
    return {
        "metric": "bought", "covariate": "tier", "arm": "B", "control": "A", "odds_ratio": 1.2543,
        "odds_ratio_interval": [1.021, 1.541], "se_log": 0.105, "chi2": 4.65, "p": 0.031, "risk_ratio": 1.19,
        "risk_ratio_interval": [1.01, 1.4], "risk_difference": 0.0312, "risk_difference_interval": [0.0029, 0.0595],
        "equal_odds": {"chi2": 0.5, "df": 1, "p": 0.48, "plain_chi2": 0.51, "plain_p": 0.475},
        "levels": [level("1"), level("2")], "note": "",
    } | changes  # fmt: skip


def data(*rows: Plain) -> Plain:
    return {"confidence": 0.95, "strata": list(rows)}


def test_the_sentence_has_the_three_measures_and_their_intervals():
    first, second = strata_sentences(data(), strata())
    assert first == (
        "bought over tier, B against A: common odds ratio 1.25 (95 % interval 1.02 to 1.54; Mantel–Haenszel χ² = 4.65, "
        "p = 0.0310); risk ratio 1.19 (95 % interval 1.01 to 1.40), risk difference +3.1 points (0.3 to 5.9)."
    )
    assert second == "No sign that the odds ratio differs by tier (Breslow–Day χ²(1) = 0.500, p = 0.480)."


def test_levels_that_differ_are_to_be_read_themselves():
    equal = strata()["equal_odds"] | {"p": 0.002, "chi2": 9.5}
    sentences = strata_sentences(data(), strata(equal_odds=equal, note="few events"))
    assert sentences[1].startswith("The odds ratio differs by tier (Breslow–Day χ²(1) = 9.50, p = 0.00200): read the")
    assert sentences[2] == "Few events."


def test_what_cannot_be_had_is_said():
    bare = strata(odds_ratio=None, odds_ratio_interval=None, risk_ratio=None, risk_ratio_interval=None, equal_odds=None)
    (sentence,) = strata_sentences(data(), bare)
    assert "no common odds ratio, because events are on one side only (Mantel–Haenszel χ²" in sentence
    assert "risk ratio" not in sentence
    (sentence,) = strata_sentences(data(), strata(p=None, note="no stratum has both arms"))
    assert sentence == "bought over tier, B against A: no stratum has both arms."


def test_the_table_has_a_row_per_level_and_one_for_all():
    thin = level("3", people_arm=0, events_arm=0, odds_ratio=None, odds_ratio_interval=None, weight=0.0)
    head, *_, table = strata_parts(data(strata(levels=[level("1"), thin])))
    assert isinstance(table, Table)
    assert head == "Not corrected for several comparisons: the verdicts are those of the effects above."
    assert table.rows[0] == ("1", "100", "120", "20.00 %", "25.00 %", "1.33", "0.70 to 2.50", "50.0 %")
    assert table.rows[1] == ("3", "100", "0", "20.00 %", "–", "–", "–", "0.0 %")
    assert table.rows[2] == ("all levels", "", "", "", "", "1.25", "1.02 to 1.54", "")
    assert strata_parts({"confidence": 0.95}) == ()


# ── the picture ────────────────────────────────────────────────────────────────────────────────


def drawn(spec: Plain) -> list[Plain]:
    values: list[Plain] = spec["data"]["values"]
    return values


def test_the_picture_has_a_line_per_level_and_the_common_one_on_a_scale_of_ratios():
    lonely = level("3", odds_ratio=None, odds_ratio_interval=[2.0, None])
    none = level("4", odds_ratio=0.0, odds_ratio_interval=[0.0, 0.4])
    empty = level("5", odds_ratio=None, odds_ratio_interval=None)
    spec = strata_chart(data(strata(levels=[level("1"), lonely, none, empty])))
    assert spec is not None
    rows = drawn(spec)
    assert [row["label"] for row in rows] == ["tier = 1", "tier = 3", "tier = 4", "all levels, Mantel–Haenszel"]
    assert [row["colour"] for row in rows] == [QUIET, QUIET, QUIET, INK]
    assert (rows[1]["estimate"], rows[1]["high"], rows[2]["low"]) == (None, None, None)
    scales = [layer["encoding"]["x"]["scale"] for layer in spec["layer"] if "scale" in layer["encoding"]["x"]]
    assert {scale["type"] for scale in scales} == {"log"}
    assert "odds ratio of bought, B against A, by tier" in str(spec)
    assert spec["usermeta"]["title"] == "Odds ratios by level: bought"


@pytest.mark.slow
def test_without_strata_there_is_no_picture():
    assert strata_chart({"confidence": 0.95}) is None
    assert strata_chart(data(strata()), "spend") is None
    bare = strata_chart(data(strata(odds_ratio=None, odds_ratio_interval=None)))
    assert bare is not None
    assert len(drawn(bare)) == 2
    several = strata_chart(data(strata(), strata(covariate="device")))
    assert several is not None
    assert len(several["vconcat"]) == 2


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [
        ((0.75, 1.37), [0.8, 0.9, 1, 1.1, 1.2, 1.3]), ((0.97, 1.02), [0.97, 0.98, 0.99, 1, 1.01, 1.02]),
        ((0.5, 4), [0.5, 0.7, 1, 1.5, 2, 3]), ((0.001, 1000), [0.001, 0.01, 0.1, 1, 10, 100, 1000]),
    ],
)  # fmt: skip
def test_ticks_are_round_ratios(ends: tuple[float, float], ticks: list[float]):
    assert ratio_ticks(*ends) == pytest.approx(ticks)
