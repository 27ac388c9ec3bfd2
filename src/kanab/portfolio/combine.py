"""One experiment over batches, regions or releases: effects combined, and whether they differ from place to place."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from kanab.arguments import check_arguments
from kanab.choices import MetaMethod
from kanab.dataframes import Frames, Tables
from kanab.errors import AnalysisError, PrivacyError
from kanab.portfolio.meta import MetaAnalysis, meta_analysis
from kanab.portfolio.portfolio_report import combined_chart, combined_report, combined_text
from kanab.portfolio.release_effects import (
    ReleasedEffect,
    Releases,
    named_releases,
    released_effects,
    unknown_controls,
)
from kanab.privacy.batches import about_the_same_people
from kanab.report.figure import Figure
from kanab.tally.factor import Level

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
class Combined(Frames[CombinedRows]):
    """Several releases read as one experiment. ``to_dict`` is documented and stable."""

    method: MetaMethod
    knapp_hartung: bool
    confidence: float
    effects: tuple[CombinedEffect, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return combined_text(self.to_dict())

    __repr__ = __str__

    def to_report(self) -> str:
        """Return one self-contained HTML page with forest plots."""
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
