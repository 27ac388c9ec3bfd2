"""Updates without a lost connection: a new collector beside the old one, or on the socket that it leaves."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.closing import Keep
from tests.collector.collector_process import HOST, KANAB, Place, Server, until
from tests.collector.many_visitors import PLAN_TEXT, Visitors, check_collected

from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores.postgres import PostgresStore

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
