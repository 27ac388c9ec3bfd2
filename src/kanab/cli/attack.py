"""kanab attack: what could somebody learn from these files?"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanab.atomicfile import read_text
from kanab.cli.output import echo_json, json_option, progress
from kanab.cli.released_sources import is_ledger, releases_at
from kanab.cli.source_options import level, number
from kanab.errors import KanabError, PlanError, SourceError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kanab.inspection.attack.all_but_one import KnownPeople
    from kanab.inspection.attack.published import AttackedRelease
    from kanab.tally.factor import Level


@click.command()
@click.argument("file", nargs=-1)
@click.option("--known", type=click.Path(dir_okay=False), help="CSV of what the attacker knows: one row per person.")
@click.option(
    "--k",
    type=click.IntRange(2),
    help="Fewer people than this are a break; default: the largest k of the files.",
)
@click.option("--exact", is_flag=True, help="Solve in whole numbers, too, which takes longer.")
@click.option("--example", "name", metavar="NAME", help="Attack a bundled bad example; 'list' names them.")
@json_option
def attack(
    file: tuple[str, ...], *, known: str | None, k: int | None, exact: bool, name: str | None, as_json: bool
) -> None:
    """Try to learn about people from releases.

    Play the attacker on release FILEs (or scans in JSON), ledgers or data directories, all of them together. Exits with
    1 if something was learnt about fewer than k people. The columns of --known are named like the arms and covariates
    of the tables, and like metrics whose values are known, too.

    \b
    kanab attack monday.release.json tuesday.release.json
    kanab attack checkout.release.json --known people.csv
    kanab attack kanab.ledger
    kanab attack scan.json --known people.csv
    kanab attack checkout.release.json --known people.csv --exact
    kanab attack --example daily-dashboard
    """
    from kanab.inspection.attack.background import place_people
    from kanab.inspection.attack.examples.catalogue import EXAMPLES, example
    from kanab.inspection.attack.run import play_attacker

    if name == "list":
        click.echo("\n".join(EXAMPLES))
        return
    if bool(file) == (name is not None) or (name is not None and known):
        raise PlanError("what to attack is not said", "Name release files, or one --example.")
    named: KnownPeople | None = None
    with progress("attacking"):
        if name is not None:
            bad = example(name)
            story, releases, background, exact = bad.story, bad.releases, bad.background, exact or bad.exact
        else:
            story, releases, background = "", read_published(file), None
            if known:
                named = _people(known, releases)
                background = place_people(named.levels, releases)
        report = play_attacker(releases, background, k, exact=exact, known=named)
    if as_json:
        echo_json(({} if name is None else {"example": name, "story": story}) | report.to_dict())
    else:
        click.echo(f"{story}\n\n{report}" if story else str(report))
    if report.broken:
        sys.exit(1)


def read_published(files: Sequence[str]) -> tuple[AttackedRelease, ...]:
    """Read releases as an attacker does: also those that the gate would refuse."""
    from kanab.inspection.attack.published import published_from_dict

    short = [Path(file).name for file in files]
    names = short if len(set(short)) == len(short) else list(files)
    releases = []
    for path, name in zip(files, names, strict=True):
        for data, at in _published_at(path, name):
            try:
                releases.append(published_from_dict(data, at))
            except KanabError as problem:
                raise type(problem)(problem.fact, problem.remedy, at=f"{at} {problem.at}".strip()) from None
    return tuple(releases)


def _published_at(path: str, name: str) -> list[tuple[Any, str]]:
    """Return what was published in one place as plain data, each with a name: a file, a ledger, a data directory."""
    if is_ledger(path):
        from kanab.privacy.release_json import release_to_dict

        return [(release_to_dict(release), at) for at, release in releases_at(path)]
    try:
        return [(json.loads(_text(path)), name)]
    except (json.JSONDecodeError, RecursionError):
        raise SourceError(
            f"{name} is not a JSON file", "Give a file that kanab release wrote, or kanab scan --json."
        ) from None


def _people(path: str, releases: Sequence[AttackedRelease]) -> KnownPeople:
    """Read the columns of a CSV file: arms and levels as the releases have them, and values of their metrics."""
    import numpy as np

    from kanab.inspection.attack.all_but_one import KnownPeople
    from kanab.inspection.attack.background import weighing_metrics
    from kanab.inspection.attack.published import finest_levels
    from kanab.tally.factor import label

    rows = list(csv.reader(_text(path).splitlines()))
    if len(rows) < 2 or any(len(row) != len(rows[0]) for row in rows):
        raise SourceError(f"{Path(path).name} is not a table of people", "Give a CSV file: names, then a row each.")
    columns: dict[str, list[Any]] = {}
    metrics = {part.metric.name for release in releases for table in release.tables for part in table.moments}
    numbers: dict[str, NDArray[np.float64]] = {}
    for name, *values in zip(*rows, strict=True):
        versions = [
            axis for release in releases for table in release.tables for axis in table.axes if axis.name == name
        ]
        if any(name in sides for release in releases for shown in release.statistics for sides in shown.sides):
            columns[name] = [value or None for value in values]
        if name in weighing_metrics(releases):
            columns[name] = [number(value, "--known") if value else 0.0 for value in values]
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


def _text(path: str) -> str:
    return read_text(path, otherwise=("is not UTF-8 text", "Give the file as it was written."))
