from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from kanab.analysis.sections import readout_markdown, readout_text
from kanab.report.text import folded, mapped
from kanab.tabular import Table

Readout = dict[str, Any]
Maker = Callable[..., Readout]
FORBIDDEN = re.compile(r"(?<!k-)anonymous|compliant|no personal data", re.IGNORECASE)


def flat(text: str) -> str:
    """The text without line ends, so that wrapped sentences can be found."""
    return re.sub(r"\s+", " ", text)


def cells(text: str, stub: str) -> list[str]:
    """The cells of the first table row that starts so."""
    line = next(line for line in text.splitlines() if re.match(rf"{re.escape(stub)}\s{{2}}", line))
    return re.split(r"\s{2,}", line.strip())


def test_the_first_line_names_experiment_people_and_arms(hillstrom: Readout) -> None:
    first, second, third, *_ = readout_text(hillstrom).splitlines()
    assert first == "segment: 64,000 people in 3 arms, control No E-Mail"
    assert second == "No decision: name a primary metric, for example --primary visit."
    assert third == "4 of 4 comparisons show a clear effect after correction (Holm)."


def test_the_sample_ratio_comes_before_any_effect(hillstrom: Readout) -> None:
    text = readout_text(hillstrom)
    assert "Sample ratio: fine. People arrived in equal shares (χ²(2) = 0.203, p = 0.904; alarm below 0.001;\n" in text
    assert text.index("Sample ratio: fine.") < text.index("raises")


def test_planned_shares_are_called_planned(small: Maker) -> None:
    text = " ".join(readout_text(small()).split())
    assert "Sample ratio: fine. People arrived in the planned shares (χ²(1) = 0, p = 1.000; alarm below 0.001)." in text


def test_an_alarm_names_both_of_two_arms(small: Maker) -> None:
    data = small(arms={"A": 560, "B": 440})
    data["sample_ratio"] |= {"chi2": 14.4, "p": 0.000148, "residuals": {"A": 3.8, "B": -3.8}}
    text = flat(readout_text(data))
    assert "Sample ratio: ALARM. People did not arrive in the planned shares (χ²(1) = 14.4, p = 0.000148; alarm" in text
    assert "A holds 560 people, 12 % more than expected; B holds 440 people, 12 % fewer than expected." in text
    assert "Find the cause before acting on any number below." in text
    assert "But people did not arrive as planned." in text


def test_an_alarm_names_the_one_arm_at_fault_of_many(crowded: Readout) -> None:
    crowded["arms"]["variant 3"] = 700
    crowded["people"] = 4200
    crowded["sample_ratio"] |= {"p": 1e-8}
    crowded["sample_ratio"]["residuals"]["variant 3"] = 8.1
    text = flat(readout_text(crowded))
    assert "variant 3 holds 700 people, 33 % more than expected. Find the cause" in text
    assert "If the split was meant to be unequal, declare its shares." in text


def test_one_sentence_tells_each_effect(hillstrom: Readout) -> None:
    text = flat(readout_text(hillstrom))
    assert (
        "Mens E-Mail raises visit by 7.68 points (+72.4 %), 95 % interval 7.02 to 8.34; p < 1e-100 "
        "(adjusted for recency)."
    ) in text
    assert (
        "Womens E-Mail raises spend by 0.43 (+65 %), 95 % interval 0.17 to 0.68; p = 0.00110 (adjusted for recency)."
    ) in text
    assert "p = 1.09e-07, corrected 2.18e-07" in text


def test_the_plain_effect_carries_the_verdict_where_nothing_is_adjusted(small: Maker) -> None:
    assert "B raises spend by 0.50 (+5.0 %), 95 % interval 0.30 to 0.70; p = 1.00e-06.\n" in readout_text(small())


def test_a_fall_is_lowered(small: Maker, effect: Maker) -> None:
    row = effect(estimate=-0.5, interval=[-0.7, -0.3], relative=-0.05, relative_interval=[-0.07, -0.03])
    assert "B lowers spend by 0.50 (−5.0 %), 95 % interval −0.70 to −0.30;" in readout_text(small(row))


def test_no_clear_effect_is_said_with_its_interval(small: Maker, effect: Maker) -> None:
    row = effect(
        estimate=0.1, interval=[-0.1, 0.3], p=0.32, p_adjusted=0.32, relative=0.01, relative_interval=[-0.01, 0.03]
    )
    text = readout_text(small(row))
    assert "No clear effect of B on spend: +0.10 (+1.0 %), 95 % interval −0.10 to 0.30; p = 0.320." in text
    assert "1 comparison, and it shows no clear effect." in text


