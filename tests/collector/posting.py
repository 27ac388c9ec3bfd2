"""Posts to a store, and to a writer from any thread, each with a future, as an event loop posts; and its witness."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import cache
from pathlib import Path
from threading import Thread

from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.counters import Counters
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.keys.store_witness import Seen, Witness, witness_beside
from kanab.collector.protocol.nonces import hour_of, make_nonce
from kanab.collector.stores.store import CountedPost, PostOutcome, Store
from kanab.collector.writer import Writer
from kanab.errors import StoreError
from kanab.plan.model import Plan
from kanab.plan.periods import Periods


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


def cohort(now: datetime) -> int:
    """The number of a week."""
    return Periods("7d").of_day(now.date())


def send(
    store: Store,
    cipher: RecordCipher,
    bodies: Iterable[str],
    now: datetime,
    plan: Plan,
    older: Callable[[int, str], bool] = lambda _number, _name: False,
) -> None:
    """Append everybody's post, as a collector accepts it; ``older`` is which counter of which post it did not know."""
    acceptor, entries = PostAcceptor(plan), []
    for number, body in enumerate(bodies):
        accepted = acceptor.accept(f"kanab/1 {make_nonce(now)}\n{body}\n".encode(), "text/plain", now)
        assert accepted.dropped == ()
        deltas = {
            week: {name: value for name, value in counters.items() if not older(number, name)}
            for week, counters in accepted.deltas.items()
        }
        nonce = cipher.keyring.nonce_hash(accepted.nonce)
        entries.append(CountedPost(nonce, hour_of(accepted.nonce), deltas, store.epoch()))
    store.append(entries, cipher.encrypt)
