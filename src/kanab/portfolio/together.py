"""All experiments of a folder of releases on one metric, and what their effects are worth after shrinkage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kanab.arguments import check_arguments
from kanab.dataframes import Frames, Tables
from kanab.portfolio.portfolio_report import portfolio_report, portfolio_text, shrinkage_figure
from kanab.portfolio.release_effects import (
    ReleasedEffect,
    Releases,
    chosen_metric,
    named_releases,
    released_effects,
    unknown_controls,
)
from kanab.portfolio.shrinkage import FEW, Shrinkage, ShrunkEffect, shrink
from kanab.report.figure import Figure
from kanab.report.text import mapped, printable
from kanab.stats.distributions import check_sides

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
class Portfolio(Frames[PortfolioRows]):
    """Many experiments read together, on one metric. ``to_dict`` is documented and stable."""

    metric: str
    confidence: float
    shrinkage: Shrinkage
    effects: tuple[PortfolioEffect, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return portfolio_text(self.to_dict())

    __repr__ = __str__

    def to_report(self) -> str:
        """Return one self-contained HTML page with the picture of shrinkage."""
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
