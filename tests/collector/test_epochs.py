"""An older store is put back, or a memory is lost: sealed means stay those of the people who are counted."""

import asyncio
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.closing import Keep
from tests.collector.collector_process import Place, Server, Wire
from tests.collector.many_visitors import PLAN, PLAN_TEXT, Person, Visitors, after_everything, collected

from kanab.collector.http.service import Service
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.keys.store_witness import Witness
from kanab.collector.readiness import Problem
from kanab.collector.restoring import RESTORED, begin_epoch
from kanab.collector.sealing import stored_ledger
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore

PEOPLE = 240


def visit(visitors: Visitors, server: Server, people: list[Person] | None = None) -> list[int | None]:
    """Everybody's next post; whoever is told that the store has another epoch sends nothing more. The statuses."""

    everybody, statuses = list(visitors.people) if people is None else people, []

    async def go(some: list[Person]) -> None:
        async with Wire() as wire:
            for person in some:
                statuses.append(await wire.send(server.port, visitors.next_post(person).body))
                if statuses[-1] == 204:
                    visitors.acknowledge(person)
                elif statuses[-1] == 410:
                    visitors.people.remove(person)

    async def go_all() -> None:
        await asyncio.gather(*(go(everybody[first::8]) for first in range(8)))

    asyncio.run(go_all())
    return statuses


def newcomers(visitors: Visitors, count: int, server: Server) -> None:
    """So many more people, who read the config as it is now."""
    visitors.epoch = json.loads(config(server)).get("epoch", "")
    for _ in range(count):
        visitors.join()


def config(server: Server) -> bytes:
    _, headers, _ = server.ask("GET", "/v1/config.json")
    return server.ask("GET", headers["location"])[2]


def put_back(place: Place, backup: Path) -> None:
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        (place.data / name).unlink(missing_ok=True)
    shutil.copy(backup, place.data / "store.db")


