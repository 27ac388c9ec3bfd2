"""Open the store and the key of a collector, from flags."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kanab.cli.help_pages import flags_together
from kanab.cli.operating.settings import KEY, TOKEN, TOKEN_FILE, secret_of
from kanab.collector.http.access import Access
from kanab.collector.http.addresses import NOBODY, Proxies, is_loopback
from kanab.collector.keys.keyring import KeyChain, Keyring, check_apart, key_beside
from kanab.collector.keys.store_witness import Witness, witness_beside
from kanab.errors import StoreError

if TYPE_CHECKING:
    from kanab.collector.stores.store import Store
    from kanab.plan.model import Plan

FILE = "store.db"
"""The file of the store in a data directory."""

NO_WITNESS = "The store has no witness (--witness FILE): after putting a backup back run kanab restore --new-epoch."

_KEEP = "Keep a copy of it apart from backups of the data: with both, open cohorts can be read."


say_aside = partial(click.echo, err=True)


@dataclass(frozen=True)
class Place:
    """Where a collector's open cohorts and sealed batches are, and their key, as flags say it."""

    data: str | None
    url: str | None
    key: str | None = None

    def check(self) -> None:
        """Raise `StoreError` unless flags name a data directory or a database, and not both."""
        if (self.data is None) == (self.url is None):
            raise StoreError("where the store is kept is not said", "Give --data DIRECTORY or --store postgresql://….")
        if self.url is not None and not self.url.startswith(("postgresql://", "postgres://")):
            raise StoreError("that is not the address of a database", "Write --store postgresql://host/database.")

    @property
    def _file(self) -> Path:
        file = Path(self.data or "") / FILE
        if not file.exists():
            name = file.parent.name
            raise StoreError(f"there is no store in {name!r}", "Name the data directory of a collector (--data).")
        return file

    def open(self, durability: Literal["disk", "memory"] = "disk", *, new: bool = False) -> Store:
        """Open the store; where a new one may begin, make a new data directory."""
        from kanab.collector.stores.postgres import PostgresStore
        from kanab.collector.stores.sqlite import MemoryStore, SqliteStore

        self.check()
        if self.url is not None:
            if durability == "memory":
                raise StoreError("durability = 'memory' keeps no open cohort in a database", "Use --data DIRECTORY.")
            return PostgresStore(self.url)
        file = Path(self.data or "") / FILE if new else self._file
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise StoreError(f"{file.parent.name} cannot be made: {problem.strerror}", "Check the path.") from None
        return (MemoryStore if durability == "memory" else SqliteStore)(file)

    def read(self) -> Store:
        """Open the store to read it: nothing is written, and no table is brought up to date."""
        from kanab.collector.stores.postgres import PostgresStore
        from kanab.collector.stores.sqlite import SqliteStore

        self.check()
        return SqliteStore(self._file, read_only=True) if self.url is None else PostgresStore(self.url, read_only=True)

    @property
    def key_file(self) -> Path | None:
        """The file of the key, where it comes from one: the one that is named, or the one beside a data directory."""
        if self.key is None and (os.environ.get(KEY) or self.data is None):
            return None
        return key_beside(Path(self.data or "")) if self.key is None else Path(self.key)

    def check_key_is_said(self) -> None:
        """Raise `StoreError` if nothing says where the key is; a data directory has it beside it."""
        if self.key_file is None and not os.environ.get(KEY):
            raise StoreError(
                "the key of the store is not said", "Give --key FILE, the same for all collectors, or KANAB_KEY."
            )

    def keyring(self, store: Store, *, say: Callable[[str], None] = say_aside) -> Keyring:
        """Read the key of the store: a file, or KANAB_KEY; a new store with a data directory gets a new file."""
        self.check_key_is_said()
        path = self.key_file
        if path is None:
            say("The key comes from KANAB_KEY: whoever has that text can make the keys of sealed cohorts again.")
            return Keyring(KeyChain.from_secret(os.environ[KEY]))
        if self.data is not None:
            check_apart(path, Path(self.data))
        if path.exists() or store.versions():
            return Keyring.from_file(path)
        keyring = Keyring.create(path)
        say(f"A new key: {path}. {_KEEP} Without it open cohorts are lost, sealed ones are not.")
        return keyring

    def keyring_at_hand(self) -> Keyring | None:
        """Read the key of the store, or a copy of it; None where there is none beside its data."""
        path = self.key_file
        if path is None:
            return Keyring(KeyChain.from_secret(os.environ[KEY])) if os.environ.get(KEY) else None
        return Keyring.from_file(path) if self.key is not None or path.exists() else None


