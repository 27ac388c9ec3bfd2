"""Who gets which arm: by a stable id, or by numbers drawn at random. The whole of it: docs/how-to/assignment.md.

Every language gives the same arms; tests/contract/cases.json holds the vectors.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence

from kanab.client.config import Experiment

Numbers = Callable[[str], int]
"""A whole number below 2³² for every salt and purpose, such as checkout:arm."""

Arms = Mapping[str, str | None]
"""The arm in every experiment; None: not in it."""

_LOW = 2**32 - 1
_WHOLE = 2**32


def murmur3(text: str) -> int:
    """Return the murmur3 hash (x86, 32 bits, seed 0) of a text's UTF-8 bytes.

    >>> murmur3("checkout:arm:user-1")
    3206964499
    """
    data = text.encode("utf-8", "surrogatepass")
    whole = len(data) // 4 * 4
    hashed = 0
    for at in range(0, whole, 4):
        hashed ^= _mix(int.from_bytes(data[at : at + 4], "little"))
        hashed = (_rotate(hashed, 13) * 5 + 0xE6546B64) & _LOW
    hashed ^= _mix(int.from_bytes(data[whole:], "little")) ^ len(data)
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _LOW
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _LOW
    return hashed ^ hashed >> 16


def _rotate(number: int, bits: int) -> int:
    return (number << bits | number >> 32 - bits) & _LOW


def _mix(block: int) -> int:
    return _rotate(block * 0xCC9E2D51 & _LOW, 15) * 0x1B873593 & _LOW


def numbers_of_id(id: str) -> Numbers:
    """Return the numbers of a stable id: hashes, so that they are the same on every device."""
    return lambda key: murmur3(f"{key}:{id}")


def numbers_of_root(root: str) -> Numbers:
    """Return random numbers, all made from the random digits of a state's root.

    Two parallel requests that begin with the same state draw the same arms; the digits are thrown
    away with the hour, so that nothing is left to draw from.
    """
    key = root.encode()
    return lambda name: int.from_bytes(hmac.digest(key, f"kanab/1 draw {name}".encode(), "sha256")[:4], "big")


def draw(arms: Sequence[tuple[str, float]], number: int) -> str:
    """Return the arm at a number below 2³², by shares, in the plan's order.

    >>> draw([("A", 1), ("B", 1)], 2**31 - 1), draw([("A", 1), ("B", 1)], 2**31)
    ('A', 'B')
    """
    total = 0.0
    for _, share in arms:
        total += share
    point = number / _WHOLE * total
    reached = 0.0
    for arm, share in arms:
        reached += share
        if point < reached:
            return arm
    return arms[-1][0]


def assign(experiments: Mapping[str, Experiment], number: Numbers, known: Arms | None = None) -> dict[str, str | None]:
    """Return arms in all experiments at once, because some exclude each other; arms that are known stay.

    >>> shop = {"checkout": Experiment([("A", 1), ("B", 1)], "A")}
    >>> assign(shop, numbers_of_id("user-1"))
    {'checkout': 'B'}
    """
    decided = known or {}

    def at(name: str, purpose: str) -> int:
        return number(f"{experiments[name].salt or name}:{purpose}")

    def passes(name: str, other: str) -> bool:
        if other in decided:
            return decided[other] is None
        return at(name, "group") < at(other, "group")

    def draw_arm(name: str) -> str | None:
        experiment = experiments[name]
        held_out = at(name, "holdout") / _WHOLE < experiment.holdout
        if held_out or not all(passes(name, other) for other in experiment.exclude_with):
            return None
        return draw(experiment.arms, at(name, "arm"))

    return {name: decided[name] if name in decided else draw_arm(name) for name in experiments}
