"""Effects and sample ratios that are looked at more than once: may the experiment stop now?

``planned_look`` where the number of looks (or people) is fixed before; ``any_time_look`` where every moment may be the
last, by Robbins' mixtures: evidence is a fair game, so that 1/evidence is a p-value at every moment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy

from kanab.arguments import check_arguments
from kanab.choices import OPTIMAL_AT
from kanab.errors import AnalysisError
from kanab.stats.cautions import FEWEST_CARRIERS
from kanab.stats.effect import Effect
from kanab.stats.gram import Floats
from kanab.stats.spending import (
    CLOSEST,
    Spending,
    check_spending,
    growing,
    shares_by,
    sides_of,
    smallest_alpha,
    smallest_alpha_of_share,
    tail,
    z_boundaries,
    z_of,
)
from kanab.stats.srm import (
    SAMPLE_RATIO_ALARM,
    SampleRatio,
    log_evidence_with_noise,
    people_noise,
    sample_ratio,
)
from kanab.tabular import number, p_value
from kanab.tally.tally import Tally

Verdict = Literal["may stop", "keep going", "ended"]


_LARGEST_Z = 37.5
"""Beyond this p-values are below 1e-307; to take a larger z for this one errs on the safe side."""

_FARTHEST = 1000
"""An effect that would take more than so many times the people has no projection."""

FUTILE = 0.05
"""Below this chance of a finding the rest of a plan can hardly change the answer."""

FOUND_BEFORE = 1.4
"""So many times as many findings come on the way at any time as at its end: 1.2 with ten looks, at most 1.7."""


@dataclass(frozen=True)
class PlannedLook:
    """One of several planned looks at an effect.

    An ordinary p of at most ``nominal`` may stop here. ``p`` and ``interval`` are for all looks
    together: compare p with 1 − confidence. They are None where nothing varies. ``fraction`` of the
    design has passed; ``spent`` is the chance of a false alarm up to now. Of ``looks`` and
    ``planned`` (people) one says where the design ends. ``chance`` is that of a finding in what is left.
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
    chance: float | None = None

    def __str__(self) -> str:
        of = f" of {self.looks}" if self.looks else ""
        return f"look {self.look}{of}: {_figures(self.p, self.interval, self.confidence)}; {stop_advice(vars(self))}"


@dataclass(frozen=True)
class AnyTimeLook:
    """An effect seen at any time, however often it was looked at before.

    ``p`` and ``interval`` hold at all times together. Where an end is ``planned``, ``fraction`` of it has passed (1: it
    has ended), and ``chance`` is as in `PlannedLook`. Where none is, ``until`` is about how many people it would
    take if the effect stays as it is: a hint, not a promise; None where that is far off. Before it has
    ``begun``, p is 1 and there is no interval: too few people have another value than the commonest one.
    """

    people: int
    optimal_at: int
    z: float
    nominal: float
    p: float | None
    interval: tuple[float, float] | None
    confidence: float
    verdict: Verdict
    until: int | None
    begun: bool = True
    planned: int | None = None
    fraction: float | None = None
    chance: float | None = None

    def __str__(self) -> str:
        return f"at any time: {_figures(self.p, self.interval, self.confidence)}; {stop_advice(vars(self))}"


Look = PlannedLook | AnyTimeLook


def not_stopping(look: Look) -> Look:
    """Return a look at which nobody may stop, although its own p would allow it: it goes on, unless it was the last."""
    ended = look.verdict == "ended" or (look.fraction or 0.0) >= 1
    return replace(look, verdict="ended" if ended else "keep going")


def stop_advice(look: Mapping[str, Any]) -> str:
    """Return what a look allows, from the fields of a ``PlannedLook`` or an ``AnyTimeLook``."""
    if look["verdict"] != "keep going":
        return "you may stop" if look["verdict"] == "may stop" else "the design has ended without a finding"
    if look.get("begun") is False:
        return (
            f"not yet, at least {FEWEST_CARRIERS} people with another value than the commonest are needed in each arm"
        )
    if look.get("looks"):
        return f"keep going until look {look['look'] + 1}"
    if look.get("planned"):
        return f"keep going until the planned {look['planned']:,} people, or an earlier look"
    return f"keep going, about {look['until']:,} people if the effect stays as it is" if look["until"] else "keep going"


@dataclass(frozen=True)
class AnyTimeSampleRatio:
    """The sample ratio, valid however often it is tested. ``now`` is the ordinary test, which holds only once."""

    p: float
    log_evidence: float
    optimal_at: int
    now: SampleRatio

    def __str__(self) -> str:
        against = "the planned shares" if self.now.declared else "equal shares (none were declared)"
        return f"sample ratio at any time against {against}: p = {p_value(self.p)}"


