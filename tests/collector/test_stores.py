"""What every store does alike."""

import random
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.closing import Keep

from kanab.collector.counting.counters import Counters
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.stores import sqlite as sqlitestore
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import MemoryStore, SqliteStore
from kanab.collector.stores.store import NOTHING_SEALED, CountedPost, PostOutcome, Record, Store, StoredPlan
from kanab.errors import StoreError

Opener = Callable[[], Store]

HOUR = 498_600
NEW, DUPLICATE, LATE, EXPIRED, EPOCH = PostOutcome


def cipher() -> RecordCipher:
    return RecordCipher(Keyring(KeyChain.from_secret("5e" * 32)))


def entry(number: int, cohort: int = 4, *, hour: int = HOUR) -> CountedPost:
    return CountedPost(number.to_bytes(16, "big"), hour, {cohort: {"banner|on|n": 1, "banner|on|spend|s": number}})


def totals(store: Store) -> dict[int, Counters]:
    cohorts = {record.cohort for record in store.records()}
    found = store.records()
    return {
        cohort: cipher().genuine([record for record in found if record.cohort == cohort]).counters for cohort in cohorts
    }


def joined(records: list[Record], before: list[bytes]) -> bytes:
    return b"%d records after %d batches" % (len(records), len(before))


def test_a_group_is_one_record_per_cohort(store: Store) -> None:
    done = store.append([entry(1), entry(2), entry(3, cohort=5)], cipher().encrypt)
    assert done.outcomes == [NEW] * 3
    assert (sorted(done.cohorts), done.sealed_through) == ([4, 5], NOTHING_SEALED)
    assert store.sizes() == {4: 1, 5: 1}
    assert totals(store) == {
        4: {"banner|on|n": 2, "banner|on|spend|s": 3},
        5: {"banner|on|n": 1, "banner|on|spend|s": 3},
    }


def test_a_nonce_counts_once_in_a_group_and_between_groups(store: Store) -> None:
    encrypt = cipher().encrypt
    assert store.append([entry(1), entry(2), entry(1)], encrypt).outcomes == [NEW, NEW, DUPLICATE]
    assert store.append([entry(2), entry(3)], encrypt).outcomes == [DUPLICATE, NEW]
    again = store.append([entry(2), entry(3)], encrypt)
    assert (again.outcomes, again.cohorts) == ([DUPLICATE] * 2, [])
    assert totals(store) == {4: {"banner|on|n": 3, "banner|on|spend|s": 6}}
    assert store.sizes() == {4: 2}


def test_a_store_tells_about_how_many_nonces_it_remembers(store: Store) -> None:
    assert store.remembered() == 0
    store.append([entry(number) for number in range(30)], cipher().encrypt)
    assert 0 <= store.remembered() <= 30  # PostgreSQL counts from time to time
    if not isinstance(store, PostgresStore):
        assert store.remembered() == 30


def test_if_wrapping_fails_no_nonce_was_used(store: Store) -> None:
    def encrypt(cohort: int, counters: Counters, epoch: str, generation: int) -> bytes:
        raise StoreError("no key")

    with pytest.raises(StoreError, match="no key"):
        store.append([entry(1)], encrypt)
    assert store.append([entry(1)], cipher().encrypt).outcomes == [NEW]


def test_compacting_keeps_the_sums_in_one_record(store: Store) -> None:
    for number in range(1, 6):
        store.append([entry(number), entry(number + 10, cohort=5)], cipher().encrypt)
    before = totals(store)
    store.compact(4, cipher().merge)
    assert (store.sizes(), totals(store)) == ({4: 1, 5: 5}, before)
    store.compact(4, cipher().merge)
    store.compact(9, cipher().merge)
    assert (store.sizes(), totals(store)) == ({4: 1, 5: 5}, before)


