"""The witness: a small file beside the key that says how far a store had come.

It is kept where backups of the store do not reach, and holds nothing about people: which key chain, which epoch, the
number of the last commit that a collector knows to be durable, and how many records each writer had committed to each
open cohort. A store that has not come as far is an older one; from one that lacks records, rows were deleted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from kanab.atomicfile import write_whole
from kanab.errors import SourceError, StoreError

_FORMAT = "kanab-witness/1"
_FIRST_EPOCH = "-"


Link = tuple[int, str]
"""A cohort, and a writer of its records."""


class Seen(NamedTuple):
    """How far a store had come: its epoch, the number of a commit, and how many records it had of each writer."""

    epoch: str
    number: int
    records: Mapping[Link, int] = MappingProxyType({})

    def join(self, other: Seen | None) -> Seen:
        """Return the farther of both in everything; this one if the other is of another epoch."""
        if other is None or other.epoch != self.epoch:
            return self
        records = {**self.records}
        for link, number in other.records.items():
            records[link] = max(number, records.get(link, 0))
        return Seen(self.epoch, max(self.number, other.number), records)


class Witness:
    """The file, for the store of one key chain."""

    def __init__(self, path: str | os.PathLike[str], fingerprint: bytes) -> None:
        self.path = Path(path)
        self._fingerprint = fingerprint.hex()

    def read(self) -> Seen | None:
        """Return what was noted; None if there is no file, it is damaged, or that of another key chain."""
        with suppress(OSError, ValueError):
            first, *others = self.path.read_text(encoding="ascii").splitlines()
            name, fingerprint, epoch, number = first.split()
            if (name, fingerprint) == (_FORMAT, self._fingerprint):
                records = {(int(cohort), writer): int(last) for cohort, writer, last in map(str.split, others)}
                return Seen("" if epoch == _FIRST_EPOCH else epoch, int(number), records)
        return None

    def note(self, seen: Seen, sealed_through: int = -1) -> None:
        """Write how far the store has come; raises `StoreError` where the file cannot be written.

        Another collector of this machine may know of more: a number of the same epoch never falls. Records of cohorts
        that are sealed need no witness any more.
        """
        before = self.read()
        seen = seen.join(before)
        seen = seen._replace(records={link: last for link, last in seen.records.items() if link[0] > sealed_through})
        if seen == before:
            return
        lines = [f"{_FORMAT} {self._fingerprint} {seen.epoch or _FIRST_EPOCH} {seen.number}"]
        lines += [f"{cohort} {writer} {last}" for (cohort, writer), last in sorted(seen.records.items())]
        try:
            write_whole(self.path, "\n".join([*lines, ""]))
        except SourceError as problem:
            raise StoreError(problem.fact, problem.remedy) from None


def witness_beside(key: Path) -> Path:
    """Return where the witness of a store is kept by default: beside its key."""
    return key.with_name(f"{key.name}.witness")
