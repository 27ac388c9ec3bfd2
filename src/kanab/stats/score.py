"""Two rates (means of a 0/1 metric) compared by the score test and interval of Miettinen and Nurminen.

The variance is that at the value which is tested, from both arms together, so that an arm without events is not taken
for certain; intervals of the difference, the ratio and the odds ratio hold what is not rejected, and agree with p.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy

from kanab.arguments import check_arguments
from kanab.choices import Alternative
from kanab.errors import AnalysisError
from kanab.stats.distributions import find_root, t_tail

FEWEST_EXPECTED = 15.0
"""Where an arm would have fewer events (or people without one) if arms were alike, the exact test has to agree."""

_LARGEST_LOG = 300.0
"""Odds beyond this are not told from infinite ones."""

_POLISHED = 1e-7
"""A step of Newton's beyond this would leave the root that it is to polish."""


@check_arguments(skip=("events", "people", "control_events", "control_people"))
@dataclass(frozen=True)
class Rates:
    """The people of two arms, and how many of them have the event. Statistics are z: compare them with a normal."""

    events: int
    people: int
    control_events: int
    control_people: int

    def __post_init__(self) -> None:
        pairs = (self.events, self.people), (self.control_events, self.control_people)
        if not all(type(x) is int and type(n) is int and 0 <= x <= n and n > 0 for x, n in pairs):
            raise AnalysisError(
                "rates need whole numbers of events and people, at least one person and no more events than people",
                "For example Rates(56, 70, 48, 80).",
            )

    @property
    def total(self) -> int:
        """The people of both arms."""
        return self.people + self.control_people

    @property
    def all_events(self) -> int:
        """The events of both arms."""
        return self.events + self.control_events

    @property
    def difference(self) -> float:
        """The arm's rate minus the control's, rounded once."""
        return self._away(0.0)

    def _away(self, difference: float) -> float:
        """Return how far the rates' difference is from another one, rounded once: a quotient of whole numbers is."""
        above, below = difference.as_integer_ratio()
        over = self.events * self.control_people - self.control_events * self.people
        under = self.people * self.control_people
        return (over * below - above * under) / (under * below)

    @property
    def relative(self) -> float | None:
        """The difference as a share of the control's rate; None where that is 0."""
        if not self.control_events:
            return None
        over = self.events * self.control_people - self.control_events * self.people
        return over / (self.people * self.control_events)

    @property
    def odds_ratio(self) -> float | None:
        """The arm's odds over the control's; infinite where only those are 0, None where both ways are."""
        over = self.events * (self.control_people - self.control_events)
        under = self.control_events * (self.people - self.events)
        return over / under if under else math.inf if over else None

    def z_difference(self, difference: float = 0.0) -> float:
        """Return the statistic of the test that the rates differ by this much (Farrington and Manning's solution)."""
        away = self._away(difference)
        arm, control, difference, _ = self._turned(difference)
        if difference >= 1:
            return math.copysign(math.inf, away) if away else 0.0
        low = _lower_rate(*arm, *control, difference)
        high = low + difference
        return self._ratio(away, high * (1 - high) / arm[1] + low * (1 - low) / control[1])

    def z_relative(self, relative: float = 0.0) -> float:
        """Return the statistic of the test that the difference is this share of the control's rate."""
        x1, n1, x0, n0 = self.events, self.people, self.control_events, self.control_people
        ratio = 1 + relative
        away = self.difference - relative * (x0 / n0)
        if ratio <= 0:
            return math.inf if away > 0 else 0.0
        half = (n1 * ratio + x1 + n0 + x0 * ratio) / 2
        root = math.sqrt(max(0.0, half * half - self.total * ratio * self.all_events))
        low = min(self.all_events / (half + root), 1.0, 1 / ratio)
        high = ratio * low
        return self._ratio(away, high * (1 - high) / n1 + ratio * ratio * low * (1 - low) / n0)

    def z_odds(self, log_odds_ratio: float = 0.0) -> float:
        """Return the statistic of the test that the odds ratio has this logarithm."""
        if not 0 < self.all_events < self.total:
            return 0.0
        (x1, n1), (x0, n0), size, sign = self._turned(log_odds_ratio)
        if size > _LARGEST_LOG:
            return -sign * math.inf
        events, more = x1 + x0, math.expm1(size)
        half = (n1 * (more + 1) + n0 - events * more) / 2
        root = math.sqrt(half * half + n0 * more * events)
        low = events / (half + root) if half > 0 else (root - half) / (n0 * more)
        grown = 1 + low * more
        high, rest = low * (more + 1) / grown, (1 - low) / grown
        return sign * self._ratio(x1 - n1 * high, 1 / (1 / (n1 * high * rest) + 1 / (n0 * low * (1 - low))))

    def _turned(self, value: float) -> tuple[tuple[int, int], tuple[int, int], float, float]:
        """Return both arms, the value and the sign of z so that the event is the rarer outcome and the value positive.

        So nothing small is lost beside something large.
        """
        arm, control, sign = (self.events, self.people), (self.control_events, self.control_people), 1.0
        if 2 * self.all_events > self.total:
            arm, control = (arm[1] - arm[0], arm[1]), (control[1] - control[0], control[1])
            value, sign = -value, -sign
        return (control, arm, -value, -sign) if value < 0 else (arm, control, value, sign)

    def _ratio(self, away: float, variance: float) -> float:
        """Return the distance over its error, with Miettinen and Nurminen's N/(N − 1)."""
        if not away:
            return 0.0
        if variance <= 0:
            return math.copysign(math.inf, away)
        return away / math.sqrt(variance * (self.total / (self.total - 1)))

    def p(self, alternative: Alternative = "two-sided") -> float:
        """Return how often rates differ at least so much if there is no effect."""
        return t_tail(self.z_difference(), math.inf, alternative)

    def difference_interval(self, alpha: float, alternative: Alternative = "two-sided") -> tuple[float, float]:
        """Return the differences that a test at ``alpha`` does not reject."""
        ends = _ends(self.z_difference, alpha, alternative, (-1.0, 1.0), self.difference, people=self.total)
        return _open(ends, alternative, (-math.inf, math.inf))

    def relative_interval(self, alpha: float, alternative: Alternative = "two-sided") -> tuple[float, float] | None:
        """Return the shares of the control's rate that are not rejected; None where the control has no events."""
        if self.relative is None:
            return None
        # in logarithms of 1 + share ends are near; at a share near 0 nothing is lost, as expm1 undoes log1p
        centre = math.log1p(self.relative) if self.events else -math.log(self.total)
        ends = _ends(
            lambda log: self.z_relative(math.expm1(log)),
            alpha,
            alternative,
            (-math.inf, math.inf),
            centre,
            people=self.total,
        )
        low = math.expm1(ends[0]) if self.events else -1.0
        return _open((low, math.expm1(ends[1])), alternative, (-math.inf, math.inf))

    def odds_ratio_interval(self, alpha: float, alternative: Alternative = "two-sided") -> tuple[float, float] | None:
        """Return the odds ratios that are not rejected; None where nobody or everybody has the event."""
        if not 0 < self.all_events < self.total:
            return None
        odds = (self.events + 0.5) / (self.people - self.events + 0.5)
        control = (self.control_events + 0.5) / (self.control_people - self.control_events + 0.5)
        exact = self.odds_ratio
        centre = math.log(exact if exact and math.isfinite(exact) else odds / control)
        ends = _ends(self.z_odds, alpha, alternative, (-math.inf, math.inf), centre, people=self.total)
        low = math.exp(ends[0]) if exact else 0.0
        high = math.inf if exact == math.inf else math.exp(ends[1])
        return _open((low, high), alternative, (0.0, math.inf))

    @property
    def thin(self) -> bool:
        """Whether so few events (or people without one) are expected in an arm that chance is far from normal."""
        rare = min(self.all_events, self.total - self.all_events)
        return rare * min(self.people, self.control_people) < FEWEST_EXPECTED * self.total

    def p_exact(self, alternative: Alternative = "two-sided") -> float:
        """Return Fisher's exact p, counting what was seen by half (mid-p); two-sided it is twice the smaller tail."""
        up, down = self._exact_tails()
        if alternative == "two-sided":
            return min(1.0, 2 * min(up, down))
        return up if alternative == "greater" else down

    def _exact_tails(self) -> tuple[float, float]:
        """Return how often the arm has more, or fewer, of all events, plus half of how often exactly so many."""
        n1, n0, events = self.people, self.control_people, self.all_events
        first, last = max(0, events - n0), min(n1, events)
        x = np.arange(first, last, dtype=np.float64)
        # each number of events against the one before it: no factorials of millions, whose digits would be lost
        steps = np.log(events - x) + np.log(n1 - x) - np.log1p(x) - np.log(n0 - events + x + 1)
        chances = np.concatenate([[0.0], np.cumsum(steps)])
        place = self.events - first
        whole = scipy.special.logsumexp(chances)
        here = math.exp(chances[place] - whole) / 2
        return (
            here + float(np.exp(scipy.special.logsumexp(chances[place + 1 :]) - whole))
            if place < last - first
            else here,
            here + float(np.exp(scipy.special.logsumexp(chances[:place]) - whole)) if place else here,
        )


