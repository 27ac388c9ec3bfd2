"""kanab analyze: from any source, or from releases, to an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from kanab.analysis.api import analyze as analyze_release
from kanab.analysis.api import with_assignment
from kanab.analysis.readout import Readout
from kanab.atomicfile import write_whole
from kanab.cli.analysis_options import reading_choices, reading_options
from kanab.cli.counting import counted_source, is_release, reading_of
from kanab.cli.released_sources import is_ledger, releases_at
from kanab.cli.source_options import plan_of, source_options
from kanab.errors import PlanError
from kanab.privacy.batches import add_releases
from kanab.privacy.gate import release as release_counted
from kanab.privacy.release import Release


@click.command()
@click.argument("source", nargs=-1, required=True)
@source_options
@click.option("--adjust", help="Covariates to adjust for, separated by commas; each in a table of its own.")
@click.option("--segment", help="Covariates by which the effect may differ; each in a table of its own.")
@click.option("--experiment", help="One experiment of several.")
@click.option("--assigned-by", metavar="COLUMN", help="What arms were assigned by, if not by person: household, store.")
@reading_options
@click.option("--json", "as_json", is_flag=True, help="Print the documented plain data.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write a report into this file.")
def analyze(source: tuple[str, ...], **given: Any) -> None:
    """Analyze SOURCE: files, a database, Spark, release files (several are added), or a ledger of cohorts.

    \b
    kanab analyze visits.parquet --arm variant --metric spend,bought --adjust tier --segment device
    kanab analyze postgresql://localhost/shop --table users --arm variant --metric spend
    kanab analyze checkout.release.json
    """
    choices = reading_choices(given)
    found = _released(source, given)
    wanted = [given["experiment"]] if given["experiment"] else list(found.plan.experiment_names)
    if len(wanted) > 1 and (choices["pool"] or choices["contrasts"]):
        raise PlanError("arms are those of one experiment", "Name it with --experiment.")
    readouts = [analyze_release(found, name, **choices) for name in wanted]
    if given["assigned_by"]:
        readouts = [with_assignment(one, source[0], given["assigned_by"], reading_of(given)) for one in readouts]
    if given["html"]:
        if len(readouts) > 1:
            raise PlanError("a report is about one experiment", "Name it with --experiment.")
        write_whole(given["html"], readouts[0].to_report())
    if given["as_json"]:
        click.echo(_json(readouts))
        return
    click.echo("\n\n".join(str(one) for one in readouts))
    if given["html"]:
        click.echo(f"\nReport: {given['html']}")


def _released(source: tuple[str, ...], given: Mapping[str, Any]) -> Release:
    """What is analyzed; several batches are added."""
    if is_release(source[0]) or is_ledger(source[0]):
        clash = [
            flag for flag in ("arm", "metric", "plan_file", "adjust", "segment", "k", "assigned_by") if given[flag]
        ]
        if clash:
            flag = clash[0].removesuffix("_file").replace("_", "-")
            raise PlanError("a release already says what was counted", f"Leave out --{flag}.")
        return add_releases([one for path in source for one in _read(path)])
    if len(source) > 1:
        raise PlanError("several sources are given", "Name one; a pattern such as 'visits-*.parquet' takes many files.")
    plan = plan_of(given if not given["pool"] else {**given, "control": None})  # a pool may be the control
    return release_counted(counted_source(source[0], plan, given), given["k"], override=given["override"])


def _read(path: str) -> tuple[Release, ...]:
    """A release file, or the batches of a ledger or of a collector."""
    found = tuple(one for _, one in releases_at(path))
    if len(found) > 1 and any(one.receipt.batch is None for one in found):
        raise PlanError("the ledger holds several releases about the same people", "Name the file of one of them.")
    return found


def _json(readouts: list[Readout]) -> str:
    plain = [one.to_dict() for one in readouts]
    data = plain[0] if len(plain) == 1 else {"experiments": {one["experiment"]: one for one in plain}}
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