def test_what_only_the_correction_refuses_stays_in_doubt(small: Maker, effect: Maker) -> None:
    rows = [effect(p=0.03, p_adjusted=0.06), effect(metric="visits", p=0.03, p_adjusted=0.06)]
    text = flat(readout_text(small(*rows)))
    assert "B may raise spend, but 2 comparisons leave it in doubt: +0.50 (+5.0 %)" in text
    assert "p = 0.0300, corrected 0.0600." in text
    assert "None of 2 comparisons show a clear effect after correction (Holm)." in text


def test_where_adjustment_changes_the_verdict_both_effects_are_said(small: Maker, effect: Maker) -> None:
    plain = effect(estimate=0.1, interval=[-0.1, 0.3], p=0.32, p_adjusted=0.32)
    text = flat(readout_text(small(plain, effect(method="adjusted", covariates=["tier"]))))
    assert "B raises spend by 0.50" in text
    assert "(adjusted for tier). Without adjustment: +0.10; p = 0.320." in text


def test_only_the_row_that_carries_the_verdict_is_put_into_words(small: Maker, effect: Maker) -> None:
    adjusted = effect(method="adjusted", covariates=["tier"])
    text = readout_text(small(effect(estimate=0.6, carries_verdict=False), adjusted))
    assert "raises spend by 0.50" in text
    assert "raises spend by 0.60" not in text
    assert "↳ adjusted " in text  # for what, its sentence says


def test_what_does_not_vary_cannot_be_tested(small: Maker, effect: Maker, untestable: Readout) -> None:
    text = readout_text(small(effect(**untestable, estimate=0.0, mean_arm=10.0)))
    assert "B cannot be tested on spend: nothing varies; the difference is 0." in text


def test_a_row_of_nothing_but_none_is_shown(small: Maker, effect: Maker, untestable: Readout) -> None:
    nothing = dict.fromkeys(("mean_control", "mean_arm", "estimate", "se", "se_population"))
    text = readout_text(small(effect(**(untestable | nothing))))
    assert "B cannot be tested on spend: nothing varies." in text
    assert cells(text, "B")[1:] == ["500", "50.00 %", "50.00 %", "0.00"]
    assert re.search(r"^B(\s+–){9}$", text, re.MULTILINE)


def test_an_effect_without_an_interval_keeps_its_p(small: Maker, effect: Maker) -> None:
    assert "B raises spend by 0.5000 (+5.0 %); p = 1.00e-06." in readout_text(small(effect(interval=None)))


def test_a_control_mean_near_zero_leaves_out_the_relative_effect(small: Maker, effect: Maker) -> None:
    text = readout_text(small(effect(relative=2000.0, relative_interval=None)))
    assert "B raises spend by 0.50, 95 % interval" in text
    assert "No relative effect is given where the control's mean cannot be told from 0." in text


@pytest.mark.parametrize(
    ("alternative", "interval", "said", "shown"),
    [
        ("greater", [0.3, None], "at least 0.30", "at least 3.0 %"),
        ("less", [None, 0.7], "at most 0.70", "at most 7.0 %"),
    ],
)
def test_one_sided_intervals_have_an_open_end(
    small: Maker, effect: Maker, alternative: str, interval: Any, said: str, shown: str
) -> None:
    row = effect(interval=interval, relative_interval=[end and end / 10 for end in interval], p=0.4, p_adjusted=0.4)
    text = flat(readout_text(small(row, alternative=alternative)))
    verb, side = ("raises", "rise") if alternative == "greater" else ("lowers", "fall")
    assert f"No sign that B {verb} spend: +0.50 (+5.0 %), 95 % interval {said}; p = 0.400." in text
    assert shown in text
    assert f"One-sided: only a {side} was looked for." in text


def test_a_share_that_is_open_above_is_at_least_so_much_in_text_and_table(small: Maker, effect: Maker) -> None:
    text = flat(readout_text(small(effect(interval=[-0.1, 1.1], relative=0.12, relative_interval=[-0.35, None]))))
    assert "B raises spend by 0.50 (+12 %, at least −35 %), 95 % interval −0.10 to 1.10" in text
    assert "at least −35 %" in text
    closed = flat(readout_text(small(effect(interval=[-0.1, 1.1], relative=0.12, relative_interval=[-0.35, 0.9]))))
    assert "at least" not in closed


