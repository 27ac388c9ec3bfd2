"""Spending functions and the boundaries of planned looks (Lan and DeMets).

The density of experiments that are still running is carried from look to look by numerical integration (Armitage,
McPherson and Rowe); each boundary is put where exactly the planned share of false alarms crosses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from numbers import Real

import numpy as np
import scipy

from kanab.arguments import check_arguments
from kanab.choices import SPENDING, Alternative
from kanab.errors import AnalysisError
from kanab.stats.distributions import check_sides, find_root
from kanab.stats.gram import Floats

Spending = str
"""One of `SPENDING`; "power" and "hsd" have their number behind a colon: "power:3", "hsd:-4"."""

_MOST_PARAMETER = 40.0
"""Beyond this, a power or a γ spends nothing that a double could show before the last look (or after the first)."""

CLOSEST = 1e-3
"""A look must bring at least this share of the people before it: closer ones differ in nothing but cost."""

_NEGLIGIBLE = 1e-15
"""Where a look spends less than this, the looks before it change nothing that a double could show."""

_FAR = 9.0
"""Standard deviations beyond which a density is not followed: 1e-19 of it is out there."""


@dataclass(frozen=True)
class Boundary:
    """One look of a design: an ordinary p of at most ``nominal`` (|z| of at least ``z``) may stop there.

    ``fraction`` is how much of the design has passed, ``spent`` the chance of a false alarm up to here.
    """

    look: int
    fraction: float
    spent: float
    z: float
    nominal: float


@check_arguments()
def boundaries(
    fractions: Sequence[float],
    *,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
    spending: Spending = "obrien-fleming",
) -> tuple[Boundary, ...]:
    """Return the boundaries of looks at these fractions of the planned people, equally spaced or not.

    "obrien-fleming" is strict early and nearly as good as a single look at the end; "pocock" asks
    for about the same p at every look. "power:3" spends α t³, "hsd:-4" is Hwang, Shih and DeCani's with γ = −4 (below 0
    strict early, above 0 generous early). Two-sided
    designs spend half on either side. Raises `AnalysisError` where fractions do not grow, or end beyond 1.
    """
    check_sides(confidence, alternative)
    check_spending(spending)
    times = growing(fractions, "fractions")
    if times[-1] > 1 + 1e-12:
        raise AnalysisError("a look lies beyond the end of the design", "Fractions end at 1, the planned people.")
    sides = sides_of(alternative)
    shares = shares_by(times, 1 - confidence, sides, spending)
    looks = zip(times, shares, z_boundaries(times, shares, sides), strict=True)
    return tuple(
        Boundary(number, time, share, z, tail(z, sides)) for number, (time, share, z) in enumerate(looks, start=1)
    )


def check_spending(spending: Spending) -> None:
    """Check that the spending function is a known one; raises `AnalysisError`."""
    if spending not in ("obrien-fleming", "pocock"):
        _parameter(spending)


def _parameter(spending: Spending) -> tuple[str, float]:
    """Return the family and its number, of "power:3" or "hsd:-4"; raises `AnalysisError`."""
    family, _, text = str(spending).partition(":")
    if family not in ("power", "hsd"):
        raise AnalysisError("unknown spending function", f"Use one of: {', '.join(SPENDING)}.")
    try:
        parameter = float(text)
    except ValueError:
        parameter = math.nan
    low = 0.0 if family == "power" else -_MOST_PARAMETER
    if not low <= parameter <= _MOST_PARAMETER or (family == "power" and not parameter):
        least = "above 0 and" if family == "power" else f"from {-_MOST_PARAMETER:g}"
        raise AnalysisError(
            f"the spending function {family} needs a number, {least} up to {_MOST_PARAMETER:g}",
            "Write power:3 (α t³)." if family == "power" else "Write hsd:-4 (γ = −4).",
        )
    return family, parameter


def growing(values: Sequence[float], name: str) -> tuple[float, ...]:
    """Check that positive numbers grow from look to look, and not by next to nothing; raises `AnalysisError`."""
    if not len(values) or not all(isinstance(value, Real) and 0 < value < math.inf for value in values):
        raise AnalysisError(f"{name} must be positive numbers, one for every look", "The earliest look comes first.")
    times = tuple(float(value) for value in values)
    for before, after in pairwise(times):
        if after <= before:
            raise AnalysisError(
                f"{name} do not grow from one look to the next",
                "Give everyone counted up to each look, the earliest look first; leave out looks that added nobody.",
            )
        if after < before * (1 + CLOSEST):
            raise AnalysisError(
                f"there are more looks than information: two of them differ by less than {100 * CLOSEST:g} %",
                "Leave one of the two out.",
            )
    return times


def sides_of(alternative: Alternative) -> int:
    """Return 2 for a two-sided test, else 1."""
    return 2 if alternative == "two-sided" else 1


def tail(z: float, sides: int) -> float:
    """Return the p-value of a z on one side or on both."""
    return float(sides * scipy.special.ndtr(-z))


def z_of(p: float, sides: int) -> float:
    """Return the z that has this p-value."""
    return -float(scipy.special.ndtri(p / sides))


def spent_by(fraction: float, alpha: float, sides: int, spending: Spending) -> float:
    """Return the chance of a false alarm that may be spent by a fraction of the design; all of it at the end."""
    share = alpha / sides
    if fraction >= 1:
        return alpha
    if spending == "obrien-fleming":
        return sides * tail(z_of(share, 2) / math.sqrt(fraction), 2)
    if spending == "pocock":
        return alpha * math.log1p(math.expm1(1) * fraction)
    family, parameter = _parameter(spending)
    if family == "power":
        return alpha * math.pow(fraction, parameter)
    return alpha * (math.expm1(-parameter * fraction) / math.expm1(-parameter) if parameter else fraction)


def shares_by(fractions: Sequence[float], alpha: float, sides: int, spending: Spending) -> tuple[float, ...]:
    """Return what a design with this α spends by each look."""
    return tuple(spent_by(fraction, alpha, sides, spending) for fraction in fractions)


@lru_cache(maxsize=256)
def z_boundaries(information: tuple[float, ...], spent: tuple[float, ...], sides: int) -> tuple[float, ...]:
    """Return the z at each look beyond which exactly the next part of ``spent`` falls, given the looks before."""
    boundary: list[float] = []
    running: _Density | None = None
    for place, time in enumerate(information):
        before = information[place - 1] if place else 0.0
        share = spent[place] - (spent[place - 1] if place else 0.0)
        alone = z_of(share, sides) if share > 0 else math.inf
        if running is None or share < _NEGLIGIBLE:
            z = alone
        else:
            z = _crossed(running, share / sides, alone * math.sqrt(time), time - before) / math.sqrt(time)
        boundary.append(z)
        if place + 1 < len(information):
            running = _still_running(running, z, (before, time, information[place + 1]), sides)
    return tuple(boundary)


@dataclass(frozen=True, eq=False)
class _Density:
    """Where the experiments are that have not stopped yet: points and the mass at each of them."""

    points: Floats
    mass: Floats


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_PANEL = 3.0
"""Twelve points for every three standard deviations of the narrowest step integrate to about 1e-11."""


def _still_running(running: _Density | None, z: float, times: tuple[float, float, float], sides: int) -> _Density:
    """Return the density at a look, between those before and after it, of everything inside its boundary."""
    before, time, after = times
    narrowest = min(time - before, after - time)
    root = math.sqrt(time)
    high = min(z, _FAR) * root
    low = -high if sides == 2 else -_FAR * root
    panels = max(1, math.ceil((high - low) / (_PANEL * math.sqrt(narrowest))))
    half = (high - low) / panels / 2
    centres = low + half * (2 * np.arange(panels) + 1)
    points = (centres[:, None] + half * _NODES).ravel()
    weights = np.tile(half * _WEIGHTS, panels)
    scale = math.sqrt(time - before)
    if running is None:
        density = _normal(points / scale) / scale
    else:
        density = _normal((points[:, None] - running.points) / scale) @ running.mass / scale
    return _Density(points, weights * density)


def _normal(x: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi))


def _crossed(running: _Density, share: float, start: float, step: float) -> float:
    """Return the level above which exactly this share ends up after one more step.

    The logarithm of the share falls ever faster with the level, so Newton's steps from above (where
    nobody had stopped before) never overshoot.
    """
    scale, level, mass = math.sqrt(step), start, np.log(running.mass)
    change, steps = math.inf, 60
    while abs(change) > 1e-13 * max(scale, abs(level)) and steps:
        x = (level - running.points) / scale
        tails = scipy.special.log_ndtr(-x)
        parts = mass + tails
        total = float(scipy.special.logsumexp(parts))
        hazards = np.exp(-0.5 * x * x - 0.5 * math.log(2 * math.pi) - tails)
        change = (total - math.log(share)) * scale / float(np.exp(parts - total) @ hazards)
        level, steps = level + change, steps - 1
    return level


_TINIEST = 1e-300
"""A p of 0 is taken for this one."""

_BEYOND = 40.0
"""A z of which a double knows no tail."""

_CERTAIN = 1 - 1e-6
"""No design with an α beyond this is looked for: the p-value is 1."""


def smallest_alpha(
    z: float, information: tuple[float, ...], fractions: tuple[float, ...], sides: int, spending: Spending
) -> float:
    """Return the sequential p-value: the smallest α whose design would have stopped at the last of these looks.

    It is looked for on the z scale, where the last boundary is nearly a straight line in α. Earlier looks only raise
    it, so that the z of a single look is the most that it can be.
    """

    def above(single: float) -> float:
        spent = shares_by(fractions, tail(single, sides), sides, spending)
        return min(z_boundaries(information, spent, sides)[-1], _BEYOND) - z

    lowest = z_of(_CERTAIN, sides)
    if z <= lowest or above(lowest) > 0:
        return 1.0
    return tail(find_root(above, lowest, z) if above(z) > 0 else z, sides)


def smallest_alpha_of_share(p: float, fractions: tuple[float, ...], sides: int, spending: Spending) -> float:
    """Return the smallest α that spends at least this p at the last of these looks, whatever happened before it.

    For statistics that do not move like one effect, such as an F: the shares of all looks add up to α
    however looks depend on each other, so that their false alarms do not add up to more.
    """

    def short(single: float) -> float:
        """Return how far what is newly spent at the last look, by the α of this z, falls short of p."""
        *_, before, now = (0.0, *shares_by(fractions, tail(single, sides), sides, spending))
        return p - (now - before)

    least, lowest = max(p, _TINIEST), z_of(_CERTAIN, sides)
    start = z_of(least, 2) if least < _CERTAIN else lowest
    grid = np.linspace(start, lowest, 400).tolist() if start > lowest else []
    for high, low in pairwise(grid):  # from the smallest α on; a share grows with α, and at last falls again
        if short(low) <= 0:
            return least if short(high) <= 0 else max(least, tail(find_root(short, low, high), sides))
    return 1.0
