"""Quantiles of metrics in bins: did the median, or the slowest tenth, move?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import ClassVar

from kanab.analysis.compare import family_verdicts
from kanab.analysis.effect_rows import row_of, typed
from kanab.analysis.methods.base import Data, Facts, Findings, Method, Mode
from kanab.analysis.options import ResolvedOptions
from kanab.arguments import check_arguments
from kanab.counting.levels import Bins
from kanab.dataframes import Row, Tables
from kanab.errors import AnalysisError
from kanab.plan.model import MetricPlan
from kanab.privacy.release import Release
from kanab.report.colours import ARMS, MUTED
from kanab.report.digits import estimate_figures, percent, spoken_p
from kanab.report.document import Part
from kanab.report.drawing import ChartAxis, numbered_axis, percent_axis
from kanab.report.figure import Area, Dots, Figure, Label, Line, Mark, Paint, Plot
from kanab.report.words import CORRECTIONS, Kind, correction_name, spoken_arm
from kanab.stats.quantile import BinnedPeople, QuantileEffect, propose_edges, quantile_effect, without_noise
from kanab.tabular import Table, p_value
from kanab.tabular import number as written
from kanab.tally.factor import Level, label
from kanab.tally.tally import Tally

Interval = Sequence[float | None]

_SURE_PEOPLE = 5
"""An arm in bins has people if they are more than so many standard deviations of their noise."""

_MERGED, _MISSING = " … ", " or missing"

HOW = (
    "Quantiles are had from people per bin, interpolated within a bin. An interval holds the differences that a "
    "binomial test of both arms does not reject (test inversion), each on its own."
)


@dataclass(frozen=True)
class QuantileRow:
    """One quantile of one metric, an arm against the control; what lies in an open bin is infinite, in JSON None."""

    metric: str
    probability: float
    arm: str
    control: str
    better: str
    quantile_control: float | None
    quantile_arm: float | None
    interval_control: Interval
    interval_arm: Interval
    estimate: float | None
    interval: Interval | None
    z: float | None
    p: float | None
    p_adjusted: float | None
    verdict: Kind
    coarse: bool
    note: str | None

    @property
    def called(self) -> str:
        """What the quantile is called."""
        return quantile_name(self.probability)


@dataclass(frozen=True)
class Distribution:
    """People of every arm in the bins of a metric: below the first edge, between two, from the last one on."""

    metric: str
    edges: Sequence[float]
    people: Mapping[str, Sequence[int]]


class QuantileEffects(Method):
    """Compare quantiles of arms with the control's; p-values of all of them are one family."""

    name = "quantiles"
    heading = "Did quantiles move?"
    tables = ("quantiles", "distributions")
    draws = True
    without: ClassVar[Mapping[Mode, str]] = {"looks": "Quantiles are compared once, at the end: without looks."}

    def asked(self, facts: Facts) -> bool:
        """Return whether the plan asks for quantiles."""
        return bool(facts.plan.quantiles)

    def read(self, facts: Facts) -> Findings:
        """Compare every quantile of every arm with the control's."""
        notes: list[str] = []
        rows: list[QuantileRow] = []
        bins: list[Distribution] = []
        control = facts.options.control
        for metric, probabilities in facts.plan.quantiles.items():
            people = _people_in_bins(facts, metric, notes)
            if not people:
                continue
            edges = next(iter(people.values())).edges
            bins.append(Distribution(metric, edges, {label(arm): each.people for arm, each in people.items()}))
            if control in people:
                others = [arm for arm in people if arm != control]
                for probability in probabilities:
                    rows += [_row(metric, people, arm, probability, facts.options) for arm in others]
        family = family_verdicts([(row.p, row.estimate) for row in rows], facts.options)
        judged = [replace(row, p_adjusted=p, verdict=verdict) for row, (p, verdict) in zip(rows, family, strict=True)]
        return Findings({"quantiles": judged, "distributions": bins}, notes)

    def parts(self, data: Data) -> Sequence[Part]:
        """Return what became of every quantile in words, then all numbers."""
        rows = typed(data.get("quantiles", ()), QuantileRow)
        if not rows:
            return ()
        corrected = CORRECTIONS["holm"] if data["correction"] == "dunnett" else correction_name(data)
        family = f" p is corrected over all {len(rows)} of them ({corrected})." if len(rows) > 1 and corrected else ""
        level = percent(data["confidence"])
        return *(_sentence(row, level) for row in rows), f"{HOW}{family}", _table(rows, level)

    def figures(self, data: Data) -> Mapping[str, Figure]:
        """Return the distribution of every metric, with its quantiles."""
        rows = typed(data.get("quantiles", ()), QuantileRow)
        distributions = typed(data.get("distributions", ()), Distribution)
        return {each.metric: distribution_figure(each, rows, data["control"]) for each in distributions}

    def frames(self, data: Data) -> Tables:
        """Return quantiles, and people by metric, arm and bin."""
        bins = [row for each in typed(data["distributions"], Distribution) for row in _bin_rows(each)]
        return {"quantiles": data["quantiles"], "distributions": bins}


