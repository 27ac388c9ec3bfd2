"""The key file: one link of a chain, written twice, so that it can be replaced without being lost.

Two lines of equal length say the same. Moving on overwrites them in place, one after the other,
each followed by a sync: a crash leaves one line whole, and in the end the old bytes are gone.
(What a file system or a disk keeps of overwritten blocks is beyond a program: docs/how-to/keys-and-backups.md.)
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kanab.errors import StoreError

_LINE = re.compile(rb"kanab-key/1 (\d{12}) ([0-9a-f]{64}) ([0-9a-f]{64}) ([0-9a-f]{16})\n")
_WIDTH = len("kanab-key/1") + 1 + 12 + 1 + 64 + 1 + 64 + 1 + 16 + 1
_APART = "Keep a copy apart from the backups of the store; without it open cohorts are lost, sealed ones are not."


class Link(NamedTuple):
    """What the file holds: a period, its state, and the key of nonce hashes."""

    period: int
    state: bytes
    nonce_key: bytes


def key_beside(data: Path) -> Path:
    """Where the key of a data directory is kept unless told otherwise: beside it, so that copying one leaves the other.

    >>> key_beside(Path("shop/kanab-data")).as_posix()
    'shop/kanab-data.key'
    """
    return data.with_name(f"{data.name}.key")


def check_apart(path: Path, data: Path) -> None:
    """Refuse a key file inside the data directory: whoever copies that would have both."""
    if path.resolve().is_relative_to(data.resolve()):
        raise StoreError("the key file lies in the data directory", "Keep it beside or elsewhere (--key FILE).")


def read_key_file(path: Path) -> Link:
    """The newest whole line; if a crash left an older one beside it, that one is overwritten now."""
    with _opened(path) as handle:
        newest = _newest(handle, path)
        _write(handle, newest)
        return newest


def create_key_file(path: Path, link: Link) -> None:
    """Write a new file with mode 0600; one that is already there stays as it is."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        try:
            _write(handle, link)
        finally:
            os.close(handle)
        with suppress(FileExistsError):
            os.link(temporary, path)  # unlike a rename it never replaces a file
        _sync_folder(path.parent)
    except OSError as problem:
        raise StoreError(f"{path.name} cannot be written: {problem.strerror}", "Check the folder.") from None
    finally:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink()


def move_key_file(path: Path, link: Link) -> None:
    """Overwrite the file by a later link; one that another process wrote meanwhile may be later still."""
    with _opened(path) as handle:
        newest = _newest(handle, path)
        if newest.nonce_key != link.nonce_key:
            raise StoreError(f"{path.name} now holds the key of another store", "Put the right key file back.")
        _write(handle, max(newest, link))


def _newest(handle: int, path: Path) -> Link:
    found = [link for _, link in _lines(handle) if link is not None]
    if not found:
        raise StoreError(f"{path.name} is not a key file, or is damaged", _APART)
    return max(found)


def _lines(handle: int) -> list[tuple[int, Link | None]]:
    """Both places in the file, with the link that each holds."""
    return [(place, _parsed(os.pread(handle, _WIDTH, place))) for place in (0, _WIDTH)]


def _write(handle: int, link: Link) -> None:
    """Put a link into both places, first where nothing or the older one is."""
    for place, held in sorted(_lines(handle), key=lambda line: (line[1] is not None, line[1] or (), line[0])):
        if held != link:
            os.pwrite(handle, _spelled(link), place)
            os.fsync(handle)


def _spelled(link: Link) -> bytes:
    text = f"kanab-key/1 {link.period:012d} {link.state.hex()} {link.nonce_key.hex()}"
    return f"{text} {_check(text.encode())}\n".encode()


def _parsed(line: bytes) -> Link | None:
    found = _LINE.fullmatch(line)
    if found is None or _check(line[:-18]) != found[4].decode():
        return None
    return Link(int(found[1]), bytes.fromhex(found[2].decode()), bytes.fromhex(found[3].decode()))


def _check(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The file, held against other processes, if nobody else may read it."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        raise StoreError(f"there is no key file {path.name!r}", _APART) from None
    except OSError as problem:
        raise StoreError(
            f"{path.name} cannot be opened for writing: {problem.strerror}", "A seal has to erase keys from it."
        ) from None
    try:
        if os.name == "posix" and stat.S_IMODE(os.fstat(handle).st_mode) & 0o077:
            raise StoreError(f"others may read the key file {path.name!r}", f"Run: chmod 600 {path.name}")
        _hold(handle)
        yield handle
    except OSError as problem:
        raise StoreError(f"{path.name} cannot be written: {problem.strerror}", "Check the disk.") from None
    finally:
        os.close(handle)


def _hold(handle: int) -> None:
    with suppress(ImportError):
        import fcntl  # noqa: PLC0415 - not on Windows, where one collector has the file

        fcntl.flock(handle, fcntl.LOCK_EX)  # goes with the handle, also when the process is killed


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
