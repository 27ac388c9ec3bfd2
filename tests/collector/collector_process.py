"""Real collectors for tests: `kanab serve` in a process of its own, and what talks to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

KANAB = str(Path(sys.executable).with_name("kanab"))
HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


class ForkServer:
    """The process that forks commands; see fork_server.py. ``preload`` is a library before all others in them."""

    def __init__(self, preload: Path | None = None) -> None:
        script = str(Path(__file__).with_name("fork_server.py"))
        self._process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | ({} if preload is None else {"LD_PRELOAD": str(preload)}),
        )  # fmt: skip
        self._lock = threading.Lock()

    def order(self, **order: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass
class Place:
    """A folder with everything that a command may write to: data, key, temporary files, home, working directory."""

    root: Path
    fork_server: ForkServer
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("home", "tmp", "cwd"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def key(self) -> Path:
        return self.root / "data.key"

    @property
    def env(self) -> dict[str, str]:
        here = {name: str(self.root / folder) for name, folder in (("HOME", "home"), ("TMPDIR", "tmp"))}
        inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return inherited | here | {"PYTHONDONTWRITEBYTECODE": "1", "XDG_RUNTIME_DIR": here["TMPDIR"]} | self.variables

    def plan(self, text: str) -> Path:
        path = self.root / "kanab.toml"
        path.write_text(text)
        return path

    def begin(self, *argv: str | Path, name: str = "command", **more: Any) -> int:
        """Start a command in a process of its own; its number."""
        out, err = (str(self.root / f"{name}.{end}") for end in ("out", "err"))
        order = {"argv": [str(one) for one in argv], "env": self.env, "cwd": str(self.root / "cwd")}
        return int(self.fork_server.order(**(order | {"out": out, "err": err} | more)))

    def end(self, pid: int, seconds: float = 30) -> int:
        code = self.fork_server.order(wait=pid, seconds=seconds)
        if code is None:
            os.kill(pid, signal.SIGKILL)
            self.fork_server.order(wait=pid, seconds=5)
            raise AssertionError(f"a command did not end within {seconds} seconds")
        return int(code)

    def run(self, *argv: str | Path, **more: Any) -> Done:
        """Run a command to its end; what else there is to order, see fork_server.py."""
        files = [self.root / f"command.{end}" for end in ("out", "err")]
        for file in files:
            file.unlink(missing_ok=True)
        code = self.end(self.begin(*argv, **more))
        out, err = (file.read_text() if file.exists() else "" for file in files)
        return Done(code, out, err)


class Server:
    """A collector: started, killed and started again on the same data."""

    def __init__(
        self,
        place: Place,
        *options: str | Path,
        name: str = "server",
        fresh: bool = False,
        clock: Path | None = None,
        guarded: bool = False,
        limits: Mapping[str, int] | None = None,
        port: int | None = None,
    ) -> None:
        self.place = place
        self.name = name
        self._more = {"clock": None if clock is None else str(clock), "limits": dict(limits or {}), "guarded": guarded}
        self.port = free_port() if port is None else port
        self._options = ["serve", *map(str, options), "--port", str(self.port)]
        self._fresh = fresh  # not forked, but as the shell starts it
        self._process: subprocess.Popen[bytes] | None = None
        self.pid: int | None = None

    @property
    def stderr(self) -> str:
        return self._file("err").read_text()

    def _file(self, end: str) -> Path:
        return self.place.root / f"{self.name}.{end}"

    def start(self, *, wait: bool = True, healthy: bool | None = True) -> Server:
        assert self.pid is None
        if self._fresh:
            with self._file("out").open("ab") as out, self._file("err").open("ab") as err:
                self._process = subprocess.Popen(
                    [KANAB, *self._options], env=self.place.env, cwd=self.place.root / "cwd",
                    stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                )  # fmt: skip
            self.pid = self._process.pid
        else:
            self.pid = self.place.begin(*self._options, name=self.name, **self._more)
        if wait:
            self.wait_ready(healthy=healthy)
        return self

    def wait_ready(self, seconds: float = 60, *, healthy: bool | None = True) -> None:
        """Wait until it answers that it is healthy, or is not; with None until it answers at all."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._is_dead():
            with suppress(OSError, http.client.HTTPException):
                if healthy in (None, self.ask("GET", "/healthz")[0] == 200):
                    return
            time.sleep(0.02)
        raise AssertionError(f"the collector did not start: {self.stderr}")

    def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        return self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> int:
        assert self.pid is not None
        if not self._is_dead():
            os.kill(self.pid, number)
        return self.ended()

    def _is_dead(self) -> bool:
        """Whether the process has ended by itself, without asking what came of it."""
        with suppress(OSError):  # only Linux tells
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return False

    def ended(self, seconds: float = 30) -> int:
        """Wait for the end; the exit code."""
        assert self.pid is not None
        code = self._process.wait(seconds) if self._process is not None else self.place.end(self.pid, seconds)
        self.pid = self._process = None
        return code

    def close(self) -> None:
        if self.pid is not None:
            self.kill()

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}, address: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own."""
        source = (address, 0) if address else None
        connection = http.client.HTTPConnection(HOST, self.port, timeout=20, source_address=source)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def post(self, body: bytes, **headers: str) -> int:
        """Post a message; the status."""
        return self.ask("POST", "/v1/t", body, {"Content-Type": "text/plain"} | headers)[0]

    def memory(self) -> int:
        """Bytes of memory that the process has now."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024


class Wire:
    """A kept-alive connection that sends posts and reads statuses, and nothing else."""

    def __init__(self) -> None:
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._port = 0

    async def send(self, port: int, body: bytes) -> int | None:
        """The status; None if nobody knows what became of it."""
        try:
            async with asyncio.timeout(15):
                return await self._send(port, body)
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            self.close()
            return None

    async def _send(self, port: int, body: bytes) -> int:
        if self._writer is None or self._port != port:
            self.close()
            self._reader, self._writer = await asyncio.open_connection(HOST, port)
            self._port = port
        assert self._reader is not None
        self._writer.write(b"POST /v1/t HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next((line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b"0")
        await self._reader.readexactly(int(length))
        if b"\r\nconnection: close\r\n" in head.lower():
            self.close()
        return int(head[9:12])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await asyncio.sleep(0)  # lets the transport go


def until(fact: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait until something is so; what it is."""
    end = time.monotonic() + seconds
    while not (value := fact()):
        assert time.monotonic() < end, f"it did not come to that within {seconds} seconds"
        time.sleep(0.01)
    return value


def turn(clock: Path, ahead: timedelta = timedelta()) -> Path:
    """Set the clock of a rehearsal; a file that is read at any moment is replaced as a whole."""
    clock.with_suffix(".new").write_text(str(ahead.total_seconds()))
    clock.with_suffix(".new").replace(clock)
    return clock


def every_file(root: Path) -> dict[Path, bytes]:
    """All bytes in all files under a folder."""
    found = {}
    for path in sorted(root.rglob("*")):
        with suppress(FileNotFoundError):
            if path.is_file():
                found[path] = path.read_bytes()
    return found
