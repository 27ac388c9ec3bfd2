"""Test, correct and judge the tables of a scan: its outcomes as columns and as rows, and how many were expected."""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from kanab.errors import LevelError, listed
from kanab.scan.pair_tables import Pairs, Whole
from kanab.scan.stats.assignment import check_assignment, combine_checks
from kanab.scan.stats.f_tests import EQUAL_LEVELS, FStatistics, FTests, Texts, run_f_tests
from kanab.scan.stats.outlier_guard import GuardedTests, critical_values, guard_tests, largest_contrast, widen_critical
from kanab.scan.stats.scan_verdicts import (
    ALARMS,
    ORDER,
    Evidence,
    Rules,
    Verdict,
    correct_families,
    decide,
    interval_levels,
)
from kanab.scan.stats.table_blocks import Flags, MetricTables, Places, TableBlock, tables_last
from kanab.stats.ftest import FTest
from kanab.stats.gram import Floats
from kanab.tally.metric import Metric
from kanab.tally.tally import Tally

NOT_HELD = "the table does not hold this metric"
SMALL = "a class holds fewer than k = {k} people"
NOBODY = {"interference": "nobody is in both experiments", "differs": "nobody has been counted"}
FEW = {
    "interference": "fewer than k = {k} people are in both experiments",
    "differs": "fewer than k = {k} people have been counted",
}

Alarm = Literal["interference", "differs"]

MOST_LISTED = 20_000
"""So many tests are listed as plain data; of more than that the most urgent ones, and the others are counted."""


# ── testing ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Lines:
    """Everything a scan computed, one number per table and metric; not a number where there is none.

    Line i is metric i mod m of table i div m. ``check`` says which assignment check has the
    smallest p (see ``assignment.CHECKS``).
    """

    F: Floats
    df: Floats
    p: Floats
    F_robust: Floats
    df_robust: Floats
    p_robust: Floats
    p_adjusted: Floats
    p_guarded: Floats
    could_miss: Floats
    assignment_p: Floats
    check: Places
    variance: Texts
    verdict: Texts
    note: Texts


@dataclass(frozen=True, eq=False)
class _TestedMetric:
    """One metric of a block: all its lines and why some were not tested, and the lines that were."""

    lines: Places
    reasons: Texts
    variance: str
    open: Places
    tested: FTests
    guarded: GuardedTests
    decides: FStatistics
    careful: Floats


Deciding = Callable[[int, str], FTest]
"""The test of a table (by its number) and a metric that decides, where that is not the robust F."""


def scan_blocks(
    blocks: Iterable[TableBlock], tables: int, metrics: Mapping[str, Metric], rules: Rules, alarm: Alarm, *,
    planned: Mapping[int, Floats] | None = None, deciding: Deciding | None = None,
) -> Lines:  # fmt: skip
    """Test, correct and judge every table of the blocks; ``planned`` are joint shares by table.

    The robust F decides where its guarded version agrees, or else the test that is given.
    """
    names = list(metrics)
    parts: list[_TestedMetric] = []
    assignment_p, check = np.full(tables, np.nan), np.zeros(tables, dtype=np.intp)
    for block in blocks:
        p, worst = combine_checks(check_assignment(block, planned))
        reasons = _reasons(block.people, rules.k, alarm)
        assignment_p[block.places] = np.nan if rules.rows_repeat else np.where(reasons == "", p, np.nan)
        check[block.places] = worst
        for part in block.metrics:
            lines = block.places * len(names) + names.index(part.metric.name)
            metric = _test(lines, reasons, part, rules, alarm)
            parts.append(metric if deciding is None else _decided(metric, deciding, names))
    return _judge(parts, (assignment_p, check), names, rules, alarm)


def _test(lines: Places, reasons: Texts, part: MetricTables, rules: Rules, alarm: Alarm) -> _TestedMetric:
    """Test one metric of a block; tables with small classes are left out of everything."""
    reasons = np.where(reasons == "", _reasons(part.counts, rules.k, alarm), reasons)
    fine = np.flatnonzero(reasons == "")
    tested = run_f_tests(part.select(fine))
    guarded = guard_tests(tested)
    reasons[fine] = tested.problem
    return _TestedMetric(lines, reasons, part.variance, lines[fine], tested, guarded, tested.robust, guarded.p)


