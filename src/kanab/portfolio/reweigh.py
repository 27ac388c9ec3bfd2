"""Shares for the next period, from batches that are sealed: batch Thompson sampling.

An arm's share is its chance to be the best, by a flat prior on effects and a level of its own for every batch, so that
a good week does not pass for a good arm; every arm keeps a least share. Shares that follow results bias means over all
people, but not the effect within a batch, whose shares were fixed before its people came. So effects are read by
batches, adjusted as the plan says: each batch's z is standard normal whatever came before, and their sum over √batches
is, too (batched inference, Zhang, Janson and Murphy 2020). The estimate weighs batches by 1/se.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy

from kanab.analysis.api import is_rate, released_means
from kanab.arguments import check_arguments
from kanab.choices import LEAST_SHARE
from kanab.dataframes import Frames, Tables
from kanab.errors import AnalysisError, PrivacyError
from kanab.portfolio.combine import check_different_people
from kanab.portfolio.released import Releases, named_releases
from kanab.portfolio.report.notebook_charts import shares_chart
from kanab.portfolio.report.reweigh import shares_report, shares_text
from kanab.privacy.release import Release
from kanab.stats.distributions import check_sides
from kanab.stats.effect import ArmMeans
from kanab.stats.gram import Floats
from kanab.stats.margins import Better
from kanab.tally.factor import Level, label

_DRAWS = 20_000
_SEED = 1


@dataclass(frozen=True)
class ArmShare:
    """One arm: its people, its effect over all batches (None for the control), and its shares until now and next."""

    arm: str
    people: int
    estimate: float | None
    interval: tuple[float, float] | None
    best: float
    share: float
    next_share: float


@dataclass(frozen=True, repr=False)
class ProposedShares(Frames[Literal["arms", "covariates"]]):
    """Shares for the next period, by effects adjusted for ``covariates``. ``to_dict`` is documented and stable."""

    experiment: str
    metric: str
    control: str
    better: Better
    binary: bool
    batches: int
    least_share: float
    confidence: float
    arms: tuple[ArmShare, ...]
    covariates: tuple[str, ...] = ()

    def __str__(self) -> str:
        return shares_text(self.to_dict())

    __repr__ = __str__

    def to_report(self) -> str:
        """Return one self-contained HTML page with the picture of shares."""
        return shares_report(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, ready for JSON."""
        arms = [vars(arm) | {"interval": None if arm.interval is None else list(arm.interval)} for arm in self.arms]
        names = ("experiment", "metric", "control", "better", "binary", "batches", "least_share", "confidence")
        return {name: getattr(self, name) for name in names} | {
            "arms": arms,
            "covariates": list(self.covariates),
        }

    def chart(self) -> Any:
        """Return an Altair chart of the shares of the arms, until now and next.

        Raises `MissingExtraError` without the extra ``[charts]``, `AnalysisError` where there is nothing to draw.
        """
        return shares_chart(self.to_dict())

    def _tables(self) -> Tables:
        return {"arms": self.to_dict()["arms"], "covariates": [{"covariate": name} for name in self.covariates]}


