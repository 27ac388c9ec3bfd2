"""How arms are laid out for counting all pairs: as bits, and packed into groups of a few states.

Both are exact by algebra. With the bits of "everybody" and of all arms but one, the people of any two
arms follow by subtraction. And where the arms of several experiments are packed into one number, a
table of two such numbers holds the tables of all their pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]
Counts = NDArray[np.int64]

NOT_IN = 255
"""The code of somebody who is not in an experiment."""

SHIFT = 6
"""A group has at most 2^6 states, so that the table of two groups stays in the fastest memory."""

_TABLE_BUDGET = 96 << 20  # bytes per worker and metric; with very many experiments smaller groups need less


@dataclass(frozen=True)
class Layout:
    """How many arms each experiment has, and of which of them people may be missing.

    >>> layout = Layout((2, 3), (False, True))
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
        """One row of bits for everybody, then one for each arm that has bits, in an even number of rows."""
        wanted = [(own, arm) for own, arms in zip(codes, self.bit_rows, strict=True) for arm in arms]
        rows = (np.equal(own, np.uint8(arm)) for own, arm in wanted)
        return pack(
            chain([np.ones(len(codes[0]), dtype=bool)], rows), 1 + len(wanted) + (len(wanted) + 1) % 2, len(codes[0])
        )

    def all_arms(self, counts: Counts) -> Counts:
        """People of any two arms, from those of any two rows of bits (the upper half is enough)."""
        both = np.triu(counts) + np.triu(counts, 1).T
        return self._rows(self._rows(both).T).T

    def _rows(self, counts: Counts) -> Counts:
        wide = np.empty((self.starts[-1], counts.shape[1]), dtype=np.int64)
        row = 1
        for start, arms, gap in zip(self.starts, self.arms, self.gaps, strict=False):
            own = counts[row : row + arms - (not gap)]
            if not gap and arms:
                wide[start] = counts[0] - own.sum(axis=0)
            wide[start + (not gap) : start + arms] = own
            row += len(own)
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
        groups, opened = len(_packed(self.states, 1 << shift)), -(-sum(self.gaps) // shift)
        return (groups * (groups - 1) // 2 + groups * opened) * 8 << 2 * shift

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Consecutive experiments whose states are packed into one number; at least two groups."""
        found = _packed(self.states, 1 << self.shift)
        return found if len(found) > 1 else (found[0][:1], found[0][1:])

    @cached_property
    def open_groups(self) -> tuple[tuple[int, ...], ...]:
        """The experiments of which people are missing, packed by who is in them."""
        places = [place for place, gap in enumerate(self.gaps) if gap]
        return tuple(tuple(places[start : start + self.shift]) for start in range(0, len(places), self.shift))

    def packed(self, codes: Sequence[Codes]) -> Codes:
        """Everybody's state in each group, and in each of the open groups."""
        found = np.empty((len(self.groups) + len(self.open_groups), len(codes[0])), dtype=np.uint8)
        for row, group in enumerate(self.groups):
            found[row] = 0
            for place in group:
                found[row] *= np.uint8(self.states[place])
                found[row] += codes[place]
                if self.gaps[place]:  # 255 and the number after the last arm make that number
                    found[row] += (codes[place] == NOT_IN) * np.uint8(self.arms[place] + 1)
        for row, group in enumerate(self.open_groups, start=len(self.groups)):
            found[row] = 0
            for place in group:
                found[row] *= np.uint8(2)
                found[row] += codes[place] != NOT_IN
        return found

    @cached_property
    def sum_pairs(self) -> NDArray[np.int32]:
        """The pairs of groups whose tables hold the sums of all pairs."""
        many = len(self.groups)
        return np.array([(one, two) for one in range(many) for two in range(one + 1, many)], dtype=np.int32)

    @cached_property
    def square_pairs(self) -> NDArray[np.int32]:
        """The pairs whose tables hold squares: each group once, or with each of the open groups."""
        many = len(self.groups)
        if not self.open_groups:
            return np.array([(one, min(one + 1, many - 1)) for one in range(0, many, 2)], dtype=np.int32)
        opened = range(many, many + len(self.open_groups))
        return np.array([(one, two) for one in range(many) for two in opened], dtype=np.int32)

    def tables(self, pairs: NDArray[np.int32]) -> Counts:
        """Empty tables, one for each pair of groups."""
        return np.zeros((len(pairs), 1 << 2 * self.shift), dtype=np.int64)

    def sums(self, tables: Counts) -> Counts:
        """What any two arms share, from the tables of all pairs of groups."""
        found = np.zeros((self.starts[-1], self.starts[-1]), dtype=np.int64)
        side = 1 << self.shift
        for (one, two), table in zip(self.sum_pairs.tolist(), tables.reshape(-1, side, side), strict=True):
            first, second = self._arms_in_states[one], self._arms_in_states[two]
            rows, columns = self._slice(one), self._slice(two)
            block = first.T @ table @ second
            found[rows, columns] = block
            found[columns, rows] = block.T
            if two == one + 1:
                found[rows, rows] = (first.T * table.sum(axis=1)) @ first
            if two == one + 1 == len(self.groups) - 1:
                found[columns, columns] = (second.T * table.sum(axis=0)) @ second
        return found

    def squares(self, tables: Counts) -> Counts:
        """What each arm shares with everybody in each experiment, from the tables of ``square_pairs``."""
        side = 1 << self.shift
        found = np.zeros((self.starts[-1], len(self.arms)), dtype=np.int64)
        groups = len(self.groups)
        for (one, two), table in zip(self.square_pairs.tolist(), tables.reshape(-1, side, side), strict=True):
            for place, states in ((one, table.sum(axis=1)), (two, table.sum(axis=0))):
                if place < groups:
                    found[self._slice(place)] = (states @ self._arms_in_states[place])[:, None]
        for (one, two), table in zip(self.square_pairs.tolist(), tables.reshape(-1, side, side), strict=True):
            if two >= groups:
                block = self._arms_in_states[one].T @ table @ self._inside_in_states(two - groups)
                found[self._slice(one), list(self.open_groups[two - groups])] = block
        return found

    def _slice(self, group: int) -> slice:
        own = self.groups[group]
        return slice(self.starts[own[0]], self.starts[own[-1] + 1])

    @cached_property
    def _arms_in_states(self) -> tuple[Counts, ...]:
        """For each group: which arms (columns) a state (row) means, as 0 and 1."""
        return tuple(self._meaning([self.states[one] for one in group], group) for group in self.groups)

    def _meaning(self, states: Sequence[int], group: Sequence[int]) -> Counts:
        found = np.zeros((1 << self.shift, sum(self.arms[one] for one in group)), dtype=np.int64)
        parts = np.unravel_index(np.arange(int(np.prod(states))), tuple(states))
        start = 0
        for place, part in zip(group, parts, strict=True):
            for arm in range(self.arms[place]):
                found[: len(part), start + arm] = part == arm
            start += self.arms[place]
        return found

    def _inside_in_states(self, group: int) -> Counts:
        """Which experiments of an open group (columns) the people of a state (row) are in."""
        many = len(self.open_groups[group])
        states = np.arange(1 << self.shift)[:, None]
        inside = (states >> np.arange(many)[::-1]) & 1
        inside[1 << many :] = 0
        return inside.astype(np.int64)


def pack(rows: Iterable[NDArray[np.bool_]], many: int, people: int) -> NDArray[np.uint64]:
    """Rows of true/false as 64-bit words; what is left of the last word, and further rows, are empty."""
    words = -(-people // 64)
    found = np.zeros((many, words * 8), dtype=np.uint8)
    for place, row in enumerate(rows):
        found[place, : -(-people // 8)] = np.packbits(row, bitorder="little")
    return found.view(np.uint64)


def _packed(states: Sequence[int], limit: int) -> tuple[tuple[int, ...], ...]:
    """Consecutive experiments, as many to a group as its states allow."""
    found: list[tuple[int, ...]] = []
    room = 0
    for place, own in enumerate(states):
        if found and own <= room:
            found[-1] = (*found[-1], place)
            room //= own
        else:
            found.append((place,))
            room = limit // own
    return tuple(found)
