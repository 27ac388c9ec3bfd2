"""Boxes: counters of one cohort as ciphertext (AES-256-GCM) whose length tells next to nothing.

A box is a version byte, 16 random bytes that make its own key out of the cohort's, 12 random bytes,
and the sealed text. The cohort is authenticated with it: a box does not open in another one.
With a key to every box there is no limit on how many one cohort may have.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kanab.collector.counting.counters import Counters, add_counters, pack, unpack
from kanab.collector.keys.keyring import Keyring
from kanab.errors import MissingExtraError, StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FLOOR = 4096
"""Boxes are padded to this length, longer ones to a power of two: one message reads like a hundred."""

_AROUND = 96
"""So much less than that is the text, for a box in a table to fit into one page of a disk."""

_VERSION = b"\x01"
_SALT, _NONCE, _LENGTH, _TAG = 16, 12, 4, 16
_HEAD = len(_VERSION) + _SALT + _NONCE


class Boxes:
    """Puts counters into boxes and takes them out again.

    >>> from kanab.collector.keys.keyring import Chain
    >>> boxes = Boxes(Keyring(Chain.new()))
    >>> box = boxes.wrap(7, {"banner|on|n": 1})
    >>> boxes.unwrap(7, box), len(box)
    ({'banner|on|n': 1}, 4045)
    """

    def __init__(self, keyring: Keyring, floor: int = FLOOR) -> None:
        self.keyring = keyring
        self._floor = floor

    def wrap(self, cohort: int, counters: Counters) -> bytes:
        """Counters as a box of their cohort."""
        text = pack({name: value for name, value in counters.items() if value})
        text = len(text).to_bytes(_LENGTH, "big") + text
        room = max(self._floor, 1 << (len(text) + _AROUND - 1).bit_length())
        padded = text.ljust(room - _AROUND, b"\0")
        chance = os.urandom(_SALT + _NONCE)
        salt, nonce = chance[:_SALT], chance[_SALT:]
        return _VERSION + chance + self._cipher(cohort, salt).encrypt(nonce, padded, _label(cohort))

    def unwrap(self, cohort: int, box: bytes) -> Counters:
        """The counters of a box; an error if the key is another one or a byte was changed."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only collectors need it

        if box[:1] != _VERSION or len(box) < _HEAD + _LENGTH + _TAG:
            raise StoreError("a record has an unknown form", "A newer kanab may have written it: update this one.")
        salt, nonce = box[1 : 1 + _SALT], box[1 + _SALT : _HEAD]
        try:
            text = self._cipher(cohort, salt).decrypt(nonce, box[_HEAD:], _label(cohort))
        except InvalidTag:
            raise StoreError(
                "a record cannot be decrypted", "The key is another store's, or the record was changed: check --key."
            ) from None
        return unpack(text[_LENGTH : _LENGTH + int.from_bytes(text[:_LENGTH], "big")])

    def total(self, cohort: int, boxes: Iterable[bytes]) -> Counters:
        """The sum of all boxes of a cohort."""
        found: Counters = {}
        for box in boxes:
            add_counters(found, self.unwrap(cohort, box))
        return found

    def merge(self, cohort: int, boxes: Iterable[bytes]) -> bytes:
        """One box that holds what many do."""
        return self.wrap(cohort, self.total(cohort, boxes))

    def _cipher(self, cohort: int, salt: bytes) -> AESGCM:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - only collectors need it
        except ImportError:
            raise MissingExtraError("keeping open cohorts", "server") from None
        return AESGCM(hmac.digest(self.keyring.key(cohort), b"kanab/1 box" + salt, "sha256"))


def _label(cohort: int) -> bytes:
    return b"kanab/1 cohort %d" % cohort