def test_methods_say_by_which_rule_p_and_interval_are_made(small: Maker, effect: Maker) -> None:
    text = flat(readout_text(small(effect(test="welch"))))
    assert "The t-test corrects for the skewness of a metric, on the side where a few large values would" in text
    assert "p is the larger, and the interval the wider of both." in text
    rates = flat(readout_text(small(effect(test="score"), effect(test="regression", method="adjusted"))))
    assert "The t-test of other metrics, and of adjusted effects, corrects for the skewness" in rates
    assert "corrects for the skewness" not in flat(readout_text(small(effect(test="score"))))


def test_table_and_data_agree_to_the_last_printed_digit(hillstrom: Readout) -> None:
    text = readout_text(hillstrom)
    row = next(row for row in hillstrom["effects"] if row["carries_verdict"])
    adjusted = cells(text[text.index("── visit") :], "↳ adjusted")
    control, arm, change, error, interval, relative, _, p, corrected = adjusted[1:]
    low, high = interval.split(" to ")
    shown = (control, arm, change, error, low, high)
    exact = (row["mean_control"], row["mean_arm"], row["estimate"], row["se_population"], *row["interval"])
    assert all(abs(float(one) - 100 * value) <= 0.005 for one, value in zip(shown, exact, strict=True))
    assert abs(float(relative.rstrip(" %")) - 100 * row["relative"]) <= 0.05
    assert (float(p), float(corrected)) == (
        pytest.approx(row["p"], rel=0.005),
        pytest.approx(row["p_adjusted"], rel=0.005),
    )


def test_a_p_value_is_never_printed_as_zero(small: Maker, effect: Maker) -> None:
    text = readout_text(small(effect(p=0.0, p_adjusted=0.0)))
    assert "p < 1e-100." in text
    assert cells(text[text.index("against A") :], "B")[-2:] == ["< 1e-300", "< 1e-300"]


def test_without_correction_there_is_no_corrected_column(small: Maker) -> None:
    text = readout_text(small(correction="none"))
    assert "p (" not in text
    assert "p (Šidák)" in readout_text(small(correction="sidak"))


def test_arms_that_are_no_words_are_called_arms(small: Maker, effect: Maker) -> None:
    data = small(effect(arm="1", control="0"), control="0", arms={"0": 500, "1": 500})
    data["sample_ratio"] |= {"shares": {"0": 0.5, "1": 0.5}, "residuals": {"0": 0.0, "1": 0.0}}
    assert "Arm 1 raises spend by 0.50" in readout_text(data)


def test_a_control_called_control_is_not_named_twice(small: Maker) -> None:
    data = small(control="Control", arms={"Control": 500, "B": 500})
    text = readout_text(data)
    assert text.startswith("checkout: 1,000 people in 2 arms\n")
    assert "Control (control)" not in text


def test_the_robust_f_decides_and_the_pooled_one_is_in_the_plain_data(hillstrom: Readout) -> None:
    text = readout_text(hillstrom)
    assert "The effect on visit differs by womens (robust F(2, 41,682) = 49.6, p = 3.20e-22" in flat(text)
    assert cells(text, "visit by womens")[1:] == ["yes", "by class", "F(2, 41,682) = 49.6", "3.20e-22", "1.28e-21"]
    assert "the pooled F, which assumes one variance, is in the plain data" in flat(text)
    assert [round(row["F"], 1) for row in hillstrom["segments"] if not row["decides"]][:1] == [45.5]
    assert cells(text, "spend by history_segment")[1:4] == ["no sign", "two marginals", "F(12, 8,160) = 1.69"]
    assert "No sign that the effect differs: spend by womens (p = 0.587), visit by history_segment" in flat(text)


def test_a_segment_that_cannot_be_tested_says_why(hillstrom: Readout) -> None:
    hillstrom["segments"] = [
        hillstrom["segments"][1]
        | {"F": None, "df": None, "p": None, "p_adjusted": None, "note": "too few combinations hold people"}
    ]
    hillstrom["follow_ups"] = []
    text = readout_text(hillstrom)
    assert "visit by womens is not testable: too few combinations hold people." in text
    assert cells(text, "visit by womens")[1:] == ["not testable", "by class", "–", "–", "–"]


def test_every_level_has_its_people_means_effect_and_interval(hillstrom: Readout) -> None:
    text = readout_text(hillstrom)
    assert (
        "visit (means in %, effects in points), the effect at each level of womens. The F test says that the effect "
        "differs. The 4 intervals hold together, with 95 % confidence (Šidák)."
    ) in flat(text)
    assert cells(text, "1, Womens E-Mail")[1:] == [
        "11,668", "11,765", "11.14", "18.45", "+7.31", "0.46", "6.16 to 8.46", "6.51e-56", "2.60e-55"
    ]  # fmt: skip


