"""Arm means as they might come out of any experiment, with or without a known shape of the metric."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from kanab import Metric, Tally, count_columns
from kanab.choices import Alternative
from kanab.stats.effect import ArmMeans
from kanab.stats.skewness import Shape
from kanab.tally.factor import Factor
from kanab.tally.moments import Moments

SIDES: tuple[Alternative, ...] = ("two-sided", "greater", "less")


def arms_of(**people: int) -> Tally:
    """Arms of so many people."""
    return count_columns({"arm": [arm for arm, n in people.items() for _ in range(n)]}, arm="arm")


def values_of(metric: Metric | None = None, **arms: Any) -> Tally:
    """One list of values per arm."""
    rows = {"arm": [arm for arm, ys in arms.items() for _ in ys], "y": [y for ys in arms.values() for y in ys]}
    return count_columns(rows, arm="arm", metrics={"y": metric or Metric("y")})


def rates_of(**arms: tuple[int, int]) -> Tally:
    """Arms of so many events among so many people."""
    events, people = (np.array(cells, dtype=object) for cells in zip(*arms.values(), strict=True))
    part = Moments(Metric("y", 1, (0, 1)), people, events, {})
    return Tally((Factor("arm", tuple(arms), "arm"),), people, (part,))


def made_means(
    means: list[float], errors: list[float], people: list[int], shape: Shape | None = None, arms: str = "ABC"
) -> ArmMeans:
    """Plain means of arms with these standard errors; the first arm is the control."""
    return ArmMeans(
        "y", "difference", (), tuple(arms[: len(means)]), "A", tuple(people), tuple(Fraction(mean) for mean in means),
        np.array(errors) ** 2, np.array(people) - 1.0, ((),) * len(means), np.zeros((0, 0)), shape=shape,
    )  # fmt: skip


shapes = st.builds(
    Shape,
    skewness=st.one_of(st.none(), st.just(0.0), st.floats(-40, 40)),
    unusual=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
)
"""Shapes of metrics that may be negative."""


@st.composite
def drawn_means(draw: Any, *, nonnegative: bool = False) -> ArmMeans:
    """Means of two arms, at any distance from each other and from 0, of any people and variances."""
    people = [draw(st.integers(5, 5_000)) for _ in "AB"]
    errors = [draw(st.floats(0.05, 3)) for _ in "AB"]
    away = [draw(st.floats(0.01, 12)) * math.hypot(*errors) for _ in "AB"]
    if not nonnegative:
        away = [mean * draw(st.sampled_from([-1, 1])) for mean in away]
    shape: Shape = draw(shapes)
    return made_means(away, errors, people, Shape(shape.skewness, shape.unusual, nonnegative))
