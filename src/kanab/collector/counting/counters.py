"""Counters: named whole numbers that are added, and nothing else; what a store keeps of open cohorts.

A name says what is counted: the linkage, the class or marginal, and which number of it, joined by
``|``. Names and levels are percent-encoded, so the separators stand only where they separate:

    checkout/tier|B:3|n                people of the class
    checkout/tier|B:3|minutes|n        those who have a value, where missing values are excluded
    checkout/tier|B:3|minutes|s        the sum, in steps of the metric's grid
    checkout/tier|B:3|minutes|c        contributors: people whose value is not 0, of metrics that are not 0/1
    checkout/tier||c                   people of the table whose contributions are counted: all since version 0.1
    checkout/tier|checkout=B|minutes|q     squares at a marginal, in steps²
    checkout/tier|checkout=B|revenue/orders|p    what a ratio needs: n, s, t, q, r, p
    checkout/minutes|B:%E2%89%A5%2060|n    people in a bin of a metric: ≥ 60
    checkout/*|B:phone:3|n             people of a joint signature, which ``signatures`` explains
    checkout/!|n                       people who were destroyed, which ``account`` explains

Because names explain themselves, counters outlive additions to a plan.
"""

from collections.abc import Mapping

import msgspec

from kanab.errors import StoreError

Counters = dict[str, int]
"""Exact whole numbers by name. A name that is absent counts 0."""

JOINT = "/*|"
"""Stands in the names of joint signatures, and of nothing else."""

CONTRIBUTORS = "|c"
"""Ends the names of numbers of contributors, and of nothing else."""

DESTROYED = "/!|n"
"""Ends the names of numbers of destroyed people, and of nothing else."""

_LOW, _HIGH = -(2**63), 2**64

_DECODER = msgspec.msgpack.Decoder(dict[str, int | str])


def add_counters(into: Counters, more: Mapping[str, int]) -> None:
    """Add counters to others, in place: the order of adding never changes a digit."""
    known = into.get
    for name, value in more.items():
        into[name] = known(name, 0) + value


def pack(counters: Mapping[str, int]) -> bytes:
    """Return counters as bytes (MessagePack, names in order); integers beyond 64 bits are texts."""
    plain = {name: value if _LOW <= value < _HIGH else str(value) for name, value in sorted(counters.items())}
    return msgspec.msgpack.encode(plain)


def unpack(data: bytes) -> Counters:
    """Read what ``pack`` wrote; raises `StoreError` for anything else."""
    try:
        return {name: int(value) for name, value in _DECODER.decode(data).items()}
    except (msgspec.MsgspecError, ValueError):
        raise StoreError("a record does not hold counters", "Check that key and store belong together.") from None