@check_arguments()
def planned_look(
    effect: Effect,
    people: Sequence[int],
    *,
    looks: int | None = None,
    planned: int | None = None,
    spending: Spending = "obrien-fleming",
    last: bool = False,
    anew: bool = False,
    worth: float | None = None,
) -> PlannedLook:
    """Return the effect at the latest of several looks; ``people`` were counted up to each of them.

    Either so many ``looks`` are planned, or so many people (``planned``), at whatever looks. The
    chance of a false alarm is spent by the share of them that has passed (Lan and DeMets). If the
    experiment ends earlier or later than planned, say so with ``last``: all that is left is spent.
    Where noise is drawn ``anew`` for every look at everybody so far, looks have less in common than people tell: each
    then has what is newly spent there. Noise of batches that are added grows with their people and needs no such care.
    ``worth`` is the size of an effect worth having, for ``chance``, which is not known of noise drawn anew.
    Raises `AnalysisError` where people do not grow, or there are more looks or people than planned.

    >>> from kanab.datasets import shop_rows
    >>> from kanab import count_columns
    >>> from kanab.stats import difference_in_means
    >>> shop = count_columns(shop_rows(40_000), arm="variant", metrics=["bought"])
    >>> print(planned_look(difference_in_means(shop), [20_000, 40_000], looks=4))
    look 2 of 4: p = 0.0362, 95% interval 0.0005784 … 0.01934; you may stop
    """
    check_spending(spending)
    times = growing(people, "people")
    fractions = _clock(times, looks, planned, last=last)
    alpha, sides = 1 - effect.confidence, sides_of(effect.alternative)
    spent = shares_by(fractions, alpha, sides, spending)
    newly = spent[-1] - (spent[-2] if len(spent) > 1 else 0.0)
    z = (z_of(newly, sides) if newly > 0 else math.inf) if anew else z_boundaries(times, spent, sides)[-1]
    nominal = tail(z, sides)
    p = None
    if effect.p is not None and anew:
        p = smallest_alpha_of_share(effect.p, fractions, sides, spending)
    elif effect.p is not None:
        p = smallest_alpha(_observed(effect, sides), times, fractions, sides, spending)
    verdict: Verdict = "ended" if fractions[-1] >= 1 else "keep going"
    if effect.p is not None and effect.p <= nominal:
        verdict = "may stop"
    chance = None
    if fractions[-1] < 1 - CLOSEST and not anew:
        ahead = tuple(look / looks for look in range(len(times) + 1, looks + 1)) if looks else (1.0,)
        coming = tuple(times[-1] / fractions[-1] * fraction for fraction in ahead)
        to_spend = shares_by((*fractions, *ahead), alpha, sides, spending)
        chance = _chance(effect, fractions[-1], z_boundaries((*times, *coming), to_spend, sides)[-1], worth)
    return PlannedLook(
        len(times), looks, planned, fractions[-1], spent[-1], z, nominal, p,
        effect.interval_at(nominal) if effect.testable else None, effect.confidence, verdict, chance,
    )  # fmt: skip


def chance_of_finding(z: float, fraction: float, last_z: float, sides: int, planned_z: float | None = None) -> float:
    """Return the chance that z reaches ``last_z`` at the end of a plan of which a fraction has passed.

    With the mean that z would have at the end, ``planned_z``, of the sign that makes more of it (conditional power);
    else over all means that go with the z that was seen, where nothing was expected before (predictive power).
    """
    z = abs(z) if sides == 2 else z
    root = math.sqrt(fraction)
    mean = z * root + (z / root if planned_z is None else planned_z) * (1 - fraction)
    spread = math.sqrt(1 - fraction) / (root if planned_z is None else 1.0)
    below = scipy.special.ndtr((-last_z - mean) / spread) if sides == 2 else 0.0
    return float(scipy.special.ndtr((mean - last_z) / spread) + below)


def _chance(effect: Effect, fraction: float, last_z: float, worth: float | None) -> float | None:
    """Return the chance that an effect reaches the last boundary."""
    if worth is not None and not 0 < worth < math.inf:
        raise AnalysisError("worth must be a positive number", "Give the size of an effect worth having.")
    if effect.p is None or not effect.se_population:
        return None
    sides = sides_of(effect.alternative)
    planned_z = None if worth is None else worth / (effect.se_population * math.sqrt(fraction))
    return chance_of_finding(_observed(effect, sides), fraction, last_z, sides, planned_z)


def planned_f_p(
    p: float,
    people: Sequence[int],
    *,
    looks: int | None = None,
    planned: int | None = None,
    spending: Spending = "obrien-fleming",
    last: bool = False,
) -> float:
    """Return the p-value over all planned looks of an F test that has this p at the latest of them.

    An F of several degrees of freedom does not move like one effect, and may have at each look what is newly
    spent there. Raises what `planned_look` raises.
    """
    times = growing(people, "people")
    return smallest_alpha_of_share(p, _clock(times, looks, planned, last=last), 2, spending)


