"""Somebody with access to the database copies, moves, changes, puts back and deletes rows.

What is sealed stays right, and says what it lacks.
"""

import asyncio
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.collector.test_sealing import MONDAY, PLAN, PLAN_TEXT, VERSIONS, cohort, people, posts, send

from kanab import count
from kanab.cli.main import cli
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.http.service import Service
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.keys.store_witness import Seen, Witness, witness_beside
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.readiness import Problem
from kanab.collector.restoring import begin_epoch
from kanab.collector.sealing import missing_records, people_by_arm, seal_cohorts, seal_due
from kanab.collector.store_ledger import reopen_cohorts, void_cohorts
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import NOTHING_SEALED, Store
from kanab.collector.writer import Writer
from kanab.inspection.auditor import check_release
from kanab.plan.file import parse_plan
from kanab.plan.periods import Periods

PERIODS = Periods("7d")
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
            query = (
                query.replace("records", "kanab_records")
                .replace("UPDATE store", "UPDATE kanab_store")
                .replace("?", "%s")
            )
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


# ── rows that are deleted ──────────────────────────────────────────────────────────────────────

COMMITS, EACH = 12, 50
DELETE = {
    "first": "id IN (SELECT id FROM records ORDER BY id LIMIT 2)",
    "middle": "id IN (SELECT id FROM records ORDER BY id LIMIT 2 OFFSET 3)",
    "last": "id IN (SELECT id FROM records ORDER BY id DESC LIMIT 2)",
}


def commit(store: Store, cipher: RecordCipher, bodies: list[str], now: datetime) -> None:
    """One commit, as a writer makes it."""
    send(store, cipher, bodies, now)
    cipher.settle([cohort(now)])


@pytest.mark.parametrize("merged", [0, 7])
@pytest.mark.parametrize("place", DELETE)
def test_deleted_rows_are_told_by_the_seal_and_break_a_rule_of_the_audit(
    opened: tuple[Store, Change], place: str, merged: int
) -> None:
    """Whichever they are, also those that had been merged; without a witness all but the last ones."""
    store, change = opened
    cipher, week = RecordCipher(Keyring(KeyChain.new())), cohort(MONDAY)
    bodies = list(posts(people(COMMITS * EACH), "2026-W46"))
    for number in range(COMMITS):
        commit(store, cipher, bodies[number * EACH : (number + 1) * EACH], MONDAY)
        if number + 1 == merged:
            store.compact(week, cipher.merge)
    assert missing_records(store, cipher) == 0
    change(f"DELETE FROM records WHERE {DELETE[place]}")
    # the first of the merged ones is all that was merged, and one more
    missing = merged + 1 if merged and place == "first" else 2
    assert missing_records(store, cipher) == missing
    stranger = RecordCipher(cipher.keyring)  # without a witness
    assert missing_records(store, stranger) == (0 if place == "last" else missing)

    store.compact(week, cipher.merge)
    if place != "last":
        assert missing_records(store, stranger) == missing  # the merged record knows
    release = seal_cohorts(store, cipher, VERSIONS, week).release
    assert release is not None
    assert release.receipt.deleted == (f"records are missing from the store, because somebody deleted rows: {missing}",)
    broken = [check.rule for check in check_release(release) if check.holds is False]
    assert broken == ["records"]
    assert release.tables["banner"].total == (COMMITS - missing) * EACH


def test_a_store_whose_rows_were_all_deleted_waits_and_says_why(opened: tuple[Store, Change]) -> None:
    store, change = opened
    cipher = RecordCipher(Keyring(KeyChain.new()))
    commit(store, cipher, list(posts(people(100), "2026-W46")), MONDAY)
    change("DELETE FROM records")
    sealed = seal_cohorts(store, cipher, VERSIONS, cohort(MONDAY))
    assert sealed.release is None
    assert "records are missing from the store, because somebody deleted rows: 1" in sealed.held_back


