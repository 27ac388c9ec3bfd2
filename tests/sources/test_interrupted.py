"""Ctrl-C and servers that die, while a statement runs: a sentence, no half result, nothing left running."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from .mysql_server import Server, running_mariadb

PEOPLE = [("AB"[place % 2], float(place)) for place in range(300)]
INSERT = f"INSERT INTO people VALUES {', '.join(map(str, PEOPLE))}"
LONG = "SELECT a.variant, a.spend FROM people a, people b, people c, people d"
COMMAND = ("-c", "from kanab.cli.main import main; main()", "analyze")
CHOICES = ("--arm", "variant", "--metric", "spend")
PATIENCE = 60.0
STARTED = 5.0  # seconds of processor time
INTERRUPTED = "kanab: interrupted. Nothing was written."


@contextmanager
def counting(source: str, busy: Callable[[subprocess.Popen[str]], Any], sql: str = LONG) -> Iterator[Any]:
    """A command that counts for long, once it or its server is busy; killed at the end, if it still runs."""
    words = [sys.executable, *COMMAND, source, "--sql", sql, *CHOICES]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: process.poll() is not None or busy(process))
            yield process
        finally:
            process.kill()


def message(process: subprocess.Popen[str]) -> str:
    """What it wrote when it ended by itself: one sentence, no traceback, and no result."""
    out, err = process.communicate(timeout=PATIENCE)
    assert (out, process.returncode) == ("", 2)
    return err.strip()


def wait_until(true: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


class Activity:
    """The statements that a server works on for others."""

    def __init__(self, cursor: Any, others: str) -> None:
        self.cursor, self.others = cursor, others

    def __call__(self, _: Any = None) -> list[Any]:
        self.cursor.execute(self.others)
        return list(self.cursor.fetchall())


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Activity]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("DROP TABLE IF EXISTS people")
        cursor.execute("CREATE TABLE people (variant text, spend double precision)")
        cursor.execute(INSERT)
        others = "pid <> pg_backend_pid() AND query LIKE '%kanab_signatures%' AND state = 'active'"
        yield Activity(cursor, f"SELECT pid FROM pg_stat_activity WHERE {others}")
        cursor.execute("DROP TABLE people")


@pytest.fixture
def mariadb_alone() -> Iterator[tuple[Server, Activity]]:
    """A server that may be killed."""
    import pymysql  # noqa: PLC0415 - an extra

    with running_mariadb() as server:
        port = urlsplit(server.url).port
        connection = pymysql.connect(host="127.0.0.1", port=port, user="root", database="shop", autocommit=True)
        with closing(connection):
            cursor = connection.cursor()
            cursor.execute("CREATE TABLE people (variant VARCHAR(9), spend DOUBLE)")
            cursor.execute(INSERT)
            others = "FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND COMMAND = 'Query'"
            yield server, Activity(cursor, f"SELECT ID {others}")


@pytest.mark.slow
def test_who_interrupts_postgres_leaves_nothing_running_there(postgres_url: str, postgres: Activity) -> None:
    with counting(postgres_url, postgres) as process:
        process.send_signal(signal.SIGINT)
        assert message(process) == INTERRUPTED
    wait_until(lambda: not postgres())


@pytest.mark.slow
def test_a_postgres_that_ends_the_connection_is_told_in_a_sentence(postgres_url: str, postgres: Activity) -> None:
    with counting(postgres_url, postgres) as process:
        postgres.cursor.execute(postgres.others.replace("SELECT pid", "SELECT pg_terminate_backend(pid)"))
        assert message(process).startswith("kanab: the engine could not finish the query (")


@pytest.mark.slow
def test_mariadb_computes_for_nobody_who_has_interrupted_it_and_may_die(mariadb_alone: tuple[Server, Activity]) -> None:
    server, activity = mariadb_alone
    with counting(server.url, activity) as process:
        process.send_signal(signal.SIGINT)
        assert message(process) == INTERRUPTED
    wait_until(lambda: not activity())  # by itself it would go on to the end
    with counting(server.url, activity) as process:
        server.process.kill()
        assert message(process).startswith("kanab: the engine could not finish the query (OperationalError).")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_what_counts_in_our_own_process_can_be_interrupted(tmp_path: Path, kind: str) -> None:
    if kind == "file":
        source, name = str(tmp_path / "people.csv"), "rows"
        Path(source).write_text("variant,spend\n" + "".join(f"{arm},{spend}\n" for arm, spend in PEOPLE))
    else:
        source, name = f"sqlite://{tmp_path / 'shop.db'}", "people"
        with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
            connection.execute("CREATE TABLE people (variant TEXT, spend REAL)")
            connection.execute(INSERT)
            connection.commit()
    with counting(source, _computes, LONG.replace("people", name)) as process:
        process.send_signal(signal.SIGINT)
        assert message(process) == INTERRUPTED


def _computes(process: subprocess.Popen[str]) -> bool:
    """Whether it has computed for longer than it takes to start."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") > STARTED