def any_time_f_p(p: float, df: float, people: int, *, confidence: float, optimal_at: int = OPTIMAL_AT) -> float:
    """Return the p-value at any time of an F test that has this p now, with ``df`` degrees of freedom above.

    The mean is mixed over a normal distribution in each of its directions (Lindon et al., 2022): evidence is
    exp(χ² x/(2(1 + x))) / (1 + x)^(df/2), and χ² the value that has the F's p.
    """
    x = tuning(1 - confidence, 2) * people / optimal_at
    chi2 = min(_LARGEST_Z**2, float(scipy.special.chdtri(df, p)))
    return math.exp(-max(0.0, chi2 * x / (1 + x) / 2 - df * math.log1p(x) / 2))


def _clock(people: tuple[float, ...], looks: int | None, planned: int | None, *, last: bool) -> tuple[float, ...]:
    """Return how much of the design has passed at each look."""
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
        counted = "looks" if looks else "people"
        raise AnalysisError(
            f"there are more {counted} than planned, and nothing is left to spend on them",
            "If this is the first look past the plan and the final one, say last=True; "
            "else read the effect at any time.",
        )
    return tuple(fractions)


@check_arguments()
def any_time_look(
    effect: Effect,
    people: int,
    *,
    optimal_at: int = OPTIMAL_AT,
    nonmodal: float = math.inf,
    planned: int | None = None,
    last: bool = False,
    worth: float | None = None,
) -> AnyTimeLook:
    """Return the effect as it may be read at any time, after any number of looks.

    An asymptotic confidence sequence (Waudby-Smith et al., 2024): Robbins' normal mixture with the
    estimated error. ``people`` are everyone counted so far. It is narrowest at ``optimal_at`` people, which
    must be chosen before looking: 1.55 times as wide as an ordinary 95 % interval there, 1.66 times at
    ten times as many people, 1.95 times at a tenth. Means of rare events are not yet normal: it does not begin before
    `FEWEST_CARRIERS` people of each arm are ``nonmodal`` (the fewest of `count_nonmodal`), and p is 1 until
    then. It ends with the ``planned`` people, with ``last``, and where the interval lies within ± ``worth``, an effect
    worth having. Raises `AnalysisError` where people, optimal_at or planned is not a positive whole number.

    >>> from kanab.datasets import shop_rows
    >>> from kanab import count_columns
    >>> from kanab.stats import difference_in_means
    >>> shop = count_columns(shop_rows(20_000), arm="variant", metrics=["bought"])
    >>> print(any_time_look(difference_in_means(shop), 20_000))
    at any time: p = 1.000, 95% interval -0.006948 … 0.02034; keep going, about 94,000 people if the effect ...
    """
    for value, name in ((people, "people"), (optimal_at, "optimal_at"), (planned, "planned")):
        if value is not None:
            _check_whole(value, name)
    fraction = 1.0 if last else None if planned is None else min(1.0, people / planned)
    verdict: Verdict = "ended" if fraction == 1 else "keep going"
    if nonmodal < FEWEST_CARRIERS:
        p = None if effect.p is None else 1.0
        return AnyTimeLook(
            people, optimal_at, math.inf, 0.0, p, None, effect.confidence, verdict, None, False, planned, fraction
        )  # fmt: skip
    alpha, sides = 1 - effect.confidence, sides_of(effect.alternative)
    z = float(mixture_z(np.array(people / optimal_at), alpha, sides))
    nominal = tail(z, sides)
    interval = effect.interval_at(nominal) if effect.testable else None
    if worth is not None and interval is not None and max(map(abs, interval)) < worth:
        verdict = "ended"
    p, until, chance = None, None, None
    if effect.p is not None:
        seen = _observed(effect, sides)
        p = math.exp(-max(0.0, log_evidence(seen, people / optimal_at, alpha, sides)))
        if effect.p <= nominal:
            verdict = "may stop"
        elif fraction is None and verdict != "ended":
            until = _projected(seen, people, optimal_at, alpha, sides)
    if planned is not None and fraction is not None and fraction < 1:
        last_z = float(mixture_z(np.array(planned / optimal_at), alpha, sides))
        at_end = _chance(effect, fraction, last_z, worth)
        chance = None if at_end is None else min(1.0, FOUND_BEFORE * at_end)
    return AnyTimeLook(
        people, optimal_at, z, nominal, p, interval, effect.confidence, verdict, until, True, planned, fraction, chance
    )  # fmt: skip


