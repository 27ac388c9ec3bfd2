"""Tables with noise, as a release with ε has them: rounded normals with the variances that `Tally.noise` states."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kanab.stats import ArmMeans
from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.moments import Cross, Moments
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
    halves = {part.metric.name: (part.metric.grid_bounds[1] - part.metric.grid_bounds[0]) / 2 for part in tally.moments}
    products = {
        (cross.pair, cross.by): filled(cross.products.shape, halves[cross.pair[0]] * halves[cross.pair[1]])
        for cross in tally.crosses
    }
    return AddedNoise(filled(tally.shape, 1), metrics, products)


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
        halves = 2 * part.sums + drawn(4 * own.sums) + (counts - part.counts) * twice
        sums = (halves + rng.integers(0, 2, halves.shape)) // 2  # halves are rounded at random
        squares = {}
        for by, cells in part.squares.items():
            more_people, more = (
                marginal(new - old, tally.axes, by) for new, old in ((counts, part.counts), (sums, part.sums))
            )
            squares[by] = cells + drawn(own.squares[by]) + twice * more - twice**2 * more_people // 4
        moments.append(Moments(part.metric, counts, sums, squares))
    made = {part.metric.name: part for part in moments}
    crosses = [_crossed(tally, cross, made, drawn(noise.products[cross.pair, cross.by])) for cross in tally.crosses]
    return Tally(tally.factors, people, tuple(moments), tuple(crosses), noise)


def restated(tally: Tally, factor: float) -> Tally:
    """The same numbers with noise that is said to be so many times larger."""
    noise = tally.noise
    metrics = {
        name: MetricNoise(
            None if part.counts is None else part.counts * factor,
            part.sums * factor,
            {by: cells * factor for by, cells in part.squares.items()},
        )
        for name, part in noise.metrics.items()
    }
    products = {key: cells * factor for key, cells in noise.products.items()}
    return replace(tally, noise=AddedNoise(noise.people * factor, metrics, products))


def assert_noise_is_as_stated(drawn: list[ArmMeans], exact: ArmMeans, sample: float = 0.1) -> None:
    """Means of many draws vary together as the noise that they state, and lie about the exact ones; variances do."""
    draws = len(drawn)
    means, said = np.array([each.means for each in drawn]), np.mean([each.noise for each in drawn], axis=0)
    deviations = np.sqrt(np.diag(said))
    unit = np.outer(deviations, deviations)
    assert np.cov(means.T) / unit == pytest.approx(said / unit, abs=4 * math.sqrt(2 / draws))
    assert means.mean(axis=0) == pytest.approx(exact.means, abs=5 * deviations.max() / math.sqrt(draws))
    assert np.mean([each.sample for each in drawn], axis=0) == pytest.approx(exact.sample, rel=sample)


def shop(people: int, rng: np.random.Generator, *, effect: float = 0.0, by_class: bool = False) -> Tally:
    """Two arms by three tiers: a rate that differs by tier, and amounts from 0 to 20 with squares by arm and by tier.

    ``effect`` is that of B on the rate in the third tier.
    """
    counts = rng.multinomial(people, np.outer([0.5, 0.5], [0.5, 0.3, 0.2]).ravel()).reshape(2, 3)
    bought, spend, squares = (np.zeros((2, 3), dtype=object) for _ in range(3))
    for arm, tier in np.ndindex(2, 3):
        n = int(counts[arm, tier])
        bought[arm, tier] = int(rng.binomial(n, (0.1, 0.15, 0.2)[tier] + effect * (arm == 1 and tier == 2)))
        values = rng.binomial(20, rng.beta(1, 3 - tier / 2, n))
        spend[arm, tier], squares[arm, tier] = int(values.sum()), int((values**2).sum())
    by = {("arm",): squares.sum(axis=1), ("tier",): squares.sum(axis=0)}
    counts = counts.astype(object)
    parts = (
        Moments(Metric("bought", 1, (0, 1)), counts, bought, {}),
        Moments(Metric("spend", 1, (0, 20)), counts, spend, {("arm", "tier"): squares} if by_class else by),
    )
    return Tally((Factor("arm", ("A", "B"), "arm"), Factor("tier", ("1", "2", "3"))), counts, parts)


def noisy_shop(seed: int, people: int = 3_000, rho: float = 0.01, **world: Any) -> Tally:
    """The shop with noise."""
    rng = np.random.default_rng(seed)
    tally = shop(people, rng, **world)
    return with_noise(tally, stated_noise(tally, rho), rng)


def _crossed(tally: Tally, cross: Cross, made: dict[str, Moments], more: Cells) -> Cross:
    """The products with noise about the middles of bounds, and people, sums and squares of the table itself."""
    y, z = (made[name] for name in cross.pair)
    g, h = (twice_centre(part.metric) for part in (y, z))
    n, s, t = (marginal(cells, tally.axes, cross.by) for cells in (y.counts, y.sums, z.sums))
    before = [h * cross.sums[0], g * cross.sums[1], g * h * cross.counts]
    twice = 2 * (h * s - before[0] + g * t - before[1]) - (g * h * n - before[2])
    squares = tuple(part.squares_by(cross.by, tally.axes) for part in (y, z))
    return Cross(cross.pair, cross.by, n, (s, t), squares, cross.products + more + twice // 4)
