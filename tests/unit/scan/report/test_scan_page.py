"""Scans as documents: six experiments and four effects by segment, real results of made-up people."""

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.approved import assert_approved

from kanab.report.colours import ALARM, DOWN, INK, UP
from kanab.report.figure import Dots, HeatMap, Line, Plot
from kanab.report.words import UNCHAINED
from kanab.scan.report.scan_page import effects_figure, expected_figure, heat_map, scan_report
from kanab.scan.report.scan_words import INTERNAL_SCAN, effect_sentences, expectation, outcome

Scan = dict[str, Any]
STORED = Path(__file__).parent / "scan.json"
EVIL = '<img src=x onerror="alert(1)">'


def stored(of: str) -> Scan:
    made: Scan = json.loads(STORED.read_text(encoding="utf-8"))[of]
    return made


def scan_text(data: Scan) -> str:
    return scan_report(data).to_text()


def page_of(*scans: Scan) -> str:
    return scan_report(*scans).to_html()


@pytest.fixture
def six() -> Scan:
    return stored("pairs")


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


@pytest.mark.parametrize("of", ["pairs", "segments"])
def test_a_scan_on_a_terminal_is_as_approved(of: str) -> None:
    assert_approved(f"scan/{of}.txt", f"{scan_text(stored(of))}\n")


def each(verdict: str, /, **changes: Any) -> Callable[[Scan], Any]:
    """Change all tests with a verdict."""
    return lambda data: [row.update(changes) for row in data["pairs"] if row["verdict"] == verdict]


def keep(*verdicts: str) -> Callable[[Scan], Any]:
    return lambda data: data.update(pairs=[row for row in data["pairs"] if row["verdict"] in verdicts], effects=[])


def follow_ups(data: Scan) -> list[Scan]:
    (rows,) = [row["follow_ups"] for row in data["segments"] if row["follow_ups"]]
    return list(rows)


QUIET = ("nothing found", "assignment broken", "not testable")
UNEVEN = {
    "verdict": "assignment broken", "assignment_p": 1e-5, "note": "the arms of banner are not spread alike over tier",
}  # fmt: skip


@pytest.mark.parametrize(
    ("of", "change", "sentences"),
    [
        (
            "pairs",
            lambda data: data.update(shares=["revenue", "bought"]),
            [
                "effect on revenue (on − off) is +8 points where banner shows ‘off’, +319 points where ‘on’.",
                "2,607 %",
                "revenue: 7 tests, nothing found; a difference of effects of up to ± 452 points could have been",
            ],
        ),
        (
            "pairs",
            keep(*QUIET),
            ["ALARM: the assignment of banner × search is broken (see Assignment). No other alarms. The 5 tests"],
        ),
        (
            "pairs",
            keep("assignment broken"),
            ["is broken (see Assignment). No test of effects could be done. ── Assignment"],
        ),
        (
            "pairs",
            lambda data: data.update(enrollment_checked=False),
            ["being in one experiment depends on the arm of another was not checked"],
        ),
        (
            "pairs",
            each("nothing found", note="within the tolerance, unless a few people hide it", could_miss=None),
            ["16 tests: within the tolerance, unless a few people hide it.", "revenue: 7 tests, nothing found."],
        ),
        (
            "pairs",
            each("nothing found", verdict="clear within tolerance"),
            ["bought: 9 tests, clear within the tolerance."],
        ),
        ("pairs", lambda data: data.update(correction="none"), ["Without any correction: interference in 1 test"]),
        (
            "pairs",
            lambda data: data.update(effects=data["effects"] * 4),
            ["3 more flagged tests in the report (--html) and plain data."],
        ),
        ("pairs", lambda data: data.update(scope="own-rows"), [INTERNAL_SCAN, "No class with fewer than k = 10"]),
        ("segments", lambda data: follow_ups(data)[1].update(p_adjusted=0.5), ["1 other comparison of a level with"]),
        (
            "segments",
            lambda data: [row.update(p_adjusted=0.5) for row in follow_ups(data)],
            ["No single level of tier clearly differs from the rest."],
        ),
        (
            "segments",
            lambda data: data["segments"][0].update(UNEVEN),
            [UNEVEN["note"], "Perhaps the covariate was measured after assignment."],
        ),
    ],
)
def test_what_is_different_is_said(of: str, change: Callable[[Scan], Any], sentences: list[str]) -> None:
    data = stored(of)
    change(data)
    text = flat(scan_text(data))
    assert [sentence for sentence in sentences if sentence not in text] == []


def test_a_chained_release_is_not_called_unchained(six: Scan) -> None:
    assert UNCHAINED in flat(scan_text(six))
    assert UNCHAINED not in flat(scan_text(six | {"privacy": {"k": 10, "chained": True}}))


