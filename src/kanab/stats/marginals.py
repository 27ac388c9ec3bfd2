"""The marginals that a fit to several tables needs, its columns, their exact products, and what noise in them does."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from kanab.choices import Variance
from kanab.errors import DesignError
from kanab.stats.adjust import Moved, moved_to_totals
from kanab.stats.effect import ArmMeans
from kanab.stats.gram import Floats, arm_squares
from kanab.stats.noise_variance import (
    FEWEST_DEVIATIONS,
    arm_products_noise,
    floats,
    freedom_with_noise,
    measured,
    squares_noise,
    twice_middle,
    variances_above_noise,
)
from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.factor import Factor, label
from kanab.tally.metric import Metric
from kanab.tally.noise import twice_centre
from kanab.tally.tally import Tally

Rational = int | Fraction
"""Whole numbers where all scores are whole, which add much faster; fractions otherwise."""

Row = list[Rational]

_ROOM = 1 << 62
"""Below this whole numbers are added as 64-bit integers, which is many times as fast."""


@dataclass(frozen=True, eq=False)
class CodedColumn:
    """One covariate's column: its value in every level, about a whole number near the mean."""

    covariate: str
    name: str
    values: Cells
    scale: int = 1


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """One number's column: its grid steps, about a whole number near the mean."""

    number: str
    scale: int
    centre: Rational

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.number


Column = CodedColumn | NumberColumn


@dataclass(frozen=True, eq=False)
class NumberSums:
    """The numbers: sums per arm and by arm × covariate, and products per arm of two numbers, or one and the metric."""

    metrics: dict[str, Metric]
    sums: dict[str, Cells]
    by_level: dict[tuple[str, str], Cells]
    products: dict[frozenset[str], Cells]


@dataclass(frozen=True, eq=False)
class Marginals:
    """The marginals of all tables, arms first: people who have a value, their sums and squares."""

    metric: Metric
    arms: Factor
    factors: tuple[Factor, ...]
    counts: Cells
    sums: Cells
    squares: Cells
    single: dict[str, tuple[Cells, Cells]]
    pairs: dict[tuple[str, str], Cells]
    numbers: NumberSums
    tables: list[Tally]

    @property
    def noisy(self) -> bool:
        """Whether the tables carry noise."""
        return self.tables[0].noise is not None

    @property
    def total(self) -> int:
        """Everyone who has a value."""
        return int(self.counts.sum())

    @property
    def centre(self) -> int:
        """A whole number near the mean, in steps."""
        return int(self.sums.sum()) // self.total

    def products(self, columns: Sequence[Column], place: Any) -> list[Row]:
        """Return X'X with an intercept, of one arm or (a slice) of everyone, exact."""
        size = len(columns) + 1
        xtx: list[Row] = [[0] * size for _ in range(size)]
        xtx[0][0] = int(np.sum(self.counts[place]))
        coded: dict[str, dict[int, CodedColumn]] = {}
        for i, right in enumerate(columns, 1):
            xtx[0][i] = xtx[i][0] = self._sum(right, place)
            for j, left in enumerate(columns[:i], 1):
                if isinstance(left, NumberColumn):
                    xtx[i][j] = xtx[j][i] = self._product(left, right, place)
            if isinstance(right, CodedColumn):
                coded.setdefault(right.covariate, {})[i] = right
        for first, second in combinations_with_replacement(coded.values(), 2):
            block = self._block([*first.values()], [*second.values()], place)
            for i, row in zip(first, block, strict=True):
                for j, product in zip(second, row, strict=True):
                    xtx[i][j] = xtx[j][i] = product
        return xtx

    def _sum(self, column: Column, place: Any) -> Rational:
        if isinstance(column, NumberColumn):
            n = int(np.sum(self.counts[place]))
            return int(np.sum(self.numbers.sums[column.number][place])) - column.centre * n
        return _total(_arm(self.single[column.covariate][0], place) * column.values)

    def _product(self, left: NumberColumn, right: Column, place: Any) -> Rational:
        """Return Σ of the products of a number and another column."""
        if isinstance(right, NumberColumn):
            raw = self.numbers.products[frozenset((left.number, right.number))]
            sums, n = self.numbers.sums, int(np.sum(self.counts[place]))
            first, second = (int(np.sum(sums[column.number][place])) for column in (left, right))
            return _about(int(np.sum(raw[place])), n, (first, left.centre), (second, right.centre))
        counts = _arm(self.single[right.covariate][0], place)
        by_level = _arm(self.numbers.by_level[left.number, right.covariate], place)
        return _total((by_level - left.centre * counts) * right.values)

    def _block(self, left: Sequence[CodedColumn], right: Sequence[CodedColumn], place: Any) -> list[Row]:
        """Return Σ of the products of all columns of a covariate with all of another one, or of the same."""
        pair = left[0].covariate, right[0].covariate
        if pair[0] == pair[1]:
            people = np.diag(_arm(self.single[pair[0]][0], place))
        else:
            people = _arm(self.pairs[pair], place) if pair in self.pairs else _arm(self.pairs[pair[::-1]], place).T
        first, second = (np.stack([column.values for column in columns]) for columns in (left, right))
        if all(map(_whole, (first, people, second))):
            most = int(abs(first).max()) * int(abs(second).max()) * int(abs(people).sum())
            if most < _ROOM:  # no sum of any of them is longer
                first, people, second = (cells.astype(np.int64) for cells in (first, people, second))
        rows: list[Row] = (first @ people @ second.T).tolist()
        return rows

    def right_side(self, columns: Sequence[Column], place: Any) -> Row:
        """Return X'y of one arm, or (a slice) of everyone, y about the centre."""
        total, n = int(np.sum(self.sums[place])), int(np.sum(self.counts[place]))
        rest: Row = []
        for column in columns:
            if isinstance(column, NumberColumn):
                raw = self.numbers.products[frozenset((column.number, self.metric.name))]
                x = int(np.sum(self.numbers.sums[column.number][place]))
                rest.append(_about(int(np.sum(raw[place])), n, (x, column.centre), (total, self.centre)))
            else:
                counts, sums = (_arm(cells, place) for cells in self.single[column.covariate])
                rest.append(_total((sums - self.centre * counts) * column.values))
        return [total - self.centre * n, *rest]

    def squares_about(self, place: int) -> int:
        """Return Σ y² of one arm about the centre."""
        k, n = self.centre, int(self.counts[place])
        return int(self.squares[place]) - 2 * k * int(self.sums[place]) + n * k**2