@dataclass(frozen=True)
class NoisyRates:
    """Two rates that carry noise of known variance, compared by a score test that knows it.

    Nobody knows how many events there were, and a rate may be below 0. So the rates that a hypothesis allows are those
    that keep all events together (weighted by people), inside 0 to 1; their variance is p (1 − p) / n, and that of
    the noise is added. Where noise is small it is the score test; it is never surer than the noise allows.
    """

    rate: float
    people: int
    control_rate: float
    control_people: int
    noise: float
    control_noise: float

    @property
    def total(self) -> int:
        """The people of both arms."""
        return self.people + self.control_people

    @property
    def all_events(self) -> float:
        """The events of both arms, noise and all."""
        return self.rate * self.people + self.control_rate * self.control_people

    @property
    def difference(self) -> float:
        """The arm's rate minus the control's."""
        return self.rate - self.control_rate

    @property
    def relative(self) -> float | None:
        """The difference as a share of the control's rate; None where that is not above 0."""
        return self.difference / self.control_rate if self.control_rate > 0 else None

    @property
    def thin(self) -> bool:
        """Whether so few events (or people without one) are expected in an arm that a regression may mislead."""
        rare = min(self.all_events, self.total - self.all_events)
        return rare * min(self.people, self.control_people) < FEWEST_EXPECTED * self.total

    def z_difference(self, difference: float = 0.0) -> float:
        """Return the statistic of the test that the rates differ by this much."""
        low = (self.all_events - self.people * difference) / self.total
        low = max(0.0, -difference, min(1.0, 1 - difference, low))
        return self._ratio(self.difference - difference, low + difference, low, 1.0)

    def z_relative(self, relative: float = 0.0) -> float:
        """Return the statistic of the test that the difference is this share of the control's rate."""
        ratio = 1 + relative
        low = self.all_events / (self.people * ratio + self.control_people)
        low = max(0.0, min(1.0, 1 / ratio if ratio > 1 else 1.0, low))
        return self._ratio(self.rate - ratio * self.control_rate, ratio * low, low, ratio)

    def _ratio(self, away: float, high: float, low: float, ratio: float) -> float:
        """Return the distance over its error at these rates, with Miettinen and Nurminen's N/(N − 1)."""
        drawn = high * (1 - high) / self.people + ratio**2 * low * (1 - low) / self.control_people
        noise = self.noise + ratio**2 * self.control_noise
        return away / math.sqrt(max(0.0, drawn) * (self.total / (self.total - 1)) + noise)

    def p(self, alternative: Alternative = "two-sided") -> float:
        """Return how often rates differ at least so much if there is no effect."""
        return t_tail(self.z_difference(), math.inf, alternative)

    def difference_interval(self, alpha: float, alternative: Alternative = "two-sided") -> tuple[float, float]:
        """Return the differences that a test at ``alpha`` does not reject."""
        centre = max(-1.0, min(1.0, self.difference))
        ends = _ends(self.z_difference, alpha, alternative, (-1.0, 1.0), centre, people=self.total)
        return _open(ends, alternative, (-math.inf, math.inf))

    def relative_interval(self, alpha: float, alternative: Alternative = "two-sided") -> tuple[float, float] | None:
        """Return the shares of the control's rate that are not rejected; None where noise could have made that rate."""
        if self.control_rate <= max(0.0, _reach(alpha, alternative)) * math.sqrt(self.control_noise):
            return None
        centre = math.log(max(self.rate / self.control_rate, 1 / self.total))
        limits = (-_LARGEST_LOG, _LARGEST_LOG)
        low, high = _ends(
            lambda log: self.z_relative(math.expm1(log)), alpha, alternative, limits, centre, people=self.total
        )  # fmt: skip
        return _open((math.expm1(low), math.expm1(high)), alternative, (-math.inf, math.inf))


