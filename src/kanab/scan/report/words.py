"""What a scan says, in sentences that the terminal and the report share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from kanab.errors import listed
from kanab.report.figures import Figures, Row, error_figures, percent
from kanab.report.words import CORRECTIONS, UNCHAINED, spoken_arm, spoken_ps
from kanab.scan.stats.verdicts import ALARMS, CARRIED, ORDER, WITHIN
from kanab.tabular import number

Data = Mapping[str, Any]

MOST_SENTENCES = 6
"""So many effects or levels of one flagged test are put into words; tables and plain data hold all."""

MOST_NAMES = 3
"""So few tests are named beside the reason why they cannot be done."""


@dataclass(frozen=True)
class Look:
    """What differs between a scan of pairs and a scan of segments: names, not numbers."""

    rows: str
    sides: tuple[str, str]
    joined: str
    nothing: str
    alarm: str


PAIRS = Look("pairs", ("a", "b"), "×", "no two experiments interfered", "interference")
SEGMENTS = Look("segments", ("experiment", "covariate"), "by", "no effect differed between levels", "differs")


def look_of(data: Data) -> Look:
    """Is this a scan of pairs or of segments?"""
    return PAIRS if "pairs" in data else SEGMENTS


def _urgency(row: Row) -> tuple[int, float, float]:
    adjusted, raw = (2.0 if row[name] is None else row[name] for name in ("p_adjusted", "p_robust"))
    return ORDER.index(row["verdict"]), adjusted, raw


def with_verdict(data: Data, *verdicts: str) -> list[Row]:
    """The tests that ended in one of these verdicts, most urgent first."""
    return sorted((row for row in data[look_of(data).rows] if row["verdict"] in verdicts), key=_urgency)


def alarms(data: Data) -> list[Row]:
    """The tests that ring: "interference", "differs" and "watch"."""
    return with_verdict(data, *ALARMS)


def named(data: Data, row: Row) -> str:
    """The two sides of a test.

    >>> named({"pairs": []}, {"a": "banner", "b": "price"})
    'banner × price'
    """
    look = look_of(data)
    first, second = look.sides
    return f"{row[first]} {look.joined} {row[second]}"


def several(count: int, noun: str) -> str:
    """A number and its noun.

    >>> several(1, "pair"), several(4950, "pair")
    ('1 pair', '4,950 pairs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def scanned(data: Data) -> str:
    """What was scanned, in one line."""
    look = look_of(data)
    places = {(row[look.sides[0]], row[look.sides[1]]) for row in data[look.rows]}
    metrics = f"{several(len(data['metrics']), 'metric')} ({listed(data['metrics'])})"
    if look is PAIRS:
        experiments = several(len(data["experiments"]), "experiment")
        return f"{experiments}, {several(len(places), 'pair')}, {metrics}; at least {data['people']:,} people"
    experiments = several(len({first for first, _ in places}), "experiment")
    return f"{experiments} by {several(len({second for _, second in places}), 'covariate')}, {metrics}"


def expectation(data: Data) -> str:
    """How many small p-values would chance alone make, and how many are there?"""
    tests = sum(data["tests"].values())
    if not tests:
        return "No test could be done; the reasons are below."
    expected = "fewer than one" if data["expected"] < 1 else f"about {data['expected']:,.0f}"
    found = {0: "none does", 1: "1 does"}.get(data["observed"], f"{data['observed']:,} do")
    if tests == 1:
        below = "is" if data["observed"] else "is not"
        return f"1 test, and its p {below} below {data['alpha']:g}; by chance it would be in {percent(data['alpha'])}."
    return f"If {look_of(data).nothing}, {expected} of {tests:,} tests would still show p < {data['alpha']:g}; {found}."


def outcome(data: Data) -> str:
    """How many alarms are left after which correction over which family?"""
    if not sum(data["tests"].values()):
        return ""
    alarm = look_of(data).alarm
    counts = data["verdicts"]
    ringing = counts.get(alarm, 0)
    plain = {"interference": "interference in {}", "differs": "effects differ in {}"}[alarm]
    found = [plain.format(several(ringing, "test")) if ringing else plain.format("no test")]
    if watch := counts.get("watch", 0):
        found.append(f"{watch:,} to watch (a few people could have made it)")
    if broken := counts.get("assignment broken", 0):
        found.append(f"{broken:,} with a broken assignment")
    return f"{corrected_how(data)}: {'; '.join(found)}."


def corrected_how(data: Data) -> str:
    """The correction and its family, as the start of a sentence."""
    method = CORRECTIONS.get(data["correction"], data["correction"])
    if not method:
        return "Without any correction"
    sizes = [count for count in data["tests"].values() if count]
    if max(sizes, default=0) <= 1 and data["family"] == "metric":
        return "With one test per metric there is nothing to correct"
    if len(sizes) == 1 or data["family"] == "all":
        family = f"over {several(sum(sizes), 'test')}"
    elif len(set(sizes)) == 1:
        family = f"over the {several(sizes[0], 'test')} of each metric"
    else:
        family = (
            f"over all tests of each metric, {listed(f'{name} {count:,}' for name, count in data['tests'].items())}"
        )
    return f"Corrected ({method}, {family})"


def rest_sentences(data: Data) -> list[str]:
    """The tests that found nothing, per metric, with what they could have missed."""
    found = []
    for metric in data["metrics"]:
        own = [row for row in data[look_of(data).rows] if row["metric"] == metric]
        quiet = [row for row in own if row["verdict"] == "nothing found"]
        clear = [row for row in own if row["verdict"] == "clear within tolerance"]
        if quiet:
            missed = _missed(quiet, share=metric in data["shares"])
            found.append(f"{metric}: {several(len(quiet), 'test')}, nothing found{missed}.")
        if clear:
            there = len([row for row in clear if row["note"] == WITHIN])
            also = f" ({there:,} of them not zero, but smaller than it)" if there else ""
            found.append(f"{metric}: {several(len(clear), 'test')}, clear within the tolerance{also}.")
    return found


def size_words(size: float, *, share: bool) -> str:
    """A size to two digits; of a 0/1 metric in percentage points.

    >>> size_words(0.01234, share=True), size_words(0.01234, share=False)
    ('1.2 points', '0.012')
    """
    return f"{number(size * 100, 2)} points" if share else number(size, 2)


def _missed(rows: Iterable[Row], *, share: bool) -> str:
    """What a difference of effects could be without having been seen: the usual and the worst case."""
    sizes = [size for row in rows if (size := row["could_miss"]) is not None and math.isfinite(size)]
    if not sizes:
        return ""
    usual, worst = (size_words(size, share=share) for size in (median(sizes), max(sizes)))
    if usual == worst:
        return f"; a difference of effects of up to ± {usual} could have been missed"
    return f"; a difference of effects of up to ± {usual} could have been missed (median; at worst ± {worst})"


def assignment_sentences(data: Data) -> list[str]:
    """Were people assigned as if by independent coins?"""
    look = look_of(data)
    broken = with_verdict(data, "assignment broken")
    if look is SEGMENTS:
        if not broken:
            return ["No sign that the arms are spread unevenly over any covariate."]
        return [
            "Where arms are spread unevenly over a covariate, a difference says nothing about effects: find the cause "
            "first. Perhaps the covariate was measured after assignment."
        ]
    sentences = []
    if broken:
        sentences.append(
            "A broken assignment is not an interaction: find its cause before comparing these experiments."
        )
    elif any(row["assignment_p"] is not None for row in data[look.rows]):
        sentences.append("No sign that the assignment to one experiment depends on another.")
    if not data["enrollment_checked"]:
        sentences.append(
            "Whether being in one experiment depends on the arm of another was not checked: "
            "the tables do not hold people outside the pair."
        )
    return sentences


def untestable_sentences(data: Data) -> list[str]:
    """The tests that cannot be done, by reason; of a few also the names."""
    reasons: dict[str, list[Row]] = {}
    for row in with_verdict(data, "not testable"):
        reasons.setdefault(row["note"] or "no F", []).append(row)
    found = []
    for reason, rows in sorted(reasons.items(), key=lambda item: -len(item[1])):
        names = listed(f"{named(data, row)} on {row['metric']}" for row in rows) if len(rows) <= MOST_NAMES else ""
        found.append(f"{several(len(rows), 'test')}: {reason}{f' ({names})' if names else ''}.")
    return found


def effect_figures(data: Data, flagged: Row) -> Figures:
    """Enough decimals for two digits of the smallest standard error; percentages for a 0/1 metric."""
    return error_figures([one["se"] for one in flagged["effects"]], share=flagged["metric"] in data["shares"])


def effect_sentences(data: Data, flagged: Row) -> list[str]:
    """Each experiment's effect within the arms of the other, one sentence per experiment and arm."""
    figures = effect_figures(data, flagged)
    groups: dict[tuple[str, str], list[Row]] = {}
    for one in flagged["effects"]:
        groups.setdefault((one["experiment"], one["arm"]), []).append(one)
    found = []
    for (experiment, arm), own in groups.items():
        first, *others = [f"{figures.change(one['effect'], signed=True)} where" for one in own]
        places = [f"‘{one['level']}’" for one in own]
        parts = [f"{first} {own[0]['within']} shows {places[0]}"]
        parts += [f"{value} {place}" for value, place in zip(others, places[1:], strict=True)]
        sides = f"{arm} − {own[0]['control']}"
        found.append(f"{experiment}'s effect on {flagged['metric']} ({sides}) is {', '.join(parts)}.")
    left = len(found) - MOST_SENTENCES
    return found if left <= 0 else [*found[:MOST_SENTENCES], f"{several(left, 'more effect')} in the plain data."]


def follow_up_sentences(data: Data, test: Row) -> list[str]:
    """The levels that clearly stand out, one sentence each, and how many others do not."""
    own, alpha = test["follow_ups"], data["alpha"]
    clear = [one for one in own if one["p_adjusted"] is not None and one["p_adjusted"] < alpha]
    told = sorted(clear, key=lambda one: one["p_adjusted"])[:MOST_SENTENCES]
    found = [_follow_up_sentence(one, share=test["metric"] in data["shares"]) for one in told]
    if len(told) < len(clear):
        found.append(f"These are the {len(told)} clearest of {len(clear)} such differences.")
    if own and not clear:
        found.append(f"No single level of {test['covariate']} clearly differs from the rest.")
    elif left := len(own) - len(clear):
        found.append(f"{several(left, 'other comparison')} of a level with the rest: nothing clear.")
    return found


def _follow_up_sentence(one: Row, *, share: bool) -> str:
    figures = error_figures([one["se"]], share=share)
    here, rest, difference = (figures.change(one[side], signed=True) for side in ("effect", "rest", "difference"))
    return (
        f"Where {one['covariate']} is {one['level']}, {spoken_arm(one['arm'])} changes {one['metric']} by {here}, "
        f"elsewhere by {rest}: a difference of {difference} ± {figures.bare(one['se'])} (one standard error), "
        f"{spoken_ps(one)}."
    )


def privacy_sentences(data: Data) -> list[str]:
    """Which tables could be published, which stay with the curator, and why."""
    privacy = data["privacy"]
    found = [f"k-anonymous at k = {privacy['k']}: no class with fewer people is tested or shown."]
    shows: Mapping[str, str] = privacy.get("shows", {})
    fine = [name for name, what in shows.items() if what == "tables"]
    over = [name for name, what in shows.items() if what != "tables"]
    if fine:
        found.append(f"Within the pair budget: {listed(fine)}. All pair tables could be published.")
    if over:
        found.append(
            f"Over the pair budget: {listed(over)}. F and p are given to three digits, tables of flagged pairs only; "
            "the rest stays with the curator. The tables of all pairs hold too many independent numbers for so many "
            "people: together they would tell single values, however large the classes are (docs/privacy.md)."
        )
    if not privacy["chained"]:
        found.append(UNCHAINED)
    return found


def note_sentences(data: Data) -> list[str]:
    """The notes of the scan itself, and remarks on tests, each once with how many it concerns."""
    found = [_ended(text) for text in dict.fromkeys(data["notes"])]
    remarks: dict[str, int] = {}
    for row in data[look_of(data).rows]:
        if row["note"] not in ("", CARRIED, WITHIN) and row["verdict"] not in ("not testable", "assignment broken"):
            remarks[row["note"]] = remarks.get(row["note"], 0) + 1
    return [*found, *(f"{several(count, 'test')}: {_ended(text)}" for text, count in remarks.items())]


def method_sentences(data: Data) -> list[str]:
    """What a statistician asks next."""
    look = look_of(data)
    tested = "whether effects add up" if look is PAIRS else "whether the effect is the same at every level"
    found = [f"F is the robust test of {tested}; the pooled F, which assumes one variance, is in the plain data."]
    if CORRECTIONS.get(data["correction"], data["correction"]):
        few = data["correction"] in ("bh", "by")
        rate = "the expected share of false ones among the alarms" if few else "the chance of even one false alarm"
        found.append(f"{corrected_how(data)}: {rate} is at most {percent(data['alpha'])} in a family.")
    if data["verdicts"].get("watch"):
        found.append("“Watch”: p is small, but a few people with extreme values could have made it.")
    return found


def _ended(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
