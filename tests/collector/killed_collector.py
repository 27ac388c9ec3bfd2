"""Processes that are killed: a script, run by test_crashes.py.

send STORE KEY FIRST LAST SEED    posts numbers in an order of its own, and prints each one that was acknowledged; the
                                  witness is written after every group
post STORE KEY                    posts to copies in forked children that end themselves before the n-th step, likewise
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from posting import submit

from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.keys.witness import Seen, Witness, witness_beside
from kanab.collector.sealing import missing_records
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
        witness_of(key).note(writer.seen)
    writer.close()
    store.close()


def witness_of(key: str) -> Witness:
    return Witness(witness_beside(Path(key)), Keyring.from_file(key).fingerprint)


def missing(place: str, key: str) -> int:
    """How many records are missing by their numbers and by the witness."""
    store, cipher = opened(place), RecordCipher(Keyring.from_file(key))
    cipher.seen = Seen("", 0).join(witness_of(key).read())
    number = missing_records(store, cipher)
    store.close()
    return number


def post(place: str, key: str) -> None:
    """Every attempt goes on with the files that the one before has left, and looks for what is missing."""
    left: list[Any] = []
    for last in range(200):
        child = os.fork()
        if child == 0:
            post_until(place, key, die_before=last)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        seen = witness_of(key).read()
        left.append([missing(place, key), 0 if seen is None else sum(seen.records.values())])
        if status == 0:
            break
    print(json.dumps(left))


def post_until(place: str, key: str, die_before: int) -> None:
    """Three commits, the witness written after each; the process ends before a statement or a sync."""
    store = SqliteStore(place)
    writer = Writer(store, Keyring.from_file(key), life=86_400)
    step = counted_down(die_before)
    store._db.set_trace_callback(step)
    real_sync, real_replace = os.fsync, Path.replace
    os.fsync = lambda handle: (step(), real_sync(handle))[1]  # type: ignore[assignment]
    Path.replace = lambda path, target: (step(), real_replace(path, target))[1]  # type: ignore[method-assign]
    for _ in range(3):
        submit(writer, nonce(random.getrandbits(90)), {COHORT: {"banner|on|n": 1}}).result(30)
        witness_of(key).note(writer.seen)
    writer.close()
    store.close()


def counted_down(steps: int) -> Callable[..., None]:
    """A function that ends the process when it is called after so many times."""
    left = [steps]

    def step(*_: Any) -> None:
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    return step


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
    step, store = counted_down(die_before), SqliteStore(place)
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
    {"send": send, "post": post, "seal": seal}[word](place, key, *(int(one) for one in numbers))