def test_cohorts_that_were_deleted_and_marked_as_sealed_are_missed_by_the_next_seal(
    opened: tuple[Store, Change],
) -> None:
    store, change = opened
    cipher, week, later = RecordCipher(Keyring(KeyChain.new())), cohort(MONDAY), MONDAY + timedelta(weeks=1)
    for number, now in ((0, MONDAY), (1, MONDAY), (2, later)):
        commit(store, cipher, list(posts(people(100, number), PERIODS.label(cohort(now)))), now)
    change("DELETE FROM records WHERE cohort = ?", week)
    change("UPDATE store SET sealed_through = ?", week)
    assert missing_records(store, cipher) == 2
    [sealed] = seal_due(store, cipher, VERSIONS, week)
    assert sealed.release is None
    assert "records are missing from the store, because somebody deleted rows: 2" in sealed.held_back
    assert store.sealed_through() == NOTHING_SEALED
    commit(store, cipher, list(posts(people(50, 3), PERIODS.label(week))), MONDAY)  # it takes posts again
    [sealed] = seal_due(store, cipher, VERSIONS, week + 1)
    assert sealed.release is not None
    assert sealed.release.tables["banner"].total == 150
    assert sealed.release.receipt.deleted == ("records are missing from the store, because somebody deleted rows: 2",)
    assert (store.sealed_through(), cipher.keyring.period) == (week + 1, week + 2)


def test_cohorts_that_are_only_marked_as_sealed_are_opened_again_and_keep_their_keys(
    opened: tuple[Store, Change],
) -> None:
    store, change = opened
    cipher, week = RecordCipher(Keyring(KeyChain.new())), cohort(MONDAY)
    commit(store, cipher, list(posts(people(100), "2026-W46")), MONDAY)
    Versions().record(store, PLAN, 0)
    assert not reopen_cohorts(store)
    change("UPDATE store SET sealed_through = ?", week + 5)
    keyring = cipher.keyring
    Writer(store, keyring, life=86_400).close()
    void_cohorts(store, keyring, week - 1, "a test", MONDAY)
    assert (store.sealed_through(), keyring.period) == (week - 1, week)
    change("UPDATE store SET sealed_through = ?", week + 5)
    [sealed] = seal_due(store, cipher, VERSIONS, week)
    assert sealed.release is not None
    assert sealed.release.tables["banner"].total == 100


def test_rows_that_were_put_back_after_a_merge_do_not_hide_that_they_were_deleted(opened: tuple[Store, Change]) -> None:
    store, change = opened
    cipher, week = RecordCipher(Keyring(KeyChain.new())), cohort(MONDAY)
    bodies = list(posts(people(300), "2026-W46"))
    for at in range(0, 300, 50):
        commit(store, cipher, bodies[at : at + 50], MONDAY)
    [gone] = change("SELECT cohort, box FROM records ORDER BY id LIMIT 1 OFFSET 2")
    change("DELETE FROM records WHERE id IN (SELECT id FROM records ORDER BY id LIMIT 1 OFFSET 2)")
    store.compact(week, cipher.merge)
    change("INSERT INTO records (cohort, box) VALUES (?, ?)", *gone)
    release = seal_cohorts(store, cipher, VERSIONS, week).release
    assert release is not None
    left_out, missing = release.receipt.deviations[-2:]
    assert (left_out.split(" ")[:3], missing[-3:]) == (["1", "records", "in"], ": 1")


def test_who_was_held_back_is_missed_where_the_record_of_them_was_deleted(opened: tuple[Store, Change]) -> None:
    store, change = opened
    cipher, week = RecordCipher(Keyring(KeyChain.new())), cohort(MONDAY)
    commit(store, cipher, list(posts(people(300, banner=12), "2026-W46")), MONDAY)
    sealed = seal_cohorts(store, cipher, VERSIONS, week)
    assert list(sealed.waiting) == ["banner"]
    assert missing_records(store, cipher) == 0
    change("DELETE FROM records")
    assert missing_records(store, cipher) == 1


def test_a_collector_misses_the_last_records_of_another_one_that_it_has_seen(opened: tuple[Store, Change]) -> None:
    store, change = opened
    mine, theirs = (RecordCipher(ring) for ring in [Keyring(KeyChain.new())] * 2)
    bodies = list(posts(people(90), "2026-W46"))
    for writer, at in ((mine, 0), (theirs, 30), (theirs, 60)):
        commit(store, writer, bodies[at : at + 30], MONDAY)
    assert missing_records(store, mine) == 0  # as it looks every hour
    change("DELETE FROM records WHERE id IN (SELECT id FROM records ORDER BY id DESC LIMIT 1)")
    assert missing_records(store, mine) == 1


