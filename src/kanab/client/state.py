"""What is remembered of one person: arm, levels, cohort, totals and posts without an answer; nothing else.

The caller holds it as bytes, or a cookie does. There is no id in it. Its version, twelve random
bytes, is drawn anew with every change: it gives the next posts their nonces (see posts.py).
"""

from __future__ import annotations

import secrets
import zlib

import msgspec

VERSION_BYTES = 12
_FORM = b"\x01"
_MOST = 200_000


class Unit(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Somebody's part in an experiment or a pair of them.

    ``totals`` are running totals as decimal digits; ``sent`` those of the last post that was made, in
    steps of the grid; ``outbox`` the posts without a final answer, oldest first. ``enrolled``: a post
    that says so was made. ``over``: nothing more is counted, and nothing else is kept.
    """

    heads: tuple[str, ...] = ()
    cohort: str | None = None
    totals: dict[str, str] = {}
    sent: dict[str, int] = {}
    enrolled: bool = False
    outbox: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    over: bool = False


OVER = Unit(over=True)


class State(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Arms that were drawn, units by their spelled names, the pairs that are reported; or: opted out."""

    version: str = ""
    arms: dict[str, str | None] = {}
    units: dict[str, Unit] = {}
    pairs: tuple[str, ...] | None = None
    out: bool = False

    @property
    def blank(self) -> bool:
        """Is there nothing to remember?"""
        return not (self.arms or self.units or self.out)


OPTED_OUT = State(out=True)
"""The same for everybody."""


def fresh_version() -> str:
    """Random digits for a state that has changed."""
    return secrets.token_hex(VERSION_BYTES)


def pack_state(state: State) -> bytes:
    """A state as bytes; none if there is nothing to remember.

    >>> unpack_state(pack_state(State("00", {"checkout": "B"}))).arms
    {'checkout': 'B'}
    """
    return b"" if state.blank else _FORM + zlib.compress(msgspec.json.encode(state), 9)


def unpack_state(data: bytes | None) -> State:
    """The state in some bytes; a new one for nobody's, and for bytes that are no state."""
    return _read(data) or State(fresh_version())


def _read(data: bytes | None) -> State | None:
    if not data or data[:1] != _FORM:
        return None
    unzip = zlib.decompressobj()
    try:
        return _DECODER.decode(unzip.decompress(data[1:], _MOST))
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError):
        return None


_DECODER = msgspec.json.Decoder(State)
