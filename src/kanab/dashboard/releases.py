"""Releases as they are in ledgers, files or a store, verified each time they are read.

What was changed is named and skipped, a ledger whose entries do not follow each other rings, and nothing is hidden.
"""

import hashlib
import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, count

from kanab.errors import KanabError, LedgerError
from kanab.privacy.ledger import Ledger, LedgerNote, read_entry
from kanab.privacy.release import Release

BACKUP = "Take it from a backup."
MOST_VERIFIED = 4096
"""So many verified releases are kept in memory."""
_NO_RELEASE = "it is not a release. Give a file that kanab release wrote."


@dataclass(frozen=True)
class RawSource:
    """Bytes before they are verified: the entries of a ledger, or one release file; or why they cannot be read."""

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
class ReleaseChain:
    """The releases of one ledger, by name; or releases in no ledger, whose chain has no name.

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
    chains: tuple[ReleaseChain, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    alarms: tuple[str, ...] = ()

    @property
    def releases(self) -> dict[str, Release]:
        """Every release, in whichever ledger."""
        return {name: release for chain in self.chains for name, release in chain.releases.items()}


def read_contents(sources: Sequence[RawSource]) -> Contents:
    """Read and verify everything; what cannot be shown is named."""
    ledgers = [_LedgerReader(source) for source in sources if source.ledger]
    unchained: dict[str, Release] = {}
    hashes: dict[str, str] = {}
    seen: set[str] = set()
    skipped = [item for ledger in ledgers for item in ledger.skipped]
    alarms = [sentence for ledger in ledgers for sentence in ledger.alarms]
    for source in (source for source in sources if not source.ledger):
        parsed = _parse(source.entries[0]) if source.entries and not source.trouble else source.trouble
        if isinstance(parsed, str):
            skipped.append(Skipped(source.name, parsed))
            continue
        release, digest = parsed
        if isinstance(release, LedgerNote):
            skipped.append(Skipped(source.name, _NO_RELEASE))
            continue
        home = next((ledger for ledger in ledgers if ledger.holds(digest)), None)
        if home is not None:
            home.rename(digest, source.name)
        elif release.chained and ledgers:
            alarms.append(f"{source.name} is not in {ledgers[0].name}: its entry was removed, or it belongs to another")
            ledgers[0].add(source.name, release, digest)
        elif digest not in seen:
            name = _free_name(source.name, unchained)
            unchained[name], hashes[name] = release, digest
            seen.add(digest)
    chains = [ledger.chain() for ledger in ledgers]
    chains += [ReleaseChain("", unchained, None, hashes)] if unchained else []
    sentences = [f"{item.name} is not shown: {item.says}" for item in skipped]
    sentences += [f"{alarm}. {BACKUP}" for alarm in alarms]
    return Contents(_digest(sources), tuple(chains), tuple(skipped), tuple(sentences))


class _LedgerReader:
    """One ledger while it is read; releases and their names are kept by their hashes."""

    def __init__(self, source: RawSource) -> None:
        self.name = source.name
        self.skipped = [Skipped(source.name, source.trouble)] if source.trouble else []
        self.alarms: list[str] = []
        self._entries: list[Release | LedgerNote] = []
        self._hashes: list[str] = []
        self._releases: dict[str, Release] = {}
        self._names: dict[str, str] = {}
        before: str | None = ""
        for number, line in enumerate(source.entries, start=1):
            before = self._entry(f"{self.name}, entry {number}", line, before)

    def _entry(self, name: str, line: bytes, before: str | None) -> str | None:
        """Read one entry, check that it follows the one before, and return its hash; None where it has none."""
        parsed = _parse(line)
        if isinstance(parsed, str):
            self.skipped.append(Skipped(name, f"it has been changed. {BACKUP}"))
            return _claimed_hash(line)
        entry, digest = parsed
        if before is not None and entry.previous != before:
            self.alarms.append(f"{name} does not follow the one before it: an entry was removed or moved")
        if isinstance(entry, Release):
            self._releases[digest], self._names[digest] = entry, name
        elif entry.kind != "voided":
            entry = replace(entry, asked={})  # what was asked is for the curator and the officer
        self._hashes.append(digest)
        self._entries.append(entry)
        return digest

    def holds(self, digest: str) -> bool:
        """Return whether a release is in this ledger."""
        return digest in self._names

    def rename(self, digest: str, name: str) -> None:
        """Call an entry that is also a file by the file's name."""
        if ", entry " in self._names[digest]:
            self._names[digest] = _free_name(name, self._names.values())

    def add(self, name: str, release: Release, digest: str) -> None:
        """Add a release that should be in this ledger."""
        self._releases[digest], self._names[digest] = release, _free_name(name, self._names.values())

    def chain(self) -> ReleaseChain:
        """Return everything that was read, with the ledger if nothing is wrong with it."""
        problems = [*(f"{item.name}: {item.says}" for item in self.skipped), *self.alarms]
        ledger: Ledger | LedgerError = Ledger(tuple(self._entries), tuple(self._hashes), self.name)
        if problems:
            ledger = LedgerError(problems[0].removesuffix(BACKUP).rstrip(". "), BACKUP)
        releases = {self._names[digest]: release for digest, release in self._releases.items()}
        return ReleaseChain(self.name, releases, ledger, {name: digest for digest, name in self._names.items()})


@lru_cache(maxsize=MOST_VERIFIED)
def _parse(data: bytes) -> tuple[Release | LedgerNote, str] | str:
    """Return a release, or a note of a ledger, and its hash; or why it is none. The same bytes are verified once."""
    try:
        return read_entry(data)
    except KanabError as problem:
        return f"{problem.fact}. {problem.remedy}".strip()
    except (ValueError, RecursionError, KeyError, TypeError):
        return _NO_RELEASE


def _claimed_hash(line: bytes) -> str | None:
    """Return the hash that a changed entry claims to have: the next one may still follow it."""
    try:
        claimed = json.loads(line)["hash"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return claimed if isinstance(claimed, str) else None


def _free_name(name: str, used: Container[str]) -> str:
    """Return a name that is not used yet: a second file of the same name gets a number."""
    numbered = (f"{name} ({number})" for number in count(2))
    return next(candidate for candidate in chain((name,), numbered) if candidate not in used)


def _digest(sources: Sequence[RawSource]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        for part in (source.name.encode(), source.trouble.encode(), *source.entries):
            digest.update(hashlib.sha256(part).digest())
        digest.update(b"ledger" if source.ledger else b"file")
    return digest.hexdigest()
