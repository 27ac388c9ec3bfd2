"""kanab privacy-report: what a privacy officer asks about release files, as a page or as plain data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kanab.atomicfile import write_whole
from kanab.cli.output import PAGE, echo_json, json_option, output_option, progress
from kanab.cli.released_sources import is_ledger, ledger_at, releases_at
from kanab.errors import LedgerError, PrivacyError, SourceError, listed

if TYPE_CHECKING:
    from kanab.privacy.ledger import Ledger
    from kanab.privacy.release import Release


@click.command("privacy-report")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@output_option("-o", "--output", mark=PAGE, words="Page to write.")
@click.option("--ledger", type=click.Path(dir_okay=False), help="Ledger; default kanab.ledger beside the first file.")
@click.option("--sheet", is_flag=True, help="Write the data-protection sheet of a plan FILE instead, to print.")
@json_option
def privacy_report(
    files: tuple[str, ...], output: str | None, ledger: str | None, *, sheet: bool, as_json: bool
) -> None:
    """Write a report for a privacy officer.

    It says what release FILEs, ledgers or data directories hold, why, and what remains open. If a rule is broken, the
    report is written all the same and says so at its top; the exit code is then 1.

    \b
    kanab privacy-report checkout.release.json -o report.html
    kanab privacy-report checkout.release.json banner.release.json --json
    kanab privacy-report kanab.toml --sheet -o sheet.html
    """
    from kanab.inspection.officer.account import privacy_account
    from kanab.inspection.officer.officer_page import privacy_html

    if output is None and not as_json:
        raise click.UsageError("where should the report go? Give -o report.html, or --json.")
    if sheet:
        _write_sheet(files, output, ledger, as_json=as_json)
        return
    with progress("checking and attacking"):
        data = privacy_account(_releases(files), _ledger(files[0], ledger))
    if output is not None:
        write_whole(output, privacy_html(data))
    if as_json:
        echo_json(data)
    else:
        click.echo(f"{output}: {data['verdict']['says']}")
    if data["verdict"]["state"] == "broken":
        sys.exit(1)


def _write_sheet(files: tuple[str, ...], output: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Write what a record of processing asks about one plan."""
    from kanab.inspection.officer.sheet import data_sheet, sheet_html
    from kanab.plan.file import read_plan

    if ledger is not None or len(files) != 1:
        raise click.UsageError("--sheet takes one plan file, and no ledger: kanab privacy-report kanab.toml --sheet.")
    data = data_sheet(read_plan(files[0]))
    if output is not None:
        write_whole(output, sheet_html(data))
    if as_json:
        echo_json(data)
        return
    left = [key for key, value in data["entries"].items() if value is None]
    rest = f"to be filled in by hand, or in [sheet] of the plan: {listed(left)}." if left else "complete."
    click.echo(f"{output}: {rest}")


def _releases(files: Sequence[str]) -> dict[str, Release]:
    """Read every release, by its file's name without its folder; a second one of the same name gets a number."""
    releases: dict[str, Release] = {}
    for file in files:
        try:
            named = releases_at(file)
        except PrivacyError as problem:  # nothing is written, as with any other file that cannot be used
            raise SourceError(problem.fact, problem.remedy, at=problem.at) from None
        for name, release in named:
            same = sum(known == name or known.startswith(f"{name} (") for known in releases)
            releases[f"{name} ({same + 1})" if same else name] = release
    return releases


def _ledger(first: str, named: str | None) -> Ledger | LedgerError | None:
    """Read the ledger that is named, or the one beside the first file; return its problem if it cannot be verified."""
    beside = Path(first) if is_ledger(first) else Path(first).with_name("kanab.ledger")
    path = beside if named is None else Path(named)
    if not path.exists():
        if named is not None:
            raise SourceError(f"there is no file {path.name!r}", "Check the path.")
        return None
    try:
        return ledger_at(str(path))
    except LedgerError as problem:
        return problem
