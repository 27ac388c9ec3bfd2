"""Several releases read together: one experiment combined over batches or regions, many experiments shrunk."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kanab.analysis.api import analyze
from kanab.arguments import check_arguments
from kanab.choices import MetaMethod
from kanab.dataframes import Tables
from kanab.description import Reading
from kanab.errors import AnalysisError, PrivacyError, listed
from kanab.plan.declared import ControlChoice
from kanab.portfolio.meta import FEW, MetaAnalysis, Shrinkage, ShrunkEffect, meta_analysis, shrink
from kanab.portfolio.portfolio_report import (
    combined_chart,
    combined_report,
    portfolio_report,
    shrinkage_figure,
)
from kanab.privacy.batches import about_the_same_people
from kanab.privacy.release import Release, refuse_own_rows
from kanab.report.figure import Figure
from kanab.report.html_page import Printed, Report
from kanab.report.text import mapped, printable
from kanab.stats.distributions import check_sides
from kanab.stats.margins import Better
from kanab.tally.factor import Level, label

Releases = Mapping[str, Release] | Sequence[Release]
"""Releases with their names, or without: they are then called by cohort, or by number."""


@dataclass(frozen=True)
class ReleasedEffect:
    """An arm against the control on one metric, by its best estimate: the adjusted one where there is one.

    ``source`` is the release that it is from.
    """

    source: str
    experiment: str
    metric: str
    control: str
    arm: str
    people: int
    estimate: float
    se: float
    interval: tuple[float, float]
    p: float
    better: Better
    share: bool
    control_chosen: ControlChoice


def named_releases(releases: Releases, *, by_batch: bool = False) -> dict[str, Release]:
    """Return releases by name; with ``by_batch`` a sum of batches becomes its batches.

    Raises `PrivacyError` for anything but releases.
    """
    given = releases.values() if isinstance(releases, Mapping) else releases
    for each in given if isinstance(given, Iterable) else ():
        refuse_own_rows(each)
    if isinstance(releases, Mapping):
        named = {str(name): released for name, released in releases.items()}
    elif isinstance(releases, Sequence) and all(isinstance(released, Release) for released in releases):
        parts = [part for released in releases for part in (by_batch and released.parts) or (released,)]
        named = {_name(place, released): released for place, released in enumerate(parts, start=1)}
    else:
        named = {}
    if not named or not all(isinstance(released, Release) for released in named.values()):
        raise PrivacyError("only releases can be read together", "Call release() on what count() returned.")
    return named


def _name(place: int, released: Release) -> str:
    batch = released.receipt.batch
    return f"release {place}" if batch is None else f"{place}: through {batch.through}"


def released_effects(
    source: str,
    released: Release,
    experiment: str | None,
    *,
    control: Level = None,
    confidence: float = 0.95,
) -> list[ReleasedEffect]:
    """Return the effects of one experiment of a release that can be tested; raises what `analyze` raises."""
    answer = analyze(released, experiment, Reading(control=control, confidence=confidence, correction="none"))
    people = sum(answer.arms.values())
    shares = {row.effect.metric for row in answer.effects if row.effect.rates is not None}
    effects = []
    for row in answer.effects:
        effect = row.effect
        if row.carries_verdict and effect.interval is not None and effect.p is not None and effect.se_population > 0:
            names = (source, answer.experiment, effect.metric, label(effect.control), label(effect.arm))
            numbers = (people, effect.estimate, effect.se_population, effect.interval, effect.p)
            share = effect.metric in shares
            effects.append(ReleasedEffect(*names, *numbers, row.better, share, answer.control_chosen))
    return effects


def unknown_controls(effects: Iterable[ReleasedEffect]) -> list[str]:
    """Return of which experiments nothing tells the control, one sentence each."""
    unknown = [effect for effect in effects if effect.control_chosen == "unknown"]
    pairs = dict.fromkeys((effect.experiment, effect.control) for effect in unknown)
    return [f"Which arm of {name} is the control? Its effects are against {control}." for name, control in pairs]


def chosen_metric(effects: Sequence[ReleasedEffect], metric: str | None) -> str:
    """Return the metric that is read: the one that is named, or the only one; raises `AnalysisError`."""
    known = list(dict.fromkeys(effect.metric for effect in effects))
    if metric is None and len(known) == 1:
        return known[0]
    if metric in known:
        return str(metric)
    fact = "several metrics, and none named" if metric is None else "no release has an effect on this metric"
    raise AnalysisError(fact, f"Name one of: {listed(known)}." if known else "Release experiments with two arms.")


# ── one experiment, combined ───────────────────────────────────────────────────────────────────

CombinedRows = Literal["effects", "parts", "notes"]


@dataclass(frozen=True)
class CombinedEffect:
    """One metric and arm: the effect in every release, and all of them together."""

    metric: str
    control: str
    arm: str
    parts: tuple[ReleasedEffect, ...]
    together: MetaAnalysis

    def to_dict(self) -> dict[str, Any]:
        """Return the effect as plain data."""
        parts = [
            {
                "name": part.source, "experiment": part.experiment, "people": part.people, "estimate": part.estimate,
                "se": part.se, "interval": list(part.interval), "p": part.p, "weight": weight,
            }
            for part, weight in zip(self.parts, self.together.weights, strict=True)
        ]  # fmt: skip
        together = asdict(self.together)
        del together["weights"], together["confidence"], together["method"]
        for name in ("interval", "prediction"):
            together[name] = None if together[name] is None else list(together[name])
        return {
            "metric": self.metric, "control": self.control, "control_chosen": self.parts[0].control_chosen,
            "arm": self.arm, "better": self.parts[0].better,
            "share": all(part.share for part in self.parts), **together, "parts": parts,
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class Combined(Printed[CombinedRows]):
    """Several releases read as one experiment. ``to_dict`` is documented and stable."""

    method: MetaMethod
    knapp_hartung: bool
    confidence: float
    effects: tuple[CombinedEffect, ...]
    notes: tuple[str, ...] = ()

    def _report(self) -> Report:
        return combined_report(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, ready for JSON."""
        return {
            "method": self.method,
            "knapp_hartung": self.knapp_hartung,
            "confidence": self.confidence,
            "effects": [effect.to_dict() for effect in self.effects],
            "notes": list(self.notes),
        }

    @check_arguments()
    def chart(self, *, metric: str | None = None) -> Figure:
        """Return a chart of every release and all of them together, of one metric or of all.

        Raises `AnalysisError` for a metric that is not there.
        """
        return combined_chart(self.to_dict(), metric)

    def _tables(self) -> Tables:
        data = self.to_dict()
        return {
            "effects": data["effects"],
            "parts": [
                {name: effect[name] for name in ("metric", "control", "arm")} | part
                for effect in data["effects"]
                for part in effect["parts"]
            ],
            "notes": [{"sentence": sentence} for sentence in data["notes"]],
        }