def quantile_name(probability: float) -> str:
    """Return what a quantile is called."""
    return "median" if probability == 0.5 else f"p{100 * probability:.10g}"


# ── reading ────────────────────────────────────────────────────────────────────────────────────


def _people_in_bins(facts: Facts, metric: str, notes: list[str]) -> dict[Level, BinnedPeople]:
    """Return the people of every arm in bins; none where the release does not hold them, or too few bins."""
    table = facts.table(metric)
    if table is None:
        return {}
    people = binned_people(table, facts.released.plan.metrics_by_name[metric])
    if len(people) > 1:
        return people
    why = "to k people" if table.noise is None else "to k people and more, for the noise"
    notes.append(f"There are no quantiles of {metric}: too few bins are left after merging {why}.")
    return {}


def binned_people(table: Tally, metric: MetricPlan) -> dict[Level, BinnedPeople]:
    """Return the people of every arm in the bins that are left after merging; none where fewer than two edges are.

    People without a value are left out, unless they are too few for a level of their own. So is an arm that has hardly
    more people than noise.
    """
    labels, edges = Bins(metric.name, metric.edges).labels, metric.edges
    spans: list[tuple[int, int, int]] = []
    for position, level in enumerate(table.factors[1].levels):
        if level is not None:
            parts = str(level).removesuffix(_MISSING).split(_MERGED)
            spans.append((labels.index(parts[0]), labels.index(parts[-1]), position))
    kept = [place for place in range(len(edges)) if not any(first <= place < last for first, last, _ in spans)]
    if len(kept) < 2:
        return {}
    low, high = metric.bounds or (-math.inf, math.inf)
    people = {}
    for row, arm in enumerate(table.factors[0].levels):
        counts, noise = [0] * (len(kept) + 1), [0.0] * (len(kept) + 1)
        for first, _, position in spans:
            bin_of = sum(place < first for place in kept)
            counts[bin_of] += int(table.people[row, position])
            noise[bin_of] += 0.0 if table.noise is None else float(table.noise.people[row, position])
        if sum(counts) > _SURE_PEOPLE * math.sqrt(sum(noise)):
            told = tuple(counts) if table.noise is None else without_noise(counts)
            stated = () if table.noise is None else tuple(noise)
            people[arm] = BinnedPeople(tuple(edges[place] for place in kept), told, float(low), float(high), stated)
    return people


def _row(
    metric: str, people: Mapping[Level, BinnedPeople], arm: Level, probability: float, options: ResolvedOptions
) -> QuantileRow:
    arms = (options.control, arm)
    sides = (people[options.control], people[arm])
    effect = quantile_effect(
        sides[1], sides[0], probability, confidence=options.confidence, alternative=options.alternative_for(metric)
    )
    own = [side.quantile_interval(probability, options.confidence) for side in sides]
    return row_of(
        QuantileRow, effect, metric=metric, probability=probability, arm=label(arm), control=label(options.control),
        better=options.better(metric), quantile_control=effect.values[0], quantile_arm=effect.values[1],
        interval_control=own[0], interval_arm=own[1], p_adjusted=None, verdict="untestable",
        note=_note(effect, sides, arms) or None,
    )  # fmt: skip


def _note(effect: QuantileEffect, sides: tuple[BinnedPeople, BinnedPeople], arms: tuple[Level, Level]) -> str:
    for value, side, arm in zip(effect.values, sides, arms, strict=True):
        if not math.isfinite(value):
            beyond, edge = ("above", side.edges[-1]) if value > 0 else ("below", side.edges[0])
            return (
                f"that of {label(arm)} lies {beyond} {edge:,.10g}, where the bins end; declare edges further out, "
                "or count more people where bins were merged"
            )
    return "the bins are coarse there; finer ones would move it" if effect.coarse else ""


def _bin_rows(distribution: Distribution) -> Iterator[Row]:
    """Yield people by metric, arm and bin; the first and the last bin are open."""
    edges = [None, *distribution.edges, None]
    for arm, people in distribution.people.items():
        for (low, high), count in zip(pairwise(edges), people, strict=True):
            yield {"metric": distribution.metric, "arm": arm, "low": low, "high": high, "people": count}


@check_arguments()
def propose_bins(released: Release, metric: str, bins: int = 40, experiment: str | None = None) -> tuple[float, ...]:
    """Propose the edges of a metric's bins for the next experiment, from the bins of a release.

    Half of them are at equal steps of people, the others divide the tails. Raises `AnalysisError` where the release
    has no bins of the metric, or fewer than 8 are asked for.
    """
    plan = released.plan.experiment(experiment)
    table = released.tables.get(f"{plan.name}/{metric}") if metric in plan.quantiles else None
    people = {} if table is None else binned_people(table, released.plan.metrics_by_name[metric])
    if len(people) < 2:
        raise AnalysisError(
            f"the release has no bins of {metric!r}", "Release people by bins of it first: quantiles={…}, bins={…}."
        )
    return propose_edges([*people.values()], bins)


