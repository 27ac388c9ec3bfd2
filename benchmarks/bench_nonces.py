"""How long does the first post after a restart wait, and what does a remembered nonce take?

    .venv/bin/python benchmarks/bench_nonces.py [nonces] [postgresql://…]

Fills a store with the nonces of a day (ten million, unless told), opens it in a new process and times the first append.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import CountedPost, PostOutcome, Store

HOUR = 498_600
ROW = 4096  # nonces in a row, as merged when the store is tidied


def fill_file(path: Path, nonces: int) -> None:
    store = SqliteStore(path)
    db, hours = store._db, nonces // 24
    db.execute("BEGIN")
    for number, start in enumerate(range(0, nonces, ROW), 1):
        row = os.urandom(16 * min(ROW, nonces - start))
        db.execute("INSERT INTO nonces VALUES (?, ?, ?)", (number, HOUR + min(start // hours, 23), row))
    db.execute("UPDATE log SET number = ?", (number,))
    db.execute("COMMIT")
    store.close()


def fill_database(url: str, nonces: int) -> None:
    import psycopg  # noqa: PLC0415 - only with a database

    PostgresStore(url).close()
    query = """INSERT INTO kanab_nonces SELECT %s + n * 24 / %s, decode(md5(n::text), 'hex')
               FROM generate_series(0, %s - 1) n ON CONFLICT DO NOTHING"""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(query, (HOUR, nonces, nonces))


def resident() -> int:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) * 1024


def measure(where: str, nonces: int) -> None:
    """Run in a process of its own: time three appends, and the memory after the first in every hour."""
    cipher = RecordCipher(Keyring(KeyChain.new()))
    cipher.encrypt(4, {})
    store: Store = PostgresStore(where) if where.startswith("postgres") else SqliteStore(where)
    before = resident()

    def append(hour: int) -> float:
        began = time.perf_counter()
        done = store.append([CountedPost(os.urandom(16), hour, {4: {"banner|on|n": 1}})], cipher.encrypt)
        assert done.outcomes == [PostOutcome.NEW]
        return time.perf_counter() - began

    first, second = append(HOUR + 23), append(HOUR + 23)
    others = [append(HOUR + hour) for hour in range(23)]
    taken = (resident() - before) / nonces
    name = "PostgreSQL" if where.startswith("postgres") else "SQLite"
    print(
        f"{name:10} {nonces:>11,} nonces   first post {first:5.2f} s"
        f"   second {1000 * second:5.1f} ms   slowest first of another hour {1000 * max(others):5.1f} ms"
        f"   {taken:5.1f} bytes of memory a nonce"
    )
    store.close()


def main() -> None:
    nonces = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    if len(sys.argv) > 3:
        measure(sys.argv[2], nonces)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        fill_file(path, nonces)
        subprocess.run([sys.executable, __file__, str(nonces), str(path), "measure"], check=True)
    for url in sys.argv[2:]:
        fill_database(url, nonces)
        subprocess.run([sys.executable, __file__, str(nonces), url, "measure"], check=True)


main()
