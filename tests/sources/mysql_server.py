"""Real servers in folders of their own: MariaDB, which Debian's package gives, and MySQL where a machine has it."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.programs import need_program


@dataclass(frozen=True)
class Server:
    """A running server: where it is, and its process."""

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def running_mariadb() -> Iterator[Server]:
    """A new MariaDB, which ends with the block."""
    program = need_program("mariadbd", package="--no-install-recommends mariadb-server")
    options = ("--skip-test-db", "--auth-root-authentication-method=normal")
    with _running(program, ("mariadb-install-db", *options)) as server:
        yield server


@contextmanager
def running_mysql() -> Iterator[Server]:
    """A new MySQL, which ends with the block; MariaDB answers to its name as well, and is none."""
    program = shutil.which("mysqld")
    version = subprocess.run([program, "--version"], capture_output=True, check=True).stdout if program else b"MariaDB"
    if program is None or b"MariaDB" in version:
        pytest.skip("there is no mysqld of MySQL here; on Ubuntu: apt-get install mysql-server-core-8.0")
    with _running(program, (program, "--initialize-insecure")) as server:
        yield server


@contextmanager
def _running(program: str, installing: Sequence[str]) -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="kanab-mysql-"))
    user = ["--user=mysql"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(folder, "mysql")
    try:
        # a server that starts deletes whatever looks like a temporary table in its tmpdir, also another server's
        shared = ["--no-defaults", *user, f"--datadir={folder / 'data'}", f"--tmpdir={folder}"]
        subprocess.run([installing[0], *shared, *installing[1:]], capture_output=True, check=True)
        with closing(socket.socket()) as chosen:
            chosen.bind(("127.0.0.1", 0))
            port = chosen.getsockname()[1]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, *shared, f"--socket={folder / 'socket'}", f"--port={port}", "--bind-address=127.0.0.1",
                 "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M",
                 "--loose-mysqlx=OFF", "--secure-file-priv="],
                stdout=log, stderr=log,
            )  # fmt: skip
        try:
            _make_database(port, process)
            yield Server(f"mysql://root@127.0.0.1:{port}/shop", process)
        finally:
            process.terminate()
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_database(port: int, process: subprocess.Popen[bytes]) -> None:
    import pymysql  # noqa: PLC0415 - an extra

    while process.poll() is None:
        with suppress(pymysql.err.OperationalError):
            with closing(pymysql.connect(host="127.0.0.1", port=port, user="root")) as connection:
                connection.cursor().execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
            return
        time.sleep(0.05)
    raise RuntimeError("the server did not start")
