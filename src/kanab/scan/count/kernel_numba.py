"""The loops of ``kernel`` compiled by Numba: the [fast] extra.

Compiled code is kept on disk where Python may write, so that only the first run compiles.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

_WORDS_AT_ONCE = 1 << 9  # so many words of every row stay near the processor
_ROWS_AT_ONCE = 1 << 16  # people whose cells are found at once: the more, the less often tables are fetched


def _compiled(signature: str) -> Callable[[Callable[..., None]], Any]:
    """Compile for one signature; other threads may run meanwhile."""

    def compile_loop(loop: Callable[..., None]) -> Any:
        try:
            return numba.njit(signature, nogil=True, cache=True)(loop)
        except RuntimeError:  # there is no place to keep compiled code
            return numba.njit(signature, nogil=True)(loop)

    return compile_loop


def _popcount(_context: Any, _word: Any) -> Any:
    """Count the bits of a word that are set: one instruction, of which there are wide ones too."""

    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


_set_bits: Any = intrinsic(_popcount)


@_compiled("void(uint64[:, ::1], uint64[:, ::1], int64[:, ::1])")
def count_bits(left: Any, right: Any, counts: Any) -> None:
    """Add to ``counts[i, j]``, j ≥ i, how many bits row i of the left and row j of the right share.

    Two rows meet two others at a time, so that each is read half as often: their number is even.
    """
    rows, words = left.shape
    for start in range(0, words, _WORDS_AT_ONCE):
        end = min(words, start + _WORDS_AT_ONCE)
        for row in range(0, rows, 2):
            mine, next_mine = left[row, start:end], left[row + 1, start:end]
            for other in range(row, rows, 2):
                theirs, next_theirs = right[other, start:end], right[other + 1, start:end]
                first, second, third, fourth = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
                for place in range(mine.size):
                    first += _set_bits(mine[place] & theirs[place])
                    second += _set_bits(mine[place] & next_theirs[place])
                    third += _set_bits(next_mine[place] & theirs[place])
                    fourth += _set_bits(next_mine[place] & next_theirs[place])
                counts[row, other] += np.int64(first)
                counts[row, other + 1] += np.int64(second)
                counts[row + 1, other] += np.int64(third)
                counts[row + 1, other + 1] += np.int64(fourth)


@_compiled("void(uint8[:, ::1], int32[:, ::1], int64[::1], int64[:, ::1], int64)")
def add_weights(groups: Any, pairs: Any, weights: Any, tables: Any, shift: Any) -> None:
    """Add everybody's weight to their cell in the table of each pair of groups.

    Cells are found first, for many people at once, and read four to a word.
    """
    cells = np.empty(_ROWS_AT_ONCE, np.uint16)
    words = cells.view(np.uint64)
    width, last = np.uint16(shift), np.uint64(0xFFFF)
    for start in range(0, weights.size, _ROWS_AT_ONCE):
        part = weights[start : start + _ROWS_AT_ONCE]
        fours = part.size // 4
        for pair in range(pairs.shape[0]):
            first = groups[pairs[pair, 0], start : start + _ROWS_AT_ONCE]
            second = groups[pairs[pair, 1], start : start + _ROWS_AT_ONCE]
            table = tables[pair]
            for row in range(part.size):
                cells[row] = (np.uint16(first[row]) << width) | np.uint16(second[row])
            for word in range(fours):
                four = words[word]
                table[four & last] += part[4 * word]
                table[(four >> np.uint64(16)) & last] += part[4 * word + 1]
                table[(four >> np.uint64(32)) & last] += part[4 * word + 2]
                table[four >> np.uint64(48)] += part[4 * word + 3]
            for row in range(4 * fours, part.size):
                table[cells[row]] += part[row]
