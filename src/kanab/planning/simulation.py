"""Seeded A/A and A/B studies: does the chosen analysis do what it says, on people like yours?

A population is described by a few numbers. People are drawn from it again and again, counted into
tallies, and analysed: how often is an effect found, and how often does the interval hold the truth?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import scipy
from numpy.typing import NDArray

from kanab.arguments import check_arguments
from kanab.counting.columns import fill_tally, measure
from kanab.errors import AnalysisError, DesignError
from kanab.planning.noise import EVEN
from kanab.stats.effect import Effect, difference_in_means
from kanab.stats.gram import Floats
from kanab.tabular import number
from kanab.tally.factor import Factor, Level, as_level
from kanab.tally.metric import Metric
from kanab.tally.tally import Tally

Kind = Literal["rate", "amount", "count", "number"]
Tail = Literal["log-normal", "gamma"]
Analysis = Callable[[Tally], Effect]


@check_arguments()
@dataclass(frozen=True)
class Population:
    """People to draw from: how many a study has, their arms, one metric and one covariate.

    ``kind`` and what it needs:
    "rate": 0 or 1, with ``mean`` the rate;
    "amount": a ``paying`` share of people with amounts of this coefficient of variation (``spread``),
    log-normal or "gamma" (``tail``), the others 0; ``mean`` is over everybody;
    "count": negative binomial with this ``mean``; ``spread`` is how much rates differ between people (0: Poisson);
    "number": normal with standard deviation ``spread``.
    ``effects`` are added to the mean of an arm, by scaling amounts and counts. ``correlation`` links
    the metric with a covariate of ``levels`` equally frequent levels, on their normal scores.
    """

    people: int
    kind: Kind = "rate"
    mean: float = 0.1
    spread: float = 1.0
    paying: float = 1.0
    shares: Mapping[Any, float] | None = None
    effects: Mapping[Any, float] | None = None
    tail: Tail = "log-normal"
    levels: int = 1
    correlation: float = 0.0

    def __post_init__(self) -> None:
        problem = (
            "unknown kind of metric" if self.kind not in get_args(Kind) or self.tail not in get_args(Tail)
            else "a study needs four people or more" if type(self.people) is not int or self.people < 4
            else "levels must be a whole number, at least 1" if type(self.levels) is not int or self.levels < 1
            else "a correlation lies between −1 and 1" if not _within(self.correlation, -1, 1)
            else "the paying share lies above 0 and up to 1" if not _within(self.paying, 1e-12, 1)
            else "the spread is a number, not below 0" if not _within(self.spread, 0, math.inf)
            else self._means()
        )  # fmt: skip
        if problem:
            raise AnalysisError(problem, "See Population for what each kind needs.")

    def _means(self) -> str:
        """Return what is wrong with the arms' means, or nothing."""
        shares = self.arm_shares
        if len(shares) < 2 or not all(_within(share, 1e-12, math.inf) for share in shares.values()):
            return "shares need a positive number for every arm, two at least"
        if set(self._effects) - set(shares):
            return "an effect is of an unknown arm"
        means = [self.mean + effect for effect in (0, *self._effects.values())]
        if not all(_within(mean, -math.inf, math.inf) for mean in means):
            return "the mean and the effects must be finite numbers"
        if self.kind == "rate" and not all(0 < mean < 1 for mean in means):
            return "every arm's rate must lie between 0 and 1"
        if self.kind in ("amount", "count") and not all(mean > 0 for mean in means):
            return "every arm's mean must be positive"
        return ""

    @property
    def arm_shares(self) -> dict[Level, float]:
        """The arms and their shares; the first one is the control."""
        return {as_level(arm, "arm"): share for arm, share in (EVEN if self.shares is None else self.shares).items()}

    @property
    def _effects(self) -> dict[Level, float]:
        return {as_level(arm, "arm"): effect for arm, effect in (self.effects or {}).items()}

    def effect_of(self, contrast: tuple[tuple[Level, float], ...]) -> float:
        """Return the true value of a contrast of arm means."""
        return math.fsum(weight * (self.mean + self._effects.get(arm, 0.0)) for arm, weight in contrast)

    def draw(self, rng: np.random.Generator) -> Tally:
        """Draw the people of one study, assign and count them."""
        shares = self.arm_shares
        share = np.array(list(shares.values()), dtype=np.float64)
        arm = rng.choice(len(shares), self.people, p=share / share.sum())
        score = rng.standard_normal(self.people)
        correlated = self.correlation * score + math.sqrt(1 - self.correlation**2) * rng.standard_normal(self.people)
        level = np.minimum((scipy.special.ndtr(score) * self.levels).astype(np.intp), self.levels - 1)
        means = np.array([self.mean + self._effects.get(name, 0.0) for name in shares])
        metric, values = self._values(correlated, means[arm], rng)
        factors = [Factor("arm", tuple(shares), "arm")]
        code = arm.astype(np.intp)
        if self.levels > 1:
            factors.append(
                Factor("level", tuple(range(self.levels)), "covariate", tuple(map(float, range(self.levels))))
            )
            code = code * self.levels + level
        measured = measure(metric, values, np.zeros(self.people, dtype=bool))
        return fill_tally(tuple(factors), code, [measured], {"y": "marginals"})

    def _values(self, score: Floats, mean: Floats, rng: np.random.Generator) -> tuple[Metric, NDArray[np.float64]]:
        """Return everybody's value of the metric, from their hidden normal scores."""
        if self.kind == "rate":
            return Metric("y", 1, (0.0, 1.0)), (scipy.special.ndtr(score) > 1 - mean).astype(np.float64)
        if self.kind == "number":
            return Metric("y", _steps(self.spread)), mean + self.spread * score
        if self.kind == "count":
            rate = mean
            if self.spread > 0:  # gamma rates with this coefficient of variation
                shape = 1 / self.spread**2
                rate = mean * scipy.special.gammaincinv(shape, scipy.special.ndtr(score)) / shape
            return Metric("y"), rng.poisson(rate).astype(np.float64)
        place = (scipy.special.ndtr(score) - (1 - self.paying)) / self.paying  # among those who pay
        amount = self._amounts(np.clip(place, 1e-15, 1 - 1e-15)) * mean / self.paying
        return Metric("y", _steps(self.mean / self.paying)), np.where(place > 0, amount, 0.0)

    def _amounts(self, place: Floats) -> Floats:
        """Return amounts of mean 1 at these quantiles."""
        if self.spread == 0:
            return np.ones(len(place))
        if self.tail == "gamma":
            shape = 1 / self.spread**2
            return np.asarray(scipy.special.gammaincinv(shape, place) / shape)
        variance = math.log1p(self.spread**2)
        return np.asarray(np.exp(math.sqrt(variance) * scipy.special.ndtri(place) - variance / 2))