def test_if_merging_fails_the_records_stay(store: Store) -> None:
    def merge(*_: object) -> tuple[bytes, list[int]]:
        raise StoreError("no key")

    for number in range(3):
        store.append([entry(number)], cipher().encrypt)
    with pytest.raises(StoreError, match="no key"):
        store.compact(4, merge)
    store.compact(4, RecordCipher(Keyring(KeyChain.new())).merge)  # which decrypts none of them
    assert (store.sizes(), totals(store)[4]["banner|on|n"]) == ({4: 3}, 3)


def test_forgotten_nonces_are_refused_rather_than_counted_again(store: Store) -> None:
    encrypt = cipher().encrypt
    store.append([entry(number, hour=HOUR - number) for number in range(10)], encrypt)
    assert store.forget_nonces(HOUR - 4, most=3) is True
    assert store.forget_nonces(HOUR - 4, most=3) is False
    replay = store.append([entry(number, hour=HOUR - number) for number in range(10)], encrypt)
    assert replay.outcomes == [DUPLICATE] * 5 + [EXPIRED] * 5
    store.forget_nonces(HOUR - 100)  # a clock that went back
    assert store.append([entry(8, hour=HOUR - 8)], encrypt).outcomes == [EXPIRED]
    assert totals(store)[4]["banner|on|n"] == 10


def test_a_seal_replaces_records_by_a_batch(store: Store) -> None:
    encrypt = cipher().encrypt
    store.append([entry(1, 3), entry(2, 4), entry(3, 5)], encrypt)
    assert store.seal(4, joined) is True
    assert [record.cohort for record in store.records(4)] == []
    assert [store.seal(4, joined), store.seal(2, joined)] == [False, False]
    assert store.sealed() == [b"2 records after 0 batches"]
    assert (store.sealed_through(), store.sizes()) == (4, {5: 1})
    assert store.seal(5, joined) is True
    assert store.sealed() == [b"2 records after 0 batches", b"1 records after 1 batches"]


def test_what_a_seal_or_a_void_holds_back_is_a_record_of_a_later_cohort(store: Store) -> None:
    of_store = cipher()
    store.append([entry(1, 3), entry(2, 4)], of_store.encrypt)
    for through, close in ((3, store.seal), (4, store.void)):
        kept = Record(through + 1, of_store.encrypt(through + 1, {"small|on|n": through}, "", 0))
        assert close(through, joined, carry=lambda *_, kept=kept: kept)  # type: ignore[call-arg, misc]
    assert store.sealed() == [b"1 records after 0 batches", b"2 records after 1 batches"]
    assert totals(store) == {5: {"small|on|n": 4}}


@pytest.mark.parametrize("ends", ["seal", "void"])
def test_a_seal_or_a_void_that_fails_changes_nothing(store: Store, ends: str) -> None:
    def refused(records: list[Record], before: list[bytes]) -> bytes:
        raise ZeroDivisionError

    store.append([entry(1)], cipher().encrypt)
    with pytest.raises(ZeroDivisionError):
        getattr(store, ends)(4, refused)
    assert (store.sealed(), store.sealed_through(), store.sizes()) == ([], NOTHING_SEALED, {4: 1})
    assert store.append([entry(2)], cipher().encrypt).outcomes == [NEW]


def test_voided_cohorts_are_gone_and_closed_and_their_note_follows_the_entries_before(store: Store) -> None:
    store.append([entry(1, cohort=3), entry(2, cohort=4), entry(3, cohort=5)], cipher().encrypt)
    assert store.seal(3, joined)
    assert store.void(4, lambda records, before: b"a note of %d after %d" % (len(records), len(before)))
    assert store.sealed() == [b"1 records after 0 batches", b"a note of 1 after 1"]
    assert (store.sizes(), store.sealed_through()) == ({5: 1}, 4)
    assert store.append([entry(4, cohort=4)], cipher().encrypt).outcomes == [LATE]
    assert not store.void(4, lambda *_: b"again")
    assert store.seal(5, joined)
    assert len(store.sealed()) == 3


