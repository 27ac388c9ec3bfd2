"""What a dashboard shows: releases as they lie in ledgers, files or a store, verified each time they are read.

A release that was changed is named and skipped; a ledger whose entries do not follow each other rings,
and nothing is hidden. What was verified once is not verified again unless a byte of it is different.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from kanab.errors import KanabError, LedgerError
from kanab.privacy.ledger import Ledger
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_from_dict

BACKUP = "Take it from a backup."
MOST_VERIFIED = 4096
"""So many verified releases are kept in memory."""


@dataclass(frozen=True)
class Pile:
    """Bytes as they were found: the entries of a ledger, or one release file; or why they cannot be read."""

    name: str
    entries: tuple[bytes, ...] = ()
    ledger: bool = False
    trouble: str = ""


@dataclass(frozen=True)
class Skipped:
    """Something that is not shown, and why."""

    name: str
    says: str


@dataclass(frozen=True, eq=False)
class Chain:
    """Releases that stand in one ledger, by name; or releases in no ledger, whose chain has no name.

    ``ledger`` is the problem, if it could not be verified.
    """

    name: str
    releases: Mapping[str, Release]
    ledger: Ledger | LedgerError | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Contents:
    """Everything that may be shown. Equal bytes have equal digests, so what was computed is kept by them."""

    digest: str = ""
    chains: tuple[Chain, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    alarms: tuple[str, ...] = ()

    @property
    def releases(self) -> dict[str, Release]:
        """Every release, whatever ledger it stands in."""
        return {name: one for chain in self.chains for name, one in chain.releases.items()}


def contents_of(piles: Sequence[Pile]) -> Contents:
    """Read and verify everything; what cannot be shown is named.

    >>> found = contents_of([Pile("shop.release.json", (b"{}",))])
    >>> found.alarms
    ('shop.release.json is not shown: this is not a release. Give a file that kanab release wrote.',)
    """
    books = [_Book(pile) for pile in piles if pile.ledger]
    loose: dict[str, Release] = {}
    alone: dict[str, str] = {}
    skipped = [one for book in books for one in book.skipped]
    alarms = [sentence for book in books for sentence in book.alarms]
    for pile in (one for one in piles if not one.ledger):
        read = _read(pile.entries[0]) if pile.entries and not pile.trouble else pile.trouble
        if isinstance(read, str):
            skipped.append(Skipped(pile.name, read))
            continue
        release, own = read
        home = next((book for book in books if own in book.hashes), None)
        if home is not None:
            home.rename(own, pile.name)
        elif release.chained and books:
            alarms.append(f"{pile.name} does not stand in {books[0].name}: an entry was removed, or it is another one")
            books[0].add(pile.name, release, own)
        elif own not in alone.values():
            name = _free(pile.name, loose)
            loose[name], alone[name] = release, own
    chains = [book.chain() for book in books] + ([Chain("", loose, None, alone)] if loose else [])
    told = [*(f"{one.name} is not shown: {one.says}" for one in skipped), *(f"{one}. {BACKUP}" for one in alarms)]
    return Contents(_digest(piles), tuple(chains), tuple(skipped), tuple(told))


class _Book:
    """One ledger while it is read."""

    def __init__(self, pile: Pile) -> None:
        self.name = pile.name
        self.hashes: list[str] = []
        self.skipped: list[Skipped] = []
        self.alarms: list[str] = []
        self._named: dict[str, Release] = {}
        self._by_hash: dict[str, str] = {}
        if pile.trouble:
            self.skipped.append(Skipped(pile.name, pile.trouble))
        before: str | None = ""
        for number, line in enumerate(pile.entries, start=1):
            before = self._entry(number, line, before)

    def _entry(self, number: int, line: bytes, before: str | None) -> str | None:
        """One entry: does it follow the one before, whose hash is known unless it cannot be read?"""
        name, read = f"{self.name}, entry {number}", _read(line)
        if isinstance(read, str):
            self.skipped.append(Skipped(name, f"it has been changed. {BACKUP}"))
            return _claimed_hash(line)
        release, own = read
        if before is not None and release.previous != before:
            self.alarms.append(f"{name} does not follow the one before it: an entry was removed or moved")
        self.hashes.append(own)
        self._named[name], self._by_hash[own] = release, name
        return own

    def rename(self, own: str, name: str) -> None:
        """An entry that is also a file is called by the file."""
        old = self._by_hash[own]
        if ", entry " in old:
            new = _free(name, self._named)
            self._named = {new if key == old else key: one for key, one in self._named.items()}
            self._by_hash[own] = new

    def add(self, name: str, release: Release, own: str) -> None:
        """A release that should stand here."""
        free = _free(name, self._named)
        self._named[free], self._by_hash[own] = release, free

    def chain(self) -> Chain:
        """Everything that was found, with the ledger if nothing is wrong with it."""
        wrong = [*(f"{one.name}: {one.says}" for one in self.skipped), *self.alarms]
        ledger: Ledger | LedgerError = Ledger(tuple(self._named.values()), tuple(self.hashes))
        if wrong:
            ledger = LedgerError(wrong[0].removesuffix(BACKUP).rstrip(". "), BACKUP)
        return Chain(self.name, self._named, ledger, {name: own for own, name in self._by_hash.items()})


@lru_cache(maxsize=MOST_VERIFIED)
def _read(data: bytes) -> tuple[Release, str] | str:
    """A release and its hash, or why it is none. The same bytes are verified once."""
    try:
        plain = json.loads(data)
        return release_from_dict(plain), str(plain["hash"])
    except KanabError as problem:
        return f"{problem.fact}. {problem.remedy}".strip()
    except (ValueError, RecursionError, KeyError, TypeError):
        return "it is not a release. Give a file that kanab release wrote."


def _claimed_hash(line: bytes) -> str | None:
    """The hash that a changed entry claims to have: the next one may still follow it."""
    try:
        found = json.loads(line)["hash"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _free(name: str, used: Iterable[str]) -> str:
    """A name that nobody has yet: a second file of the same name gets a number."""
    taken = set(used)
    numbered = (f"{name} ({number})" for number in range(2, len(taken) + 3))
    return next(one for one in (name, *numbered) if one not in taken)


def _digest(piles: Sequence[Pile]) -> str:
    found = hashlib.sha256()
    for pile in piles:
        for part in (pile.name.encode(), pile.trouble.encode(), *pile.entries):
            found.update(hashlib.sha256(part).digest())
        found.update(b"ledger" if pile.ledger else b"file")
    return found.hexdigest()
