"""Noise: how much one person's value varies, from which the error of an effect follows before anybody has come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError, LevelError, listed
from kanab.stats.distributions import correlations_of, satterthwaite_df
from kanab.stats.effect import ArmMeans, differences_from, known_control
from kanab.stats.gram import Floats
from kanab.stats.skewness import LEVEL, Shape, Tilt, tilt
from kanab.tally.factor import Level, as_level, label

EVEN: Mapping[Any, float] = {"A": 1, "B": 1}
"""Two arms of equal shares, the first one the control."""


@dataclass(frozen=True, eq=False)
class Noise:
    """Per arm: its share of the people, and the variance of one person's value (after adjustment).

    ``drawn`` is what comes on top because people are drawn from a population whose slopes differ
    between arms (nothing for plain means); ``lost`` the coefficients of each arm's fit; ``mean``
    the control's mean, for relative effects. Of a 0/1 metric (``binary``) the variance follows the
    rate, and ``unexplained`` is the share of it that adjustment leaves. Where an effect multiplies
    amounts (``grows``), an arm's standard deviation grows with its mean. ``shape`` is what a release knows of the
    metric's values; without one they are taken to be symmetric. ``own_rows``: it was computed on rows, without the
    gate.
    """

    arms: tuple[Level, ...]
    control: Level
    shares: Floats
    variances: Floats
    drawn: Floats
    lost: Floats
    mean: float | None = None
    binary: bool = False
    unexplained: Floats | None = None
    grows: bool = False
    shape: Shape | None = None
    own_rows: bool = False

    @property
    def plain_rate(self) -> bool:
        """Whether it is a 0/1 metric without adjustment, which the score test is for."""
        return self.binary and (self.unexplained is None or bool(np.all(self.unexplained >= 1)))

    @property
    def others(self) -> tuple[Level, ...]:
        """Every arm but the control."""
        return tuple(arm for arm in self.arms if arm != self.control)

    def place(self, arm: Any) -> int:
        """Return the position of an arm; raises `LevelError` for an unknown one."""
        wanted = as_level(arm, "arm")
        if wanted not in self.arms:
            raise LevelError("unknown arm", f"Arms: {listed(map(label, self.arms))}.")
        return self.arms.index(wanted)

    def variance_of(self, arm: Level, effect: float) -> float:
        """Return the variance of one person of an arm that has this effect."""
        place = self.place(arm)
        if arm == self.control or self.mean is None or not (self.binary or self.grows):
            return float(self.variances[place])
        if self.grows:
            return float(self.variances[place]) * (1 + effect / self.mean) ** 2
        rate = min(1.0, max(0.0, self.mean + effect))
        left = 1.0 if self.unexplained is None else float(self.unexplained[place])
        return rate * (1 - rate) * left

    def error(self, arm: Level, people: float, effect: float) -> tuple[float, float]:
        """Return standard error and Satterthwaite's df of an arm minus the control, with so many people in all."""
        n, variances, freedom, beyond = self._pair(arm, people, effect)
        return math.sqrt(float(np.sum(variances / n)) + beyond), satterthwaite_df(variances / n, freedom)

    def alike_error(self, arm: Level, people: float, effect: float) -> tuple[float, float]:
        """Return the same with one variance for both arms."""
        n, variances, freedom, beyond = self._pair(arm, people, effect)
        variance = float(freedom @ variances / freedom.sum())
        return math.sqrt(variance * float(np.sum(1 / n)) + beyond), float(freedom.sum())

    def tilted(self, arm: Level, people: float, effect: float) -> Tilt:
        """Return how skewed the difference of an arm and the control is; not at all where that is unknown."""
        if self.shape is None or not self.shape.skewness:
            return LEVEL
        n, variances, _, _ = self._pair(arm, people, effect)
        return tilt(self.shape.skewness, np.array([1.0, -1.0]), n, variances / n)

    def needs_alike(self, arm: Level, people: float) -> bool:
        """Return whether the t-test with one variance for both arms has to agree."""
        fewest = people * float(self.shares[[self.place(arm), self.place(self.control)]].min())
        return self.shape is not None and self.shape.needs_alike(fewest)

    def _pair(self, arm: Level, people: float, effect: float) -> tuple[Floats, Floats, Floats, float]:
        """Return people, variances and degrees of freedom of an arm and the control, and what comes on top."""
        pair = [self.place(arm), self.place(self.control)]
        n = people * self.shares[pair]
        variances = np.array([self.variance_of(arm, effect), float(self.variances[pair[1]])])
        (own, shared), (_, base) = self.drawn[np.ix_(pair, pair)].tolist()
        return n, variances, np.maximum(n - self.lost[pair], 1e-9), max(0.0, own - 2 * shared + base) / people

    def correlations(self, effect: float) -> Floats:
        """Return how the arms' effects correlate, all being compared with one control."""
        variances = [self.variance_of(arm, effect) / share for arm, share in zip(self.arms, self.shares, strict=True)]
        c = differences_from(self.place(self.control), len(self.arms))
        return correlations_of(c @ (np.diag(variances) + self.drawn) @ c.T)

    @property
    def fewest(self) -> float:
        """The people in all below which an arm could not be fitted."""
        return float(np.max((self.lost + 1) / self.shares))


