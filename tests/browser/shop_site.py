"""A shop's web site for tests: pages under a strict policy, and the way to a real collector, watched and disturbed."""

import http.client
import mimetypes
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.collector.collector_process import HOST, Place, Server
from tests.unit.collector.counting.tables_of_counters import tables

from kanab.collector.counting.counters import Counters, add_counters
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.restoring import begin_epoch
from kanab.collector.stores.sqlite import SqliteStore
from kanab.plan.file import parse_plan
from kanab.plan.model import Plan
from kanab.tally.tally import Tally

POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'"
PAGE = b'<!doctype html><title>shop</title><script type="module" src="/shop.js"></script>'
SCRIPT = b'import * as module from "/kanab.js"; Object.assign(window, module);'
PASSED = ("content-type", "location", "cache-control", "kanab-answer", "kanab-epoch")
FOLDERS = {"/js/": Path(__file__).parents[2] / "js", "/src/": Path(__file__).parents[2] / "src"}


@dataclass(frozen=True)
class Request:
    """What a browser sent, and how it was answered; 0: not at all."""

    method: str
    path: str
    headers: dict[str, str]
    body: str
    status: int

    @property
    def nonce(self) -> str:
        return self.body.split("\n")[0].removeprefix("kanab/1 ")[:32]

    @property
    def epoch(self) -> str:
        return self.body.split("\n")[0].removeprefix("kanab/1 ")[33:]

    @property
    def lines(self) -> list[str]:
        return self.body.strip().split("\n")[1:]


Fault = Callable[[str, str], "int | str | None"]
"""For a method and a path: "drop" (it never arrives), "deaf" (the answer is lost), a status to answer with as the
collector would, "page 400" for a status with which somebody in between answers, or None."""


@dataclass
class Site:
    """Pages, and everything that went to the collector; ``/p/17/…`` is the same site for another person."""

    place: Place
    text: str
    requests: list[Request] = field(default_factory=list)
    fault: Fault = lambda _method, _path: None
    policy: str = POLICY
    page: bytes = PAGE

    def __post_init__(self) -> None:
        self.collector = self.serve(self.text)
        self.server = _Listener((HOST, 0), type("Handler", (_Handler,), {"site": self}))
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def serve(self, text: str, *flags: str) -> Server:
        """Start a collector with a plan; on the port of the one before, if there was one."""
        self.text = text
        return Server(self.place, "--plan", self.place.plan(text), "--data", self.place.data, *flags).start()

    def restart(self, text: str | None = None, *flags: str) -> None:
        """Killed without warning, and started again, with another plan if one is given."""
        self.collector.close()
        self.collector = self.serve(text or self.text, *flags)

    def anew(self, text: str) -> None:
        """Another plan, on an empty store: what a plan may not change while people are counted."""
        self.collector.close()
        for path in (self.place.data, self.place.key):
            path.rename(path.with_name(f"old-{len(text)}-{path.name}"))
        self.collector = self.serve(text)

    def begin_epoch(self) -> str:
        """The store has lost something, and begins another epoch while the collector serves; its name."""
        store = SqliteStore(self.place.data / "store.db")
        epoch = begin_epoch(store, "a test", datetime.now(UTC))
        store.close()
        return epoch

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server.server_port}/"

    @property
    def posts(self) -> list[Request]:
        return [request for request in self.requests if request.method == "POST"]

    @property
    def counted(self) -> list[str]:
        """The lines of all posts that were acknowledged, each post once."""
        return [
            line for post in {one.nonce: one for one in self.posts if one.status == 204}.values() for line in post.lines
        ]

    @property
    def plan(self) -> Plan:
        return parse_plan(self.text)

    def tallies(self) -> dict[str, Tally]:
        """What the collector holds; it is stopped for that."""
        if self.collector.pid is not None:
            assert self.collector.stop() == 0
        store, cipher = SqliteStore(self.place.data / "store.db"), RecordCipher(Keyring.from_file(self.place.key))
        found: Counters = {}
        for record in store.records():
            add_counters(found, cipher.decrypt(record.cohort, record.ciphertext))
        store.close()
        return tables(self.plan, found)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.collector.close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 200

    def handle_error(self, *_: Any) -> None:
        """Browsers leave in the middle of things."""


class _Handler(BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self._path()
        if path.startswith("/v1/") or path == "/kanab.js":
            self._pass_on(path)
        elif path == "/shop.js":
            self._answer(200, SCRIPT, {"content-type": "text/javascript"})
        elif (file := _file(path)) is not None:
            kind = mimetypes.guess_type(file.name)[0] or "text/plain"
            self._answer(200, file.read_bytes(), {"content-type": kind})
        else:
            policy = {"content-security-policy": self.site.policy} if self.site.policy else {}
            self._answer(
                200, self.site.page, {"content-type": "text/html", "set-cookie": "who=cookie-of-the-shop"} | policy
            )

    do_POST = do_OPTIONS = lambda self: self._pass_on(self._path())

    def _path(self) -> str:
        path, _, query = re.sub(r"^/p/\d+/", "/", self.path).partition("?")
        return f"{path}?{query}" if path.startswith("/v1/config") and query else path

    def _pass_on(self, path: str) -> None:
        site = self.site
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = site.fault(self.command, path)
        status, more, answer = 0, {}, b""
        if fault in (None, "deaf"):
            try:
                status, more, answer = site.collector.ask(self.command, path, body or None, headers)
            except (OSError, http.client.HTTPException):
                fault = "drop"
        elif isinstance(fault, int):
            status, more = fault, {"kanab-answer": "line" if fault < 429 else "busy"}
        elif str(fault).startswith("page "):
            status, answer = int(str(fault)[5:]), b"<!doctype html><title>Please log in</title>"
        answered = 0 if fault in ("drop", "deaf") else status
        site.requests.append(Request(self.command, path, headers, body.decode(), answered))
        if answered:
            kept = {name: more[name] for name in PASSED if name in more}
            self._answer(status, answer, kept)
        else:
            self.close_connection = True

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def _file(path: str) -> Path | None:
    for folder, root in FOLDERS.items():
        file = root / path.removeprefix(folder)
        if path.startswith(folder) and ".." not in path and file.is_file():
            return file
    return None
