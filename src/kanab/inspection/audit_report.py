"""An audit of everything that is given: what ``kanab audit`` runs, as a value that prints itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast

from kanab.arguments import check_arguments
from kanab.errors import KanabError, NothingSealedError
from kanab.inspection.auditor import (
    Check,
    FewEvents,
    check_chain,
    check_differences,
    check_newest,
    check_release,
    check_spent,
    list_few_events,
    passes,
    plain_notes,
)
from kanab.inspection.promises import NOT_COVERED
from kanab.inspection.released_values import (
    Released,
    Source,
    entries_of,
    existing_ledger,
    is_ledger_path,
    named_sources,
)
from kanab.privacy.ledger import Ledger, asked_text, read_ledger
from kanab.privacy.release import Release
from kanab.privacy.release_json import read_release
from kanab.report.words import ended

_MARKS = {True: "holds", False: "BROKEN", None: "not evaluated"}


@dataclass(frozen=True)
class AuditReport:
    """Every rule checked again, file by file, with classes of few events and what ledgers noted. It prints itself."""

    files: Mapping[str, tuple[Check, ...]]
    few_events: Mapping[str, tuple[FewEvents, ...]]
    ledgers: Mapping[str, Mapping[str, Any]]
    exact: bool

    @property
    def broken(self) -> tuple[Check, ...]:
        """The rules that are broken."""
        return tuple(check for checks in self.files.values() for check in checks if check.holds is False)

    @property
    def passed(self) -> bool:
        """Whether no rule is broken."""
        return all(passes(checks) for checks in self.files.values())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "passed": self.passed,
            "files": {name: [asdict(check) for check in checks] for name, checks in self.files.items()},
            "few_events": {name: [asdict(each) for each in few] for name, few in self.few_events.items()},
            "ledgers": {name: dict(notes) for name, notes in self.ledgers.items()},
            "not_covered": [{"what": what, "example": says} for what, says in NOT_COVERED],
        }

    def __str__(self) -> str:
        lines = [*_attempts(self.ledgers)]
        for name, checks in self.files.items():
            few = [f"  for information: {each.sentence}." for each in self.few_events.get(name, ())]
            lines += [name, *map(_line, checks), *few, ""]
        number = len(self.broken)
        lines.append(f"{number} rule{'s are' if number > 1 else ' is'} broken." if number else "No rule is broken.")
        if self.exact:
            titles = "; ".join(what for what, _ in NOT_COVERED)
            lines.append(f"k does not cover: {titles}. ε does: kanab release --epsilon.")
        return "\n".join(lines)


@check_arguments(skip=("released", "ledger"))
def audit(released: Released, *, ledger: Ledger | str | PathLike[str] | None = None) -> AuditReport:
    """Check every rule again on releases, ledgers or their paths: one of them, a list, or a dict of names.

    released: what was published; what cannot be read unchanged is a broken rule as well.
    ledger: the ledger of all of them, or its path; by default a file's is the kanab.ledger beside it.

    Raises `SourceError` where a file is not there.

    >>> import kanab as kb
    >>> from kanab.datasets import shop_rows
    >>> kb.audit(kb.release(kb.count(shop_rows(900), arm="variant", metrics=["bought"]))).passed
    True
    """
    files: dict[str, tuple[Check, ...]] = {}
    releases: dict[str, Release] = {}
    notes: dict[str, Any] = {}
    books: dict[str, Ledger] = {}
    for name, source in named_sources(released).items():
        try:
            entries, own = _read(name, source)
        except NothingSealedError as problem:
            files[name] = (Check("unchanged", None, f"{problem.fact}, so there is nothing to check"),)
            with suppress(KanabError):  # scans may have been shared, or attempts refused
                notes |= _notes(name, source if isinstance(source, Ledger) else existing_ledger(cast(Any, source)))
            continue
        except KanabError as problem:
            if isinstance(source, (str, PathLike)) and not Path(source).exists():
                raise
            files[name] = (Check("unchanged", False, problem.fact, problem.remedy),)
            with suppress(KanabError):
                book = _book_of(source, None, ledger, books)
                notes |= {} if book is None else _notes(name, book)
            continue
        book = _book_of(source, own, ledger, books)
        notes |= {} if book is None else _notes(name, book)
        for place, each in entries:
            releases[place] = each
            spent = () if each.receipt.noise is None else (check_spent(each, each.receipt.noise, book),)
            files[place] = (*check_release(each), check_chain(each, book), *spent)
        if own is not None and (newest := check_newest(own)) is not None:
            files[name] = (newest,)
    if differences := tuple(check_differences(releases)):
        files["all together"] = differences
    few = {name: list_few_events(each) for name, each in releases.items()}
    return AuditReport(files, few, notes, any(each.receipt.noise is None for each in releases.values()))


def _read(name: str, source: Source | KanabError) -> tuple[list[tuple[str, Release]], Ledger | None]:
    """Return the releases of a source by name, with the ledger that they are entries of."""
    if isinstance(source, KanabError):
        raise source
    if isinstance(source, Release):
        return [(name, source)], None
    if isinstance(source, Ledger) or is_ledger_path(source):
        book = source if isinstance(source, Ledger) else existing_ledger(source)
        return [*entries_of(name, book)], book
    return [(name, read_release(source))], None


def _book_of(
    source: Source | KanabError,
    own: Ledger | None,
    named: Ledger | str | PathLike[str] | None,
    books: dict[str, Ledger],
) -> Ledger | None:
    """Return the ledger of a source; ``books`` keeps it, so that it is verified once, not for each of its releases."""
    if isinstance(named, Ledger) or (own is not None and named is None):
        return named if isinstance(named, Ledger) else own
    if named is None:
        if not isinstance(source, (str, PathLike)) or is_ledger_path(source):
            return None
        named = Path(source).with_name("kanab.ledger")
        if not named.exists():
            return None
    if str(named) not in books:
        books[str(named)] = read_ledger(named)
    return books[str(named)]


def _notes(name: str, book: Ledger) -> dict[str, Any]:
    return {book.name or name: plain_notes(book)} if book.notes else {}


def _attempts(ledgers: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, notes in ledgers.items():
        attempts = notes["refused"]
        if attempts or notes["reviews"]:
            yield f"{name}: {len(attempts)} refused attempt{'s' if len(attempts) != 1 else ''}"
        for attempt in attempts:
            reviewed = " (reviewed)" if attempt["reviewed"] else ""
            yield f"  refused{reviewed}: {attempt['rule']}. Asked: {asked_text(attempt['asked'])}."
        yield from (f"  reviewed: {ended(reason)}" for reason in notes["reviews"])
        yield from (f"{name}: {ended(sentence)}" for sentence in (*notes["voided"], *notes["scans"]))
        yield ""


def _line(check: Check) -> str:
    if check.holds is not False:
        return f"  {_MARKS[check.holds]}: {check.rule} - {check.says}."
    classes = f" in {check.classes:,} class{'es' if check.classes > 1 else ''}" if check.classes else ""
    return f"  BROKEN{classes}: {check.rule} - the rule: {check.says}. {check.remedy}".rstrip()
