"""A real MariaDB in a folder of its own: the system's, else Debian's where we may install it."""

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

PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec")
MISSING = "there is no mariadbd here, and only root may install it: apt-get install mariadb-server"


def find_server() -> str | None:
    path = os.pathsep.join((os.environ.get("PATH", ""), *PLACES))
    return shutil.which("mariadbd", path=path) or _from_debian(path)


def _from_debian(path: str) -> str | None:
    """Install Debian's server, if this is Debian and we may; of several workers one does it, and the others wait."""
    if os.name != "posix" or os.geteuid() != 0 or not shutil.which("apt-get"):
        return None
    import fcntl  # noqa: PLC0415 - not on Windows

    with (Path(tempfile.gettempdir()) / "kanab-mariadb.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shutil.which("mariadbd", path=path) is None:
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in ("update", "install -y --no-install-recommends mariadb-server"):
                options = ["-o", "DPkg::Lock::Timeout=120", *command.split()]
                subprocess.run(["apt-get", *options], capture_output=True, check=False, env=quiet)
    return shutil.which("mariadbd", path=path)


@contextmanager
def running_server(server: str) -> Iterator[str]:
    """The URL of a database of a new server, which ends with the block."""
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
