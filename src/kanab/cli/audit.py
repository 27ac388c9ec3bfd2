"""kanab audit: every rule, checked again on what was published."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click

from kanab.cli.released_sources import is_ledger, ledger_at, releases_at
from kanab.errors import KanabError
from kanab.inspection.auditor import Check, check_chain, check_differences, check_release, passes
from kanab.privacy.ledger import Ledger, read_ledger
from kanab.privacy.release import Release
from kanab.privacy.release_file import read_release

_MARKS = {True: "holds", False: "BROKEN", None: "not evaluated"}


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--ledger", type=click.Path(dir_okay=False), help="The ledger; default kanab.ledger beside a file.")
@click.option("--json", "as_json", is_flag=True, help="Print plain data.")
def audit(files: tuple[str, ...], ledger: str | None, *, as_json: bool) -> None:
    """Check release FILEs, a whole ledger or a collector's data directory against every rule.

    Exits with 1 when a rule is broken.

    \b
    kanab audit checkout.release.json
    kanab audit kanab.ledger
    kanab audit ./kanab-data
    """
    found = audit_files(files, ledger)
    whole = all(passes(checks) for checks in found.values())
    click.echo(_as_json(found, whole=whole) if as_json else _as_text(found, whole=whole))
    if not whole:
        sys.exit(1)


def audit_files(files: tuple[str, ...], ledger: str | None = None) -> dict[str, list[Check]]:
    """The checks of every file; what cannot be read unchanged is a broken rule as well."""
    found: dict[str, list[Check]] = {}
    releases: dict[str, Release] = {}
    for file in files:
        for name, one in _releases(file, found):
            releases[name] = one
            found[name] = [*check_release(one), check_chain(one, _ledger_of(file, ledger))]
    if together := list(check_differences(releases)):
        found["all together"] = together
    return found


def _releases(file: str, found: dict[str, list[Check]]) -> list[tuple[str, Release]]:
    name = Path(file).name
    if not Path(file).exists():
        read_release(file)  # says that there is no such file
    try:
        return releases_at(file)
    except KanabError as problem:
        found[name] = [Check("unchanged", False, problem.fact, problem.remedy)]
        return []


def _ledger_of(file: str, ledger: str | None) -> Ledger | None:
    if ledger is not None:
        return read_ledger(ledger)
    if is_ledger(file):
        return ledger_at(file)
    beside = Path(file).with_name("kanab.ledger")
    return read_ledger(beside) if beside.exists() else None


def _as_text(found: Mapping[str, list[Check]], *, whole: bool) -> str:
    lines = []
    for name, checks in found.items():
        lines += [name, *(_line(one) for one in checks), ""]
    broken = sum(one.holds is False for checks in found.values() for one in checks)
    lines.append("No rule is broken." if whole else f"{broken} rule{'s are' if broken > 1 else ' is'} broken.")
    return "\n".join(lines)


def _line(one: Check) -> str:
    if one.holds is not False:
        return f"  {_MARKS[one.holds]}: {one.rule} - {one.says}."
    classes = f" in {one.classes:,} class{'es' if one.classes > 1 else ''}" if one.classes else ""
    return f"  BROKEN{classes}: {one.rule} - the rule: {one.says}. {one.remedy}".rstrip()


def _as_json(found: Mapping[str, list[Check]], *, whole: bool) -> str:
    data = {"passed": whole, "files": {name: [asdict(one) for one in checks] for name, checks in found.items()}}
    return json.dumps(data, indent=2, ensure_ascii=False)