def exact_p(rates: Rates | NoisyRates, alternative: Alternative) -> float:
    """Return the p of the exact test where events are so few that it has to agree, else 0: it says nothing then."""
    return rates.p_exact(alternative) if isinstance(rates, Rates) and rates.thin else 0.0


def agreed_interval(
    rates: Rates | NoisyRates, interval: tuple[float, float], alike: float, alpha: float, alternative: Alternative
) -> tuple[float, float]:
    """Return a score interval that leaves out ``alike`` only if the exact test agrees, where events are few.

    ``alike`` is the value where both rates are one: 0, or 1 of an odds ratio.
    """
    if exact_p(rates, alternative) < alpha:
        return interval
    return min(interval[0], alike), max(interval[1], alike)


def _lower_rate(x1: int, n1: int, x0: int, n0: int, difference: float) -> float:
    """Return the likeliest rate of the second arm if the first one's is larger by so much.

    It is the root of a cubic in closed form (Farrington and Manning), made sharp by Newton's step.
    """
    total, events = n1 + n0, x1 + x0
    if difference == 0:
        return events / total
    b = ((n1 + 2 * n0) * difference - total - events) / total
    c = ((n0 * difference - total - 2 * x0) * difference + events) / total
    d = x0 * difference * (1 - difference) / total
    third = b / 3
    q = third**3 - c * third / 2 + d / 2
    p = math.copysign(math.sqrt(max(0.0, third * third - c / 3)), q)
    turn = max(-1.0, min(1.0, q / p**3)) if p**3 else 0.0
    rate = 2 * p * math.cos((math.pi + math.acos(turn)) / 3) - third
    for _ in range(2):
        slope = (3 * rate + 2 * b) * rate + c
        step = (((rate + b) * rate + c) * rate + d) / slope if slope else 0.0
        if abs(step) <= _POLISHED:
            rate -= step
    return max(0.0, min(1 - difference, rate))


