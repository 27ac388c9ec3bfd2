"""The program without a process of its own: what the console script calls, with its arguments and its exit code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Program = Callable[..., "Ended"]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str