def test_a_new_epoch_voids_cohorts_that_stay_open_and_begins_once(store: Store) -> None:
    store.append([entry(1, cohort=4)], cipher().encrypt)
    assert store.void(4, lambda *_: b"a new epoch", "00c0ffee")
    assert not store.void(4, lambda *_: b"the same one again", "00c0ffee")
    assert (store.epoch(), store.sizes(), store.sealed_through()) == ("00c0ffee", {}, NOTHING_SEALED)
    assert store.void(4, lambda *_: b"another one", "0badcafe")
    assert store.seal(4, joined)
    assert store.sealed() == [b"a new epoch", b"another one", b"0 records after 2 batches"]


def test_what_comes_for_a_sealed_cohort_is_late(store: Store) -> None:
    store.seal(4, joined)
    both = CountedPost(b"b" * 16, HOUR, {4: {"banner|on|n": 1}, 5: {"banner|on|n": 1}})
    done = store.append([entry(1, 4), entry(2, 5), both, entry(1, 4)], cipher().encrypt)
    assert done.outcomes == [LATE, NEW, LATE, DUPLICATE]
    assert done.sealed_through == 4
    assert totals(store) == {5: {"banner|on|n": 2, "banner|on|spend|s": 2}}


def test_plans_are_kept_in_order_and_nobody_overwrites_one(store: Store) -> None:
    first, second = StoredPlan(3, "aa", b"{}"), StoredPlan(7, "bb", b"{1}")
    store.add_version(0, first)
    store.add_version(1, second)
    with pytest.raises(StoreError, match="another collector changed the plan"):
        store.add_version(1, StoredPlan(7, "cc", b"{2}"))
    assert store.versions() == [first, second]


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        store.append([entry(1)], cipher().encrypt)
    with pytest.raises(StoreError, match="the store is closed"):
        store.sealed()


def test_several_threads_may_use_one_store(store: Store) -> None:
    encrypt = cipher().encrypt
    threads = [
        threading.Thread(target=lambda: [store.append([entry(number)], encrypt) for number in range(25)])
        for _ in range(4)
    ]  # fmt: skip
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert totals(store) == {4: {"banner|on|n": 25, "banner|on|spend|s": sum(range(25))}}


# ── one store, opened again or by several collectors ────────────────────────────────────────────


