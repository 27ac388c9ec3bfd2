"""Exports of the ledger, whole, to a folder or an address that fsspec writes (``s3://bucket/folder``).

An export runs in a thread of its own, so that a slow network holds no seal up, and one that fails is tried again.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kanab.atomicfile import write_whole
from kanab.collector.log import Level, Say, say_nothing
from kanab.collector.readiness import Problem, Readiness
from kanab.errors import KanabError, SourceError
from kanab.privacy.ledger import ledger_text, verified_entries

LEDGER = "kanab.ledger"
"""The file of an export."""

RETRY_SECONDS = 60.0
"""Seconds between two tries of an export that fails."""

_WHOLE_BY_NATURE = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory")


class Export:
    """Writes the ledger to a place after every seal."""

    def __init__(self, to: str, readiness: Readiness | None = None, say: Say = say_nothing) -> None:
        self._to = to
        self._readiness, self._say = readiness or Readiness(), say
        self._written: Sequence[bytes] = ()
        self._tried = -RETRY_SECONDS
        self._thread: threading.Thread | None = None
        if is_address(to):
            opened_address(to)

    def offer(self, entries: Sequence[bytes]) -> None:
        """Begin to write the ledger of these entries, unless it is written already or was tried just now."""
        running = self._thread is not None and self._thread.is_alive()
        if running or not entries or list(entries) == self._written or time.monotonic() - self._tried < RETRY_SECONDS:
            return
        self._thread = threading.Thread(target=self._write, args=[list(entries)], name="kanab-export", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until an export that has begun is over, or so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _write(self, entries: list[bytes]) -> None:
        try:
            with self._readiness.guard(Problem.EXPORT):
                text = ledger_text(verified_entries(entries, "the store"))
                if is_address(self._to):
                    write_address(f"{self._to.rstrip('/')}/{LEDGER}", text)
                else:
                    with suppress(OSError):  # what is wrong shows when the file is written
                        Path(self._to).mkdir(parents=True, exist_ok=True)
                    write_whole(Path(self._to) / LEDGER, text)
        except KanabError as problem:
            self._tried = time.monotonic()
            self._say(f"kanab: the ledger was not exported: {problem} It is tried again.", Level.WARNING)
        else:
            self._tried, self._written = -RETRY_SECONDS, entries
            self._say("kanab: the ledger was exported.")


def is_address(to: str) -> bool:
    """Return whether a place is an address such as s3://bucket, and no folder."""
    return "://" in to


def write_address(address: str, text: str) -> None:
    """Write a file at an address, whole or not at all. Raises `SourceError` where that fails."""
    system, path = opened_address(address)
    scheme = address.partition("://")[0]
    try:
        if scheme in _WHOLE_BY_NATURE:
            system.pipe_file(path, text.encode())
            return
        parent, _, name = path.rpartition("/")
        system.makedirs(parent, exist_ok=True)
        system.pipe_file(f"{parent}/.{name}.part", text.encode())
        system.mv(f"{parent}/.{name}.part", path)
    except Exception as problem:  # of any network library; its words may hold the address and its secrets
        kind = type(problem).__name__
        raise SourceError(f"the file cannot be written to {scheme}:// ({kind})", "Check address and rights.") from None


def opened_address(address: str) -> tuple[Any, str]:
    """Return the file system and the path of an address; raises `SourceError` where a package is missing."""
    scheme = address.partition("://")[0]
    try:
        import fsspec  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415 - for addresses

        system, path = fsspec.core.url_to_fs(address)
    except ImportError:
        packages = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
        names = " ".join(["fsspec", *([packages[scheme]] if scheme in packages else [])])
        raise SourceError(f"writing to {scheme}:// needs a package", f"Run: pip install {names}") from None
    except Exception as problem:
        fact = f"{scheme}:// cannot be opened ({type(problem).__name__})"
        raise SourceError(fact, "Give a folder, or an address that fsspec knows, such as s3://bucket.") from None
    return system, path
