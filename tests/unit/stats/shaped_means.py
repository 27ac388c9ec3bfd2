"""Arm means as they might come out of any experiment, with or without a known shape of the metric."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from kanab.choices import Alternative
from kanab.stats.effect import ArmMeans
from kanab.stats.skewness import Shape

SIDES: tuple[Alternative, ...] = ("two-sided", "greater", "less")


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