def test_few_reasons_name_their_tests_and_none_counts_people(six: Scan) -> None:
    for row in six["pairs"]:
        if row["verdict"] == "not testable" and row["metric"] == "bought" and row["a"] == "banner":
            row["note"] = "reason of banner"
    assert "1 test: reason of banner (banner × beta on bought)." in scan_text(six)


def test_much_is_cut_with_its_number(six: Scan) -> None:
    one = six["effects"][0]
    one["effects"] = [row | {"arm": str(arm)} for arm in range(9) for row in one["effects"][:2]]
    assert effect_sentences(six, one)[-1] == "3 more effects in the plain data."
    assert len(effect_sentences(six, one)) == 7
    segments = stored("segments")
    next(row for row in segments["segments"] if row["follow_ups"])["follow_ups"] *= 4
    assert "These are the 6 clearest of 12 such differences." in scan_text(segments)
    many = widened(six, 10)
    for row in many["pairs"]:
        row["verdict"] = "interference"
    many["verdicts"] = {"interference": 90}
    text = scan_text(many)
    assert "The 20 most urgent of 90:" in text
    assert text.count("  interference") == 20


@pytest.mark.slow
def test_a_hundred_experiments_stay_readable(six: Scan) -> None:
    text = scan_text(widened(six, 100))
    assert len(text.splitlines()) < 45
    assert max(map(len, text.splitlines())) <= 100
    assert "about 495 of 9,900 tests would still show p < 0.05; 496 do." in flat(text)
    assert "No alarms. The 5 tests with the smallest p:" in text


def test_two_experiments_and_one_test_are_spoken_of_as_such(six: Scan) -> None:
    text = scan_text(widened(six, 2) | {"observed": 0})
    assert text.startswith("2 experiments, 1 pair, 2 metrics")
    assert "With one test per metric there is nothing to correct: interference in no test." in text
    assert "── The rest" not in text
    alone = six | {"tests": {"revenue": 1}, "expected": 0.05, "observed": 1}
    assert expectation(alone) == "1 test, and its p is below 0.05; by chance it would be in 5 %."


def test_without_any_test_the_reasons_are_left(six: Scan) -> None:
    for row in six["pairs"]:
        row |= {"verdict": "not testable", "note": "no squares were kept", "p_robust": None, "p_adjusted": None}
    tests = {"revenue": 0, "bought": 0}
    none = six | {"tests": tests, "expected": 0.0, "verdicts": {"not testable": 30}, "effects": []}
    text = scan_text(none)
    assert "No test could be done; the reasons are below." in text
    assert "30 tests: no squares were kept." in text
    assert outcome(none) == ""


def test_families_may_be_one_or_differ(six: Scan) -> None:
    assert outcome(six | {"family": "all", "tests": {"all": 20}}).startswith("Corrected (Holm, over 20 tests)")
    differ = outcome(six | {"tests": {"revenue": 10, "bought": 9}})
    assert differ.startswith("Corrected (Holm, over all tests of each metric, revenue 10, bought 9)")


def test_names_cannot_move_the_cursor(six: Scan) -> None:
    evil = json.loads(json.dumps(six).replace('"banner"', json.dumps("\x1b[2Jbanner")))
    text = scan_text(evil | {"notes": ["one\ntwo"]})
    assert "\x1b" not in text
    assert "␛[2Jbanner" in text
    assert "one␊two." in text


# ── the page ───────────────────────────────────────────────────────────────────────────────────


def hundred(six: Scan) -> Scan:
    """A hundred experiments, every p-value once, one metric."""
    quiet = next(row for row in six["pairs"] if row["verdict"] == "nothing found")
    names = [f"test_{place:03}" for place in range(100)]
    pairs = list(combinations(names, 2))
    ps = [((place * 1009) % 4950 + 0.5) / 4950 for place in range(4950)]
    rows = [quiet | {"a": a, "b": b, "metric": "revenue", "p_robust": p} for (a, b), p in zip(pairs, ps, strict=True)]
    return six | {
        "pairs": rows, "experiments": names, "metrics": ["revenue"], "effects": [],
        "quantiles": {"revenue": {"expected": sorted(ps)[::10], "observed": sorted(ps)[::10]}},
    }  # fmt: skip


def test_anchors_are_there_once_and_names_never_become_markup(six: Scan) -> None:
    text = json.dumps([six, stored("segments")])
    for name in ("banner", "revenue"):
        text = text.replace(name, json.dumps(f"{name}{EVIL}")[1:-1])
    page = page_of(*json.loads(text))
    assert "<img" not in page
    assert "banner&lt;img src=x" in page
    ids, links = re.findall(r' id="([^"]*)"', page), re.findall(r' href="#([^"]*)"', page)
    assert len(set(ids)) == len(ids)
    assert {*links} == {"flag-0", "flag-1"} <= {*ids}
    assert {"by-segment-attention", "by-segment-notes"} <= {*ids}


