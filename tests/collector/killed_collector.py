"""What is killed in the middle: a script, run by test_every_write.py before every step.

STORE KEY STEP …    does one after the other, each a list in JSON:

["send", POSTS, SIZE]    posts what a file holds, in groups of a size, and prints each one that was acknowledged;
                         the witness is written after each group
["compact"]              merges the records of every cohort, forgets old nonces, gives room back
["seal", COHORT]         seals everything through a cohort, and writes the witness
"""

import json
import os
import sys
import time
from pathlib import Path

from posting import recalling, submit, witness_of

from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.sealing import seal_due
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Store
from kanab.collector.writer import Writer


def opened(place: str) -> Store:
    return PostgresStore(place) if place.startswith("postgresql") else SqliteStore(place)


def send(store: Store, keyring: Keyring, file: str, size: int) -> None:
    posts = json.loads(Path(file).read_text())
    writer = Writer(store, keyring, life=86_400)
    for at in range(0, len(posts), size):
        group = posts[at : at + size]
        deltas = [{int(cohort): counters for cohort, counters in each.items()} for _, each in group]
        futures = [submit(writer, bytes.fromhex(nonce), each) for (nonce, _), each in zip(group, deltas, strict=True)]
        for (nonce, _), future in zip(group, futures, strict=True):
            future.result(30)
            os.write(1, f"{nonce}\n".encode())  # at once, whole
        witness_of(keyring).note(writer.seen)
    writer.close()


def compact(store: Store, keyring: Keyring) -> None:
    for cohort in store.sizes():
        store.compact(cohort, RecordCipher(keyring).merge)
    store.forget_nonces(int(time.time()) // 3600 - 100)
    store.tidy()


def seal(store: Store, keyring: Keyring, through: int) -> None:
    cipher = recalling(store, keyring)
    seal_due(store, cipher, Versions.read(store), through)
    witness_of(keyring).note(cipher.seen, store.sealed_through())


if __name__ == "__main__":
    place, key, *steps = sys.argv[1:]
    store = opened(place)
    for name, *more in map(json.loads, steps):
        {"send": send, "compact": compact, "seal": seal}[name](store, Keyring.from_file(key), *more)
    store.close()