def _decided(part: _TestedMetric, deciding: Deciding, names: Sequence[str]) -> _TestedMetric:
    """Return the metric with another test in the place of the robust F, which needs no guard."""
    tests = [deciding(line // len(names), names[line % len(names)]) for line in part.open.tolist()]
    numbers = np.full((len(tests), 4), np.nan)
    reasons = part.reasons.copy()
    for place, test in enumerate(tests):
        why = test.note
        if test.F is not None and test.df is not None:
            numbers[place], why = (test.F, *test.df, test.p), ""
        reasons[part.lines == part.open[place]] = why
    decides = FStatistics(*numbers.T)
    return replace(part, reasons=reasons, decides=decides, careful=decides.p)


def _reasons(people: Whole, k: int, alarm: Alarm) -> Texts:
    """Say why a table must not be tested, without a number from it; "" if it may be."""
    count = tables_last(people.astype(np.int64))
    total = count.sum(axis=(1, 2))
    small = np.any((count > 0) & (count < k), axis=(1, 2))
    texts = np.full(len(count), "", dtype=object)
    texts[small], texts[total < k], texts[total == 0] = SMALL.format(k=k), FEW[alarm].format(k=k), NOBODY[alarm]
    return texts


def _judge(
    parts: Sequence[_TestedMetric], by_table: tuple[Floats, Places], names: Sequence[str], rules: Rules, alarm: Alarm
) -> Lines:
    """Correct over families, ask how much could be missed, and say what follows."""
    size = len(by_table[0]) * len(names)

    def numbers(values: Callable[[_TestedMetric], Floats], *width: int) -> Floats:
        """Return one number (or several) per line; not a number where nothing was tested."""
        column = np.full((size, *width), np.nan)
        for part in parts:
            column[part.open] = values(part)
        return column

    def texts(values: Callable[[_TestedMetric], Texts | str], otherwise: str) -> Texts:
        column = np.full(size, otherwise, dtype=object)
        for part in parts:
            column[part.lines] = values(part)
        return column

    def missed(part: _TestedMetric) -> Floats:
        return largest_contrast(part.tested.cells, part.tested.variances, limit[part.open])

    def missed_guarded(part: _TestedMetric) -> Floats:
        critical = widen_critical(limit[part.open], part.guarded.pull)
        return largest_contrast(part.tested.cells, part.guarded.variances, critical)

    families = rules.families(np.arange(size) % len(names))
    p_robust = numbers(lambda part: part.decides.p)
    p_adjusted = correct_families(p_robust, families, rules.correction)
    level = interval_levels(p_adjusted, families, rules)
    limit = numbers(lambda part: critical_values(part.tested, level[part.open]))
    assignment_p, check = by_table
    checked = correct_families(assignment_p, np.zeros(len(assignment_p), dtype=np.intp), "holm")
    evidence = Evidence(
        p_adjusted=p_adjusted,
        p_guarded=correct_families(numbers(lambda part: part.careful), families, rules.correction),
        could_miss=numbers(missed),
        could_miss_guarded=numbers(missed_guarded) if rules.tolerance else np.full(size, np.nan),
        assignment=np.repeat(checked, len(names)),
        tolerance=np.tile([rules.tolerance.get(name, np.nan) for name in names], len(assignment_p)),
        untested=np.isnan(p_robust),
    )
    verdict, note = decide(evidence, rules.alpha, alarm)
    variance = texts(lambda part: part.variance, "")
    assumed = variance == "by_arm"
    note[assumed] = [f"{text}; {EQUAL_LEVELS}" if text else EQUAL_LEVELS for text in note[assumed]]
    return Lines(
        F=numbers(lambda part: part.tested.pooled.F),
        df=numbers(lambda part: part.tested.pooled.df, 2),
        p=numbers(lambda part: part.tested.pooled.p),
        F_robust=numbers(lambda part: part.decides.F),
        df_robust=numbers(lambda part: part.decides.df, 2),
        p_robust=p_robust,
        p_adjusted=p_adjusted,
        p_guarded=evidence.p_guarded,
        could_miss=evidence.could_miss,
        assignment_p=np.repeat(assignment_p, len(names)),
        check=np.repeat(check, len(names)),
        variance=variance,
        verdict=verdict,
        note=np.where(verdict == "not testable", texts(lambda part: part.reasons, NOT_HELD), note),
    )


# ── what a scan returns ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One test of a scan. Numbers are None where the test cannot be done; ``note`` says why.

    ``F``, ``df`` and ``p`` are the paper's pooled test; the robust one carries the verdict, and
    ``p_adjusted`` is its p, corrected over the family. ``could_miss`` is the largest difference
    of effects that the corrected interval does not rule out.
    """

    metric: str
    F: float | None
    df: tuple[float, float] | None
    p: float | None
    variance: str
    F_robust: float | None
    df_robust: tuple[float, float] | None
    p_robust: float | None
    p_adjusted: float | None
    assignment_p: float | None
    could_miss: float | None
    verdict: Verdict
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the test as plain data."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("df", "df_robust"):  # JSON has no infinity: χ² has no second degrees of freedom
            if values[name] is not None:
                values[name] = [None if math.isinf(part) else part for part in values[name]]
        return values


Row = TypeVar("Row", bound=Outcome)


@dataclass(frozen=True, eq=False)
class Scan(ABC, Generic[Row]):
    """Lines and the rules by which they were judged; each kind of scan says what a row is."""

    metrics: tuple[Metric, ...]
    lines: Lines
    rules: Rules

    def __len__(self) -> int:
        return len(self.lines.p)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row per table and metric."""
        return tuple(self.rows_of(np.arange(len(self))))

    def rows_of(self, lines: Places) -> list[Row]:
        """Return some of the lines as rows."""
        return [self._row(*line) for line in zip(lines.tolist(), self._outcomes(lines), strict=True)]

    @abstractmethod
    def _row(self, line: int, values: dict[str, Any]) -> Row:
        """Return one line as a row, from what all kinds of scans say of it."""

    @cached_property
    def flagged_lines(self) -> Places:
        """The numbers of the alarms' lines, what needs attention first, then by p."""
        alarms = np.flatnonzero(np.isin(self.lines.verdict.astype(str), ALARMS))
        urgency = np.array([ORDER.index(verdict) for verdict in self.lines.verdict[alarms]], dtype=np.intp)
        return np.asarray(alarms[np.lexsort((self.lines.p_robust[alarms], self.lines.p_adjusted[alarms], urgency))])

    @property
    def flagged(self) -> list[Row]:
        """The alarms: "interference" or "differs", and "watch"."""
        return self.rows_of(self.flagged_lines)

    @cached_property
    def listed_lines(self) -> Places:
        """The lines that are listed as plain data: all, or of many the most urgent ones."""
        if len(self) <= MOST_LISTED:
            return np.arange(len(self))
        verdict, p = self.lines.verdict.astype(str), self.lines.p_robust
        quiet = np.isin(verdict, ("nothing found", "clear within tolerance"))  # of these the nearest to an alarm
        urgency = np.where(np.isin(verdict, ALARMS), 0, np.where(quiet, 2, np.where(verdict == "not testable", 3, 1)))
        return np.sort(np.lexsort((np.where(np.isnan(p), 1.0, p), urgency))[:MOST_LISTED])

    def unlisted(self) -> dict[str, Any] | None:
        """Count the lines that are not listed, by metric, verdict and note; None where all are listed.

        ``could_miss`` are the median and the largest of all tests of a metric that found nothing, listed or not.
        """
        rest = np.setdiff1d(np.arange(len(self)), self.listed_lines)
        if not len(rest):
            return None
        names, verdict, note = [metric.name for metric in self.metrics], self.lines.verdict, self.lines.note
        said = zip(self.metric_of[rest].tolist(), verdict[rest].tolist(), note[rest].tolist(), strict=True)
        groups = [
            {"metric": names[at], "verdict": word, "note": remark, "tests": count}
            for (at, word, remark), count in Counter(said).most_common()
        ]
        quiet = (verdict == "nothing found") & np.isfinite(self.lines.could_miss)
        missed = {name: self.lines.could_miss[quiet & (self.metric_of == at)] for at, name in enumerate(names)}
        sizes = {name: [float(np.median(some)), float(some.max())] for name, some in missed.items() if len(some)}
        tables = len(self) // len(names)
        return {"tests": len(rest), "tables": tables, "groups": groups, "could_miss": sizes}

    @property
    def metric_of(self) -> Places:
        """The number of each line's metric."""
        return np.arange(len(self)) % len(self.metrics)

    @cached_property
    def _tested(self) -> dict[str, int]:
        """How many tests of every metric could be done."""
        return {m.name: int(np.sum(self._done & (self.metric_of == at))) for at, m in enumerate(self.metrics)}

    @property
    def tested(self) -> int:
        """How many tests could be done."""
        return sum(self._tested.values())

    @property
    def families(self) -> dict[str, int]:
        """Tests per family of the correction."""
        return dict(self._tested) if self.rules.family == "metric" else {"all": self.tested}

    @property
    def expected(self) -> float:
        """How many raw p-values below alpha are to be expected if there is nothing to find."""
        return self.tested * self.rules.alpha

    @property
    def observed(self) -> int:
        """How many raw p-values of the robust test lie below alpha."""
        with np.errstate(invalid="ignore"):
            return int(np.sum(self._done & (self.lines.p_robust < self.rules.alpha)))

    @property
    def _done(self) -> Flags:
        """The tests that were done."""
        return np.asarray(~np.isnan(self.lines.p_adjusted))

    def verdicts(self) -> dict[Verdict, int]:
        """Count the lines of each verdict."""
        names, counts = np.unique(self.lines.verdict.astype(str), return_counts=True)
        return dict(zip(names.tolist(), counts.tolist(), strict=True))

    def quantiles(self, metric: str, most: int = 500) -> tuple[Floats, Floats]:
        """Return sorted p-values of a metric, and what as many tests without any effect would show before them.

        Of more than ``most`` these are all small ones and some of the others.
        """
        chosen = self._done & np.array([known.name == metric for known in self.metrics])[self.metric_of]
        observed = np.sort(self.lines.p_robust[chosen])
        expected = (np.arange(len(observed)) + 0.5) / max(1, len(observed))
        if len(observed) > most:
            spaced = np.geomspace(1, len(observed), most).astype(np.intp) - 1
            places = np.union1d(spaced, np.linspace(0, len(observed) - 1, most).astype(np.intp))
            observed, expected = observed[places], expected[places]
        return expected, observed

    def summary(self) -> dict[str, Any]:
        """Return what the whole scan was, as plain data."""
        return {
            "family": self.rules.family,
            "correction": self.rules.correction,
            "alpha": self.rules.alpha,
            "k": self.rules.k,
            "tests": self.families,
            "expected": self.expected,
            "observed": self.observed,
            "unlisted": self.unlisted(),
        }

    def _outcomes(self, places: Places) -> list[dict[str, Any]]:
        """Return what is common to all kinds of scans of some lines, with None instead of not a number."""
        lines = self.lines
        columns: dict[str, list[Any]] = {"metric": [self.metrics[number].name for number in self.metric_of[places]]}
        for name in ("F", "p", "F_robust", "p_robust", "p_adjusted", "assignment_p", "could_miss"):
            columns[name] = [None if math.isnan(value) else value for value in getattr(lines, name)[places].tolist()]
        for name in ("df", "df_robust"):
            columns[name] = [None if math.isnan(a) else (a, b) for a, b in getattr(lines, name)[places].tolist()]
        for name in ("variance", "verdict", "note"):
            columns[name] = getattr(lines, name)[places].tolist()
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def broken_note(values: dict[str, Any], broken: str) -> dict[str, Any]:
    """Return what a scan says of a line; of a broken assignment, what that means there."""
    return {**values, "note": broken} if values["verdict"] == "assignment broken" else values


def choose_metrics(tables: Iterable[Pairs | Tally], wanted: Sequence[str] | None, rules: Rules) -> dict[str, Metric]:
    """Return the metrics to test: all that were counted, or the named ones.

    Raises `LevelError` where a name, a tolerance is of a metric that was not counted.
    """
    known = {part.metric.name: part.metric for table in tables for part in table.moments}
    names = list(known) if wanted is None else list(dict.fromkeys(wanted))
    if not names or not set(names) <= known.keys():
        raise LevelError(
            "unknown metric" if names else "no metric to test", f"Counted metrics: {listed(known) or 'none'}."
        )
    if not rules.tolerance.keys() <= set(names):
        raise LevelError("a tolerance names an unknown metric", f"Tested metrics: {listed(names)}.")
    return {name: known[name] for name in names}
