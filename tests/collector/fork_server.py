"""Runs `kanab …` in processes of their own without importing it anew each time: a script, not a module.

Importing takes a second, and tests that kill a collector twenty times would wait for it twenty times.
This process has imported the command line; for every order (a line of JSON) it forks a child, which has
its own files, folder and environment and runs ``main()`` as the shell would. Children are killed for real.

``die_at`` makes a child end itself by SIGKILL before its n-th step: a statement of SQLite, a wait for PostgreSQL, a
write or a sync of the key file. Counting n up visits every place at which a machine may crash. ``script`` is run
instead of ``kanab``.

``clock`` names a file with the seconds by which a child's clock is fast; such a child also keeps house and
looks at the clock all the time. It believes every clock, unless ``guarded`` says that this is no rehearsal.
``limits`` are soft ones of the system: files, bytes of a file. ``uid`` is the user that a child becomes: root may
write everywhere.
"""

import json
import os
import resource
import runpy
import signal
import sqlite3
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

# What a server or a seal needs, also where kanab imports it on first use, is imported once.
import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401
import psycopg
import scipy.linalg
import scipy.sparse.csgraph
import scipy.sparse.linalg
import scipy.special  # noqa: F401
import uvicorn.lifespan.on
import uvicorn.loops.uvloop  # noqa: F401

import kanab.collector.http.connections
import kanab.dashboard.dashboard
import kanab.privacy.exact_rank  # noqa: F401
from kanab.cli.main import COMMANDS, main
from kanab.collector import writer
from kanab.collector.clock import GuardedClock
from kanab.collector.http import service
from kanab.collector.keys.keyring import KeyChain
from kanab.collector.stores import sqlite
from kanab.notify import notifier


class Steps:
    """Counts steps, and ends the process before one of them."""

    def __init__(self, last: int) -> None:
        self.left = last

    def take(self, *_: Any) -> None:
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1

    def before(self, function: Any) -> Any:
        def counted(*given: Any) -> Any:
            self.take()
            return function(*given)

        return counted


def arm(last: int) -> None:
    steps = Steps(last)
    connect = sqlite._connected

    def watched(*given: Any) -> sqlite3.Connection:
        db = connect(*given)
        db.set_trace_callback(steps.take)
        return db

    sqlite._connected = watched
    psycopg.Connection.wait = steps.before(psycopg.Connection.wait)
    os.pwrite, os.fsync = steps.before(os.pwrite), steps.before(os.fsync)


def rehearse(path: str, *, guarded: bool) -> None:
    """Give services the clock of a file."""
    file = Path(path)

    def clock() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=float(file.read_text()))

    GuardedClock.__init__.__kwdefaults__ |= {"wall": clock} | ({} if guarded else {"steady": None})
    service.CHECK_SECONDS = 0.05
    writer.COMPACT_AFTER, writer.TIDY_EVERY, writer.RETRY_AFTER = 1, 0.1, 0.1
    writer.LOOK_EVERY = 0.1
    writer.HOUSEKEEPING_SECONDS = 0.05
    notifier.FIRST_RETRY_SECONDS = 0.1


def child(order: dict[str, Any]) -> int:
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    for number, name in ((0, os.devnull), (1, order["out"]), (2, order["err"])):
        handle = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    if order.get("uid") is not None:
        os.setgroups([])
        os.setgid(order["uid"])
        os.setuid(order["uid"])
    if order.get("die_at") is not None:
        arm(order["die_at"])
    for name, soft in order.get("limits", {}).items():
        number = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))
    if order.get("clock") is not None:
        rehearse(order["clock"], guarded=order.get("guarded", False))
    script = order.get("script")
    sys.argv = [script or "kanab", *order["argv"]]
    try:
        if script:
            runpy.run_path(script, run_name="__main__")
        else:
            main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def waited(pid: int, seconds: float) -> int | None:
    """The exit code of a child, negative for a signal; None if it still runs."""
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.005)


def serve_orders() -> None:
    KeyChain.new().key(1)  # imports the ciphers
    dict(COMMANDS)  # imports every command
    while line := sys.stdin.readline():
        order = json.loads(line)
        if "wait" in order:
            answer: int | None = waited(order["wait"], order["seconds"])
        else:
            answer = os.fork()
            if answer == 0:
                code = 70
                try:
                    code = child(order)
                finally:
                    os._exit(code)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve_orders()
