"""Quantiles of an arm, and differences of quantiles, from counts of people in bins.

Between edges the share of people below is interpolated by the monotone cubic of Fritsch and Carlson. Intervals invert
binomial tests of that share, over both arms together for a difference: no density is estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kanab.arguments import check_arguments
from kanab.choices import Alternative
from kanab.errors import AnalysisError
from kanab.stats.distributions import check_sides, t_quantile, t_tail

Floats = NDArray[np.float64]

COARSE = 0.25
"""Bins are coarse where another interpolation would move a difference by this part of its interval's half."""

_TURNS = 41
_STEPS = 20


@check_arguments()
@dataclass(frozen=True)
class BinnedPeople:
    """People of one arm in the bins of a metric: below the first edge, between two, from the last one on.

    The outer bins are open, unless ``low`` or ``high``, the bounds of the metric, are the outer edges: then all people
    beyond are at the bound. ``noise`` is the variance of the noise in the people of every bin, if they carry some; they
    are then those of `without_noise`.
    """

    edges: tuple[float, ...]
    people: tuple[int, ...]
    low: float = -math.inf
    high: float = math.inf
    noise: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        rising = len(self.edges) > 1 and all(low < high for low, high in pairwise(self.edges))
        whole = all(type(count) is int and count >= 0 for count in self.people)
        if not rising or not whole or len(self.people) != len(self.edges) + 1 or not sum(self.people):
            raise AnalysisError(
                "bins need edges in increasing order, and people for every bin, from below the first edge to above "
                "the last",
                "For example BinnedPeople((0, 100, 200), (0, 50, 30, 20)).",
            )

    @property
    def total(self) -> int:
        """All people."""
        return sum(self.people)

    @cached_property
    def shares(self) -> Floats:
        """The share of people below each edge."""
        return np.cumsum(self.people[:-1], dtype=np.int64) / self.total

    @cached_property
    def _slopes(self) -> Floats:
        """Slopes of the share at the edges that keep the interpolation monotone (Fritsch and Carlson)."""
        widths, rises = np.diff(np.asarray(self.edges, dtype=np.float64)), np.diff(self.shares)
        steep = rises / widths
        slopes = np.empty(len(self.edges))
        before, after = widths[:-1], widths[1:]
        flat = (steep[:-1] <= 0) | (steep[1:] <= 0)
        weights = 2 * after + before, after + 2 * before
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = (weights[0] + weights[1]) / (weights[0] / steep[:-1] + weights[1] / steep[1:])
        slopes[1:-1] = np.where(flat, 0.0, inner)
        slopes[0], slopes[-1] = steep[0], steep[-1]
        return slopes

    def share_below(self, value: float) -> float:
        """Return the share of people below a value, interpolated within its bin; NaN in an open bin."""
        return float(self.shares_below(np.array([value], dtype=np.float64))[0])

    def shares_below(self, values: Floats) -> Floats:
        """Return the share of people below each of several values."""
        edges = np.asarray(self.edges, dtype=np.float64)
        place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
        part = (values - edges[place]) / (edges[place + 1] - edges[place])
        a, b, c, d = self._cubic(place)
        return np.where((part >= 0) & (part <= 1), a + part * (b + part * (c + part * d)), math.nan)

    def quantile(self, probability: float) -> float:
        """Return the smallest value that this share of people is below; infinite where it lies in an open bin."""
        return float(self.quantiles(np.array([probability]))[0])

    def quantiles(self, probabilities: Floats, *, straight: bool = False) -> Floats:
        """Return several quantiles; ``straight`` interpolates by lines."""
        shares, edges = self.shares, np.asarray(self.edges, dtype=np.float64)
        upper = np.searchsorted(shares, probabilities, side="left")
        place = np.clip(upper - 1, 0, len(edges) - 2)
        rise = shares[place + 1] - shares[place]
        part = np.divide(probabilities - shares[place], rise, out=np.ones_like(probabilities), where=rise > 0)
        if not straight:
            part = self._solved(place, probabilities, part)
        values = np.where(part >= 1, edges[place + 1], edges[place] + part * (edges[place + 1] - edges[place]))
        bottom = self.low if self.low == edges[0] else -math.inf
        top = self.high if self.high == edges[-1] else math.inf
        values = np.where(upper == 0, np.where(probabilities == shares[0], edges[0], bottom), values)
        values = np.where(upper == len(edges), top, values)
        if self.noise:  # nobody in a bin may be nobody because of the noise
            values = np.where(probabilities >= 1, top, np.where(probabilities <= 0, bottom, values))
        return values

    def quantile_interval(self, probability: float, confidence: float = 0.95) -> tuple[float, float]:
        """Return the values that the binomial test of the share below them does not reject."""
        half = t_quantile((1 + confidence) / 2, math.inf) * self.error(probability)
        low, high = self.quantiles(np.clip([probability - half, probability + half], 0.0, 1.0))
        return float(low), float(high)

    def error(self, probability: float) -> float:
        """Return the standard error of the share of people below a quantile, noise and all."""
        own = probability * (1 - probability) / self.total
        return math.sqrt(own + self._noise_at(probability, own)) if self.noise else math.sqrt(own)

    def _noise_at(self, probability: float, own: float) -> float:
        """Return the variance of the noise in the share below a quantile, wherever around it the quantile may be.

        People below and above an edge carry the noise of their bins. Its sum moves by a bin from edge to edge, so that
        the largest is taken of those that lie within two standard errors.
        """
        below = np.cumsum(self.noise[:-1])
        at = ((1 - probability) ** 2 * below + probability**2 * (sum(self.noise) - below)) / self.total**2
        reach = 2 * math.sqrt(own + float(at.max()))
        first, last = np.searchsorted(self.shares, [probability - reach, probability + reach])
        return float(at[max(0, int(first) - 1) : int(last) + 1].max())

    def _cubic(self, place: NDArray[np.intp]) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the coefficients of the share within each bin, by the part of its width from the left: Hermite's."""
        edges = np.asarray(self.edges, dtype=np.float64)
        width, start = edges[place + 1] - edges[place], self.shares[place]
        rise, left, right = self.shares[place + 1] - start, self._slopes[place] * width, self._slopes[place + 1] * width
        return start, left, 3 * rise - 2 * left - right, left + right - 2 * rise

    def _solved(self, place: NDArray[np.intp], probabilities: Floats, straight: Floats) -> Floats:
        """Return how far into its bin each quantile lies, by Newton's steps within halvings; edges stay edges."""
        a, b, c, d = self._cubic(place)
        low, high, part = np.zeros_like(straight), np.ones_like(straight), np.clip(straight, 0.0, 1.0)
        for _ in range(_STEPS):
            away = a + part * (b + part * (c + part * d)) - probabilities
            low, high = np.where(away < 0, part, low), np.where(away < 0, high, part)
            slope = b + part * (2 * c + part * 3 * d)
            newton = part - np.divide(away, slope, out=np.full_like(away, np.inf), where=slope > 0)
            before, part = part, np.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
            if np.array_equal(part, before):
                break
        return np.where((straight > 0) & (straight < 1), part, straight)


