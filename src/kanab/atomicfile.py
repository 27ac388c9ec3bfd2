"""Files: written whole or not at all, read as text or refused with a reason."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from os import PathLike
from pathlib import Path

from kanab.errors import KanabError, SourceError


def read_text(
    path: str | PathLike[str],
    error: type[KanabError] = SourceError,
    *,
    otherwise: tuple[str, str] = ("is not UTF-8 text", "Save it as UTF-8."),
) -> str:
    """Read a UTF-8 file. Raises ``error`` where it cannot be read, with ``otherwise`` where it is no text."""
    file = Path(path)
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise error(f"there is no file {file.name!r}", "Check the path.") from None
    except UnicodeDecodeError:
        raise error(f"{file.name} {otherwise[0]}", otherwise[1]) from None
    except OSError as problem:
        raise error(f"{file.name or path} cannot be read: {problem.strerror}", "Check the path.") from None


def write_whole(path: str | PathLike[str], text: str | bytes, under: str = "") -> None:
    """Replace a file by a text or bytes, or leave it as it was; ``under`` is a temporary name, else it is a random one.

    Raises `SourceError` where it cannot be written.
    """
    with staged(path, text, under) as finish:
        finish()


@contextmanager
def staged(path: str | PathLike[str], text: str | bytes, under: str = "") -> Iterator[Callable[[], None]]:
    """Write a text under a temporary name, and yield the function that renames it to its own.

    Without that call nothing is left behind. A pipe or a device (``/dev/null``) is written into, never replaced.
    Raises `SourceError` where the file cannot be written.
    """
    target, temporary = Path(path), ""
    data = text.encode() if isinstance(text, str) else text
    if target.exists() and not target.is_file() and not target.is_dir():
        yield partial(_write_into, target, data)
        return

    def finish() -> None:
        with _explained(target):
            Path(temporary).replace(target)
        _sync_folder(target.parent)

    try:
        with _explained(target):
            if under:
                temporary = str(target.with_name(under))
                handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            else:
                handle, temporary = tempfile.mkstemp(dir=target.parent or ".", prefix=f".{target.name}.", text=False)
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).chmod(0o644)
        yield finish
    finally:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink()


def _sync_folder(folder: Path) -> None:
    """Make a new name last, where folders can be synced: what is said afterwards must not be forgotten."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write_into(target: Path, data: bytes) -> None:
    with _explained(target):
        target.write_bytes(data)


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise SourceError(f"{target.name} cannot be written: {problem.strerror}", "Check the folder.") from None
