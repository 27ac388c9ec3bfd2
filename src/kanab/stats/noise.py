"""What noise that was added on purpose does to estimates: its variance in them is known, and added to theirs.

A tally with noise says how much (`Tally.noise`). A class mean is c + S / n, with S = Σ (y − c) and c the middle of the
metric's bounds, so that its noise has the variance (σ_S² + (mean − c)² σ_n²) / n².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kanab.errors import AnalysisError
from kanab.stats.gram import Floats
from kanab.tally.cells import Cells, marginal
from kanab.tally.moments import By
from kanab.tally.noise import twice_centre
from kanab.tally.tally import Tally


def floats(cells: Cells) -> Floats:
    """Return cells as doubles."""
    return np.asarray(cells, dtype=np.float64)


def refuse_noise(tally: Tally, what: str) -> None:
    """Raise `AnalysisError` where a tally has noise: this statistic does not know it and would look too sure."""
    if tally.noise is not None:
        raise AnalysisError(f"{what} cannot be had from numbers with noise", "Release without ε, or leave it out.")


def class_mean_noise(tally: Tally, metric: str) -> Floats:
    """Return the variance of the noise in every class mean, in grid steps²; classes with nobody have infinite ones."""
    assert tally.noise is not None
    part = tally.moments_of(metric)
    n, s = floats(part.counts), floats(part.sums)
    sums, counts = floats(tally.noise.metrics[metric].sums), floats(tally.noise.counts_of(metric))
    with np.errstate(divide="ignore", invalid="ignore"):
        off_centre = s / n - twice_centre(part.metric) / 2
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
    """Return the degrees of freedom of variances whose squares carry noise: those of a χ² that varies as much.

    >>> freedom_with_noise(np.array([100.0]), np.array([50.0]), np.array([400.0]))
    array([25.])
    """
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
