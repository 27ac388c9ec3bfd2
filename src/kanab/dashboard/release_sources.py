"""Where releases are read from: the store of a collector that runs here, or files, ledgers and data directories."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from kanab.collector.http.service import Service
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Store
from kanab.dashboard.next_seal import CollectionStatus, collection_status
from kanab.dashboard.releases import BACKUP, Contents, RawSource, read_contents
from kanab.errors import KanabError, SourceError, StoreError
from kanab.privacy.ledger import FORMAT

Clock = Callable[[], datetime]
STALE = "What is shown was read earlier."


class ReleaseSource(ABC):
    """A place with releases; what was read last is shown with an alarm while nothing newer can be read."""

    _last = Contents()

    def read(self) -> Contents:
        """Return everything that is there now; while it cannot be read, what was read before, with an alarm."""
        try:
            self._last = read_contents(list(self._sources()))
        except (KanabError, OSError) as problem:
            fact = problem if isinstance(problem, KanabError) else StoreError("the files cannot be read", "")
            says = fact.fact[:1].upper() + fact.fact[1:]
            return replace(self._last, alarms=(f"{says}. {fact.remedy} {STALE}".replace("  ", " "), *self._last.alarms))
        return self._last

    def status(self) -> CollectionStatus | None:
        """Return how collecting stands; None where nothing is collected."""
        return None

    @abstractmethod
    def _sources(self) -> Iterable[RawSource]:
        """Return what is there, not verified yet."""


class CollectorReleases(ReleaseSource):
    """The sealed batches of a collector that runs in this process. ``clock`` is the collector's own."""

    def __init__(self, service: Service, clock: Clock) -> None:
        self._service, self._clock = service, clock
        self._last_status: CollectionStatus | None = None

    def _sources(self) -> Iterable[RawSource]:
        return [RawSource("the store", tuple(self._service.store.sealed()), ledger=True)]

    def status(self) -> CollectionStatus | None:
        """Return the plan in force and the next seal; people per arm as the collector floored them."""
        service = self._service
        try:
            self._last_status = collection_status(service.store, service.plan, self._clock())
        except KanabError:
            self._last_status = self._last_status or CollectionStatus(service.plan)
        if self._last_status is None:
            return None
        return replace(self._last_status, live=service.live, problems=tuple(service.readiness.problems()))


class StoreReleases(ReleaseSource):
    """The sealed batches of a collector's store, opened to be read each time; ``open_store`` opens it."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open = open_store
        open_store().close()

    def _sources(self) -> Iterable[RawSource]:
        with closing(self._open()) as store:
            return [RawSource("the store", tuple(store.sealed()), ledger=True)]


class FileReleases(ReleaseSource):
    """Release files, ledgers, folders of them, and data directories of collectors, read again each time."""

    def __init__(self, paths: Sequence[str | Path], store_file: str, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self._paths, self._store_file, self._clock = [Path(path) for path in paths], store_file, clock
        for path in self._paths:
            if not path.exists():
                raise SourceError(f"there is no {path.name!r}", "Name a folder, a ledger or release files.")
        self._stores: set[Path] = set()

    def status(self) -> CollectionStatus | None:
        """Return how the collector of a data directory stands; None where there are only files."""
        for path in self._paths:
            if (path / self._store_file).is_file():
                try:
                    with closing(SqliteStore(path / self._store_file, read_only=True)) as store:
                        return collection_status(store, None, self._clock())
                except KanabError:
                    return None
        return None

    def _sources(self) -> Iterator[RawSource]:
        files: list[Path] = []
        for path in self._paths:
            if (path / self._store_file).is_file():
                self._stores.add(path)
                with closing(SqliteStore(path / self._store_file, read_only=True)) as store:
                    yield RawSource(path.name, tuple(store.sealed()), ledger=True)
            elif path in self._stores or not path.exists():
                raise SourceError(f"{path.name} is gone", "Put it back.")
            elif path.is_dir():
                files += _releases_in(path)
            else:
                files.append(path)
        yield from (_raw_source(file) for file in _with_ledgers(files))


def _releases_in(folder: Path) -> list[Path]:
    """Return the ledgers, and the JSON files that are, or are called, releases; a folder may hold other things."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_file())
    ledgers = [folder / name for name in names if name.endswith(".ledger")]
    files = [folder / name for name in names if name.endswith(".json")]
    return ledgers + [path for path in files if path.name.endswith(".release.json") or _is_release(path)]


def _is_release(path: Path) -> bool:
    try:
        plain = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError):
        return False
    return isinstance(plain, dict) and str(plain.get("format", "")).startswith("kanab-release/")


def _with_ledgers(files: Iterable[Path]) -> list[Path]:
    """Return the ledgers among and beside the files, then the other files."""
    paths = list(files)
    releases = [path for path in paths if path.suffix != ".ledger"]
    beside = [folder / "kanab.ledger" for folder in dict.fromkeys(path.parent for path in releases)]
    ledgers = [*(path for path in paths if path.suffix == ".ledger"), *(path for path in beside if path.is_file())]
    return [*dict.fromkeys(ledgers), *releases]


def _raw_source(path: Path) -> RawSource:
    ledger = path.suffix == ".ledger"
    try:
        data = path.read_bytes()
    except OSError as problem:
        return RawSource(path.name, (), ledger, f"it cannot be read: {problem.strerror}.")
    if not ledger:
        return RawSource(path.name, (data,))
    first, *lines = data.split(b"\n")
    try:
        known = json.loads(first) == {"format": FORMAT}
    except (ValueError, RecursionError):
        known = False
    if not known:
        return RawSource(path.name, (), True, "it is not a ledger. Give one that kanab release wrote.")
    cut = lines.pop() if lines else b""
    trouble = f"its end is missing. {BACKUP}" if cut or not data.endswith(b"\n") else ""
    return RawSource(path.name, tuple(lines), True, trouble)
