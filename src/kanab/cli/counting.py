"""Counting for commands: the source, how its rows become people, and progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from kanab.cli.source_options import pairs
from kanab.counted import Counted
from kanab.counting.dispatch import Reading, count, explain
from kanab.errors import PlanError
from kanab.plan.model import Plan
from kanab.plan.periods import Span


def is_release(source: str) -> bool:
    """A JSON file is a release; no other source is JSON."""
    return Path(source).suffix == ".json"


def counted_source(
    source: str, plan: Plan, given: Mapping[str, Any], *, earlier: Sequence[Plan] = (), span: Span | None = None
) -> Counted:
    """Count the source of a command; older plans again, and some cohorts only, where a ledger wants it."""
    reading = replace(reading_of(given), span=span)
    if given["show_sql"]:
        click.echo(explain(source, plan, reading, earlier))
        sys.exit(0)
    tables = sum(len(one.linkages) for one in (plan, *earlier))
    with progress(f"counting {tables} table{'s' if tables > 1 else ''}"):
        choices = {one.name: getattr(reading, one.name) for one in fields(reading)}
        return count(source, plan, earlier=earlier, **choices)


def reading_of(given: Mapping[str, Any]) -> Reading:
    """How the flags say that rows become people."""
    if given["exposures"] and given["table"]:
        raise PlanError("--table and --exposures name the same thing", "Leave one out.")
    return Reading(
        given["unit"],
        pairs(given["aggregate"], "--aggregate") or None,
        given["where"],
        given["table"] or given["exposures"],
        given["sql"],
        given["events"],
        given["window"] if given["events"] or not given.get("cohort") else None,
        given["time"],
        given["exposure_time"],
    )


@contextmanager
def progress(words: str) -> Iterator[None]:
    """A spinner on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(words):
        yield
