"""Posts to a writer from any thread, each with a future (a collector posts from its event loop); and its witness."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from threading import Thread

from kanab.collector.counting.counters import Counters
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.keys.store_witness import Seen, Witness, witness_beside
from kanab.collector.stores.store import PostOutcome, Store
from kanab.collector.writer import Writer
from kanab.errors import StoreError


@cache
def running_loop() -> asyncio.AbstractEventLoop:
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="posting", daemon=True).start()
    return loop


def submit(writer: Writer, nonce: bytes, deltas: Mapping[int, Counters], epoch: str = "") -> Future[PostOutcome]:
    """Queue a post; the future has its outcome once it is on disk. Raises `StoreError` as ``Writer.post`` does."""
    outcome: Future[PostOutcome] = Future()

    def settle(told: PostOutcome | StoreError) -> None:
        if isinstance(told, StoreError):
            outcome.set_exception(told)
        else:
            outcome.set_result(told)

    async def post() -> None:
        writer.post(nonce, deltas, settle, epoch)

    asyncio.run_coroutine_threadsafe(post(), running_loop()).result(10)
    return outcome


def witness_of(keyring: Keyring) -> Witness:
    return Witness(witness_beside(keyring.path or Path()), keyring.fingerprint)


def recalling(store: Store, keyring: Keyring) -> RecordCipher:
    """Return a cipher that knows what the witness knows, as that of a collector that starts."""
    cipher = RecordCipher(keyring)
    cipher.seen = Seen(store.epoch(), 0).join(witness_of(keyring).read())
    return cipher