def _whole(cells: Cells) -> bool:
    return all(type(value) is int for value in cells.ravel().tolist())


def _arm(cells: Cells, place: Any) -> Cells:
    """Return one arm's cells, or those of all arms added up."""
    return np.asarray(cells.sum(axis=0) if isinstance(place, slice) else cells[place])


def _about(product: int, n: int, first: tuple[int, Rational], second: tuple[int, Rational]) -> Rational:
    """Return Σ (x − a)(y − b) from Σ x y, given the sums of x and y with a and b."""
    (x, a), (y, b) = first, second
    return product - b * x - a * y + n * a * b


def _total(cells: Cells) -> Rational:
    total: Rational = sum(cells.ravel().tolist())
    return total


# ── how noise in them moves a fit ──────────────────────────────────────────────────────────────


def check_people(held: Marginals) -> None:
    """Raise `DesignError` where noise could have made the people of an arm, or of a level in it."""
    for table in held.tables:
        if table.moments:
            measured(table, held.metric.name, arm_squares(table, held.metric.name))


NumberKey = tuple[str, str, int]
"""Numbers that were measured with noise: people or sums (by name) of a table, or squares and products of arms."""

Moves = dict[NumberKey, Floats]
"""By how much every cell of what was measured moves something, to first order."""


@dataclass(frozen=True, eq=False)
class NoisyEquations:
    """How the normal equations of one arm, db − dG β, follow from noise in what was measured, to first order.

    Numbers are about the middles of their bounds, the metric ``away`` steps below where it was measured.
    """

    held: Marginals
    columns: Sequence[Column]
    place: int
    away: float

    @property
    def everybody(self) -> NumberKey:
        """The people of the arm, from the first table."""
        return "people", "", self.table_of(self.held.metric.name)

    def table_of(self, *names: str) -> int:
        """Return the first table that has these covariates and metrics."""
        return next(
            place for place, table in enumerate(self.held.tables) if {*names} <= {*table.axes, *table.metric_names}
        )

    def add(self, moves: Moves, key: NumberKey, row: int, weights: Any, *covariates: str) -> None:
        """Add the weights of a table's cells, given along some of its covariates, to a row."""
        factors = self.held.tables[key[2]].covariates if key[2] >= 0 else ()
        names = [factor.name for factor in factors]
        if key not in moves:
            moves[key] = np.zeros((len(self.columns) + 1, *(len(factor.levels) for factor in factors)))
        order = sorted(covariates, key=names.index)
        turned = np.transpose(floats(weights), [covariates.index(name) for name in order])
        moves[key][row] += turned.reshape(
            [moves[key].shape[1 + names.index(name)] if name in order else 1 for name in names]
        )

    def moved(self, beta: Floats) -> Moves:
        """Return how every number moves each equation: equations × cells of the arm."""
        metric, moves = self.held.metric.name, Moves()
        numbers = [(row, each.number) for row, each in enumerate(self.columns, 1) if isinstance(each, NumberColumn)]
        coded = [(row, each) for row, each in enumerate(self.columns, 1) if isinstance(each, CodedColumn)]
        fits: dict[str, Floats] = {}
        for row, each in coded:
            fits[each.covariate] = fits.get(each.covariate, 0.0) + floats(each.values) * beta[row]
        off = self.away - beta[0]
        self.add(moves, ("sums", metric, self.everybody[2]), 0, 1.0)
        self.add(moves, self.everybody, 0, off)
        for row, number in numbers:
            sums = ("sums", number, self.table_of(number))
            self.add(moves, sums, 0, -beta[row])
            self.add(moves, sums, row, off)
            self.add(moves, _product(number, metric), row, 1.0)
            for other, second in numbers:
                self.add(moves, _product(number, second), row, -beta[other])
            for name, fit in fits.items():
                self.add(moves, ("sums", number, self.table_of(metric, number, name)), row, -fit, name)
        for name, fit in fits.items():
            self.add(moves, ("people", "", self.table_of(metric, name)), 0, -fit, name)
        for row, each in coded:
            name, values = each.covariate, floats(each.values)
            table = self.table_of(metric, name)
            self.add(moves, ("sums", metric, table), row, values, name)
            self.add(moves, ("people", "", table), row, values * (off - fits[name]), name)
            for other, number in numbers:
                sums = ("sums", number, self.table_of(metric, number, name))
                self.add(moves, sums, row, -beta[other] * values, name)
            for further in fits.keys() - {name}:
                crossed = -values[:, None] * fits[further][None, :]
                self.add(moves, ("people", "", self.table_of(name, further)), row, crossed, name, further)
        return moves

    def mean_moved(self, mean: Floats) -> Moves:
        """Return how every number of an arm moves the columns' means over all arms."""
        metric, total, moves = self.held.metric.name, self.held.total, Moves()
        for row, each in enumerate(self.columns, 1):
            self.add(moves, self.everybody, row, -mean[row - 1] / total)
            if isinstance(each, NumberColumn):
                self.add(moves, ("sums", each.number, self.table_of(each.number)), row, 1 / total)
            else:
                people = ("people", "", self.table_of(metric, each.covariate))
                self.add(moves, people, row, floats(each.values) / total, each.covariate)
        return moves

    def squares_moved(self, beta: Floats) -> Moves:
        """Return how every number moves the squares that a fit leaves, as if it were known: U − 2 β'b + β'G β."""
        metric, sides = self.held.metric.name, self.moved(0 * beta)
        moves = {key: -np.tensordot(beta, c + sides[key], axes=1) for key, c in self.moved(beta).items()}
        sums = ("sums", metric, self.everybody[2])
        moves[sums] = moves[sums] + 2 * self.away
        moves[self.everybody] = moves[self.everybody] + self.away**2
        return moves | {_product(metric, metric): np.array(1.0)}

    def mean_shifted(self, moved: Moved) -> Moves:
        """Return how the numbers of the first table move the way from its arm's mean to that of the totals."""
        table = self.everybody[2]
        shape = [len(factor.levels) for factor in self.held.tables[table].covariates]
        return {
            ("sums", self.held.metric.name, table): np.full(shape, -moved.of_sums[self.place]),
            self.everybody: np.full(shape, -moved.of_people[self.place]),
        }

    def noise(self, key: NumberKey) -> Floats:
        """Return the variance of the noise in every cell of what a key names, in this arm."""
        kind, name, place = key
        if kind == "products":
            return np.asarray(self._product_noise(*name.split("\n")))
        table = self.held.tables[place]
        assert table.noise is not None
        people = table.noise.counts_of(self.held.metric.name) if table.moments else table.noise.people
        cells = people if kind == "people" else table.noise.metrics[name].sums
        return floats(np.moveaxis(cells, table.axes.index(table.experiment.name), 0)[self.place])

    def _product_noise(self, first: str, second: str) -> float:
        if first != second:
            kept = (arm_products_noise(table, first, second) for table in self.held.tables if table.moments)
            return float(next(cells for cells in kept if cells is not None)[self.place])
        table = self.held.tables[self.table_of(first)]
        assert table.noise is not None
        if table.moments_of(first).metric.binary:  # a quarter of the people
            people = marginal(table.noise.counts_of(first), table.axes, (table.experiment.name,))
            return float(people[self.place]) / 16
        return float(squares_noise(table, first)[self.place])

    def variance(self, moves: Moves) -> float:
        """Return the variance of the noise in something that moves so."""
        return math.fsum(float(np.sum(c**2 * self.noise(key))) for key, c in moves.items())