def test_collectors_that_open_a_new_file_at_once_all_make_it_a_store(tmp_path: Path) -> None:
    def open_it(path: Path, together: threading.Barrier, failed: list[Exception]) -> None:
        together.wait()
        try:
            SqliteStore(path).close()
        except StoreError as problem:
            failed.append(problem)

    failed: list[Exception] = []
    for number in range(60):  # a fourth of these failed while version and tables were read one after the other
        together = threading.Barrier(4)
        opening = (tmp_path / f"{number}.db", together, failed)
        threads = [threading.Thread(target=open_it, args=opening) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []


def test_another_key_is_refused_and_the_right_one_is_not(shared: Opener) -> None:
    shared().claim(KeyChain.from_secret("5e" * 32).fingerprint)
    with pytest.raises(StoreError, match="not the key of this store"):
        shared().claim(KeyChain.new().fingerprint)
    shared().claim(KeyChain.from_secret("5e" * 32).forward(9).fingerprint)


def test_what_another_collector_sealed_or_forgot_is_noticed_at_once(shared: Opener) -> None:
    """Nothing else has changed since this one's last append: neither a nonce nor a record came."""
    first, second = shared(), shared()
    first.append([entry(1, 4)], cipher().encrypt)
    assert second.seal(4, joined)
    assert first.append([entry(2, 4), entry(3, 5)], cipher().encrypt).outcomes == [LATE, NEW]
    assert {record.cohort for record in second.records()} == {5}
    second.forget_nonces(HOUR + 1)
    assert first.append([entry(4, 5)], cipher().encrypt).outcomes == [EXPIRED]
    assert totals(second)[5]["banner|on|n"] == 1


def test_cohorts_that_were_in_memory_only_are_known_to_be_lost_until_another_epoch_begins(
    tmp_path: Path, closing: Any
) -> None:
    first = closing(MemoryStore(tmp_path / "store.sqlite"))
    first.append([entry(1, 4), entry(2, 5), entry(3, 6)], cipher().encrypt)
    assert first.seal(4, joined)
    assert first.lost() == []
    first.close()
    second = closing(MemoryStore(tmp_path / "store.sqlite"))
    assert second.lost() == [5, 6]
    assert second.void(6, joined, "5f3a9c01")
    assert second.lost() == []
    second.append([of_epoch("5f3a9c01", 4)], cipher().encrypt)  # too late: sealed
    second.close()
    third = closing(SqliteStore(tmp_path / "store.sqlite"))  # the plan says "disk" now
    assert third.lost() == []
    third.close()
    fourth = closing(MemoryStore(tmp_path / "store.sqlite"))
    fourth.append([entry(5, 6)._replace(epoch="5f3a9c01")], cipher().encrypt)
    fourth.close()
    assert closing(SqliteStore(tmp_path / "store.sqlite")).lost() == [6]


def test_numbers_grow_and_the_number_of_a_commit_is_not_above_them(store: Store) -> None:
    numbers = [store.number()]
    for number in range(3):
        done = store.append([entry(number), entry(number + 10, 5)], cipher().encrypt)
        numbers.append(done.number)
        assert store.number() >= done.number
    store.append([entry(0)], cipher().encrypt)  # seen before: nothing is written
    store.seal(4, joined)
    store.forget_nonces(HOUR + 1)
    store.tidy()
    store.void(5, joined, "5f3a9c01")
    assert sorted({*numbers}) == numbers
    assert store.number() >= numbers[-1]


def noted(entries: list[bytes]) -> bytes:
    return b"a note after %d entries" % len(entries)


def of_epoch(epoch: str, number: int) -> CountedPost:
    return entry(number)._replace(epoch=epoch)


def test_posts_of_another_epoch_are_refused_and_not_remembered(store: Store) -> None:
    encrypt = cipher().encrypt
    assert (store.append([entry(1)], encrypt).epoch, store.epoch()) == ("", "")
    assert store.begin_epoch(4, noted, "5f3a9c01")
    done = store.append([entry(1), entry(2), of_epoch("5f3a9c01", 2), of_epoch("00000000", 3)], encrypt)
    assert done.outcomes == [EPOCH, EPOCH, NEW, EPOCH]
    assert (done.epoch, store.epoch()) == ("5f3a9c01", "5f3a9c01")
    again = store.append([of_epoch("5f3a9c01", 2), of_epoch("5f3a9c01", 3), of_epoch("5f3a9c01", 1)], encrypt)
    assert again.outcomes == [DUPLICATE, NEW, DUPLICATE]  # nonces stay
    assert totals(store)[4] == {"banner|on|n": 3, "banner|on|spend|s": 6}


def test_an_epoch_that_another_collector_began_is_noticed_in_the_same_commit(shared: Opener) -> None:
    first, second = shared(), shared()
    encrypt = cipher().encrypt
    assert first.append([entry(1)], encrypt).outcomes == [NEW]
    assert second.begin_epoch(4, noted, "5f3a9c01")
    assert first.append([entry(2)], encrypt).outcomes == [EPOCH]
    assert first.append([of_epoch("5f3a9c01", 2)], encrypt).outcomes == [NEW]
    assert second.begin_epoch(4, noted, "77777777")
    assert first.append([of_epoch("77777777", 3)], encrypt).outcomes == [NEW]  # newer than it knew of
    assert totals(second)[4]["banner|on|n"] == 3


@pytest.mark.parametrize("seed", range(3))
def test_whatever_collectors_do_by_turns_every_post_is_counted_once(shared: Opener, seed: int) -> None:
    """Two of them append, tidy, compact, forget, seal and start again; each must know what the other did."""
    chance = random.Random(seed)
    stores = [shared(), shared()]
    seen: set[int] = set()
    people: Counter[int] = Counter()
    forgotten, sealed_through = 0, NOTHING_SEALED

    def outcome(number: int) -> PostOutcome:
        known, late = number in seen, number % 7 <= sealed_through
        seen.add(number)
        if HOUR + number % 9 < forgotten:
            return EXPIRED
        return DUPLICATE if known else LATE if late else NEW

    for _ in range(150):
        at = chance.randrange(2)
        match chance.choices(["append", "tidy", "compact", "forget", "seal", "restart"], [20, 3, 3, 1, 1, 1])[0]:
            case "append":
                numbers = [chance.randrange(400) for _ in range(chance.randrange(1, 6))]
                expected = [outcome(number) for number in numbers]
                posts = [entry(number, number % 7, hour=HOUR + number % 9) for number in numbers]
                assert stores[at].append(posts, cipher().encrypt).outcomes == expected
                people.update(n % 7 for n, one in zip(numbers, expected, strict=True) if one is NEW)
            case "tidy":
                stores[at].tidy()
            case "compact":
                stores[at].compact(chance.randrange(7), cipher().merge)
            case "forget":
                forgotten = max(forgotten, HOUR + chance.randrange(4))
                while stores[at].forget_nonces(forgotten, 5):
                    pass
            case "seal":
                through = chance.randrange(3)
                assert stores[at].seal(through, joined) == (through > sealed_through)
                sealed_through = max(sealed_through, through)
                people = Counter({cohort: count for cohort, count in people.items() if cohort > sealed_through})
            case "restart":
                stores[at].close()
                stores[at] = shared()
        assert {cohort: found["banner|on|n"] for cohort, found in totals(stores[1 - at]).items()} == people
    assert len(seen) > 100


def test_collectors_that_append_the_same_posts_and_compact_at_once_count_each_once(shared: Opener) -> None:
    problems: list[BaseException] = []

    def collect(store: Store, order: int) -> None:
        try:
            for number in range(0, 200, 10):
                numbers = range(number, number + 10)
                store.append([entry(one) for one in (numbers if order else reversed(numbers))], cipher().encrypt)
                if number % 50 == 0:
                    store.compact(4, cipher().merge)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=collect, args=(shared(), order % 2)) for order in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert problems == []
    assert totals(shared()) == {4: {"banner|on|n": 200, "banner|on|spend|s": sum(range(200))}}


