"""Counting for commands: the source, how its rows become people, and progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from kanab.cli.options import pairs
from kanab.counted import Counted
from kanab.plan import Plan
from kanab.sources.dispatch import count


def is_release(source: str) -> bool:
    """A JSON file is a release; no other source is JSON."""
    return Path(source).suffix == ".json"


def counted_source(source: str, plan: Plan, given: Mapping[str, Any]) -> Counted:
    """Count the source of a command."""
    with progress(f"counting {len(plan.linkages)} table{'s' if len(plan.linkages) > 1 else ''}"):
        return count(
            source,
            plan,
            unit=given["unit"],
            aggregate=pairs(given["aggregate"], "--aggregate") or None,
            where=given["where"],
            table=given["table"],
            sql=given["sql"],
        )


@contextmanager
def progress(words: str) -> Iterator[None]:
    """A spinner on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(words):
        yield
