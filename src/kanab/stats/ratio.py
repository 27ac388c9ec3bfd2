"""Ratios of two metrics per arm (revenue per order, clicks per view), plain and adjusted.

A person's part in R = Σ y / Σ z is u = (y − R z) / z̄ (the delta method): v = y Σ z − z Σ y, in whole numbers, is an
ordinary metric, for the functions that plain and adjusted means have in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from kanab.arguments import check_arguments
from kanab.choices import Slopes, Variance
from kanab.errors import AnalysisError, listed
from kanab.stats.additive import additive_means
from kanab.stats.adjust import adjusted_means
from kanab.stats.cautions import Caution
from kanab.stats.effect import ArmMeans, plain_means
from kanab.stats.gram import Floats, arm_cross
from kanab.stats.noise_variance import FEWEST_DEVIATIONS, arm_products_noise, combined_noise, refuse_noise
from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.factor import Level, label
from kanab.tally.metric import Metric
from kanab.tally.moments import Cross, Moments
from kanab.tally.noise import AddedNoise, twice_centre
from kanab.tally.tally import Tally


@check_arguments()
def ratio_means(tally: Tally, numerator: str, denominator: str) -> ArmMeans:
    """Return one ratio per arm, with the delta method's variance; compare them as any arm means.

    Raises `AnalysisError` where products were not kept, or a denominator has a mean of 0 or one that noise could have
    made.
    """
    cross = _products(tally, numerator, denominator)
    line = _linear(tally, cross)
    table = Tally(
        (tally.experiment,), cross.counts, (line.moments(cross, cross.counts, np.zeros_like(cross.counts)),),
        noise=line.noise(tally.keep(), cross.pair),
    )  # fmt: skip
    return line.restored(plain_means(table))


@check_arguments()
def adjusted_ratio_means(
    tally: Tally,
    numerator: str,
    denominator: str,
    covariates: str | Sequence[str] | None = None,
    *,
    variance: Variance = "exact",
    totals: Tally | None = None,
) -> ArmMeans:
    """Return one ratio per arm at the covariates' mean over all arms: each arm's u on the covariates (Lin, Ding).

    It needs both metrics of the same people in every class: sums per class, products per arm. ``totals`` are the arms
    of a release with noise, as for ``adjusted_means``. Raises `AnalysisError` otherwise.
    """
    start, line = _linear_totals(totals, numerator, denominator)
    table, line = _linear_table(tally, numerator, denominator, line=line)
    return line.restored(adjusted_means(table, None, covariates, variance=variance, totals=start))


def _linear_totals(
    totals: Tally | None, numerator: str, denominator: str, *, alike: bool = False
) -> tuple[Tally | None, _Linear | None]:
    """Return v of the totals of a release with noise, and the line that tables of classes then take, too."""
    if totals is None:
        return None, None
    return _linear_table(totals.keep(), numerator, denominator, alike=alike)


def _linear_table(
    tally: Tally,
    numerator: str,
    denominator: str,
    numbers: Sequence[str] = (),
    *,
    alike: bool = False,
    line: _Linear | None = None,
) -> tuple[Tally, _Linear]:
    """Return v by class, with numbers and their products with it, and how ratios are restored from it."""
    cross = _products(tally, numerator, denominator)
    line = line or _linear(tally, cross, alike=alike)
    y, z = (tally.moments_of(name) for name in (numerator, denominator))
    if np.any(y.counts != z.counts) or np.any(marginal(y.counts, tally.axes, cross.by) != cross.counts):
        raise AnalysisError(
            f"some people have only one of {numerator!r} and {denominator!r}, so their ratio cannot be adjusted",
            "Count both with missing = 'zero', or read the plain ratio.",
        )
    axis = tally.axes.index(tally.experiment.name)
    shape = [-1 if place == axis else 1 for place in range(len(tally.axes))]
    sums = y.sums * line.of_numerator.reshape(shape) - z.sums * line.of_denominator.reshape(shape)
    v = line.moments(cross, y.counts, sums)
    noise = line.noise(tally, cross.pair, numbers)
    if not numbers:
        return Tally(tally.factors, y.counts, (v,), noise=noise), line
    kept = tally.select_metrics([number for number in numbers if number in tally.metric_names])
    if any(np.any(part.counts != y.counts) for part in kept.moments):
        raise AnalysisError(
            f"some people have no value of {listed(numbers)}",
            "Count numbers that effects are adjusted for with missing = 'zero'.",
        )
    crosses = [line.times(tally, number, cross) for number in kept.metric_names]
    products = [*kept.crosses, *(product for product in crosses if product is not None)]
    return Tally(tally.factors, y.counts, (v, *kept.moments), tuple(products), noise), line


@check_arguments()
def additive_ratio_means(
    tables: Iterable[Tally],
    numerator: str,
    denominator: str,
    covariates: Sequence[str] | None = None,
    *,
    variance: Variance = "exact",
    numbers: Sequence[str] = (),
    slopes: Slopes = "own",
    totals: Tally | None = None,
) -> ArmMeans:
    """Return one ratio per arm, adjusted for numbers and for several covariates that were never crossed.

    ``tables`` are those of each covariate, with both metrics, and of every pair of them, and ``totals`` the arms of a
    release with noise, as for ``additive_means``; ``numbers`` need their products with both metrics. Raises
    `AnalysisError` where something is missing.
    """
    given, numbers = list(tables), list(numbers)
    alike = slopes == "one"  # a slope for all arms is of numbers in one unit
    linear: list[Tally] = []
    start, line = _linear_totals(totals, numerator, denominator, alike=alike)
    for table in [table for table in given if table.moments]:
        # with noise every table has ratios of its own, and v must be the same in all
        known = None if table.noise is None else line
        of_v, made = _linear_table(table, numerator, denominator, numbers, alike=alike, line=known)
        linear.append(of_v)
        line = line or made
    if line is None:
        raise AnalysisError("no table holds the two metrics of the ratio", "Give a table of each covariate.")
    linear += [table for table in given if not table.moments]
    return line.restored(
        additive_means(linear, line.name, covariates, variance=variance, numbers=numbers, slopes=slopes, totals=start)
    )


def _products(tally: Tally, numerator: str, denominator: str) -> Cross:
    """Return the pair's products per arm, in either order; the error names the line of a plan that keeps them."""
    for name in (numerator, denominator):
        tally.moments_of(name)
    cross = arm_cross(tally, numerator, denominator)
    if cross is not None:
        return cross
    raise AnalysisError(
        f"no cross-products of {numerator!r} and {denominator!r} were kept, so their ratio has no error",
        "Count again with this line under [metrics] of the plan: "
        f'{numerator}_per_{denominator} = {{ ratio = ["{numerator}", "{denominator}"] }}',
    )


