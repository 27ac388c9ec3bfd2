"""The additive fit of many two-way tables at once, and what it leaves: the interaction.

``means ≈ row effect + column effect`` by weighted least squares. Columns are eliminated; what is left
is one small Laplacian per table, made invertible by tying each connected part to itself. Residuals
are kept as sums of two doubles and fitted again, so that a small interaction between large main
effects keeps its digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kanab.scan.stats.cells import Flags
from kanab.scan.stats.double_double import Twofold
from kanab.stats.gram import Floats

_ROUNDS = 4
"""Each round corrects the error of the one before; four are enough for any table that is not nearly disconnected."""


@dataclass(frozen=True, eq=False)
class Interaction:
    """What rows and columns leave unexplained.

    ``extra`` is Σ w residual²; ``free`` the diagonal of M = I − (hat matrix): the share of each
    class mean that is not taken up by the fit.
    """

    extra: Floats
    residuals: Floats
    free: Floats


def freedom(filled: Flags) -> NDArray[np.int64]:
    """Interaction degrees of freedom: non-empty cells − (rows + columns − connected parts)."""
    tables, height, width = filled.shape
    found = np.full(tables, (height - 1) * (width - 1))
    gaps = np.flatnonzero(~filled.all(axis=(1, 2)))
    some = filled[gaps]
    rows, columns = np.any(some, axis=2), np.any(some, axis=1)
    parts = np.rint(np.where(rows, 1.0 / _together(some).sum(axis=2), 0.0).sum(axis=1)).astype(np.int64)
    found[gaps] = some.sum(axis=(1, 2)) - (rows.sum(axis=1) + columns.sum(axis=1) - parts)
    return found


def _together(filled: Flags) -> Flags:
    """Which rows are connected through columns; every row with itself."""
    size = filled.shape[1]
    linked = np.einsum("pij,pkj->pik", filled.astype(np.float32), filled.astype(np.float32)) > 0
    linked |= np.eye(size, dtype=bool)
    steps = 1
    while steps < size - 1:
        linked = np.matmul(linked.astype(np.float32), linked.astype(np.float32)) > 0
        steps *= 2
    return np.asarray(linked)


def interaction(means: Twofold, weights: Floats) -> Interaction:
    """The weighted fit of every table. Empty classes have weight 0."""
    if weights.shape[1:] == (2, 2):
        return _two_by_two(means, weights)
    additive = Additive(weights)
    rest = means
    for _ in range(_ROUNDS):
        rows, columns = additive.effects(rest.high)
        for side in (rows[:, :, None], columns[:, None, :]):
            rest = rest - np.broadcast_to(side, weights.shape)
    residuals = np.where(weights > 0, _settled(rest.high, means), 0.0)
    return Interaction(np.sum(weights * residuals**2, axis=(1, 2)), residuals, additive.free)


def _settled(values: Floats, means: Twofold) -> Floats:
    """Differences of means that are nothing but rounding, 90 binary digits down, are 0."""
    return np.where(np.abs(values) < 2.0**-90 * np.abs(means.high).max(axis=(1, 2), keepdims=True), 0.0, values)


_SIGNS = np.array([[1.0, -1.0], [-1.0, 1.0]])


def _two_by_two(means: Twofold, weights: Floats) -> Interaction:
    """(m11 − m10 − m01 + m00)² / Σ 1/w: one contrast says it all. Nothing is left where a class is empty."""
    signed = Twofold(means.high * _SIGNS, means.low * _SIGNS)
    contrast = _settled(signed.sum(2).sum(1).high[:, None, None], means)
    whole = np.all(weights > 0, axis=(1, 2), keepdims=True)
    inverse = np.where(whole, 1.0 / np.where(weights > 0, weights, 1.0), 0.0)
    total = np.where(whole, inverse.sum(axis=(1, 2), keepdims=True), 1.0)
    free = inverse / total
    extra = np.where(whole, contrast**2 / total, 0.0)[:, 0, 0]
    return Interaction(extra, contrast * _SIGNS * free, free)


@dataclass(frozen=True, eq=False)
class Additive:
    """Row and column effects by weighted least squares, for given weights."""

    weights: Floats

    @cached_property
    def _shares(self) -> Floats:
        """Each class's share of its column's weight; 0 in an empty column."""
        total = self.weights.sum(axis=1, keepdims=True)
        return self.weights / np.where(total > 0, total, 1.0)

    @cached_property
    def inverse(self) -> Floats:
        """A generalised inverse of the Laplacian of the rows."""
        links = np.einsum("pij,pkj->pik", self.weights, self._shares)
        size = links.shape[1]
        links[:, np.arange(size), np.arange(size)] = 0.0
        own = links.sum(axis=2)  # as a sum of the others: nothing cancels
        together = _together(self.weights > 0)
        scale = own.max(axis=1)
        tie = np.where(scale > 0, scale, 1.0)[:, None, None] / together.sum(axis=2, keepdims=True)
        return np.asarray(np.linalg.inv(np.eye(size) * own[:, :, None] - links + together * tie))

    def effects(self, values: Floats) -> tuple[Floats, Floats]:
        """Row and column effects of some values in the classes."""
        average = np.einsum("pij,pij->pj", self._shares, values)
        slope = np.einsum("pij,pij->pi", self.weights, values - average[:, None, :])
        rows = np.einsum("pik,pk->pi", self.inverse, slope)
        return rows, average - np.einsum("pij,pi->pj", self._shares, rows)

    @cached_property
    def _mixed(self) -> Floats:
        """Inverse × shares: how row effects lean on columns."""
        return np.asarray(np.matmul(self.inverse, self._shares))

    @cached_property
    def free(self) -> Floats:
        """The diagonal of I − hat; 0 in empty classes."""
        total = self.weights.sum(axis=1)
        own = np.einsum("pii->pi", self.inverse)[:, :, None]
        across = np.einsum("pij,pij->pj", self._shares, self._mixed)[:, None, :]
        column = (1.0 / np.where(total > 0, total, 1.0))[:, None, :]
        hat = self.weights * (own - 2 * self._mixed + across + column)
        return np.where(self.weights > 0, np.maximum(1.0 - hat, 0.0), 0.0)

    def shared(self) -> Floats:
        """Σ M² over all pairs of classes of one row, for every row."""
        total = self.weights.sum(axis=1)
        across = np.matmul(self._shares.transpose(0, 2, 1), self._mixed)
        column = np.where(total > 0, 1.0 / np.where(total > 0, total, 1.0), 0.0)
        across[:, np.arange(total.shape[1]), np.arange(total.shape[1])] += column
        found = []
        for row in range(self.weights.shape[1]):
            root, mixed = np.sqrt(self.weights[:, row]), self._mixed[:, row]
            inner = self.inverse[:, row, row, None, None] - mixed[:, :, None] - mixed[:, None, :] + across
            hat = root[:, :, None] * root[:, None, :] * inner
            unit = np.eye(total.shape[1]) * (root > 0)[:, :, None]
            found.append(np.sum((unit - hat) ** 2, axis=(1, 2)))
        return np.stack(found, axis=1)
