"""Millions of requests that are almost right: each is answered from a closed list, and honest people are counted."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

from tests.collector.collector_process import HOST, ForkServer, Place, Server
from tests.collector.many_visitors import PLAN_TEXT, Visitors, collected
from tests.collector.test_abuse import MOST_GROWTH, SPY, STATUSES, Fuzz

from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores.sqlite import SqliteStore

CONNECTIONS, AT_ONCE, IN_A_POOL = 16, 40, 2_000
"""Connections; requests that one of them sends before it reads; requests that are made up at a time."""


def write_request(fuzz: Fuzz) -> tuple[bytes, bool]:
    """Return a request, and whether it is whole: usually a post with a wrong body, sometimes wrong HTTP."""
    rng, body = fuzz.rng, fuzz.body()
    if rng.random() < 0.02:
        return fuzz._bent(b"POST /v1/t HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body), False
    plain = rng.random() < 0.9
    method = b"POST" if plain else rng.choice([b"GET", b"HEAD", b"PUT", b"OPTIONS", b"DELETE"])
    path = b"/v1/t" if plain else fuzz.path().encode("utf-8", "replace").replace(b"\x00", b"%00") or b"/"
    kind = rng.choice([b"text/plain", b"application/json", SPY.encode(), b""])
    head = b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nCookie: %s\r\nContent-Length: %d\r\n\r\n"
    return head % (method, path, kind, SPY.encode(), len(body)) + body, True


async def _send_many(port: int, seed: int, until: float, left: list[int], statuses: Counter[str]) -> None:
    """Send requests over one connection after the other, up to ``AT_ONCE`` before their answers are read."""
    fuzz, rng = Fuzz(seed), random.Random(seed)
    wire: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while left[0] > 0 and time.monotonic() < until:
        pool = [write_request(fuzz) for _ in range(IN_A_POOL)]
        for _ in range(IN_A_POOL):
            batch = rng.choices(pool, k=rng.choice([1, 1, 5, AT_ONCE]))
            if not all(whole for _, whole in batch):
                batch = [next(request for request in batch if not request[1])]
            left[0] -= len(batch)
            try:
                wire = wire or await asyncio.open_connection(HOST, port)
                wire[1].write(b"".join(request for request, _ in batch))
                answered = 0
                async with asyncio.timeout(30 if batch[0][1] else 0.05):  # half a request may wait for its other half
                    for request, _ in batch:
                        stays = await _answer(wire[0], statuses, head_only=request.startswith(b"HEAD"))
                        answered += 1
                        if not stays or not batch[0][1]:  # more than one answer may come to what is no request
                            raise ConnectionResetError
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                statuses["closed"] += answered == 0
                left[0] += len(batch) - max(answered, 1)
                if wire is not None:
                    wire[1].transport.abort()
                wire = None
            if left[0] <= 0 or time.monotonic() > until:
                break
    if wire is not None:
        wire[1].transport.abort()


async def _answer(reader: asyncio.StreamReader, statuses: Counter[str], *, head_only: bool) -> bool:
    """Read an answer, and return whether the connection stays open after it."""
    head = await reader.readuntil(b"\r\n\r\n")
    statuses[head[9:12].decode()] += 1
    lines = head.lower().split(b"\r\n")
    length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
    body = await reader.readexactly(length) if length and not head_only else b""
    assert SPY.encode() not in head + body, "an answer repeats what was sent"
    return b"connection: close" not in lines


def send_malformed(folder: Path, requests: int, seconds: float = 1e9, seed: int = 5) -> str:
    """Send so many requests while a few honest people are counted; memory stays, answers are from the list."""
    fork_server = ForkServer()
    place = Place(folder / "malformed", fork_server)
    server = Server(place, "--plan", place.plan(PLAN_TEXT), "--data", place.data).start()
    statuses: Counter[str] = Counter()
    visitors = Visitors(seed)
    left, memory = [requests], [0, 0]

    async def everything() -> None:
        stop = asyncio.Event()
        honest = asyncio.create_task(_honest(visitors, server.port, stop))
        until = time.monotonic() + seconds
        sending = [
            asyncio.create_task(_send_many(server.port, seed * 100 + number, until, left, statuses))
            for number in range(CONNECTIONS)
        ]
        while left[0] > requests * 9 // 10 and time.monotonic() < until:
            await asyncio.sleep(0.2)
        memory[0] = server.memory()
        await asyncio.gather(*sending)
        memory[1] = server.memory()
        stop.set()
        await honest
        await visitors.finish([server.port])

    asyncio.run(everything())
    assert server.ask("GET", "/livez")[0] == 200
    assert server.stop() == 0
    assert "Traceback" not in server.stderr, server.stderr
    known = {str(status) for status in STATUSES} | {"closed"}
    assert set(statuses) <= known, statuses
    assert memory[1] - memory[0] < MOST_GROWTH, "memory grows"
    store = SqliteStore(place.data / "store.db")
    counted = collected(store, RecordCipher(Keyring.from_file(place.key)))
    store.close()
    fork_server.close()
    truth = visitors.tallies()
    people = {name: int(tally.total) for name, tally in counted.items()}
    assert all(people[name] >= tally.total for name, tally in truth.items()), "honest people are missing"
    answers = ", ".join(f"{status} {number:,}" for status, number in sorted(statuses.items()))
    return f"{sum(statuses.values()):,} answered ({answers}); memory {(memory[1] - memory[0]) / 2**20:+.0f} MB"


async def _honest(visitors: Visitors, port: int, stop: asyncio.Event) -> None:
    """Let somebody post now and then: the tables that are checked at the end should stay small."""
    while not stop.is_set():
        await visitors.for_a_while([port], 1, most=5)
        await asyncio.sleep(1)
