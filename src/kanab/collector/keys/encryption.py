"""Records: counters of one cohort as ciphertext (AES-256-GCM) whose length tells next to nothing.

A ciphertext is a head (version, whether it was merged, generation, epoch), 16 random bytes that make its own key out of
the cohort's, 12 random bytes, and the encrypted text. The head and the cohort are authenticated with it: it does not
decrypt in another cohort. With a key to every ciphertext there is no limit on how many one cohort may have.

A store's generation grows whenever records are merged. So a record that is older than the newest merged one of its
cohort is in there already, and somebody has put it back: it does not count, and neither does a record's copy.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kanab.collector.counting.counters import Counters, add_counters, pack, unpack
from kanab.collector.counting.signatures import within_bound
from kanab.collector.keys.keyring import Keyring, cipher_of
from kanab.errors import StoreError

PADDED_BYTES = 4096
"""Records are padded to this length, longer ones to a power of two: one message reads like a hundred."""

_PAGE_OVERHEAD = 112
"""The text is this much shorter, for a record in a table to fit into one page of a disk."""

_VERSION = b"\x02"
_HEAD = struct.Struct(">c?I8s")
_OLD_HEAD = b"\x01"  # without a generation: 0
_SALT, _NONCE, _LENGTH, _TAG = 16, 12, 4, 16
_aes = partial(cipher_of, label=b"box", what="keeping open cohorts", extra="server")


class Genuine(NamedTuple):
    """The sum of the records that count, where these stand, and how many others there are."""

    counters: Counters
    places: list[int]
    left_out: int


class RecordCipher:
    """Encrypts counters with the key of their cohort, and decrypts them.

    >>> from kanab.collector.keys.keyring import KeyChain
    >>> cipher = RecordCipher(Keyring(KeyChain.new()))
    >>> ciphertext = cipher.encrypt(7, {"banner|on|n": 1})
    >>> cipher.decrypt(7, ciphertext), len(ciphertext)
    ({'banner|on|n': 1}, 4042)
    """

    def __init__(self, keyring: Keyring) -> None:
        self.keyring = keyring

    def encrypt(self, cohort: int, counters: Counters, epoch: str = "", generation: int = 0) -> bytes:
        """Return counters as a ciphertext of their cohort, and of the store's epoch and generation."""
        return self._encrypt(cohort, counters, _HEAD.pack(_VERSION, False, generation, epoch.encode()))

    def _encrypt(self, cohort: int, counters: Counters, head: bytes) -> bytes:
        text = pack({name: value for name, value in counters.items() if value})
        text = len(text).to_bytes(_LENGTH, "big") + text
        size = max(PADDED_BYTES, 1 << (len(text) + _PAGE_OVERHEAD - 1).bit_length())
        padded = text.ljust(size - _PAGE_OVERHEAD, b"\0")
        random = os.urandom(_SALT + _NONCE)
        salt, nonce = random[:_SALT], random[_SALT:]
        return head + random + _aes(self.keyring.key(cohort), salt).encrypt(nonce, padded, _label(cohort, head))

    def decrypt(self, cohort: int, ciphertext: bytes) -> Counters:
        """Return the counters of a ciphertext; raises `StoreError` if the key is another one or a byte was changed."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only collectors need it

        head, salt, nonce, text = _parts(ciphertext)
        if head[:1] not in (_VERSION, _OLD_HEAD) or len(text) < _LENGTH + _TAG:
            raise StoreError("a record has an unknown form", "A newer kanab may have written it: update this one.")
        try:
            text = _aes(self.keyring.key(cohort), salt).decrypt(nonce, text, _label(cohort, head))
        except InvalidTag:
            raise StoreError(
                "a record cannot be decrypted", "The key is another store's, or the record was changed: check --key."
            ) from None
        return unpack(text[_LENGTH : _LENGTH + int.from_bytes(text[:_LENGTH], "big")])

    def genuine(self, records: Sequence[tuple[int, bytes]]) -> Genuine:
        """Return the sum of the cohorts and ciphertexts that are a store's own, each counted once.

        Others were copied, moved from another cohort, changed, or put back after they had been merged.
        """
        sums: dict[tuple[int, int], Counters] = {}
        places: dict[tuple[int, int], list[int]] = {}
        merged: dict[int, int] = {}
        seen: set[bytes] = set()
        for place, (cohort, ciphertext) in enumerate(records):
            head, salt, *_ = _parts(ciphertext)
            if salt in seen:
                continue
            try:
                counters = self.decrypt(cohort, ciphertext)
            except StoreError:
                continue
            seen.add(salt)
            is_merged, generation = _HEAD.unpack(head)[1:3] if head[:1] == _VERSION else (False, 0)
            if is_merged:
                merged[cohort] = max(generation, merged.get(cohort, 0))
            add_counters(sums.setdefault((cohort, generation), {}), counters)
            places.setdefault((cohort, generation), []).append(place)
        total: Counters = {}
        counted: list[int] = []
        for (cohort, generation), counters in sums.items():
            if generation >= merged.get(cohort, 0):
                add_counters(total, counters)
                counted += places[cohort, generation]
        return Genuine(total, sorted(counted), len(records) - len(counted))

    def merge(
        self, cohort: int, ciphertexts: Sequence[bytes], epoch: str = "", generation: int = 0
    ) -> tuple[bytes, list[int]]:
        """Return one ciphertext that holds the sum of all genuine ones of a cohort, and where these stand."""
        genuine = self.genuine([(cohort, ciphertext) for ciphertext in ciphertexts])
        head = _HEAD.pack(_VERSION, True, generation, epoch.encode())
        return self._encrypt(cohort, within_bound(genuine.counters), head), genuine.places


def _label(cohort: int, head: bytes) -> bytes:
    return b"kanab/1 cohort %d" % cohort + (b"" if head == _OLD_HEAD else head)


def _parts(ciphertext: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the head of a ciphertext, what makes its key, its nonce, and its text; as far as they are there."""
    salt = len(_OLD_HEAD) if ciphertext[:1] == _OLD_HEAD else _HEAD.size
    nonce, text = salt + _SALT, salt + _SALT + _NONCE
    return ciphertext[:salt], ciphertext[salt:nonce], ciphertext[nonce:text], ciphertext[text:]
