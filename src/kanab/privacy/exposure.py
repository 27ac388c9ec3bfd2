"""Rule 3: no amount rests on fewer than three people, or mostly on one or two.

Sums of a metric are linear in people's values, so that whatever is combined from published sums gives everybody a
weight. Let c be the commonest value, and h_i = w_i · a_i (AᵀWA)⁺ a_iᵀ over the design A of signatures × published
classes. With w = 1 for people off the commonest value, 1/h is among how many of them somebody hides, in any combination
(contributors). With w = (y − c)², h is the largest share of any combination, in squares, that is one person's
(dominance). Somebody who knows the value of another person of the same published classes raises it to h_i / (1 − h_j).
Where squares are published, too, one person is not most of any of them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kanab.counted import MOST_STEPS, SignatureValues
from kanab.privacy.leverage import SLACK, explain
from kanab.privacy.overlap import Column

Floats = NDArray[np.float64]

LEAST_CONTRIBUTORS = 3
"""People behind a sum: of one, the value is the sum; of two, each knows the other's."""
MOST_DOMINANCE = 0.9
"""The largest share of a combination of sums, in squares, that may be one person's."""
MOST_DOMINANCE_OF_TWO = 0.99
"""The same for somebody who knows the other person with a large value."""
MOST_OF_SQUARES = 1 / 1.21
"""The largest share of a published sum of squares that may be one person's: its root is off by a tenth or more."""


def is_harmless(values: SignatureValues, scale: int, low: int) -> bool:
    """Return whether a metric is 0/1 or a whole number of few steps for everybody; below 0 values cancel out."""
    farthest = float(values.largest.max(initial=0))
    if low < 0:
        return False
    if scale == 1 and values.commonest + farthest <= MOST_STEPS:
        return True
    return farthest <= scale and bool(np.all(values.squares == values.off * float(scale) ** 2))


def excess(columns: Sequence[Column], squared: Sequence[Column], values: SignatureValues) -> Floats:
    """Return by signature how far somebody of it is beyond what the rule allows: up to 1 is within it.

    Whom nothing published tells apart are asked together, however much finer the signatures are.
    ``columns`` are the classes of every signature in each published set of sums of a metric, −1 outside, and
    ``squared`` those of published sums of squares.
    """
    beyond = np.zeros(len(values.off))
    there = np.flatnonzero(values.off)
    if not len(there) or not columns:
        return beyond
    number = np.zeros(len(there), dtype=np.intp)
    for column in (*columns, *squared):
        inside = column[there] + 1
        _, first, number = np.unique(number * (inside.max() + 1) + inside, return_index=True, return_inverse=True)
    alike = values.of(there).added_up(number, len(first))
    places, largest = there[first], alike.largest**2
    cells = np.stack([column[places] for column in columns], axis=1)
    explained = explain(cells, alike.off, np.empty((len(first), 0)), alike.squares)
    most = np.minimum(largest * explained.shares, 1.0)
    other = np.minimum(alike.second**2 * explained.shares, 0.5)
    worst = np.maximum.reduce([
        LEAST_CONTRIBUTORS / explained.sizes,
        most / MOST_DOMINANCE,
        np.minimum(most / (1 - other), 1.0) / MOST_DOMINANCE_OF_TWO,
    ])  # fmt: skip
    for column in squared:
        inside = np.flatnonzero(column[places] >= 0)
        classes = column[places][inside]
        total = np.bincount(classes, alike.squares[inside])[classes]
        worst[inside] = np.maximum(worst[inside], largest[inside] / total / MOST_OF_SQUARES)
    beyond[there] = worst[number]
    return beyond


def within(beyond: Floats, before: Floats | None = None) -> bool:
    """Return whether nobody is beyond the rule, or not further than what was released before put them."""
    limit = np.ones_like(beyond) if before is None else np.maximum(before, 1)
    return bool(np.all(beyond <= limit * (1 + SLACK)))
