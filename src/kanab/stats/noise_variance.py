"""What noise that was added on purpose does to estimates: its variance in them is known, and added to theirs.

A class mean is c + T / n, T = Σ (y − c), c the middle of the bounds; its noise varies by
(σ_T² + (mean − c)² σ_n²) / n². Squares about a fit f are U − 2 Σ f T + Σ f² n with U = Σ (y − c)².
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.errors import AnalysisError, DesignError
from kanab.stats.gram import Floats
from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.factor import label
from kanab.tally.moments import By
from kanab.tally.noise import MetricNoise, twice_centre
from kanab.tally.tally import Tally

TOO_NOISY = "too noisy to tell"
"""What is said where a variance cannot be told from 0 because of the noise."""

FEWEST_DEVIATIONS = 4.0
"""An arm or class with fewer people than so many standard deviations of their noise has no mean."""

LEAST_FREEDOM = 2.0
"""A variance with fewer degrees of freedom is smaller than its own noise."""


def floats(cells: Any) -> Floats:
    """Return cells as doubles."""
    return np.asarray(cells, dtype=np.float64)


def refuse_noise(tally: Tally, what: str) -> None:
    """Raise `AnalysisError` where a tally has noise: this statistic does not know it and would look too sure."""
    if tally.noise is not None:
        raise AnalysisError(f"{what} cannot be had from numbers with noise", "Release without ε, or leave it out.")


def twice_middle(tally: Tally, metric: str) -> Any:
    """Return twice what values were measured about, in grid steps: a number, or one per arm along the arms' axis."""
    assert tally.noise is not None
    middles = tally.noise.metrics[metric].twice_middles
    if middles is None:
        return twice_centre(tally.moments_of(metric).metric)
    axis = tally.axes.index(tally.experiment.name)
    return middles.reshape([-1 if place == axis else 1 for place in range(len(tally.axes))])


def class_mean_noise(tally: Tally, metric: str) -> Floats:
    """Return the variance of the noise in every class mean, in grid steps²; classes with nobody have infinite ones."""
    assert tally.noise is not None
    part = tally.moments_of(metric)
    n, s = floats(part.counts), floats(part.sums)
    sums, counts = floats(tally.noise.metrics[metric].sums), floats(tally.noise.counts_of(metric))
    with np.errstate(divide="ignore", invalid="ignore"):
        off_centre = s / n - floats(twice_middle(tally, metric)) / 2
        variance = (sums + off_centre**2 * counts) / n**2
    return np.where(n > 0, variance, np.inf)


def lost_squares(tally: Tally, metric: str) -> Floats:
    """Return by how much noise makes Σ S²/n of each class too large on average, and squares within it too small."""
    return class_mean_noise(tally, metric) * floats(tally.moments_of(metric).counts)


def squares_noise(tally: Tally, metric: str, by: By = ()) -> Floats:
    """Return the variance of the noise in squares about the middle of the bounds, by arm or marginal, in grid steps⁴.

    The squares of a 0/1 metric are its sums, which have no noise of their own beside that in the mean.
    """
    assert tally.noise is not None
    wanted = by or (tally.experiment.name,)
    for kept, cells in tally.noise.metrics[metric].squares.items():
        if set(wanted) <= set(kept):
            return floats(marginal(cells, kept, wanted))
    return np.zeros(tally.shape_of(wanted))


