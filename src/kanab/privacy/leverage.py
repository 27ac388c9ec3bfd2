"""The leverage rule: among how many people everyone hides when all published tables are used together.

Let X be the 0/1 matrix of signatures × published classes and W the people per signature. The
leverage of a person is h = x (Xᵀ W X)⁺ xᵀ: the largest share of its squared weight that any linear
combination of published sums can put on that person. The **effective k** of everything published
is 1 / max h. For one table h = 1/n, and the rule is plain k-anonymity.

What must never happen is that one person among millions is taken for a rounding error. So nothing
is left out because of floating point alone: a class counts as a combination of others only if whole
numbers prove it. What rounding may have added is deducted; where that proof or the bound on rounding
errors fails, what holds without any computation is left: people hide at least among those who share
their whole signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kanab.errors import PrivacyError
from kanab.tally.metric import DOUBLE_LIMIT

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Ints = NDArray[np.int64]
Columns = NDArray[np.int32]  # by table and signature: the number of a class, −1 for none
Floats = NDArray[np.float64]

BUDGET = 8_000
"""How many distinct classes may hang together. Work grows with their cube: these take a minute and a gigabyte."""

SLACK = 1e-6
"""How far effective k may lie below k, relatively, for rounding's sake.

The bound on rounding errors is kept below this, or else deducted, so that classes of exactly k are
not refused for being 9.9999999. It cannot hide a person: a class of k − 1 lies 1/k below k, which
is more than this for every k up to a million.
"""

DOUBTFUL = 0.1  # a relative error from which on a computed leverage is worth nothing
PACK = 48  # classes: small blocks are computed together, which is quicker than one by one
REFINEMENTS = 4  # of a fit: each leaves a tenth of what was left, or less
ROUNDS = 200  # of an approximation that is good enough to choose by
MANY_CLASSES = 2_000  # from so many on a second thread pays


@dataclass(frozen=True)
class Leverage:
    """The effective k of a set of tables, and a signature whose people hide among the fewest.

    ``worst`` is its row. If nobody is in any table, effective k is infinite and ``worst`` is −1.
    """

    effective_k: float
    worst: int

    def floored(self, k: int) -> int:
        """Return the effective k as receipts say it: the multiple of k that is not above it."""
        return int(self.effective_k * (1 + SLACK)) // k * k


def leverage(cells: Ints, people: Ints) -> Leverage:
    """Return among how many people the most exposed one hides.

    ``cells[i, j]`` is the class of signature i in table j, or −1 for people who are not in it, and
    ``people[i]`` is how many have that signature. A table with classes of 40 and 60; and the same
    beside a second one in which a single person has moved:

    >>> leverage(np.array([[0], [1]]), np.array([40, 60]))
    Leverage(effective_k=40.0, worst=0)
    >>> leverage(np.array([[0, 0], [0, 1], [1, 1]]), np.array([39, 1, 60]))
    Leverage(effective_k=1.0, worst=1)

    Raises `PrivacyError` where the tables have too many classes to check.
    """
    sizes = _sizes(cells, people)
    if not np.isfinite(sizes).any():
        return Leverage(float("inf"), -1)
    worst = int(np.argmin(sizes))
    return Leverage(float(sizes[worst]), worst)


def leverages(cells: Ints, people: Ints) -> Floats:
    """Return the leverage h of one person of every signature; 0 for a signature of nobody, or outside all tables."""
    return 1 / _sizes(cells, people)


@dataclass(frozen=True, eq=False)
class Explained:
    """What classes explain of some numbers, by signature.

    ``sizes`` are 1/h. ``fitted`` is the fit of least squares, a number per person; NaN where in doubt. ``last_step`` is
    by how much another refinement would change it. ``shares`` are x (XᵀWX)⁺ xᵀ for other weights W than people: times
    the weight of one person, it is the largest share of any combination of sums that is this person's.
    """

    sizes: Floats
    fitted: Floats
    last_step: Floats
    shares: Floats


@cache
def _pools() -> ThreadpoolController:
    """Return the pools of threads that algebra runs in; finding them takes a hundredth of a second."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - `import kanab` stays light

    return ThreadpoolController()


