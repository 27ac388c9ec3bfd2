"""How many posts a second go through the writer to a commit on disk? One event loop, many waiting posts.

    .venv/bin/python benchmarks/bench_writer.py [seconds] [postgresql://…]

Also with two milliseconds more for every commit, as slower disks take.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Appended, Store
from kanab.collector.writer import Writer

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
KEYRING = Keyring(KeyChain.new())
DELTAS = [
    {2943: {f"checkout/tier|{arm}:{tier}|n": 1, f"checkout/tier|{arm}:{tier}|minutes|s": 400 + tier,
            f"checkout/tier|checkout={arm}|minutes|q": (400 + tier) ** 2, f"checkout/device|{arm}:phone|n": 1,
            f"checkout/device|{arm}:phone|minutes|s": 400 + tier,
            f"checkout/device|checkout={arm}|minutes|q": (400 + tier) ** 2}}
    for arm in "AB" for tier in range(3)
]  # fmt: skip


class Slow:
    """A store on a slower disk."""

    def __init__(self, store: Store, seconds: float) -> None:
        self.store, self.seconds = store, seconds

    def append(self, *group: Any) -> Appended:
        done = self.store.append(*group)
        time.sleep(self.seconds)
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


async def load(writer: Writer, senders: int) -> tuple[int, list[float]]:
    hour = (int(time.time()) // 3600).to_bytes(4, "big")
    until = time.perf_counter() + SECONDS
    waits: list[float] = []

    async def send(number: int) -> int:
        sent = 0
        while (began := time.perf_counter()) < until:
            done = asyncio.get_running_loop().create_future()
            writer.post(hour + os.urandom(12), DELTAS[(number + sent) % len(DELTAS)], done.set_result)
            await done
            waits.append(time.perf_counter() - began)
            sent += 1
        return sent

    return sum(await asyncio.gather(*(send(number) for number in range(senders)))), waits


def measure(name: str, store: Any, senders: int) -> None:
    writer = Writer(store, KEYRING, life=86_400)
    began, busy = time.perf_counter(), time.process_time()
    sent, waits = asyncio.run(load(writer, senders))
    rate = sent / (time.perf_counter() - began)
    writer.close()
    work = 1e6 * (time.process_time() - busy) / sent  # does not depend on what else the machine does
    waits.sort()
    middle, late = (1000 * waits[int(len(waits) * share)] for share in (0.5, 0.99))
    print(
        f"{name:26} {senders:5} waiting {rate:9,.0f} posts/s   median {middle:5.1f} ms   p99 {late:5.1f} ms"
        f"   {work:5.1f} µs of processor time a post"
    )


def main() -> None:
    for senders in (64, 256, 2000):
        with tempfile.TemporaryDirectory() as folder:
            store = SqliteStore(Path(folder) / "store.sqlite")
            measure("SQLite", store, senders)
            store.close()
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "store.sqlite")
        measure("SQLite, +2 ms per commit", Slow(store, 0.002), 256)
        store.close()
    for url in sys.argv[2:]:
        for senders in (64, 2000):
            measure("PostgreSQL", PostgresStore(url), senders)


main()