def _ends(
    z: Callable[[float], float],
    alpha: float,
    alternative: Alternative,
    limits: tuple[float, float],
    centre: float,
    *,
    people: int,
) -> tuple[float, float]:
    """Return where a falling statistic passes ±z(α), looked for outwards from a value near the middle."""
    reach = _reach(alpha, alternative)
    if math.isinf(reach):
        return limits
    z = cache(z)
    slope = abs(z(centre + 1e-6) - z(centre - 1e-6)) if -0.999 < centre < 0.999 or limits[1] > 1 else 0.0
    step = min(0.5, max(abs(reach), 1e-3) * 2e-6 / slope) if 0 < slope < math.inf else 1 / people
    return (
        _crossing(lambda x: z(x) - reach, centre, step, limits),
        _crossing(lambda x: z(x) + reach, centre, step, limits),
    )


def _reach(alpha: float, alternative: Alternative) -> float:
    """Return the z beyond which a test at ``alpha`` rejects."""
    sides = 2 if alternative == "two-sided" else 1
    return -float(scipy.special.ndtri(alpha / sides)) if alpha > 0 else math.inf


def _crossing(function: Callable[[float], float], start: float, step: float, limits: tuple[float, float]) -> float:
    """Return where a falling function passes 0: from the start by growing steps, then between the last two."""
    sign = 1.0 if function(start) > 0 else -1.0
    near, limit = start, limits[sign > 0]
    for _ in range(80):
        far = near + sign * step
        if sign * far >= sign * limit:
            return limit if sign * function(limit) > 0 or near == limit else _between(function, near, limit)
        if sign * function(far) <= 0:
            return _between(function, near, far)
        near, step = far, step * 2
    return sign * math.inf


def _between(function: Callable[[float], float], near: float, far: float) -> float:
    finite = 1e300
    return find_root(lambda x: max(-finite, min(finite, function(x))), *sorted((near, far)))


def _open(ends: tuple[float, float], alternative: Alternative, limits: tuple[float, float]) -> tuple[float, float]:
    """Return the interval, open on the side that is not tested."""
    low = limits[0] if alternative == "less" else ends[0]
    high = limits[1] if alternative == "greater" else ends[1]
    return low, high
