"""The witness: a small file beside the key that says how far a store had come.

It is kept where backups of the store do not reach, and holds nothing about people: which key chain, which epoch, and
the number of the last commit that a collector knows to be durable. A store that has not come as far is an older one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kanab.atomicfile import write_whole
from kanab.errors import SourceError, StoreError

_FORMAT = "kanab-witness/1"
_FIRST_EPOCH = "-"


class Seen(NamedTuple):
    """How far a store had come: its epoch, and the number of a commit."""

    epoch: str
    number: int


class Witness:
    """The file, for the store of one key chain.

    >>> import tempfile
    >>> witness = Witness(Path(tempfile.mkdtemp()) / "kanab-data.key.witness", b"which chain")
    >>> witness.note(Seen("", 12))
    >>> witness.read()
    Seen(epoch='', number=12)
    """

    def __init__(self, path: str | os.PathLike[str], fingerprint: bytes) -> None:
        self.path = Path(path)
        self._fingerprint = fingerprint.hex()
        self._noted: Seen | None = None

    def read(self) -> Seen | None:
        """Return what was noted; None if there is no file, it is damaged, or that of another key chain."""
        with suppress(OSError, ValueError):
            name, fingerprint, epoch, number = self.path.read_text(encoding="ascii").split()
            if (name, fingerprint) == (_FORMAT, self._fingerprint):
                return Seen("" if epoch == _FIRST_EPOCH else epoch, int(number))
        return None

    def note(self, seen: Seen) -> None:
        """Write how far the store has come; raises `StoreError` where the file cannot be written.

        Another collector of this machine may know of more: a number of the same epoch never falls.
        """
        if seen == self._noted:
            return
        before = self.read()
        if before is None or before.epoch != seen.epoch or before.number < seen.number:
            line = f"{_FORMAT} {self._fingerprint} {seen.epoch or _FIRST_EPOCH} {seen.number}\n"
            try:
                write_whole(self.path, line)
            except SourceError as problem:
                raise StoreError(problem.fact, problem.remedy) from None
        self._noted = seen


def witness_beside(key: Path) -> Path:
    """Return where the witness of a store is kept by default: beside its key.

    >>> witness_beside(Path("shop/kanab-data.key")).as_posix()
    'shop/kanab-data.key.witness'
    """
    return key.with_name(f"{key.name}.witness")
