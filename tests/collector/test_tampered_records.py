"""Somebody with access to the database copies, moves, changes and puts back rows: what is sealed stays right."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from tests.collector.test_sealing import MONDAY, PLAN, VERSIONS, cohort, people, posts, send

from kanab import count
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.sealing import people_by_arm, seal_cohorts
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.store import Store

Change = Callable[..., list[Any]]


@pytest.fixture
def opened(shared: Callable[[], Store]) -> tuple[Store, Change]:
    """A store, and a way around it."""
    store = shared()

    @contextmanager
    def database() -> Any:
        if isinstance(store, PostgresStore):
            import psycopg  # noqa: PLC0415 - slow to import

            with psycopg.connect(store._url, autocommit=True) as db:
                yield db
        else:
            yield store._db  # type: ignore[attr-defined]

    def change(query: str, *values: object) -> list[Any]:
        if isinstance(store, PostgresStore):
            query = query.replace("records", "kanab_records").replace("?", "%s")
        with database() as db:
            cursor = db.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    return store, change


def test_rows_that_were_copied_moved_changed_or_put_back_do_not_count(opened: tuple[Store, Change]) -> None:
    store, change = opened
    cipher = RecordCipher(Keyring(KeyChain.new()))
    rows, week = people(600), cohort(MONDAY)
    bodies = list(posts(rows, "2026-W46"))
    for start in range(0, 400, 100):
        send(store, cipher, bodies[start : start + 100], MONDAY)
    merged_rows = change("SELECT cohort, box FROM records")
    store.compact(week, cipher.merge)
    send(store, cipher, bodies[400:500], MONDAY)
    once_merged = change("SELECT cohort, box FROM records ORDER BY id")
    store.compact(week, cipher.merge)
    for start in (500, 550):
        send(store, cipher, bodies[start : start + 50], MONDAY)
    later = MONDAY + timedelta(weeks=1)
    send(store, cipher, posts(people(50, 2), "2026-W47"), later)
    truth = people_by_arm(store, cipher, PLAN)

    insert = "INSERT INTO records (cohort, box) VALUES (?, ?)"
    change("INSERT INTO records (cohort, box) SELECT cohort, box FROM records")  # everything twice
    for put_back in (merged_rows[0], *once_merged):
        change(insert, *put_back)
    [(_, young)] = change("SELECT cohort, box FROM records WHERE cohort = ? LIMIT 1", week + 1)
    for elsewhere in (week, week - 1, -5, 3_000_000):
        change(insert, elsewhere, young)
    change(insert, week, b"nonsense")
    change(insert, week, young[:-1] + bytes([young[-1] ^ 1]))

    assert people_by_arm(store, cipher, PLAN) == truth
    release = seal_cohorts(store, cipher, VERSIONS, week).release
    assert release is not None
    counted = count(rows, plan=PLAN)
    assert all(table == counted.tallies[name] for name, table in release.tables.items())
    assert [text for text in release.receipt.deviations if "left out" in text] == [
        "11 records in the store were left out: they are not its own, or were counted already"
    ]


def test_merging_leaves_what_does_not_count_for_the_seal_to_report(opened: tuple[Store, Change]) -> None:
    store, change = opened
    cipher = RecordCipher(Keyring(KeyChain.new()))
    rows, week = people(600), cohort(MONDAY)
    bodies = list(posts(rows, "2026-W46"))
    for start in range(0, 600, 200):
        send(store, cipher, bodies[start : start + 200], MONDAY)
    change("INSERT INTO records (cohort, box) SELECT cohort, box FROM records")
    change("INSERT INTO records (cohort, box) VALUES (?, ?)", week, b"nonsense")
    store.compact(week, cipher.merge)
    assert store.sizes() == {week: 5}  # three copies, the nonsense, and the merged one
    release = seal_cohorts(store, cipher, VERSIONS, week).release
    assert release is not None
    counted = count(rows, plan=PLAN)
    assert all(table == counted.tallies[name] for name, table in release.tables.items())
    assert any(text.startswith("4 records in the store were left out") for text in release.receipt.deviations)
