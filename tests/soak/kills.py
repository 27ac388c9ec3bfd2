"""Collectors that are killed under load, again and again: over SQLite one, over PostgreSQL two in turn."""

import asyncio
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

from tests.collector.collector_process import ForkServer, Place, Server
from tests.collector.many_visitors import PLAN_TEXT, Sent, Visitors, collected

from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore

ROUNDS_OF_A_STORE = 25
"""Rounds after which a new store begins: what is checked after every round grows with its people."""


async def until_killed(visitors: Visitors, server: Server, seconds: float) -> None:
    """Post to a collector, and kill it in mid-stream."""
    stop = asyncio.Event()
    posting = asyncio.create_task(visitors.post([server.port], stop=stop, seen=set()))
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.kill)
    stop.set()
    await posting


def remembered(place: Place) -> Callable[[Sent], bool]:
    """Return which posts are committed, by what the store remembers of their nonces."""
    ring = Keyring.from_file(place.key)
    with sqlite3.connect(place.data / "store.db") as db:
        rows = b"".join(nonces for (nonces,) in db.execute("SELECT nonces FROM nonces"))
    held = {rows[at : at + 16] for at in range(0, len(rows), 16)}
    db.close()
    return lambda sent: ring.nonce_hash(bytes.fromhex(sent.nonce)) in held


def kill_over_sqlite(folder: Path, rounds: int, seed: int = 1) -> str:
    """Kill a collector so often, and compare its file with what was acknowledged after every time."""
    rng, fork_server = random.Random(seed), ForkServer()
    posts = under_way = 0
    for begun in range(0, rounds, ROUNDS_OF_A_STORE):
        place = Place(folder / f"sqlite{begun}", fork_server)
        server = Server(place, "--plan", place.plan(PLAN_TEXT), "--data", place.data)
        visitors = Visitors(seed * 1000 + begun)
        for _ in range(min(ROUNDS_OF_A_STORE, rounds - begun)):
            server.start()
            if visitors.acknowledged:
                asyncio.run(visitors.finish([server.port]))
                assert set(asyncio.run(visitors.replay([server.port]))) == {204}
            asyncio.run(until_killed(visitors, server, rng.uniform(0.02, 0.6)))
            under_way += sum(person.sent is not None for person in visitors.people)
            committed = remembered(place)
            assert all(committed(sent) for sent in visitors.acknowledged), "an acknowledged post is lost"
            store, cipher = SqliteStore(place.data / "store.db"), RecordCipher(Keyring.from_file(place.key))
            if any(visitors.rows(committed).values()):
                assert collected(store, cipher) == visitors.tallies(counted=committed), "the sums are others"
            else:  # it died before the first post
                assert not list(store.records()), "there are sums of nobody"
            store.close()
        posts += len(visitors.acknowledged)
    fork_server.close()
    return f"{posts:,} posts acknowledged, {under_way:,} under way when it died; none lost, none doubled"


def kill_over_postgres(folder: Path, url: str, rounds: int, seed: int = 2) -> str:
    """Kill one of two collectors of a database in turn, under load, and compare the database at the end."""
    rng, fork_server = random.Random(seed), ForkServer()
    place = Place(folder / "postgres", fork_server)
    Keyring.create(place.key)
    options = ("--plan", place.plan(PLAN_TEXT), "--store", url, "--key", place.key)
    two = [Server(place, *options, name=name).start() for name in ("first", "second")]
    ports, visitors, seen = [server.port for server in two], Visitors(seed), set[int]()

    async def all_rounds() -> None:
        stop = asyncio.Event()
        posting = asyncio.create_task(visitors.post(ports, stop=stop, seen=seen, connections=6))
        for number in range(rounds):
            await asyncio.sleep(rng.uniform(0.05, 0.4))
            await asyncio.to_thread(two[number % 2].kill)
            await asyncio.to_thread(two[number % 2].start)
        stop.set()
        await posting
        await visitors.finish(ports)
        assert set(await visitors.replay(ports)) == {204}

    try:
        asyncio.run(all_rounds())
        assert seen == {0, 204}, seen
        store = PostgresStore(url)
        same = collected(store, RecordCipher(Keyring.from_file(place.key))) == visitors.tallies()
        store.close()
        assert same, "the sums are others"
    finally:
        for server in two:
            server.close()
        fork_server.close()
    return f"{len(visitors.acknowledged):,} posts acknowledged; none lost, none doubled, none refused"
