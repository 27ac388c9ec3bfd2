"""The demonstration from beginning to end: start, visits over weeks, seals, what was found, and where to look."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kanab.atomicfile import write_whole
from kanab.client import Client
from kanab.client.delivery import PostAnswer
from kanab.client.transport import Http
from kanab.collector.http.app import Collector
from kanab.collector.http.service import Service
from kanab.collector.keys.keyfile import key_beside
from kanab.collector.keys.keyring import Keyring
from kanab.collector.sealing import stored_ledger
from kanab.collector.stores.sqlite import SqliteStore
from kanab.counting.dispatch import count
from kanab.demo.clock import DemoClock, monday
from kanab.demo.page import Shop
from kanab.demo.visitors import PLAN, Truth, visit_for_a_week
from kanab.errors import MissingExtraError, StoreError
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
    _clear(data)
    data.mkdir(parents=True, mode=0o700)
    write_whole(folder / "kanab.toml", PLAN)
    now = datetime.now(UTC)
    clock = DemoClock(monday(now, WEEKS))
    store = SqliteStore(data / STORE)
    try:
        keyring = Keyring.create(key_beside(data))
        service = Service(store, keyring, parse_plan(PLAN), clock=clock, say=lambda sentence, _=None: say(sentence))
        with _served(Shop(_site(service, clock)), port) as address:
            demo = Demo(address, folder, service, clock, Truth(), CountedPosts(address))
            _let_weeks_pass(demo, people, say)
            yield demo
    finally:
        store.close()


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
    client = Client(demo.address, demo.sent, threads=DELIVERING, clock=demo.clock)
    try:
        client.ready(30.0)
        for ago in range(WEEKS, 0, -1):
            week = monday(now, ago)
            demo.clock.move_to(week)
            demo.service.check_clock()
            visit_for_a_week(client, demo.clock, week, people, demo.truth)
            say(f"  the week of {week:%d %B}: {people:,} people came")
            demo.clock.move_to(week + timedelta(days=8, hours=1))
    finally:
        client.close()
    demo.clock.catch_up()
    demo.service.check_clock()


def _site(service: Service, clock: DemoClock) -> Any:
    collector = Collector(service)
    try:
        from kanab.dashboard.app import Dashboard, Site  # noqa: PLC0415
        from kanab.dashboard.release_sources import CollectorReleases  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("the demonstration", "server") from None
    return Site(collector, Dashboard(CollectorReleases(service, clock)))


@contextmanager
def _served(app: Any, port: int) -> Iterator[str]:
    """Serve an application on a thread, with the real server."""
    try:
        from kanab.collector.http.server import bind, server_of  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("the demonstration", "server") from None
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


def _clear(data: Path) -> None:
    """Delete what an earlier demonstration left."""
    for path in (*(data.iterdir() if data.is_dir() else ()), key_beside(data)):
        path.unlink(missing_ok=True)
    if data.is_dir():
        data.rmdir()