def _projected(z: float, people: int, optimal_at: int, alpha: float, sides: int) -> int | None:
    """Return about how many people it takes for this z to reach the boundary if the effect stays as it is."""
    times = np.geomspace(1, _FARTHEST, 400)
    reached = z * np.sqrt(times) >= mixture_z(people * times / optimal_at, alpha, sides)
    if not reached.any():
        return None
    more = people * float(times[int(np.argmax(reached))])
    step: int = 10 ** max(0, len(str(int(more))) - 2)
    return math.ceil(more / step) * step


@check_arguments()
def sample_ratio_any_time(
    tally: Tally, shares: Mapping[Any, float] | None = None, experiment: str = "arm", *, optimal_at: int = OPTIMAL_AT
) -> AnyTimeSampleRatio:
    """Test whether people arrive in the planned shares; the test may be repeated at every look.

    A mixture of multinomials (Lindon and Malek, 2022); exact for any number of arms and people, as long as
    everyone's arm is drawn independently of the others'. Where people carry noise, its normal limit. Raises what
    `sample_ratio` raises.
    """
    _check_whole(optimal_at, "optimal_at")
    now = sample_ratio(tally, shares, experiment)
    name = tally.factor(experiment).name
    people, noise = [*tally.people_by(name).values()], people_noise(tally, name)
    planned, concentration = [*now.shares.values()], optimal_at / tuning(SAMPLE_RATIO_ALARM, 2)
    if noise is None:
        evidence = log_evidence_of_counts(people, planned, concentration)
    else:
        evidence = log_evidence_with_noise(np.array(people, dtype=float), np.array(planned), noise, concentration)
    return AnyTimeSampleRatio(math.exp(-max(0.0, evidence)), evidence, optimal_at, now)


def _check_whole(value: int, name: str) -> None:
    if type(value) is not int or value < 1:
        raise AnalysisError(f"{name} must be a positive whole number", "For example 10_000.")


def _observed(effect: Effect, sides: int) -> float:
    """Return the z that has the effect's p-value: in small samples t is larger than the z that it is worth."""
    assert effect.p is not None
    return max(-_LARGEST_Z, min(_LARGEST_Z, z_of(effect.p, sides)))


def _figures(p: float | None, interval: tuple[float, float] | None, confidence: float) -> str:
    if interval is None:
        return "not testable, nothing varies" if p is None else f"p = {p_value(p)}"
    low, high = (number(end) for end in interval)
    return f"p = {p_value(p)}, {confidence:.0%} interval {low} … {high}"


def tuning(alpha: float, sides: int) -> float:
    """Return how strongly the mixture is spread, such that its boundary is lowest at the people it is tuned for.

    It solves c = ln(1 + c) − 2 ln α; the boundary there is √(1 + c). One-sided mixtures are tuned at 2α.
    """
    level = min(alpha * 2 / sides, 0.5)
    c = -2 * math.log(level)
    for _ in range(60):
        c = math.log1p(c) - 2 * math.log(level)
    return c


def log_evidence(z: float, share: float, alpha: float, sides: int) -> float:
    """Return the logarithm of the evidence in a z; ``share`` is people over the people it is tuned for."""
    x = tuning(alpha, sides) * share
    a = z * math.sqrt(x / (1 + x))
    both = a * a / 2 - math.log1p(x) / 2
    return both if sides == 2 else both + math.log(2) + float(scipy.special.log_ndtr(a))


def mixture_z(share: Floats, alpha: float, sides: int) -> Floats:
    """Return the z at which the evidence reaches 1/α, at each share of the people it is tuned for."""
    x = tuning(alpha, sides) * share
    if sides == 2:
        return np.asarray(np.sqrt((1 + 1 / x) * (np.log1p(x) - 2 * math.log(alpha))))
    goal = np.log1p(x) / 2 - math.log(2 * alpha)
    a = np.sqrt(2 * np.maximum(0.0, goal + math.log(2)))  # at or above the root of a convex function
    for _ in range(40):
        tails = scipy.special.log_ndtr(a)
        a = a - (a * a / 2 + tails - goal) / (a + np.exp(-a * a / 2 - tails) / math.sqrt(2 * math.pi))
    return np.asarray(a * np.sqrt((1 + x) / x))


def log_evidence_of_counts(counts: Sequence[int], shares: Sequence[float], concentration: float) -> float:
    """Return the logarithm of the evidence against planned shares, in people per arm (Lindon and Malek, 2022).

    The arms' true shares are mixed over a Dirichlet distribution about the planned ones; it is the
    narrower, the larger its concentration.
    """
    n, p = np.asarray(counts, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    prior = concentration * p
    parts = scipy.special.gammaln(prior + n) - scipy.special.gammaln(prior) - n * np.log(p)
    return float(
        scipy.special.gammaln(concentration) - scipy.special.gammaln(concentration + n.sum()) + math.fsum(parts)
    )
