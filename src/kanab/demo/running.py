"""The demonstration from beginning to end: start, visits over weeks, seals, what was found, and where to look.

Its visitors come through the Python client, the real route and a browser; the truth about them is kept here only. The
new checkout sells better on phones; the banner does nothing by itself, but spoils the new checkout; the new search
changes nothing.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from kanab.atomicfile import write_whole
from kanab.client import Client
from kanab.collector.http.app import Collector, Receive, Scope, Send
from kanab.collector.http.server import bind, server_of
from kanab.collector.http.service import Service
from kanab.collector.keys.keyring import Keyring, key_beside
from kanab.collector.sealing import stored_ledger
from kanab.collector.stores.sqlite import SqliteStore
from kanab.counting.dispatch import count
from kanab.dashboard.dashboard import Dashboard, Site
from kanab.dashboard.release_sources import CollectorReleases
from kanab.errors import StoreError
from kanab.plan.file import parse_plan


class DemoClock:
    """A clock that stands where it is put and never goes back; once it has caught up, it is the real one."""

    def __init__(self, start: datetime) -> None:
        self._now: datetime | None = start

    def __call__(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.now(UTC) if self._now is None else self._now

    def move_to(self, moment: datetime) -> None:
        """Let time pass, at most up to now."""
        if self._now is not None and moment > self._now:
            self._now = min(moment, datetime.now(UTC))

    def catch_up(self) -> None:
        """Be the real clock from now on."""
        self._now = None


def monday(now: datetime, weeks_ago: int) -> datetime:
    """Return the beginning of a week, so many weeks ago."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=now.weekday(), weeks=weeks_ago)


PLAN = """\
# The plan of the demonstration: everything that its shop may collect.
k = 10

[cohorts]
every = "7d"
window = "2d"
seal = "7d"

[covariates]
tier = [1, 2, 3]
device = ["phone", "desktop"]

[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 120], resolution = 0.1 }

[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
segments = ["device"]
looks = 6
primary = ["bought"]
guardrails = ["minutes"]

[experiments.banner]
arms = { off = 1, on = 1 }
interactions = ["checkout"]
looks = 6
primary = ["bought"]

[experiments.search]
arms = { old = 1, new = 1 }
looks = 6
primary = ["bought"]
"""

EXPERIMENTS = ("checkout", "banner", "search")
RETURNING = 0.15
"""The share of visitors who come back a day later."""

TOGETHER = timedelta(hours=6)
"""Posts of so long are under way at once: the clock must not go on by more than a post lives."""

COLUMNS = (*EXPERIMENTS, "tier", "device", "bought", "minutes")


