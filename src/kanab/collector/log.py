"""The log of a collector: sentences with time and level, as text or JSON, on the standard error stream.

Sentences are this program's own words: no address, no body, nothing that a person sent. What libraries and
mistakes of this program would print could repeat such things, so only their kind and their place are told.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

REPEAT_SECONDS = 60.0
"""Seconds within which the same sentence of a library is told once."""

_PREFIX = "kanab: "


class Level(StrEnum):
    """How much a sentence matters: for the record, to be looked at, to be mended."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Say(Protocol):
    """Takes a sentence for the operator."""

    def __call__(self, sentence: str, level: Level = Level.INFO, /) -> None:
        """Tell the operator."""


def say_nothing(_sentence: str, _level: Level = Level.INFO, /) -> None:
    """Tell nobody."""


class Log:
    """Writes a line for every sentence.

    >>> log = Log(stream=sys.stdout, clock=lambda: datetime(2026, 11, 16, 9, tzinfo=UTC))
    >>> log("sealed the cohorts through 2026-W46.")
    2026-11-16T09:00:00Z info kanab: sealed the cohorts through 2026-W46.
    >>> Log("json", sys.stdout, log.clock)("the disk of the store is full. Free some room.", Level.ERROR)
    {"time": "2026-11-16T09:00:00Z", "level": "error", "message": "the disk of the store is full. Free some room."}
    """

    def __init__(
        self,
        form: Literal["text", "json"] = "text",
        stream: TextIO | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.clock = clock
        self._form, self._stream, self._lock = form, stream, threading.Lock()
        self._written: dict[str, float] = {}

    def __call__(self, sentence: str, level: Level = Level.INFO, /) -> None:
        """Write a line; a stream that is closed or full must not stop a collector."""
        words = " ".join(sentence.removeprefix(_PREFIX).split())  # names of a plan may hold line ends
        moment = f"{self.clock():%Y-%m-%dT%H:%M:%SZ}"
        if self._form == "json":
            line = json.dumps({"time": moment, "level": level.value, "message": words}, ensure_ascii=False)
        else:
            line = f"{moment} {level.value} {_PREFIX}{words}"
        stream = self._stream or sys.stderr
        with self._lock, suppress(OSError, ValueError):
            stream.write(line + "\n")
            stream.flush()

    def take_over(self) -> None:
        """Take what libraries log and what nobody catches, in this whole process: of both, the kind and the place."""
        logging.lastResort = None
        logging.getLogger().handlers = [_KindOnly(self)]
        sys.excepthook = lambda kind, problem, _: self._mistake(kind, problem)
        sys.unraisablehook = lambda args: self._mistake(args.exc_type, args.exc_value)
        threading.excepthook = lambda args: self._mistake(args.exc_type, args.exc_value)

    def rarely(self, sentence: str, level: Level) -> None:
        """Tell something that may come very often, at most once a minute."""
        now = time.monotonic()
        if now - self._written.get(sentence, -REPEAT_SECONDS) >= REPEAT_SECONDS:
            self._written[sentence] = now
            self(sentence, level)

    def _mistake(self, kind: type[BaseException], problem: BaseException | None) -> None:
        if not issubclass(kind, SystemExit | KeyboardInterrupt):
            self.rarely(f"a mistake of this program: {kind.__name__}{_place(problem)}. Please report it.", Level.ERROR)


class _KindOnly(logging.Handler):
    """Tells which library logged something, and of an exception its kind and place: messages may hold what was sent."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it, at most once a minute."""
        kind, problem, _ = record.exc_info if isinstance(record.exc_info, tuple) else (None, None, None)
        what = f": {kind.__name__}{_place(problem)}" if kind is not None else ""
        level = Level.ERROR if record.levelno >= logging.ERROR else Level.WARNING
        self._log.rarely(f"{record.name.partition('.')[0]} reports a problem{what}.", level)


def _place(problem: BaseException | None) -> str:
    """Return where an exception was raised: the last line of this package that it came through."""
    frames: list[Any] = list(traceback.walk_tb(problem.__traceback__)) if problem is not None else []
    package = Path(__file__).parents[1]
    ours = [(Path(frame.f_code.co_filename), line) for frame, line in frames]
    ours = [(path, line) for path, line in ours if path.is_relative_to(package)]
    return f" at {ours[-1][0].relative_to(package)}:{ours[-1][1]}" if ours else ""
