"""How all pairs of experiments are counted at once: the layout of arms in memory, and the two loops over it.

Arms are laid out as bits, and packed into groups of a few states. Both are exact by algebra. With the
bits of "everybody" and of all arms but one, the people of any two arms follow by subtraction. And where
the arms of several experiments are packed into one number, a table of two such numbers holds the tables
of all their pairs. The loops here need NumPy alone; ``kernel_numba`` has the same ones compiled. Both
give the same integers, and ``choose_kernels`` takes the compiled ones where the [fast] extra is installed.
"""

import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.tally.metric import DOUBLE_LIMIT

Bits = NDArray[np.uint64]
Codes = NDArray[np.uint8]
Counts = NDArray[np.int64]

ROWS = 1 << 17
"""So many people are counted at once: their codes stay near the processor."""

_CELLS = 1 << 24  # people × columns that are read at once

NOT_IN = 255
"""The code of somebody who is not in an experiment."""

SHIFT = 6
"""A group has at most 2^6 states, so that the table of two groups stays in the fastest memory."""

_TABLE_BUDGET = 96 << 20  # bytes per worker and metric; with very many experiments smaller groups need less
_BITS_AT_ONCE = 1 << 18  # bytes of bits that are compared with each other


def rows_at_once(columns: int) -> int:
    """Return how many people are read at once: fewer where each has many columns, so that memory is bounded.

    >>> rows_at_once(100), rows_at_once(1_000)
    (131072, 16832)
    """
    return min(ROWS, -(-_CELLS // (64 * max(1, columns))) * 64)


# ── the layout ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ArmLayout:
    """How many arms each experiment has, and of which of them people may be missing.

    >>> layout = ArmLayout((2, 3), (False, True))
    >>> layout.bit_rows, layout.groups
    (((1,), (0, 1, 2)), ((0,), (1,)))
    """

    arms: tuple[int, ...]
    gaps: tuple[bool, ...]
    largest_shift: int = SHIFT

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The number of each experiment's first arm, and after the last one the number of all arms."""
        return tuple(np.cumsum([0, *self.arms]).tolist())

    # ── bits ───────────────────────────────────────────────────────────────────────────────

    @property
    def bit_rows(self) -> tuple[tuple[int, ...], ...]:
        """The arms that get bits: all but the first where everybody is in the experiment."""
        return tuple(tuple(range(0 if gap else 1, arms)) for arms, gap in zip(self.arms, self.gaps, strict=True))

    def bits(self, codes: Sequence[Codes]) -> NDArray[np.uint64]:
        """Return one row of bits for everybody, then one for each arm that has bits, in an even number of rows."""
        people = len(codes[0])
        wanted = [(column, arm) for column, arms in zip(codes, self.bit_rows, strict=True) for arm in arms]
        rows = (np.equal(column, np.uint8(arm)) for column, arm in wanted)
        many = 1 + len(wanted)
        return pack(chain([np.ones(people, dtype=bool)], rows), many + many % 2, people)

    def all_arms(self, counts: Counts) -> Counts:
        """Return the people of any two arms, from those of any two rows of bits (the upper half is enough)."""
        both = np.triu(counts) + np.triu(counts, 1).T
        return self._rows(self._rows(both).T).T

    def _rows(self, counts: Counts) -> Counts:
        wide = np.empty((self.starts[-1], counts.shape[1]), dtype=np.int64)
        row = 1
        for start, arms, gap in zip(self.starts, self.arms, self.gaps, strict=False):
            rows = counts[row : row + arms - (not gap)]
            if not gap and arms:
                wide[start] = counts[0] - rows.sum(axis=0)
            wide[start + (not gap) : start + arms] = rows
            row += len(rows)
        return wide

    # ── groups ─────────────────────────────────────────────────────────────────────────────

    @cached_property
    def states(self) -> tuple[int, ...]:
        """Arms of each experiment, and one more state where people are missing."""
        return tuple(max(1, arms + gap) for arms, gap in zip(self.arms, self.gaps, strict=True))

    @cached_property
    def shift(self) -> int:
        """Groups have at most 2^shift states: as many as the budget for tables allows."""
        least = max(3, (max(self.states) - 1).bit_length())
        sizes = {shift: self._table_bytes(shift) for shift in range(self.largest_shift, least - 1, -1)}
        return next(
            (shift for shift, size in sizes.items() if size <= _TABLE_BUDGET), min(sizes, key=sizes.__getitem__)
        )

    def _table_bytes(self, shift: int) -> int:
        groups, opened = len(_consecutive(self.states, 1 << shift)), -(-sum(self.gaps) // shift)
        return (groups * (groups - 1) // 2 + groups * opened) * 8 << 2 * shift

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Consecutive experiments whose states are packed into one number; at least two groups."""
        groups = _consecutive(self.states, 1 << self.shift)
        return groups if len(groups) > 1 else (groups[0][:1], groups[0][1:])

    @cached_property
    def open_groups(self) -> tuple[tuple[int, ...], ...]:
        """The experiments of which people are missing, packed by who is in them."""
        places = [place for place, gap in enumerate(self.gaps) if gap]
        return tuple(tuple(places[start : start + self.shift]) for start in range(0, len(places), self.shift))

    def pack_groups(self, codes: Sequence[Codes]) -> Codes:
        """Return everybody's state in each group, and in each of the open groups."""
        states = np.empty((len(self.groups) + len(self.open_groups), len(codes[0])), dtype=np.uint8)
        for row, group in enumerate(self.groups):
            states[row] = 0
            for place in group:
                states[row] *= np.uint8(self.states[place])
                states[row] += codes[place]
                if self.gaps[place]:  # 255 and the number after the last arm make that number
                    states[row] += (codes[place] == NOT_IN) * np.uint8(self.arms[place] + 1)
        for row, group in enumerate(self.open_groups, start=len(self.groups)):
            states[row] = 0
            for place in group:
                states[row] *= np.uint8(2)
                states[row] += codes[place] != NOT_IN
        return states

    @cached_property
    def sum_pairs(self) -> NDArray[np.int32]:
        """The pairs of groups whose tables hold the sums of all pairs."""
        return np.array(list(combinations(range(len(self.groups)), 2)), dtype=np.int32)

    @cached_property
    def square_pairs(self) -> NDArray[np.int32]:
        """The pairs whose tables hold squares: each group once, or with each of the open groups."""
        many = len(self.groups)
        if not self.open_groups:
            return np.array([(group, min(group + 1, many - 1)) for group in range(0, many, 2)], dtype=np.int32)
        opened = range(many, many + len(self.open_groups))
        return np.array([(group, other) for group in range(many) for other in opened], dtype=np.int32)

    def empty_tables(self, pairs: NDArray[np.int32]) -> Counts:
        """Return empty tables, one for each pair of groups."""
        return np.zeros((len(pairs), 1 << 2 * self.shift), dtype=np.int64)

    def sums(self, tables: Counts) -> Counts:
        """Return what any two arms share, from the tables of all pairs of groups."""
        total = np.zeros((self.starts[-1], self.starts[-1]), dtype=np.int64)
        side = 1 << self.shift
        for (left, right), table in zip(self.sum_pairs.tolist(), tables.reshape(-1, side, side), strict=True):
            first, second = self._arms_in_states[left], self._arms_in_states[right]
            rows, columns = self._slice(left), self._slice(right)
            block = first.T @ table @ second
            total[rows, columns] = block
            total[columns, rows] = block.T
            if right == left + 1:
                total[rows, rows] = (first.T * table.sum(axis=1)) @ first
            if right == left + 1 == len(self.groups) - 1:
                total[columns, columns] = (second.T * table.sum(axis=0)) @ second
        return total

    def squares(self, tables: Counts) -> Counts:
        """Return what each arm shares with everybody in each experiment, from the tables of ``square_pairs``."""
        side = 1 << self.shift
        total = np.zeros((self.starts[-1], len(self.arms)), dtype=np.int64)
        groups = len(self.groups)
        for (left, right), table in zip(self.square_pairs.tolist(), tables.reshape(-1, side, side), strict=True):
            for place, states in ((left, table.sum(axis=1)), (right, table.sum(axis=0))):
                if place < groups:
                    total[self._slice(place)] = (states @ self._arms_in_states[place])[:, None]
        for (left, right), table in zip(self.square_pairs.tolist(), tables.reshape(-1, side, side), strict=True):
            if right >= groups:
                block = self._arms_in_states[left].T @ table @ self._inside_in_states(right - groups)
                total[self._slice(left), list(self.open_groups[right - groups])] = block
        return total

    def _slice(self, group: int) -> slice:
        places = self.groups[group]
        return slice(self.starts[places[0]], self.starts[places[-1] + 1])

    @cached_property
    def _arms_in_states(self) -> tuple[Counts, ...]:
        """For each group: which arms (columns) a state (row) means, as 0 and 1."""
        return tuple(self._meaning([self.states[place] for place in group], group) for group in self.groups)

    def _meaning(self, states: Sequence[int], group: Sequence[int]) -> Counts:
        meaning = np.zeros((1 << self.shift, sum(self.arms[place] for place in group)), dtype=np.int64)
        parts = np.unravel_index(np.arange(int(np.prod(states))), tuple(states))
        start = 0
        for place, part in zip(group, parts, strict=True):
            for arm in range(self.arms[place]):
                meaning[: len(part), start + arm] = part == arm
            start += self.arms[place]
        return meaning

    def _inside_in_states(self, group: int) -> Counts:
        """Tell which experiments of an open group (columns) the people of a state (row) are in."""
        many = len(self.open_groups[group])
        states = np.arange(1 << self.shift)[:, None]
        inside = (states >> np.arange(many)[::-1]) & 1
        inside[1 << many :] = 0
        return inside.astype(np.int64)


def pack(rows: Iterable[NDArray[np.bool_]], many: int, people: int) -> NDArray[np.uint64]:
    """Pack rows of true/false into 64-bit words; what is left of the last word, and further rows, are empty."""
    words = -(-people // 64)
    packed = np.zeros((many, words * 8), dtype=np.uint8)
    for place, row in enumerate(rows):
        packed[place, : -(-people // 8)] = np.packbits(row, bitorder="little")
    return packed.view(np.uint64)


def _consecutive(states: Sequence[int], limit: int) -> tuple[tuple[int, ...], ...]:
    """Group consecutive experiments, as many to a group as its states allow."""
    groups: list[tuple[int, ...]] = []
    room = 0
    for place, size in enumerate(states):
        if groups and size <= room:
            groups[-1] = (*groups[-1], place)
            room //= size
        else:
            groups.append((place,))
            room = limit // size
    return tuple(groups)


# ── the loops ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Kernels:
    """One version of the loops. Weights below ``widest`` can be added for ``ROWS`` people."""

    name: str
    widest: int
    count_bits: Callable[[Bits, Bits, Counts], None]
    add_weights: Callable[[Codes, NDArray[np.int32], Counts, Counts, int], None]


@cache
def choose_kernels(name: str | None = None) -> Kernels:
    """Return the compiled loops if they are there, else those of NumPy; or those of a name.

    >>> choose_kernels("numpy").name
    'numpy'
    """
    if name is None:
        name = "numba" if importlib.util.find_spec("numba") is not None else "numpy"
    if name == "numpy":
        return Kernels(name, 1 << 36, count_bits, add_weights)
    from kanab.scan.count import kernel_numba  # noqa: PLC0415 - imports numba, an extra

    return Kernels(name, 1 << 44, kernel_numba.count_bits, kernel_numba.add_weights)


def count_bits(left: Bits, right: Bits, counts: Counts) -> None:
    """Add to ``counts[i, j]``, j ≥ i, how many bits row i of the left and row j of the right share."""
    rows, words = left.shape
    step = max(64, _BITS_AT_ONCE // (8 * rows))
    for start in range(0, words, step):
        mine, theirs = left[:, start : start + step], right[:, start : start + step]
        for row in range(rows):
            counts[row, row:] += _set_bits(mine[row] & theirs[row:])


def _set_bits(words: Bits) -> Counts:
    """Count the bits that are set in each row."""
    if hasattr(np, "bitwise_count"):  # since NumPy 2
        counted: Any = np.bitwise_count(words)
    else:
        counted = _table_of_bits()[words.view(np.uint16)]
    total: Counts = np.add.reduce(counted, axis=1, dtype=np.int64)
    return total


@cache
def _table_of_bits() -> NDArray[np.uint8]:
    numbers = np.arange(1 << 16, dtype=np.uint16)
    bits: NDArray[np.uint8] = np.unpackbits(numbers.view(np.uint8).reshape(-1, 2), axis=1).sum(axis=1, dtype=np.uint8)
    return bits


def add_weights(groups: Codes, pairs: NDArray[np.int32], weights: Counts, tables: Counts, shift: int) -> None:
    """Add everybody's weight to their cell in the table of each pair of groups.

    ``bincount`` adds doubles, which is exact while no partial sum reaches 2^53.
    """
    heaviest = int(np.abs(weights).max()) if len(weights) else 0
    step = max(1, min(len(weights), (DOUBLE_LIMIT - 1) // max(1, heaviest)))
    cells = 1 << 2 * shift
    for start in range(0, len(weights), step):
        part = weights[start : start + step].astype(np.float64)
        for row, (left, right) in enumerate(pairs.tolist()):
            first = groups[left, start : start + step].astype(np.intp)
            place = (first << shift) | groups[right, start : start + step]
            tables[row] += np.bincount(place, weights=part, minlength=cells).astype(np.int64)
