"""May I stop now? Effects and sample ratios that are looked at more than once.

Two ways, either of which keeps the chance of any false alarm over all looks at 1 − confidence:

- ``planned_look``: how many looks (or how many people) there will be is fixed before the start;
- ``any_time_look``: nothing is fixed, every moment may be the last; the intervals are wider.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kanab.errors import AnalysisError
from kanab.stats.distributions import t_quantile
from kanab.stats.effect import Effect
from kanab.stats.mixture import log_evidence, log_evidence_of_counts, mixture_z, tuning
from kanab.stats.spending import (
    Spending,
    check_spending,
    growing,
    sides_of,
    smallest_alpha,
    spent_by,
    tail,
    z_boundaries,
    z_of,
)
from kanab.stats.srm import SAMPLE_RATIO_ALARM, SampleRatio, sample_ratio
from kanab.tabular import number, p_value
from kanab.tally.tally import Tally

Verdict = Literal["may stop", "keep going", "ended"]

TUNED_AT = 10_000
"""People at which an interval for any time is narrowest, unless said otherwise before the start."""

_LARGEST_Z = 37.5
"""Beyond this p-values are below 1e-307; to take a larger z for this one errs on the safe side."""


@dataclass(frozen=True)
class PlannedLook:
    """One of several planned looks at an effect.

    An ordinary p of at most ``nominal`` may stop here. ``p`` and ``interval`` are for all looks
    together: compare p with 1 − confidence. They are None where nothing varies. ``fraction`` of the
    design has passed; ``spent`` is the chance of a false alarm up to now. Of ``looks`` and
    ``planned`` (people) one says where the design ends.
    """

    look: int
    looks: int | None
    planned: int | None
    fraction: float
    spent: float
    z: float
    nominal: float
    p: float | None
    interval: tuple[float, float] | None
    confidence: float
    verdict: Verdict

    def __str__(self) -> str:
        of = f" of {self.looks}" if self.looks else ""
        goal = f"look {self.look + 1}" if self.looks else f"the planned {self.planned:,} people, or a look before"
        words = {
            "may stop": "you may stop",
            "keep going": f"keep going until {goal}",
            "ended": "the design has ended without a finding",
        }
        return f"look {self.look}{of}: {_figures(self.p, self.interval, self.confidence)}; {words[self.verdict]}"


@dataclass(frozen=True)
class AnyTimeLook:
    """An effect seen at any time, however often it was looked at before.

    ``p`` and ``interval`` hold at all times together. ``until`` is about how many people it would
    take if the effect stays as it looks: a hint, not a promise; None where that is far off.
    """

    people: int
    tuned_at: int
    z: float
    nominal: float
    p: float | None
    interval: tuple[float, float] | None
    confidence: float
    verdict: Verdict
    until: int | None

    def __str__(self) -> str:
        goal = f", about {self.until:,} people if the effect stays as it looks" if self.until else ""
        words = "you may stop" if self.verdict == "may stop" else f"keep going{goal}"
        return f"at any time: {_figures(self.p, self.interval, self.confidence)}; {words}"


@dataclass(frozen=True)
class AnyTimeSampleRatio:
    """The sample ratio, however often it is looked at. ``now`` is the ordinary test, which is not."""

    p: float
    log_evidence: float
    tuned_at: int
    now: SampleRatio

    def __str__(self) -> str:
        against = "the planned shares" if self.now.declared else "equal shares (none were declared)"
        return f"sample ratio at any time against {against}: p = {p_value(self.p)}"


def planned_look(
    effect: Effect,
    people: Sequence[int],
    *,
    looks: int | None = None,
    planned: int | None = None,
    spending: Spending = "obrien-fleming",
    last: bool = False,
) -> PlannedLook:
    """The effect at the latest of several looks; ``people`` were counted up to each of them.

    Either so many ``looks`` are planned, or so many people (``planned``), at whatever looks. The
    chance of a false alarm is spent by the share of them that has passed (Lan and DeMets). If the
    experiment ends earlier or later than planned, say so with ``last``: all that is left is spent.

    >>> from kanab.datasets import shop_rows
    >>> from kanab import count_columns
    >>> from kanab.stats import difference_in_means
    >>> shop = count_columns(shop_rows(40_000), arm="variant", metrics=["bought"])
    >>> print(planned_look(difference_in_means(shop), [20_000, 40_000], looks=4))
    look 2 of 4: p = 0.0361, 95% interval 0.0005800 … 0.01933; you may stop
    """
    check_spending(spending)
    times = growing(people, "people")
    fractions = _clock(times, looks, planned, last=last)
    alpha, sides = 1 - effect.confidence, sides_of(effect.alternative)
    spent = tuple(spent_by(fraction, alpha, sides, spending) for fraction in fractions)
    z = z_boundaries(times, spent, sides)[-1]
    nominal = tail(z, sides)
    p = None if effect.p is None else smallest_alpha(_observed(effect, sides), times, fractions, sides, spending)
    verdict: Verdict = "ended" if fractions[-1] >= 1 else "keep going"
    if effect.p is not None and effect.p <= nominal:
        verdict = "may stop"
    return PlannedLook(
        len(times), looks, planned, fractions[-1], spent[-1], z, nominal, p,
        _interval(effect, nominal), effect.confidence, verdict,
    )  # fmt: skip


def _clock(people: tuple[float, ...], looks: int | None, planned: int | None, *, last: bool) -> tuple[float, ...]:
    """How much of the design has passed at each look."""
    end = planned if looks is None else looks
    if (looks is None) == (planned is None) or type(end) is not int or end < 1:
        raise AnalysisError(
            "a design needs its number of looks or its number of people, a whole number",
            "For example looks=5, or planned=20_000.",
        )
    passed = tuple(float(number) for number in range(1, len(people) + 1)) if looks else people
    fractions = [time / end for time in passed]
    if last:
        fractions[-1] = 1.0
    if max(fractions[:-1], default=0.0) >= 1 or fractions[-1] > 1:
        what = "looks" if looks else "people"
        raise AnalysisError(
            f"there are more {what} than planned, and nothing is left to spend on them",
            "If this is the first look past the plan and the final one, say last=True; "
            "else read the effect at any time.",
        )
    return tuple(fractions)


def any_time_look(effect: Effect, people: int, *, tuned_at: int = TUNED_AT) -> AnyTimeLook:
    """The effect as it may be read at any time, after any number of looks.

    An asymptotic confidence sequence (Waudby-Smith et al., 2024): Robbins' normal mixture with the
    estimated error. ``people`` are everyone counted so far. It is narrowest at ``tuned_at`` people, which
    must be chosen before looking: 1.55 times as wide as an ordinary 95 % interval there, 1.66 times at
    ten times as many people, 1.95 times at a tenth.

    >>> from kanab.datasets import shop_rows
    >>> from kanab import count_columns
    >>> from kanab.stats import difference_in_means
    >>> shop = count_columns(shop_rows(20_000), arm="variant", metrics=["bought"])
    >>> print(any_time_look(difference_in_means(shop), 20_000))
    at any time: p = 1.000, 95% interval -0.006941 … 0.02032; keep going, about 94,000 people if the effect ...
    """
    _check_whole(people, "people")
    _check_whole(tuned_at, "tuned_at")
    alpha, sides = 1 - effect.confidence, sides_of(effect.alternative)
    z = float(mixture_z(np.array(people / tuned_at), alpha, sides))
    nominal = tail(z, sides)
    p = until = None
    stop = effect.p is not None and effect.p <= nominal
    if effect.p is not None:
        seen = _observed(effect, sides)
        p = math.exp(-max(0.0, log_evidence(seen, people / tuned_at, alpha, sides)))
        until = None if stop else _projected(seen, people, tuned_at, alpha, sides)
    verdict: Verdict = "may stop" if stop else "keep going"
    return AnyTimeLook(
        people, tuned_at, z, nominal, p, _interval(effect, nominal), effect.confidence, verdict, until
    )  # fmt: skip


def _projected(z: float, people: int, tuned_at: int, alpha: float, sides: int) -> int | None:
    """About how many people it takes for this z to reach the boundary if the effect stays; None beyond 1,000 times."""
    times = np.geomspace(1, 1000, 400)
    reached = z * np.sqrt(times) >= mixture_z(people * times / tuned_at, alpha, sides)
    if not reached.any():
        return None
    more = people * float(times[int(np.argmax(reached))])
    step: int = 10 ** max(0, len(str(int(more))) - 2)
    return math.ceil(more / step) * step


def sample_ratio_any_time(
    tally: Tally,
    shares: Mapping[Any, float] | None = None,
    experiment: str = "arm",
    *,
    tuned_at: int = TUNED_AT,
) -> AnyTimeSampleRatio:
    """Did people arrive in the planned shares? A test that may be repeated at every look.

    A mixture of multinomials (Lindon and Malek, 2022); exact for any number of arms and people, as long as
    everyone's arm is drawn independently of the others'.

    >>> from kanab.datasets import eighteen
    >>> print(sample_ratio_any_time(eighteen(), {"A": 9, "B": 1}, tuned_at=100))
    sample ratio at any time against the planned shares: p = 0.00298
    """
    _check_whole(tuned_at, "tuned_at")
    now = sample_ratio(tally, shares, experiment)
    people = tally.people_by(tally.factor(experiment).name)
    found = log_evidence_of_counts(
        list(people.values()), [now.shares[arm] for arm in people], tuned_at / tuning(SAMPLE_RATIO_ALARM, 2)
    )
    return AnyTimeSampleRatio(math.exp(-max(0.0, found)), found, tuned_at, now)


def _check_whole(value: int, what: str) -> None:
    if type(value) is not int or value < 1:
        raise AnalysisError(f"{what} must be a positive whole number", "For example 10_000.")


def _observed(effect: Effect, sides: int) -> float:
    """The z that has the effect's p-value: in small samples t is larger than the z that it is worth."""
    assert effect.p is not None
    return max(-_LARGEST_Z, min(_LARGEST_Z, z_of(effect.p, sides)))


def _interval(effect: Effect, nominal: float) -> tuple[float, float] | None:
    """The values that an ordinary test at the nominal level would not reject."""
    if effect.df is None:
        return None
    quantile = t_quantile(nominal / sides_of(effect.alternative), effect.df) if nominal else -math.inf
    reach = -quantile * effect.se_population
    low = -math.inf if effect.alternative == "less" else effect.estimate - reach
    high = math.inf if effect.alternative == "greater" else effect.estimate + reach
    return low, high


def _figures(p: float | None, interval: tuple[float, float] | None, confidence: float) -> str:
    if interval is None:
        return "not testable, nothing varies"
    low, high = (number(end) for end in interval)
    return f"p = {p_value(p)}, {confidence:.0%} interval {low} … {high}"
