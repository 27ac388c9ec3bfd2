"""What an audit or an attack is given: releases, ledgers and their paths, by the names that findings use."""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from kanab.errors import KanabError, NothingSealedError, SourceError
from kanab.privacy.ledger import Ledger, read_ledger
from kanab.privacy.release import Release, refuse_own_rows

Source: TypeAlias = Release | Ledger | str | PathLike[str]
Released: TypeAlias = Source | Sequence[Source] | Mapping[str, Source]

_REMEDY = "Give releases, ledgers or their paths; one of them, a list, or a dict of names."


def named_sources(released: Any) -> dict[str, Source | KanabError]:
    """Return releases, ledgers and paths by name; in a dict also the problem why something could not be read.

    >>> list(named_sources(["june/shop.json", "july/shop.json"])), list(named_sources("june/shop.json"))
    (['june/shop.json', 'july/shop.json'], ['shop.json'])
    """
    if isinstance(released, Mapping):
        named = dict(released)
    else:
        sources = list(released) if isinstance(released, (list, tuple)) else [released]
        short = [_name_of(source, number) for number, source in enumerate(sources, 1)]
        named = {
            name if short.count(name) == 1 else str(source) if _is_path(source) else f"{name} ({number})": source
            for number, (name, source) in enumerate(zip(short, sources, strict=True), 1)
        }
    for source in named.values():
        refuse_own_rows(source)
        if not isinstance(source, (Release, Ledger, str, PathLike, KanabError)):
            raise SourceError("that is not a release", _REMEDY)
    if not named:
        raise SourceError("there is no release", _REMEDY)
    return named


def _name_of(source: Any, number: int) -> str:
    if _is_path(source):
        return Path(source).name
    return (isinstance(source, Ledger) and source.name) or f"release {number}"


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, PathLike))


def is_ledger_path(source: Source | KanabError) -> bool:
    """Tell whether a path is that of a ledger: it is called so."""
    return isinstance(source, (str, PathLike)) and Path(source).suffix == ".ledger"


def existing_ledger(path: Any) -> Ledger:
    """Read a ledger. Raises `SourceError` where there is no such file."""
    if not Path(path).exists():
        raise SourceError(f"there is no file {Path(path).name!r}", "Check the path.")
    return read_ledger(path)


def entries_of(name: str, ledger: Ledger) -> Iterator[tuple[str, Release]]:
    """Yield the releases of a ledger by name. Raises `NothingSealedError` where it holds none."""
    if not ledger.releases:
        raise NothingSealedError(
            f"nothing is sealed in {name} yet", "A cohort is sealed at the first tick after it is ripe."
        )
    for place, entry in enumerate(ledger.entries, start=1):
        if isinstance(entry, Release):
            yield f"{name}, entry {place}", entry
