"""All experiments of a folder of releases: what their effects are worth after shrinkage, which of them are discoveries
by e-values, and what everything that was shipped has done, against a holdout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import scipy

from kanab.arguments import check_arguments
from kanab.choices import HOLDOUT, TUNED_AT
from kanab.dataframes import Frames, Tables
from kanab.errors import AnalysisError, listed
from kanab.portfolio.evidence import e_bh
from kanab.portfolio.released import (
    ReleasedEffect,
    Releases,
    chosen_metric,
    named_releases,
    plain_interval_of,
    released_effects,
)
from kanab.portfolio.report.notebook_charts import PortfolioChart, portfolio_chart
from kanab.portfolio.report.pages import portfolio_report
from kanab.portfolio.report.words import portfolio_text
from kanab.portfolio.shrinkage import FEW, Shrinkage, ShrunkEffect, shrink
from kanab.stats.distributions import check_sides

_LARGEST_LOG = 700.0
"""Of an e-value beyond e^700 a double knows nothing but that it is large."""


PortfolioRows = Literal["effects", "shipped", "prior", "winners", "notes"]


@dataclass(frozen=True)
class PortfolioEffect:
    """One arm of one experiment, by itself and among all the others.

    ``winner``: clearly better by its own interval. ``q`` is the smallest α at which e-BH calls it a discovery.
    """

    name: str
    effect: ReleasedEffect
    drawn: ShrunkEffect
    q: float
    winner: bool
    discovery: bool
    shipped: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        effect, drawn = self.effect, self.drawn
        return {
            "name": self.name, "release": effect.source, "experiment": effect.experiment, "arm": effect.arm,
            "control": effect.control, "people": effect.people, "better": effect.better, "estimate": effect.estimate,
            "se": effect.se, "interval": list(effect.interval), "p": effect.p, "shrunk": drawn.shrunk,
            "shrunk_se": drawn.shrunk_se, "shrunk_interval": list(drawn.interval), "kept": drawn.kept,
            "e": math.exp(min(_LARGEST_LOG, effect.log_evidence)), "q": self.q, "winner": self.winner,
            "discovery": self.discovery, "shipped": self.shipped,
        }  # fmt: skip


@dataclass(frozen=True)
class Sum:
    """A sum of effects with its error and interval."""

    estimate: float
    se: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Holdout:
    """The effect of everything that was shipped, against people who saw none of it."""

    experiment: str
    effect: ReleasedEffect


@dataclass(frozen=True, repr=False)
class Portfolio(Frames[PortfolioRows]):
    """Many experiments read together, on one metric. ``to_dict`` is documented and stable."""

    metric: str
    confidence: float
    tuned_at: int
    shrinkage: Shrinkage
    effects: tuple[PortfolioEffect, ...]
    raw_sum: Sum | None
    shrunk_sum: Sum | None
    holdout: Holdout | None
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
        holdout = self.holdout
        return {
            "metric": self.metric,
            "share": all(row.effect.share for row in self.effects),
            "better": self.effects[0].effect.better,
            "confidence": self.confidence,
            "tuned_at": self.tuned_at,
            "prior": {"mean": self.shrinkage.mean, "mean_se": self.shrinkage.mean_se, "sd": self.shrinkage.sd},
            "effects": [row.to_dict() for row in self.effects],
            "winners": {
                "count": len(winners),
                "mean": _mean([row.effect.estimate for row in winners]),
                "shrunk_mean": _mean([row.drawn.shrunk for row in winners]),
            },
            "shipped": {"sum": _plain_sum(self.raw_sum), "shrunk_sum": _plain_sum(self.shrunk_sum)},
            "holdout": None
            if holdout is None
            else {
                "experiment": holdout.experiment, "arm": holdout.effect.arm, "holdout": holdout.effect.control,
                "people": holdout.effect.people, "estimate": holdout.effect.estimate, "se": holdout.effect.se,
                "interval": list(holdout.effect.interval), "p": holdout.effect.p,
            },
            "notes": list(self.notes),
        }  # fmt: skip

    @check_arguments(skip=("what",))
    def chart(self, what: PortfolioChart = "effects") -> Any:
        """Return an Altair chart of effects, seen and after shrinkage, or of everything that was "shipped".

        Raises `MissingExtraError` without the extra ``[charts]``, `AnalysisError` where there is nothing to draw.
        """
        return portfolio_chart(self.to_dict(), what)

    def _tables(self) -> Tables:
        data = self.to_dict()
        measured = {**data["shipped"], "holdout": data["holdout"]}
        return {
            "effects": data["effects"],
            "shipped": [{"of": name} | row for name, row in measured.items() if row is not None],
            "prior": [data["prior"]],
            "winners": [data["winners"]],
            "notes": [{"sentence": sentence} for sentence in data["notes"]],
        }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _plain_sum(total: Sum | None) -> dict[str, Any] | None:
    return None if total is None else vars(total) | {"interval": plain_interval_of(total.interval)}


@check_arguments(skip=("releases",))
def read_portfolio(
    releases: Releases,
    metric: str | None = None,
    *,
    holdout: str | None = None,
    holdout_arm: str = HOLDOUT,
    shipped: Sequence[str] | None = None,
    confidence: float = 0.95,
    tuned_at: int = TUNED_AT,
) -> Portfolio:
    """Read all experiments of several releases together, on one metric.

    Effects are shrunk by a normal prior that is fitted to all of them (`shrink`); e-values of the any-time test, tuned
    at ``tuned_at`` people, make discoveries at α = 1 − confidence (`e_bh`). ``holdout`` is the experiment whose arm
    ``holdout_arm`` saw nothing of what was shipped; ``shipped`` names experiments (or "experiment: arm"), by
    default all that are clearly better by themselves.

    Raises `PrivacyError` for anything but releases, `AnalysisError` for fewer than three experiments with the metric,
    and for an unknown holdout or shipped experiment.
    """
    check_sides(confidence, "two-sided")
    singles: list[ReleasedEffect] = []
    held: list[ReleasedEffect] = []
    for source, released in named_releases(releases).items():
        for experiment in released.plan.experiment_names:
            if not released.tables_of(experiment):
                continue
            control = holdout_arm if experiment == holdout else None
            effects = released_effects(
                source, released, experiment, control=control, confidence=confidence, tuned_at=tuned_at
            )
            (held if experiment == holdout else singles).extend(effects)
    metric = chosen_metric(singles, metric)
    singles = [effect for effect in singles if effect.metric == metric]
    names = _names(singles)
    drawn = shrink([effect.estimate for effect in singles], [effect.se for effect in singles], confidence=confidence)
    alpha = 1 - confidence
    q = e_bh([effect.log_evidence for effect in singles])
    winners = [_is_winner(effect) for effect in singles]
    chosen = winners if shipped is None else _shipped(names, singles, shipped)
    rows = tuple(
        PortfolioEffect(name, effect, after, value, winner, value <= alpha, ships)
        for name, effect, after, value, winner, ships in zip(
            names, singles, drawn.effects, q, winners, chosen, strict=True
        )
    )
    raw, after = _sums(singles, drawn, chosen, confidence)
    whole_effect = None if holdout is None else _holdout(held, holdout, metric)
    return Portfolio(metric, confidence, tuned_at, drawn, rows, raw, after, whole_effect, _notes(rows))


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


def _is_winner(effect: ReleasedEffect) -> bool:
    low, high = effect.interval
    return high < 0 if effect.better == "lower" else low > 0


def _shipped(names: Sequence[str], effects: Sequence[ReleasedEffect], shipped: Sequence[str]) -> list[bool]:
    known = {*names, *(effect.experiment for effect in effects)}
    if isinstance(shipped, str) or not all(name in known for name in shipped):
        raise AnalysisError("unknown experiment among the shipped", f"There are: {listed(names)}.")
    return [name in shipped or effect.experiment in shipped for name, effect in zip(names, effects, strict=True)]


def _sums(
    effects: Sequence[ReleasedEffect], drawn: Shrinkage, shipped: Sequence[bool], confidence: float
) -> tuple[Sum | None, Sum | None]:
    places = [place for place, ships in enumerate(shipped) if ships]
    if not places:
        return None, None
    reach = float(scipy.special.ndtri((1 + confidence) / 2))
    raw = math.fsum(effects[place].estimate for place in places)
    error = math.sqrt(math.fsum(effects[place].se ** 2 for place in places))
    estimate, se = drawn.sum_of(places)
    return (
        Sum(raw, error, (raw - reach * error, raw + reach * error)),
        Sum(estimate, se, (estimate - reach * se, estimate + reach * se)),
    )


def _holdout(held: Sequence[ReleasedEffect], holdout: str, metric: str) -> Holdout:
    mine = [effect for effect in held if effect.metric == metric]
    if not mine:
        raise AnalysisError(
            "the holdout has no effect on this metric", "Check its name, and that it measures the metric."
        )
    if len(mine) > 1:
        raise AnalysisError(
            "a holdout has two arms, in one release: those who saw nothing, and all others",
            "Give one release of it, with two arms.",
        )
    return Holdout(holdout, mine[0])


def _notes(rows: Sequence[PortfolioEffect]) -> tuple[str, ...]:
    few = f"With fewer than {FEW} effects the spread of the prior is itself little more than a guess."
    return (few,) if len(rows) < FEW else ()
