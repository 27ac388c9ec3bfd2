"""Records: counters of one cohort as ciphertext (AES-256-GCM) whose length tells next to nothing.

A ciphertext is a head (version, whether it was merged, generation, epoch), 16 random bytes that make its own key out of
the cohort's, 12 random bytes, and the encrypted text. The head and the cohort are authenticated with it: it does not
decrypt in another cohort. With a key to every ciphertext there is no limit on how many one cohort may have.

A store's generation grows whenever records are merged. So a record that is older than the newest merged one of its
cohort is in there already, and somebody has put it back: it does not count, and neither does a record's copy.

Every writer numbers its records in each cohort, within the encrypted text: 1, 2, 3, … A merged record holds the last
number of every writer. So a record that was deleted leaves a gap, or, if it was the last one, fewer than a witness has
seen; nobody can renumber records without the key. Those of earlier versions have no numbers.
"""

import os
import secrets
import struct
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kanab.collector.counting.counters import Counters, add_counters, pack, unpack
from kanab.collector.counting.signatures import within_bound
from kanab.collector.keys.keyring import Keyring, cipher_of
from kanab.collector.keys.store_witness import Link, Seen
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
_MISSING = ""
"""Stands for a writer in a merged record: how many records were missing already when it was made."""

Numbers = Mapping[str, int]
"""The number of a record, by its writer; of a merged one, the last numbers in it."""


class Genuine(NamedTuple):
    """The sum of the records that count, where these stand, and how many others there are.

    ``last`` is the last number of every writer in a cohort, ``missing`` how many records up to these are not there.
    """

    counters: Counters
    places: list[int]
    left_out: int
    last: Mapping[Link, int]
    missing: int


class RecordCipher:
    """Encrypts counters with the key of their cohort, and decrypts them. Each cipher is a writer of its own.

    ``seen`` is how far the store is known to have come: what was committed of this writer, and whatever else is joined.
    """

    def __init__(self, keyring: Keyring) -> None:
        self.keyring = keyring
        self.seen = Seen("", 0)
        self._writer = secrets.token_hex(8)
        self._unsettled = False

    def encrypt(self, cohort: int, counters: Counters, epoch: str = "", generation: int = 0) -> bytes:
        """Return counters as a ciphertext of their cohort, and of the store's epoch and generation.

        Its number is that of the cohort's next record, also if it is tried again, until ``settle`` says what became of
        it.
        """
        if epoch != self.seen.epoch:
            self.seen = Seen(epoch, 0)
            self._writer = secrets.token_hex(8)
        self._unsettled = True
        numbers = {self._writer: self.seen.records.get((cohort, self._writer), 0) + 1}
        return self._encrypt(cohort, counters, numbers, _HEAD.pack(_VERSION, False, generation, epoch.encode()))

    def settle(self, cohorts: Collection[int]) -> None:
        """Note the cohorts to which what was encrypted last was committed; none if it failed, or nobody knows.

        Then other numbers begin, as of another writer: a number that is left out looks like a record that was deleted,
        and one that is used twice would hide that.
        """
        records = {link: last for link, last in self.seen.records.items() if link[0] >= self.keyring.period}
        for cohort in cohorts:
            records[cohort, self._writer] = records.get((cohort, self._writer), 0) + 1
        self.seen = self.seen._replace(records=records)
        if self._unsettled and not cohorts:
            self._writer = secrets.token_hex(8)
        self._unsettled = False

    def _encrypt(self, cohort: int, counters: Counters, numbers: Numbers, head: bytes) -> bytes:
        parts = pack({name: value for name, value in counters.items() if value}), pack(numbers)
        text = b"".join(len(part).to_bytes(_LENGTH, "big") + part for part in parts)
        size = max(PADDED_BYTES, 1 << (len(text) + _PAGE_OVERHEAD - 1).bit_length())
        padded = text.ljust(size - _PAGE_OVERHEAD, b"\0")
        random = os.urandom(_SALT + _NONCE)
        salt, nonce = random[:_SALT], random[_SALT:]
        return head + random + _aes(self.keyring.key(cohort), salt).encrypt(nonce, padded, _label(cohort, head))

    def decrypt(self, cohort: int, ciphertext: bytes) -> Counters:
        """Return the counters of a ciphertext; raises `StoreError` if the key is another one or a byte was changed."""
        return self._decrypt(cohort, ciphertext)[0]

    def _decrypt(self, cohort: int, ciphertext: bytes) -> tuple[Counters, Numbers]:
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
        counters, text = _first_part(text)
        numbers, _ = _first_part(text)
        return unpack(counters), unpack(numbers) if numbers else {}

    def genuine(self, records: Sequence[tuple[int, bytes]], committed: Mapping[Link, int] | None = None) -> Genuine:
        """Return the sum of the cohorts and ciphertexts that are a store's own, each counted once.

        Others were copied, moved from another cohort, changed, or put back after they had been merged. ``committed`` is
        how many records of each writer there must be: what lacks at the end of them is missing, too.
        """
        sums: dict[tuple[int, int], Counters] = {}
        places: dict[tuple[int, int], list[int]] = {}
        numbered: dict[tuple[int, int], list[tuple[bool, Numbers]]] = {}
        merged: dict[int, int] = {}
        salts: set[bytes] = set()
        for place, (cohort, ciphertext) in enumerate(records):
            head, salt, *_ = _parts(ciphertext)
            if salt in salts:
                continue
            try:
                counters, numbers = self._decrypt(cohort, ciphertext)
            except StoreError:
                continue
            salts.add(salt)
            is_merged, generation = _HEAD.unpack(head)[1:3] if head[:1] == _VERSION else (False, 0)
            if is_merged:
                merged[cohort] = max(generation, merged.get(cohort, 0))
            add_counters(sums.setdefault((cohort, generation), {}), counters)
            places.setdefault((cohort, generation), []).append(place)
            numbered.setdefault((cohort, generation), []).append((is_merged, numbers))
        total: Counters = {}
        counted: list[int] = []
        chains = _Chains(committed or {})
        for (cohort, generation), counters in sums.items():
            if generation >= merged.get(cohort, 0):
                add_counters(total, counters)
                counted += places[cohort, generation]
                for is_merged, numbers in numbered[cohort, generation]:
                    chains.add(cohort, numbers, is_merged=is_merged)
        return Genuine(total, sorted(counted), len(records) - len(counted), *chains.ends())

    def merge(
        self, cohort: int, ciphertexts: Sequence[bytes], epoch: str = "", generation: int = 0
    ) -> tuple[bytes, list[int]]:
        """Return one ciphertext that holds the sum of all genuine ones of a cohort, and where these stand."""
        genuine = self.genuine([(cohort, ciphertext) for ciphertext in ciphertexts])
        head = _HEAD.pack(_VERSION, True, generation, epoch.encode())
        numbers = {writer: last for (_, writer), last in genuine.last.items()} | {_MISSING: genuine.missing}
        return self._encrypt(cohort, within_bound(genuine.counters), numbers, head), genuine.places