@check_arguments()
def noise_of_amounts(
    sd: float | Mapping[Any, float],
    *,
    mean: float | None = None,
    shares: Mapping[Any, float] = EVEN,
    control: Any = None,
    r2: float | Mapping[Any, float] = 0.0,
    slopes: int = 0,
    grows: bool = False,
) -> Noise:
    """Return the noise of a standard deviation of one person, the same in all arms or per arm.

    For a ratio metric it is that of the linearised metric, (y − R z)/z̄. ``r2`` is the share of the
    variance that covariates explain, ``slopes`` how many coefficients they take. ``mean`` is the
    control's, for relative effects. ``grows``: the effect multiplies amounts, and so their spread.
    Raises `AnalysisError` for numbers that no experiment has, `LevelError` for an unknown control.

    >>> noise_of_amounts(20, r2=0.5, shares={"off": 9, "on": 1}).variances
    array([200., 200.])
    """
    arms, share, base = _arms(shares, control)
    deviations = _per_arm(sd, arms, "a standard deviation", least=0.0)
    if not np.all(deviations > 0):
        raise AnalysisError("a standard deviation must be positive", "Give that of one person's value.")
    left = 1 - _explained(r2, arms)
    return Noise(
        arms, base, share, deviations**2 * left, np.zeros((len(arms), len(arms))),
        np.full(len(arms), 1.0 + _slopes(slopes)), _finite(mean), grows=_multiplied(grows, mean),
    )  # fmt: skip


@check_arguments()
def noise_of_rate(
    rate: float,
    *,
    shares: Mapping[Any, float] = EVEN,
    control: Any = None,
    r2: float | Mapping[Any, float] = 0.0,
    slopes: int = 0,
) -> Noise:
    """Return the noise of a 0/1 metric: the control's rate says it all; an arm's own follows from its effect.

    Raises `AnalysisError` for a rate outside 0 … 1, `LevelError` for an unknown control.

    >>> noise = noise_of_rate(0.1)
    >>> round(noise.variances[0], 4).item(), round(noise.variance_of("B", 0.02), 4)
    (0.09, 0.1056)
    """
    arms, share, base = _arms(shares, control)
    if not isinstance(rate, Real) or not 0 < rate < 1:
        raise AnalysisError("a rate must lie between 0 and 1", "For example 0.05 for five in a hundred.")
    left = 1 - _explained(r2, arms)
    return Noise(
        arms, base, share, rate * (1 - rate) * left, np.zeros((len(arms), len(arms))),
        np.full(len(arms), 1.0 + _slopes(slopes)), float(rate), True, left,
    )  # fmt: skip


