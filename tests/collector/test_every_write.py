"""Posting, compacting, sealing with people who wait, and restoring, each killed before every step that writes.

What was under way is done again, as clients, collectors and operators do, and all goes on. In the end the ledger holds
the batches of a store to which nothing happened, digit for digit. And no record looks deleted: the witness may be
behind the store, never ahead, and numbers have no gaps.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.collector.collector_process import Done, ForkServer, Place
from tests.collector.posting import recalling, witness_of
from tests.collector.test_sealing import MONDAY, PLAN, cohort, people, posts, send

from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.counters import Counters
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.sealing import missing_records, stored_ledger
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Store

SCRIPT = str(Path(__file__).with_name("killed_collector.py"))
LATER = MONDAY + timedelta(weeks=1)
LIFE: list[list[Any]] = [
    ["send", "this.json", 2],  # people of this week, after those who are there
    ["compact"],
    ["seal", cohort(MONDAY)],  # few are in the banner: they wait
    ["send", "next.json", 200],
    ["seal", cohort(LATER)],  # and leave with these
]


@dataclass
class Site:
    """A store with its key, in a folder or a database; ``copy`` makes another one of it."""

    place: Place
    url: str = ""  # of PostgreSQL

    @property
    def store(self) -> str:
        database = self.place.root.name
        return self.url.replace("/postgres?", f"/{database}?") if self.url else str(self.place.data / "store.db")

    def open(self) -> Any:
        return closing[Store](PostgresStore(self.store) if self.url else SqliteStore(self.store))

    def make(self) -> Site:
        if self.url:
            self._databases(f"CREATE DATABASE {self.place.root.name}")
        cipher = RecordCipher(Keyring.create(self.place.key))
        with self.open() as store:
            Versions().record(store, PLAN, cohort(MONDAY))
            store.claim(cipher.keyring.fingerprint)
            for seed in range(4):  # as many records
                send(store, cipher, posts(people(90, seed, banner=0), "2026-W46"), MONDAY)
                cipher.settle([cohort(MONDAY)])
            witness_of(cipher.keyring).note(cipher.seen)
        for name, rows, now in (("this", people(4, 5), MONDAY), ("next", people(200, 6), LATER)):
            bodies = posts(rows, now.strftime("%G-W%V"))
            (self.place.root / f"{name}.json").write_text(json.dumps([counted(body, now) for body in bodies]))
        return self

    def copy(self, name: str) -> Site:
        root = self.place.root.with_name(name)
        shutil.copytree(self.place.root, root)
        if self.url:
            self._databases(f"CREATE DATABASE {name} TEMPLATE {self.place.root.name}")
        return Site(Place(root, self.place.fork_server), self.url)

    def drop(self) -> None:
        shutil.rmtree(self.place.root)
        if self.url:
            self._databases(f"DROP DATABASE {self.place.root.name} WITH (FORCE)")

    def _databases(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(statement)  # type: ignore[call-overload]

    def run(self, steps: list[list[Any]], die_at: int | None = None) -> Done:
        given = (self.store, self.place.key, *map(json.dumps, steps))
        return self.place.run(*given, script=SCRIPT, cwd=str(self.place.root), die_at=die_at)

    def missing(self) -> int:
        with self.open() as store:
            return missing_records(store, recalling(store, Keyring.from_file(self.place.key)))

    def do(self, steps: list[list[Any]]) -> tuple[Counters, list[Any]]:
        """Do what is left to do; what is held then, and the batches, whose chain holds, without their salts."""
        assert (done := self.run(steps)).code == 0, done.err
        assert self.missing() == 0
        keyring = Keyring.from_file(self.place.key)
        with self.open() as store:
            assert keyring.period == max(store.sealed_through() + 1, 0)  # no key of what is sealed is left
            releases = stored_ledger(store).releases
            assert [release.receipt.deleted for release in releases] == [()] * len(store.sealed())
            held, batches = RecordCipher(keyring).genuine(store.records()).counters, map(json.loads, store.sealed())
            return held, [
                {name: batch[name] for name in batch.keys() - {"salt", "hash", "previous"}} for batch in batches
            ]


def counted(body: str, now: datetime) -> tuple[str, Any]:
    accepted = PostAcceptor(PLAN).accept(f"kanab/1 {make_nonce(now)}\n{body}\n".encode(), "text/plain", now)
    return make_nonce(datetime.now(UTC)), accepted.deltas


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path, fork_server: ForkServer) -> Iterator[Site]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    yield (made := Site(Place(tmp_path / "made", fork_server), url).make())
    made.drop()


@pytest.mark.parametrize("at", range(3), ids=["post", "compact", "wait"])
def test_it_may_be_killed_before_any_write(site: Site, at: int) -> None:
    assert site.run(LIFE[:at]).code == 0
    undisturbed = site.copy("undisturbed")
    so_far, end = undisturbed.do([LIFE[at]]), undisturbed.do(LIFE[at + 1 :])
    undisturbed.drop()
    assert (end[0], ["banner" in batch["tables"] for batch in end[1]]) == ({}, [False, True])
    kills, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        attempt = site.copy(f"attempt{kills}")
        done = attempt.run([LIFE[at]], die_at=kills)
        assert attempt.missing() == 0, kills
        file = attempt.place.root / "this.json"  # clients send again what was not acknowledged
        file.write_text(json.dumps([each for each in json.loads(file.read_text()) if each[0] not in done.out]))
        assert attempt.do([LIFE[at]]) == so_far, kills
        if not kills % 5:  # what comes later follows from that
            assert attempt.do(LIFE[at + 1 :]) == end, kills
        attempt.drop()
        code, kills = done.code, kills + 1
    assert (code, done.err) == (0, "")
    assert kills > 20