def explain(cells: Ints, people: Ints, sums: Floats, weights: Floats | None = None) -> Explained:
    """Return which part of some numbers classes explain; ``sums[i, j]`` is that of number j in signature i.

    ``weights`` are those of all people of a signature together, and positive wherever there are any.
    """
    if (
        cells.ndim != 2
        or people.shape != cells.shape[:1]
        or (people < 0).any()
        or people.sum(dtype=float) >= DOUBLE_LIMIT
    ):
        raise PrivacyError("the signatures are damaged", "Count the source again.")
    heavy = people.astype(float) if weights is None else weights
    sizes, shares = np.full(len(cells), np.inf), np.zeros(len(cells))
    fitted, step = np.zeros_like(sums), np.zeros_like(sums)
    somewhere = np.flatnonzero((people > 0) & (cells >= 0).any(axis=1))
    if len(somewhere):
        inside = _present(_distinct(cells[somewhere]), people[somewhere], sums[somewhere], heavy[somewhere])
        sizes[somewhere], fitted[somewhere] = inside.sizes, inside.fitted
        step[somewhere], shares[somewhere] = inside.last_step, inside.shares
    return Explained(sizes, fitted, step, shares)


def telling_weights(cells: Ints, people: Ints, row: int) -> Floats:
    """Return by table how heavily it weighs in the combination of sums that tells most about the people of one row.

    An approximation: it only chooses among tables to coarsen.
    """
    from scipy.sparse import csr_array  # noqa: PLC0415 - `import kanab` stays light
    from scipy.sparse.linalg import lsqr  # noqa: PLC0415

    widths = cells.max(axis=0) + 1
    ends = np.cumsum(widths)
    rows, tables = np.nonzero(cells >= 0)
    root = np.sqrt(people)
    x = csr_array(
        (root[rows], (rows, cells[rows, tables] + (ends - widths)[tables])), shape=(len(cells), int(ends[-1]))
    )
    target = np.zeros(len(cells))
    target[row] = 1 / root[row]
    weights = np.abs(lsqr(x, target, atol=1e-8, btol=1e-8, iter_lim=ROUNDS)[0])
    return np.array([part.max(initial=0) for part in np.split(weights, ends[:-1])])


def holds(result: Leverage, k: int) -> bool:
    """Return whether everyone hides among at least k people, rounding errors aside.

    >>> holds(Leverage(9.99999999, 0), 10), holds(Leverage(9.99, 0), 10)
    (True, False)
    """
    return result.effective_k >= k * (1 - SLACK)


# ── which classes there are, and which hang together ───────────────────────────────────────────


def _sizes(cells: Ints, people: Ints) -> Floats:
    """Return 1/h per row: among how many people each of its people hides."""
    return explain(cells, people, np.empty((len(cells), 0))).sizes


