"""kanab attack: what could somebody learn from these files?"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanab.atomicfile import read_text
from kanab.cli.output import json_option, progress, show_report
from kanab.cli.released_sources import values_at
from kanab.cli.source_options import level, number
from kanab.errors import SourceError

NO_TEXT = ("is not UTF-8 text", "Give the file as it was written.")

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kanab.inspection.attack.known_people import KnownPeople
    from kanab.inspection.attack.published import AttackedRelease
    from kanab.tally.factor import Level


@click.command()
@click.argument("file", nargs=-1, required=True, metavar="FILE...")
@click.option("--known", type=click.Path(dir_okay=False), help="CSV of what the attacker knows: one row per person.")
@click.option(
    "--k", type=click.IntRange(2), help="Fewer people than this are a break; default: the largest k of the files."
)
@json_option
def attack(file: tuple[str, ...], *, known: str | None, k: int | None, as_json: bool) -> None:
    """Try to learn about people from releases.

    Play the attacker on release FILEs, ledgers or data directories, all of them together. Exits with 1 if something was
    learnt about fewer than k people that k promises to hide. The columns of --known are named like the arms and
    covariates of the tables, and like metrics whose values are known, too.

    \b
    kanab attack monday.release.json tuesday.release.json
    kanab attack checkout.release.json --known people.csv
    kanab attack kanab.ledger
    """
    from kanab.inspection.attack.run import attack as attack_all
    from kanab.inspection.attack.run import read_published

    with progress("attacking"):
        sources = values_at(file)
        people = None if known is None else _people(known, read_published(sources))
        report = attack_all(sources, known=people, k=k)
    show_report(report, as_json=as_json, failed=report.broken)


def _people(path: str, releases: Sequence[AttackedRelease]) -> KnownPeople:
    """Read the columns of a CSV file: arms and levels as the releases have them, and values of their metrics."""
    import numpy as np

    from kanab.inspection.attack.known_people import KnownPeople
    from kanab.inspection.attack.published import finest_levels
    from kanab.tally.factor import label

    rows = list(csv.reader(read_text(path, otherwise=NO_TEXT).splitlines()))
    if len(rows) < 2 or any(len(row) != len(rows[0]) for row in rows):
        raise SourceError(f"{Path(path).name} is not a table of people", "Give a CSV file: names, then a row each.")
    columns: dict[str, list[Any]] = {}
    tables = list(chain.from_iterable(release.tables for release in releases))
    metrics = {part.metric.name for part in chain.from_iterable(table.moments for table in tables)}
    numbers: dict[str, NDArray[np.float64]] = {}
    for name, *values in zip(*rows, strict=True):
        versions = [axis for axis in chain.from_iterable(table.axes for table in tables) if axis.name == name]
        if name in metrics:
            numbers[name] = np.array([_value(value) for value in values], dtype=np.float64)
        if versions:
            spelled: dict[str, Level] = {label(known): known for known in finest_levels(versions)}
            columns[name] = [spelled[value] if value in spelled else level(value or None) for value in values]
    return KnownPeople(columns, numbers)


def _value(text: str) -> float:
    """Return a value of a metric as CSV files have it: a number, true or false, or none."""
    truth = {"": math.nan, "true": 1.0, "false": 0.0}.get(text.lower())
    return number(text, "--known") if truth is None else truth
