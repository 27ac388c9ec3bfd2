"""Read what was released, wherever it is kept: a release file, a ledger, a collector's data directory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kanab.cli.source_options import is_release
from kanab.cli.stores import FILE
from kanab.errors import KanabError, NothingSealedError, SourceError

if TYPE_CHECKING:
    from kanab.privacy.ledger import Ledger
    from kanab.privacy.release import Release


def is_ledger(source: str) -> bool:
    """Check for a ledger: it is called so, or it is in the data directory of a collector; not in one of a table."""
    return Path(source).suffix == ".ledger" or (Path(source).is_dir() and not is_table_directory(source))


def is_table_directory(source: str) -> bool:
    """Check for a directory of Parquet files, or of a Delta or Iceberg table."""
    if not Path(source).is_dir() or is_data_directory(source):
        return False
    from kanab.counting.files import matching_files

    with suppress(SourceError):
        return bool(matching_files(source))
    return False


def is_data_directory(source: str) -> bool:
    """Check for the data directory of a collector."""
    return (Path(source) / FILE).exists()


def ledger_at(source: str) -> Ledger:
    """Read a ledger file, or the sealed batches of a data directory, verified entry by entry."""
    from kanab.collector.sealing import stored_ledger
    from kanab.collector.stores.sqlite import SqliteStore
    from kanab.privacy.ledger import read_ledger

    path = Path(source)
    if not path.is_dir():
        return read_ledger(path)
    if not is_data_directory(source):
        raise SourceError(
            f"{path.name or path} is not the data directory of a collector", "Name one of kanab serve, or a file."
        )
    with closing(SqliteStore(path / FILE, read_only=True)) as store:
        return stored_ledger(store)


def values_at(files: Sequence[str]) -> dict[str, Any]:
    """Return what an audit or an attack is given at these places, by name: paths, and the ledgers of data directories.

    In place of a ledger that cannot be verified stands the problem. Raises `SourceError` where a folder is none.
    """
    short = [Path(file).name for file in files]
    values: dict[str, Any] = {}
    for file, name in zip(files, short if len({*short}) == len(short) else files, strict=True):
        values[name] = file
        if Path(file).is_dir() and not is_data_directory(file):
            ledger_at(file)  # says that it is no collector's
        if Path(file).is_dir():
            try:
                values[name] = ledger_at(file)
            except KanabError as problem:
                values[name] = problem
    return values


def releases_at(source: str) -> list[tuple[str, Release]]:
    """Read everything released in one place, each with a name; raise `SourceError` where that is nothing."""
    from kanab.privacy.release import Release
    from kanab.privacy.release_json import read_release

    name = Path(source).name
    if not is_ledger(source):
        return [(name, read_release(source))]
    if not Path(source).exists():
        raise SourceError(f"there is no file {name!r}", "Check the path.")
    entries = enumerate(ledger_at(source).entries, start=1)
    releases = [(f"{name}, entry {place}", entry) for place, entry in entries if isinstance(entry, Release)]
    if not releases:
        raise NothingSealedError(
            f"nothing is sealed in {name} yet", "A cohort is sealed at the first tick after it is ripe."
        )
    return releases


def releases_by_name(sources: tuple[str, ...], *, add_batches: bool = False) -> dict[str, Release]:
    """Return every release of these places by a short name: that of its file, or its last cohort.

    With ``add_batches`` the batches of a ledger or a collector are added up to one release. Raises `SourceError` where
    a folder holds no release.
    """
    from kanab.privacy.batches import add_releases

    named: dict[str, Release] = {}
    for file in chain.from_iterable(map(_files, sources)):
        releases = releases_at(file)
        if add_batches and len(releases) > 1 and all(released.receipt.batch for _, released in releases):
            releases = [(Path(file).name, add_releases([released for _, released in releases]))]
        for name, released in releases:
            batch = released.receipt.batch
            bare = name.removesuffix(".json").removesuffix(".release")
            short = bare if batch is None or released.parts else batch.through
            named[short if short not in named else f"{short} ({len(named) + 1})"] = released
    return named


def _files(source: str) -> list[str]:
    """Return the release files of a folder; anything else as it is."""
    folder = Path(source)
    if not folder.is_dir() or is_data_directory(source):
        if not is_release(source) and not is_ledger(source):
            raise SourceError(f"{folder.name} is not a release", "Name release files, ledgers, or a folder of them.")
        return [source]
    files = [str(file) for file in sorted(folder.glob("*.json")) if is_release(str(file))]
    if not files:
        raise SourceError(f"{folder.name or folder} holds no release file", "Write some: kanab release … -o FILE.json.")
    return files