def _present(columns: Columns, people: Ints, sums: Floats, weights: Floats) -> Explained:
    """Explain people who are in some table, with classes numbered through all tables."""
    count = int(columns.max()) + 1
    classes = np.full(count + 1, np.inf)  # the last one stands for no class
    sizes = np.full(len(people), np.inf)
    for column in columns:
        counts = np.bincount(column[column >= 0], people[column >= 0])
        classes[: len(counts)][counts > 0] = counts[counts > 0]
        np.minimum(sizes, classes[column], out=sizes)
    first = columns[(columns >= 0).argmax(axis=0), np.arange(len(people))].astype(np.int64)
    group = _connected(columns, first, count)
    members = np.bincount(group)
    packs = (np.cumsum(members) // PACK)[group]
    # Nobody leaves a class that is alone in its group, so that h = 1/n without any algebra.
    packs[members[group] == 1] = -1
    _check_budget(packs)
    fitted, step = np.empty_like(sums), np.zeros_like(sums)
    for place, added in enumerate(sums.T):
        fitted[:, place] = (np.bincount(first, added, count) / np.bincount(first, people, count).clip(1))[first]
    shares = 1 / np.bincount(first, weights, count)[first]
    for rows, inside in _blocks(columns, packs, packs[first]):
        # Threads wait for each other by spinning: on a busy machine that took ten times the work itself.
        with _pools().limit(limits=1 if int(inside.max()) < MANY_CLASSES else None):
            block = _block(inside, people[rows], sums[rows], weights[rows])
        fitted[rows], step[rows] = block.fitted, block.last_step
        # No person has a leverage above 1/people of the signature, nor below 1/people of a class.
        sizes[rows] = np.clip(block.sizes, people[rows], sizes[rows])
        shares[rows] = np.minimum(block.shares, 1 / weights[rows])
    return Explained(sizes, fitted, step, shares)


def _distinct(cells: Ints) -> Columns:
    """Give classes numbers through all tables: the first of those with the same people, and −1 for the others."""
    columns = np.full(cells.shape[::-1], -1, dtype=np.int32)
    seen: set[bytes] = set()
    for column, labels in zip(columns, cells.T, strict=True):
        order = np.argsort(labels, kind="stable")
        order = order[np.searchsorted(labels[order], 0) :]
        for rows in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
            digest = hashlib.sha256(rows.tobytes()).digest()
            if len(rows) and digest not in seen:
                column[rows] = len(seen)
                seen.add(digest)
    return columns


def _connected(columns: Columns, first: Ints, count: int) -> Ints:
    """Return the group of every class: classes that share a person are in one, and so are their neighbours."""
    from scipy.sparse import coo_array  # noqa: PLC0415 - `import kanab` stays light
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    links = [np.unique(first[column >= 0] * count + column[column >= 0]) for column in columns]
    ends = np.divmod(np.concatenate(links), count)
    graph = coo_array((np.ones(len(ends[0]), dtype=np.int8), ends), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _check_budget(packs: Ints) -> None:
    """Bound work and memory beforehand: what cannot be checked does not pass."""
    sizes = np.bincount(packs + 1)[1:]
    if (sizes.astype(float) ** 3).sum() > float(BUDGET) ** 3:
        raise PrivacyError(
            "the tables have too many classes together to check that nobody can be singled out",
            "Use fewer covariates, fewer bins or a smaller top.",
        )


def _blocks(columns: Columns, packs: Ints, row_packs: Ints) -> Iterator[tuple[Ints, Columns]]:
    """Yield the rows of every pack, and their classes numbered from 0 within it, in the order of the tables."""
    sequence = np.argsort(packs, kind="stable")
    number = np.full(len(packs) + 1, -1, dtype=np.int32)
    number[sequence] = np.arange(len(packs)) - np.searchsorted(packs[sequence], packs[sequence])
    order = np.argsort(row_packs, kind="stable")
    order = order[np.searchsorted(row_packs[order], 0) :]
    for rows in np.split(order, np.flatnonzero(np.diff(row_packs[order])) + 1):
        if len(rows):
            inside = number[columns[:, rows]]
            yield rows, inside[(inside >= 0).any(axis=1)]


# ── one block: the diagonal of its hat matrix ──────────────────────────────────────────────────


def _block(columns: Columns, people: Ints, sums: Floats, weights: Floats) -> Explained:
    """Explain the rows of one block; where in doubt nobody hides among more than is certain."""
    from kanab.privacy.exact_rank import inverse_of  # noqa: PLC0415 - `import kanab` stays light

    gram = _gram(columns, people)
    inverse = inverse_of(gram, len(columns))
    if inverse is None or inverse.error > DOUBTFUL:
        unknown = np.full_like(sums, np.nan)
        return Explained(people.astype(float), unknown, unknown, 1 / weights)
    place = np.full(len(gram) + 1, -1, dtype=np.int32)
    place[inverse.basis] = np.arange(len(inverse.basis))
    del gram
    h = _quadratic(place[columns], inverse.matrix)
    fits = _fitted(place[columns], inverse.matrix, people, sums)
    shares = _shares(place[columns], people, weights, h)
    with np.errstate(divide="ignore"):
        sizes = np.where(h > 0, 1 / h, 1.0)
    if inverse.error > SLACK:
        return Explained(sizes / (1 + inverse.error), *fits, shares)
    near = np.rint(sizes)
    return Explained(np.where(np.abs(sizes - near) <= inverse.error * sizes, near, sizes), *fits, shares)


def _shares(columns: Columns, people: Ints, weights: Floats, h: Floats) -> Floats:
    """Return x (XᵀWX)⁺ xᵀ for weights, given classes that whole numbers have proved to span all others.

    Weights decide nothing about rank: one person of 5 cents among thousands of euros is no rounding error.
    """
    from kanab.privacy.exact_rank import inverse_on_basis  # noqa: PLC0415 - `import kanab` stays light

    if np.array_equal(weights, people):
        return h
    columns = columns[(columns >= 0).any(axis=1)]
    gram = _gram(columns, weights)
    inverse = inverse_on_basis(gram, len(columns))
    if inverse is None or inverse.error > DOUBTFUL:
        return 1 / weights
    shares: Floats = _quadratic(columns, inverse.matrix)
    return shares


def _fitted(columns: Columns, matrix: Floats, people: Ints, sums: Floats) -> tuple[Floats, Floats]:
    """Return what classes explain of sums, per person, by the inverse's lower triangle; and the last refinement."""
    from scipy.linalg import blas  # noqa: PLC0415 - `import kanab` stays light
    from scipy.sparse import csr_array  # noqa: PLC0415

    fitted, step = np.zeros_like(sums), np.zeros_like(sums)
    if sums.size:
        tables, rows = np.nonzero(columns >= 0)
        entries = np.ones(len(rows)), (rows, columns[tables, rows])
        marks = csr_array(entries, shape=(len(people), len(matrix)))
        for _ in range(1 + REFINEMENTS):
            fitted += step
            left = marks.T @ (sums - people[:, None] * fitted)
            step = np.asarray(marks @ blas.dsymm(1.0, matrix, left, lower=1))
    return fitted, step


def _gram(columns: Columns, people: Ints | Floats) -> Floats:
    """Return XᵀWX: how many people each two classes share. Whole numbers, hence exact."""
    size, tables = int(columns.max()) + 1, len(columns)
    gram = np.zeros((size, size))
    # One table's classes follow each other, so that two tables share one rectangle of the matrix.
    starts = [int(column[column >= 0].min()) for column in columns]
    ends = [int(column.max()) + 1 for column in columns]
    for s in range(tables):
        mine = np.where(columns[s] >= 0, columns[s] - starts[s] + 1, 0).astype(np.int64)
        for t in range(s + 1):
            width = ends[t] - starts[t] + 1
            theirs = np.maximum(columns[t] - (starts[t] - 1), 0)
            shared = np.bincount(mine * width + theirs, people, (ends[s] - starts[s] + 1) * width)
            shared = shared.reshape(-1, width)[1:, 1:]
            gram[starts[s] : ends[s], starts[t] : ends[t]] = shared
            gram[starts[t] : ends[t], starts[s] : ends[s]] = shared.T
    return gram


def _quadratic(columns: Columns, matrix: Floats) -> Floats:
    """Return the diagonal of X A Xᵀ, for A with this lower triangle."""
    h = np.zeros(columns.shape[1])
    entries = matrix.T.ravel()
    for s, column in enumerate(columns):
        # Rows of one class after each other find their entries in the processor's cache.
        inside = np.argsort(column, kind="stable")
        inside = inside[np.searchsorted(column[inside], 0) :]
        mine = column[inside].astype(np.int64)
        total = entries[mine * (len(matrix) + 1)]
        for other in columns[:s]:
            theirs = other[inside]
            total += np.where(theirs >= 0, 2 * entries[mine + theirs * len(matrix)], 0)
        h[inside] += total
    return h