def without_noise(people: Sequence[int]) -> tuple[int, ...]:
    """Return people per bin of which none is below 0: those whose sums from the left are nearest to the noisy ones.

    Sums that fall are replaced by their mean, with as many neighbours as it takes (isotonic regression).
    """
    runs: list[list[float]] = []  # mean and length
    for total in np.cumsum(people, dtype=np.float64)[:-1].tolist():
        runs.append([total, 1.0])
        while len(runs) > 1 and runs[-2][0] > runs[-1][0]:
            mean, length = runs.pop()
            runs[-1] = [(runs[-1][0] * runs[-1][1] + mean * length) / (runs[-1][1] + length), runs[-1][1] + length]
    everybody = float(sum(people))
    sums = [round(min(max(mean, 0.0), everybody)) for mean, length in runs for _ in range(int(length))]
    return tuple(int(count) for count in np.diff([0, *sums, round(everybody)]))


@dataclass(frozen=True)
class QuantileEffect:
    """The difference of a quantile between an arm and the control, with its interval and p by test inversion.

    ``values`` are the control's and the arm's quantile; infinite where it lies in an open bin, and then there is no
    ``estimate``. Ends of the ``interval`` are infinite where they would lie in an open bin. ``coarse`` says that
    the interpolation within bins matters.
    """

    probability: float
    values: tuple[float, float]
    estimate: float | None
    interval: tuple[float, float] | None
    z: float | None
    p: float | None
    coarse: bool = False


