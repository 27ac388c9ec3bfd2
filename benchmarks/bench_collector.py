"""A collector that adds against one that writes rows: requests per second, latency, processor time, disk.

    python benchmarks/bench_collector.py [--seconds 4] [--rounds 3] [--connections 64]
                                         [--without-peer] [--without-slow-disk]

64 connections over loopback, each with one request under way; every answer follows a commit to disk. Each
side runs in processes of its own, the load in others (benchmarks/collector/): Kanab with its embedded
store and with PostgreSQL (one, two and four collectors), a handler that only answers 204 on the same server,
and the do-it-yourself peer (FastAPI, asyncpg, an INSERT per event; events that come together in one
transaction). The sides take turns; printed is each one's best round, and the least processor time of a request,
which other work on the machine disturbs less. The slower disk is a library before libc
(benchmarks/collector/slow.c) that adds two milliseconds to every fsync of the collector and of PostgreSQL.

docs/scale.md tells what was reached, and what follows for many collectors.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from collector.sides import SLOWER, Database, Figures, Sides, database, peers_python, slow_disk

TITLES = {
    "bare": "bare 204, same server",
    "embedded": "kanab, embedded store",
    "postgresql": "kanab, PostgreSQL",
    "postgresql-2": "2 collectors, PostgreSQL",
    "postgresql-4": "4 collectors, PostgreSQL",
    "peer": "FastAPI, a row per event",
}
TARGETS = {("embedded", 1): 5, ("embedded", 20): 7, ("postgresql", 1): 4, ("postgresql", 20): 4}
Found = dict[tuple[str, int], Figures]


def in_turns(sides: Sides, names: list[str], rounds: int) -> Found:
    """Every side at 1 and 20 messages, by turns; of each the best round."""
    found: Found = {}
    for number in range(rounds):
        for messages in (1, 20):
            for name in names:
                print(f"\rround {number + 1}: {name}, {messages}      ", end="", file=sys.stderr, flush=True)
                one = sides.measure(name, messages)
                before = found.get((name, messages), one)
                best = max(before, one, key=lambda figures: figures.rate)
                found[name, messages] = replace(
                    best, server=min(before.server, one.server), database=min(before.database, one.database)
                )
    print("\r" + " " * 40, end="\r", file=sys.stderr)
    return found


def show(found: Found) -> None:
    for messages in (1, 20):
        print(f"\n{messages} message{'s' * (messages > 1)} in a request")
        print(f"{'':28}{'requests/s':>11}{'messages/s':>12}{'p50':>9}{'p99':>10}   processor time of a request")
        for (name, size), one in found.items():
            if size == messages:
                work = f"{one.server:6.0f} µs" + (f" + {one.database:4.0f} µs PostgreSQL" if one.database > 1 else "")
                work += f", {one.posts_per_commit:4.1f} to a commit, log {one.log:,.0f} B" if one.log else ""
                print(
                    f"{TITLES[name]:28}{one.rate:11,.0f}{one.rate * messages:12,.0f}{one.p50:6.1f} ms{one.p99:7.1f} ms"
                    f"   {work}"
                )


def compare(found: Found) -> None:
    print()
    for (name, messages), target in TARGETS.items():
        mine, peer = found[name, messages], found.get(("peer", messages))
        if peer is not None:
            work = (peer.server + peer.database) / (mine.server + mine.database)
            print(
                f"{TITLES[name]}, {messages:2}: {mine.rate / peer.rate:5.1f} × the peer (target {target} ×), "
                f"{work:4.1f} × less processor time, p99 {mine.p99 / peer.p99:4.2f} of the peer's"
            )
        if ("bare", messages) in found and name == "embedded":
            bare = found["bare", messages]
            print(
                f"{TITLES[name]}, {messages:2}: {mine.rate / bare.rate:5.2f} of the bare 204's requests (target 0.5), "
                f"{mine.server / bare.server:4.1f} × its processor time"
            )


def disk(sides: Sides, data: Database) -> None:
    """What lies on disk of all that was sent, and what ten million messages would be."""
    from kanab.collector.keys.encryption import RecordCipher  # noqa: PLC0415
    from kanab.collector.keys.keyring import Keyring  # noqa: PLC0415
    from kanab.collector.stores.sqlite import SqliteStore  # noqa: PLC0415

    file = sides.kept / "store.db"
    store, cipher = SqliteStore(file), RecordCipher(Keyring.from_file(Path(f"{sides.kept}.key")))
    for cohort in store.sizes():
        store.compact(cohort, cipher.merge)
    store.tidy()
    with_nonces = file.stat().st_size
    while store.forget_nonces(10**7):
        pass
    store.tidy()
    store.close()
    kept, sent = file.stat().st_size, sides.sent["embedded"]
    each = (with_nonces - kept) / sides.posts["embedded"]
    print(
        f"\n{sent:,} messages in the embedded store: {with_nonces / 1e6:.1f} MB, {each:.0f} bytes a request for a day"
    )
    print(f"the same when the nonces are over: {kept / 1000:.0f} kB, and no more for ten million")
    nonces = data.query("SELECT pg_total_relation_size('kanab_nonces')", "kanab")[0] / sides.posts["postgresql"]
    print(f"in PostgreSQL {nonces:.0f} bytes a request for a day")
    if sides.sent.get("peer"):
        size, rows = data.query("SELECT pg_total_relation_size('events'), count(*) FROM events", "peer")
        ten = size / rows * 10_000_000
        print(f"{rows:,} rows of the peer: {size / 1e6:.1f} MB; ten million, extrapolated: {ten / 1e9:.2f} GB")
        print(f"so ten million rows take {ten / kept:,.0f} times the room of their sums")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--without-peer", action="store_true")
    parser.add_argument("--without-slow-disk", action="store_true")
    options = parser.parse_args()
    peer = None if options.without_peer else peers_python()
    if peer is None:
        print("the peer is left out: it is not installed and could not be")
    print(f"{os.cpu_count()} cores, {options.connections} connections, load {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory(prefix="kanab-bench-") as folder, database({}) as data:
        sides = Sides(Path(folder), data, peer, {}, seconds=options.seconds, connections=options.connections)
        found = in_turns(sides, sides.names(), options.rounds)
        show(found)
        compare(found)
        disk(sides, data)
    if not options.without_slow_disk:
        on_a_slow_disk(peer, options.rounds, options.seconds, options.connections)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


def on_a_slow_disk(peer: str | None, rounds: int, seconds: float, connections: int) -> None:
    with tempfile.TemporaryDirectory(prefix="kanab-bench-") as folder:
        slow = slow_disk(Path(folder))
        if slow is None:
            print("\nthe slower disk is left out: there is no C compiler")
            return
        print(f"\n{SLOWER / 1000:.0f} ms more for every fsync")
        with database(slow) as data:
            sides = Sides(Path(folder), data, peer, slow, seconds=seconds, connections=connections)
            found = in_turns(sides, sides.names()[1:], rounds)
            show(found)
            compare(found)


if __name__ == "__main__":
    main()