def test_after_an_old_backup_sealed_means_are_those_of_the_people_who_are_counted(place: Place, closing: Keep) -> None:
    plan, visitors = place.plan(PLAN_TEXT), Visitors(7)
    server = closing(Server(place, "--plan", plan, "--data", place.data)).start()
    newcomers(visitors, PEOPLE, server)
    assert {*visit(visitors, server), *visit(visitors, server)} == {204}
    assert server.stop() == 0
    shutil.copy(place.data / "store.db", place.root / "backup.db")
    server.start()
    newcomers(visitors, PEOPLE // 4, server)
    assert {*visit(visitors, server)} == {204}
    assert server.stop() == 0

    put_back(place, place.root / "backup.db")
    server.start(healthy=False)
    status, _, body = server.ask("GET", "/readyz")
    assert (status, body.startswith(b"epoch: ")) == (503, True)
    assert {*visit(visitors, server, visitors.people[:3])} == {503}
    assert "older than what its collectors have acknowledged: a backup was put back. Decide with kanab" in server.stderr
    sealing = ["seal", "--plan", plan, "--data", place.data, "--as-of", after_everything()]
    assert "Decide with kanab restore" in place.run(*sealing).err
    assert server.stop() == 0

    done = place.run("restore", "--data", place.data)
    assert (done.code, "A new epoch" in done.out) == (0, True)
    server.start()
    assert {*visit(visitors, server)} == {410}
    assert visitors.people == []
    newcomers(visitors, PEOPLE, server)
    assert {*visit(visitors, server), *visit(visitors, server)} == {204}
    assert server.stop() == 0
    sealed = place.run(*sealing)
    assert (sealed.code, "older backup" in sealed.out) == (0, True)

    store = closing(SqliteStore(place.data / "store.db"))
    (release,) = stored_ledger(store).releases
    truth = visitors.tallies()
    assert set(release.tables) == set(truth)
    for name, table in release.tables.items():
        assert table == truth[name]


def copied(db: Any, source: str, target: str) -> None:
    """Bring the tables of one schema into another, as a dump and its restore would."""
    db.execute(f"DROP SCHEMA IF EXISTS {target} CASCADE")
    db.execute(f"CREATE SCHEMA {target}")
    tables = [name for (name,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (source,))]
    for name in tables:
        db.execute(f"CREATE TABLE {target}.{name} (LIKE {source}.{name} INCLUDING ALL)")
        db.execute(f"INSERT INTO {target}.{name} SELECT * FROM {source}.{name}")
    for table, column in (("kanab_records", "id"), ("kanab_sealed", "number")):
        last, called = db.execute(f"SELECT last_value, is_called FROM {source}.{table}_{column}_seq").fetchone()
        db.execute(f"CREATE SEQUENCE {target}.{table}_{column}_seq OWNED BY {target}.{table}.{column}")
        db.execute("SELECT setval(%s, %s, %s)", (f"{target}.{table}_{column}_seq", last, called))
        default = f"nextval('{target}.{table}_{column}_seq'::regclass)"
        db.execute(f"ALTER TABLE {target}.{table} ALTER {column} SET DEFAULT {default}")


def test_a_restored_database_is_noticed_by_every_collector_that_has_a_witness_and_decided_once(
    postgres_url: str, tmp_path: Path, closing: Keep
) -> None:
    import psycopg  # noqa: PLC0415 - slow to import

    visitors = Visitors(3)
    visitors.join()

    def machine(name: str) -> Service:
        """A collector with a key file of its own."""
        path = tmp_path / name
        if not path.exists():
            Keyring.create(tmp_path / "first.key")
            shutil.copy(tmp_path / "first.key", path)
            path.chmod(0o600)
        ring = Keyring.from_file(path)
        store = closing(PostgresStore(postgres_url))
        return Service(store, ring, PLAN, witness=Witness(tmp_path / f"{name}.witness", ring.fingerprint))

    async def post(service: Service, count: int) -> None:
        person = visitors.people[0]
        for _ in range(count):
            await service.take(visitors.next_post(person).body, None)
            visitors.acknowledge(person)
        await service.stop()

    asyncio.run(post(machine("one.key"), 2))
    with psycopg.connect(postgres_url, autocommit=True) as db:
        copied(db, "public", "backup")
        for name in ("one.key", "two.key"):
            asyncio.run(post(machine(name), 2))
        copied(db, "backup", "public")
    services = [machine("one.key"), machine("two.key")]
    for service in services:
        service.check_clock()
        assert service.readiness.problems() == [Problem.EPOCH]
    begin_epoch(services[0].store, RESTORED, services[0].now(), witness=services[0]._witness)
    for service in services:
        service.check_clock()
        assert service.readiness.problems() == []
        assert service.epoch != ""
        asyncio.run(service.stop())


@pytest.mark.slow
def test_after_a_lost_machine_the_backup_and_the_key_kept_apart_go_on(
    place: Place, tmp_path: Path, closing: Keep
) -> None:
    """What docs/how-to/deployment.md says: copy the store while it runs, the key apart; drill; put back; restore."""
    plan, visitors, backup, apart = place.plan(PLAN_TEXT), Visitors(41), tmp_path / "backup", tmp_path / "apart.key"
    server = closing(Server(place, "--plan", plan, "--data", place.data)).start()
    newcomers(visitors, 60, server)
    assert {*visit(visitors, server)} == {204}
    backup.mkdir()
    source, target = (sqlite3.connect(path) for path in (place.data / "store.db", backup / "store.db"))
    source.backup(target)
    source.close()
    target.close()
    shutil.copy(place.key, apart)
    at_backup = visitors.tallies()
    assert {*visit(visitors, server)} == {204}  # lost with the machine
    server.kill()
    shutil.rmtree(place.data)
    for name in (place.key, place.key.with_name(f"{place.key.name}.witness")):
        name.unlink(missing_ok=True)

    drill = place.run("drill", backup, "--key", apart)
    assert (drill.code, drill.out.splitlines()[-1]) == (0, "A restore would work."), drill
    shutil.copytree(backup, place.data)
    shutil.copy(apart, place.key)
    restored = place.run("restore", "--data", place.data, "--new-epoch", "--keep-open")
    assert (restored.code, "A new epoch" in restored.out) == (0, True), restored

    server.start()
    assert {*visit(visitors, server)} == {410}  # they were counted up to the backup, and send nothing more
    later = Visitors(42)
    newcomers(later, 40, server)
    assert {*visit(later, server)} == {204}
    assert server.stop() == 0
    store = closing(SqliteStore(place.data / "store.db"))
    truth = later.tallies()
    expected = {name: at_backup[name] + truth[name] for name in truth}
    assert collected(store, RecordCipher(Keyring.from_file(place.key))) == expected