@check_arguments(skip=("releases",))
def combine(
    releases: Releases,
    experiment: str | None = None,
    *,
    metric: str | None = None,
    control: Level = None,
    method: MetaMethod = "reml",
    knapp_hartung: bool = True,
    confidence: float = 0.95,
) -> Combined:
    """Combine the effects of several releases about different people: batches, regions, countries, repeats.

    Each release keeps its own control group, so a change from week to week or from place to place does not pass for an
    effect. ``releases`` are named ({"de": …, "fr": …}) or listed; a sum of batches stands for its batches. ``method``
    is that of `meta_analysis`. Without a ``metric`` every one that two releases share is combined.

    Raises `PrivacyError` for anything but releases, or where two are about the same people; `AnalysisError` where fewer
    than two have an effect in common.
    """
    named = named_releases(releases, by_batch=True)
    if about_the_same_people(list(named.values()), experiment):
        raise PrivacyError(
            "two of these releases are about the same people",
            "Combine batches, regions or repeats, each with people of its own.",
        )
    effects: dict[tuple[str, str, str], list[ReleasedEffect]] = {}
    metrics: dict[str, None] = {}
    for name, released in named.items():
        for effect in released_effects(name, released, experiment, control=control, confidence=confidence):
            metrics[effect.metric] = None
            if metric in (None, effect.metric):
                effects.setdefault((effect.metric, effect.control, effect.arm), []).append(effect)
    if metric is not None and metric not in metrics:
        raise AnalysisError("no release has an effect on this metric", f"Name one of: {', '.join(metrics)}.")
    rows, notes = [], unknown_controls(part for parts in effects.values() for part in parts)
    for (of, against, arm), parts in effects.items():
        if len(parts) < 2:
            notes.append(f"{arm} against {against} on {of} is in {parts[0].source} alone.")
            continue
        together = meta_analysis(
            [part.estimate for part in parts], [part.se for part in parts], method=method,
            knapp_hartung=knapp_hartung, confidence=confidence,
        )  # fmt: skip
        rows.append(CombinedEffect(of, against, arm, tuple(parts), together))
    if not rows:
        raise AnalysisError(
            "no effect is in two of these releases",
            "Releases are combined by metric, control and arm: give two that share them.",
        )
    return Combined(method, knapp_hartung and method != "fixed", confidence, tuple(rows), tuple(notes))


