"""Which totals follow from published sums, if values are whole numbers between bounds.

An unknown is the total of the people who are alike in all tables, between 0 and a largest one. Every
published class is an equation. What follows from them is found in three steps, each dearer and for
fewer unknowns: bounds handed from class to class, in whole numbers; a point inside all bounds, by
Newton's method, which is there unless some total sits at a bound in all real solutions, and else
linear programs that say which do; and whole-number programs for those that few solutions in whole
numbers leave a second value. How many those are about is known from the same inner point: it is the
mode of a distribution over all totals, whose entropy counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_CLOSE = 1e-8  # how far sums may be missed, in steps
_INSIDE = 1e-5  # how far inside its bounds a total must be to count as free
_SETTLED = 1e-6  # of linear programs
_ROUNDS = 60
_SPLITS = 64  # ways to part the tables, for exchanges


@dataclass(frozen=True)
class Work:
    """How much may be done for unknowns that hang together: what is more is not settled, and said so.

    ``classes`` bounds the matrices of Newton's method, ``unknowns`` linear programs, ``whole`` those of whole
    numbers, of which there are as many as ``programs``, each with so many ``nodes``. ``certain`` is the
    logarithm of the number of solutions with a second value, as it is estimated, from which on there is one;
    those below ``tight`` are tried first. ``until_pinned``: the dearest steps are left out once something is pinned.
    """

    classes: int = 1_500
    unknowns: int = 20_000
    whole: int = 1_500
    programs: int = 20
    nodes: int = 200
    certain: float = 14.0
    tight: float = 6.0
    until_pinned: bool = False


@dataclass(frozen=True, eq=False)
class PinnedTotals:
    """Which unknowns can have one value only, what it is (0 for others), and which were not settled."""

    pinned: Mask
    totals: Ints
    unsettled: Mask


def pin_totals(
    cells: Ints, most: Ints, sums: Sequence[Ints], wanted: Mask | None = None, work: Work | None = None
) -> PinnedTotals:
    """Return the totals that follow from sums.

    ``cells[i, j]`` is the class of unknown i in table j, −1 where it is in none; ``most[i]`` its largest total;
    ``sums[j]`` are the sums of table j by class. Only the ``wanted`` are looked for where that is work.

    Two tables of four people, of whom three have a value of 1, and both who are in the first class of either:

    >>> both = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> pin_totals(both, np.ones(4, dtype=np.int64), [np.array([2, 1]), np.array([2, 1])]).totals
    array([1, 1, 1, 0])
    """
    search = _search(cells, most, sums, wanted, work)
    search.run()
    pinned = search.low == search.high
    return PinnedTotals(pinned, np.where(pinned, search.low, 0).astype(np.int64), search.unsettled & ~pinned)


def all_free(cells: Ints, most: Ints, sums: Sequence[Floats]) -> bool:
    """Return whether some real solution has every unknown inside its bounds; False also where that is too much work.

    >>> all_free(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), np.ones(4, dtype=np.int64), [np.array([1, 0.5])] * 2)
    True
    """
    search = _search(cells, most, sums, None, Work(classes=3_000))
    if not (search.propagate() and (search.low < search.high).all()):
        return False
    for inside in search.components():
        block = _Block.of(search, inside)
        point = None if block is None else block.fit()
        if point is None or not point.settled or point.margin.min() < _INSIDE:
            return False
    return True


def _search(
    cells: Ints, most: Ints, sums: Sequence[Ints] | Sequence[Floats], wanted: Mask | None, work: Work | None
) -> _Search:
    """Give classes numbers through all tables; the last number stands for none."""
    offsets = np.cumsum([0, *(len(table) for table in sums)])
    entries = np.where(cells < 0, offsets[-1], cells + offsets[:-1])
    totals = np.concatenate([*(np.asarray(table, dtype=np.float64) for table in sums), [0.0]])
    wanted = np.ones(len(most), dtype=bool) if wanted is None else wanted
    return _Search(entries, totals, np.zeros(len(most)), most.astype(np.float64), wanted, work or Work())


@dataclass
class _Search:
    """Bounds on every unknown, narrowed step by step."""

    entries: Ints
    sums: Floats
    low: Floats
    high: Floats
    wanted: Mask
    work: Work
    unsettled: Mask = field(init=False)

    def __post_init__(self) -> None:
        self.unsettled = np.zeros(len(self.low), dtype=bool)

    def run(self) -> None:
        done = np.zeros(len(self.low), dtype=bool)
        while self.propagate():
            before = self.low.copy(), self.high.copy()
            for inside in self.components():
                if self.wanted[inside].any() and not done[inside].all():
                    self.unsettled[inside] = False
                    done[inside] = not self.settle(inside)
            if np.array_equal(before[0], self.low) and np.array_equal(before[1], self.high):
                return

    @property
    def enough(self) -> bool:
        """Whether something is pinned already, and that is all that is asked."""
        return self.work.until_pinned and bool((self.wanted & (self.low == self.high)).any())

    def propagate(self) -> bool:
        """Narrow bounds by those of the others in each class, in whole numbers; False if nothing fits."""
        for _ in range(_ROUNDS):
            least, greatest = (_add(self.entries, x, len(self.sums)) for x in (self.low, self.high))
            # nobody is in the last class, which bounds nothing
            over, under = self.sums - least, self.sums - greatest
            over[-1], under[-1] = np.inf, -np.inf
            high = np.minimum(self.high, over[self.entries].min(axis=1) + self.low)
            low = np.maximum(self.low, under[self.entries].max(axis=1) + self.high)
            if np.any(low > high):
                self.unsettled |= self.wanted
                return False
            if np.array_equal(low, self.low) and np.array_equal(high, self.high):
                break
            self.low, self.high = low, high
        return True

    def components(self) -> list[Ints]:
        """Return the unknowns that are still open, in groups that share no class."""
        from scipy.sparse import coo_array  # noqa: PLC0415 - `import kanab` stays light
        from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

        open_ = np.flatnonzero(self.low < self.high)
        if not len(open_):
            return []
        none, tables = len(self.sums) - 1, self.entries.shape[1]
        first = self.entries[open_].min(axis=1)
        links = [np.unique(first * (none + 1) + column) for column in self.entries[open_].T]
        ends = np.divmod(np.concatenate(links), none + 1)
        graph = coo_array((np.ones(len(ends[0]), dtype=np.int8), ends), shape=(none + 1, none + 1)).tocsr()
        if tables > 1:  # people outside a table are not linked by that
            graph = graph[:none, :none]
        _, group = connected_components(graph, directed=False)
        groups = np.append(group, group.max() + 1)[first]
        order = np.argsort(groups, kind="stable")
        return list(np.split(open_[order], np.flatnonzero(np.diff(groups[order])) + 1))

    def settle(self, inside: Ints) -> bool:
        """Look for what is pinned among unknowns that hang together; return whether bounds became narrower."""
        block = _Block.of(self, inside)
        if block is None:
            self.unsettled[inside] = self.wanted[inside]
            return False
        point = block.fit()
        doubtful = point.margin < _INSIDE if point.settled else np.ones(len(inside), dtype=bool)
        if doubtful.any():
            ends = block.at_bounds(doubtful) if len(inside) <= self.work.unknowns else None
            if ends is None:
                self.unsettled[inside] = self.wanted[inside]
                return False
            if np.isfinite(ends).any():
                at = np.isfinite(ends)
                self.low[inside[at]] = self.high[inside[at]] = self.low[inside[at]] + ends[at]
                return True
        determined = block.determined() & self.wanted[inside]
        if determined.any():
            exact = np.rint(self.low[inside] + point.means)
            self.low[inside[determined]] = self.high[inside[determined]] = exact[determined]
            return True
        return self.settle_whole(inside, block, point)

    def settle_whole(self, inside: Ints, block: _Block, point: _Point) -> bool:
        """Try whole numbers where few solutions leave a second value; the fewest first, for they may be pinned."""
        solutions = point.second + block.solutions(point)
        near = self.wanted[inside] & (solutions < self.work.certain)
        if near.any() and (len(inside) > self.work.whole or self.enough):
            self.unsettled[inside] = near
        elif near.any():
            whole = _WholeSolutions(block, self.work)
            tight = near & (solutions < self.work.tight)
            for some in (tight, near & ~tight):
                settled = not self.enough and whole.move(some)
                stay = some & ~whole.moved
                self.unsettled[inside[stay]] = not settled
                if settled:
                    self.low[inside[stay]] = self.high[inside[stay]] = (self.low[inside] + whole.base)[stay]
        return False  # all others have two values in whole solutions, which these do not change


def _add(entries: Ints, x: Floats, size: int) -> Floats:
    """Add up unknowns by class."""
    total = np.zeros(size)
    for column in entries.T:
        total += np.bincount(column, x, size)
    return total


@dataclass(frozen=True, eq=False)
class _Point:
    """Totals inside all bounds, as means of the least informative distribution, and the log-chance of a second value.

    ``settled`` is False where no such point was reached.
    """

    means: Floats
    variances: Floats
    second: Floats
    entropy: float
    settled: bool

    margin: Floats


@dataclass(frozen=True, eq=False)
class _Block:
    """Unknowns that hang together, each from 0 to ``widths``, and their classes; those of ``basis`` imply the rest."""

    columns: Ints  # table × unknown: the number of a class, the last one for none
    sums: Floats
    widths: Floats
    basis: Ints
    gram: Floats

    @classmethod
    def of(cls, search: _Search, inside: Ints) -> _Block | None:
        from scipy.linalg.lapack import dpstrf  # noqa: PLC0415 - `import kanab` stays light

        none = len(search.sums) - 1
        left = search.sums - _add(search.entries, search.low, len(search.sums))
        entries = search.entries[inside]
        used = np.unique(entries)
        used = used[used != none]
        if len(used) > search.work.classes:
            return None
        number = np.full(none + 1, len(used), dtype=np.int64)
        number[used] = np.arange(len(used))
        columns = number[entries.T]
        varying = columns.min(axis=1) < columns.max(axis=1)
        if (columns[varying] < len(used)).all(axis=1).any():  # then it adds up to what all have in common
            used, columns = _renumbered(used, columns[varying])
        gram = _gram(columns, np.ones(len(inside)), len(used))
        _, order, rank, _ = dpstrf(gram, tol=1e-6, lower=1)
        basis = np.sort(order[:rank] - 1).astype(np.int64)
        widths = search.high[inside] - search.low[inside]
        return cls(columns, left[used], widths, basis, gram[np.ix_(basis, basis)])

    @property
    def placed(self) -> Ints:
        """The classes of the basis, numbered through; the last number for none."""
        place = np.full(len(self.sums) + 1, len(self.basis), dtype=np.int64)
        place[self.basis] = np.arange(len(self.basis))
        return place[self.columns]

    def fit(self) -> _Point:
        """Find the distribution over all totals with these sums and the largest entropy, by Newton's method."""
        from scipy.linalg import LinAlgError, cho_factor, cho_solve  # noqa: PLC0415 - `import kanab` stays light

        columns, sums, size = self.placed, self.sums[self.basis], len(self.basis)
        weights, settled = np.zeros(size), False
        law = _Law(np.zeros(len(self.widths)), self.widths)
        height = weights @ sums - law.log_sum
        for _ in range(_ROUNDS):
            missed = sums - _add(columns.T, law.means, size + 1)[:-1]
            if np.abs(missed).max(initial=0.0) < _CLOSE:
                settled = True
                break
            try:
                step = cho_solve(cho_factor(_gram(columns, law.variances, size), lower=True), missed)
            except (LinAlgError, ValueError):
                break
            length, slope = 1.0, float(missed @ step)
            while length > _SETTLED:
                trial = weights + length * step
                law = _Law(np.append(trial, 0.0)[columns].sum(axis=0), self.widths)
                reached = trial @ sums - law.log_sum
                if reached >= height + 1e-4 * length * slope:
                    break
                length /= 2
            weights, height = trial, reached
        margin = np.minimum(law.means, self.widths - law.means)
        return _Point(law.means, law.variances, law.second, float(law.log_sum - weights @ sums), settled, margin)

    def solutions(self, point: _Point) -> float:
        """Return the logarithm of the number of whole solutions, as of a normal distribution of their sums."""
        from scipy.linalg import LinAlgError, cholesky  # noqa: PLC0415 - `import kanab` stays light

        spread = _gram(self.placed, point.variances, len(self.basis))
        try:
            root = np.diag(cholesky(2 * np.pi * spread, lower=True))
        except (LinAlgError, ValueError):
            return -np.inf
        return point.entropy - float(np.log(root).sum())

    def determined(self) -> Mask:
        """Return the unknowns that a combination of sums is equal to."""
        from scipy.linalg import cholesky, solve_triangular  # noqa: PLC0415 - `import kanab` stays light

        size = len(self.basis)
        if not size:
            return np.zeros(len(self.widths), dtype=bool)
        root = solve_triangular(cholesky(self.gram, lower=True), np.eye(size), lower=True)
        padded = np.zeros((size + 1, size + 1))
        padded[:-1, :-1] = root.T @ root
        columns = self.placed
        shares = np.zeros(len(self.widths))
        for i, first in enumerate(columns):
            shares += padded[first, first]
            for second in columns[:i]:
                shares += 2 * padded[first, second]
        return shares > 1 - 1e-7

    def at_bounds(self, doubtful: Mask) -> Floats | None:
        """Return which of some unknowns are 0, or at their width, in all real solutions, and NaN for the others.

        One linear program moves as many as it can off their bounds; again, until none of the rest moves.
        """
        from scipy.optimize import linprog  # noqa: PLC0415 - `import kanab` stays light
        from scipy.sparse import csr_array, hstack, vstack  # noqa: PLC0415

        solve: Any = linprog
        matrix, count = self.matrix(), len(self.widths)
        rest = np.flatnonzero(doubtful)
        while len(rest):
            some = len(rest)
            pick = csr_array((np.ones(some), (np.arange(some), rest)), shape=(some, count))
            slack = csr_array((np.ones(some), (np.arange(some), np.arange(some))), shape=(some, some))
            answer = solve(
                np.concatenate([np.zeros(count), -np.ones(some)]),
                A_ub=vstack([hstack([-pick, slack]), hstack([pick, slack])]).tocsr(),
                b_ub=np.concatenate([np.zeros(some), self.widths[rest]]),
                A_eq=hstack([matrix, csr_array((matrix.shape[0], some))]).tocsr(),
                b_eq=self.sums[self.basis],
                bounds=np.column_stack([np.zeros(count + some), np.concatenate([self.widths, np.full(some, 0.5)])]),
                method="highs",
            )
            if answer.status != 0:
                return None
            stay = answer.x[count:] < _SETTLED
            if stay.all():
                break
            rest = rest[stay]
        ends = np.full(count, np.nan)
        if len(rest):
            ends[rest] = np.where(answer.x[rest] < self.widths[rest] / 2, 0.0, self.widths[rest])
        return ends

    def matrix(self) -> Any:
        """Return the basis × unknowns as a sparse 0/1 matrix."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - `import kanab` stays light

        columns, size = self.placed, len(self.basis)
        unknowns = np.broadcast_to(np.arange(columns.shape[1]), columns.shape)
        inside = columns < size
        places = (columns[inside], unknowns[inside])
        return csr_array((np.ones(len(places[0])), places), shape=(size, columns.shape[1]))


class _WholeSolutions:
    """Solutions in whole numbers of one block: the first that was found, and who has another value in some other."""

    def __init__(self, block: _Block, work: Work) -> None:
        self.block, self.work, self.matrix = block, work, block.matrix()
        self.exchanges = _Exchanges.of(block.columns)
        self.moved = np.zeros(len(block.widths), dtype=bool)
        nothing = np.zeros(len(block.widths))
        self.base = nothing
        start, _ = self._solved(nothing, block.sums[block.basis])
        self.known = start is not None
        if start is not None:
            self.base = start

    def move(self, near: Mask) -> bool:
        """Look for solutions in which some unknowns have another value; return whether the others have none.

        A program moves as many unknowns as it can off the first solution, first up, then down. From every solution
        those are moved that can be by exchanges between four unknowns.
        """
        if not self.known:
            return not near.any()
        block, base, zero = self.block, self.base, np.zeros(len(self.block.basis))
        self.moved |= self.exchanges.movable(near & ~self.moved, base, block.widths)
        programs = 0
        for up in (True, False):
            while (left := near & ~self.moved & (base < block.widths if up else base > 0)).any():
                step, all_tried = self._solved(np.where(left, -1.0 if up else 1.0, 0.0), zero)
                programs += 1
                if step is None or not (step[left] != 0).any():
                    if not all_tried:
                        return False
                    break
                self.moved |= step != 0
                self.moved |= self.exchanges.movable(near & ~self.moved, base + step, block.widths)
                if programs >= self.work.programs:
                    return False
        return True

    def _solved(self, costs: Floats, sums: Floats) -> tuple[Floats | None, bool]:
        """Return a cheap solution as it differs from the first, and whether there is none cheaper by half."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - `import kanab` stays light

        solve: Any = milp
        answer = solve(
            costs,
            constraints=LinearConstraint(self.matrix, sums, sums),
            bounds=Bounds(-self.base, self.block.widths - self.base),
            integrality=np.ones(len(costs), dtype=np.int64),
            options={"node_limit": self.work.nodes, "mip_rel_gap": 0.5},
        )
        return (None if answer.x is None else np.rint(answer.x)), answer.status == 0