class _Chains:
    """The numbers of records by cohort and writer: what stands in merged ones, and what follows them."""

    def __init__(self, committed: Mapping[Link, int]) -> None:
        self._committed = committed
        self._merged: dict[Link, int] = {}
        self._single: dict[Link, set[int]] = {}
        self._missing = 0

    def add(self, cohort: int, numbers: Numbers, *, is_merged: bool) -> None:
        for writer, number in numbers.items():
            if writer == _MISSING:
                self._missing += number
            elif is_merged:
                self._merged[cohort, writer] = number
            else:
                self._single.setdefault((cohort, writer), set()).add(number)

    def ends(self) -> tuple[dict[Link, int], int]:
        """Return the last number of every writer in a cohort, and how many records up to these are missing."""
        last, missing = {}, self._missing
        for link in {*self._merged, *self._single, *self._committed}:
            merged = self._merged.get(link, 0)
            later = {number for number in self._single.get(link, ()) if number > merged}
            last[link] = max(merged, self._committed.get(link, 0), *later)
            missing += last[link] - merged - len(later)
        return last, missing


def _first_part(text: bytes) -> tuple[bytes, bytes]:
    """Return the first part of a text that begins with its length, and what follows."""
    end = _LENGTH + int.from_bytes(text[:_LENGTH], "big")
    return text[_LENGTH:end], text[end:]


def _label(cohort: int, head: bytes) -> bytes:
    return b"kanab/1 cohort %d" % cohort + (b"" if head == _OLD_HEAD else head)


def _parts(ciphertext: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the head of a ciphertext, what makes its key, its nonce, and its text; as far as they are there."""
    salt = len(_OLD_HEAD) if ciphertext[:1] == _OLD_HEAD else _HEAD.size
    nonce, text = salt + _SALT, salt + _SALT + _NONCE
    return ciphertext[:salt], ciphertext[salt:nonce], ciphertext[nonce:text], ciphertext[text:]