# ── many experiments, shrunk ───────────────────────────────────────────────────────────────────

PortfolioRows = Literal["effects", "prior", "winners", "notes"]


@dataclass(frozen=True)
class PortfolioEffect:
    """One arm of one experiment, by itself and among all the others.

    ``winner``: clearly better by its own interval.
    """

    name: str
    effect: ReleasedEffect
    drawn: ShrunkEffect
    winner: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        effect, drawn = self.effect, self.drawn
        return {
            "name": self.name, "release": effect.source, "experiment": effect.experiment, "arm": effect.arm,
            "control": effect.control, "control_chosen": effect.control_chosen, "people": effect.people,
            "better": effect.better, "estimate": effect.estimate, "se": effect.se, "interval": list(effect.interval),
            "p": effect.p, "shrunk": drawn.shrunk, "shrunk_se": drawn.shrunk_se,
            "shrunk_interval": list(drawn.interval), "kept": drawn.kept, "winner": self.winner,
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class Portfolio(Printed[PortfolioRows]):
    """Many experiments read together, on one metric. ``to_dict`` is documented and stable."""

    metric: str
    confidence: float
    shrinkage: Shrinkage
    effects: tuple[PortfolioEffect, ...]
    notes: tuple[str, ...] = ()

    def _report(self) -> Report:
        return portfolio_report(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, ready for JSON."""
        winners = [row for row in self.effects if row.winner]
        return {
            "metric": self.metric,
            "share": all(row.effect.share for row in self.effects),
            "better": self.effects[0].effect.better,
            "confidence": self.confidence,
            "prior": {"mean": self.shrinkage.mean, "mean_se": self.shrinkage.mean_se, "sd": self.shrinkage.sd},
            "effects": [row.to_dict() for row in self.effects],
            "winners": {
                "count": len(winners),
                "mean": _mean([row.effect.estimate for row in winners]),
                "shrunk_mean": _mean([row.drawn.shrunk for row in winners]),
            },
            "notes": list(self.notes),
        }

    def chart(self) -> Figure:
        """Return a chart of effects, seen and after shrinkage."""
        return shrinkage_figure(mapped(self.to_dict(), printable))

    def _tables(self) -> Tables:
        data = self.to_dict()
        return {
            "effects": data["effects"],
            "prior": [data["prior"]],
            "winners": [data["winners"]],
            "notes": [{"sentence": sentence} for sentence in data["notes"]],
        }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


@check_arguments(skip=("releases",))
def read_portfolio(releases: Releases, metric: str | None = None, *, confidence: float = 0.95) -> Portfolio:
    """Read all experiments of several releases together, on one metric.

    Effects are shrunk by a normal prior that is fitted to all of them (`shrink`). Raises `PrivacyError` for anything
    but releases, `AnalysisError` for fewer than three effects on the metric.
    """
    check_sides(confidence, "two-sided")
    effects: list[ReleasedEffect] = []
    for source, released in named_releases(releases).items():
        for experiment in released.plan.experiment_names:
            if released.tables_of(experiment):
                effects += released_effects(source, released, experiment, confidence=confidence)
    metric = chosen_metric(effects, metric)
    effects = [effect for effect in effects if effect.metric == metric]
    drawn = shrink([effect.estimate for effect in effects], [effect.se for effect in effects], confidence=confidence)
    rows = []
    for name, effect, after in zip(_names(effects), effects, drawn.effects, strict=True):
        low, high = effect.interval
        winner = high < 0 if effect.better == "lower" else low > 0
        rows.append(PortfolioEffect(name, effect, after, winner))
    few = f"With fewer than {FEW} effects the spread of the prior is itself little more than a guess."
    notes = (*unknown_controls(row.effect for row in rows), *((few,) if len(rows) < FEW else ()))
    return Portfolio(metric, confidence, drawn, tuple(rows), notes)


def _names(effects: Sequence[ReleasedEffect]) -> list[str]:
    """Return a name for every row: the experiment, with its arm or release where it needs them."""

    def several(key: str, effect: ReleasedEffect) -> bool:
        mine = [other for other in effects if other.experiment == effect.experiment]
        return len({getattr(other, key) for other in mine}) > 1

    return [
        effect.experiment
        + (f": {effect.arm}" if several("arm", effect) else "")
        + (f" ({effect.source})" if several("source", effect) else "")
        for effect in effects
    ]
