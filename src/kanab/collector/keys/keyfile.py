"""The key file: the state of a key chain, written twice, so that it can be replaced without being lost.

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
_KEEP_A_COPY = "Keep a copy apart from the backups of the store; without it open cohorts are lost, sealed ones are not."


class KeyState(NamedTuple):
    """What the file holds: a period, the state of its key chain, and the key of nonce hashes."""

    period: int
    state: bytes
    nonce_key: bytes


def key_beside(data: Path) -> Path:
    """Return where the key of a data directory is kept by default: beside it, so that copying one leaves the other.

    >>> key_beside(Path("shop/kanab-data")).as_posix()
    'shop/kanab-data.key'
    """
    return data.with_name(f"{data.name}.key")


def check_apart(path: Path, data: Path) -> None:
    """Check that a key file lies outside the data directory, or whoever copies that would have both.

    Raises `StoreError` if it lies inside.
    """
    if path.resolve().is_relative_to(data.resolve()):
        raise StoreError("the key file lies in the data directory", "Keep it beside or elsewhere (--key FILE).")


def read_key_file(path: Path) -> KeyState:
    """Read the newest whole line, and overwrite an older one that a crash left beside it.

    Raises `StoreError` where there is no file, it is damaged, or others may read it.
    """
    with _open(path) as handle:
        newest = _newest(handle, path)
        _write(handle, newest)
        return newest


def peek_key_file(path: Path) -> KeyState:
    """Read the newest whole line and write nothing; raises `StoreError` as `read_key_file` does."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as problem:
        raise StoreError(f"the key file {path.name!r} cannot be read: {problem.strerror}", _KEEP_A_COPY) from None
    try:
        _check_private(handle, path)
        return _newest(handle, path)
    finally:
        os.close(handle)


def create_key_file(path: Path, state: KeyState) -> None:
    """Write a new file with mode 0600; one that is already there stays as it is.

    Raises `StoreError` where the folder cannot be written.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        try:
            _write(handle, state)
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


def move_key_file(path: Path, state: KeyState) -> None:
    """Overwrite the file by a later state, unless another process wrote an even later one.

    Raises `StoreError` if the file now holds the key of another store.
    """
    with _open(path) as handle:
        newest = _newest(handle, path)
        if newest.nonce_key != state.nonce_key:
            raise StoreError(f"{path.name} now holds the key of another store", "Put the right key file back.")
        _write(handle, max(newest, state))


def _newest(handle: int, path: Path) -> KeyState:
    states = [state for _, state in _read_lines(handle) if state is not None]
    if not states:
        raise StoreError(f"{path.name} is not a key file, or is damaged", _KEEP_A_COPY)
    return max(states)


def _read_lines(handle: int) -> list[tuple[int, KeyState | None]]:
    """Return the offsets of both lines, with the state that each holds."""
    return [(offset, _parse(os.pread(handle, _WIDTH, offset))) for offset in (0, _WIDTH)]


def _write(handle: int, state: KeyState) -> None:
    """Write a state into both lines, first where nothing or the older one is."""
    text = f"kanab-key/1 {state.period:012d} {state.state.hex()} {state.nonce_key.hex()}"
    line = f"{text} {_checksum(text.encode())}\n".encode()
    for offset, before in sorted(_read_lines(handle), key=lambda at: (at[1] is not None, at[1] or (), at[0])):
        if before != state:
            os.pwrite(handle, line, offset)
            os.fsync(handle)


def _parse(line: bytes) -> KeyState | None:
    match = _LINE.fullmatch(line)
    if match is None or _checksum(line[:-18]) != match[4].decode():
        return None
    return KeyState(int(match[1]), bytes.fromhex(match[2].decode()), bytes.fromhex(match[3].decode()))


def _checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


@contextmanager
def _open(path: Path) -> Iterator[int]:
    """Open the file, locked against other processes, if nobody else may read it."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        raise StoreError(f"there is no key file {path.name!r}", _KEEP_A_COPY) from None
    except OSError as problem:
        raise StoreError(
            f"{path.name} cannot be opened for writing: {problem.strerror}", "A seal has to erase keys from it."
        ) from None
    try:
        _check_private(handle, path)
        with suppress(ImportError):
            import fcntl  # noqa: PLC0415 - not on Windows, where one collector has the file

            fcntl.flock(handle, fcntl.LOCK_EX)  # goes with the handle, also when the process is killed
        yield handle
    except OSError as problem:
        raise StoreError(f"{path.name} cannot be written: {problem.strerror}", "Check the disk.") from None
    finally:
        os.close(handle)


def _check_private(handle: int, path: Path) -> None:
    if os.name == "posix" and stat.S_IMODE(os.fstat(handle).st_mode) & 0o077:
        raise StoreError(f"others may read the key file {path.name!r}", f"Run: chmod 600 {path.name}")


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