def freedom_with_noise(rss: Floats, df: Floats, squares: Floats) -> Floats:
    """Return the degrees of freedom of variances whose squares carry noise: those of a χ² that varies as much."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rss > 0, 2 * rss**2 / (2 * rss**2 / df + squares), df)


@dataclass(frozen=True, eq=False)
class ClassNoise:
    """The noise of classes, one after the other: variances in their sums and people, and means less the middle, c."""

    n: Floats
    off_centre: Floats
    sums: Floats
    people: Floats
    binary: bool

    @property
    def means(self) -> Floats:
        """The variance of the noise in class means, in steps²."""
        return np.asarray((self.sums + self.off_centre**2 * self.people) / self.n**2)

    def within(self, group: NDArray[np.intp], squares: Floats, variances: Floats) -> Floats:
        """Return the variance of the noise in Σ (y − class mean)² of groups of classes, whose people vary so.

        ``squares`` is that in Σ (y − c)². What noise in people does to the degrees of freedom is taken off; squares of
        a 0/1 metric about c = ½ are a quarter of its people.
        """
        off = self.off_centre**2
        with_people = off - variances[group] + (0.25 if self.binary else 0.0)
        each = 4 * off * self.sums + with_people**2 * self.people
        return np.asarray(squares + np.bincount(group, weights=each, minlength=len(squares)))


def class_noise(tally: Tally, metric: str, places: NDArray[np.intp]) -> ClassNoise:
    """Return the noise of the classes of a tally at some places, which hold people."""
    assert tally.noise is not None
    part, at = tally.moments_of(metric), tuple(places.T)
    n, s, sums, people = (
        floats(cells)[at]
        for cells in (part.counts, part.sums, tally.noise.metrics[metric].sums, tally.noise.counts_of(metric))
    )
    return ClassNoise(n, s / n - twice_centre(part.metric) / 2, sums, people, part.metric.binary)


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured of one metric, about c, with the variances of its noise; the arms' axis comes first.

    ``n`` and ``t`` = Σ (y − c) are per class, ``u`` = Σ (y − c)² per arm. A ``binary`` metric's u is n / 4.
    """

    n: Floats
    t: Floats
    u: Floats
    n_noise: Floats
    t_noise: Floats
    u_noise: Floats
    binary: bool

    def left(self, fitted: Floats) -> tuple[Floats, Floats]:
        """Return each arm's squares about a fit (which is about c, too), and the variance of the noise in them."""
        by_arm = tuple(range(1, self.n.ndim))
        quarter = 0.25 if self.binary else 0.0
        left = self.u + np.sum(fitted**2 * self.n - 2 * fitted * self.t, axis=by_arm)
        of_people = (fitted**2 + quarter) ** 2 * self.n_noise
        return left, self.u_noise + np.sum(of_people + 4 * fitted**2 * self.t_noise, axis=by_arm)


def measured(tally: Tally, metric: str, squares: Cells) -> Measured:
    """Return what was measured of a metric, given its squares per arm."""
    assert tally.noise is not None
    part, arms = tally.moments_of(metric), tally.experiment
    axis, g = tally.axes.index(arms.name), twice_middle(tally, metric)

    def in_front(cells: Any) -> Floats:
        return np.moveaxis(floats(cells), axis, 0)

    n, n_noise = in_front(part.counts), in_front(tally.noise.counts_of(metric))
    few = n <= FEWEST_DEVIATIONS * np.sqrt(n_noise)
    if np.any(few):
        arm = label(arms.levels[int(np.argwhere(few)[0][0])])
        raise DesignError(
            f"arm {arm!r} has too few people for this noise" if n.ndim == 1
            else f"in arm {arm!r} a class has too few people for this noise",
            "Wait for more people, use fewer levels, or spend more ε.",
        )  # fmt: skip
    by_arm = (arms.name,)
    people, sums = (marginal(cells, tally.axes, by_arm) for cells in (part.counts, part.sums))
    h = np.reshape(np.asarray(g, dtype=object), -1)
    return Measured(
        n, in_front(2 * part.sums - g * part.counts) / 2, floats(4 * squares - 4 * h * sums + h**2 * people) / 4,
        n_noise, in_front(tally.noise.metrics[metric].sums), squares_noise(tally, metric), part.metric.binary,
    )  # fmt: skip


def variances_above_noise(variance: Floats, df: Floats) -> Floats:
    """Return the variances that can be told from 0 in spite of their noise, and 0 for the others."""
    return np.where((variance > 0) & (df >= LEAST_FREEDOM), variance, 0.0)


def arm_products_noise(tally: Tally, first: str, second: str) -> Any:
    """Return the variances of the noise in each arm's products of two metrics, in either order; None without any."""
    assert tally.noise is not None
    for (names, by), cells in tally.noise.products.items():
        if by == (tally.experiment.name,) and names in ((first, second), (second, first)):
            return cells
    return None


def combined_noise(tally: Tally, pair: tuple[str, str], weights: tuple[Cells, Cells]) -> MetricNoise:
    """Return the noise of a y + b z, with whole numbers a and b for every arm, where products of y and z were kept.

    Its values are about a c_y + b c_z. Squares of 0/1 metrics are a quarter of their people, with that noise.
    """
    assert tally.noise is not None
    noise, by = tally.noise, (tally.experiment.name,)
    axis = tally.axes.index(by[0])
    shape = [-1 if place == axis else 1 for place in range(len(tally.axes))]
    products = arm_products_noise(tally, *pair)
    squares: Any = 4 * weights[0] ** 2 * weights[1] ** 2 * products
    sums: Any = 0
    middles: Any = 0
    for name, weight in zip(pair, weights, strict=True):
        of_people = marginal(noise.counts_of(name), tally.axes, by) / 16
        binary = tally.moments_of(name).metric.binary
        sums = sums + weight.reshape(shape) ** 2 * noise.metrics[name].sums
        squares = squares + weight**4 * (of_people if binary else squares_noise(tally, name))
        middles = middles + weight * twice_centre(tally.moments_of(name).metric)
    return MetricNoise(None, sums, {by: squares}, middles)
