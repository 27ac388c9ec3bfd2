"""kanab scan: all pairs of many experiments, and all their effects by segment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from kanab.atomicfile import write_whole
from kanab.cli.counting import is_release, progress
from kanab.cli.source_options import bounds_of, names, number, pairs
from kanab.errors import PlanError
from kanab.plan.model import DEFAULT_K
from kanab.privacy.release_file import read_release
from kanab.scan.readout import PairReadout, SegmentReadout
from kanab.scan.report.html import scan_report
from kanab.scan.scan import scan_interactions, scan_segments

_CORRECTIONS = ["none", "bonferroni", "sidak", "holm", "hochberg", "bh", "by"]


@click.command()
@click.argument("source", nargs=-1, required=True)
@click.option("--experiments", help="Columns that hold arms, separated by commas; patterns such as 'test_*' are fine.")
@click.option("--metric", help="Columns to compare, separated by commas.")
@click.option("--segment", help="Covariates by which effects may differ, separated by commas.")
@click.option("--bounds", multiple=True, metavar="NAME=LOW:HIGH", help="Clamp a metric: --bounds revenue=0:500.")
@click.option("--resolution", multiple=True, metavar="NAME=STEP", help="Grid of a metric: --resolution revenue=0.01.")
@click.option("--missing", multiple=True, metavar="NAME=RULE", help="zero (default) or exclude.")
@click.option("--k", type=int, default=DEFAULT_K, show_default=True, help="Least people in a class.")
@click.option("--override", default="", metavar="REASON", help="Why k may be below 5; recorded.")
@click.option("--table", help="Table of a database.")
@click.option("--sql", help="A query instead of a table.")
@click.option("--where", help="Count only rows where this SQL holds.")
@click.option(
    "--family", type=click.Choice(["metric", "all"]), default="metric", help="Correct per metric, or over all."
)
@click.option("--correction", type=click.Choice(_CORRECTIONS), default="holm", help="Over pairs; segments use bh.")
@click.option("--alpha", type=float, default=0.05, show_default=True, help="Rate of false alarms.")
@click.option("--tolerance", multiple=True, metavar="NAME=SIZE", help="Interactions smaller than this do not matter.")
@click.option("--json", "as_json", is_flag=True, help="Print the documented plain data.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write a report into this file.")
def scan(source: tuple[str, ...], **given: Any) -> None:
    """Scan SOURCE for experiments that interfere: a table with a column per experiment, or release files.

    \b
    kanab scan users.parquet --experiments 'test_*' --metric revenue,bought
    kanab scan releases/*.json
    """
    found = _pairs(source, given)
    segments = _segments(source, given, found)
    if given["html"]:
        report = scan_report(pairs=found.to_dict(), segments=None if segments is None else segments.to_dict())
        write_whole(given["html"], report)
    if given["as_json"]:
        data = found.to_dict() | ({} if segments is None else {"segment_scan": segments.to_dict()})
        click.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
        return
    click.echo("\n\n".join(str(one) for one in (found, segments) if one is not None))
    if given["html"]:
        click.echo(f"\nReport: {given['html']}")


def _pairs(source: tuple[str, ...], given: Mapping[str, Any]) -> PairReadout:
    if is_release(source[0]):
        stored = [read_release(path) for path in source]
        return scan_interactions(stored, metrics=names(given["metric"]), **_rules(given))
    if len(source) > 1:
        raise PlanError("several sources are given", "Name one; a pattern such as 'visits-*.parquet' takes many files.")
    if not given["experiments"] or not given["metric"]:
        raise PlanError("what to scan is not said", "Give --experiments and --metric.")
    with _people_bar() as update:
        return scan_interactions(
            source[0], names(given["experiments"]), names(given["metric"]), k=given["k"], override=given["override"],
            progress=update, **_counting(given), **_rules(given),
        )  # fmt: skip


def _segments(source: tuple[str, ...], given: Mapping[str, Any], found: PairReadout) -> SegmentReadout | None:
    covariates = names(given["segment"])
    if not covariates:
        return None
    if is_release(source[0]):
        return scan_segments([read_release(path) for path in source], metrics=names(given["metric"]))
    with progress(f"counting {len(found.scan.experiments)} experiments by {len(covariates)} covariates"):
        return scan_segments(
            source[0], list(found.scan.experiments), names(given["metric"]), covariates, k=given["k"],
            override=given["override"], alpha=given["alpha"], **_counting(given),
        )  # fmt: skip


def _rules(given: Mapping[str, Any]) -> dict[str, Any]:
    tolerance = {name: number(text, "--tolerance") for name, text in pairs(given["tolerance"], "--tolerance").items()}
    return {name: given[name] for name in ("family", "correction", "alpha")} | {"tolerance": tolerance}


def _counting(given: Mapping[str, Any]) -> dict[str, Any]:
    steps = pairs(given["resolution"], "--resolution")
    choices = {
        "bounds": bounds_of(given["bounds"]),
        "resolution": {name: number(text, "--resolution") for name, text in steps.items()},
        "missing": pairs(given["missing"], "--missing"),
        "where": given["where"],
        "table": given["table"],
        "sql": given["sql"],
    }
    return {name: value for name, value in choices.items() if value}


@contextmanager
def _people_bar() -> Iterator[Any]:
    """People per second on a terminal, nothing in a pipe."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("counting people", total=None, rate="")

        def update(done: int, total: int | None) -> None:
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            bar.update(task, completed=done, total=total, rate=f"{speed:,.0f} people/s" if speed else "")

        yield update
