"""The log of a collector: sentences with time and level, as text or JSON, on the standard error stream.

Sentences are this program's own words: no address, no body, nothing that a person sent. What libraries and
mistakes of this program would print could repeat such things, so only their kind and their place are told.
"""

import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

REPEAT_SECONDS = 60.0
"""Seconds within which the same sentence about a library or a mistake is told once."""

_OWN = "kanab"


class Level(IntEnum):
    """How much a sentence matters: for the record, to be looked at, to be mended."""

    INFO = logging.INFO
    WARNING = logging.WARNING
    ERROR = logging.ERROR


class Say(Protocol):
    """Takes a sentence for the operator."""

    def __call__(self, sentence: str, level: Level = Level.INFO, /) -> None:
        """Tell the operator."""


def say_nothing(_sentence: str, _level: Level = Level.INFO, /) -> None:
    """Tell nobody."""


class Log(logging.Handler):
    """Writes a line for every sentence; a stream that is closed or full must not stop a collector."""

    def __init__(
        self,
        form: Literal["text", "json"] = "text",
        stream: TextIO | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__()
        self.clock = clock
        self._form, self._stream = form, stream
        self._written: dict[str, float] = {}

    def __call__(self, sentence: str, level: Level = Level.INFO, /) -> None:
        """Write a line."""
        self.handle(logging.LogRecord(_OWN, level, "", 0, sentence, None, None))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a sentence of ours as it is; of a library's only which one, kind and place, at most once a minute."""
        is_own = record.name == _OWN
        if not is_own and record.levelno < Level.WARNING:
            return
        words = record.getMessage() if is_own else _about(record)
        level = Level.INFO if record.levelno < Level.WARNING else Level.WARNING
        level = Level.ERROR if record.levelno >= Level.ERROR else level
        if not is_own or record.exc_info:
            now = time.monotonic()
            if now - self._written.get(words, -REPEAT_SECONDS) < REPEAT_SECONDS:
                return
            self._written[words] = now
        words = " ".join(words.removeprefix(f"{_OWN}: ").split())  # names of a plan may hold line ends
        moment, name = f"{self.clock():%Y-%m-%dT%H:%M:%SZ}", level.name.lower()
        line = f"{moment} {name} {_OWN}: {words}"
        if self._form == "json":
            line = json.dumps({"time": moment, "level": name, "message": words}, ensure_ascii=False)
        with suppress(OSError, ValueError):
            print(line, file=self._stream or sys.stderr, flush=True)

    def take_over(self) -> None:
        """Take what libraries log and what nobody catches, in this whole process: of both, the kind and the place."""
        logging.lastResort = None
        logging.getLogger().handlers = [self]
        sys.excepthook = lambda kind, problem, _: self._mistake(kind, problem)
        sys.unraisablehook = lambda args: self._mistake(args.exc_type, args.exc_value)
        threading.excepthook = lambda args: self._mistake(args.exc_type, args.exc_value)

    def _mistake(self, kind: type[BaseException], problem: BaseException | None) -> None:
        if not issubclass(kind, SystemExit | KeyboardInterrupt):
            words = f"a mistake of this program: {kind.__name__}{_place(problem)}. Please report it."
            self.handle(logging.LogRecord(_OWN, Level.ERROR, "", 0, words, None, (kind, problem, None)))  # type: ignore[arg-type]


def _about(record: logging.LogRecord) -> str:
    """Return which library logged something, and of an exception kind and place: messages may hold what was sent."""
    kind, problem, _ = record.exc_info if isinstance(record.exc_info, tuple) else (None, None, None)
    what = f": {kind.__name__}{_place(problem)}" if kind is not None else ""
    return f"{record.name.partition('.')[0]} reports a problem{what}."


def _place(problem: BaseException | None) -> str:
    """Return where an exception was raised: the last line of this package that it came through."""
    frames: list[Any] = list(traceback.walk_tb(problem.__traceback__)) if problem is not None else []
    package = Path(__file__).parents[1]
    ours = [(Path(frame.f_code.co_filename), line) for frame, line in frames]
    ours = [(path, line) for path, line in ours if path.is_relative_to(package)]
    return f" at {ours[-1][0].relative_to(package)}:{ours[-1][1]}" if ours else ""
