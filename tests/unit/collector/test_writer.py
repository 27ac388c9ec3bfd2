import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.collector.collector_process import until
from tests.collector.posting import submit

from kanab.collector import writer
from kanab.collector.counting.counters import Counters
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.store_ledger import append_void
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Appended, CountedPost, Encrypt, PostOutcome
from kanab.collector.writer import Writer
from kanab.errors import StoreError
from kanab.plan.file import parse_plan

NOW = 1_794_960_000.0
HOUR = int(NOW) // 3600
DELTAS = {4: {"banner|on|n": 1}}


def nonce(number: int, hour: int = HOUR) -> bytes:
    return hour.to_bytes(4, "big") + number.to_bytes(12, "big")


class Held(SqliteStore):
    """A store whose commits can be held up, and made to fail."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.groups: list[int] = []
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Event()
        self.problem: Exception | None = None

    def append(self, entries: Sequence[CountedPost], encrypt: Encrypt) -> Appended:
        self.begun.set()
        assert self.go.wait(10)
        self.groups.append(len(entries))
        if self.problem:
            raise self.problem
        return super().append(entries, encrypt)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Held]:
    held = Held(tmp_path / "data" / "store.sqlite")
    yield held
    held.close()


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    return Keyring.create(tmp_path / "data.key")


@pytest.fixture
def begin(store: Held, keyring: Keyring) -> Iterator[Callable[..., Writer]]:
    begun: list[Writer] = []

    def start(**options: Any) -> Writer:
        begun.append(Writer(store, keyring, life=86_400, clock=lambda: NOW, **options))
        return begun[-1]

    yield start
    store.go.set()
    for one in begun:
        one.close()


PLAN = parse_plan(
    "k = 10\n[cohorts]\nevery = '7d'\nwindow = '7d'\n"
    "[metrics]\nbought = { kind = 'binary' }\n[experiments.banner]\narms = { off = 1, on = 1 }\n"
)


def close_cohorts(store: SqliteStore, through: int) -> None:
    """Close cohorts as another collector does."""
    Versions.read(store).record(store, PLAN, 0)
    append_void(store, through, "a test", datetime.now(UTC))


def total(store: SqliteStore, keyring: Keyring, cohort: int = 4) -> Counters:
    return RecordCipher(keyring).genuine([record for record in store.records() if record.cohort == cohort]).counters


def outcomes(futures: list[Future[PostOutcome]]) -> list[PostOutcome]:
    return [one.result(10) for one in futures]


def test_what_waits_becomes_one_commit(store: Held, begin: Callable[..., Writer], keyring: Keyring) -> None:
    own = begin()
    store.go.clear()
    first = submit(own, nonce(0), DELTAS)
    store.begun.wait(10)
    rest = [submit(own, nonce(number), DELTAS) for number in range(1, 300)]
    assert own.waiting == 299
    store.go.set()
    assert outcomes([first, *rest]) == [PostOutcome.NEW] * 300
    assert store.groups == [1, 299]
    assert store.sizes() == {4: 2}
    assert total(store, keyring) == {"banner|on|n": 300}


def test_a_commit_is_not_endless(store: Held, begin: Callable[..., Writer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_IN_COMMIT", 100)
    own = begin()
    store.go.clear()
    futures = [submit(own, nonce(number), DELTAS) for number in range(250)]
    store.go.set()
    outcomes(futures)
    assert max(store.groups) <= 100
    assert sum(store.groups) == 250


def test_a_full_queue_refuses_and_keeps_what_waits(store: Held, begin: Callable[..., Writer]) -> None:
    own = begin()
    own.limit = 3
    store.go.clear()
    futures = [submit(own, nonce(0), DELTAS)]
    store.begun.wait(10)
    until(lambda: own.waiting == 0)
    futures += [submit(own, nonce(number), DELTAS) for number in range(1, 4)]
    with pytest.raises(StoreError, match="too many messages are waiting"):
        submit(own, nonce(4), DELTAS)
    store.go.set()
    assert outcomes(futures) == [PostOutcome.NEW] * 4
    assert outcomes([submit(own, nonce(4), DELTAS)]) == [PostOutcome.NEW]


def test_closing_commits_what_waits_and_takes_nothing_more(
    store: Held, begin: Callable[..., Writer], keyring: Keyring
) -> None:
    own = begin()
    store.go.clear()
    futures = [submit(own, nonce(number), DELTAS) for number in range(50)]
    threading.Timer(0.05, store.go.set).start()
    own.close()
    own.close()
    assert outcomes(futures) == [PostOutcome.NEW] * 50
    with pytest.raises(StoreError, match="the collector is stopping"):
        submit(own, nonce(99), DELTAS)
    assert total(store, keyring) == {"banner|on|n": 50}


def test_a_store_that_fails_fails_the_waiting_group_only(
    store: Held, begin: Callable[..., Writer], keyring: Keyring
) -> None:
    own = begin()
    store.problem = StoreError("the disk of the store is full")
    failed = submit(own, nonce(1), DELTAS)
    with pytest.raises(StoreError, match="disk of the store is full"):
        failed.result(10)
    store.problem = None
    assert outcomes([submit(own, nonce(1), DELTAS)]) == [PostOutcome.NEW]
    assert total(store, keyring) == {"banner|on|n": 1}


def test_a_post_that_breaks_the_program_costs_only_itself(store: Held, begin: Callable[..., Writer]) -> None:
    own = begin()
    store.go.clear()
    bad: Any = {4: {"banner|on|n": "one"}}
    futures = [submit(own, nonce(0), DELTAS)]
    store.begun.wait(10)
    futures += [submit(own, nonce(number), bad if number == 3 else DELTAS) for number in range(1, 6)]
    store.go.set()
    with pytest.raises(StoreError, match="a message could not be stored"):
        futures.pop(3).result(10)
    assert outcomes(futures) == [PostOutcome.NEW] * 5


Reported = PostOutcome | StoreError


async def all_of(heard: list[Reported], count: int) -> list[Reported]:
    for _ in range(1000):
        if len(heard) == count:
            break
        await asyncio.sleep(0.01)
    return heard


def test_a_sender_that_went_away_does_not_stop_the_others(
    store: Held, begin: Callable[..., Writer], keyring: Keyring
) -> None:
    own = begin()

    def deaf(_: Reported) -> None:
        raise RuntimeError("gone")

    async def leave() -> list[Reported]:
        heard: list[Reported] = []
        store.go.clear()
        own.post(nonce(1), DELTAS, deaf)
        own.post(nonce(2), DELTAS, heard.append)
        store.go.set()
        return await all_of(heard, 1)

    assert asyncio.run(leave()) == [PostOutcome.NEW]

    async def leave_all() -> None:
        store.go.clear()
        own.post(nonce(3), DELTAS, deaf)

    cancelled = submit(own, nonce(5), DELTAS)
    cancelled.cancel()
    asyncio.run(leave_all())  # its loop is closed before the answer comes
    store.go.set()
    assert outcomes([submit(own, nonce(4), DELTAS)]) == [PostOutcome.NEW]
    assert total(store, keyring) == {"banner|on|n": 5}


# ── housekeeping ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "COMPACT_AFTER", 5)
    monkeypatch.setattr(writer, "TIDY_EVERY", 0.0)
    monkeypatch.setattr(writer, "RETRY_AFTER", 0.0)
    monkeypatch.setattr(writer, "HOUSEKEEPING_SECONDS", 0.02)


@pytest.mark.usefixtures("hurried")
def test_records_are_merged_while_posts_come(store: Held, begin: Callable[..., Writer], keyring: Keyring) -> None:
    own = begin()
    for number in range(40):
        submit(own, nonce(number), DELTAS).result(10)
    own.close()
    assert store.sizes()[4] <= 6
    assert total(store, keyring) == {"banner|on|n": 40}


@pytest.mark.usefixtures("hurried")
def test_records_from_before_a_restart_are_merged_too(store: Held, begin: Callable[..., Writer]) -> None:
    encrypt = RecordCipher(Keyring.from_file(store._path.parent.with_name("data.key"))).encrypt
    for number in range(20):
        store.append([CountedPost(number.to_bytes(16, "big"), HOUR, DELTAS)], encrypt)
    begin()
    until(lambda: store.sizes() == {4: 1})


@pytest.mark.usefixtures("hurried")
def test_old_nonces_are_forgotten_by_the_clock(store: Held, begin: Callable[..., Writer], keyring: Keyring) -> None:
    hours = [HOUR - 30, HOUR - 26, HOUR - 25, HOUR - 24, HOUR]
    store.append([CountedPost(bytes(15) + bytes([h % 256]), h, DELTAS) for h in hours], RecordCipher(keyring).encrypt)
    begin()
    until(lambda: store._db.execute("SELECT hour FROM nonces").fetchall() == [(h,) for h in hours[2:]])


def test_a_key_left_behind_by_a_crash_is_erased_at_the_start(
    store: Held, begin: Callable[..., Writer], keyring: Keyring
) -> None:
    close_cohorts(store, 6)
    begin()
    assert keyring.period == 7


@pytest.mark.usefixtures("hurried")
def test_a_mistake_in_housekeeping_does_not_stop_the_writer(
    store: Held, begin: Callable[..., Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "forget_nonces", lambda _: 1 / 0)
    own = begin()
    until(lambda: own.trouble is not None)
    assert str(own.trouble) == "housekeeping failed (ZeroDivisionError). It is tried again."
    assert outcomes([submit(own, nonce(1), DELTAS)]) == [PostOutcome.NEW]
