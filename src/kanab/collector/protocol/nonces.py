"""Nonces: one per post, so that a retry adds nothing; made at random, with the hour but no identity.

A nonce is 32 hex digits: 4 bytes of hours since 1970 (big-endian) and 12 random bytes. The hour
lets a collector forget nonces that are too old to come back.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from kanab.collector.protocol.limits import HOURS_AHEAD, NONCE_BYTES
from kanab.collector.protocol.reasons import Reason, refused
from kanab.errors import MessageError

_DIGITS = 2 * NONCE_BYTES
_HOUR = 3600


def make_nonce(now: datetime | None = None) -> str:
    """Return a fresh nonce, in hex digits.

    >>> make_nonce(datetime(2026, 11, 15, 16, tzinfo=UTC))[:8]
    '00079b70'
    """
    hour = seconds_of(now or datetime.now(UTC)) // _HOUR
    return (hour.to_bytes(4, "big") + secrets.token_bytes(NONCE_BYTES - 4)).hex()


def read_nonce(text: str, at: str = "") -> bytes:
    """Return the bytes of a nonce; raises `MessageError` for any other text."""
    try:
        nonce = bytes.fromhex(text)
    except ValueError:
        nonce = b""
    if len(nonce) != NONCE_BYTES or len(text) != _DIGITS:
        raise refused(
            Reason.NONCE, f"a post needs a nonce of {_DIGITS} hex digits", "The first 8 are the hours since 1970.", at
        )
    return nonce


def hour_of(nonce: bytes) -> int:
    """Return the hour in which a nonce was made, counted from 1970."""
    return int.from_bytes(nonce[:4], "big")


def oldest_hour(seconds: int, life: int) -> int:
    """Return the earliest hour whose nonces are still accepted: each lives at least its whole life, in seconds.

    Nonces of earlier hours may be forgotten.

    >>> oldest_hour(100 * 3600, 24 * 3600)
    76
    """
    return (seconds - life) // _HOUR


def open_hours(seconds: int, life: int) -> range:
    """Return the hours whose nonces are accepted at a moment."""
    return range(oldest_hour(seconds, life), seconds // _HOUR + HOURS_AHEAD + 1)


def untimely_error(nonce: bytes, hours: range) -> MessageError:
    """Return the error for a nonce that is too old to be remembered, or made in the future."""
    if hour_of(nonce) < hours.start:
        return expired_error()
    return ahead_error("the nonce was made in the future", "hours since 1970, in UTC")


def ahead_error(fact: str, unit: str) -> MessageError:
    """Return the error for what lies in the future: it is not final, because the collector may be the slow one."""
    return refused(Reason.AHEAD, fact, f"Check the clock ({unit}), and send it again later.")


def expired_error() -> MessageError:
    """Return the error for a nonce that is older than its life."""
    return refused(Reason.EXPIRED, "the nonce is older than messages live", "Give this message up.")


def seconds_of(now: datetime) -> int:
    """Return whole seconds since 1970; a time without a zone is in UTC."""
    return int((now if now.tzinfo is not None else now.replace(tzinfo=UTC)).timestamp())
