"""The effect of receiving what was assigned, on those who received it because of their arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from kanab.analysis.effect_rows import row_of, typed
from kanab.analysis.methods.base import Data, Facts, Findings, Method, Mode
from kanab.errors import AnalysisError, DesignError, listed
from kanab.report.colours import QUIET
from kanab.report.digits import Digits, estimate_figures, is_share, percent
from kanab.report.document import Part
from kanab.report.figure import Figure, Forest, ForestRow, bar_of, forest_figure
from kanab.report.pictures import axis_title, forest_row, level_words
from kanab.report.words import metrics_of, spoken_arm
from kanab.stats.cace import WEAK_BELOW, ReceivedEffect, means_together, received_effect, received_from_means
from kanab.stats.cautions import Caution
from kanab.tabular import Table, number
from kanab.tally.factor import label
from kanab.tally.tally import Tally

Interval = Sequence[float | None]

ASSUMED = (
    "This takes for granted that being assigned changes people only by what they receive, and keeps nobody from it "
    "who would have received it anyway. Each interval stands on its own; whether there is an effect at all is said by "
    "that of being assigned."
)


@dataclass(frozen=True)
class ReceivedRow:
    """The effect of receiving on one metric, of those who received because of one arm.

    ``ranges`` is Fieller's set, which may be two rays; ``f`` is infinite where nobody received without the arm.
    """

    metric: str
    received: str
    arm: str
    control: str
    people_control: int
    people_arm: int
    received_control: float
    received_arm: float
    difference: float
    f: float | None
    weak: bool
    one_sided: bool
    assignment: float
    estimate: float
    se: float
    df: float | None
    ranges: Sequence[Interval] | None
    interval_delta: Interval | None
    mean_without: float | None
    mean_with: float | None
    covariates: Sequence[str]
    dose: bool

    @classmethod
    def of(cls, effect: ReceivedEffect) -> ReceivedRow:
        """Return the row of an effect."""
        people, shares, means = effect.people, effect.shares, effect.means or (None, None)
        return row_of(
            cls, effect, arm=label(effect.arm), control=label(effect.control), people_control=people[0],
            people_arm=people[1], received_control=shares[0], received_arm=shares[1], interval_delta=effect.interval,
            mean_without=means[0], mean_with=means[1],
        )  # fmt: skip


class Received(Method):
    """The effect of receiving, for every metric and arm, plain and adjusted."""

    name = "received"
    heading = "What did receiving do?"
    tables = ("received",)
    draws = True
    without: ClassVar[Mapping[Mode, str]] = {
        "looks": "The effect of receiving is read once, at the end: without looks."
    }

    def asked(self, facts: Facts) -> bool:
        """Return whether the plan says who received what."""
        return facts.plan.received is not None

    def read(self, facts: Facts) -> Findings:
        """Return the effects of receiving; one that cannot be had is a note."""
        notes: list[str] = []
        effects: list[ReceivedEffect] = []
        known = {name for table in facts.analyzed.tables.values() for name in table.metric_names}
        metrics = dict.fromkeys(each.means.metric for each in facts.means)
        for metric in [name for name in metrics if name in known - {facts.plan.received}]:
            try:
                for effect in _effects(facts, metric, notes):
                    effects.append(effect)
            except (AnalysisError, DesignError) as problem:
                notes.append(f"An effect of receiving on {metric} is not given: {problem.fact}.")
        return Findings({"received": [ReceivedRow.of(effect) for effect in effects]}, notes, _cautions(effects))

    def parts(self, data: Data) -> Sequence[Part]:
        """Return the effects of receiving in words, then all numbers of them."""
        rows = typed(data.get("received", ()), ReceivedRow)
        if not rows:
            return ()
        arms = {row.arm: row for row in sorted(rows, key=lambda row: row.people_arm)}  # a metric may lack people
        shares = [_share_sentence(data, row) for row in arms.values()]
        return *shares, *(_sentence(data, row) for row in leading_rows(rows)), ASSUMED, _table(data, rows)

    def figures(self, data: Data) -> Mapping[str, Figure]:
        """Return the effects of being assigned and of receiving on one axis, of every metric."""
        rows = leading_rows(typed(data.get("received", ()), ReceivedRow))
        of_metric = {metric: [row for row in rows if row.metric == metric] for metric in metrics_of(data)}
        return {metric: _figure(data, rows) for metric, rows in of_metric.items() if rows}


# ── reading ────────────────────────────────────────────────────────────────────────────────────


def _effects(facts: Facts, metric: str, notes: list[str]) -> Iterator[ReceivedEffect]:
    """Yield the effect of receiving because of every arm, plain, then adjusted as effects of being assigned are."""
    received, analyzed, options = facts.plan.received, facts.analyzed, facts.options
    assert received is not None
    holding = {name: table for name, table in analyzed.tables.items() if _has_products(table, metric, received)}
    if not holding:
        notes.append(
            f"The effect of receiving on {metric} is not given: "
            f"its products with {received} are not in the release; wait until more people have received it."
        )
        return
    table = next(iter(holding.values()))
    adjusted = {each.means.metric: each.means.covariates for each in facts.means if each.means.method == "adjusted"}
    wanted = adjusted.get(metric, ())
    possible = {*analyzed.plan.numbers, *(name for name in wanted if analyzed.of(name) in holding)}
    covariates = [name for name in wanted if name in adjusted.get(received, ()) and name in possible]
    if without := [name for name in wanted if name not in covariates]:
        notes.append(f"The effect of receiving on {metric} is not adjusted for {listed(without)}.")
    numbers = [name for name in covariates if name in analyzed.plan.numbers]
    categories = [name for name in covariates if name not in numbers]
    tables = analyzed.crossed(categories, holding) if categories else [table]
    means = None
    for arm in (level for level in table.experiment.levels if level != options.control):
        plain = received_effect(
            table, metric, received, arm=arm, control=options.control, confidence=options.confidence
        )
        yield plain
        if covariates:
            means = means or means_together(
                tables, metric, received, variance=facts.reading.variance, numbers=numbers, slopes=facts.reading.slopes
            )
            yield replace(received_from_means(plain, table, means), covariates=tuple(covariates))


def _has_products(table: Tally, metric: str, received: str) -> bool:
    return any({*cross.pair} == {metric, received} for cross in table.crosses)


def _cautions(effects: Sequence[ReceivedEffect]) -> list[Caution]:
    weak = {effect.arm: effect for effect in effects if effect.weak}
    return [
        Caution(
            "weak-assignment",
            f"Being assigned to {label(arm)} hardly changes {effect.received} (F below {WEAK_BELOW:g}): do not use the "
            "delta method's interval of the effect of receiving; Fieller's holds, however wide it is.",
        )
        for arm, effect in weak.items()
    ]


# ── words and figures ──────────────────────────────────────────────────────────────────────────


def leading_rows(rows: Sequence[ReceivedRow]) -> list[ReceivedRow]:
    """Return of every metric and arm the row that is put into words: the adjusted one, where there is one."""
    return list({(row.metric, row.arm): row for row in rows}.values())


def _figures(data: Data, rows: Sequence[ReceivedRow]) -> Digits:
    """Return how many decimals effects of receiving have: the delta method's interval always has two ends."""
    return estimate_figures([(row.estimate, row.interval_delta) for row in rows], share=is_share(data, rows[0].metric))