# ── words and figures ──────────────────────────────────────────────────────────────────────────


def _sentence(row: QuantileRow, level: str) -> str:
    name = f"{row.called[0].upper()}{row.called[1:]} of {row.metric}"
    arm, control = spoken_arm(row.arm), spoken_arm(row.control)
    if row.estimate is None or row.interval is None:
        return f"{name}: {arm} against {control} is not told: {row.note}."
    figures = estimate_figures([(row.estimate, row.interval)])
    said = {"up": "more", "down": "less"}.get(row.verdict)
    clear = f"is clearly {said} in {arm}" if said else f"in {arm} is not clearly different"
    p = row.p if row.p_adjusted is None else row.p_adjusted
    note = f"; {row.note}" if row.note else ""
    return (
        f"{name} {clear}: {figures.mean(row.quantile_arm)} against {figures.mean(row.quantile_control)} "
        f"in {control}, {figures.change(row.estimate, signed=True)} ({level} interval "
        f"{figures.spoken(row.interval)}, {spoken_p(p)}){note}."
    )


def _table(rows: Sequence[QuantileRow], level: str) -> Table:
    cells = []
    for row in rows:
        figures = estimate_figures([(row.estimate, row.interval)])
        cells.append(
            (
                f"{row.metric} {row.called}, {row.arm}",
                figures.bare(row.quantile_control),
                figures.bare(row.quantile_arm),
                figures.bare(row.estimate, signed=True),
                figures.between(row.interval),
                p_value(row.p),
                p_value(row.p_adjusted),
            )
        )
    header = ("quantile", rows[0].control, "in the arm", "difference", f"{level} interval", "p", "p corrected")
    return Table(header, tuple(cells))


def distribution_figure(distribution: Distribution, rows: Sequence[QuantileRow], control: str) -> Figure:
    """Draw histograms of the arms, below them shares of people up to each value, and quantiles; open bins are not."""
    metric, edges = distribution.metric, distribution.edges
    arms = dict.fromkeys([control, *distribution.people])
    colours = {arm: ARMS[place % len(ARMS)] for place, arm in enumerate(arms)}
    quantiles = _marked_quantiles([row for row in rows if row.metric == metric])
    seen = 1.3 * max((x for x, *_ in quantiles), default=edges[-1]) - 0.3 * edges[0]
    end = min((edge for edge in edges[1:] if edge >= seen), default=edges[-1])
    crowd: list[Mark] = []
    shares: list[Mark] = []
    highest = 0.0
    for arm, colour in colours.items():
        people = distribution.people.get(arm, [])
        total, outline = sum(people) or 1, [(edges[0], 0.0)]
        for (low, high), count in zip(pairwise(edges), people[1:], strict=False):
            if high <= end:
                height = count / total / (high - low)
                outline += [(low, height), (high, height)]
                highest = max(highest, height)
        outline.append((end, 0.0))
        steps = [(x, below / total) for x, below in zip(edges, accumulate(people), strict=False) if x <= end]
        if people:
            crowd += [Area(outline, colour), Line(outline, colour, wide=1.5)]
            shares.append(Line(steps, colour, wide=2.5))
    highest = highest or 1.0
    for x, chance, arm in quantiles:
        crowd.append(Line([(x, 0.0), (x, highest)], colours[arm], wide=1.5, dashes="3 3"))
        shares.append(Dots([(x, chance)], colours[arm], size=4.5))
    furthest = {chance: x for x, chance, _ in sorted(quantiles)}  # where the name has room
    shares += [Label((x, chance), [quantile_name(chance)], colour=MUTED) for chance, x in furthest.items()]
    panels = [
        Plot(numbered_axis(edges[0], end), ChartAxis(0.0, highest, title="people"), crowd),
        Plot(numbered_axis(edges[0], end, metric), percent_axis("share of people up to", 25), shares),
    ]
    spoken = "; ".join(f"{quantile_name(chance)} of {arm} {written(x)}" for x, chance, arm in quantiles)
    legend = {arm: Paint(colour) for arm, colour in colours.items()}
    return Figure(f"The distribution of {metric} in each arm", f"{spoken}.", panels, legend)


def _marked_quantiles(rows: Sequence[QuantileRow]) -> list[tuple[float, float, str]]:
    marks = {}
    for row in rows:
        for arm, value in ((row.control, row.quantile_control), (row.arm, row.quantile_arm)):
            if value is not None:
                marks[arm, row.probability] = (value, row.probability, arm)
    return list(marks.values())