def _product(first: str, second: str) -> NumberKey:
    return "products", "\n".join(sorted((first, second))), -1


def _weighted(weights: Floats, moves: Moves) -> Moves:
    """Return how a weighted sum of rows moves."""
    return {key: np.tensordot(weights, c, axes=1) for key, c in moves.items()}


def _added(first: Moves, second: Moves) -> Moves:
    return first | {key: first[key] + c if key in first else c for key, c in second.items()}


def _check_columns(arms: Sequence[NoisyEquations], inverse: Floats, where: str) -> None:
    """Raise `DesignError` where noise could have made what a column has beyond the others: 1 / (G⁻¹)_jj."""
    for place, column in enumerate(arms[0].columns, 1):
        beyond = 1 / inverse[place, place]
        weights = inverse[place] * beyond
        noise = 0.0
        for arm in arms:
            sides = arm.moved(0 * weights)
            noise += arm.variance(_weighted(weights, {key: sides[key] - c for key, c in arm.moved(weights).items()}))
        if beyond**2 <= FEWEST_DEVIATIONS**2 * noise:
            raise DesignError(
                f"{where}noise hides what {column.name} would explain",
                "Leave it out, wait for more people, or spend more ε.",
            )


@dataclass(frozen=True, eq=False)
class _ArmFit:
    """The fit of one arm: its coefficients, how its equations reach its mean, that mean's share of σ², and (X'X)⁻¹."""

    beta: Floats
    reach: Floats
    share: float
    inverse: Floats

    def lost(self, arm: NoisyEquations, equations: Moves) -> float:
        """Return by how much noise in the equations makes the squares that are left too small on average."""
        return math.fsum(
            float(np.einsum("ij,i...,j...,...", self.inverse, c, c, arm.noise(key), optimize=True).sum())
            for key, c in equations.items()
        )