def test_an_alarm_is_called_out_and_so_is_a_broken_assignment(six: Scan) -> None:
    how = 'role="alert"><strong>Corrected (Holm, over the 10 tests of each metric): '
    assert f"{how}interference in 1 test; 1 to watch" in page_of(six)
    quiet = [row for row in six["pairs"] if row["verdict"] == "nothing found"]
    none = six | {"verdicts": {"nothing found": 18, "assignment broken": 2}, "pairs": quiet}
    assert f"{how}interference in no test; 2 with a broken assignment.</strong>" in page_of(none)
    assert 'role="alert"' not in page_of(none | {"verdicts": {"nothing found": 20}})


def test_flagged_pairs_beyond_five_are_folded(six: Scan) -> None:
    assert page_of(six).count("<details") == 0
    page = page_of(six | {"effects": six["effects"] * 4})
    assert page.count("<details><summary>price × search: revenue</summary>") == 2
    assert page.count("<title>Effects of banner and price on revenue</title>") == 4


def test_two_experiments_need_no_map(six: Scan) -> None:
    two = six | {"pairs": six["pairs"][:2], "experiments": ["banner", "price"]}
    assert "Every pair at a glance" not in page_of(two)
    assert "Every pair at a glance" in page_of(six)


def test_segments_alone_make_a_page_with_every_level_folded() -> None:
    page = page_of(stored("segments"))
    assert "<h1>Which effects differ?</h1>" in page
    assert "<details><summary>Every level against the rest</summary>" in page
    assert '<th scope="row" role="rowheader">gold</th>' in page
    assert "<svg" not in page


def test_a_map_marks_verdicts_and_is_darker_for_smaller_p(six: Scan) -> None:
    drawn = heat_map(six, "revenue")
    (panel,) = drawn.panels
    assert isinstance(panel, HeatMap)
    marks = [(cell.a, cell.b, cell.paint.colour) for cell in panel.cells if cell.words]
    assert marks == [(0, 1, ALARM), (0, 3, INK), (1, 3, DOWN)]
    assert "marked: banner × price interference; banner × search assignment broken; price × search watch." in (
        drawn.description
    )


def test_a_map_of_a_hundred_experiments_stays_small(six: Scan) -> None:
    drawn = heat_map(hundred(six), "revenue")
    assert len(drawn.to_html()) < 40_000
    (panel,) = drawn.panels
    assert isinstance(panel, HeatMap)
    squares = Counter(cell.paint.opacity for cell in panel.cells)
    # of p = (i + 0.5) / 4950 there are 247 below 0.05, 49 below 0.01, 5 below 0.001
    assert squares == {0.22: 247 - 49, 0.42: 49 - 5, 0.68: 5}


def plotted(six: Scan) -> Plot:
    drawn = expected_figure(six, "revenue")
    assert drawn is not None
    (panel,) = drawn.panels
    assert isinstance(panel, Plot)
    return panel


def test_p_values_on_the_line_are_drawn_on_the_line(six: Scan) -> None:
    line, points, beyond = plotted(hundred(six)).marks
    assert isinstance(line, Line)
    assert isinstance(points, Dots)
    assert (line.points[0], len(points.points)) == ((0.0, 0.0), 495)
    assert all(x == y for x, y in [*line.points, *points.points])
    assert isinstance(beyond, Dots)
    assert beyond.points == []


def test_p_of_zero_is_drawn_at_the_edge_and_no_p_at_all_not(six: Scan) -> None:
    six["quantiles"]["revenue"]["observed"][0] = 0.0
    *_, beyond = plotted(six).marks
    assert isinstance(beyond, Dots)
    assert (len(beyond.points), beyond.shape) == (1, "triangle")
    six["quantiles"]["revenue"] = {"expected": [], "observed": []}
    assert expected_figure(six, "revenue") is None
    assert "Observed against expected p-values of revenue" not in page_of(six)


def test_effects_within_arms_are_drawn_with_their_intervals(six: Scan) -> None:
    drawn = effects_figure(six, six["effects"][0]).to_html()
    assert 'aria-label="Effects of banner and price on revenue"' in drawn
    assert "+6.11 (4.39 to 7.83)" in drawn
    assert (drawn.count("<circle"), drawn.count(f'fill="{UP}"')) == (4, 3)
    six["effects"][0]["effects"].append(six["effects"][0]["effects"][0] | {"arm": "loud"})
    assert "banner loud − off, price off" in effects_figure(six, six["effects"][0]).to_html()