def test_levels_without_a_clear_f_are_exploratory(hillstrom: Readout) -> None:
    assert (
        "spend, the effect at each level of womens. Exploratory: the F test does not say that the effect differs, so "
        "differences between levels may be chance. The 4 intervals hold together, with 95 % confidence (Šidák)."
    ) in flat(readout_text(hillstrom))


def test_levels_without_an_interval_say_why(hillstrom: Readout) -> None:
    rows = hillstrom["segment_effects"][:4]
    gone = {"p": None, "p_adjusted": None, "interval": None, "interval_adjusted": None}
    rows[0] |= gone | {"note": "an arm has fewer than 20 people here: too few for an interval"}
    hillstrom["segment_effects"] = rows
    text = readout_text(hillstrom)
    assert "Where womens is 0: an arm has fewer than 20 people here: too few for an interval." in flat(text)
    assert "The 3 intervals hold together" in flat(text)
    assert cells(text, "0, Mens E-Mail")[-3:] == ["–", "–", "–"]
    for row in rows:
        row["note"] = "assumes equal variance across levels"
    assert "Assumes equal variance across levels." in flat(readout_text(hillstrom))


def test_without_segments_there_is_no_such_section(small: Maker) -> None:
    assert "segment" not in readout_text(small())


def test_follow_ups_are_told_in_words(hillstrom: Readout) -> None:
    assert (
        "Where womens is 1, Womens E-Mail changes visit by +7.31 points, elsewhere by +1.11 points: "
        "a difference of +6.20 ± 0.64 (one standard error), p = 2.99e-22, corrected 5.98e-22."
    ) in flat(readout_text(hillstrom))


def test_unclear_follow_ups_are_counted(hillstrom: Readout) -> None:
    hillstrom["follow_ups"][0] |= {"p": 0.4, "p_adjusted": 0.4}
    assert "1 other comparison of a level with the rest: nothing clear." in readout_text(hillstrom)
    hillstrom["follow_ups"][1] |= {"p": 0.4, "p_adjusted": 0.4}
    assert "No single level of womens clearly differs from the rest." in readout_text(hillstrom)


def test_of_many_follow_ups_the_clearest_are_told(hillstrom: Readout) -> None:
    one = hillstrom["follow_ups"][1]
    hillstrom["follow_ups"] = [one | {"level": str(level), "p_adjusted": 0.04 / (level + 1)} for level in range(20)]
    text = readout_text(hillstrom)
    assert text.count("Where womens is") == 6
    assert "Where womens is 19," in text
    assert "These are the 6 clearest of 20 such differences." in text


def test_what_was_merged_for_joint_adjustment_is_said_once(small: Maker) -> None:
    data = small()
    merged = {"other": ["MT", "PT"]}
    data["privacy"]["merged"] = {
        "checkout/country/device: country": merged, "checkout/country/tier: country": merged,
        "checkout/tier": {"3 … 5": ["3", "4", "5"]},
    }  # fmt: skip
    text = readout_text(data)
    assert text.count("Merged levels of country for joint adjustment: MT, PT → other.") == 1
    assert "Merged levels of tier: 3, 4, 5 → 3 … 5." in text


def test_the_receipt_says_what_was_merged_and_left_out(small: Maker) -> None:
    data = small(notes=["zip is left out: too sparse.", "k = 3: pilot", "Only people where country = 'NL'."])
    data["privacy"] |= {
        "effective_k": 120, "audit": "passed", "deviations": ["k = 3: pilot"],
        "left_out": {"checkout/zip": "zip is left out: too sparse"},
        "merged": {
            "checkout/tier": {"3 … 5": ["3", "4", "5"]},
            "checkout/country": {"other": [f"c{i}" for i in range(40)]},
        },
    }  # fmt: skip
    text = flat(readout_text(data))
    assert (
        "k-anonymous at k = 10: 2 classes, the smallest holds 500 people; effective k of class sums over all tables"
        in text
    )
    assert "at least 120; audit passed." in text
    assert "; audit passed." in text
    assert "Merged levels of tier: 3, 4, 5 → 3 … 5." in text
    assert "Merged levels of country: c0, c1," in text
    assert "(40 in all) → other." in text
    assert text.count("zip is left out: too sparse.") == 1
    assert text.count("k = 3: pilot") == 1
    assert "Only people where country = 'NL'." in text


@pytest.mark.parametrize("show", [readout_text, readout_markdown])
def test_nothing_is_called_anonymous_without_its_k(hillstrom: Readout, show: Callable[[Readout], str]) -> None:
    assert "k-anonymous at k = 10" in show(hillstrom)
    assert not FORBIDDEN.search(show(hillstrom))


