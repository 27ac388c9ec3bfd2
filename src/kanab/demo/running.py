"""The demonstration from beginning to end: start, visits over weeks, seals, what was found, and where to look."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

from kanab.atomicfile import write_whole
from kanab.client import Client
from kanab.client.delivery import PostAnswer
from kanab.client.transport import Http
from kanab.collector.http.app import Collector, Receive, Scope, Send
from kanab.collector.http.server import bind, server_of
from kanab.collector.http.service import Service
from kanab.collector.keys.keyfile import key_beside
from kanab.collector.keys.keyring import Keyring
from kanab.collector.sealing import stored_ledger
from kanab.collector.stores.sqlite import SqliteStore
from kanab.counting.dispatch import count
from kanab.dashboard.app import Dashboard, Site
from kanab.dashboard.release_sources import CollectorReleases
from kanab.demo.visitors import PLAN, DemoClock, Truth, monday, visit_for_a_week
from kanab.errors import StoreError
from kanab.plan.file import parse_plan

WEEKS = 5
"""Four of them are sealed by now; the last is measured still."""

DELIVERING = 4
"""So many posts are under way at once."""

STORE = "store.db"

Say = Callable[[str], None]


class CountedPosts(Http):
    """The real transport of the client, and how many posts it has sent."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.posts = 0
        self._lock = threading.Lock()

    def post(self, body: bytes) -> PostAnswer:
        """Send a post, and count it."""
        with self._lock:
            self.posts += 1
        return super().post(body)


@dataclass(frozen=True)
class Demo:
    """A demonstration that runs: its address, and the truth that its driver kept."""

    address: str
    folder: Path
    service: Service
    clock: DemoClock
    truth: Truth
    sent: CountedPosts


@contextmanager
def start_demo(folder: Path, port: int, people: int, say: Say) -> Iterator[Demo]:
    """Start everything in this process, let the weeks pass, and keep it running.

    Raises `StoreError` where the folder holds something else.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / "kanab.toml").exists():
        raise StoreError(f"{folder.name} holds something else", "Name a new folder: kanab demo FOLDER")
    data = folder / "kanab-data"
    for path in (*(data.iterdir() if data.is_dir() else ()), key_beside(data)):  # of an earlier demonstration
        path.unlink(missing_ok=True)
    if data.is_dir():
        data.rmdir()
    data.mkdir(parents=True, mode=0o700)
    write_whole(folder / "kanab.toml", PLAN)
    now = datetime.now(UTC)
    clock = DemoClock(monday(now, WEEKS))
    with closing(SqliteStore(data / STORE)) as store:
        keyring = Keyring.create(key_beside(data))
        service = Service(store, keyring, parse_plan(PLAN), clock=clock, say=lambda sentence, _=None: say(sentence))
        site = Site(Collector(service), Dashboard(CollectorReleases(service, clock)))
        with _served(Shop(site), port) as address:
            demo = Demo(address, folder, service, clock, Truth(), CountedPosts(address))
            _let_weeks_pass(demo, people, say)
            yield demo


def compare(demo: Demo) -> int:
    """Check that arm totals of everything sealed equal those of the visitors' rows; return how many were compared.

    Raises `StoreError` where one differs.
    """
    ledger = stored_ledger(demo.service.store)
    truth = count(demo.truth.columns(monday(datetime.now(UTC), 1)), plan=demo.service.plan).tallies
    compared = 0
    for name in demo.service.plan.experiment_names:
        whole = sum((release.totals(name) for release in ledger.releases[1:]), ledger.releases[0].totals(name))
        table = next(tally for tally in truth.values() if tally.experiment_names == (name,)).keep()
        if whole != table.select_metrics(metric.name for metric in whole.metrics):
            raise StoreError(f"the sums of {name} differ from the truth", "This is a mistake of kanab: please tell.")
        compared += sum(part.sums.size for part in whole.moments)
    return compared


def _let_weeks_pass(demo: Demo, people: int, say: Say) -> None:
    now = datetime.now(UTC)
    with closing(Client(demo.address, demo.sent, threads=DELIVERING, clock=demo.clock)) as client:
        client.ready(30.0)
        for ago in range(WEEKS, 0, -1):
            week = monday(now, ago)
            demo.clock.move_to(week)
            demo.service.check_clock()
            visit_for_a_week(client, demo.clock, week, people, demo.truth)
            say(f"  the week of {week:%d %B}: {people:,} people came")
            demo.clock.move_to(week + timedelta(days=8, hours=1))
    demo.clock.catch_up()
    demo.service.check_clock()


@contextmanager
def _served(app: Any, port: int) -> Iterator[str]:
    """Serve an application on a thread, with the real server."""
    listening = bind("127.0.0.1", port)
    server = server_of(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise StoreError("the demonstration could not be started", "Run kanab serve to see why.")
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


_KINDS = {"shop.html": b"text/html; charset=utf-8", "shop.js": b"text/javascript", "shop.css": b"text/css"}
_POLICY = b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'"


class Shop:
    """Answers /shop and its two files; passes every other request on."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        folder = resources.files("kanab.demo")
        self._files = {f"/{name}": (folder.joinpath(name).read_bytes(), kind) for name, kind in _KINDS.items()}
        self._files["/shop"] = self._files["/shop.html"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        file = self._files.get(scope["path"]) if scope["type"] == "http" else None
        if file is None:
            await self._inner(scope, receive, send)
            return
        body, kind = file
        headers = [
            (b"content-type", kind), (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-cache"),
            (b"content-security-policy", _POLICY), (b"referrer-policy", b"no-referrer"),
            (b"x-content-type-options", b"nosniff"),
        ]  # fmt: skip
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
