"""kanab audit: every rule, checked again on what was published."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanab.cli.output import echo_json, json_option
from kanab.cli.released_sources import is_data_directory, is_ledger, ledger_at, releases_at
from kanab.errors import KanabError, NothingSealedError

if TYPE_CHECKING:
    from kanab.inspection.auditor import Check, FewEvents
    from kanab.privacy.ledger import Ledger
    from kanab.privacy.release import Release

_MARKS = {True: "holds", False: "BROKEN", None: "not evaluated"}


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--ledger", type=click.Path(dir_okay=False), help="Ledger; default kanab.ledger beside a file.")
@json_option
def audit(files: tuple[str, ...], ledger: str | None, *, as_json: bool) -> None:
    """Check releases against every rule.

    FILE is a release file, a ledger or the data directory of a collector. Lists also where few people of a class have
    a 0/1 metric, or lack it, and what k does not cover. Exits with 1 if a rule is broken.

    \b
    kanab audit checkout.release.json
    kanab audit kanab.ledger
    kanab audit ./kanab-data
    """
    from kanab.inspection.auditor import list_few_events, passes
    from kanab.inspection.promises import NOT_COVERED

    checked, releases = _audit_files(files, ledger)
    few = {name: list_few_events(released) for name, released in releases.items()}
    whole = all(passes(checks) for checks in checked.values())
    refused = _refused(files, ledger)
    if as_json:
        plain = {name: [asdict(check) for check in checks] for name, checks in checked.items()}
        events = {name: [asdict(each) for each in listed] for name, listed in few.items()}
        gaps = [{"what": what, "example": says} for what, says in NOT_COVERED]
        echo_json({"passed": whole, "files": plain, "few_events": events, "ledgers": refused, "not_covered": gaps})
    else:
        exact = any(released.receipt.noise is None for released in releases.values())
        titles = "; ".join(what for what, _ in NOT_COVERED)
        uncovered = [f"k does not cover: {titles}. ε does: kanab release --epsilon."] if exact else []
        click.echo("\n".join([*_attempts(refused), _as_text(checked, few, whole=whole), *uncovered]))
    if not whole:
        sys.exit(1)


def _audit_files(
    files: tuple[str, ...], ledger: str | None = None
) -> tuple[dict[str, list[Check]], dict[str, Release]]:
    """Check every file, and return its releases; one that cannot be read unchanged is a broken rule as well."""
    from kanab.inspection.auditor import (
        Check,
        check_chain,
        check_differences,
        check_newest,
        check_release,
        check_spent,
    )
    from kanab.privacy.release_json import read_release

    checked: dict[str, list[Check]] = {}
    releases: dict[str, Release] = {}
    books: dict[str, Ledger] = {}
    for file in files:
        if not Path(file).exists():
            read_release(file)  # says that there is no such file
        if Path(file).is_dir() and not is_data_directory(file):
            ledger_at(file)  # says that it is no collector's
        try:
            named = releases_at(file)
        except NothingSealedError as problem:
            checked[Path(file).name] = [Check("unchanged", None, f"{problem.fact}, so there is nothing to check")]
            continue
        except KanabError as problem:
            checked[Path(file).name] = [Check("unchanged", False, problem.fact, problem.remedy)]
            continue
        for name, released in named:
            releases[name] = released
            book, noise = _ledger_of(file, ledger, books), released.receipt.noise
            checked[name] = [*check_release(released), check_chain(released, book)]
            if noise is not None:
                checked[name].append(check_spent(released, noise, book))
        if is_ledger(file) and (newest := check_newest(ledger_at(file))) is not None:
            checked[Path(file).name] = [newest]
    if differences := list(check_differences(releases)):
        checked["all together"] = differences
    return checked, releases


def _ledger_of(file: str, ledger: str | None, books: dict[str, Ledger]) -> Ledger | None:
    """Return the ledger of a file; ``books`` keeps it, so that it is verified once, not for each of its releases."""
    from kanab.privacy.ledger import read_ledger

    path = ledger or (file if is_ledger(file) else str(Path(file).with_name("kanab.ledger")))
    if path not in books:
        if ledger is None and not Path(path).exists():
            return None
        books[path] = ledger_at(path) if ledger is None and is_ledger(path) else read_ledger(path)
    return books[path]


def _refused(files: tuple[str, ...], named: str | None) -> dict[str, dict[str, Any]]:
    """Return what the ledgers of these files refused and voided; what cannot be verified is said elsewhere."""
    from kanab.inspection.officer.account import plain_notes

    refused = {}
    books: dict[str, Ledger] = {}
    for file in files:
        with suppress(KanabError):
            ledger = _ledger_of(file, named, books)
            if ledger is not None and ledger.notes:
                refused[ledger.name or Path(file).name] = plain_notes(ledger)
    return refused


def _attempts(refused: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    from kanab.privacy.ledger import asked_text
    from kanab.report.words import ended

    for name, notes in refused.items():
        attempts = notes["refused"]
        if attempts or notes["reviews"]:
            yield f"{name}: {len(attempts)} refused attempt{'s' if len(attempts) != 1 else ''}"
        for attempt in attempts:
            reviewed = " (reviewed)" if attempt["reviewed"] else ""
            yield f"  refused{reviewed}: {attempt['rule']}. Asked: {asked_text(attempt['asked'])}."
        yield from (f"  reviewed: {ended(reason)}" for reason in notes["reviews"])
        yield from (f"{name}: {ended(sentence)}" for sentence in (*notes["voided"], *notes["scans"]))
        yield ""


def _as_text(checked: Mapping[str, list[Check]], few: Mapping[str, Sequence[FewEvents]], *, whole: bool) -> str:
    lines = []
    for name, checks in checked.items():
        told = [f"  for information: {each.sentence}." for each in few.get(name, ())]
        lines += [name, *map(_line, checks), *told, ""]
    broken = sum(check.holds is False for checks in checked.values() for check in checks)
    lines.append("No rule is broken." if whole else f"{broken} rule{'s are' if broken > 1 else ' is'} broken.")
    return "\n".join(lines)


def _line(check: Check) -> str:
    if check.holds is not False:
        return f"  {_MARKS[check.holds]}: {check.rule} - {check.says}."
    classes = f" in {check.classes:,} class{'es' if check.classes > 1 else ''}" if check.classes else ""
    return f"  BROKEN{classes}: {check.rule} - the rule: {check.says}. {check.remedy}".rstrip()