@check_arguments()
def noise_of_means(
    means: ArmMeans,
    *,
    shares: Mapping[Any, float] | None = None,
    control: Any = None,
    rate: bool = False,
    grows: bool = False,
) -> Noise:
    """Return the noise of a finished experiment, from its plain, adjusted or ratio means.

    Shares are the realised ones unless others are given. ``rate``: a 0/1 metric, whose variance follows
    from its rate and what adjustment left of it then. ``grows``: the effect multiplies amounts. The means' shape is
    kept, and what was added for ε is left out. Raises `LevelError` for unknown arms, `AnalysisError` for a rate outside
    0 … 1 and for values of which noise hides how they vary.

    >>> from kanab.datasets import eighteen
    >>> from kanab.stats.effect import plain_means
    >>> noise_of_means(plain_means(eighteen())).variances.round(4)
    array([0.4222, 0.9616])
    """
    people = np.array(means.people, dtype=np.float64)
    arms, share = positive_shares(dict(zip(means.arms, people, strict=True)) if shares is None else shares, "arm")
    if set(arms) != set(means.arms):
        raise LevelError("the shares are not those of these arms", f"Arms: {listed(map(label, means.arms))}.")
    order = [means.arms.index(arm) for arm in arms]
    drawn = means.slopes @ means.spread @ means.slopes.T * people.sum()
    base = known_control(arms, means.base(control))
    mean = float(means.means[means.arms.index(base)])
    if np.any(means.too_noisy):
        raise AnalysisError(
            f"how {means.metric} varies is hidden by the noise of this release",
            "Give a standard deviation that you know (--sd 20), or a rate (--rate 0.1).",
        )
    variances = (means.sample * people)[order]
    lost = people - means.df if means.noise is None else np.full(len(people), 1.0 + means.slopes.shape[1])
    left = None
    if rate:
        whole = (means.means * (1 - means.means))[order]
        if grows or not np.all(whole > 0):
            raise AnalysisError("a rate must lie between 0 and 1", "Amounts are planned without rate=True.")
        left = variances / whole
    return Noise(
        arms, base, share, variances, drawn[np.ix_(order, order)], lost[order], mean, rate, left,
        _multiplied(grows, mean), means.shape,
    )  # fmt: skip


def positive_shares(shares: Any, kind: str) -> tuple[tuple[Level, ...], Floats]:
    """Return arms (or levels) and their shares, adding up to one; raises `AnalysisError` for fewer than two."""
    by_name = {as_level(name, kind): share for name, share in shares.items()} if isinstance(shares, Mapping) else {}
    if len(by_name) < 2 or not all(isinstance(x, Real) and 0 < float(x) < math.inf for x in by_name.values()):
        raise AnalysisError(f"shares need a positive number for every {kind}, two at least", "For example 9 and 1.")
    numbers = np.array([float(x) for x in by_name.values()])
    return tuple(by_name), numbers / numbers.sum()


def _arms(shares: Any, control: Any) -> tuple[tuple[Level, ...], Floats, Level]:
    """Return the arms, their shares adding up to one, and the control: the first unless named."""
    arms, share = positive_shares(shares, "arm")
    return arms, share, known_control(arms, arms[0] if control is None else as_level(control, "arm"))


def _per_arm(value: Any, arms: tuple[Level, ...], name: str, least: float) -> Floats:
    """Return a number per arm, from one for all arms or one for each."""
    by_arm = {as_level(arm, "arm"): x for arm, x in value.items()} if isinstance(value, Mapping) else None
    if by_arm is not None and set(by_arm) != set(arms):
        raise AnalysisError(f"{name} is needed for every arm", f"Arms: {listed(map(label, arms))}.")
    numbers = [value if by_arm is None else by_arm[arm] for arm in arms]
    if not all(isinstance(x, Real) and least <= float(x) < math.inf for x in numbers):
        raise AnalysisError(f"{name} must be a finite number, not below {least:g}", "One number, or one per arm.")
    return np.array(numbers, dtype=np.float64)


def _explained(r2: Any, arms: tuple[Level, ...]) -> Floats:
    explained = _per_arm(r2, arms, "R²", least=0.0)
    if not np.all(explained < 1):
        raise AnalysisError("R² must be below 1", "It is the share of the variance that covariates explain.")
    return explained


def _slopes(slopes: Any) -> int:
    if type(slopes) is not int or slopes < 0:
        raise AnalysisError("slopes must be a whole number, not below 0", "Count the coefficients of the covariates.")
    return slopes


def _finite(mean: Any) -> float | None:
    if mean is not None and not (isinstance(mean, Real) and math.isfinite(mean)):
        raise AnalysisError("the control's mean must be a finite number", "Leave it out if it is not known.")
    return None if mean is None else float(mean)


def _multiplied(grows: bool, mean: float | None) -> bool:
    if grows and not (mean is not None and mean > 0):
        raise AnalysisError("only amounts with a positive mean are multiplied", "Give the control's mean.")
    return grows