_PLACE_FLAGS = flags_together(
    click.option("--data", type=click.Path(file_okay=False), help="Data directory of one collector."),
    click.option("--store", metavar="URL", help="PostgreSQL database shared by several collectors."),
)
_KEY_FLAG = click.option("--key", type=click.Path(dir_okay=False), help="Key file; default beside the data directory.")


def _with_place(command: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(command)
    def placed(*args: Any, **named: Any) -> Any:
        place = Place(named.pop("data"), named.pop("store"), named.pop("key", None))
        return command(*args, place=place, **named)

    return placed


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags that say where open cohorts and sealed batches are, as a `Place`."""
    return _PLACE_FLAGS(_with_place(command))


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command those, and where their key is."""
    return _PLACE_FLAGS(_KEY_FLAG(_with_place(command)))


def listening_options(port: int) -> Callable[[Any], Any]:
    """Return the flags of an address to listen on, with its usual port."""
    ports, words = click.IntRange(0, 65535), "Port to listen on; 0 for any."
    return flags_together(
        click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
        click.option("--port", default=port, show_default=True, type=ports, help=words),
    )


plan_options = flags_together(
    click.option("--plan", "plan_file", required=True, type=click.Path(dir_okay=False), help="Plan file, kanab.toml."),
    click.option(
        "--replace-plan", metavar="NUMBER", type=click.IntRange(1),
        help="Version of the store's plan that this earlier one replaces, to go back on purpose.",
    ),
)  # fmt: skip
"""Gives a command the flags that say by which plan a store is kept."""


allow_host_option = click.option(
    "--allow-host", multiple=True, metavar="NAME", help="Name under which numbers may be read, too. Repeatable."
)
"""Gives a command the names by which browsers reach it."""


def reading_access(host: str, allow_host: Sequence[str], proxies: Proxies = NOBODY) -> Access:
    """Return who may read numbers at an address: with names given, only under those and the address itself."""
    return Access(dashboard_token(host, proxies), hosts=(*allow_host, host) if allow_host else (), proxies=proxies)


def witness_of(keyring: Keyring, path: str | None = None) -> Witness | None:
    """Return the witness of a store: the file that a flag names, or the one beside the key file."""
    if path is None and keyring.path is None:
        return None
    return Witness(path or witness_beside(keyring.path or Path()), keyring.fingerprint)


SHORTEST_TOKEN = 16
"""Characters of a token that other machines may try."""


def dashboard_token(host: str, proxies: Proxies = NOBODY) -> str | None:
    """Return the token (KANAB_TOKEN or a file); numbers that other machines can reach need a long one, or `StoreError`.

    They can also where a proxy on this machine is trusted.
    """
    token = secret_of(TOKEN, TOKEN_FILE)
    if token is not None and len(token) < SHORTEST_TOKEN and (proxies or not is_loopback(host)):
        raise StoreError(
            f"the token has fewer than {SHORTEST_TOKEN} characters, and other machines could guess it",
            "Make one: openssl rand -hex 16",
        )
    if token is None and not is_loopback(host):
        raise StoreError(
            "numbers could be read from other machines",
            "Set KANAB_TOKEN to a long random text, or listen at 127.0.0.1.",
        )
    return token


def voucher_keys_of(plan: Plan) -> tuple[bytes, ...]:
    """Return the keys of vouchers, from a variable or a file; `KanabError` if the plan needs one and there is none."""
    from kanab.collector.protocol.nonces import FILE_VARIABLE, VARIABLE, read_voucher_keys

    text = secret_of(VARIABLE, FILE_VARIABLE)
    return read_voucher_keys(text or "") if plan.vouch or text else ()


PEERS = "KANAB_CLOCK_PEERS"
"""The environment variable with addresses of web servers, separated by spaces."""


clock_options = flags_together(
    click.option(
        "--clock-peer", "clock_peers", multiple=True, metavar="URL", envvar=PEERS,
        help="Web server whose time may confirm the clock. Repeatable.",
    ),
    click.option("--accept-clock", is_flag=True, help="This machine's clock is right: I have looked."),
)  # fmt: skip
"""Gives a command the flags that confirm the clock of this machine."""
