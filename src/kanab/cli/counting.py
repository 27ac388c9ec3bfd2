"""Counting for commands: the source, how its rows become people, and progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from kanab.cli.source_options import pairs
from kanab.counted import Counted
from kanab.counting.dispatch import SourceOptions, count_source, explain
from kanab.errors import PlanError
from kanab.plan.model import Plan
from kanab.plan.periods import Span


def is_release(source: str) -> bool:
    """Check for a JSON file: it is a release, and no other source is JSON."""
    return Path(source).suffix == ".json"


def counted_source(
    source: str, plan: Plan, flags: Mapping[str, Any], *, earlier: Sequence[Plan] = (), span: Span | None = None
) -> Counted:
    """Count the source of a command; older plans again, and some cohorts only, where a ledger needs it."""
    options = replace(source_choices(flags), span=span)
    if flags["show_sql"]:
        click.echo(explain(source, plan, options, earlier))
        sys.exit(0)
    tables = sum(len(counted.linkages) for counted in (plan, *earlier))
    with progress(f"counting {tables} table{'s' if tables > 1 else ''}"):
        return count_source(source, plan, options, earlier)


def source_choices(flags: Mapping[str, Any]) -> SourceOptions:
    """Return what the flags say about rows and people."""
    if flags["exposures"] and flags["table"]:
        raise PlanError("--table and --exposures name the same thing", "Leave one out.")
    return SourceOptions(
        flags["unit"],
        pairs(flags["aggregate"], "--aggregate") or None,
        flags["where"],
        flags["table"] or flags["exposures"],
        flags["sql"],
        flags["events"],
        flags["window"] if flags["events"] or not flags.get("cohort") else None,
        flags["time"],
        flags["exposure_time"],
    )


@contextmanager
def progress(words: str) -> Iterator[None]:
    """Show a spinner on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(words):
        yield
