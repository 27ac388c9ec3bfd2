"""Stores that are filled up: what was acknowledged is there, once, and what is over takes no room.

They are killed in test_exactly_once.py, and before every step in test_every_write.py.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.closing import Keep

from kanab.collector.counting.counters import Counters
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import CountedPost, PostOutcome, Store
from kanab.errors import StoreError

COHORT = 4
HOUR = int(time.time()) // 3600


def total(store: Store, key: Path) -> Counters:
    return RecordCipher(Keyring.from_file(key)).genuine(store.records()).counters


def entry(number: int, cohort: int = COHORT) -> CountedPost:
    return CountedPost(number.to_bytes(16, "big"), HOUR, {cohort: {"banner|on|n": 1, "banner|on|spend|s": number}})


# ── a full disk ─────────────────────────────────────────────────────────────────────────────────


@contextmanager
def tiny_disk(folder: Path) -> Iterator[Callable[[], Any]]:
    """A folder on a disk of one megabyte, and what makes it larger."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "kanab", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs rights")
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=9m", str(folder)], check=True)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_an_error_and_costs_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    key = tmp_path / "key"
    encrypt = RecordCipher(Keyring.create(key)).encrypt
    (tmp_path / "disk").mkdir()
    with tiny_disk(tmp_path / "disk") as enlarge:
        store = SqliteStore(tmp_path / "disk" / "store.sqlite")
        number = 0
        with suppress(StoreError):
            while number < 999 and store.append([entry(number)], encrypt):
                number += 1
        assert 10 < number < 999
        with pytest.raises(StoreError, match="disk"):
            store.append([entry(number)], encrypt)
        assert total(store, key)["banner|on|n"] == number
        enlarge()
        assert store.append([entry(number), entry(number - 1)], encrypt).outcomes == [
            PostOutcome.NEW,
            PostOutcome.DUPLICATE,
        ]
        store.close()
        again = SqliteStore(tmp_path / "disk" / "store.sqlite")
        assert total(again, key) == {"banner|on|n": number + 1, "banner|on|spend|s": sum(range(number + 1))}
        again.close()


# ── what is left on the disk ────────────────────────────────────────────────────────────────────


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def test_the_disk_holds_as_much_after_ten_times_as_many_posts(tmp_path: Path) -> None:
    sizes = []
    for number in (1_000, 10_000):
        folder = tmp_path / str(number)
        cipher = RecordCipher(Keyring(KeyChain.new()))
        store = SqliteStore(folder / "store.sqlite")
        for at in range(0, number, 50):
            store.append([entry(one) for one in range(at, at + 50)], cipher.encrypt)
        grown = sum(files(folder).values())
        store.compact(COHORT, cipher.merge)
        while store.forget_nonces(HOUR + 1):
            pass
        store.tidy()
        sizes.append(files(folder))
        assert sum(sizes[-1].values()) < grown / 3
        store.close()
    assert sizes[0] == sizes[1]


def test_a_postgresql_keeps_one_record_and_no_nonce_once_all_is_over(postgres_url: str, closing: Keep) -> None:
    cipher = RecordCipher(Keyring(KeyChain.new()))
    store = closing(PostgresStore(postgres_url))
    for at in range(0, 3_000, 100):
        store.append([entry(one) for one in range(at, at + 100)], cipher.encrypt)
    store.compact(COHORT, cipher.merge)
    while store.forget_nonces(HOUR + 1, most=1_000):
        pass
    store.tidy()
    assert store.sizes() == {COHORT: 1}
    assert store._open().execute("SELECT count(*) FROM kanab_nonces").fetchone() == (0,)
