"""Segments: does the effect differ by a covariate, what is it at each level, and which level differs from the rest?

A robust test decides; the paper's pooled F stands beside it. Over several looks tests and intervals hold over all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kanab.analysis.effect_rows import row_of, typed
from kanab.analysis.methods.base import Data, Facts, Findings, Method
from kanab.analysis.options import ResolvedOptions
from kanab.errors import listed
from kanab.report.digits import error_figures, estimate_figures, is_share, named_with_unit, percent
from kanab.report.document import Fold, Part
from kanab.report.drawing import letters_beside
from kanab.report.effect_tables import metric_note
from kanab.report.figure import Figure, Forest, ForestRow, forest_figure
from kanab.report.pictures import axis_title, forest_row, level_words
from kanab.report.words import SegmentKind, lower_is_better, metrics_of, spoken_arm, spoken_ps
from kanab.stats.cautions import FEWEST_CARRIERS
from kanab.stats.effect import Effect
from kanab.stats.ftest import FTest, pooled_f
from kanab.stats.heterogeneity import (
    FollowUp,
    SegmentEffect,
    effect_differs,
    follow_ups,
    segment_effects,
    with_watch_note,
)
from kanab.stats.multiplicity import SEGMENT_CORRECTION, correct
from kanab.tabular import Table, number, p_value
from kanab.tally.factor import label
from kanab.tally.tally import Tally

Interval = Sequence[float | None]

MOST_FOLLOW_UPS = 6
"""So many levels are put into words for one test; tables and plain data hold all of them."""

MOST_LEVELS = 24
"""So many comparisons of levels fit into one panel; more show the clearest ones."""


@dataclass(frozen=True)
class SegmentRow:
    """A test of whether the effect differs by a covariate; over several looks the corrected p is over all of them."""

    metric: str
    covariate: str
    variance: str
    decides: bool
    F: float | None
    df: Interval | None
    p: float | None
    p_over_looks: float | None = None
    p_adjusted: float | None = None
    verdict: SegmentKind | None = None
    note: str = ""

    @classmethod
    def of(cls, covariate: str, test: FTest, *, decides: bool) -> SegmentRow:
        """Return the row of a test."""
        return cls(test.metric, covariate, test.variance, decides, test.F, test.df, test.p, note=test.note)

    @property
    def p_that_counts(self) -> float | None:
        """The p that may be acted on: over all looks, where there are several."""
        return self.p if self.p_over_looks is None else self.p_over_looks

    @property
    def statistic(self) -> str:
        """The statistic with its degrees of freedom: χ² of rates, the robust F of amounts."""
        if self.F is None or self.df is None:
            return "–"
        first, second = self.df
        assert first is not None
        if second is None or math.isinf(second):
            return f"χ²({first:g}) = {number(self.F * first, 3)}"
        return f"robust F({first:g}, {second:,.0f}) = {number(self.F, 3)}"


@dataclass(frozen=True)
class SegmentEffectRow:
    """The effect at one level; exploratory unless the deciding test says that the effect differs by this covariate.

    ``interval`` and ``p`` are of this level by itself; the adjusted ones hold for all levels and arms together.
    """

    metric: str
    covariate: str
    level: str
    arm: str
    control: str
    people_control: int
    people_arm: int
    mean_control: float
    mean_arm: float
    estimate: float
    se: float | None
    df: float | None
    t: float | None
    p: float | None
    interval: Interval | None
    p_adjusted: float | None
    interval_adjusted: Interval | None
    p_pooled: float | None
    p_pooled_adjusted: float | None
    test: str
    variance: str
    exploratory: bool
    note: str

    @classmethod
    def of(cls, effect: SegmentEffect, *, exploratory: bool) -> SegmentEffectRow:
        """Return the row of an effect."""
        names = {name: label(getattr(effect, name)) for name in ("level", "arm", "control")}
        people, means = effect.people, effect.means
        return row_of(
            cls, effect, **names, people_control=people[0], people_arm=people[1], mean_control=means[0],
            mean_arm=means[1], exploratory=exploratory,
        )  # fmt: skip

    def is_clear(self, confidence: float) -> bool:
        """Return whether the effect is more than exploratory, and clear by both of its tests."""
        tests = [self.p if self.p_adjusted is None else self.p_adjusted]
        tests += [] if self.p_pooled_adjusted is None else [self.p_pooled_adjusted]
        return not self.exploratory and all(p is not None and p < 1 - confidence for p in tests)


class Segments(Method):
    """Test every segment and metric, follow up what that finds, and return the effect at every level."""

    name = "segments"
    heading = "Does the effect differ by segment?"
    tables = ("segments", "segment_effects", "follow_ups")
    draws = True
    key = (
        "In the pictures: dot, the effect at this level; line, its interval; all intervals of a picture hold together. "
        "Grey where it is exploratory or unclear."
    )

    def asked(self, facts: Facts) -> bool:
        """Return whether the plan has segments."""
        return bool(facts.plan.segments)

    def read(self, facts: Facts) -> Findings:
        """Return the tests, the effects at levels whatever the tests say, and levels against the rest."""
        looks = _SegmentLooks.of(facts)
        tables = {name: facts.outcomes.get(facts.analyzed.of(name)) for name in facts.plan.segments}
        tests = _tests(facts, {name: table for name, table in tables.items() if table is not None}, looks)
        control, confidence = facts.options.control, facts.options.confidence
        notes: list[str] = []
        effects: list[SegmentEffectRow] = []
        followed: list[FollowUp] = []
        for row in (test for test in tests if test.decides):
            table, place = tables[row.covariate], (row.covariate, row.metric)
            assert table is not None
            if row.F is None:
                notes.append(f"{row.metric} by {row.covariate} is not testable: {row.note}.")
            if row.verdict == "differs":
                followed += looks.follow_ups(follow_ups(table, *place, control=control), table.total)
            at_levels = segment_effects(
                table, *place, control=control, confidence=confidence, alternative=facts.options.alternative
            )
            for effect in looks.effects(at_levels, table.total):
                effects.append(SegmentEffectRow.of(effect, exploratory=row.verdict != "differs"))
        return Findings(
            {"segments": tests, "segment_effects": effects, "follow_ups": [*map(_labelled, followed)]}, notes
        )

    def parts(self, data: Data) -> Sequence[Part]:
        """Return where the effect differs, all tests, the effects at levels, and levels against the rest."""
        tests = [row for row in typed(data["segments"], SegmentRow) if row.decides]
        if not tests:
            return ()
        parts: list[Part] = [*segment_sentences(data), _tests_table(tests)]
        for rows in _by_place(data).values():
            parts += [*_level_sentences(data, rows, tests), _levels_table(data, rows)]
        followed = typed(data["follow_ups"], FollowUp)
        return (
            [*parts, Fold("Each level against the rest", (_follow_ups_table(data, followed),))] if followed else parts
        )

    def how(self, data: Data) -> Sequence[str]:
        """Return which test decides, and over how many looks."""
        tests = typed(data["segments"], SegmentRow)
        decides = (
            "Segments: a score test of rates and the robust F of amounts decide; the pooled F, which assumes one "
            "variance, is in the plain data."
        )
        looks = "Segments: p-values and intervals hold over all looks, too."
        return [decides] * bool(tests) + [looks] * any(row.p_over_looks is not None for row in tests)

    def figures(self, data: Data) -> Mapping[str, Figure]:
        """Return the effects on every metric at each level, a panel for each segment."""
        places = _by_place(data)
        figures = {}
        for metric in metrics_of(data):
            panels = [rows for (name, _), rows in places.items() if name == metric]
            if panels:
                figures[metric] = _figure(data, metric, panels)
        return figures


# ── reading ────────────────────────────────────────────────────────────────────────────────────


def _tests(facts: Facts, tables: Mapping[str, Tally], looks: _SegmentLooks) -> list[SegmentRow]:
    """Test every segment and metric by the paper's pooled F and by the test that decides, each kind corrected."""
    rows: list[SegmentRow] = []
    for covariate, table in tables.items():
        for metric in table.metric_names:
            shape = facts.analyzed.shapes.get(metric)
            deciding = effect_differs(table, covariate, metric, control=facts.options.control, shape=shape)
            rows.append(looks.test(SegmentRow.of(covariate, pooled_f(table, covariate, metric), decides=False), table))
            rows.append(looks.test(SegmentRow.of(covariate, deciding, decides=True), table))
    for decides in (False, True):
        places = [place for place, row in enumerate(rows) if row.decides == decides]
        corrected = correct([rows[place].p_that_counts for place in places], SEGMENT_CORRECTION)
        for place, p in zip(places, corrected, strict=True):
            rows[place] = replace(rows[place], p_adjusted=p)
            if decides:
                rows[place] = replace(rows[place], verdict=_verdict(p, 1 - facts.options.confidence))
    return rows


