"""Processes that are killed: a script, run by test_crashes.py.

send STORE KEY FIRST LAST SEED    posts numbers in an order of its own, and prints each one that was acknowledged
seal STORE KEY                    seals copies in forked children that end themselves by SIGKILL before the n-th step
                                  (a statement, a write of the key), n = 0, 1, …, until one lives
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from posting import submit

from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Record, Store
from kanab.collector.writer import Writer

COHORT = 4


def opened(place: str) -> Store:
    return PostgresStore(place) if place.startswith("postgresql") else SqliteStore(place)


def nonce(number: int) -> bytes:
    hour = int(time.time()) // 3600
    return hour.to_bytes(4, "big") + number.to_bytes(12, "big")


def send(place: str, key: str, first: int, last: int, seed: int) -> None:
    numbers = list(range(first, last))
    random.Random(seed).shuffle(numbers)
    store = opened(place)
    writer = Writer(store, Keyring.from_file(key), life=86_400)
    for at in range(0, len(numbers), 20):
        group = numbers[at : at + 20]
        futures = [
            submit(
                writer, nonce(one), {COHORT: {"banner|on|n": 1, "banner|on|spend|s": one, "banner|on|spend|q": one**2}}
            )
            for one in group
        ]
        for one, future in zip(group, futures, strict=True):
            future.result(30)
            os.write(1, b"%d\n" % one)  # at once, whole
    writer.close()
    store.close()


def seal(place: str, key: str) -> None:
    """Every attempt begins with the same files; what a crash left is finished, and told before and after."""
    left: list[Any] = []
    for last in range(100):
        folder = Path(place).with_name(f"attempt{last}")
        folder.mkdir()
        files = [shutil.copy(path, folder) for path in (place, key)]
        child = os.fork()
        if child == 0:
            seal_once(*files, die_before=last)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = state(*files)
        seal_once(*files)
        left.append([found, state(*files)])
        if status == 0:
            break
    print(json.dumps(left))


def state(place: str, key: str) -> list[Any]:
    """The sealed batches, how many records there are of which cohort, and the first period that the key file can open.

    And what is held back, once the cohort is sealed.
    """
    store, keyring = SqliteStore(place), Keyring.from_file(key)
    found = [[json.loads(one) for one in store.sealed()], [*store.sizes().items()], keyring.period]
    later = [record for record in store.records() if record.cohort > COHORT]
    store.close()
    return [*found, RecordCipher(keyring).genuine(later).counters]


def seal_once(place: str, key: str, die_before: int = -1) -> None:
    steps = [die_before]

    def step(*_: Any) -> None:
        if steps[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        steps[0] -= 1

    store = SqliteStore(place)
    cipher = RecordCipher(Keyring.from_file(key))

    def make(records: list[Record], before: list[bytes]) -> bytes:
        return json.dumps(cipher.genuine(records).counters).encode()

    store._db.set_trace_callback(step)
    real = os.pwrite
    os.pwrite = lambda *given: (step(), real(*given))[1]  # type: ignore[assignment]

    def carry(epoch: str, generation: int) -> Record:
        return Record(COHORT + 1, cipher.encrypt(COHORT + 1, {"small|on|n": 3}, epoch, generation))

    store.seal(COHORT, make, carry)
    cipher.keyring.forget(store.sealed_through())
    os.pwrite = real
    store._db.set_trace_callback(None)
    store.close()


if __name__ == "__main__":
    word, place, key, *numbers = sys.argv[1:]
    {"send": send, "seal": seal}[word](place, key, *(int(one) for one in numbers))
