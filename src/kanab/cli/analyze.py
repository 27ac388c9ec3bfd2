"""kanab analyze: from any source, or from releases, to an answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanab.atomicfile import write_whole
from kanab.cli.analysis_options import analysis_options, options_from
from kanab.cli.help_pages import FlagsByTask
from kanab.cli.output import echo_json, json_option, terminal_width
from kanab.cli.released_sources import is_data_directory, is_ledger, releases_at
from kanab.cli.source_options import (
    COUNTING_FLAGS,
    check_single,
    counted_source,
    flags_said,
    is_release,
    names_option,
    plan_of,
    rows_of,
    source_options,
)
from kanab.errors import PlanError

if TYPE_CHECKING:
    from kanab.privacy.release import Release

_COUNTING = COUNTING_FLAGS | {"--adjust", "--segment"}


@click.command(cls=FlagsByTask)
@click.argument("source", nargs=-1, required=True)
@source_options
@names_option("--adjust", help="Covariates to adjust for, separated by commas: all together, in any order.")
@names_option("--segment", help="Covariates by which the effect may differ; each gets its own table.")
@click.option("--experiment", help="One experiment of several.")
@analysis_options
@click.option("--brief", is_flag=True, help="Print one line per metric and arm, within 80 columns.")
@json_option
@click.option("--html", type=click.Path(dir_okay=False), help="Write a report to this file.")
def analyze(source: tuple[str, ...], **flags: Any) -> None:
    """Analyze an experiment: effects, segments, privacy.

    SOURCE is a file (CSV, Parquet, JSON, Excel), a database, Spark, release files (several are added), or a ledger
    of cohorts.

    \b
    kanab analyze visits.parquet --arm variant --metric spend,bought --adjust tier --segment device
    kanab analyze postgresql://localhost/shop --table users --arm variant --metric spend
    kanab analyze checkout.release.json
    """
    from kanab.analysis.api import analyze_release

    options = options_from(flags)
    released = _released(source, flags)
    wanted = [flags["experiment"]] if flags["experiment"] else list(released.plan.experiment_names)
    if len(wanted) > 1 and (options.pool or options.contrasts):
        raise PlanError("arms are those of one experiment", "Name it with --experiment.")
    readouts = [analyze_release(released, name, options) for name in wanted]
    if flags["html"]:
        if len(readouts) > 1:
            raise PlanError("a report is about one experiment", "Name it with --experiment.")
        write_whole(flags["html"], readouts[0].to_report())
    if flags["as_json"]:
        plain = {readout.experiment: readout.to_dict() for readout in readouts}
        echo_json({"experiments": plain} if len(plain) > 1 else plain[wanted[0]])
        return
    width = terminal_width()
    texts = [readout.to_brief() if flags["brief"] else readout.to_text(width) for readout in readouts]
    click.echo("\n\n".join(texts))
    if flags["html"]:
        click.echo(f"\nReport: {flags['html']}")


def _released(source: tuple[str, ...], flags: Mapping[str, Any]) -> Release:
    """Return what is analyzed; several batches are added."""
    if not is_release(source[0]) and not is_ledger(source[0]):
        check_single(source)
        return _counted(source[0], flags)
    from kanab.privacy.batches import add_releases

    _check_already_counted(source[0])
    return add_releases([released for path in source for released in _read(path)])


def _check_already_counted(source: str) -> None:
    """Raise `PlanError` where a flag says what to count of a release, in which that was decided."""
    clash = [flag for flag in flags_said() if flag in _COUNTING]
    if clash and Path(source).is_dir() and not is_data_directory(source):
        from kanab.counting.csvfile import matching_files

        matching_files(source)  # which says that a directory is none
    if clash:
        raise PlanError("a release already says what was counted", f"Leave out {clash[0]}.")


def _counted(source: str, flags: Mapping[str, Any]) -> Release:
    """Count a source, and return what may be read of it."""
    from kanab.analysis.clamping import release_clamped
    from kanab.counting.dispatch import clamp_numbers

    plan = plan_of(flags if not flags["pool"] else {**flags, "control": None}, source)  # a pool may be the control
    return release_clamped(
        plan,
        lambda each: counted_source(source, each, flags),
        lambda each, names, beyond: clamp_numbers(source, each, rows_of(flags), names, beyond),
        flags["k"],
        override=flags["override"],
    )


def _read(path: str) -> tuple[Release, ...]:
    """Read a release file, or the batches of a ledger or of a collector."""
    releases = tuple(released for _, released in releases_at(path))
    if len(releases) > 1 and any(released.receipt.batch is None for released in releases):
        raise PlanError("the ledger holds several releases about the same people", "Name the file of one of them.")
    return releases
