"""kanab analyze: from any source, or from releases, to an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanab.atomicfile import write_whole
from kanab.choices import OWN_ROWS
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
    source_options,
)
from kanab.errors import PlanError

if TYPE_CHECKING:
    from kanab.analysis.dry_run import DryRun
    from kanab.analysis.readout import Readout
    from kanab.counted import Counted
    from kanab.plan.model import Plan
    from kanab.privacy.release import Release, Tables

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
@click.option("--as-released", is_flag=True, help="Also print what a release of these rows would give, and why.")
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
    run = _dry_run(source, flags) if flags["as_released"] else None
    tables = _tables(source, flags) if run is None else run.own
    wanted = [flags["experiment"]] if flags["experiment"] else list(tables.plan.experiment_names)
    if len(wanted) > 1 and (options.pool or options.contrasts):
        raise PlanError("arms are those of one experiment", "Name it with --experiment.")
    readouts = [analyze_release(tables, name, options) for name in wanted]
    released: list[Readout] = []
    if run is not None and run.released is not None:
        released = [analyze_release(run.released, name, replace(options, looks=None)) for name in wanted]
    if flags["html"]:
        if len(readouts) > 1:
            raise PlanError("a report is about one experiment", "Name it with --experiment.")
        write_whole(flags["html"], readouts[0].to_report())
    if flags["as_json"]:
        echo_json(_plain(readouts) | ({} if run is None else {"as_released": _plain_run(run, released)}))
        return
    width = terminal_width()
    texts = [readout.to_brief() if flags["brief"] else readout.to_text(width) for readout in readouts]
    click.echo("\n\n".join([*texts, *([] if run is None else [_as_released(run, released)])]))
    if flags["html"]:
        click.echo(f"\nReport: {flags['html']}")


def _plain(readouts: Sequence[Readout]) -> dict[str, Any]:
    """Return readouts as plain data; several by the names of their experiments."""
    plain = {readout.experiment: readout.to_dict() for readout in readouts}
    if len(plain) == 1:
        return plain[readouts[0].experiment]
    return {"scope": plain[readouts[0].experiment]["scope"], "experiments": plain}


def _plain_run(run: DryRun, released: Sequence[Readout]) -> dict[str, Any]:
    """Return what a release would give as plain data: its effects and why they differ, but nothing that it promises."""
    effects = {readout.experiment: readout.to_dict()["effects"] for readout in released}
    return {"scope": OWN_ROWS, "refused": run.refused or None, "effects": effects, "differences": run.differences()}


def _as_released(run: DryRun, released: Sequence[Readout]) -> str:
    """Return what a release would give, and a line for everything that differs."""
    head = "── What a release would give (nothing was released) ".ljust(100, "─")
    lines = [head, *(readout.to_brief() for readout in released)]
    differences = run.differences()
    lines += [f"- {sentence[:1].upper()}{sentence[1:]}.".replace("..", ".") for sentence in differences]
    return "\n".join(lines if differences else [*lines, "The tables are the same."])


def _tables(source: tuple[str, ...], flags: Mapping[str, Any]) -> Tables:
    """Return what is analyzed; several batches are added."""
    if is_release(source[0]) or is_ledger(source[0]):
        from kanab.privacy.batches import add_releases

        _check_already_counted(source[0])
        return add_releases([released for path in source for released in _read(path)])
    from kanab.analysis.own_rows import read_rows

    plan, count = _rows(source, flags)
    return read_rows(plan, count, flags["k"], override=flags["override"])


def _dry_run(source: tuple[str, ...], flags: Mapping[str, Any]) -> DryRun:
    """Return what was counted beside what a release of it would give."""
    from kanab.analysis.dry_run import try_release
    from kanab.analysis.own_rows import check_internal

    if is_release(source[0]) or is_ledger(source[0]):
        raise PlanError("--as-released is about rows, and this is released", "Leave out --as-released.")
    plan, count = _rows(source, flags)
    check_internal(plan, "--as-released")
    return try_release(count(True), flags["k"], override=flags["override"])


def _rows(source: tuple[str, ...], flags: Mapping[str, Any]) -> tuple[Plan, Callable[[bool], Counted]]:
    """Return the plan by which a source is counted, and what counts it, for a release or not."""
    check_single(source)
    plan = plan_of(flags if not flags["pool"] else {**flags, "control": None}, source[0])  # a pool may be the control
    return plan, lambda for_release: counted_source(source[0], plan, flags, for_release=for_release)


def _check_already_counted(source: str) -> None:
    """Raise `PlanError` where a flag says what to count of a release, in which that was decided."""
    clash = [flag for flag in flags_said() if flag in _COUNTING]
    if clash and Path(source).is_dir() and not is_data_directory(source):
        from kanab.counting.csvfile import matching_files

        matching_files(source)  # which says that a directory is none
    if clash:
        raise PlanError("a release already says what was counted", f"Leave out {clash[0]}.")


def _read(path: str) -> tuple[Release, ...]:
    """Read a release file, or the batches of a ledger or of a collector."""
    releases = tuple(released for _, released in releases_at(path))
    if len(releases) > 1 and any(released.receipt.batch is None for released in releases):
        raise PlanError("the ledger holds several releases about the same people", "Name the file of one of them.")
    return releases
