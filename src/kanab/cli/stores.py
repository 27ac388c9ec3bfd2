"""The store and the key of a collector, from flags."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click

from kanab.collector.keys.keyfile import check_apart, key_beside
from kanab.collector.keys.keyring import Chain, Keyring
from kanab.collector.stores.memory import MemoryStore
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Store
from kanab.errors import StoreError

FILE = "store.db"
"""The file of the store in a data directory."""

_KEEP = "Keep a copy of it apart from backups of the data: with both, open cohorts can be read."


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where open cohorts and sealed batches are kept, and their key."""
    for option in (
        click.option("--key", type=click.Path(dir_okay=False), help="The key file; default beside the data directory."),
        click.option("--store", metavar="URL", help="A PostgreSQL database for several collectors."),
        click.option("--data", type=click.Path(file_okay=False), help="The data directory of one collector."),
    ):
        command = option(command)
    return command


def opened_store(
    data: str | None, url: str | None, durability: Literal["disk", "memory"] = "disk", *, new: bool = False
) -> Store:
    """The store that flags name; where a new one may begin, a new data directory is made."""
    if (data is None) == (url is None):
        raise StoreError("where the store is kept is not said", "Give --data DIRECTORY or --store postgresql://….")
    if url is not None:
        if not url.startswith(("postgresql://", "postgres://")):
            raise StoreError("that is not the address of a database", "Write --store postgresql://host/database.")
        if durability == "memory":
            raise StoreError("durability = 'memory' keeps no open cohort in a database", "Use --data DIRECTORY.")
        return PostgresStore(url)
    folder = Path(data or "")
    if not new and not (folder / FILE).exists():
        raise StoreError(f"there is no store in {folder.name!r}", "Name the data directory of a collector (--data).")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise StoreError(f"{folder.name} cannot be made: {problem.strerror}", "Check the path.") from None
    return (MemoryStore if durability == "memory" else SqliteStore)(folder / FILE)


def opened_keyring(store: Store, data: str | None, key: str | None, *, say: Callable[[str], None]) -> Keyring:
    """The key of a store: a file, or KANAB_KEY; a new store with a data directory gets a new file."""
    secret = os.environ.get("KANAB_KEY")
    if secret and key is None:
        found = Keyring(Chain.from_secret(secret))
        say("The key comes from KANAB_KEY: whoever has that text can make the keys of sealed cohorts again.")
        return found
    if key is None and data is None:
        raise StoreError(
            "the key of the store is not said", "Give --key FILE, the same for all collectors, or KANAB_KEY."
        )
    path = Path(key) if key is not None else key_beside(Path(data or ""))
    if data is not None:
        check_apart(path, Path(data))
    if path.exists() or store.versions():
        return Keyring.from_file(path)
    made = Keyring.create(path)
    say(f"A new key: {path}. {_KEEP} Without it open cohorts are lost, sealed ones are not.")
    return made
