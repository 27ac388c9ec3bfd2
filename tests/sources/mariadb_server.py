"""A real MariaDB in a folder of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tests.programs import need_program


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of a database of a new server, which ends with the block."""
    server = need_program("mariadbd", package="--no-install-recommends mariadb-server")
    folder = Path(tempfile.mkdtemp(prefix="kanab-mariadb-"))
    user = ["--user=mysql"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(folder, "mysql")
    try:
        shared = ["--no-defaults", *user, f"--datadir={folder / 'data'}"]
        subprocess.run(
            ["mariadb-install-db", *shared, "--skip-test-db", "--auth-root-authentication-method=normal"],
            capture_output=True,
            check=True,
        )
        with closing(socket.socket()) as chosen:
            chosen.bind(("127.0.0.1", 0))
            port = chosen.getsockname()[1]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [server, *shared, f"--socket={folder / 'socket'}", f"--port={port}", "--bind-address=127.0.0.1",
                 "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M"],
                stdout=log, stderr=log,
            )  # fmt: skip
        try:
            _make_database(port, process)
            yield f"mysql://root@127.0.0.1:{port}/shop"
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
    raise RuntimeError("MariaDB did not start")
