"""A seal that is killed at any point has happened or not; then it happens once, and its keys are gone."""

import asyncio
import json
import os
import random
import re
import shutil
import signal
import time
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.closing import Keep
from tests.collector.collector_process import Done, ForkServer, Place, Server, turn, until
from tests.collector.many_visitors import PLAN_TEXT, Visitors, after_everything, cohort_label

from kanab import analyze
from kanab.collector.http.metrics import COUNTS
from kanab.collector.keys.keyring import Keyring, read_key_file
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.sealing import stored_ledger
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore
from kanab.privacy.ledger import entry_text
from kanab.privacy.release import Release
from kanab.tally.tally import Tally

WEEKLY = PLAN_TEXT.replace('window = "7d"', 'window = "7d"\nseal = "7d"')


def seal(place: Place, die_at: int | None = None) -> Done:
    plan = place.root / "kanab.toml"
    return place.run("seal", "--plan", plan, "--data", place.data, "--as-of", after_everything(), die_at=die_at)


def state(place: Place) -> tuple[int, list[Release], int]:
    """Records, sealed batches, and through which period."""
    store = SqliteStore(place.data / "store.db")
    found = len(store.records()), list(stored_ledger(store).releases), store.sealed_through()
    store.close()
    return found


def check_tables(release: Release, truth: dict[str, Tally]) -> None:
    for name, table in release.tables.items():
        merged = release.receipt.maps.get(name)
        assert table == (truth[name] if merged is None else merged.apply(truth[name]))
    assert len(release.tables) >= 2  # who meets whom is chance, and so is what passes the gate of a few hundred people


def check_sealed_once(place: Place, truth: dict[str, Tally]) -> None:
    records, (release,), through = state(place)
    assert records == 0
    check_tables(release, truth)
    assert read_key_file(place.key).period == through + 1


def test_the_collectors_own_seal_may_be_killed_and_is_done_by_the_next_start(place: Place, closing: Keep) -> None:
    plan = place.plan(WEEKLY)
    clock, rng = place.root / "clock", random.Random(13)
    turn(clock)
    server = closing(Server(place, "--plan", plan, "--data", place.data, clock=clock)).start()
    visitors = Visitors(14)
    asyncio.run(visitors.for_a_while([server.port], 60, most=600))
    assert state(place)[1] == []
    turn(clock, timedelta(days=28))
    for _ in range(6):
        time.sleep(rng.uniform(0.0, 0.25))
        server.kill()
        records, batches, _ = state(place)
        assert (records > 0) != (len(batches) > 0)
        server.start(wait=False)
    server.wait_ready()
    until(lambda: state(place)[1])
    server.kill()
    check_sealed_once(place, visitors.tallies())
    assert server.stderr.count("kanab: sealed the cohorts through") <= 1
    assert "Traceback" not in server.stderr


def test_two_collectors_reach_the_tick_at_once_and_seal_once_and_both_keys_move(
    place: Place, postgres_url: str, closing: Keep
) -> None:
    plan, clock = place.plan(WEEKLY), place.root / "clock"
    turn(clock)
    Keyring.create(place.key)
    keys = [place.key, place.root / "copy.key"]  # each machine has a file of its own
    shutil.copy(*keys)
    options = ("--plan", plan, "--store", postgres_url)
    servers = [closing(Server(place, *options, "--key", key, name=key.stem, clock=clock)).start() for key in keys]
    visitors = Visitors(15)
    asyncio.run(visitors.for_a_while([server.port for server in servers], 60, most=600))
    turn(clock, timedelta(days=28))
    store = closing(PostgresStore(postgres_url))
    until(lambda: all(read_key_file(key).period == store.sealed_through() + 1 > 1 for key in keys))
    (release,) = stored_ledger(store).releases
    assert all(table == visitors.tallies()[name] for name, table in release.tables.items())
    assert store.records() == []
    assert [read_key_file(key).period for key in keys] == [store.sealed_through() + 1] * 2
    assert sum(server.stderr.count("kanab: sealed the cohorts through") for server in servers) == 1


def test_a_collector_that_stands_still_in_the_middle_of_a_seal_stops_the_other_for_a_stated_time_only(
    place: Place, postgres_url: str, closing: Keep
) -> None:
    """It holds the store until the database ends its transaction; awake again it finds that the other has sealed."""
    import psycopg  # noqa: PLC0415 - slow to import

    plan = place.plan(WEEKLY)
    Keyring.create(place.key)
    keys = [place.key, place.root / "copy.key"]
    shutil.copy(*keys)
    clocks = [turn(place.root / f"clock{number}") for number in range(2)]
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}options=-c%20idle_in_transaction_session_timeout%3D2s"
    frozen, other = (
        closing(Server(place, "--plan", plan, "--store", url, "--key", key, name=key.stem, clock=clock)).start()
        for key, clock in zip(keys, clocks, strict=True)
    )
    visitors = Visitors(16)
    asyncio.run(visitors.for_a_while([frozen.port, other.port], 60, most=800))
    with psycopg.connect(postgres_url, autocommit=True) as db:
        waits = "SELECT count(*) FROM pg_locks WHERE relation = 'kanab_sealed'::regclass AND NOT granted"
        with db.transaction():
            db.execute("LOCK TABLE kanab_sealed IN SHARE MODE")  # a seal comes to the point at which it writes
            turn(clocks[0], timedelta(days=28))
            until(lambda: db.execute(waits).fetchone() == (1,))
            assert frozen.pid is not None
            os.kill(frozen.pid, signal.SIGSTOP)
            tasks = list(Path(f"/proc/{frozen.pid}/task").iterdir())
            until(lambda: all("State:\tT" in (task / "status").read_text() for task in tasks))
        held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted"
        assert db.execute(held).fetchone() == (1,)
        turn(clocks[1], timedelta(days=28))
        later = datetime.now(UTC) + timedelta(days=28)
        lines = [f"{table}@{cohort_label(later)}" for table in ("checkout/tier:A:1", "checkout/device:A:phone")]
        body = "\n".join((f"kanab/1 {make_nonce(later)}", *lines, "")).encode()
        until(lambda: other.post(body) == 204)
    store = closing(PostgresStore(postgres_url))
    until(lambda: store.sealed_through() > 0)
    os.kill(frozen.pid, signal.SIGCONT)
    until(lambda: all(read_key_file(key).period == store.sealed_through() + 1 for key in keys))
    (release,) = stored_ledger(store).releases
    check_tables(release, visitors.tallies())
    assert frozen.stderr.count("kanab: sealed the cohorts through") == 0
    assert other.stderr.count("kanab: sealed the cohorts through") == 1
    assert "Traceback" not in frozen.stderr


