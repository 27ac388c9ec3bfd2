"""Writing files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from kanab.errors import SourceError


def write_whole(path: str | PathLike[str], text: str) -> None:
    """Replace a file by a text, or leave it as it was. Raises `SourceError` where it cannot be written."""
    with staged(path, text) as finish:
        finish()


@contextmanager
def staged(path: str | PathLike[str], text: str) -> Iterator[Callable[[], None]]:
    """Write a text under a temporary name, and yield the function that renames it to its own.

    Without that call nothing is left behind. Raises `SourceError` where the file cannot be written.
    """
    target = Path(path)
    temporary = ""

    def finish() -> None:
        with _explained(target):
            Path(temporary).replace(target)

    try:
        with _explained(target):
            handle, temporary = tempfile.mkstemp(dir=target.parent or ".", prefix=f".{target.name}.", text=False)
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).chmod(0o644)
        yield finish
    finally:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink()


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise SourceError(f"{target.name} cannot be written: {problem.strerror}", "Check the folder.") from None
