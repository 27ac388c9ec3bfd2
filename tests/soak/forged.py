"""Forged posts among honest ones, while the collector is killed: they cost the metric that they name, nothing else."""

import asyncio
import random
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.collector.collector_process import ForkServer, Place, Server, Wire
from tests.collector.many_visitors import PLAN_TEXT, Visitors, after_everything

from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.sealing import stored_ledger
from kanab.collector.stores.sqlite import SqliteStore

FORGERS, ENOUGH = 4, 600


def forged_post(label: str, rng: random.Random) -> bytes:
    """Somebody who never enrolled loses 600 minutes that nobody had."""
    arm, tier, device = rng.choice("AB"), rng.choice([1, 2, 3]), rng.choice(["phone", "desktop"])
    heads = (f"checkout/tier:{arm}:{tier}@{label}", f"checkout/device:{arm}:{device}@{label}")
    lines = [f"{head}:minutes:600>0" for head in heads]
    return "\n".join([f"kanab/1 {make_nonce(datetime.now(UTC))}", *lines, ""]).encode()


def forge(folder: Path, seconds: float, seed: int = 7) -> str:
    """Let some forge and others be honest for so long, with a kill now and then; then seal, and compare."""
    fork_server, rng = ForkServer(), random.Random(seed)
    place = Place(folder / "forged", fork_server)
    plan = place.plan(PLAN_TEXT)
    server = Server(place, "--plan", plan, "--data", place.data).start()
    visitors, seen, taken, kills = Visitors(seed), set[int](), 0, 0

    async def forging(stop: asyncio.Event) -> None:
        nonlocal taken
        async with Wire() as wire:
            while not stop.is_set():
                if await wire.send(server.port, forged_post(visitors.label, rng)) == 204:
                    taken += 1
                else:
                    await asyncio.sleep(0.05)

    async def everything() -> None:
        nonlocal kills
        stop, until = asyncio.Event(), time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(visitors.post([server.port], stop=stop, seen=seen))
            for _ in range(FORGERS):
                group.create_task(forging(stop))
            while time.monotonic() < until or min(len(visitors.acknowledged), taken) < ENOUGH:
                await asyncio.sleep(rng.uniform(0.2, 2))
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                kills += 1
            stop.set()
        await visitors.finish([server.port])

    asyncio.run(everything())
    assert server.stop() == 0
    done = place.run("seal", "--plan", plan, "--data", place.data, "--as-of", after_everything())
    assert done.code == 0, done.err
    store = SqliteStore(place.data / "store.db")
    (release,) = stored_ledger(store).releases
    store.close()
    fork_server.close()
    truth, withheld = visitors.tallies(), 0
    for name, table in release.tables.items():
        merged = release.receipt.maps.get(name)
        expected = truth[name] if merged is None else merged.apply(truth[name])
        names = [metric.name for metric in table.metrics]
        assert table == expected.select_metrics(names), f"{name} is another one"
        assert {"bought"} <= set(names), f"{name} lost what nobody forged"
        assert name.startswith("checkout") != ("minutes" in names), name
        withheld += "minutes" not in names
    assert withheld > 0
    assert seen <= {0, 204}, seen
    counts = f"{taken:,} forged and {len(visitors.acknowledged):,} honest posts, {kills} kills"
    return f"{counts}; minutes withheld in {withheld} of {len(release.tables)} tables, all else exact"
