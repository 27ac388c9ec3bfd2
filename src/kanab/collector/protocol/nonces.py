"""Nonces: one per post, so that a retry adds nothing; made at random, with the hour but no identity.

A nonce is 32 hex digits: 4 bytes of hours since 1970 (big-endian) and 12 random bytes. The hour
lets a collector forget nonces that are too old to come back.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from kanab.collector.protocol.reasons import Reason, refused
from kanab.errors import MessageError

NONCE_BYTES = 16
AHEAD = 1
"""Clocks of clients may be this many hours fast."""

_DIGITS = 2 * NONCE_BYTES
_HOUR = 3600


def make_nonce(now: datetime | None = None) -> str:
    """A fresh nonce, in hex digits.

    >>> make_nonce(datetime(2026, 11, 15, 16, tzinfo=UTC))[:8]
    '00079b70'
    """
    hour = seconds_of(now or datetime.now(UTC)) // _HOUR
    return (hour.to_bytes(4, "big") + secrets.token_bytes(NONCE_BYTES - 4)).hex()


def read_nonce(text: str, at: str = "") -> bytes:
    """The bytes of a nonce."""
    try:
        nonce = bytes.fromhex(text)
    except ValueError:
        nonce = b""
    if len(nonce) != NONCE_BYTES or len(text) != _DIGITS:
        raise refused(
            Reason.NONCE, "a post needs a nonce of 32 hex digits", "The first 8 are the hours since 1970.", at
        )
    return nonce


def hour_of(nonce: bytes) -> int:
    """The hour in which a nonce was made, counted from 1970."""
    return int.from_bytes(nonce[:4], "big")


def oldest_hour(seconds: int, life: int) -> int:
    """The earliest hour whose nonces are still accepted: each lives at least its whole life, in seconds.

    Nonces of earlier hours may be forgotten.

    >>> oldest_hour(100 * 3600, 24 * 3600)
    76
    """
    return (seconds - life) // _HOUR


def open_hours(seconds: int, life: int) -> range:
    """The hours whose nonces are accepted at a moment."""
    return range(oldest_hour(seconds, life), seconds // _HOUR + AHEAD + 1)


def untimely(nonce: bytes, hours: range) -> MessageError:
    """The error for a nonce that is too old to be remembered, or made in the future."""
    if hour_of(nonce) < hours.start:
        return refused(Reason.EXPIRED, "the nonce is older than messages live", "Give this message up.")
    return refused(Reason.NONCE, "the nonce was made in the future", "Check the clock: hours since 1970, in UTC.")


def seconds_of(now: datetime) -> int:
    """Whole seconds since 1970; a time without a zone is in UTC."""
    return int((now if now.tzinfo is not None else now.replace(tzinfo=UTC)).timestamp())
