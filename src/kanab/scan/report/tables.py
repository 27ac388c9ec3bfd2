"""A scan's tests as tables of short texts, the order in which everything is shown, and the whole on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kanab.errors import listed
from kanab.report.document import Section
from kanab.report.figures import Row
from kanab.report.text import mapped, printable, sections_text
from kanab.report.words import correction_name
from kanab.scan.report.words import (
    FEW_NAMED,
    PAIRS,
    alarms,
    assignment_sentences,
    effect_figures,
    effect_sentences,
    expectation,
    follow_up_sentences,
    kind_of_scan,
    method_sentences,
    name_sides,
    note_sentences,
    number_of,
    outcome,
    privacy_sentences,
    rest_sentences,
    rows_repeat,
    scope_line,
    size_words,
    tests_of,
    unlisted,
    untestable_sentences,
    with_verdict,
)
from kanab.scan.stats.verdicts import ALARMS
from kanab.tabular import Table, number, p_value

Data = Mapping[str, Any]

MOST_ROWS = 20
"""So many tests are shown one by one; the others are counted."""

FEW_ROWS = 5
"""Where there are fewer alarms, the nearest of the other tests are shown beside them."""

MOST_FLAGGED = 5
"""So many flagged tests are explained on a terminal; the report and the plain data hold more."""


def scan_text(data: Data) -> str:
    """Write a scan for a terminal: what was scanned, the alarms, what was missed, what may be published."""
    clean = mapped(data, printable)
    return sections_text((f"{scope_line(clean)}.", expectation(clean), outcome(clean)), sections(clean), None)


def sections(data: Data) -> list[Section]:
    """Return the whole scan in reading order: the alarms, what they look like, the rest, and at what k."""
    flagged = explain_flagged(data)
    parts = [Section("What needs attention", attention(data)), *flagged[:MOST_FLAGGED]]
    if (left := len(flagged) - MOST_FLAGGED) > 0:
        more = f"{number_of(left, 'more flagged test')} in the report (--html) and plain data."
        parts.append(Section("More", (more,)))
    quiet = with_verdict(data, "nothing found", "clear within tolerance")
    few = len(quiet) <= FEW_ROWS and not data.get("unlisted")  # these are shown one by one
    if not few and (rest := rest_sentences(data)):
        parts.append(Section("The rest", tuple(rest)))
    parts.append(Section("Assignment", (*assignment_sentences(data), *broken_tables(data))))
    if reasons := untestable_sentences(data):
        parts.append(Section("Not testable", tuple(reasons)))
    parts.append(Section("Privacy", tuple(privacy_sentences(data))))
    parts.append(Section("Notes", (*note_sentences(data), *method_sentences(data))))
    return [section for section in parts if section.parts]


def strongest(data: Data) -> list[Row]:
    """Return what is shown one by one: all alarms, or the nearest to one, but not too many."""
    flagged = alarms(data)
    if len(flagged) >= FEW_ROWS:
        return flagged[:MOST_ROWS]
    quiet = with_verdict(data, "nothing found", "clear within tolerance")
    nearest = sorted((row for row in quiet if row["p_robust"] is not None), key=lambda row: row["p_robust"])
    return [*flagged, *nearest[: FEW_ROWS - len(flagged)]]


def attention(data: Data) -> tuple[str | Table, ...]:
    """Return the ranked table, and in words whether there is any alarm at all."""
    flagged, shown = alarms(data), strongest(data)
    broken = list(dict.fromkeys(name_sides(data, row) for row in with_verdict(data, "assignment broken")))
    first = rows_repeat(data)
    first += (
        [f"ALARM: the assignment of {listed(broken, most=FEW_NAMED)} is broken (see Assignment)."] if broken else []
    )
    if not shown:
        return (*first, "No test of effects could be done." if broken else "Nothing could be tested.")
    if not flagged:
        nearest = "The nearest test:" if len(shown) == 1 else f"The {len(shown)} tests with the smallest p:"
        return (*first, f"{'No other alarms' if broken else 'No alarms'}. {nearest}", ranked_table(data, shown))
    if len(flagged) > len(shown):
        first.append(f"The {len(shown)} most urgent of {alarm_count(data):,}:")
    return (*first, ranked_table(data, shown))


def alarm_count(data: Data) -> int:
    """Return how many alarms there are, listed or not."""
    return len(alarms(data)) + tests_of(unlisted(data, *ALARMS))


def ranked_table(data: Data, rows: Sequence[Row]) -> Table:
    """Return one row per test: experiments, metric, F, p, corrected p, verdict."""
    sides = kind_of_scan(data).sides
    correction = correction_name(data)
    header = (*sides, "metric", "F", "p", *([f"p ({correction})"] if correction else []), "verdict")
    body = []
    for row in rows:
        corrected = [p_value(row["p_adjusted"])] if correction else []
        numbers = (number(row["F_robust"], 3), p_value(row["p_robust"]), *corrected)
        verdict = verdict_words(row, share=row["metric"] in data["shares"])
        body.append((*(row[side] for side in sides), row["metric"], *numbers, verdict))
    return Table(header, tuple(body))


def verdict_words(row: Row, *, share: bool = False) -> str:
    """Return the verdict; where nothing was found, with what could have been missed.

    >>> verdict_words({"verdict": "nothing found", "could_miss": 0.1234})
    'nothing found, could miss ± 0.12'
    """
    if row["verdict"] == "nothing found" and row["could_miss"] is not None:
        return f"nothing found, could miss ± {size_words(row['could_miss'], share=share)}"
    return str(row["verdict"])


def explain_flagged(data: Data) -> list[Section]:
    """Show what the flagged tests look like: means, effects and words, one section each."""
    if kind_of_scan(data) is PAIRS:
        return [
            Section(
                f"{name_sides(data, pair)}: {pair['metric']}", (*effect_sentences(data, pair), means_table(data, pair))
            )
            for pair in data["effects"]
        ]
    return [
        Section(f"{name_sides(data, row)}: {row['metric']}", tuple(follow_up_sentences(data, row)))
        for row in alarms(data)
        if row["follow_ups"]
    ]


def means_table(data: Data, flagged: Row) -> Table:
    """Return the mean of every class: arms of the first experiment down, of the second across."""
    figures = effect_figures(data, flagged)
    rows, columns = flagged["arms"]
    header = (f"mean {flagged['metric']}", *(f"{flagged['b']}: {arm}" for arm in columns))
    body = tuple(
        (f"{flagged['a']}: {arm}", *(figures.mean(value) for value in means))
        for arm, means in zip(rows, flagged["means"], strict=True)
    )
    return Table(header, body)


def broken_tables(data: Data) -> tuple[str | Table, ...]:
    """List broken assignments, each once however many metrics it spoils."""
    sides = kind_of_scan(data).sides
    broken = list({tuple(row[side] for side in sides): row for row in with_verdict(data, "assignment broken")}.items())
    if not broken:
        return ()
    broken.sort(key=lambda item: 2.0 if item[1]["assignment_p"] is None else item[1]["assignment_p"])
    body = tuple((*place, p_value(row["assignment_p"]), row["note"]) for place, row in broken[:MOST_ROWS])
    left = len(broken) - len(body)
    more = (f"{left:,} more are in the plain data.",) if left else ()
    return (Table((*sides, "p", "what is wrong"), body), *more)
