"""Nonces: one per post, so that a retry adds nothing; made at random, with the hour but no identity.

A nonce is 32 hex digits: 4 bytes of hours since 1970 (big-endian) and 12 random bytes. The hour
lets a collector forget nonces that are too old to come back.

A voucher (``vouch = true`` in a plan) is a nonce that the site's own server minted: after the hours 5 random bytes, its
serial, and the first 7 of an HMAC-SHA256 of both, under a key that site and collectors share. There is no person in it.
Of a million vouchers in every hour two serials are the same every other hour; a MAC of 56 bits can be guessed at only
by posting: at 20,000 posts a second, against two keys, once in 57,000 years, and for one post.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from kanab.collector.protocol.limits import HOURS_AHEAD, NONCE_BYTES
from kanab.collector.protocol.reasons import Reason, refused
from kanab.errors import KanabError, MessageError

_DIGITS = 2 * NONCE_BYTES
_HOUR = 3600


def make_nonce(now: datetime | None = None) -> str:
    """Return a fresh nonce, in hex digits."""
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


VARIABLE, FILE_VARIABLE = "KANAB_VOUCHER_KEY", "KANAB_VOUCHER_KEY_FILE"
"""The environment variables with the keys, or with the file that they stand in."""

MOST_KEYS = 2
"""Keys that hold at once: a new one, and the one before it while its vouchers live."""

_KEY_BYTES = 32
_HEAD_DIGITS = 18


def mint_vouchers(key: bytes | str, count: int = 1, now: datetime | None = None) -> list[str]:
    """Return so many fresh vouchers: one for each post that a page may send.

    ``key`` is one of 32 bytes, or what ``KANAB_VOUCHER_KEY`` holds: 64 hex digits, the newest key first.

    >>> from kanab.collector.protocol.nonces import read_nonce
    >>> first, second = mint_vouchers("07" * 32, 2)
    >>> len(first), first != second, is_genuine(read_nonce(first), [bytes.fromhex("07" * 32)])
    (32, True, True)
    """
    newest = read_voucher_keys(key)[0] if isinstance(key, str) else key
    return [vouch_for(make_nonce(now), newest) for _ in range(count)]


def vouch_for(nonce: str, key: bytes) -> str:
    """Return the voucher with the hour and the serial of a nonce."""
    head = nonce[:_HEAD_DIGITS]
    mac = hmac.digest(key, f"kanab/1 voucher {head}".encode(), "sha256").hex()
    return head + mac[: len(nonce) - _HEAD_DIGITS]


def is_genuine(nonce: bytes, keys: Sequence[bytes]) -> bool:
    """Return whether a nonce is a voucher under one of the keys, however old."""
    text = nonce.hex()
    return any(hmac.compare_digest(vouch_for(text, key), text) for key in keys)


def read_voucher_keys(text: str) -> tuple[bytes, ...]:
    """Read one key or two of 64 hex digits, the newest first; raises `KanabError` for any other text."""
    try:
        keys = tuple(bytes.fromhex(word) for word in text.split())
    except ValueError:
        keys = ()
    if not 0 < len(keys) <= MOST_KEYS or any(len(key) != _KEY_BYTES for key in keys):
        raise KanabError(
            "vouchers need a key of 64 hex digits, or two: the new one and the one before it",
            f"Write export {VARIABLE}=$(openssl rand -hex 32), and give the site's server the same key.",
        )
    return keys
