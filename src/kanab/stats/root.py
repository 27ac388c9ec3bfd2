"""Where does a function cross zero? A bracket that shrinks quickly, without importing an optimiser."""

from __future__ import annotations

from collections.abc import Callable

from kanab.errors import AnalysisError

_MOST = 200
_NEAR = 1e-14


def crossing(function: Callable[[float], float], low: float, high: float, *, enough: float = 0.0) -> float:
    """The place between two points where the function changes its sign.

    Secants whose idle end counts half as much each time (the Illinois rule), and every fourth step a
    plain halving, so that flat functions end too. A value that is ``enough`` close to zero will do.

    >>> round(crossing(lambda x: x * x - 2, 0, 2), 12)
    1.414213562373
    """
    left, right = function(low), function(high)
    if left == 0 or right == 0:
        return low if left == 0 else high
    if (left > 0) == (right > 0):
        raise AnalysisError("there is no solution between these ends", "Ask for something less extreme.")
    middle, side = low, 0
    for step in range(_MOST):  # pragma: no branch - halving ends it long before
        middle = (low + high) / 2 if step % 4 == 3 else (low * right - high * left) / (right - left)
        value = function(middle)
        if abs(value) <= enough or high - low <= _NEAR * max(abs(low), abs(high)):
            break
        if (value > 0) == (right > 0):
            high, right = middle, value
            left = left / 2 if side == 1 else left
            side = 1
        else:
            low, left = middle, value
            right = right / 2 if side == -1 else right
            side = -1
    return middle
