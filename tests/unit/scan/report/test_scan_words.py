"""Scans on a terminal: six experiments and four effects by segment, real results of made-up people."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from kanab.report.words import UNCHAINED
from kanab.scan.report.scan_words import (
    INTERNAL_SCAN,
    effect_sentences,
    expectation,
    outcome,
    privacy_sentences,
    scan_text,
)

Scan = dict[str, Any]
STORED = Path(__file__).parent / "scan.json"


@pytest.fixture
def six() -> Scan:
    made: Scan = json.loads(STORED.read_text(encoding="utf-8"))["pairs"]
    return made


@pytest.fixture
def segments() -> Scan:
    made: Scan = json.loads(STORED.read_text(encoding="utf-8"))["segments"]
    return made


def widened(six: Scan, count: int) -> Scan:
    """As many experiments as asked for, of which nothing rings, with two metrics."""
    quiet = next(row for row in six["pairs"] if row["verdict"] == "nothing found")
    names = [f"test_{place:03}" for place in range(count)]
    rows = [
        quiet | {"a": a, "b": b, "metric": metric, "p_robust": (place + 0.5) / 4950, "p_adjusted": 1.0}
        for place, (a, b) in enumerate(combinations(names, 2))
        for metric in six["metrics"]
    ]
    half = len(rows) // 2
    return six | {
        "pairs": rows, "experiments": names, "effects": [], "verdicts": {"nothing found": len(rows)},
        "tests": dict.fromkeys(six["metrics"], half), "expected": 0.05 * len(rows), "observed": 496,
    }  # fmt: skip


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_first_line_says_what_was_scanned(six: Scan) -> None:
    first = scan_text(six).splitlines()[0]
    assert first == "6 experiments, 15 pairs, 2 metrics (revenue, bought); at least 20,000 people."


def test_alarms_by_chance_stand_beside_those_found_and_those_left(six: Scan) -> None:
    text = flat(scan_text(six))
    assert "about 1 of 20 tests would still show p < 0.05; 2 do." in text
    assert "Corrected (Holm, over the 10 tests of each metric): interference in 1 test; 1 to watch" in text


def test_what_rings_comes_first_then_the_nearest(six: Scan) -> None:
    lines = scan_text(six).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("a  "))
    assert lines[start].split() == ["a", "b", "metric", "F", "p", "p", "(Holm)", "verdict"]
    assert lines[start + 2].split() == "banner price revenue 10.5 0.00120 0.0120 interference".split()
    assert [line.split()[-1] for line in lines[start + 2 : start + 4]] == ["interference", "watch"]
    assert lines[start + 4].endswith("nothing found, could miss ± 4.3")
    assert lines[start + 7] == ""


def test_a_flagged_pair_is_explained_by_its_means_and_in_words(six: Scan) -> None:
    text = scan_text(six)
    assert "price's effect on revenue (on − off) is +0.08 where banner shows ‘off’, +3.19 where ‘on’." in text
    assert "banner: on         22.88      26.07" in text


def test_a_metric_of_zeros_and_ones_is_told_in_percent(six: Scan) -> None:
    six["shares"] = ["revenue", "bought"]
    text = flat(scan_text(six))
    assert "price's effect on revenue (on − off) is +8 points where banner shows ‘off’, +319 points where ‘on’." in text
    assert "2,607 %" in text
    assert "revenue: 7 tests, nothing found; a difference of effects of up to ± 452 points could have been" in text


def test_many_arms_are_not_all_put_into_words(six: Scan) -> None:
    one = six["effects"][0]
    one["effects"] = [row | {"arm": str(arm)} for arm in range(9) for row in one["effects"][:2]]
    assert effect_sentences(six, one)[-1] == "3 more effects in the plain data."
    assert len(effect_sentences(six, one)) == 7


def test_the_rest_says_what_could_have_been_missed(six: Scan) -> None:
    text = flat(scan_text(six))
    assert "revenue: 7 tests, nothing found; a difference of effects of up to ± 4.5 could have been missed" in text
    assert "(median; at worst ± 5.9)" in text


def test_a_broken_assignment_is_told_once_and_apart(six: Scan) -> None:
    text = scan_text(six)
    assert text.count("the arms of banner and search are not independent") == 1
    assert text.index("A broken assignment (alarm below 0.001, corrected over all pairs by Holm) is not") > text.index(
        "── Assignment"
    )


def test_a_broken_assignment_stands_before_all_else_and_above_no_other_alarm(six: Scan) -> None:
    quiet = [row for row in six["pairs"] if row["verdict"] not in ("interference", "watch")]
    text = flat(scan_text(six | {"pairs": quiet, "effects": []}))
    assert "attention ─" in text
    assert "ALARM: the assignment of banner × search is broken (see Assignment). No other alarms. The 5 tests" in text
    broken = [row for row in quiet if row["verdict"] == "assignment broken"]
    text = flat(scan_text(six | {"pairs": broken, "effects": []}))
    assert "is broken (see Assignment). No test of effects could be done. ── Assignment" in text


def test_unchecked_enrollment_is_admitted(six: Scan) -> None:
    assert "arm of another was not checked" not in flat(scan_text(six))
    assert "depends on the arm of another was not checked" in flat(scan_text(six | {"enrollment_checked": False}))


def test_reasons_are_counted_in_tests_and_never_in_people(six: Scan) -> None:
    assert "10 tests: a class holds fewer than k = 10 people." in scan_text(six)
    for row in six["pairs"]:
        if row["verdict"] == "not testable" and row["metric"] == "bought":
            row["note"] = f"reason of {row['a']}" if row["a"] == "banner" else row["note"]
    assert "1 test: reason of banner (banner × beta on bought)." in scan_text(six)


def test_the_receipt_says_who_may_read_the_scan(six: Scan) -> None:
    said = privacy_sentences(six)
    assert said == ["k-anonymous at k = 10: no class with fewer people is tested or shown.", UNCHAINED]
    assert privacy_sentences(six | {"privacy": {"k": 10, "chained": True}}) == said[:1]
    internal = privacy_sentences(six | {"scope": "own-rows"})
    assert internal == [INTERNAL_SCAN, "No class with fewer than k = 10 people is tested."]


@pytest.mark.slow
def test_a_hundred_experiments_stay_readable(six: Scan) -> None:
    text = scan_text(widened(six, 100))
    assert len(text.splitlines()) < 45
    assert max(map(len, text.splitlines())) <= 100
    assert "about 495 of 9,900 tests would still show p < 0.05; 496 do." in flat(text)
    assert "No alarms. The 5 tests with the smallest p:" in text
    assert "revenue: 4,950 tests, nothing found" in text


def test_many_alarms_are_cut_with_their_number(six: Scan) -> None:
    many = widened(six, 10)
    for row in many["pairs"]:
        row["verdict"] = "interference"
    many["verdicts"] = {"interference": 90}
    text = scan_text(many)
    assert "The 20 most urgent of 90:" in text
    assert text.count("  interference") == 20


def test_two_experiments_are_enough(six: Scan) -> None:
    text = scan_text(widened(six, 2) | {"observed": 0})
    assert text.startswith("2 experiments, 1 pair, 2 metrics")
    assert "With one test per metric there is nothing to correct: interference in no test." in text
    assert "── The rest" not in text


def test_one_test_alone_is_spoken_of_as_one(six: Scan) -> None:
    alone = six | {"tests": {"revenue": 1}, "expected": 0.05, "observed": 1}
    assert expectation(alone) == "1 test, and its p is below 0.05; by chance it would be in 5 %."


def test_without_any_test_the_reasons_are_left(six: Scan) -> None:
    for row in six["pairs"]:
        row |= {"verdict": "not testable", "note": "no squares were kept", "p_robust": None, "p_adjusted": None}
    none = six | {
        "tests": {"revenue": 0, "bought": 0},
        "expected": 0.0,
        "verdicts": {"not testable": 30},
        "effects": [],
    }
    text = scan_text(none)
    assert "No test could be done; the reasons are below." in text
    assert "30 tests: no squares were kept." in text
    assert outcome(none) == ""


def test_a_tolerance_makes_small_interactions_clear(six: Scan) -> None:
    for row in six["pairs"]:
        if row["verdict"] == "nothing found" and row["metric"] == "bought":
            row["verdict"] = "clear within tolerance"
    assert "bought: 9 tests, clear within the tolerance." in scan_text(six)


def test_families_may_be_one_or_differ_and_nothing_may_be_corrected(six: Scan) -> None:
    assert outcome(six | {"family": "all", "tests": {"all": 20}}).startswith("Corrected (Holm, over 20 tests)")
    differ = outcome(six | {"tests": {"revenue": 10, "bought": 9}})
    assert differ.startswith("Corrected (Holm, over all tests of each metric, revenue 10, bought 9)")
    plain = scan_text(six | {"correction": "none"})
    assert "Without any correction: interference" in plain
    assert "(Holm)" not in plain


def test_names_cannot_move_the_cursor(six: Scan) -> None:
    for row in six["pairs"]:
        row["a"] = "\x1b[2J" + row["a"]
    text = scan_text(six | {"notes": ["one\ntwo"]})
    assert "\x1b" not in text
    assert "␛[2Jbanner" in text
    assert "one␊two." in text


def test_segments_are_told_level_by_level(segments: Scan) -> None:
    text = scan_text(segments)
    assert text.startswith("2 experiments by 2 covariates, 1 metric (revenue).\n")
    assert "Corrected (Benjamini–Hochberg, over 4 tests): effects differ in 1 test." in text
    assert "── banner by tier: revenue ─" in text
    assert (
        "Where tier is gold, arm on changes revenue by +5.64, elsewhere by +0.23: a difference of +5.41 ± 0.89"
        in flat(text)
    )
    assert "price by age is left out: a class holds fewer than k = 10 people." in text
    assert "budget" not in text


def test_levels_that_do_not_stand_out_are_counted(segments: Scan) -> None:
    row = next(row for row in segments["segments"] if row["follow_ups"])
    row["follow_ups"][1]["p_adjusted"] = 0.5
    assert "1 other comparison of a level with the rest: nothing clear." in scan_text(segments)
    for one in row["follow_ups"]:
        one["p_adjusted"] = 0.5
    assert "No single level of tier clearly differs from the rest." in scan_text(segments)


def test_uneven_covariates_are_no_difference(segments: Scan) -> None:
    segments["segments"][0] |= {
        "verdict": "assignment broken", "assignment_p": 1e-5,
        "note": "the arms of banner are not spread alike over tier",
    }  # fmt: skip
    text = scan_text(segments)
    assert "the arms of banner are not spread alike over tier" in text
    assert "Perhaps the covariate was measured after assignment." in flat(text)


def test_flagged_pairs_beyond_five_are_counted(six: Scan) -> None:
    six["effects"] *= 4
    assert "3 more flagged tests in the report (--html) and plain data." in scan_text(six)


def test_many_clear_levels_are_cut_with_their_number(segments: Scan) -> None:
    row = next(row for row in segments["segments"] if row["follow_ups"])
    row["follow_ups"] *= 4
    assert "These are the 6 clearest of 12 such differences." in scan_text(segments)


def test_remarks_on_tests_are_counted_once_and_unknown_limits_left_out(six: Scan) -> None:
    for row in six["pairs"]:
        if row["verdict"] == "nothing found":
            row |= {"note": "within the tolerance, unless a few people hide something", "could_miss": None}
    text = flat(scan_text(six))
    assert "16 tests: within the tolerance, unless a few people hide something." in text
    assert "revenue: 7 tests, nothing found." in text
