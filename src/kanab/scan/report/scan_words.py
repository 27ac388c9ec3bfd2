"""What a scan says, in sentences, tables and the whole on a terminal."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from kanab.errors import listed
from kanab.report.digits import Digits, Row, error_figures, percent
from kanab.report.document import Alert, Part
from kanab.report.words import UNCHAINED, correction_name, ended, is_internal, spoken_arm, spoken_ps
from kanab.scan.stats.scan_verdicts import ALARMS, FEW_COULD, ORDER, WITHIN
from kanab.stats.srm import SAMPLE_RATIO_ALARM, alarm_limit
from kanab.tabular import Table, number, p_value

Data = Mapping[str, Any]

MOST_SENTENCES = 6
"""So many effects or levels of one flagged test are put into words; tables and plain data hold all."""

INTERNAL_SCAN = (
    "Internal: computed on personal data you may already read. Not k-anonymous, not checked against earlier outputs. "
    "To share: kanab scan --ledger L."
)

FEW_NAMED = 3
"""So few tests are named beside the reason why they cannot be done."""


MOST_ROWS = 20
"""So many tests are shown one by one; the others are counted."""

FEW_ROWS = 5
"""Where there are fewer alarms, the nearest of the other tests are shown beside them."""


@dataclass(frozen=True)
class ScanKind:
    """What differs between a scan of pairs and a scan of segments: names, not numbers."""

    rows: str
    sides: tuple[str, str]
    joined: str
    nothing: str
    alarm: str


PAIRS = ScanKind("pairs", ("a", "b"), "×", "no two experiments interfered", "interference")
SEGMENTS = ScanKind("segments", ("experiment", "covariate"), "by", "no effect differed between levels", "differs")


def kind_of_scan(data: Data) -> ScanKind:
    """Tell a scan of pairs from one of segments."""
    return PAIRS if "pairs" in data else SEGMENTS


def with_verdict(data: Data, *verdicts: str) -> list[Row]:
    """Return the tests that ended in one of these verdicts, most urgent first."""

    def urgency(row: Row) -> tuple[int, float, float]:
        adjusted, raw = (2.0 if row[name] is None else row[name] for name in ("p_adjusted", "p_robust"))
        return ORDER.index(row["verdict"]), adjusted, raw

    return sorted((row for row in data[kind_of_scan(data).rows] if row["verdict"] in verdicts), key=urgency)


def unlisted(data: Data, *verdicts: str) -> list[Row]:
    """Return the groups of tests with these verdicts that a large scan only counts."""
    return [group for group in (data.get("unlisted") or {"groups": ()})["groups"] if group["verdict"] in verdicts]


def alarms(data: Data) -> list[Row]:
    """Return the alarms: "interference", "differs" and "watch"."""
    return with_verdict(data, *ALARMS)


def name_sides(data: Data, row: Row) -> str:
    """Name the two sides of a test.

    >>> name_sides({"pairs": []}, {"a": "banner", "b": "price"})
    'banner × price'
    """
    kind = kind_of_scan(data)
    first, second = kind.sides
    return f"{row[first]} {kind.joined} {row[second]}"


def number_of(count: int, noun: str) -> str:
    """Return a number and its noun.

    >>> number_of(1, "pair"), number_of(4950, "pair")
    ('1 pair', '4,950 pairs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def scope_line(data: Data) -> str:
    """Say what was scanned, in one line."""
    kind = kind_of_scan(data)
    places = {(row[kind.sides[0]], row[kind.sides[1]]) for row in data[kind.rows]}
    metrics = f"{number_of(len(data['metrics']), 'metric')} ({listed(data['metrics'])})"
    if kind is PAIRS:
        experiments = number_of(len(data["experiments"]), "experiment")
        pairs = data["unlisted"]["tables"] if data.get("unlisted") else len(places)
        return f"{experiments}, {number_of(pairs, 'pair')}, {metrics}; at least {data['people']:,} people"
    experiments = number_of(len({first for first, _ in places}), "experiment")
    return f"{experiments} by {number_of(len({second for _, second in places}), 'covariate')}, {metrics}"


def expectation(data: Data) -> str:
    """Say how many small p-values chance alone would make, and how many there are."""
    tests = sum(data["tests"].values())
    if not tests:
        return "No test could be done; the reasons are below."
    expected = "fewer than one" if data["expected"] < 1 else f"about {data['expected']:,.0f}"
    observed = {0: "none does", 1: "1 does"}.get(data["observed"], f"{data['observed']:,} do")
    limit, nothing = f"{data['alpha']:g}", kind_of_scan(data).nothing
    if tests == 1:
        below = "is" if data["observed"] else "is not"
        return f"1 test, and its p {below} below {limit}; by chance it would be in {percent(data['alpha'])}."
    return f"If {nothing}, {expected} of {tests:,} tests would still show p < {limit}; {observed}."


def outcome(data: Data) -> str:
    """Say how many alarms are left after which correction over which family."""
    if not sum(data["tests"].values()):
        return ""
    alarm = kind_of_scan(data).alarm
    counts = data["verdicts"]
    alarmed = counts.get(alarm, 0)
    wording = {"interference": "interference in {}", "differs": "effects differ in {}"}[alarm]
    parts = [wording.format(number_of(alarmed, "test")) if alarmed else wording.format("no test")]
    if watch := counts.get("watch", 0):
        parts.append(f"{watch:,} to watch (a few people could have caused it)")
    if broken := counts.get("assignment broken", 0):
        parts.append(f"{broken:,} with a broken assignment")
    return f"{corrected_how(data)}: {'; '.join(parts)}."


def corrected_how(data: Data) -> str:
    """Name the correction and its family, as the start of a sentence."""
    correction = correction_name(data)
    if not correction:
        return "Without any correction"
    sizes = [count for count in data["tests"].values() if count]
    if max(sizes, default=0) <= 1 and data["family"] == "metric":
        return "With one test per metric there is nothing to correct"
    if len(sizes) == 1 or data["family"] == "all":
        family = f"over {number_of(sum(sizes), 'test')}"
    elif len(set(sizes)) == 1:
        family = f"over the {number_of(sizes[0], 'test')} of each metric"
    else:
        family = (
            f"over all tests of each metric, {listed(f'{name} {count:,}' for name, count in data['tests'].items())}"
        )
    return f"Corrected ({correction}, {family})"


def rest_sentences(data: Data) -> list[str]:
    """Sum up the tests that found nothing, per metric, with what they could have missed."""
    sentences = []
    for metric in data["metrics"]:
        quiet, clear = (
            [row for row in (*with_verdict(data, verdict), *unlisted(data, verdict)) if row["metric"] == metric]
            for verdict in ("nothing found", "clear within tolerance")
        )
        if count := count_tests(quiet):
            sentences.append(f"{metric}: {number_of(count, 'test')}, nothing found{_missed(data, metric, quiet)}.")
        if count := count_tests(clear):
            there = count_tests(row for row in clear if row["note"] == WITHIN)
            also = f" ({there:,} of them not zero, but smaller than it)" if there else ""
            sentences.append(f"{metric}: {number_of(count, 'test')}, clear within the tolerance{also}.")
    return sentences


def count_tests(rows: Iterable[Row]) -> int:
    """Return how many tests some rows, and groups of tests that are not listed, stand for."""
    return sum(row.get("tests", 1) for row in rows)


def size_words(size: float, *, share: bool) -> str:
    """Return a size to two digits; of a 0/1 metric in percentage points.

    >>> size_words(0.01234, share=True), size_words(0.01234, share=False)
    ('1.2 points', '0.012')
    """
    return f"{number(size * 100, 2)} points" if share else number(size, 2)


def _missed(data: Data, metric: str, quiet: Iterable[Row]) -> str:
    """Say how large a difference of effects could be without having been seen: the usual and the worst case."""
    if data.get("unlisted"):
        sizes = data["unlisted"]["could_miss"].get(metric)
    else:
        known = [size for row in quiet if (size := row["could_miss"]) is not None and math.isfinite(size)]
        sizes = (median(known), max(known)) if known else None
    if sizes is None:
        return ""
    usual, worst = (size_words(size, share=metric in data["shares"]) for size in sizes)
    median_worst = "" if usual == worst else f" (median; at worst ± {worst})"
    return f"; a difference of effects of up to ± {usual} could have been missed{median_worst}"


def rows_repeat(data: Data) -> list[str]:
    """Return the cautions that rows are not people, which stand first among the notes."""
    return [note for note in data["notes"] if note.startswith("Rows are not people: ")]


def assignment_sentences(data: Data) -> list[str]:
    """Say whether people were assigned as if by independent coins."""
    kind = kind_of_scan(data)
    broken = with_verdict(data, "assignment broken")
    if rows_repeat(data):
        return ["Whether people were assigned as planned was not checked: rows are not people."]
    tests = "pairs" if kind is PAIRS else "covariates"
    limit = f"{alarm_limit(SAMPLE_RATIO_ALARM)}, corrected over all {tests} by Holm"
    if kind is SEGMENTS:
        if not broken:
            return [f"No sign that the arms are spread unevenly over any covariate ({limit})."]
        return [
            f"Where arms are spread unevenly over a covariate ({limit}), a difference says nothing about effects: find "
            "the cause first. Perhaps the covariate was measured after assignment."
        ]
    sentences = []
    if broken:
        sentences.append(
            f"A broken assignment ({limit}) is not an interaction: find its cause before comparing these experiments. "
            "If two of them were assigned together on purpose, declare their joint shares (--joint-shares)."
        )
    elif data.get("unlisted") or any(row["assignment_p"] is not None for row in data[kind.rows]):
        sentences.append(f"No sign that the assignment to one experiment depends on another ({limit}).")
    sentences += _joint_sentences(data, broken)
    if not data["enrollment_checked"]:
        sentences.append(
            "Whether being in one experiment depends on the arm of another was not checked: "
            "the tables do not hold people outside the pair."
        )
    return sentences


def _joint_sentences(data: Data, broken: Iterable[Row]) -> list[str]:
    """Say which pairs were assigned together by plan, and what that means for the effects of each."""
    wrong = {(row["a"], row["b"]) for row in broken}
    pairs = data.get("joint_shares", ())
    kept = [f"{pair['a']} × {pair['b']}" for pair in pairs if (pair["a"], pair["b"]) not in wrong]
    mixed = [f"{pair['a']} × {pair['b']}" for pair in pairs if not pair["independent"]]
    sentences = [f"No sign that people are not in the joint shares that were planned: {listed(kept)}."] if kept else []
    if mixed:
        sentences.append(
            "Assigned together, so that the plain effect of either experiment holds part of the other's: "
            f"{listed(mixed)}. Compare arms within the arms of the other."
        )
    return sentences


def untestable_sentences(data: Data) -> list[str]:
    """List the tests that cannot be done, by reason; of a few also the names."""
    reasons: dict[str, list[Row]] = {}
    for row in (*with_verdict(data, "not testable"), *unlisted(data, "not testable")):
        reasons.setdefault(row["note"] or "no F", []).append(row)
    sentences = []
    for reason, rows in sorted(reasons.items(), key=lambda item: -count_tests(item[1])):
        count = count_tests(rows)
        few = [row for row in rows if "tests" not in row] if count <= FEW_NAMED else []
        names = listed(f"{name_sides(data, row)} on {row['metric']}" for row in few)
        sentences.append(f"{number_of(count, 'test')}: {reason}{f' ({names})' if names else ''}.")
    return sentences


def effect_figures(data: Data, flagged: Row) -> Digits:
    """Choose decimals for two digits of the smallest standard error; percentages for a 0/1 metric."""
    return error_figures([effect["se"] for effect in flagged["effects"]], share=flagged["metric"] in data["shares"])


def effect_sentences(data: Data, flagged: Row) -> list[str]:
    """Describe each experiment's effect within the arms of the other, one sentence per experiment and arm."""
    figures = effect_figures(data, flagged)
    groups: dict[tuple[str, str], list[Row]] = {}
    for effect in flagged["effects"]:
        groups.setdefault((effect["experiment"], effect["arm"]), []).append(effect)
    sentences = []
    for (experiment, arm), effects in groups.items():
        changes = [figures.change(effect["effect"], signed=True) for effect in effects]
        parts = [f"{change} where ‘{effect['level']}’" for change, effect in zip(changes, effects, strict=True)]
        parts[0] = f"{changes[0]} where {effects[0]['within']} shows ‘{effects[0]['level']}’"
        sides = f"{arm} − {effects[0]['control']}"
        sentences.append(f"{experiment}'s effect on {flagged['metric']} ({sides}) is {', '.join(parts)}.")
    left = len(sentences) - MOST_SENTENCES
    if left <= 0:
        return sentences
    return [*sentences[:MOST_SENTENCES], f"{number_of(left, 'more effect')} in the plain data."]


def follow_up_sentences(data: Data, test: Row) -> list[str]:
    """Describe the levels that clearly stand out, one sentence each, and how many others do not."""
    rows, alpha = test["follow_ups"], data["alpha"]
    clear = [row for row in rows if row["p_adjusted"] is not None and row["p_adjusted"] < alpha]
    clearest = sorted(clear, key=lambda row: row["p_adjusted"])[:MOST_SENTENCES]
    sentences = [_follow_up_sentence(row, share=test["metric"] in data["shares"]) for row in clearest]
    if len(clearest) < len(clear):
        sentences.append(f"These are the {len(clearest)} clearest of {len(clear)} such differences.")
    if rows and not clear:
        sentences.append(f"No single level of {test['covariate']} clearly differs from the rest.")
    elif left := len(rows) - len(clear):
        sentences.append(f"{number_of(left, 'other comparison')} of a level with the rest: nothing clear.")
    return sentences


def _follow_up_sentence(row: Row, *, share: bool) -> str:
    figures = error_figures([row["se"]], share=share)
    here, rest, difference = (figures.change(row[side], signed=True) for side in ("effect", "rest", "difference"))
    return (
        f"Where {row['covariate']} is {row['level']}, {spoken_arm(row['arm'])} changes {row['metric']} by {here}, "
        f"elsewhere by {rest}: a difference of {difference} ± {figures.bare(row['se'])} (one standard error), "
        f"{spoken_ps(row)}."
    )


def privacy_sentences(data: Data) -> list[str]:
    """Say whether the scan may be shared, and at what k."""
    k = data["privacy"]["k"]
    if is_internal(data):
        return [INTERNAL_SCAN, f"No class with fewer than k = {k} people is tested."]
    sentences = [f"k-anonymous at k = {k}: no class with fewer people is tested or shown."]
    return sentences if data["privacy"]["chained"] else [*sentences, UNCHAINED]


def note_sentences(data: Data) -> list[str]:
    """List the notes of the scan itself, and remarks on tests, each once with how many it concerns."""
    sentences = [ended(text) for text in dict.fromkeys(data["notes"])]
    remarks: Counter[str] = Counter()
    for row in (*data[kind_of_scan(data).rows], *unlisted(data, *ORDER)):
        if row["note"] not in ("", FEW_COULD, WITHIN) and row["verdict"] not in ("not testable", "assignment broken"):
            remarks[row["note"]] += row.get("tests", 1)
    return [*sentences, *(f"{number_of(count, 'test')}: {ended(text)}" for text, count in remarks.items())]


def method_sentences(data: Data) -> list[str]:
    """Say what a statistician asks next: the test, the correction, and what “watch” means."""
    kind = kind_of_scan(data)
    tested = "whether effects add up" if kind is PAIRS else "whether the effect is the same at every level"
    sentences = [f"F is the robust test of {tested}; the pooled F, which assumes one variance, is in the plain data."]
    if correction_name(data):
        few = data["correction"] in ("bh", "by")
        rate = "the expected share of false ones among the alarms" if few else "the chance of even one false alarm"
        sentences.append(f"{corrected_how(data)}: {rate} is at most {percent(data['alpha'])} in a family.")
    if data["verdicts"].get("watch"):
        sentences.append("“Watch”: p is small, but a few people with extreme values could have caused it.")
    return sentences


def strongest(data: Data) -> list[Row]:
    """Return what is shown one by one: all alarms, or the nearest to one, but not too many."""
    flagged = alarms(data)
    if len(flagged) >= FEW_ROWS:
        return flagged[:MOST_ROWS]
    quiet = with_verdict(data, "nothing found", "clear within tolerance")
    nearest = sorted((row for row in quiet if row["p_robust"] is not None), key=lambda row: row["p_robust"])
    return [*flagged, *nearest[: FEW_ROWS - len(flagged)]]


def attention(data: Data) -> tuple[Part, ...]:
    """Return the ranked table, and in words whether there is any alarm at all."""
    flagged, shown = alarms(data), strongest(data)
    broken = list(dict.fromkeys(name_sides(data, row) for row in with_verdict(data, "assignment broken")))
    first: list[Part] = [Alert(caution, "alarm") for caution in rows_repeat(data)]
    if broken:
        first.append(f"ALARM: the assignment of {listed(broken, most=FEW_NAMED)} is broken (see Assignment).")
    if not shown:
        return (*first, "No test of effects could be done." if broken else "Nothing could be tested.")
    if not flagged:
        nearest = "The nearest test:" if len(shown) == 1 else f"The {len(shown)} tests with the smallest p:"
        return (*first, f"{'No other alarms' if broken else 'No alarms'}. {nearest}", ranked_table(data, shown))
    if len(flagged) > len(shown):
        alarmed = len(flagged) + count_tests(unlisted(data, *ALARMS))
        first.append(f"The {len(shown)} most urgent of {alarmed:,}:")
    return (*first, ranked_table(data, shown))


def ranked_table(data: Data, rows: Sequence[Row]) -> Table:
    """Return one row per test: its two sides, metric, F, p, corrected p, verdict."""
    correction = correction_name(data)
    kind = kind_of_scan(data)
    first = "pair" if kind is PAIRS else "experiment by covariate"
    header = (first, "metric", "F", "p", *([f"p ({correction})"] if correction else []), "verdict")
    body = []
    for row in rows:
        corrected = [p_value(row["p_adjusted"])] if correction else []
        numbers = (number(row["F_robust"], 3), p_value(row["p_robust"]), *corrected)
        verdict = verdict_words(row, share=row["metric"] in data["shares"])
        body.append((name_sides(data, row), row["metric"], *numbers, verdict))
    return Table(header, tuple(body))


def verdict_words(row: Row, *, share: bool = False) -> str:
    """Return the verdict; where nothing was found, with what could have been missed.

    >>> verdict_words({"verdict": "nothing found", "could_miss": 0.1234})
    'nothing found, could miss ± 0.12'
    """
    if row["verdict"] == "nothing found" and row["could_miss"] is not None:
        return f"nothing found, could miss ± {size_words(row['could_miss'], share=share)}"
    return str(row["verdict"])


def follow_ups_table(data: Data, test: Row) -> Table:
    """Return every level against the rest."""
    figures = error_figures([row["se"] for row in test["follow_ups"]], share=test["metric"] in data["shares"])
    rows = tuple(
        (
            row["level"], f"{row['arm']} − {row['control']}",
            *(figures.change(row[side], signed=True) for side in ("effect", "rest", "difference")),
            figures.bare(row["se"]), p_value(row["p"]), p_value(row["p_adjusted"]),
        )
        for row in test["follow_ups"]
    )  # fmt: skip
    return Table((test["covariate"], "arms", "effect", "in the rest", "difference", "SE", "p", "corrected p"), rows)


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
    broken = list({name_sides(data, row): row for row in with_verdict(data, "assignment broken")}.items())
    if not broken:
        return ()
    broken.sort(key=lambda item: 2.0 if item[1]["assignment_p"] is None else item[1]["assignment_p"])
    body = tuple((name, p_value(row["assignment_p"]), row["note"]) for name, row in broken[:MOST_ROWS])
    left = len(broken) - len(body)
    more = (f"{left:,} more are in the plain data.",) if left else ()
    return (Table((ranked_table(data, ()).header[0], "p", "what is wrong"), body), *more)
