"""Ledgers: all releases about one population, chained by hash.

One line per release, after a line that names the format. A line that was edited no longer has its
own hash; a line that was removed or moved breaks the chain. That the last lines are missing only
shows against the files: `kanab audit` compares them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from kanab.arguments import check_arguments
from kanab.atomicfile import write_whole
from kanab.errors import KanabError, LedgerError
from kanab.plan.model import Plan
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_from_dict, release_to_dict

FORMAT = "kanab-ledger/1"
_HEADER = json.dumps({"format": FORMAT})
_UNKNOWN = "Give a ledger that kanab release wrote, or another name for a new one."


@dataclass(frozen=True, eq=False)
class Ledger:
    """Releases in their order, and their hashes."""

    releases: tuple[Release, ...] = ()
    hashes: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """The hash of the last release; empty before the first."""
        return self.hashes[-1] if self.hashes else ""

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans that have to be counted again before a further release about the same people."""
        return tuple(release.plan for release in self.releases if release.receipt.batch is None)


@check_arguments()
def read_ledger(path: str | PathLike[str]) -> Ledger:
    """Read and verify a ledger; one that does not exist yet is empty. Raises `LedgerError` where it was changed."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Ledger()
    except UnicodeDecodeError:
        raise LedgerError(f"{file.name} is not a ledger", _UNKNOWN) from None
    except OSError as problem:
        raise LedgerError(f"{file.name} cannot be read: {problem.strerror}", "Check the path.") from None
    return _verified(text, file.name)


def _verified(text: str, name: str) -> Ledger:
    first, *lines = text.split("\n")
    if first != _HEADER:
        raise LedgerError(f"{name} is not a ledger", _UNKNOWN)
    if not text.endswith("\n"):
        raise LedgerError(f"the end of {name} is missing", "Take it from a backup.")
    return verified_entries(lines[:-1], name)


def verified_entries(lines: Iterable[str | bytes], name: str) -> Ledger:
    """Return a ledger from its entries. Raises `LedgerError` where an entry was changed, removed or moved."""
    releases: list[Release] = []
    hashes: list[str] = []
    for number, line in enumerate(lines, start=1):
        releases.append(_entry(line, number, name))
        if releases[-1].previous != (hashes[-1] if hashes else ""):
            raise LedgerError(
                f"entry {number} of {name} does not follow the one before it: an entry was removed or moved",
                "Take the ledger from a backup; do not release into it.",
            )
        hashes.append(json.loads(line)["hash"])
    return Ledger(tuple(releases), tuple(hashes))


def _entry(line: str | bytes, number: int, name: str) -> Release:
    try:
        return release_from_dict(json.loads(line))
    except (ValueError, RecursionError, KanabError):
        raise LedgerError(
            f"entry {number} of {name} has been changed", "Take the ledger from a backup; do not release into it."
        ) from None


@contextmanager
def hold_ledger(path: str | PathLike[str]) -> Iterator[Ledger]:
    """Lock a ledger and yield it verified. Raises `LedgerError` where it was changed or another process holds it."""
    file = Path(path)
    with _locked(file.with_name(f".{file.name}.lock"), file.name):
        yield read_ledger(file)


def append_release(path: str | PathLike[str], ledger: Ledger, release: Release) -> Ledger:
    """Add a release to a ledger that is held, whole or not at all. Raises `LedgerError` where it does not follow."""
    plain = release_to_dict(release)
    if release.previous != ledger.head:
        raise LedgerError("the release was made for another state of the ledger", "Release it again.")
    longer = Ledger((*ledger.releases, release), (*ledger.hashes, plain["hash"]))
    write_whole(path, ledger_text(longer))
    return longer


def ledger_text(ledger: Ledger) -> str:
    """Return the text of a ledger's file."""
    entries = (release_to_dict(release) for release in ledger.releases)
    lines = [_HEADER, *(json.dumps(entry, ensure_ascii=False, allow_nan=False) for entry in entries)]
    return "\n".join(lines) + "\n"


@contextmanager
def _locked(lock: Path, name: str) -> Iterator[None]:
    """Let one process in at a time; the lock goes with the process, also when it is killed."""
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as problem:
        raise LedgerError(f"{name} cannot be opened: {problem.strerror}", "Check the folder.") from None
    try:
        _take(handle, lock, name)
        try:
            yield
        finally:
            with suppress(OSError):
                lock.unlink()
    finally:
        os.close(handle)


def _take(handle: int, lock: Path, name: str) -> None:
    busy = LedgerError(f"another release into {name} is under way", "Try again when it has finished.")
    try:
        import fcntl  # noqa: PLC0415 - not on Windows
    except ImportError:
        import msvcrt  # noqa: PLC0415

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            raise busy from None
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        same_file = os.fstat(handle).st_ino == lock.stat().st_ino  # whoever had it may have removed it
    except OSError:
        raise busy from None
    if not same_file:
        raise busy