@check_arguments(skip=("confidence",))
def quantile_effect(
    arm: BinnedPeople,
    control: BinnedPeople,
    probability: float,
    *,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
) -> QuantileEffect:
    """Compare a quantile of two arms. Raises `AnalysisError` where the share of people is not between 0 and 1.

    >>> slow = BinnedPeople((0, 100, 200, 400), (0, 500, 300, 200, 0))
    >>> fast = BinnedPeople((0, 100, 200, 400), (0, 600, 250, 150, 0))
    >>> effect = quantile_effect(fast, slow, 0.5)
    >>> round(effect.estimate, 2), [round(end, 2) for end in effect.interval], round(effect.p, 6)
    (-22.2, [-32.24, -12.3], 9e-06)
    """
    check_sides(confidence, alternative)
    if not (isinstance(probability, (int, float)) and 0 < probability < 1):
        raise AnalysisError("a quantile is a share of people between 0 and 1", "For example 0.5 for the median.")
    values = control.quantile(probability), arm.quantile(probability)
    if not all(map(math.isfinite, values)):
        return QuantileEffect(probability, values, None, None, None, None)
    estimate = values[1] - values[0]
    z = _test_of_none(arm, control, probability, estimate)
    sides = 2 if alternative == "two-sided" else 1
    reach = t_quantile(1 - (1 - confidence) / sides, math.inf)
    low = -_furthest(control, arm, probability, reach) if alternative != "less" else -math.inf
    high = _furthest(arm, control, probability, reach) if alternative != "greater" else math.inf
    half = max((abs(end - estimate) for end in (low, high) if math.isfinite(end)), default=math.inf)
    lines = [side.quantiles(np.array([probability]), straight=True)[0] for side in (control, arm)]
    return QuantileEffect(
        probability,
        values,
        estimate,
        (low, high),
        z,
        t_tail(z, math.inf, alternative),
        abs(float(lines[1] - lines[0]) - estimate) > COARSE * half,
    )


def _furthest(arm: BinnedPeople, control: BinnedPeople, probability: float, reach: float) -> float:
    """Return the largest difference of two values that pass together: squares of both statistics within reach².

    Statistics of the arm and the control are reach · sin θ and −reach · cos θ, θ from 0 to a quarter turn.
    """

    def difference(turns: Floats) -> Floats:
        up = np.minimum(probability + reach * arm.error(probability) * np.sin(turns), 1.0)
        down = np.maximum(probability - reach * control.error(probability) * np.cos(turns), 0.0)
        return arm.quantiles(up) - control.quantiles(down)

    return _largest(difference, np.linspace(0.0, math.pi / 2, _TURNS))


def _largest(function: Callable[[Floats], Floats], points: Floats) -> float:
    """Return the largest value of a function of one variable: on a grid, then on a finer one around the best point."""
    for _ in range(3):
        values = function(points)
        if math.isinf(values.max()):
            return math.inf
        best = int(np.argmax(values))
        points = np.linspace(points[max(best - 1, 0)], points[min(best + 1, len(points) - 1)], _TURNS)
    return float(function(points).max())


def _test_of_none(arm: BinnedPeople, control: BinnedPeople, probability: float, estimate: float) -> float:
    """Return the signed root of the statistic that both arms have the same quantile: the least over its value."""
    errors = control.error(probability), arm.error(probability)
    low, high = sorted((control.quantile(probability), arm.quantile(probability)))

    def against(points: Floats) -> Floats:
        shares = [side.shares_below(points) for side in (control, arm)]
        away = [(share - probability) / error for share, error in zip(shares, errors, strict=True)]
        return -np.asarray(away[0] ** 2 + away[1] ** 2)

    edges = [edge for edge in control.edges if low < edge < high]
    grid = np.unique(np.concatenate([np.linspace(low, high, _TURNS), edges]))
    least = -_largest(against, grid)
    return math.copysign(math.sqrt(max(least, 0.0)), estimate) if estimate else 0.0


@check_arguments()
def propose_edges(people: Sequence[BinnedPeople], bins: int = 40) -> tuple[float, ...]:
    """Propose about so many bins for the next experiment, from people who were counted in the bins of an earlier one.

    Half of the edges are at equal steps of the share of people, all arms together; the others halve the shares beyond
    them again and again, so that a 99th percentile has bins of its own. The outermost edges stay. Raises
    `AnalysisError` for fewer than 8 bins, and where nobody was counted.

    >>> propose_edges([BinnedPeople((0, 100, 200, 400), (0, 500, 300, 200, 0))], 8)
    (0, 0.2, 4.43, 47.1, 100.0, 176.0, 376.0, 399.0, 400)
    """
    if not people or bins < 8:
        raise AnalysisError("edges are proposed from people in bins, and for at least 8 bins", "Take 40 bins.")
    first = people[0]
    pooled = replace(first, people=tuple(map(sum, zip(*(side.people for side in people), strict=True))))
    tail = np.geomspace(0.5, 0.001, bins // 4 + 1)
    shares = np.unique(np.round(np.concatenate([np.linspace(0, 1, bins // 2 + 1), tail, 1 - tail]), 6))
    values = pooled.quantiles(shares[(shares > pooled.shares[0]) & (shares < pooled.shares[-1])])
    inner = {float(f"{value:.3g}") for value in values.tolist()}
    ends = first.edges[0], first.edges[-1]
    return (ends[0], *sorted(edge for edge in inner if ends[0] < edge < ends[1]), ends[1])
