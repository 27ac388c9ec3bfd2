"""What does an arm change? Arm means, their covariance, and any contrast of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kanab.errors import AnalysisError, DesignError, LevelError, listed
from kanab.factor import Level, as_level, label
from kanab.stats.distributions import Alternative, check_sides, t_interval, t_tail
from kanab.stats.gram import Classes, Floats, arm_squares, classes_of, solve
from kanab.tabular import number, p_value
from kanab.tally import Tally

Method = Literal["difference", "adjusted"]


@dataclass(frozen=True, eq=False)
class ArmMeans:
    """One mean per arm, plain or adjusted, with what is needed to compare them.

    ``offsets`` are the means minus ``centre``: differences are taken there, so that a large
    common mean costs no digits. ``sample`` holds the arms' own variances, ``population`` the
    covariance that comes from the people having been drawn (zero for plain means).
    """

    metric: str
    method: Method
    covariates: tuple[str, ...]
    arms: tuple[Level, ...]
    control: Level
    centre: float
    offsets: Floats
    sample: Floats
    population: Floats
    df: Floats
    slopes: Floats
    people: tuple[int, ...]

    @property
    def means(self) -> Floats:
        """The arm means in units of the metric."""
        return self.centre + self.offsets


@dataclass(frozen=True)
class Effect:
    """A difference between arms. ``se`` is for these people (SATE), ``se_population`` for the
    population that they were drawn from (PATE); interval, t and p use the latter.

    t, p and interval are None where nothing varies: not testable.
    """

    metric: str
    arm: Level
    control: Level
    contrast: tuple[tuple[Level, float], ...]
    method: Method
    covariates: tuple[str, ...]
    estimate: float
    se: float
    se_population: float
    df: float | None
    t: float | None
    p: float | None
    interval: tuple[float, float] | None
    confidence: float
    alternative: Alternative

    @property
    def testable(self) -> bool:
        """Does anything vary, so that there is an error to compare the effect with?"""
        return self.t is not None

    def __str__(self) -> str:
        adjusted = f", adjusted for {listed(self.covariates)}" if self.method == "adjusted" else ""
        name = " ".join(f"{'+' if w > 0 else '−'} {_weight(w)}{label(a)}" for a, w in self.contrast)
        head = f"{self.metric}: {name.removeprefix('+ ')}{adjusted} = {number(self.estimate)}"
        if self.interval is None or self.df is None:
            return f"{head} (not testable: nothing varies)"
        low, high = (number(end) for end in self.interval)
        return (
            f"{head} ± {number(self.se_population)}, {self.confidence:.0%} interval {low} … {high}, "
            f"t({self.df:.1f}) = {number(self.t)}, p = {p_value(self.p)}"
        )


def _weight(weight: float) -> str:
    return "" if abs(weight) == 1 else f"{abs(weight):g} "


def plain_means(tally: Tally, metric: str | None = None) -> ArmMeans:
    """The arm means as they are, each with its own variance (Welch)."""
    factor = tally.factor("arm")
    table = tally.keep()
    classes = classes_of(table, metric)
    offsets, sample, df, people = [], [], [], []
    for _, rss, n, part in arm_parts(table, metric, classes, parameters=1):
        people.append(n)
        flat = solve(np.ones((1, 1)), part.n, part, ("Intercept",))
        offsets.append(flat.b[0])
        sample.append(rss / (n * (n - 1)))
        df.append(float(n - 1))
    scale = classes.scale
    return ArmMeans(
        tally.moments_of(metric).metric.name, "difference", (), factor.levels, factor.control,
        classes.centre / scale, np.array(offsets) / scale, np.array(sample) / scale**2,
        np.zeros((len(df), len(df))), np.array(df), np.zeros((len(df), 0)), tuple(people),
    )  # fmt: skip


def arm_parts(
    tally: Tally, metric: str | None, classes: Classes, parameters: int
) -> list[tuple[Level, float, int, Classes]]:
    """Per arm: its name, the squares within its classes, its people and its own classes."""
    factor = tally.factor("arm")
    if len(factor.levels) < 2:
        raise AnalysisError(f"{factor.name!r} has a single arm", "An effect needs two arms to compare.")
    squares = arm_squares(tally, metric)
    axis = tally.axes.index(factor.name)
    parts = []
    for position, arm in enumerate(factor.levels):
        inside = classes.places[:, axis] == position
        part = Classes(
            classes.places[inside], classes.counts[inside], classes.sums[inside], classes.centre, classes.scale
        )
        n = part.total if inside.any() else 0
        if n == 0:
            raise AnalysisError(f"arm {label(arm)!r} has nobody in it", "Select the arms that have people first.")
        if n <= parameters:
            raise DesignError(
                f"arm {label(arm)!r} has too few people for its {parameters} coefficients",
                "Wait for more people, or use fewer covariates or levels.",
            )
        parts.append((arm, part.within(int(squares[position])), n, part))
    return parts


def contrast(
    means: ArmMeans,
    weights: Mapping[Any, float],
    *,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
) -> Effect:
    """Any weighted sum of arm means: ``{"B": 1, "A": -1}``, or ``{"B": 0.5, "C": 0.5, "A": -1}``.

    >>> from kanab.datasets import eighteen
    >>> print(contrast(plain_means(eighteen()), {"B": 1, "A": -1}))
    minutes: B − A = -0.1188 ± 0.3921, 95% interval -0.9605 … 0.7228, t(13.9) = -0.3031, p = 0.766
    """
    check_sides(confidence, alternative)
    c = np.zeros(len(means.arms))
    for arm, weight in weights.items():
        level = as_level(arm, "arm")
        if level not in means.arms:
            raise LevelError("the contrast names an unknown arm", f"Arms: {listed(map(label, means.arms))}.")
        if not np.isfinite(weight):
            raise AnalysisError("a contrast needs finite weights", "For example {'B': 1, 'A': -1}.")
        c[means.arms.index(level)] = weight
    if not c.any():
        raise AnalysisError("a contrast with only zero weights compares nothing", "Weigh two arms.")
    estimate = float(c @ means.offsets) + float(c.sum()) * means.centre
    parts = c**2 * means.sample
    sample = float(parts.sum())
    se = float(np.sqrt(sample))
    wide = float(np.sqrt(sample + c @ means.population @ c))
    df = t = p = interval = None
    if sample > 0:
        df = sample**2 / float(np.sum(parts**2 / means.df))
        t = estimate / wide
        p = t_tail(t, df, alternative)
        interval = t_interval(estimate, wide, df, confidence, alternative)
    named = tuple((arm, float(weight)) for arm, weight in zip(means.arms, c, strict=True) if weight)
    ordered = tuple(sorted(named, key=lambda item: -item[1]))
    pair = len(ordered) == 2 and ordered[0][1] == 1 and ordered[1][1] == -1
    return Effect(
        means.metric, ordered[0][0] if pair else None, ordered[1][0] if pair else None, ordered,
        means.method, means.covariates, estimate, se, wide, df, t, p, interval, confidence, alternative,
    )  # fmt: skip


def against_control(
    means: ArmMeans,
    arm: Any = None,
    control: Any = None,
    *,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
) -> Effect:
    """One arm minus the control; with two arms neither need be named."""
    base = means.control if control is None else as_level(control, "arm")
    others = [level for level in means.arms if level != base]
    if arm is None:
        if len(others) != 1:
            raise AnalysisError(
                "there are several arms to compare with the control",
                f"Name one: {listed(map(label, others))}.",
            )
        arm = others[0]
    if as_level(arm, "arm") == base:
        raise AnalysisError("an arm cannot be compared with itself", "Name another arm or control.")
    return contrast(means, {arm: 1, base: -1}, confidence=confidence, alternative=alternative)


def difference_in_means(
    tally: Tally,
    metric: str | None = None,
    *,
    arm: Any = None,
    control: Any = None,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
) -> Effect:
    """The plain effect: Welch's t with Satterthwaite's degrees of freedom.

    >>> from kanab.datasets import eighteen
    >>> difference_in_means(eighteen()).estimate
    -0.118845493...
    """
    means = plain_means(tally, metric)
    return against_control(means, arm, control, confidence=confidence, alternative=alternative)