def _shared_slope(gram: Floats, side: Floats, shared: Floats) -> _ArmFit:
    """Return the fit of an arm that has a mean of its own and the slopes of all arms."""
    beta = np.array([side[0] / gram[0, 0] - gram[0, 1:] / gram[0, 0] @ shared[1:], *shared[1:]])
    reach, share = np.eye(len(side))[0] / gram[0, 0], float(1 / gram[0, 0])
    return _ArmFit(beta, reach, share, np.outer(reach, reach) / share)


def with_fit_noise(
    held: Marginals,
    columns: Sequence[Column],
    means: ArmMeans,
    variance: Variance,
    *,
    one_slope: bool,
    totals: Tally | None = None,
) -> ArmMeans:
    """Return the means with the covariance of their noise, and variances without what noise does to them.

    An arm's mean at x̄ is x̄'β with G β = b, all linear in what was measured: to first order it moves by
    x̄'G⁻¹(db − dG β) + dx̄'β, and all arms share x̄. With one slope for all arms, they share its noise, too. A fit goes
    through the arm's mean, so that with ``totals`` only that of the first table is replaced.
    """
    centred = [_about_middle(held, column) for column in columns]
    twice = np.broadcast_to(np.reshape(twice_middle(held.tables[0], held.metric.name), -1), len(means.arms))
    arms = [NoisyEquations(held, centred, place, float(g) / 2 - held.centre) for place, g in enumerate(twice.tolist())]
    at_mean = floats(held.products(centred, slice(None))[0]) / held.total
    grams = [floats(held.products(centred, arm.place)) for arm in arms]
    sides = [floats(held.right_side(centred, arm.place)) for arm in arms]
    whole: Floats = floats(np.linalg.inv(np.sum(grams, axis=0)))
    shared = whole @ np.sum(sides, axis=0)
    if one_slope:
        _check_columns(arms, whole, "")
    by_mean = arms[0].mean_moved(at_mean[1:])
    moves: list[list[Moves]] = []  # each arm's mean by the numbers of each arm
    rss, left_noise, shares = [], [], []
    for arm, gram, side in zip(arms, grams, sides, strict=True):
        if one_slope:
            fit = _shared_slope(gram, side, shared)
        else:
            inverse = floats(np.linalg.inv(gram))
            _check_columns([arm], inverse, f"in arm {label(means.arms[arm.place])!r} ")
            fit = _ArmFit(inverse @ side, inverse @ at_mean, float(at_mean @ inverse @ at_mean), inverse)
        beta, equations = fit.beta, arm.moved(fit.beta)
        left = float(held.squares_about(arm.place)) - 2 * beta @ side + beta @ gram @ beta
        rss.append(left + fit.lost(arm, equations))
        left_noise.append(arm.variance(arm.squares_moved(beta)))
        shares.append(1 / gram[0, 0] if variance == "paper" else fit.share)
        together = [_weighted(beta, by_mean) for _ in arms]
        if one_slope:
            turned = whole @ (at_mean - gram[0] / gram[0, 0])
            together = [
                _added(row, _weighted(turned, other.moved(shared))) for row, other in zip(together, arms, strict=True)
            ]
        together[arm.place] = _added(together[arm.place], _weighted(fit.reach, equations))
        moves.append(together)
    exact, beside = means.exact, np.zeros(len(arms))
    if totals is not None:
        table, metric = held.tables[arms[0].everybody[2]], held.metric.name
        moved = moved_to_totals(table, totals, metric, measured(table, metric, arm_squares(table, metric)))
        exact, beside = tuple(mean + shift for mean, shift in zip(exact, moved.shifts, strict=True)), moved.beside
        for arm, row in zip(arms, moves, strict=True):
            row[arm.place] = _added(row[arm.place], arm.mean_shifted(moved))
    noise = np.array([[_covariance(arms, first, second) for second in moves] for first in moves]) + np.diag(beside)
    df = freedom_with_noise(np.array(rss), means.df, np.array(left_noise))
    sample = variances_above_noise(np.array(rss), df) / means.df * np.array(shares)
    scale = float(held.metric.scale) ** 2
    return replace(means, exact=exact, sample=sample / scale, df=df, noise=noise / scale)


def _covariance(arms: Sequence[NoisyEquations], first: Sequence[Moves], second: Sequence[Moves]) -> float:
    """Return the covariance of the noise in two means, each moved by the numbers of every arm."""
    return math.fsum(
        float(np.sum(mine[key] * theirs[key] * arm.noise(key)))
        for arm, mine, theirs in zip(arms, first, second, strict=True)
        for key in mine.keys() & theirs.keys()
    )


def _about_middle(held: Marginals, column: Column) -> Column:
    """Return a number's column about the middle of its bounds, where its sums were measured."""
    if isinstance(column, CodedColumn):
        return column
    return replace(column, centre=Fraction(twice_centre(held.numbers.metrics[column.number]), 2))
