"""What is remembered of one person: arm, levels, cohort, totals and posts without an answer; nothing else.

The caller holds it as bytes, or a cookie does. There is no id in it, but two numbers that are never sent:
its version, drawn anew with every change, tells states apart; its root, from which arms and nonces are
made, moves on with the hour and cannot be turned back. Two parallel requests that come with one state
have one root, and so draw the same arms and give the same nonce to the same transition.
"""

import hmac
import secrets
import zlib
from datetime import datetime

import msgspec
from msgspec.structs import replace

from kanab.collector.protocol.nonces import seconds_of

_FORM = b"\x01"
_RANDOM = 12
_MOST = 200_000


class Unit(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Somebody's part in an experiment or a pair of them.

    ``totals`` are running totals as decimal digits; ``sent`` those of the last post that was made, in
    steps of the grid; ``outbox`` the posts without a final answer, oldest first. ``enrolled``: a post
    that says so was made; ``made``: so many posts were. ``over``: nothing more is counted or kept.
    ``epoch``: that of the store when they enrolled; '' is the first one.
    """

    classes: tuple[str, ...] = msgspec.field(default=(), name="heads")
    cohort: str | None = None
    totals: dict[str, str] = {}
    sent: dict[str, int] = {}
    enrolled: bool = False
    made: int = 0
    outbox: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    over: bool = False
    epoch: str = ""


OVER = Unit(over=True)


class State(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Arms that were drawn, units by their spelled names, the pairs that are reported; or: opted out."""

    version: str = ""
    root: str = ""
    arms: dict[str, str | None] = {}
    units: dict[str, Unit] = {}
    pairs: tuple[str, ...] | None = None
    out: bool = False

    @property
    def blank(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self.arms or self.units or self.out)


OPTED_OUT = State(out=True)
"""The same for everybody."""


def fresh_version() -> str:
    """Return random digits for a state that has changed."""
    return secrets.token_hex(_RANDOM)


def at_this_hour(state: State, now: datetime) -> State:
    """Return the state with its root moved on to this hour: the hour, and digits that come from those before."""
    hour = (seconds_of(now) // 3600).to_bytes(4, "big")
    if not state.root or state.root[:8] == hour.hex():
        return state
    rest = hmac.digest(state.root.encode(), b"kanab/1 hour" + hour, "sha256")
    return replace(state, root=(hour + rest[:_RANDOM]).hex())


def pack_state(state: State) -> bytes:
    """Return a state as bytes; no bytes if there is nothing to remember."""
    return b"" if state.blank else _FORM + zlib.compress(msgspec.json.encode(state), 9)


def unpack_state(data: bytes | None) -> State:
    """Return the state in some bytes; a new one without bytes, and for bytes that are no state."""
    return read_state(data) or State(fresh_version(), "00000000" + fresh_version())


def read_state(data: bytes | None) -> State | None:
    """Return the state in some bytes; None without bytes, and for bytes that are no state."""
    if not data or data[:1] != _FORM:
        return None
    unzip = zlib.decompressobj()
    try:
        return _DECODER.decode(unzip.decompress(data[1:], _MOST))
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError):
        return None


_DECODER = msgspec.json.Decoder(State)
