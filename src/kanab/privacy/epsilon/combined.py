"""Arm totals of all tables of an experiment, combined: each table measured them again, with noise of its own."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from kanab.tally.cell_arrays import Cells, zeros
from kanab.tally.moments import Cross, Moments
from kanab.tally.noise import AddedNoise, MetricNoise, twice_centre
from kanab.tally.tally import Tally

_ROUNDING = 1 / 12
"""The variance of rounding a number to a whole one."""

_Measured = tuple[Cells, Cells]
"""Numbers per arm, and the variances of their noise."""


def combine_arms(arms: Tally, others: Iterable[Tally]) -> Tally:
    """Return the table of arms alone, with people, counts and sums that weigh all tables by the inverse of their noise.

    The ``others`` are about the same people, each with noise of its own. Squares and products about the middle of
    bounds stay as they were measured. It is arithmetic on what was released, so that it costs no ε.
    """
    tables = [arms, *(other.keep() for other in others if _alike(other, arms))]
    if len(tables) == 1:
        return arms
    assert arms.noise is not None
    people, variance = _combined([(table.people, _noise(table).people) for table in tables])
    moments, noise = {}, {}
    for part in arms.moments:
        name, middle, own = part.metric.name, twice_centre(part.metric), arms.noise.metrics[part.metric.name]
        holding = [table for table in tables if name in table.metric_names]
        n, n_variance = people, None
        if own.counts is not None:
            n, n_variance = _combined([(t.moments_of(name).counts, _noise(t).counts_of(name)) for t in holding])
        about = [2 * t.moments_of(name).sums - middle * t.moments_of(name).counts for t in holding]
        variances = [4 * _noise(table).metrics[name].sums for table in holding]
        half, half_variance = _combined([*zip(about, variances, strict=True)])
        sums = _rounded(half + middle * n, 2)
        more, more_people = sums - part.sums, n - part.counts
        squares = {
            by: _rounded(4 * cells + 4 * middle * more - middle**2 * more_people, 4)
            for by, cells in part.squares.items()
        }
        moments[name] = Moments(part.metric, n, sums, squares)
        rounded = {by: cells + _ROUNDING for by, cells in own.squares.items()}
        noise[name] = MetricNoise(n_variance, half_variance / 4 + _ROUNDING, rounded)
    crosses = tuple(_with_sums(cross, moments) for cross in arms.crosses)
    added = AddedNoise(variance, noise, arms.noise.products)
    return replace(arms, people=people, moments=tuple(moments.values()), crosses=crosses, noise=added)


def _alike(other: Tally, arms: Tally) -> bool:
    """Return whether a table has the same arms, and measured its people itself."""
    return other.noise is not None and len(other.axes) > 1 and other.arms == arms.arms


def _noise(table: Tally) -> AddedNoise:
    assert table.noise is not None
    return table.noise


def _combined(parts: Sequence[_Measured]) -> _Measured:
    """Return means weighted by the inverse of variances, as whole numbers, and the variances of their noise."""
    weights = [1 / np.asarray(variances, dtype=np.float64) for _, variances in parts]
    whole = np.asarray(sum(weights))
    first, moved = parts[0][0], zeros(whole.shape)
    for weight, (cells, _) in zip(weights[1:], parts[1:], strict=True):
        shares = np.array([Fraction(share) for share in (weight / whole).tolist()], dtype=object)
        moved = moved + shares * (cells - first)
    return _rounded(first + moved, 1), np.asarray((1 / whole + _ROUNDING).astype(object))


def _rounded(cells: Cells, divisor: int) -> Cells:
    """Return numbers divided by another one and rounded to whole ones."""
    rounded = zeros(cells.shape)
    rounded.reshape(-1)[:] = [round(Fraction(value) / divisor) for value in cells.ravel().tolist()]
    return rounded


def _with_sums(cross: Cross, moments: dict[str, Moments]) -> Cross:
    """Return products with the combined sums of both metrics: what was measured about the middles stays."""
    first, second = (moments[name] for name in cross.pair)
    g, h = (twice_centre(part.metric) for part in (first, second))
    n, s, t = (
        new - old for new, old in zip((first.counts, first.sums, second.sums), (cross.counts, *cross.sums), strict=True)
    )
    squares = [part.squares_by(cross.by, cross.by) for part in (first, second)]
    assert squares[0] is not None
    assert squares[1] is not None
    products = _rounded(4 * cross.products + 2 * h * s + 2 * g * t - g * h * n, 4)
    return replace(
        cross, counts=first.counts, sums=(first.sums, second.sums), squares=(squares[0], squares[1]), products=products
    )