def test_the_notes_say_which_variance_and_which_population(hillstrom: Readout) -> None:
    text = flat(readout_text(hillstrom))
    assert "for the population that these people were drawn from" in text
    assert "each arm with its own variance (Welch)" in text
    assert "one regression per arm (Lin) with its exact variance" in text
    assert "p (Holm) is corrected over metrics × arms: the 4 comparisons that carry a verdict; rows beside" in text


def test_no_effects_at_all_is_a_sentence(small: Maker) -> None:
    data = small(notes=["An effect on spend is not given: nobody has been counted."]) | {"effects": []}
    assert "No effect could be computed; the notes say why." in readout_text(data)


def test_where_the_reason_for_no_effect_stands_is_said_only_if_it_stands_there(small: Maker) -> None:
    none = small() | {"effects": []}
    assert "No effect was computed: no metric is compared." in readout_text(none)
    text = readout_text(none | {"privacy": none["privacy"] | {"left_out": {"arm: spend": "spend is withheld"}}})
    assert "No effect could be computed; the privacy section says why." in text
    assert "spend is withheld." in text[text.index("── Privacy") :]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_lines_keep_to_the_width(hillstrom: Readout, width: int) -> None:
    assert max(len(line) for line in readout_text(hillstrom, width=width).splitlines()) <= width


def test_numbers_and_their_signs_stay_on_one_line(hillstrom: Readout) -> None:
    for width in range(60, 100):
        lines = readout_text(hillstrom, width=width).splitlines()
        assert not [line for line in lines if line.endswith((" p =", " p <", " ±", "(p", ", p"))]


def test_many_arms_and_metrics_stay_in_order(crowded: Readout) -> None:
    text = readout_text(crowded, width=100)
    assert re.findall(r"^── (metric \d)", text, re.MULTILINE) == [f"metric {place}" for place in range(10)]
    assert len(re.findall(r"^variant \d raises metric \d by", text, re.MULTILINE)) == 70
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "raises metric 9 by 5,000 (+5.0 %), 95 % interval 3,000 to 7,000" in text
    assert "raises metric 0 by 5.00e-06 (+5.0 %), 95 % interval 3.00e-06 to 7.00e-06" in text


def test_a_folded_table_repeats_its_first_column_and_keeps_twins_together() -> None:
    header = ("arm", "effect", "interval", "relative", "interval", "p")
    table = Table(header, (("A", "1.00", "0.5 to 1.5", "+5 %", "2 to 8 %", "0.02"),))
    assert [part.header for part in folded(table, 30)] == [
        ("arm", "effect", "interval"),
        ("arm", "relative", "interval", "p"),
    ]
    assert folded(table, None) == folded(table, 60) == [table]


def test_no_folded_table_is_a_leftover() -> None:
    table = Table(("arm", *"abcdef"), (("A", *["12345"] * 6),))
    assert [len(part.header) for part in folded(table, 38)] == [4, 4]


def test_names_cannot_steer_the_terminal(small: Maker, effect: Maker) -> None:
    text = readout_text(small(effect(metric="spend\x1b[2J\r\n\u202e")))
    assert "spend␛[2J␍␊\ufffd" in text
    assert "\x1b" not in text


def test_mapping_changes_names_and_values_alike() -> None:
    assert mapped({"a": ["a", 1, None, ("a",)]}, str.upper) == {"A": ["A", 1, None, ["A"]]}


def test_markdown_has_a_heading_per_section_and_whole_tables(hillstrom: Readout) -> None:
    text = readout_markdown(hillstrom)
    assert text.startswith("# segment: 64,000 people in 3 arms, control No E-Mail\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "Did people arrive as planned?",
        "visit (means in %, effects in points)",
        "spend",
        "Does the effect differ by segment?",
        "Privacy",
        "Notes",
    ]
    assert (
        "| Mens E-Mail | 10.62 | 18.28 | +7.66 | 0.34 | 7.00 to 8.32 | +72.1 % | 64.1 to 80.7 % | 1.36e-112 | – |"
        in text
    )
    assert "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |" in text
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1
    assert "\n- Mens E-Mail raises visit by 7.68 points" in text


def test_markdown_escapes_names_that_look_like_markup(small: Maker, effect: Maker) -> None:
    text = readout_markdown(small(effect(metric="<script>*x*</script> [a](b) `c` __d__ a_b", arm="#1|2")))
    assert "<script>" not in text
    assert r"\<script\>\*x\*\</script\> \[a\](b) \`c\` \_\_d\_\_ a_b" in text
    assert r"| \#1\|2 |" in text
