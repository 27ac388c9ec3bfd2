"""Tables with noise, as a release with ε has them: rounded normals with the variances that `Tally.noise` states."""

from __future__ import annotations

import numpy as np

from kanab.tally.cells import Cells, marginal
from kanab.tally.moments import Moments
from kanab.tally.noise import AddedNoise, MetricNoise, twice_centre
from kanab.tally.tally import Tally


def stated_noise(tally: Tally, rho: float = 0.01) -> AddedNoise:
    """The noise of a table whose people, sums and squares cost ρ each."""

    def filled(shape: tuple[int, ...], influence: float) -> Cells:
        return np.full(shape, influence**2 / (2 * rho), dtype=object)

    metrics = {}
    for part in tally.moments:
        low, high = part.metric.grid_bounds
        half = (high - low) / 2
        squares = {by: filled(cells.shape, half**2) for by, cells in part.squares.items()}
        counts = filled(tally.shape, 1) if part.metric.missing == "exclude" else None
        metrics[part.metric.name] = MetricNoise(counts, filled(tally.shape, half), squares)
    return AddedNoise(filled(tally.shape, 1), metrics)


def with_noise(tally: Tally, noise: AddedNoise, rng: np.random.Generator) -> Tally:
    """The table with noise drawn, and stated."""

    def drawn(variances: Cells) -> Cells:
        values = np.rint(rng.normal(0.0, np.sqrt(variances.astype(np.float64))))
        return np.array([int(value) for value in values.ravel()], dtype=object).reshape(variances.shape)

    people = tally.people + drawn(noise.people)
    moments = []
    for part in tally.moments:
        own, twice = noise.metrics[part.metric.name], twice_centre(part.metric)
        counts = people if own.counts is None else part.counts + drawn(own.counts)
        sums = part.sums + drawn(own.sums) + (counts - part.counts) * twice // 2
        squares = {}
        for by, cells in part.squares.items():
            more_people, more = (
                marginal(new - old, tally.axes, by) for new, old in ((counts, part.counts), (sums, part.sums))
            )
            squares[by] = cells + drawn(own.squares[by]) + twice * more - twice**2 * more_people // 4
        moments.append(Moments(part.metric, counts, sums, squares))
    return Tally(tally.factors, people, tuple(moments), (), noise)