def _verdict(p: float | None, alpha: float) -> SegmentKind:
    if p is None:
        return "not testable"
    return "differs" if p < alpha else "nothing found"


def _labelled(row: FollowUp) -> FollowUp:
    return replace(row, level=label(row.level), arm=label(row.arm), control=label(row.control))


@dataclass(frozen=True)
class _SegmentLooks:
    """How segments are read at this look. ``fewest`` are the people of any arm off each metric's commonest value."""

    options: ResolvedOptions
    fewest: Mapping[str, float]

    @classmethod
    def of(cls, facts: Facts) -> _SegmentLooks:
        """Return how segments are read, by the metrics of the whole experiment."""
        fewest = {each.means.metric: min(each.nonmodal.values(), default=math.inf) for each in facts.means}
        return cls(facts.options, fewest)

    def test(self, row: SegmentRow, table: Tally) -> SegmentRow:
        """Return a test with its p over all looks; before any-time reading begins, that is 1."""
        if self.options.looks is None or row.p is None or row.df is None:
            return row
        if self.fewest.get(row.metric, math.inf) < FEWEST_CARRIERS:
            return replace(row, p_over_looks=1.0)
        assert row.df[0] is not None
        return replace(row, p_over_looks=self._p(row.p, row.df[0], table.total))

    def follow_ups(self, rows: Sequence[FollowUp], people: int) -> list[FollowUp]:
        """Return comparisons of levels with the rest, with p-values over all looks."""
        if self.options.looks is None:
            return list(rows)
        p = [self._p(row.p, 1, people) for row in rows]
        return [
            replace(row, p=alone, p_adjusted=corrected or 0.0)
            for row, alone, corrected in zip(rows, p, correct(p, "holm"), strict=True)
        ]

    def _p(self, p: float, df: float, people: int) -> float:
        assert self.options.looks is not None
        return self.options.looks.p_of_f(p, df, people, self.options.confidence)

    def effects(self, effects: Sequence[SegmentEffect], people: int) -> list[SegmentEffect]:
        """Return the effects at levels, with p-values and intervals over all looks."""
        if self.options.looks is None:
            return list(effects)
        tested = sum(effect.p is not None for effect in effects)
        each = self.options.confidence ** (1 / max(1, tested))
        alone = [self._effect(effect, people, self.options.confidence) for effect in effects]
        joint = [self._effect(effect, people, each) for effect in effects]
        corrected, second = (
            correct(p, "sidak") for p in ([effect.p for effect in alone], [effect.p_pooled for effect in alone])
        )
        together = (
            replace(effect, p_adjusted=p, p_pooled_adjusted=p_pooled, interval_adjusted=wide.interval)
            for effect, wide, p, p_pooled in zip(alone, joint, corrected, second, strict=True)
        )
        return [with_watch_note(effect, self.options.confidence) for effect in together]

    def _effect(self, effect: SegmentEffect, people: int, confidence: float) -> SegmentEffect:
        if effect.p is None or self.options.looks is None:
            return effect
        plain = _AtLevel(
            effect.metric, effect.arm, effect.control, (), "difference", (), effect.estimate, effect.se or 0.0,
            effect.se or 0.0, effect.df, effect.t, effect.p, effect.interval, confidence, self.options.alternative,
            segment=effect,
        )  # fmt: skip
        look, second = (
            self.options.looks.at(tested, people, self._fewest(effect))
            for tested in (plain, replace(plain, p=effect.p_pooled))
        )
        return replace(effect, p=look.p, p_pooled=second.p, interval=look.interval)

    def _fewest(self, effect: SegmentEffect) -> float:
        """Return the people off the commonest value: at this level where events are known, else in the whole arm."""
        rates = effect.rates
        if rates is None:
            return self.fewest.get(effect.metric, math.inf)
        sides = (rates.events, rates.people), (rates.control_events, rates.control_people)
        return float(min(min(events, people - events) for events, people in sides))


