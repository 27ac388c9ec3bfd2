"""Read several releases by name: files, ledgers, data directories of collectors, folders of release files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kanab.cli.released_sources import is_data_directory, is_ledger, releases_at
from kanab.cli.source_options import is_release
from kanab.errors import SourceError

if TYPE_CHECKING:
    from kanab.privacy.release import Release


def releases_by_name(sources: tuple[str, ...], *, add_batches: bool = False) -> dict[str, Release]:
    """Return every release of these places by a short name: that of its file, or its last cohort.

    With ``add_batches`` the batches of a ledger or a collector are added up to one release. Raises `SourceError` where
    a folder holds no release.
    """
    from kanab.privacy.batches import add_releases

    named: dict[str, Release] = {}
    for file in (file for source in sources for file in _files(source)):
        releases = releases_at(file)
        if add_batches and len(releases) > 1 and all(released.receipt.batch for _, released in releases):
            releases = [(Path(file).name, add_releases([released for _, released in releases]))]
        for name, released in releases:
            batch = released.receipt.batch
            short = _bare(name) if batch is None or released.parts else batch.through
            named[short if short not in named else f"{short} ({len(named) + 1})"] = released
    return named


def _bare(name: str) -> str:
    return name.removesuffix(".json").removesuffix(".release")


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
