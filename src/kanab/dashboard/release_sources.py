"""Where releases are found: the store of a collector that runs here, or files, ledgers and data directories."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from kanab.collector.http.service import Service
from kanab.collector.stores.sqlite import SqliteStore
from kanab.dashboard.next_seal import Standing, standing
from kanab.dashboard.releases import BACKUP, Contents, Pile, contents_of
from kanab.errors import KanabError, SourceError, StoreError
from kanab.privacy.ledger import FORMAT

Clock = Callable[[], datetime]
STALE = "What is shown was read before."


class Shelf(Protocol):
    """A place with releases: what lies there now, and what is being waited for."""

    def look(self) -> Contents:
        """Everything that may be shown, verified."""

    def standing(self) -> Standing | None:
        """How collecting stands, where anything is collected."""


class CollectorShelf:
    """The sealed batches of a collector that runs in this process. ``clock`` is the collector's own."""

    def __init__(self, service: Service, clock: Clock) -> None:
        self._service, self._clock = service, clock
        self._last = Contents()
        self._stood: Standing | None = None

    def look(self) -> Contents:
        """The batches; while the store is gone, those that were read before, with an alarm."""
        try:
            self._last = contents_of([Pile("the store", tuple(self._service.store.sealed()), ledger=True)])
        except StoreError as problem:
            return stale(self._last, problem)
        return self._last

    def standing(self) -> Standing | None:
        """The plan in force and the next seal; people per arm as the collector floored them."""
        service = self._service
        try:
            self._stood = standing(service.store, service.plan, self._clock())
        except KanabError:
            self._stood = self._stood or Standing(service.plan)
        if self._stood is None:
            return None
        return replace(self._stood, live=service.live, healthy=service.healthy)


class FileShelf:
    """Release files, ledgers, folders of them, and data directories of collectors, read again at every look."""

    def __init__(self, paths: Sequence[str | Path], store_file: str, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self._paths, self._store_file, self._clock = [Path(one) for one in paths], store_file, clock
        for path in self._paths:
            if not path.exists():
                raise SourceError(f"there is no {path.name!r}", "Name a folder, a ledger or release files.")
        self._stores: set[Path] = set()
        self._last = Contents()

    def look(self) -> Contents:
        """Everything that lies there now; while it cannot be read, what was read before, with an alarm."""
        try:
            self._last = contents_of(list(self._piles()))
        except (KanabError, OSError) as problem:
            fact = problem if isinstance(problem, KanabError) else StoreError("the files cannot be read", "")
            return stale(self._last, fact)
        return self._last

    def standing(self) -> Standing | None:
        """What the collector of a data directory waits for; nothing is waited for where there are only files."""
        for path in self._paths:
            if (path / self._store_file).is_file():
                try:
                    with closing(SqliteStore(path / self._store_file)) as store:
                        return standing(store, None, self._clock())
                except KanabError:
                    return None
        return None

    def _piles(self) -> Iterator[Pile]:
        files: list[Path] = []
        for path in self._paths:
            if (path / self._store_file).is_file():
                self._stores.add(path)
                with closing(SqliteStore(path / self._store_file)) as store:
                    yield Pile(path.name, tuple(store.sealed()), ledger=True)
            elif path in self._stores or not path.exists():
                raise SourceError(f"{path.name} is gone", "Put it back.")
            elif path.is_dir():
                files += _releases_in(path)
            else:
                files.append(path)
        yield from (_pile(file) for file in _with_ledgers(files))


def stale(last: Contents, problem: KanabError) -> Contents:
    """What was read before, and that it cannot be read now."""
    fact = problem.fact[:1].upper() + problem.fact[1:]
    return replace(last, alarms=(f"{fact}. {problem.remedy} {STALE}".replace("  ", " "), *last.alarms))


def _releases_in(folder: Path) -> list[Path]:
    """Ledgers, and JSON files that are, or are called, releases; a folder may hold other things."""
    found = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    ledgers = [path for path in found if path.suffix == ".ledger"]
    return ledgers + [path for path in found if path.suffix == ".json" and _is_release(path)]


def _is_release(path: Path) -> bool:
    if path.name.endswith(".release.json"):
        return True
    try:
        plain = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError):
        return False
    return isinstance(plain, dict) and str(plain.get("format", "")).startswith("kanab-release/")


def _with_ledgers(files: Iterable[Path]) -> list[Path]:
    """The files, and the ledgers that lie beside them."""
    named = list(files)
    beside = [path.with_name("kanab.ledger") for path in named if path.suffix != ".ledger"]
    found = dict.fromkeys([*(path for path in named if path.suffix == ".ledger"), *(p for p in beside if p.is_file())])
    return [*found, *(path for path in named if path.suffix != ".ledger")]


def _pile(path: Path) -> Pile:
    ledger = path.suffix == ".ledger"
    try:
        data = path.read_bytes()
    except OSError as problem:
        return Pile(path.name, (), ledger, f"it cannot be read: {problem.strerror}.")
    if not ledger:
        return Pile(path.name, (data,))
    first, *lines = data.split(b"\n")
    try:
        known = json.loads(first) == {"format": FORMAT}
    except (ValueError, RecursionError):
        known = False
    if not known:
        return Pile(path.name, (), True, "it is not a ledger. Give one that kanab release wrote.")
    cut = lines.pop() if lines else b""
    trouble = f"its end is missing. {BACKUP}" if cut or not data.endswith(b"\n") else ""
    return Pile(path.name, tuple(lines), True, trouble)