@dataclass(frozen=True, eq=False)
class _Linear:
    """v = a y − b z per arm, in grid steps, and how ratio and variance are restored from it."""

    name: str
    of_numerator: Cells
    of_denominator: Cells
    by: tuple[str, ...]
    ratios: tuple[Fraction, ...]
    units: tuple[Fraction, ...]
    """u in units of the ratio for every unit of v."""

    def squares(self, cross: Cross) -> Cells:
        """Return the squares of v from those of both metrics and their products."""
        a, b = self.of_numerator, self.of_denominator
        squares: Cells = cross.squares[0] * a**2 - 2 * cross.products * a * b + cross.squares[1] * b**2
        return squares

    def moments(self, cross: Cross, counts: Cells, sums: Cells) -> Moments:
        """Return the moments of v."""
        return Moments(Metric(self.name), counts, sums, {self.by: self.squares(cross)})

    def noise(self, tally: Tally, ratio: tuple[str, str], numbers: Sequence[str] = ()) -> AddedNoise | None:
        """Return the noise of v, of numbers, and of their products with it, as if the ratios were known."""
        if tally.noise is None:
            return None
        a, b = self.of_numerator, self.of_denominator
        kept = tally.noise.select([name for name in numbers if name in tally.metric_names])
        products = dict(kept.products)
        for number in kept.metrics:
            parts = [arm_products_noise(tally, number, name) for name in ratio]
            if parts[0] is not None and parts[1] is not None:
                products[(number, self.name), self.by] = a**2 * parts[0] + b**2 * parts[1]
        metrics = {self.name: combined_noise(tally, ratio, (a, -b)), **kept.metrics}
        return AddedNoise(tally.noise.counts_of(ratio[0]), metrics, products)

    def times(self, tally: Tally, number: str, ratio: Cross) -> Cross | None:
        """Return the products of a number and v; None where those with numerator or denominator are missing."""
        with_y, with_z = (arm_cross(tally, number, name) for name in ratio.pair)
        if with_y is None or with_z is None:
            return None
        a, b = self.of_numerator, self.of_denominator
        return Cross(
            (number, self.name), self.by, with_y.counts, (with_y.sums[0], a * with_y.sums[1] - b * with_z.sums[1]),
            (with_y.squares[0], self.squares(ratio)), a * with_y.products - b * with_z.products,
        )  # fmt: skip

    def restored(self, means: ArmMeans) -> ArmMeans:
        """Return the arm means of v as ratios."""
        arms = list(zip(means.exact, means.exact_slopes, self.ratios, self.units, strict=True))
        units: Floats = np.array([float(unit**2) for unit in self.units])
        each = np.array([float(unit) for unit in self.units])
        return replace(
            means,
            exact=tuple(ratio + mean * unit for mean, _, ratio, unit in arms),
            exact_slopes=tuple(tuple(slope * unit for slope in slopes) for _, slopes, _, unit in arms),
            sample=means.sample * units,
            noise=None if means.noise is None else means.noise * np.outer(each, each),
        )