@dataclass(frozen=True, eq=False)
class _Exchanges:
    """Unknowns by their classes: which others have some classes of one and the rest of another.

    Two unknowns one more each, and the two that have their classes crosswise one less each, leave every sum as it is.
    """

    codes: Ints  # one number per unknown
    order: Ints
    parts: tuple[Ints, ...]  # the share of some tables in those numbers

    @classmethod
    def of(cls, columns: Ints) -> _Exchanges:
        varying = [column for column in columns if column.min() < column.max()]
        shares, size = [], 1
        for column in varying:
            levels, places = np.unique(column, return_inverse=True)
            shares.append(places.astype(np.int64) * size)
            size *= len(levels)
        if size >= 2**62:
            return cls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), ())
        splits = range(1, 2 ** max(len(shares) - 1, 0))  # the last table always stays: the rest is the same crosswise
        step = -(-len(splits) // _SPLITS) if splits else 1
        parts = tuple(
            np.sum([share for j, share in enumerate(shares) if split >> j & 1], axis=0) for split in splits[::step]
        )
        codes = np.sum(shares, axis=0) if shares else np.zeros(columns.shape[1], dtype=np.int64)
        return cls(codes, np.argsort(codes), parts)

    def movable(self, left: Mask, base: Floats, widths: Floats) -> Mask:
        """Return which unknowns an exchange moves, from one whole solution."""
        moved = np.zeros(len(left), dtype=bool)
        more, less = base < widths, base > 0
        for part in self.parts:
            for mine, theirs in ((more, less), (less, more)):
                who = np.flatnonzero(left & ~moved & mine)
                for some in np.array_split(who, len(who) * len(left) // 500_000 + 1):
                    moved[some] = self._exchanged(some, np.flatnonzero(mine), part, theirs)
        return moved

    def _exchanged(self, who: Ints, partners: Ints, part: Ints, theirs: Mask) -> Mask:
        rest = self.codes - part
        first = self._find(part[partners][None, :] + rest[who][:, None])
        second = self._find(part[who][:, None] + rest[partners][None, :])
        there = (first >= 0) & (second >= 0) & (first != who[:, None]) & (first != partners[None, :])
        return np.asarray((there & theirs[first] & theirs[second]).any(axis=1))

    def _find(self, codes: Ints) -> Ints:
        """Return which unknowns have these numbers; −1 where nobody has."""
        places = np.minimum(np.searchsorted(self.codes, codes, sorter=self.order), len(self.order) - 1)
        unknowns = self.order[places]
        return np.where(self.codes[unknowns] == codes, unknowns, -1)


@dataclass(frozen=True, eq=False)
class _Law:
    """Truncated geometric distributions on 0 … width, one per unknown, with these log-odds of one step more."""

    odds: Floats
    widths: Floats

    @property
    def _steep(self) -> Mask:
        return np.abs(self.odds) > 1e-4

    @property
    def log_sum(self) -> float:
        """The logarithm of Σ exp(odds × total), added up."""
        odds, count = np.abs(self.odds), self.widths + 1
        safe = np.where(self._steep, odds, 1.0)
        steep = self.widths * odds + np.log(np.expm1(-count * safe) / np.expm1(-safe))
        flat = np.log(count) + self.widths * odds / 2 + odds**2 * self.widths * (self.widths + 2) / 24
        return float((np.where(self._steep, steep, flat) - np.where(self.odds < 0, self.widths * odds, 0)).sum())

    @property
    def means(self) -> Floats:
        odds, count = np.abs(self.odds), self.widths + 1
        safe = np.where(self._steep, odds, 1.0)
        below = 1 / np.expm1(safe) - count / np.expm1(np.minimum(count * safe, 700.0))
        below = np.where(self._steep, below, self.widths / 2 - odds * self.widths * (self.widths + 2) / 12)
        return np.where(self.odds < 0, below, self.widths - below)

    @property
    def variances(self) -> Floats:
        odds, count = np.abs(self.odds), self.widths + 1
        safe = np.where(self._steep, np.minimum(odds, 700.0), 1.0)
        far = np.minimum(count * safe, 700.0)
        steep = 1 / (4 * np.sinh(safe / 2) ** 2) - count**2 / (4 * np.sinh(far / 2) ** 2)
        return np.maximum(np.where(self._steep, steep, self.widths * (self.widths + 2) / 12), 0.0)

    @property
    def second(self) -> Floats:
        """The logarithm of the chance of the value next to the likeliest."""
        odds, count = np.abs(self.odds), self.widths + 1
        safe = np.where(self._steep, odds, 1.0)
        spread = np.where(self._steep, np.log(np.expm1(-count * safe) / np.expm1(-safe)), np.log(count))
        return -odds - spread


def _renumbered(used: Ints, columns: Ints) -> tuple[Ints, Ints]:
    """Leave out classes that no table has any more."""
    left = np.unique(columns)
    left = left[left < len(used)]
    number = np.full(len(used) + 1, len(left), dtype=np.int64)
    number[left] = np.arange(len(left))
    return used[left], number[columns]


def _gram(columns: Ints, weights: Floats, size: int) -> Floats:
    """Return how much weight each two classes share; ``size`` stands for no class."""
    gram = np.zeros((size, size))
    spans, local = [], []
    for column in columns:  # the classes of one table follow each other
        inside = column[column < size]
        low, high = (int(inside.min()), int(inside.max()) + 1) if len(inside) else (0, 0)
        spans.append(slice(low, high))
        local.append(np.where(column < size, column - low, high - low))
    for i, mine in enumerate(spans):
        for j, theirs in enumerate(spans[: i + 1]):
            shape = mine.stop - mine.start + 1, theirs.stop - theirs.start + 1
            shared = np.bincount(local[i] * shape[1] + local[j], weights, shape[0] * shape[1]).reshape(shape)[:-1, :-1]
            gram[mine, theirs] += shared
            if i != j:
                gram[theirs, mine] += shared.T
    return gram
