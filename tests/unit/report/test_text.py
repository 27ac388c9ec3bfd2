"""Sentences that no approved readout holds, and how text and Markdown are set."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from kanab.analysis.sections import brief_text, readout_markdown, readout_text
from kanab.report.text import folded
from kanab.tabular import Table

Readout = dict[str, Any]
Maker = Callable[..., Readout]
NONE = dict.fromkeys(("mean_control", "mean_arm", "estimate", "se", "se_population"))
UNTESTABLE = dict.fromkeys(("interval", "df", "t", "p", "p_adjusted", "relative", "relative_interval"))


def flat(text: str) -> str:
    """The text without line ends, so that wrapped sentences can be found."""
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "B raises spend by 0.50 (+5.0 %), 95 % interval 0.30 to 0.70; p = 1.00e-06. "),
        (
            {"estimate": -0.5, "interval": [-0.7, -0.3], "relative": -0.05, "relative_interval": [-0.07, -0.03]},
            "B lowers spend by 0.50 (−5.0 %), 95 % interval −0.70 to −0.30;",
        ),
        (
            {"estimate": 0.1, "interval": [-0.1, 0.3], "p": 0.32, "p_adjusted": 0.32, "relative": 0.01},
            "No clear effect of B on spend: +0.10 (+1.0 %), 95 % interval −0.10 to 0.30; p = 0.320.",
        ),
        ({**UNTESTABLE, "se_population": 0.0, "estimate": 0.0}, "B cannot be tested on spend: nothing varies; the"),
        ({**UNTESTABLE, **NONE}, "B cannot be tested on spend: nothing varies. "),
        ({"interval": None}, "B raises spend by 0.5000 (+5.0 %); p = 1.00e-06."),
        ({"relative": 2000.0, "relative_interval": None}, "B raises spend by 0.50, 95 % interval"),
        ({"relative_interval": None}, "No relative effect is given where the control's mean cannot be told from 0."),
        ({"relative": 0.12, "relative_interval": [-0.35, None]}, "B raises spend by 0.50 (+12 %, at least −35 %), 95"),
        ({"p": 0.0, "p_adjusted": 0.0}, "; p < 1e-100."),
        ({"arm": "1"}, "Arm 1 raises spend by 0.50"),
        ({"arm": "on"}, "Arm on raises spend by 0.50"),
    ],
)
def test_a_verdict_in_words(small: Maker, effect: Maker, changes: Readout, said: str) -> None:
    assert said in flat(readout_text(small(effect(**changes))))


def test_where_adjustment_changes_the_verdict_both_effects_are_said(small: Maker, effect: Maker) -> None:
    plain = effect(estimate=0.1, interval=[-0.1, 0.3], p=0.32, p_adjusted=0.32, carries_verdict=False)
    text = flat(readout_text(small(plain, effect(method="adjusted", covariates=["tier"]))))
    assert "B raises spend by 0.50" in text
    assert "(adjusted for tier). Without adjustment: +0.10; p = 0.320." in text
    assert "raises spend by 0.10" not in text


def test_a_row_of_nothing_but_none_is_shown(small: Maker, effect: Maker) -> None:
    assert re.search(r"^B(\s+–){9}$", readout_text(small(effect(**UNTESTABLE, **NONE))), re.MULTILINE)


def test_a_control_called_control_is_not_named_twice(small: Maker) -> None:
    text = readout_text(small(control="Control", arms={"Control": 500, "B": 500}))
    assert text.startswith("checkout: 1,000 people in 2 arms\n")
    assert "Control (control)" not in text


def test_without_correction_there_is_no_corrected_column(small: Maker) -> None:
    assert "p (" not in readout_text(small(correction="none"))
    assert "p (Šidák)" in readout_text(small(correction="sidak"))


def test_an_alarm_names_both_of_two_arms_and_the_one_at_fault_of_many(small: Maker, crowded: Readout) -> None:
    data = small(arms={"A": 560, "B": 440})
    data["sample_ratio"] |= {"chi2": 14.4, "p": 0.000148, "residuals": {"A": 3.8, "B": -3.8}}
    text = flat(readout_text(data))
    assert "Sample ratio: ALARM. People did not arrive in the planned shares (χ²(1) = 14.4, p = 0.000148; alarm" in text
    assert "A holds 560 people, 12 % more than expected; B holds 440 people, 12 % fewer than expected." in text
    assert "But people did not arrive as planned." in text
    crowded["arms"]["variant 3"] = 700
    crowded["people"] = 4200
    crowded["sample_ratio"] |= {"p": 1e-8}
    crowded["sample_ratio"]["residuals"]["variant 3"] = 8.1
    text = flat(readout_text(crowded))
    assert "variant 3 holds 700 people, 33 % more than expected. Find the cause" in text
    assert "If the split was meant to be unequal, declare its shares." in text


def test_a_segment_that_cannot_be_tested_says_why(hillstrom: Readout) -> None:
    nothing = dict.fromkeys(("F", "df", "p", "p_adjusted"))
    row = hillstrom["segments"][1] | nothing | {"verdict": "not testable", "note": "too few combinations hold people"}
    text = readout_text(hillstrom | {"segments": [row], "follow_ups": [], "segment_effects": []})
    assert "visit by womens is not testable: too few combinations hold people." in text


def test_levels_without_an_interval_say_why(hillstrom: Readout) -> None:
    rows = hillstrom["segment_effects"][:4]
    gone = {"p": None, "p_adjusted": None, "interval": None, "interval_adjusted": None}
    rows[0] |= gone | {"note": "an arm has fewer than 20 people here: too few for an interval"}
    hillstrom["segment_effects"] = rows
    text = flat(readout_text(hillstrom))
    assert "Where womens is 0: an arm has fewer than 20 people here: too few for an interval." in text
    assert "The 3 intervals hold together" in text
    for row in rows:
        row["note"] = "assumes equal variance across levels"
    assert "Assumes equal variance across levels." in flat(readout_text(hillstrom))


def test_follow_ups_are_counted_where_they_are_unclear_or_many(hillstrom: Readout) -> None:
    clear = hillstrom["follow_ups"][1]
    many = [clear | {"level": str(level), "p_adjusted": 0.04 / (level + 1)} for level in range(20)]
    text = readout_text(hillstrom | {"follow_ups": many})
    assert text.count("Where womens is") == 6
    assert "Where womens is 19," in text
    assert "These are the 6 clearest of 20 such differences." in text
    for row in hillstrom["follow_ups"]:
        row |= {"p": 0.4, "p_adjusted": 0.4}
    assert "No single level of womens clearly differs from the rest." in readout_text(hillstrom)


def test_the_receipt_says_once_what_was_merged_and_left_out(small: Maker) -> None:
    data = small(notes=["zip is left out: too sparse.", "k = 3: pilot", "Only people where country = 'NL'."])
    other = {"other": ["MT", "PT"]}
    data["privacy"] |= {
        "effective_k": 120, "deviations": ["k = 3: pilot"],
        "left_out": {"checkout/zip": "zip is left out: too sparse"},
        "merged": {
            "checkout/tier": {"other": [f"c{i}" for i in range(40)]},
            "checkout/country/device: country": other, "checkout/country/tier: country": other,
        },
    }  # fmt: skip
    text = flat(readout_text(data))
    assert "smallest holds 500 people; effective k of class sums over all tables at least 120; audit passed." in text
    assert "Merged levels of tier: c0, c1," in text
    assert "(40 in all) → other." in text
    for sentence in ("zip is left out: too sparse.", "k = 3: pilot", "of country for joint adjustment: MT, PT → other"):
        assert text.count(sentence) == 1
    assert "Only people where country = 'NL'." in text


def test_nothing_is_called_anonymous_without_its_k(hillstrom: Readout) -> None:
    for text in (readout_text(hillstrom), readout_markdown(hillstrom)):
        assert "k-anonymous at k = 10" in text
        assert not re.search(r"(?<!k-)anonymous|compliant|no personal data", text, re.IGNORECASE)


def test_no_effects_at_all_is_a_sentence_that_says_where_the_reason_stands(small: Maker) -> None:
    none = small() | {"effects": []}
    assert "No effect was computed: no metric is compared." in readout_text(none)
    noted = none | {"notes": ["An effect on spend is not given: nobody has been counted."]}
    assert "No effect could be computed; the notes say why." in readout_text(noted)
    text = readout_text(none | {"privacy": none["privacy"] | {"left_out": {"arm: spend": "spend is withheld"}}})
    assert "No effect could be computed; the privacy section says why." in text
    assert "spend is withheld." in text[text.index("── Privacy") :]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_lines_keep_to_the_width_and_do_not_part_numbers_from_their_signs(hillstrom: Readout, width: int) -> None:
    lines = readout_text(hillstrom, width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line.endswith((" p =", " p <", " ±", "(p", ", p"))]


def test_many_arms_and_metrics_stay_in_order(crowded: Readout) -> None:
    text = readout_text(crowded, width=100)
    assert re.findall(r"^── (metric \d)", text, re.MULTILINE) == [f"metric {place}" for place in range(10)]
    assert len(re.findall(r"^variant \d raises metric \d by", text, re.MULTILINE)) == 70
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "raises metric 9 by 5,000 (+5.0 %), 95 % interval 3,000 to 7,000" in text
    assert "raises metric 0 by 5.00e-06 (+5.0 %), 95 % interval 3.00e-06 to 7.00e-06" in text


def test_a_folded_table_repeats_its_first_column_keeps_twins_together_and_leaves_no_leftover() -> None:
    header = ("arm", "effect", "interval", "relative", "interval", "p")
    table = Table(header, (("A", "1.00", "0.5 to 1.5", "+5 %", "2 to 8 %", "0.02"),))
    parts = [("arm", "effect", "interval"), ("arm", "relative", "interval", "p")]
    assert [part.header for part in folded(table, 30)] == parts
    assert folded(table, None) == folded(table, 60) == [table]
    wide = Table(("arm", *"abcdef"), (("A", *["12345"] * 6),))
    assert [len(part.header) for part in folded(wide, 38)] == [4, 4]


def test_names_cannot_steer_the_terminal(small: Maker, effect: Maker) -> None:
    text = readout_text(small(effect(metric="spend\x1b[2J\r\n\u202e")))
    assert "spend␛[2J␍␊\ufffd" in text
    assert "\x1b" not in text


def test_markdown_escapes_names_that_look_like_markup_in_whole_tables(small: Maker, effect: Maker) -> None:
    text = readout_markdown(small(effect(metric="<script>*x*</script> [a](b) `c` __d__ a_b", arm="#1|2")))
    assert "<script>" not in text
    assert r"\<script\>\*x\*\</script\> \[a\](b) \`c\` \_\_d\_\_ a_b" in text
    assert r"| \#1\|2 |" in text


def test_long_names_are_whole_and_take_the_place_of_the_standard_error(small: Maker, effect: Maker) -> None:
    header, _, line = brief_text(small(effect(metric="revenue per visitor of the second week"))).splitlines()[-3:]
    assert "SE" not in header
    assert line.startswith("revenue per visitor of the second week  B     +0.50  0.30 to 0.70    +5.0 %")