@check_arguments(skip=("releases",))
def propose_shares(
    releases: Releases,
    experiment: str | None = None,
    *,
    metric: str | None = None,
    control: Level = None,
    better: Better = "higher",
    least_share: float = LEAST_SHARE,
    confidence: float = 0.95,
) -> ProposedShares:
    """Propose the arms' shares for the next period, from sealed batches of one experiment.

    ``releases`` are its batches, each with people of its own; shares may have differed between them. ``metric`` is
    what an arm should be best at. Raises `PrivacyError` for anything but releases, and where batches have the same
    people, other arms or another experiment; `AnalysisError` for an unknown metric, for a least share that arms cannot
    all have, and where nothing varies.
    """
    check_sides(confidence, "two-sided")
    batches = list(named_releases(releases, by_batch=True).values())
    check_different_people(batches, experiment)
    name = batches[0].plan.experiment(experiment).name
    if any(name not in batch.plan.experiment_names for batch in batches):
        raise PrivacyError("these are releases of different experiments", "Give the batches of one experiment.")
    means = [_means(batch, name, metric) for batch in batches]
    arms = means[0].arms
    if any(other.arms != arms for other in means):
        raise PrivacyError("batches of one experiment have the same arms", "Leave out batches of before an arm came.")
    if better not in ("higher", "lower"):
        raise AnalysisError("better is 'higher' or 'lower'", "Say which direction of the metric is good.")
    if not 0 <= least_share <= 1 / len(arms):
        raise AnalysisError("every arm cannot have that least share", "Give at most 1 over the number of arms.")
    base = arms.index(means[0].base(control))
    y = np.array([batch.means for batch in means])
    if any(batch.too_noisy.any() for batch in means):
        raise AnalysisError("a batch is too noisy to tell whether anything varies", "Add batches first.")
    v = np.array([batch.covariance for batch in means])
    if not all(np.all(batch.sample > 0) for batch in means):
        raise AnalysisError("in a batch nothing varies in an arm", "Wait for more people, or add batches first.")
    best = best_chances(y, v, base, better=better)
    people = np.sum([batch.people for batch in means], axis=0)
    last = np.array(means[-1].people) / sum(means[-1].people)
    shares = _rounded(least_share + (1 - least_share * len(arms)) * best)
    rows = []
    for place, arm in enumerate(arms):
        estimate, interval = None, None
        if place != base:
            between = v[:, place, place] + v[:, base, base] - 2 * v[:, place, base]
            estimate, interval = batched_effect(y[:, place] - y[:, base], between, confidence)
        chance, now = float(best[place]), float(last[place])
        rows.append(ArmShare(label(arm), int(people[place]), estimate, interval, chance, now, shares[place]))
    binary = is_rate(batches[0], name, means[0].metric)
    covariates = tuple(sorted({covariate for batch in means for covariate in batch.covariates}))
    return ProposedShares(
        name, means[0].metric, label(arms[base]), better, binary, len(batches), least_share, confidence, tuple(rows),
        covariates,
    )  # fmt: skip


def _means(batch: Release, experiment: str, metric: str | None) -> ArmMeans:
    """Return the means that the readout of a batch compares: the adjusted ones where there are some."""
    measured = released_means(batch, experiment)
    outcomes, numbers = list(dict.fromkeys(means.metric for means in measured)), batch.plan.numbers
    if metric is None and len(outcomes) > 1:
        raise AnalysisError("several metrics, and none named", f"Name one of: {', '.join(outcomes)}.")
    if metric in numbers:
        raise AnalysisError(f"{metric} was measured before the experiment", f"Name one of: {', '.join(outcomes)}.")
    if not outcomes or (metric is not None and metric not in outcomes):
        raise AnalysisError("unknown metric", f"The release has: {', '.join(outcomes) or 'none'}.")
    return [means for means in measured if metric in (None, means.metric)][-1]


def best_chances(
    means: Floats, covariances: Floats, base: int, *, better: Better = "higher", draws: int = _DRAWS
) -> Floats:
    """Return each arm's chance to be the best, from means by batch and arm and the covariances of each batch.

    Every batch has a level of its own, so only differences within batches count. The chances are those of draws with a
    fixed seed: the same batches give the same shares.
    """
    precision = np.zeros((means.shape[1], means.shape[1]))
    moments = np.zeros(means.shape[1])
    for y, weights in zip(means, np.linalg.inv(covariances), strict=True):
        levels = weights.sum(axis=0)
        within = weights - np.outer(levels, levels) / levels.sum()
        precision += within
        moments += within @ y
    others = [arm for arm in range(means.shape[1]) if arm != base]
    covariance = np.linalg.inv(precision[np.ix_(others, others)])
    effects = np.zeros((draws, means.shape[1]))
    centre = covariance @ moments[others]
    effects[:, others] = np.random.default_rng(_SEED).multivariate_normal(centre, covariance, draws)
    leading = effects.argmax(axis=1) if better == "higher" else effects.argmin(axis=1)
    return np.asarray(np.bincount(leading, minlength=means.shape[1]) / draws)


def batched_effect(differences: Floats, variances: Floats, confidence: float) -> tuple[float, tuple[float, float]]:
    """Return the effect over batches and its interval, valid although shares followed earlier batches."""
    weights = 1 / np.sqrt(variances)
    total = float(weights.sum())
    estimate = float(weights @ differences) / total
    reach = float(scipy.special.ndtri((1 + confidence) / 2)) * math.sqrt(len(weights)) / total
    return estimate, (estimate - reach, estimate + reach)


def _rounded(shares: Floats) -> list[float]:
    """Return shares in whole percent that add up to 1: the largest remainders are rounded up."""
    parts = np.floor(shares * 100 + 1e-9)
    missing = round(100 - parts.sum())
    order: Sequence[int] = np.argsort(parts - shares * 100, kind="stable")[:missing].tolist()
    for place in order:
        parts[place] += 1
    return [float(part) / 100 for part in parts]
