"""Planned shares of pairs of arms, where two experiments are assigned together and not independently of each other."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.errors import listed
from kanab.fields import is_finite
from kanab.tally.factor import Level, label

JointShares = tuple[tuple[Level, Level, float], ...]
"""An arm of the first experiment, an arm of the second, and their share of the people who are in both."""

ROUNDING = 1e-6
"""Shares may miss 1 by so much: thirds are written with few digits."""


def joint_share_mistakes(shares: JointShares, arms: Sequence[Sequence[Level] | None]) -> Iterator[str]:
    """Yield what is wrong with joint shares, as ends of sentences; arms that are not known are not checked."""
    cells = [(label(first), label(second)) for first, second, _ in shares]
    if len(set(cells)) < len(cells):
        yield "names a pair of arms twice"
    for side, known in enumerate(arms):
        if known is not None:
            unknown = [name for name in dict.fromkeys(cell[side] for cell in cells) if name not in map(label, known)]
            for name in unknown:
                yield f"names an unknown arm, {name!r}; declared: {listed(map(label, known))}"
    sides = [[cell[side] for cell in cells] if known is None else map(label, known) for side, known in enumerate(arms)]
    gone = [f"{a} × {b}" for a, b in product(*map(dict.fromkeys, sides)) if (a, b) not in cells]
    if gone:
        yield f"leaves out {listed(gone)}; a pair that nobody may be in has share 0"
    numbers = [share for _, _, share in shares]
    if not all(is_finite(share) and 0 <= share <= 1 for share in numbers):
        yield "must have shares from 0 to 1"
    elif abs(math.fsum(numbers) - 1) > ROUNDING:
        yield "must add up to 1"


def share_table(shares: JointShares, first: Sequence[Level], second: Sequence[Level]) -> NDArray[np.float64]:
    """Return the shares with the arms of the first experiment down and those of the second across."""
    known = {(label(a), label(b)): float(share) for a, b, share in shares}
    cells = [[known[label(a), label(b)] for b in second] for a in first]
    return np.array(cells) / math.fsum(known.values())


def are_independent(shares: JointShares) -> bool:
    """Return whether the shares are those of two independent assignments."""
    first, second = (tuple(dict.fromkeys(cell[side] for cell in shares)) for side in (0, 1))
    table = share_table(shares, first, second)
    return bool(np.all(np.abs(table - np.outer(table.sum(axis=1), table.sum(axis=0))) < ROUNDING))


def turned(shares: JointShares) -> JointShares:
    """Return the same shares with the other experiment first."""
    return tuple((second, first, share) for first, second, share in shares)


def nested(shares: JointShares) -> Any:
    """Return shares as plain data: tables in a table, or a list where an arm is not a text."""
    if not all(isinstance(first, str) and isinstance(second, str) for first, second, _ in shares):
        return [[first, second, plain_number(share)] for first, second, share in shares]
    tables: dict[str, dict[str, float]] = {}
    for first, second, share in shares:
        tables.setdefault(str(first), {})[str(second)] = plain_number(share)
    return tables


def plain_number(value: Any) -> Any:
    """Write whole numbers as such, so that 1.0 and 1 are written alike, and tuples as lists."""
    if isinstance(value, tuple):
        return [plain_number(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