def test_a_new_epoch_that_destroys_open_cohorts_is_no_deletion(opened: tuple[Store, Change]) -> None:
    store, _ = opened
    cipher, week = RecordCipher(Keyring(KeyChain.new())), cohort(MONDAY)
    commit(store, cipher, list(posts(people(100), "2026-W46")), MONDAY)
    Versions().record(store, PLAN, week)
    epoch = begin_epoch(store, "a test", MONDAY)
    assert (store.sizes(), missing_records(store, cipher)) == ({}, 0)
    seen = Seen(epoch, 7).join(cipher.seen)
    assert seen == Seen(epoch, 7)  # nor does the witness take over what was before


def served(tmp_path: Path, now: datetime) -> tuple[SqliteStore, Keyring, Callable[[], Service]]:
    """A store with 40 posts in commits of their own, which no collector has open, and one that opens it."""
    text = PLAN_TEXT.replace("k = 10", "k = 5")
    (tmp_path / "kanab.toml").write_text(text, encoding="utf-8")
    store, keyring = SqliteStore(tmp_path / "data" / "store.db"), Keyring.create(tmp_path / "data.key")
    witness = Witness(witness_beside(tmp_path / "data.key"), keyring.fingerprint)

    def begin() -> Service:
        return Service(store, keyring, parse_plan(text), witness=witness, clock=lambda: now)

    async def post_all() -> None:
        service = begin()
        for body in posts(people(40), PERIODS.label(cohort(now))):
            assert await service.take(f"kanab/1 {make_nonce(now)}\n{body}\n".encode(), None) is None
        await service.stop()

    asyncio.run(post_all())
    return store, keyring, begin


def test_status_doctor_and_a_collector_tell_that_an_open_cohort_was_deleted_and_marked_as_sealed(
    tmp_path: Path,
) -> None:
    now = datetime.now(UTC) - timedelta(weeks=4)
    store, keyring, begin = served(tmp_path, now)
    store._db.execute("DELETE FROM records")
    store._db.execute("UPDATE store SET sealed_through = ?", (cohort(now),))
    place = ["--data", str(tmp_path / "data")]
    raised = "cohorts were marked as sealed in the store that have no batch: somebody changed it"
    assert f"alarm: {raised}" in CliRunner().invoke(cli, ["status", *place]).output
    assert f"ledger: {raised}" in CliRunner().invoke(cli, ["doctor", *place]).output
    service = begin()
    service.check_clock()
    assert Problem.DELETED in service.readiness.problems()
    assert keyring.period <= cohort(now)  # nothing was erased
    asyncio.run(service.stop())
    store.close()
    command = ["seal", "--plan", str(tmp_path / "kanab.toml"), *place, "--accept-clock"]
    sealed = CliRunner().invoke(cli, command)
    assert "records are missing from the store, because somebody deleted rows: 40" in str(sealed.exception)


@pytest.mark.parametrize("place", ["first", "last"])
def test_kanab_seal_status_and_audit_tell_that_rows_of_a_collector_that_stopped_were_deleted(
    tmp_path: Path, place: str
) -> None:
    """k = 5, 40 posts in commits of their own, 5 of them deleted: as the audit of 2026 found it, unnoticed then."""
    store, _, begin = served(tmp_path, datetime.now(UTC) - timedelta(weeks=4))
    service = begin()
    order = "" if place == "first" else "DESC"
    store._db.execute(f"DELETE FROM records WHERE id IN (SELECT id FROM records ORDER BY id {order} LIMIT 5)")
    service.check_clock()
    assert Problem.DELETED in service.readiness.problems()
    assert 'kanab_problem{problem="deleted"} 1.0\n' in service.metrics()
    asyncio.run(service.stop())
    store.close()

    data, sentence = str(tmp_path / "data"), "records are missing from the store, because somebody deleted rows: 5"
    command = ["seal", "--plan", str(tmp_path / "kanab.toml"), "--data", data, "--accept-clock"]
    sealed = CliRunner().invoke(cli, command)
    assert (sealed.exit_code, f"- Deviation: {sentence}." in sealed.output) == (0, True), sealed.output
    audited = CliRunner().invoke(cli, ["audit", data])
    assert (audited.exit_code, "BROKEN: records" in audited.output) == (1, True), audited.output
    assert f"alarm: {sentence}" in CliRunner().invoke(cli, ["status", "--data", data]).output