def _amount(value: float, share: bool) -> str:
    return percent(value, 1) if share else number(value, 3)


def _share_sentence(data: Data, row: ReceivedRow) -> str:
    share = is_share(data, row.received)
    arm, control = spoken_arm(row.arm), spoken_arm(row.control)
    if row.one_sided:
        rest = f"{control}: nobody, so that the effect of receiving is that on all who did"
    else:
        rest = f"{control}: {_amount(row.received_control, share)}"
    return f"{row.received} in {arm}: {_amount(row.received_arm, share)}; in {rest}."


def spoken_ranges(ranges: Sequence[Interval] | None, figures: Digits) -> str:
    """Return Fieller's set in words."""
    if ranges is None:
        return "–"
    if len(ranges) == 2:
        return f"any effect but those between {figures.bare(ranges[0][1])} and {figures.bare(ranges[1][0])}"
    return figures.spoken(ranges[0])


def _sentence(data: Data, row: ReceivedRow) -> str:
    figures = _figures(data, [row])
    per = f" per unit of {row.received}" if row.dose else ""
    per += f", adjusted for {listed(row.covariates)}" if row.covariates else ""
    moved = ""
    if row.mean_with is not None:
        moved = f", from {figures.mean(row.mean_without)} to {figures.mean(row.mean_with)}"
    level = percent(data["confidence"])
    interval = "nothing varies" if row.ranges is None else f"{level} interval {spoken_ranges(row.ranges, figures)}"
    return (
        f"{row.metric}: receiving because of {spoken_arm(row.arm)} changed it by "
        f"{figures.change(row.estimate, signed=True)}{per} ({interval}){moved}; being assigned by "
        f"{figures.change(row.assignment, signed=True)}."
    )


def _table(data: Data, rows: Sequence[ReceivedRow]) -> Table:
    cells = []
    for row in rows:
        share, figures = is_share(data, row.received), _figures(data, [row])
        name = f"{row.arm} on {row.metric}{' (points)' if figures.share else ''}"
        cells.append(
            (
                f"↳ adjusted for {listed(row.covariates)}" if row.covariates else name,
                _amount(row.received_control, share),
                _amount(row.received_arm, share),
                figures.bare(row.assignment, signed=True),
                figures.bare(row.estimate, signed=True),
                spoken_ranges(row.ranges, figures),
                figures.between(row.interval_delta),
                "∞" if row.f is None else number(row.f, 3),
            )
        )
    level = percent(data["confidence"])
    header = (
        "effect of", f"{rows[0].received} in {rows[0].control}", "in the arm", "assigned", "received",
        f"{level} interval (Fieller)", "delta method", "F",
    )  # fmt: skip
    return Table(header, tuple(cells))


def _figure(data: Data, rows: Sequence[ReceivedRow]) -> Figure:
    """Draw being assigned and receiving; Fieller's set may be two rays, or have no end: the line runs to the edge."""
    metric, covariates = rows[0].metric, rows[0].covariates
    figures, drawn = _figures(data, rows), []
    for row in rows:
        same = [each for each in data["effects"] if (each["metric"], each["arm"]) == (metric, row.arm)]
        assigned = next((each for each in same if each["covariates"] == row.covariates), same[0])
        drawn.append(forest_row(assigned, figures, label=f"assigned to {row.arm}"))
        text = f"{figures.bare(row.estimate, signed=True)} ({spoken_ranges(row.ranges, figures)})"
        ranges: Sequence[Interval | None] = row.ranges or [None]
        bars = [bar_of(row.estimate, ends, QUIET, share=figures.share) for ends in ranges]
        drawn.append(ForestRow(f"received ({row.received})", text, bars, bold=True))
    panel = Forest(drawn, f"{axis_title(data, metric)}{', adjusted' if covariates else ''}")
    more = f"; adjusted for {listed(covariates)}" if covariates else ""
    return forest_figure(f"Effects on {metric} of being assigned and of receiving", [panel], level_words(data), more)
