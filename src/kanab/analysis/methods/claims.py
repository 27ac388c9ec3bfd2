"""Metrics read against margins: guardrails, which must not suffer, and claims such as non-inferiority."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kanab.analysis.compare import against_control
from kanab.analysis.effect_rows import EffectRow, effect_place, if_known, named, row_of, typed
from kanab.analysis.methods.base import Data, Facts, Findings, Method
from kanab.analysis.options import ResolvedOptions
from kanab.errors import AnalysisError
from kanab.report.digits import Digits, adjusted_for, estimate_figures, is_share, percent
from kanab.report.document import Part
from kanab.report.words import method_of, spoken_arm, spoken_ps, verdict_rows
from kanab.stats.effect import contrast
from kanab.stats.margins import Margin, MarginTest, against_margin
from kanab.stats.multiplicity import correct
from kanab.tabular import Table, p_value
from kanab.tally.factor import label

Reading = Literal["holds", "worse", "watch", "not shown"]


@dataclass(frozen=True)
class MarginRow:
    """A claim and whether it was shown; the effect must lie above or below its ``limits``."""

    metric: str
    control: str | None
    arm: str | None
    method: str
    covariates: Sequence[str]
    claim: str
    better: str
    limits: Sequence[float | None]
    relative: bool
    estimate: float
    interval: Sequence[float | None] | None
    confidence: float
    t: float | None
    p: float | None
    p_adjusted: float | None
    shown: bool
    se_noise: float | None = if_known()
    too_noisy: bool | None = if_known()

    @classmethod
    def of(cls, test: MarginTest) -> MarginRow:
        """Return the row of a test."""
        effect, margin = test.effect, test.margin
        sides = {side: limit for limit, side in margin.tests}
        noise = (effect.se_noise, effect.too_noisy) if effect.se_noise else (None, None)
        return row_of(
            cls, test, metric=effect.metric, control=named(effect.control), arm=named(effect.arm), method=effect.method,
            covariates=effect.covariates, claim=margin.claim, better=margin.better, relative=margin.relative,
            limits=(sides.get("greater"), sides.get("less")), se_noise=noise[0], too_noisy=noise[1],
        )  # fmt: skip


@dataclass(frozen=True)
class GuardrailRow:
    """One guardrail, or one claim about a primary metric, and arm: how it is read, and against which margin, if any.

    "holds": shown to be within its margin; without one, not clearly worse. "worse": clearly so, and not within the
    margin. "watch": worse by Welch's t alone, which skewness may mislead. "not shown": neither.
    """

    metric: str
    arm: str
    reading: Reading
    margin: float | Sequence[float] | None
    relative: bool | None
    claim: str | None = if_known()


class Claims(Method):
    """Read every guardrail, and every claim about a primary metric, for every arm, from the rows with verdicts."""

    name = "claims"
    heading = "Are the claims shown?"
    tables = ("margins", "guardrails", "claims")

    def read(self, facts: Facts) -> Findings:
        """Return the tests of all margins, and how those that decide are read; what cannot be tested is a note."""
        notes: list[str] = []
        tests = _margin_tests(facts, notes)
        read: dict[str, list[GuardrailRow]] = {"guardrail": [], "primary": []}
        for row in facts.effects:
            if row.role is not None and row.carries_verdict:
                for margin in _margins(row, facts.options):
                    read[row.role].append(_read(row, margin, tests))
        margins = [MarginRow.of(test) for test in tests]
        return Findings({"margins": margins, "guardrails": read["guardrail"], "claims": read["primary"]}, notes)

    def parts(self, data: Data) -> Sequence[Part]:
        """Return a sentence for each claim and arm, as its verdict is adjusted, then all."""
        rows = data.get("margins", ())
        if not rows:
            return ()
        carried = {(row["metric"], row["arm"], method_of(row)) for row in verdict_rows(data)}
        leading = [row for row in rows if (row["metric"], row["arm"], method_of(row)) in carried]
        sentences = [_sentence(data, row) for row in typed(leading, MarginRow)]
        level = percent(rows[0]["confidence"])
        how = f"Each claim is tested one-sided at {level}; those about a primary metric are corrected for each other."
        return *sentences, how, _table(data, typed(rows, MarginRow))


# ── reading ────────────────────────────────────────────────────────────────────────────────────


def _margin_tests(facts: Facts, notes: list[str]) -> list[MarginTest]:
    """Test every claim for every arm, those that decide about primary metrics as a family."""
    options = facts.options
    tests: list[MarginTest] = []
    for means in (each.means for each in facts.means):
        for margin in options.margins.get(means.metric, ()):
            try:
                for weights in against_control(means, options):
                    effect = contrast(means, weights, confidence=options.confidence)
                    tests.append(against_margin(effect, margin, means=means))
            except AnalysisError as problem:
                notes.append(f"The {margin.claim} of {means.metric} is not tested: {problem.fact}. {problem.remedy}")
    primary = [effect_place(row.effect) for row in facts.effects if row.carries_verdict and row.role == "primary"]
    places = [place for place, test in enumerate(tests) if effect_place(test.effect) in primary]
    for place, p in zip(places, correct([tests[place].p for place in places], options.stepwise), strict=True):
        tests[place] = replace(tests[place], p_adjusted=p)
    return tests


def _margins(row: EffectRow, options: ResolvedOptions) -> Sequence[Margin | None]:
    """Return what a metric is read against: a guardrail without a margin against none, a primary metric's claims."""
    metric = row.effect.metric
    limit = options.limits.get(metric)
    if row.role == "guardrail":
        return [limit]
    if row.role != "primary":
        return []
    return options.margins.get(metric, ()) if row.look is None or limit is None else [limit]


