"""Records: counters of one cohort as ciphertext (AES-256-GCM) whose length tells next to nothing.

A ciphertext is a version byte, 16 random bytes that make its own key out of the cohort's, 12 random bytes,
and the encrypted text. The cohort is authenticated with it: it does not decrypt in another one.
With a key to every ciphertext there is no limit on how many one cohort may have.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kanab.collector.counting.counters import Counters, add_counters, pack, unpack
from kanab.collector.counting.signatures import within_bound
from kanab.collector.keys.keyring import Keyring
from kanab.errors import MissingExtraError, StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PADDED_BYTES = 4096
"""Records are padded to this length, longer ones to a power of two: one message reads like a hundred."""

_PAGE_OVERHEAD = 96
"""The text is this much shorter, for a record in a table to fit into one page of a disk."""

_VERSION = b"\x01"
_SALT, _NONCE, _LENGTH, _TAG = 16, 12, 4, 16
_TEXT_START = len(_VERSION) + _SALT + _NONCE


class RecordCipher:
    """Encrypts counters with the key of their cohort, and decrypts them.

    >>> from kanab.collector.keys.keyring import KeyChain
    >>> cipher = RecordCipher(Keyring(KeyChain.new()))
    >>> ciphertext = cipher.encrypt(7, {"banner|on|n": 1})
    >>> cipher.decrypt(7, ciphertext), len(ciphertext)
    ({'banner|on|n': 1}, 4045)
    """

    def __init__(self, keyring: Keyring, padded: int = PADDED_BYTES) -> None:
        self.keyring = keyring
        self._padded = padded

    def encrypt(self, cohort: int, counters: Counters) -> bytes:
        """Return counters as a ciphertext of their cohort."""
        text = pack({name: value for name, value in counters.items() if value})
        text = len(text).to_bytes(_LENGTH, "big") + text
        size = max(self._padded, 1 << (len(text) + _PAGE_OVERHEAD - 1).bit_length())
        padded = text.ljust(size - _PAGE_OVERHEAD, b"\0")
        random = os.urandom(_SALT + _NONCE)
        salt, nonce = random[:_SALT], random[_SALT:]
        return _VERSION + random + self._aes(cohort, salt).encrypt(nonce, padded, _label(cohort))

    def decrypt(self, cohort: int, ciphertext: bytes) -> Counters:
        """Return the counters of a ciphertext; raises `StoreError` if the key is another one or a byte was changed."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only collectors need it

        if ciphertext[:1] != _VERSION or len(ciphertext) < _TEXT_START + _LENGTH + _TAG:
            raise StoreError("a record has an unknown form", "A newer kanab may have written it: update this one.")
        salt, nonce = ciphertext[1 : 1 + _SALT], ciphertext[1 + _SALT : _TEXT_START]
        try:
            text = self._aes(cohort, salt).decrypt(nonce, ciphertext[_TEXT_START:], _label(cohort))
        except InvalidTag:
            raise StoreError(
                "a record cannot be decrypted", "The key is another store's, or the record was changed: check --key."
            ) from None
        return unpack(text[_LENGTH : _LENGTH + int.from_bytes(text[:_LENGTH], "big")])

    def total(self, cohort: int, ciphertexts: Iterable[bytes]) -> Counters:
        """Return the sum of all ciphertexts of a cohort."""
        counters: Counters = {}
        for ciphertext in ciphertexts:
            add_counters(counters, self.decrypt(cohort, ciphertext))
        return counters

    def merge(self, cohort: int, ciphertexts: Iterable[bytes]) -> bytes:
        """Return one ciphertext that holds the sum of many."""
        return self.encrypt(cohort, within_bound(self.total(cohort, ciphertexts)))

    def _aes(self, cohort: int, salt: bytes) -> AESGCM:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - only collectors need it
        except ImportError:
            raise MissingExtraError("keeping open cohorts", "server") from None
        return AESGCM(hmac.digest(self.keyring.key(cohort), b"kanab/1 box" + salt, "sha256"))


def _label(cohort: int) -> bytes:
    return b"kanab/1 cohort %d" % cohort
