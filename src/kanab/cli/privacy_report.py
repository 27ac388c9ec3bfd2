"""kanab privacy-report: what a privacy officer asks about release files, as a page or as plain data."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from kanab.atomicfile import write_whole
from kanab.cli.counting import progress
from kanab.cli.released_sources import is_ledger, ledger_at, releases_at
from kanab.errors import LedgerError, PrivacyError, SourceError
from kanab.inspection.officer.account import privacy_account
from kanab.inspection.officer.page import privacy_html
from kanab.privacy.ledger import Ledger
from kanab.privacy.release import Release


@click.command("privacy-report")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="The page to write.")
@click.option("--ledger", type=click.Path(dir_okay=False), help="The ledger; default kanab.ledger beside the first.")
@click.option("--json", "as_json", is_flag=True, help="Print the documented plain data.")
def privacy_report(files: tuple[str, ...], output: str | None, ledger: str | None, *, as_json: bool) -> None:
    """Tell a privacy officer what is in release FILEs, ledgers or data directories, why, and what remains open.

    The report is written also when a rule is broken, and says so at its top; the exit code is then 1.

    \b
    kanab privacy-report checkout.release.json -o report.html
    kanab privacy-report checkout.release.json banner.release.json --json
    """
    if output is None and not as_json:
        raise click.UsageError("where should the report go? Give -o report.html, or --json.")
    with progress("checking and attacking"):
        data = privacy_account(_releases(files), _ledger(files[0], ledger))
    if output is not None:
        write_whole(output, privacy_html(data))
    if as_json:
        click.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(f"{output}: {data['verdict']['says']}")
    if data["verdict"]["state"] == "broken":
        sys.exit(1)


def _releases(files: Sequence[str]) -> dict[str, Release]:
    """Every release by its file's name, without its folder; a second one of the same name gets a number."""
    found: dict[str, Release] = {}
    for name, release in (one for file in files for one in _read(file)):
        same = sum(one == name or one.startswith(f"{name} (") for one in found)
        found[f"{name} ({same + 1})" if same else name] = release
    return found


def _read(file: str) -> list[tuple[str, Release]]:
    try:
        return releases_at(file)
    except PrivacyError as problem:  # nothing is written, as with any other file that cannot be used
        raise SourceError(problem.fact, problem.remedy, at=problem.at) from None


def _ledger(first: str, given: str | None) -> Ledger | LedgerError | None:
    """The ledger that was named, or the one beside the first file; its problem, if it cannot be verified."""
    beside = Path(first) if is_ledger(first) else Path(first).with_name("kanab.ledger")
    path = beside if given is None else Path(given)
    if not path.exists():
        if given is not None:
            raise SourceError(f"there is no file {path.name!r}", "Check the path.")
        return None
    try:
        return ledger_at(str(path))
    except LedgerError as problem:
        return problem