@dataclass(frozen=True)
class _AtLevel(Effect):
    """The effect at one level, with the interval of its own test."""

    segment: SegmentEffect | None = None

    def interval_at(self, alpha: float) -> tuple[float, float]:
        """Return the values that the level's test does not reject at ``alpha``."""
        assert self.segment is not None
        interval = self.segment.interval_at(alpha, self.alternative)
        assert interval is not None
        return interval


# ── words and figures ──────────────────────────────────────────────────────────────────────────


def _by_place(data: Data) -> dict[tuple[str, str], list[SegmentEffectRow]]:
    places: dict[tuple[str, str], list[SegmentEffectRow]] = {}
    for row in typed(data["segment_effects"], SegmentEffectRow):
        places.setdefault((row.metric, row.covariate), []).append(row)
    return places


def segment_sentences(data: Data) -> list[str]:
    """Return where the effect differs: clear tests, each with its levels; then the others in one sentence."""
    tests = [row for row in typed(data["segments"], SegmentRow) if row.decides]
    sentences = []
    for row in (test for test in tests if test.verdict == "differs"):
        sentences.append(f"The effect on {row.metric} differs by {row.covariate} ({row.statistic}, {_spoken_p(row)}).")
        sentences += _follow_up_sentences(data, row)
    unclear = [row for row in tests if row.verdict == "nothing found"]
    if unclear:
        names = listed(f"{row.metric} by {row.covariate} ({_spoken_p(row)})" for row in unclear)
        sentences.append(f"No sign that the effect differs: {names}.")
    for row in tests:
        if row.verdict == "not testable":
            sentences.append(f"{row.metric} by {row.covariate} is not testable: {row.note or 'no F'}.")
    return sentences