@dataclass
class Truth:
    """Everybody's final row and week: what a driver of the demonstration knows, and a collector never does."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    weeks: list[datetime] = field(default_factory=list)

    def add(self, row: tuple[Any, ...], week: datetime) -> None:
        """Add somebody who came in a week."""
        self.rows.append(row)
        self.weeks.append(week)

    def stay(self, place: int, minutes: float) -> None:
        """Add the minutes of somebody who came back."""
        *known, before = self.rows[place]
        self.rows[place] = (*known, min(round(before + minutes, 1), 120.0))

    def columns(self, before: datetime | None = None) -> dict[str, list[Any]]:
        """Return the rows as columns, perhaps only of those who came before a week."""
        chosen = [row for row, week in zip(self.rows, self.weeks, strict=True) if before is None or week < before]
        return {name: [row[place] for row in chosen] for place, name in enumerate(COLUMNS)}


@dataclass(frozen=True)
class Visitor:
    """What a visitor is and would do, whatever they see."""

    tier: int
    device: str
    minutes: float
    mood: float
    """They buy where the chance of it is above this."""
    again: float | None
    """How many minutes they stay when they come back; None where they do not."""


@dataclass(frozen=True)
class _ReturnVisit:
    """When somebody comes back, with which state, and for how long."""

    moment: datetime
    state: bytes
    row: int
    minutes: float


def visit_for_a_week(client: Client, clock: DemoClock, week: datetime, people: int, truth: Truth) -> None:
    """Let people come in the course of a week; some return a day later, and are still the same person."""
    returning: deque[_ReturnVisit] = deque()
    delivered = week
    for place, visitor in enumerate(_visitors(people, seed=len(truth.rows))):
        moment = week + timedelta(days=7 * place / people)
        if moment - delivered >= TOGETHER:
            delivered = moment
            _deliver(client)
        while returning and returning[0].moment <= moment:
            _return(client, clock, returning.popleft(), truth)
        clock.move_to(moment)
        state = _visit(client, visitor, week, truth)
        if visitor.again is not None:
            returning.append(_ReturnVisit(moment + timedelta(days=1), state, len(truth.rows) - 1, visitor.again))
    _deliver(client)
    for visit in returning:
        _return(client, clock, visit, truth)
    _deliver(client)


def _visitors(people: int, seed: int) -> Iterator[Visitor]:
    rng = np.random.default_rng(seed)
    tiers, phones = rng.choice([1, 2, 3], people, p=[0.5, 0.3, 0.2]), rng.random(people) < 0.6
    minutes, moods = rng.gamma(2.0, 3.0, people) + 0.5 * tiers, rng.random(people)
    returns, more = rng.random(people) < RETURNING, rng.gamma(1.0, 2.0, people)
    for place in range(people):
        yield Visitor(
            int(tiers[place]), "phone" if phones[place] else "desktop", round(float(minutes[place]), 1),
            float(moods[place]), round(float(more[place]), 1) if returns[place] else None,
        )  # fmt: skip


def _visit(client: Client, visitor: Visitor, week: datetime, truth: Truth) -> bytes:
    person = client.person()
    checkout, banner, _ = arms = [person.variant(name) for name in EXPERIMENTS]
    person.enroll("checkout", {"tier": visitor.tier, "device": visitor.device})
    person.enroll("banner")
    person.enroll("search")
    person.track("minutes", visitor.minutes)
    chance = 0.15 + 0.05 * visitor.tier + (0.18 if checkout == "B" and visitor.device == "phone" else 0.0)
    chance -= 0.10 if checkout == "B" and banner == "on" else 0.0
    bought = visitor.mood < chance
    if bought:
        person.track("bought")
    truth.add((*arms, visitor.tier, visitor.device, int(bought), min(visitor.minutes, 120.0)), week)
    return person.save()


def _return(client: Client, clock: DemoClock, visit: _ReturnVisit, truth: Truth) -> None:
    clock.move_to(visit.moment)
    person = client.person(visit.state)
    person.track("minutes", visit.minutes)
    person.save()
    truth.stay(visit.row, visit.minutes)


def _deliver(client: Client) -> None:
    if not client.flush(60.0):
        raise TimeoutError("the collector of the demonstration does not answer")


WEEKS = 5
"""Four of them are sealed by now; the last is measured still."""

DELIVERING = 4
"""So many posts are under way at once."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Demo:
    """A demonstration that runs: its address, and the truth that its driver kept."""

    address: str
    service: Service
    clock: DemoClock
    truth: Truth


@contextmanager
def start_demo(folder: Path, port: int, people: int, say: Say) -> Iterator[Demo]:
    """Start everything in this process, let the weeks pass, and keep it running."""
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
    with closing(SqliteStore(data / "store.db")) as store:
        keyring = Keyring.create(key_beside(data))
        service = Service(store, keyring, parse_plan(PLAN), clock=clock, say=lambda sentence, _=None: say(sentence))
        site = Site(Collector(service), Dashboard(CollectorReleases(service, clock)))
        with _served(Shop(site), port) as address:
            demo = Demo(address, service, clock, Truth())
            _let_weeks_pass(demo, people, say)
            yield demo


def compare(demo: Demo) -> int:
    """Return how many arm totals of everything sealed were compared with the visitors' rows; all must be equal."""
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
    with closing(Client(demo.address, threads=DELIVERING, clock=demo.clock)) as client:
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