def _linear(tally: Tally, cross: Cross, *, alike: bool = False) -> _Linear:
    """Return v for each arm: its own line through 0 and its means; ``alike`` in the same unit in all arms."""
    y, z = (tally.moments_of(name).metric for name in cross.pair)
    grids = Fraction(z.scale, y.scale)
    rows = zip(
        tally.experiment.levels, cross.counts.tolist(), cross.sums[0].tolist(), cross.sums[1].tolist(), strict=True
    )
    shares, ratios, units = [], [], []
    for arm, n, total_y, total_z in rows:
        if n and not total_z:
            raise AnalysisError(
                f"{z.name!r} has a mean of 0 in arm {label(arm)!r}, so nothing can be divided by it",
                "Wait until it has happened in every arm, or take another denominator.",
            )
        if tally.noise is not None and total_z**2 <= FEWEST_DEVIATIONS**2 * _sum_noise(tally, z.name, arm):
            raise AnalysisError(
                f"noise could have made all {z.name!r} of arm {label(arm)!r}, so nothing can be divided by it",
                "Wait for more people, or spend more ε.",
            )
        common = math.gcd(total_y, total_z) or 1
        shares.append((total_z // common, total_y // common))
        ratios.append(Fraction(total_y, total_z or 1) * grids)
        units.append(Fraction(n * common, total_z**2 or 1) * grids)
    if alike:
        common = math.lcm(*(unit.denominator for unit in units))
        factors = [int(unit * common) for unit in units]
        shares = [(of_y * factor, of_z * factor) for (of_y, of_z), factor in zip(shares, factors, strict=True)]
        units = [Fraction(1, common)] * len(units)
    a, b = (_whole(column) for column in zip(*shares, strict=True))
    return _Linear("/".join(cross.pair), a, b, cross.by, tuple(ratios), tuple(units))


def _sum_noise(tally: Tally, metric: str, arm: Level) -> float:
    """Return the variance of the noise in an arm's sum of a metric: in values about the middle, and in people."""
    assert tally.noise is not None
    place, by = tally.experiment.index(arm), (tally.experiment.name,)
    sums, people = (
        marginal(cells, tally.axes, by)[place]
        for cells in (tally.noise.metrics[metric].sums, tally.noise.counts_of(metric))
    )
    return float(sums + (twice_centre(tally.moments_of(metric).metric) / 2) ** 2 * people)


def _whole(values: Sequence[int]) -> Cells:
    cells = np.empty(len(values), dtype=object)
    cells[:] = values
    return cells


# ── clusters: arms that were assigned to groups of people ──────────────────────────────────────


FEWEST_CLUSTERS = 30
"""With fewer clusters intervals rest on how alike clusters are; a caution says so."""


@check_arguments()
def cluster_means(tally: Tally, metric: str, people: str = "people") -> ArmMeans:
    """Return one mean per person and arm, from a tally of clusters: Σ metric / Σ people.

    Its error is that between clusters: the cluster-robust one of a regression on rows (CR0) times C / (C − 1) in each
    arm of C clusters, where clusters of different sizes n count as C = (Σ n)² / Σ n² (Kish). Two arms are compared by
    Welch's t, which so has at most two degrees of freedom less than there are clusters. Raises what `ratio_means`
    raises.
    """
    refuse_noise(tally, "a mean of clusters")
    means = ratio_means(tally, metric, people)
    return between_clusters(replace(means, metric=metric), effective_clusters(tally, people))


def effective_clusters(tally: Tally, people: str) -> dict[Level, float]:
    """Return per arm how many clusters of one size would tell as much: (Σ n)² / Σ n² of their people (Kish)."""
    refuse_noise(tally, "a number of clusters")
    arms = tally.keep()
    part = arms.moments_of(people)
    squares = part.squares_by(arms.axes, arms.axes)
    assert squares is not None  # every table keeps them by arm
    return {
        arm: int(total) ** 2 / int(square)
        for arm, total, square in zip(arms.experiment.levels, part.sums, squares, strict=True)
    }


def between_clusters(means: ArmMeans, effective: Mapping[Level, float]) -> ArmMeans:
    """Return means of clusters with errors and degrees of freedom for so many effective clusters in each arm."""
    counted = np.array(means.people, dtype=np.float64)
    alike = np.array([max(effective[arm], 1.5) for arm in means.arms])  # one cluster with nearly everybody tells little
    factor = (counted - 1) / counted * alike / (alike - 1)
    return replace(means, sample=means.sample * factor, df=np.maximum(means.df - (counted - alike), 1.0))


def few_clusters(clusters: Mapping[Level, int], by: Sequence[str]) -> list[Caution]:
    """Warn where there are fewer than 30 clusters."""
    if sum(clusters.values()) >= FEWEST_CLUSTERS:
        return []
    return [
        Caution(
            "few-clusters",
            f"Arms were assigned by {' and '.join(by)}, and there are fewer than {FEWEST_CLUSTERS} of them: intervals "
            "are wide and rest on clusters that are alike. Assign more of them, rather than more people in each.",
        )
    ]