def _steps(size: float) -> int:
    """Return a grid so fine that rounding does not matter to values of this size."""
    return int(2 ** min(40, max(0, math.ceil(12 - math.log2(size))))) if size > 0 else 1


def _within(value: Any, low: float, high: float) -> bool:
    return isinstance(value, Real) and low <= float(value) <= high and math.isfinite(float(value))


@dataclass(frozen=True)
class Study:
    """The results of one analysis over many draws.

    ``rejected`` is how often p was below 1 − confidence: the size if there is no effect, else the power;
    ``rejected_error`` its own standard error. ``covered`` is how often the interval held the ``truth``.
    ``bias`` is the mean estimate minus the truth, ``width`` the mean width of intervals and
    ``error_ratio`` the mean standard error over the true one. ``untestable`` runs are in none of them.
    """

    population: Population
    runs: int
    untestable: int
    confidence: float
    truth: float
    rejected: float
    rejected_error: float
    covered: float
    bias: float
    width: float
    error_ratio: float

    def __str__(self) -> str:
        finds = "finds an effect falsely" if self.truth == 0 else f"finds the effect of {number(self.truth)}"
        return (
            f"{self.runs:,} studies of {self.population.people:,} people: {finds} in {100 * self.rejected:.3g} % "
            f"(± {100 * self.rejected_error:.2g}); {self.confidence:.0%} intervals hold it in "
            f"{100 * self.covered:.3g} %, mean width {number(self.width)}; bias {number(self.bias)}"
        )


@check_arguments()
def simulate(
    population: Population, analysis: Analysis = difference_in_means, *, runs: int = 1_000, seed: int = 0
) -> Study:
    """Draw, count and analyse many studies; the same seed gives the same answer.

    ``analysis`` takes a tally to an effect: ``difference_in_means``, ``adjusted_effect``, or a function
    of your own. Without ``effects`` it is an A/A study. Raises `AnalysisError` where fewer than two
    studies could be tested.

    >>> print(simulate(Population(400, "rate", 0.2), runs=200, seed=1))
    200 studies of 400 people: finds an effect falsely in 4.5 % (± 1.5); 95% intervals hold it in 95.5 %, ...
    """
    if type(runs) is not int or runs < 2:
        raise AnalysisError("runs must be a whole number, at least 2", "A thousand give the size to ± 0.7 points.")
    rng = np.random.default_rng(seed)
    effects = []
    for _ in range(runs):
        try:
            effect = analysis(population.draw(rng))
        except (AnalysisError, DesignError):  # an empty arm, or too few people for the fit
            continue
        if effect.testable:
            effects.append(effect)
    if len(effects) < 2:
        raise AnalysisError("hardly any study could be tested", "Draw more people, or a metric that varies more.")
    return _summary(population, effects, runs)


def _summary(population: Population, effects: list[Effect], runs: int) -> Study:
    first = effects[0]
    truth = population.effect_of(first.contrast)
    estimates = np.array([effect.estimate for effect in effects])
    errors = np.array([effect.se_population for effect in effects])
    p = np.array([effect.p for effect in effects], dtype=np.float64)
    low, high = np.array([effect.interval for effect in effects], dtype=np.float64).T
    rejected = float(np.mean(p < 1 - first.confidence))
    return Study(
        population, runs, runs - len(effects), first.confidence, truth, rejected,
        math.sqrt(rejected * (1 - rejected) / len(effects)), float(np.mean((low <= truth) & (truth <= high))),
        float(estimates.mean()) - truth, float(np.mean(high - low)), float(errors.mean() / estimates.std(ddof=1)),
    )  # fmt: skip