def test_collectors_that_seal_at_once_seal_once(shared: Opener) -> None:
    stores = [shared() for _ in range(4)]
    stores[0].append([entry(1)], cipher().encrypt)
    done: list[bool] = []
    threads = [threading.Thread(target=lambda one=one: done.append(one.seal(4, joined))) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False, False, False, True]
    assert stores[2].sealed() == [b"1 records after 0 batches"]


def test_a_group_that_meets_a_seal_is_in_it_or_late(shared: Opener) -> None:
    """While one collector seals, another one's group waits, or the seal is made again with it."""
    sealing, appending = shared(), shared()
    sealing.append([entry(1)], cipher().encrypt)
    began, outcomes = threading.Event(), []

    def slow(records: list[Record], before: list[bytes]) -> bytes:
        began.set()
        group.join(0.3)
        return joined(records, before)

    def append() -> None:
        began.wait(10)
        outcomes.extend(appending.append([entry(2)], cipher().encrypt).outcomes)

    group = threading.Thread(target=append)
    group.start()
    assert sealing.seal(4, slow) is True
    group.join()
    records = 1 if outcomes == [LATE] else 2
    assert (sealing.sealed(), sealing.sizes()) == ([b"%d records after 0 batches" % records], {})
    assert outcomes == [LATE if isinstance(sealing, SqliteStore) else NEW]