# ── with ε: noise is drawn at the seal, and nothing exact is shown before it ───────────────────


NOISY = f"{PLAN_TEXT}\n[privacy]\nepsilon = 4\n"


class Filled(NamedTuple):
    """A folder in which a collector has collected, the truth, and what it showed meanwhile."""

    root: Path
    tallies: dict[str, Tally]
    metrics: str
    pages: dict[str, str]
    log: str


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Filled:
    place = Place(tmp_path_factory.mktemp("filled") / "place", fork_server)
    server = Server(place, "--plan", place.plan(NOISY), "--data", place.data).start()
    visitors = Visitors(11)
    asyncio.run(visitors.for_a_while([server.port], 60, most=500))
    metrics = server.ask("GET", "/metrics")[2].decode()
    paths = ("/", "/experiments/checkout", "/privacy", "/v1/experiments", "/v1/experiments/checkout")
    pages = {path: server.ask("GET", path)[2].decode() for path in paths}
    server.kill()
    return Filled(place.root, visitors.tallies(), metrics, pages, server.stderr)


def test_nothing_that_counts_messages_is_shown_before_a_seal(filled: Filled) -> None:
    names = {line.split()[2] for line in filled.metrics.splitlines() if line.startswith("# TYPE")}
    assert not names & COUNTS
    assert "kanab_noisy 1" in filled.metrics
    assert {"kanab_up", "kanab_sealed_batches"} <= names


def test_pages_of_an_open_cohort_say_that_nothing_can_be_read_and_show_no_number_of_people(filled: Filled) -> None:
    for path in ("/experiments/checkout", "/privacy"):
        assert "The plan has an ε: before a seal nothing about people can be read." in filled.pages[path], path
        assert "multiples of 10" not in filled.pages[path]
    people = {count for tally in filled.tallies.values() for count in tally.people.ravel().tolist()}
    told = {*people, *(tally.total for tally in filled.tallies.values())}
    told |= {count // 10 * 10 for count in told}
    arms = json.loads(filled.pages["/v1/experiments"])["experiments"]
    assert [row["arms"] for row in arms] == [{}, {}]
    for text in (filled.pages["/v1/experiments/checkout"], filled.log):
        assert not {int(number) for number in re.findall(r"(?<![\d.:\w-])\d{3,}(?![\d.:\w-])", text)} & {
            count for count in told if count > 99
        }


def test_a_killed_seal_publishes_one_draw_with_the_stated_noise(
    filled: Filled, tmp_path: Path, fork_server: ForkServer
) -> None:
    def copied(name: str) -> Place:
        return Place(shutil.copytree(filled.root, tmp_path / name), fork_server)

    def committed(step: int) -> bool:
        seal(place := copied(f"looked-{step}"), die_at=step)
        return bool(state(place)[1])

    before_commit, after_commit = 0, 0
    commit = bisect_left(range(200), True, key=committed)  # the first crash after it
    for step in (0, commit // 2, *range(commit - 3, commit + 6), 10_000):  # every step around it, and none
        place = copied(str(step))
        first = seal(place, die_at=step)
        assert first.code in (0, -signal.SIGKILL), first.err
        records, batches, _ = state(place)
        assert (records > 0) != (len(batches) > 0)  # all of it, or nothing
        before_commit, after_commit = before_commit + (records > 0), after_commit + (records == 0)
        if first.code:
            assert seal(place).code == (1 if batches else 0)
        records, (release,), through = state(place)
        assert records == 0
        assert not batches or entry_text(release) == entry_text(batches[0])
        assert read_key_file(place.key).period == through + 1
    assert before_commit >= 1
    assert after_commit >= 1
    assert any("not as of the clock" in deviation for deviation in release.receipt.deviations)
    noise = release.receipt.noise
    assert noise is not None
    assert (noise.epsilon, noise.left) == (4, 0)
    assert release.receipt.batch is not None
    table, truth = release.tables["checkout"], next(iter(filled.tallies.values())).keep()
    deviation = float(table.noise.people.flat[0]) ** 0.5 if table.noise is not None else 0.0
    assert np.abs(table.people - truth.people).max() < 6 * deviation
    assert analyze(release, "checkout").effects