def _read(row: EffectRow, margin: Margin | None, tests: Sequence[MarginTest]) -> GuardrailRow:
    claim = None if margin is None or row.role == "guardrail" else margin.claim
    size, relative = (None, None) if margin is None else (margin.size, margin.relative)
    return GuardrailRow(
        row.effect.metric, label(row.effect.arm), _reading(row, margin, tests), size, relative, claim=claim
    )


def _reading(row: EffectRow, margin: Margin | None, tests: Sequence[MarginTest]) -> Reading:
    if row.role == "guardrail" and row.p is None and row.effect.estimate == 0:  # nothing happened in either arm
        return "holds"
    if margin is not None and _within(row, margin, tests):
        return "holds"
    if row.verdict == row.worse:
        return "worse"
    if row.verdict == "watch" and (row.effect.estimate > 0) == (row.worse == "up"):
        return "watch"
    return "holds" if margin is None and row.p is not None else "not shown"


def _within(row: EffectRow, margin: Margin, tests: Iterable[MarginTest]) -> bool:
    if row.look is None:
        place = effect_place(row.effect)
        return any(test.shown for test in tests if test.margin == margin and effect_place(test.effect) == place)
    interval, ((limit, side), *_) = row.limit_interval, margin.tests
    return interval is not None and (interval[0] > limit if side == "greater" else interval[1] < limit)


# ── words ──────────────────────────────────────────────────────────────────────────────────────


def _sentence(data: Data, row: MarginRow) -> str:
    """Return whether a claim is shown; one that is not shown is not refuted."""
    figures = _figures(data, row)
    claim = f"{row.claim.capitalize()} of {spoken_arm(str(row.arm))} on {row.metric}"
    if row.p is None:
        return f"{claim} cannot be tested: {'too noisy to tell' if row.too_noisy else 'nothing varies'}."
    unit = " %" if row.relative else " points" if figures.share else ""
    lies = f"the effect lies {_limits(row, figures, unit)}"
    evidence = f"{figures.between(row.interval)}{unit}; {spoken_ps(vars(row))}{adjusted_for(vars(row))}"
    if row.shown:
        return f"{claim} is shown: {lies} (interval {evidence})."
    return f"{claim} is not shown: that {lies} is not certain (interval {evidence})."


def _limits(row: MarginRow, figures: Digits, unit: str = "") -> str:
    """Return where the effect must lie. Limits are as they were given, not rounded to what is known."""
    scale = 100 if figures.share else 1
    low, high = (None if limit is None else f"{limit * scale:+.6g}".replace("-", "−") for limit in row.limits)
    if low is None or high is None:
        return f"above {low}{unit}" if high is None else f"below {high}{unit}"
    return f"between {low} and {high}{unit}"


def _figures(data: Data, row: MarginRow) -> Digits:
    return estimate_figures([(row.estimate, row.interval)], share=row.relative or is_share(data, row.metric))


def _table(data: Data, rows: Sequence[MarginRow]) -> Table:
    cells = []
    for row in rows:
        figures = _figures(data, row)
        unit = " (%)" if row.relative else " (points)" if figures.share else ""
        cells.append(
            (
                f"{row.arm} on {row.metric}{unit}{adjusted_for(vars(row))}",
                row.claim,
                _limits(row, figures),
                figures.bare(row.estimate, signed=True),
                figures.between(row.interval),
                p_value(row.p),
                "–" if row.p is None else "yes" if row.shown else "no",
            )
        )
    return Table(("effect of", "claim", "lies", "effect", "interval", "p", "shown"), tuple(cells))