def test_an_engine_that_is_held_too_long_is_an_error_and_nothing_is_lost(
    tmp_path: Path, postgres_url: str, closing: Keep
) -> None:
    for kind, place in ((SqliteStore, tmp_path / "store.sqlite"), (PostgresStore, postgres_url)):
        holder, other = closing(kind(place)), closing(kind(place, wait=0.1))
        problems: list[StoreError] = []

        def make(records: list[Record], before: list[bytes], other: Store = other, seen: Any = problems) -> bytes:
            if isinstance(other, PostgresStore) and len(records) < 3:  # the gate is passed again, then in the lock
                other.append([entry(10 + len(records), 4)], cipher().encrypt)
                return b""
            with pytest.raises(StoreError, match="holds the store") as caught:
                other.append([entry(1, 5)], cipher().encrypt)
            seen.append(caught.value)
            return b""

        holder.seal(4, make)
        assert len(problems) == 1
        assert other.append([entry(1, 5)], cipher().encrypt).outcomes == [NEW]


# ── what is wrong with a store ──────────────────────────────────────────────────────────────────


def test_marks_of_what_people_were_told_are_kept_once_and_seen_by_every_collector(shared: Any) -> None:
    store, other = shared(), shared()
    assert store.sent_marks() == set()
    store.mark_sent(["slack", "slack:5f3a"])
    other.mark_sent(["slack:5f3a", "mail"])
    store.mark_sent([])
    assert store.sent_marks() == other.sent_marks() == {"slack", "slack:5f3a", "mail"}


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path, postgres_url: str, closing: Any) -> None:
    closing(SqliteStore(tmp_path / "store.sqlite"))
    with sqlite3.connect(tmp_path / "store.sqlite") as file:
        file.execute(f"PRAGMA user_version = {sqlitestore.SCHEMA + 1}")
    file.close()
    for kind in (SqliteStore, MemoryStore):
        with pytest.raises(StoreError, match="written by a newer kanab"):
            kind(tmp_path / "store.sqlite")
    closing(PostgresStore(postgres_url))
    with psycopg.connect(postgres_url) as db:
        db.execute("UPDATE kanab_store SET version = version + 1")
    with pytest.raises(StoreError, match="written by a newer kanab"):
        PostgresStore(postgres_url)


def test_a_store_of_an_older_version_is_brought_up_to_date(tmp_path: Path, closing: Any) -> None:
    with sqlite3.connect(tmp_path / "store.sqlite") as file:
        file.executescript(sqlitestore._MIGRATIONS[0])
        file.execute(f"PRAGMA application_id = {sqlitestore._MARK}")
        file.execute("PRAGMA user_version = 1")
        file.execute("INSERT INTO records (cohort, box) VALUES (4, ?)", (cipher().encrypt(4, {"banner|on|n": 2}),))
        file.executemany("INSERT INTO nonces VALUES (?, ?)", [entry(n, hour=HOUR + n)[1::-1] for n in (2, 1)])
        file.execute("INSERT INTO sealed (through, batch) VALUES (2, ?), (3, ?)", (b"first", b"second"))
    file.close()
    store = closing(SqliteStore(tmp_path / "store.sqlite"))
    posts = [entry(1, hour=HOUR + 1), entry(2, hour=HOUR + 2), entry(3)]
    assert store.append(posts, cipher().encrypt).outcomes == [DUPLICATE, DUPLICATE, NEW]
    assert totals(store)[4]["banner|on|n"] == 3
    with sqlite3.connect(tmp_path / "store.sqlite") as file:
        tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master")}
        assert file.execute("PRAGMA user_version").fetchone() == (sqlitestore.SCHEMA,)
    file.close()
    assert tables == {"records", "nonces", "log", "store", "sealed", "plans", "lost", "told"}
    assert store.sealed() == [b"first", b"second"]


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("once upon a time " * 100)
    with pytest.raises(StoreError, match="this file is not a store"):
        SqliteStore(tmp_path / "text")
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE people (name)")
    other.close()
    before = (tmp_path / "other.sqlite").read_bytes()
    with pytest.raises(StoreError, match="this file is not a store"):
        SqliteStore(tmp_path / "other.sqlite")
    assert (tmp_path / "other.sqlite").read_bytes() == before
    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteStore(tmp_path)
    with pytest.raises(StoreError, match="cannot be opened: File exists"):
        SqliteStore(tmp_path / "text" / "store.sqlite")