def _spoken_p(row: SegmentRow) -> str:
    ps = spoken_ps({"p": row.p_that_counts, "p_adjusted": row.p_adjusted})
    return f"{ps}; {row.note}" if row.note else ps


def _follow_up_sentences(data: Data, test: SegmentRow) -> list[str]:
    """Return the levels that clearly differ, one sentence each, and how many others do not."""
    place = (test.metric, test.covariate)
    levels = [row for row in typed(data["follow_ups"], FollowUp) if (row.metric, row.covariate) == place]
    clear = [level for level in levels if level.p_adjusted < 1 - data["confidence"]]
    clearest = sorted(clear, key=lambda level: level.p_adjusted)[:MOST_FOLLOW_UPS]
    sentences = [_follow_up_sentence(data, level) for level in clear if level in clearest]
    if len(clearest) < len(clear):
        sentences.append(f"These are the {len(clearest)} clearest of {len(clear)} such differences.")
    others = len(levels) - len(clear)
    if others and clear:
        sentences.append(f"{others} other comparison{'s' * (others > 1)} of a level with the rest: nothing clear.")
    elif others:
        sentences.append(f"No single level of {test.covariate} clearly differs from the rest.")
    return sentences


def _follow_up_sentence(data: Data, row: FollowUp) -> str:
    figures = error_figures([row.se], share=is_share(data, row.metric))
    here, rest = (figures.change(side, signed=True) for side in (row.effect, row.rest))
    return (
        f"Where {row.covariate} is {row.level}, {spoken_arm(str(row.arm))} changes {row.metric} by {here}, elsewhere "
        f"by {rest}: a difference of {figures.bare(row.difference, signed=True)} ± {figures.bare(row.se)} "
        f"(one standard error), {spoken_ps(vars(row))}."
    )


def _tests_table(tests: Sequence[SegmentRow]) -> Table:
    answers = {"differs": "yes", "nothing found": "no sign", "not testable": "not testable", None: ""}
    rows = [
        (
            f"{row.metric} by {row.covariate}",
            answers[row.verdict],
            row.variance.replace("_", " "),
            row.statistic.removeprefix("robust "),
            p_value(row.p_that_counts),
            p_value(row.p_adjusted),
        )
        for row in tests
    ]
    return Table(("effect on", "differs", "variance", "test", "p", "corrected p"), tuple(rows))


