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
    """The murmur3 hash (x86, 32 bits, seed 0) of a text's UTF-8 bytes.

    >>> murmur3("checkout:arm:user-1")
    3206964499
    """
    data = text.encode("utf-8", "surrogatepass")
    whole = len(data) // 4 * 4
    found = 0
    for at in range(0, whole, 4):
        found ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        found = (_turned(found, 13) * 5 + 0xE6546B64) & _LOW
    found ^= _mixed(int.from_bytes(data[whole:], "little")) ^ len(data)
    found = (found ^ found >> 16) * 0x85EBCA6B & _LOW
    found = (found ^ found >> 13) * 0xC2B2AE35 & _LOW
    return found ^ found >> 16


def _turned(number: int, bits: int) -> int:
    return (number << bits | number >> 32 - bits) & _LOW


def _mixed(block: int) -> int:
    return _turned(block * 0xCC9E2D51 & _LOW, 15) * 0x1B873593 & _LOW


def numbers_of_id(id: str) -> Numbers:
    """The numbers of a stable id: hashes, so that they are the same on every device."""
    return lambda key: murmur3(f"{key}:{id}")


def numbers_of_root(root: str) -> Numbers:
    """Random numbers, all from the random digits of a state's root.

    Two parallel requests that begin with the same state draw the same arms; the digits are thrown
    away with the hour, so that nothing is left to draw from.
    """
    key = root.encode()
    return lambda name: int.from_bytes(hmac.digest(key, f"kanab/1 draw {name}".encode(), "sha256")[:4], "big")


def draw(arms: Sequence[tuple[str, float]], number: int) -> str:
    """The arm at a number below 2³², by shares, in the plan's order.

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
    """Arms in all experiments at once, because some exclude each other; what is known stays.

    >>> shop = {"checkout": Experiment([("A", 1), ("B", 1)], "A")}
    >>> assign(shop, numbers_of_id("user-1"))
    {'checkout': 'B'}
    """
    decided = known or {}

    def at(name: str, what: str) -> int:
        return number(f"{experiments[name].salt or name}:{what}")

    def passes(name: str, other: str) -> bool:
        if other in decided:
            return decided[other] is None
        return at(name, "group") < at(other, "group")

    def drawn(name: str, one: Experiment) -> str | None:
        if at(name, "holdout") / _WHOLE < one.holdout or not all(passes(name, other) for other in one.exclude_with):
            return None
        return draw(one.arms, at(name, "arm"))

    return {name: decided[name] if name in decided else drawn(name, one) for name, one in experiments.items()}