def test_a_database_user_without_rights_is_told(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("DROP ROLE IF EXISTS guest")
        db.execute("CREATE ROLE guest LOGIN")
        db.execute("REVOKE ALL ON SCHEMA public FROM public, guest")
    with pytest.raises(StoreError, match="the database refuses this user"):
        PostgresStore(postgres_url.replace("postgres:", "guest:", 1))


@pytest.mark.parametrize(
    ("weak", "used"), [("off", "on"), ("local", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")]
)
def test_an_asynchronous_database_is_told_to_sync(postgres_url: str, closing: Any, weak: str, used: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(f"ALTER ROLE postgres SET synchronous_commit = {weak}")
        try:
            store = closing(PostgresStore(postgres_url))
            assert store._open().execute("SHOW synchronous_commit").fetchone() == (used,)
        finally:
            db.execute("ALTER ROLE postgres RESET synchronous_commit")


def test_a_lost_connection_is_opened_again(postgres_url: str, closing: Any) -> None:
    store = closing(PostgresStore(postgres_url))
    store.append([entry(1)], cipher().encrypt)
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kanab'")
    assert store.append([entry(1), entry(2)], cipher().encrypt).outcomes == [DUPLICATE, NEW]
    assert totals(store)[4]["banner|on|n"] == 2


def test_a_commit_whose_answer_was_lost_is_counted_once(postgres_url: str, closing: Any) -> None:
    """The connection breaks after the server committed: what is done again finds its own nonces."""
    store = closing(PostgresStore(postgres_url))
    wrapped = []

    def encrypt(cohort: int, counters: Counters, epoch: str, generation: int) -> bytes:
        wrapped.append(cohort)
        return cipher().encrypt(cohort, counters, epoch, generation)

    real = store._open

    class Deaf:
        """A connection that closes itself right after the first commit and reports that."""

        def __init__(self, db: Any) -> None:
            self.db = db

        def __getattr__(self, name: str) -> Any:
            return getattr(self.db, name)

        def pipeline(self) -> Any:
            return self

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            self.db.close()
            store._open = real
            raise psycopg.OperationalError("server closed the connection")

    store._open = lambda: Deaf(real())
    assert store.append([entry(1)], encrypt).outcomes == [DUPLICATE]
    assert (wrapped, totals(store)) == ([4, 4], {4: {"banner|on|n": 1, "banner|on|spend|s": 1}})


def test_rows_of_nonces_become_few_and_stay_known(tmp_path: Path, closing: Any) -> None:
    store = closing(SqliteStore(tmp_path / "store.sqlite"))
    for number in range(60):
        store.append([entry(number, hour=HOUR + number // 40)], cipher().encrypt)
    rows = "SELECT hour, length(nonces) FROM nonces ORDER BY number"
    assert len(store._db.execute(rows).fetchall()) == 60
    store.tidy()
    assert store._db.execute(rows).fetchall() == [(HOUR, 640), (HOUR + 1, 320)]
    for again in (store, closing(SqliteStore(tmp_path / "store.sqlite"))):
        posts = [entry(number, hour=HOUR + number // 40) for number in range(60)]
        assert again.append(posts, cipher().encrypt).outcomes == [DUPLICATE] * 60


def test_a_group_of_new_posts_is_one_statement(tmp_path: Path, closing: Any) -> None:
    store = closing(SqliteStore(tmp_path / "store.sqlite"))
    store.append([entry(1)], cipher().encrypt)
    asked: list[str] = []
    store._db.set_trace_callback(asked.append)
    store.append([entry(2), entry(3, 5), entry(4, hour=HOUR + 1)], cipher().encrypt)
    store._db.set_trace_callback(None)
    assert {one[:28] for one in asked if not one.startswith("--")} == {"INSERT INTO appending VALUES"}


def test_a_database_without_an_encoding_gives_text_back_as_text(postgres_url: str, closing: Any) -> None:
    """An initdb without a locale makes SQL_ASCII, whose text a driver hands over as bytes."""
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS plain")
        db.execute("CREATE DATABASE plain ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    store = closing(PostgresStore(f"{postgres_url}{'&' if '?' in postgres_url else '?'}dbname=plain"))
    plan = StoredPlan(0, "5e" * 32, b"{}")
    store.add_version(0, plan)
    assert store.versions() == [plan]


def test_a_group_of_new_posts_is_one_journey_to_the_database(
    postgres_url: str, closing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = closing(PostgresStore(postgres_url))
    store.append([entry(1)], cipher().encrypt)
    real, asked = store._append_any, []

    def ask(*given: Any) -> Any:
        asked.append(given)
        return real(*given)

    monkeypatch.setattr(store, "_append_any", ask)
    assert store.append([entry(2), entry(3, 5), entry(4, hour=HOUR + 1)], cipher().encrypt).outcomes == [NEW] * 3
    assert asked == []
    assert store.append([entry(4, hour=HOUR + 1), entry(5)], cipher().encrypt).outcomes == [DUPLICATE, NEW]
    assert len(asked) == 1
    assert totals(store) == {
        4: {"banner|on|n": 4, "banner|on|spend|s": 12},
        5: {"banner|on|n": 1, "banner|on|spend|s": 3},
    }


def test_only_one_memory_may_seal_into_a_file(tmp_path: Path, closing: Any) -> None:
    first = closing(MemoryStore(tmp_path / "store.sqlite"))
    with pytest.raises(StoreError, match="only one may run"):
        MemoryStore(tmp_path / "store.sqlite")
    first.append([entry(1)], cipher().encrypt)
    first.close()
    assert closing(MemoryStore(tmp_path / "store.sqlite")).sizes() == {}


def test_a_memory_store_writes_of_an_open_cohort_only_that_there_is_one(tmp_path: Path, closing: Any) -> None:
    store = closing(MemoryStore(tmp_path / "store.sqlite"))
    store.claim(b"this start's keys")
    store.append([entry(0)], cipher().encrypt)
    with sqlite3.connect(tmp_path / "store.sqlite") as file:
        rows = {table: file.execute(f"SELECT * FROM {table}").fetchall() for table in ("records", "nonces", "lost")}
    file.close()
    assert rows == {"records": [], "nonces": [], "lost": [(4,)]}
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for number in range(1, 50):
        store.append([entry(number)], cipher().encrypt)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    store.seal(4, joined)
    store.close()
    assert closing(SqliteStore(tmp_path / "store.sqlite")).sealed() == [b"50 records after 0 batches"]


def total(store: Store, key: Path) -> Counters:
    return RecordCipher(Keyring.from_file(key)).genuine(store.records()).counters


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
        assert store.append([entry(number), entry(number - 1)], encrypt).outcomes == [NEW, DUPLICATE]
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
        store.compact(4, cipher.merge)
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
    store.compact(4, cipher.merge)
    while store.forget_nonces(HOUR + 1, most=1_000):
        pass
    store.tidy()
    assert store.sizes() == {4: 1}
    assert store._open().execute("SELECT count(*) FROM kanab_nonces").fetchone() == (0,)
