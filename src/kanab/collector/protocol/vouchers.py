"""Vouchers: nonces that the site's own server minted for its visitors (``vouch = true`` in a plan).

A voucher is 32 hex digits, as every nonce is: 4 bytes of hours since 1970, 5 random ones (its serial), and the first 7
of an HMAC-SHA256 of both, under a key that the site and its collectors share. There is no person in it.

Serials of 40 bits: of a million vouchers spent in every hour, two are the same by chance every other hour. A MAC
of 56 bits can be guessed at only by posting: at 20,000 posts a second, against two keys, once in 57,000 years, and for
one post. (With the usual 64 bits, serials of 32 would lose a post in 10,000 at that size.)
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import datetime

from kanab.collector.protocol.nonces import make_nonce
from kanab.errors import KanabError

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
    """Return the voucher with the hour and the serial of a nonce.

    >>> vouch_for("00079b70000102030405060708090a0b", bytes(32))
    '00079b700001020304035a023dc9c79b'
    """
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