def _level_sentences(data: Data, rows: Sequence[SegmentEffectRow], tests: Sequence[SegmentRow]) -> list[str]:
    """Return how the effects at the levels of a covariate may be read, and which levels have no interval."""
    metric, covariate = rows[0].metric, rows[0].covariate
    (test,) = [test for test in tests if (test.metric, test.covariate) == (metric, covariate)]
    named = "χ²" if test.df and test.df[1] is None else "F"
    reading = f"The {named} test says that the effect differs."
    if rows[0].exploratory:
        reading = (
            f"Exploratory: the {named} test does not say that the effect differs, so differences between levels may "
            "be chance."
        )
    tested = sum(row.p is not None for row in rows)
    if tested > 1:
        reading += f" The {tested} intervals hold together, with {percent(data['confidence'])} confidence (Šidák)."
    note = metric_note(data, metric)
    sentences = [f"{f'{metric} ({note})' if note else metric}, the effect at each level of {covariate}. {reading}"]
    for note in dict.fromkeys(row.note for row in rows if row.note):
        levels = dict.fromkeys(row.level for row in rows if row.note == note)
        everywhere = all(row.note == note for row in rows)
        text = f"{note}." if everywhere else f"Where {covariate} is {listed(levels)}: {note}."
        sentences.append(text[:1].upper() + text[1:])
    return sentences


def _levels_table(data: Data, rows: Sequence[SegmentEffectRow]) -> Table:
    several = len({row.arm for row in rows}) > 1
    share = is_share(data, rows[0].metric)
    figures = estimate_figures([(row.estimate, row.interval_adjusted) for row in rows], share=share)
    cells = tuple(
        (
            f"{row.level}, {row.arm}" if several else row.level,
            f"{row.people_control:,}",
            f"{row.people_arm:,}",
            figures.bare(row.mean_control),
            figures.bare(row.mean_arm),
            figures.bare(row.estimate, signed=True),
            figures.bare(row.se),
            figures.between(row.interval_adjusted),
            p_value(row.p),
            p_value(row.p_adjusted),
        )
        for row in rows
    )
    interval = f"{percent(data['confidence'])} interval"
    header = (rows[0].covariate, "people, control", "arm", "control", "arm", "effect", "SE", interval, "p", "p (Šidák)")
    return Table(header, cells)


def _follow_ups_table(data: Data, followed: Sequence[FollowUp]) -> Table:
    rows = []
    for row in followed:
        errors = [other.se for other in followed if other.metric == row.metric]
        figures = error_figures(errors, share=is_share(data, row.metric))
        rows.append(
            (
                f"{named_with_unit(data, row.metric)}, {row.covariate} = {row.level}",
                str(row.arm),
                *(figures.bare(value, signed=True) for value in (row.effect, row.rest, row.difference)),
                figures.bare(row.se),
                p_value(row.p),
                p_value(row.p_adjusted),
            )
        )
    header = ("effect on", "arm", "there", "in the rest", "difference", "SE", "p", "corrected p")
    return Table(header, tuple(rows))


def _figure(data: Data, metric: str, panels: Sequence[Sequence[SegmentEffectRow]]) -> Figure:
    """Draw a panel for each covariate. Its intervals hold together; only what is not exploratory is coloured."""
    forests = []
    for levels in panels:
        rows = _forest_rows(data, metric, levels)
        cut = f"; the {len(rows)} clearest of {len(levels)}" if len(rows) < len(levels) else ""
        exploratory = ", exploratory" if levels[0].exploratory else ""
        forests.append(Forest(rows, f"{axis_title(data, metric, f' by {levels[0].covariate}')}{exploratory}{cut}"))
    title = f"The effect at each level: {listed(f'{metric} by {levels[0].covariate}' for levels in panels)}"
    return forest_figure(title, forests, level_words(data, " that hold together in each panel"))


def _forest_rows(data: Data, metric: str, levels: Sequence[SegmentEffectRow]) -> list[ForestRow]:
    """Return what is drawn for the effect at each level, the clearest if there are many."""
    share = is_share(data, metric)
    figures = estimate_figures([(level.estimate, level.interval_adjusted) for level in levels], share=share)
    order = sorted(levels, key=lambda level: 2.0 if level.p_adjusted is None else level.p_adjusted)
    better = "lower" if lower_is_better(data, metric) else "higher"
    rows = []
    for level in (level for level in levels if level in order[:MOST_LEVELS]):
        clear = level.is_clear(data["confidence"])
        side = "up" if level.estimate > 0 else "down"
        kind = "untestable" if level.p is None else side if clear else "unclear"
        drawn = {"method": "difference", "verdict": kind, "better": better, "interval": level.interval_adjusted}
        short = f"{level.level}, {level.arm}"
        row = forest_row({**vars(level), **drawn}, figures, label=f"{level.covariate} = {short}")
        name = row.label if len(row.label) <= letters_beside(row.text) else short
        rows.append(ForestRow(name, row.text, row.bars, bold=clear))
    return rows
