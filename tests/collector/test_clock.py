"""A collector in a process of its own whose wall clock is moved while its steady clock goes on."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from tests.closing import Keep
from tests.collector.collector_process import Done, Place, Server, turn, until
from tests.collector.many_visitors import PLAN_TEXT, Visitors, cohort_label, collected
from tests.unit.collector.test_clock import web_server

from kanab.collector.http.service import Service
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.sealing import stored_ledger
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Store
from kanab.plan.file import parse_plan

SEALING = PLAN_TEXT.replace('window = "7d"', 'window = "7d"\nseal = "7d"')
LONG = timedelta(days=30)  # everything is ripe by then


class Rehearsal:
    """A collector on SQLite or PostgreSQL with a clock that the test moves."""

    def __init__(self, place: Place, closing: Keep, url: str | None = None) -> None:
        self.place, self._closing = place, closing
        self.clock = turn(place.root / "clock")
        self._plan = place.plan(SEALING)
        self.url = url
        if url is not None:
            Keyring.create(place.key)
        self.server = self._server()

    def _server(self, *more: str) -> Server:
        return self._closing(Server(self.place, *self.where, *more, clock=self.clock, guarded=True))

    @property
    def where(self) -> list[str | Path]:
        kept = ["--data", self.place.data] if self.url is None else ["--store", self.url, "--key", self.place.key]
        return ["--plan", self._plan, *kept]

    def start_sure(self) -> Server:
        """Start a collector that is sure of its clock: that of a new store may still be set."""
        self.server = self._server("--accept-clock").start()
        return self.server

    def restart(self, *more: str, healthy: bool = True) -> None:
        self.server.kill()
        self.server = self._server(*more).start(healthy=healthy)

    def seal(self, *more: str) -> Done:
        """`kanab seal` on the moved clock."""
        name = "sealing"
        code = self.place.end(
            self.place.begin("seal", *self.where, *more, name=name, clock=str(self.clock), guarded=True)
        )
        out, err = ((self.place.root / f"{name}.{end}").read_text() for end in ("out", "err"))
        return Done(code, out, err)

    @contextmanager
    def store(self) -> Iterator[Store]:
        opened = SqliteStore(self.place.data / "store.db") if self.url is None else PostgresStore(self.url)
        yield opened
        opened.close()

    @property
    def forgotten(self) -> int:
        with self.store() as store:
            return store.forgotten()

    def check_untouched(self) -> None:
        """Nothing was sealed, nothing forgotten, no key moved."""
        with self.store() as store:
            assert store.sealed() == []
            assert store.last_hour() <= datetime.now(UTC).timestamp() // 3600
        assert Keyring.from_file(self.place.key).period == 0

    def check_counted(self, visitors: Visitors) -> None:
        with self.store() as store:
            assert collected(store, RecordCipher(Keyring.from_file(self.place.key))) == visitors.tallies()


@pytest.fixture
def alone(place: Place, closing: Keep) -> Rehearsal:
    """A collector without another clock to ask."""
    return Rehearsal(place, closing)


def posted(server: Server, visitors: Visitors, people: int = 25) -> set[tuple[int, str, str]]:
    """Status, word and pause of the answers to so many new people."""
    answers = set()
    for _ in range(people):
        sent = visitors.next_post(visitors.join())
        status, headers, _ = server.ask("POST", "/v1/t", sent.body, {"Content-Type": "text/plain"})
        answers.add((status, headers["kanab-answer"], headers.get("retry-after", "")))
    return answers


def is_red(server: Server) -> bool:
    return server.ask("GET", "/readyz")[0] == 503


@pytest.mark.parametrize(
    ("kind", "step"), [("sqlite", LONG), ("sqlite", -timedelta(hours=2)), ("postgres", LONG)], ids=str
)
def test_while_the_clock_has_jumped_everybody_is_told_to_send_again_and_nothing_is_sealed(
    request: pytest.FixtureRequest, place: Place, closing: Keep, kind: str, step: timedelta
) -> None:
    rehearsal = Rehearsal(place, closing, request.getfixturevalue("postgres_url") if kind == "postgres" else None)
    server, visitors = rehearsal.start_sure(), Visitors(51)
    asyncio.run(visitors.for_a_while([server.port], 60, most=50))
    turn(rehearsal.clock, step)
    assert posted(server, visitors) == {(503, "clock", "2")}
    until(lambda: is_red(server))
    shown = server.ask("GET", "/metrics")[2].decode().split("\nkanab_clock_step_seconds ")[1]
    assert abs(float(shown.split()[0]) - step.total_seconds()) < 5
    way, length = "ahead" if step > timedelta() else "back", "30 days" if abs(step) == LONG else "2 hours"
    assert f"this machine's clock jumped {way} by {length}. Set it right." in server.stderr
    time.sleep(0.2)  # the clock is looked at several times
    rehearsal.check_untouched()
    turn(rehearsal.clock)
    until(lambda: not is_red(server))
    asyncio.run(visitors.finish([server.port]))
    asyncio.run(visitors.for_a_while([server.port], 60, most=50))
    until(lambda: "is believed again" in server.stderr)
    server.kill()
    rehearsal.check_untouched()
    rehearsal.check_counted(visitors)
    assert server.stderr.count("is believed again") == 1
    assert "Traceback" not in server.stderr


# ── starts ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("fast", "word"), [(-timedelta(hours=2), "ahead"), (timedelta(days=3), "clock")], ids=str)
def test_a_start_with_a_wrong_clock_that_nothing_contradicts_turns_nobody_away(
    alone: Rehearsal, fast: timedelta, word: str
) -> None:
    turn(alone.clock, fast)
    server, visitors = alone.server.start(), Visitors(54)
    assert {answer[:2] for answer in posted(server, visitors)} <= {(503, word), (503, "clock")}
    assert not is_red(server)  # anybody can post
    turn(alone.clock)  # a time server corrects it: nothing was counted by the wrong time
    asyncio.run(visitors.finish([server.port]))
    server.kill()
    alone.check_untouched()
    alone.check_counted(visitors)


@pytest.mark.parametrize("ahead", [-timedelta(days=3), timedelta(days=3)], ids=str)
def test_whatever_others_send_posts_in_time_are_taken_and_the_collector_stays_in_the_balancer(
    alone: Rehearsal, ahead: timedelta
) -> None:
    server, visitors = alone.start_sure(), Visitors(56)
    answer = (410, "expired") if ahead < timedelta() else (503, "ahead")
    for _ in range(4):
        assert {each[:2] for each in posted(server, Visitors(55, ahead=ahead))} == {answer}
        assert server.ask("GET", "/readyz/posts")[0] == 200
        assert not is_red(server)
        assert posted(server, visitors) == {(204, "counted", "")}


def test_cohorts_that_are_ripe_only_by_an_unconfirmed_clock_are_not_sealed(alone: Rehearsal) -> None:
    visitors = Visitors(57)
    asyncio.run(visitors.for_a_while([alone.server.start().port], 10, most=300))
    turn(alone.clock, LONG)
    alone.restart()
    until(lambda: "since the start, or a jump, nothing has confirmed it" in alone.server.stderr)
    alone.check_untouched()
    assert alone.seal().code == 2
    alone.check_untouched()
    alone.restart("--accept-clock")
    until(lambda: "kanab: sealed the cohorts through" in alone.server.stderr)


def test_a_start_with_another_time_than_the_database_waits_for_a_confirmation(
    place: Place, closing: Keep, postgres_url: str
) -> None:
    rehearsal = Rehearsal(place, closing, postgres_url)
    asyncio.run((visitors := Visitors(61)).for_a_while([rehearsal.server.start().port], 10, most=5))
    turn(rehearsal.clock, timedelta(hours=2))
    rehearsal.restart(healthy=False)
    assert posted(rehearsal.server, visitors, 3) == {(503, "clock", "2")}
    assert "this machine's clock is ahead of another by 2 hours" in rehearsal.server.stderr
    assert "this machine's clock is ahead of another by 2 hours" in rehearsal.seal().err
    rehearsal.restart("--accept-clock")
    assert not is_red(rehearsal.server)
    turn(rehearsal.clock)
    rehearsal.restart("--accept-clock")  # it stands before a time that somebody has accepted
    asyncio.run(visitors.finish([rehearsal.server.port]))
    rehearsal.server.kill()
    rehearsal.check_counted(visitors)


# ── the calendar ───────────────────────────────────────────────────────────────────────────────

WEEKLY = parse_plan("""
k = 5
[cohorts]
every = "7d"
window = "7d"
seal = "7d"
[metrics]
spend = { bounds = [0, 9], resolution = 1 }
[experiments.shop]
arms = { A = 1, B = 1 }
""")


@pytest.mark.parametrize(
    ("begins", "weeks"),
    [
        (datetime(2027, 1, 4, tzinfo=UTC), ["2026-W53", "2027-W01"]),
        (datetime(2024, 12, 30, tzinfo=UTC), ["2024-W52", "2025-W01"]),  # begins in the year before
        (datetime(2017, 1, 2, tzinfo=UTC), ["2016-W52", "2017-W01"]),  # after a leap second, on a Sunday
    ],
)
def test_at_the_end_of_a_year_everybody_is_counted_and_sealed_in_their_week(
    shared: Callable[[], Store], tmp_path: Path, begins: datetime, weeks: list[str]
) -> None:
    """Also whoever is a second fast, and at 23:59:60, when the clock shows 23:59:59 twice."""
    now = [begins - timedelta(seconds=1)]
    store = shared()
    service = Service(store, Keyring.create(tmp_path / "data.key"), WEEKLY, clock=lambda: now[0])

    async def enroll(week: str, made: datetime) -> None:
        for arm in 5 * "AB":
            await service.take(f"kanab/1 {make_nonce(made)}\nshop:{arm}@{week}\n".encode(), None)

    service.check_clock()
    asyncio.run(enroll(weeks[0], now[0]))
    asyncio.run(enroll(weeks[1], begins))
    for seconds in (0, -1, 0):
        now[0] = begins + timedelta(seconds=seconds)
        service.check_clock()
        asyncio.run(enroll(weeks[seconds == 0], now[0]))
    for week in (2, 3):
        now[0] = begins + timedelta(days=7 * week)
        service.check_clock()
    asyncio.run(service.stop())
    sealed = stored_ledger(store).releases
    batches = [(release.receipt.batch, release.tables["shop"]) for release in sealed]
    assert [(batch and batch.through, table.people_by("shop")) for batch, table in batches] == [
        (weeks[0], {"A": 10, "B": 10}), (weeks[1], {"A": 15, "B": 15}),
    ]  # fmt: skip


# ── other clocks ───────────────────────────────────────────────────────────────────────────────


def test_two_clocks_that_agree_confirm_a_jump_while_posts_come(alone: Rehearsal) -> None:
    date = ("Date", format_datetime(datetime.now(UTC) + LONG, usegmt=True))
    with web_server(date) as first, web_server(date) as second:
        refused = alone.place.run("serve", *alone.where, "--clock-peer", first)
        assert refused.code == 2  # the first plan is not recorded with a period that nobody knows
        assert "this machine's clock is behind another by 30 days" in refused.err
        alone.server.start()
        alone.restart("--clock-peer", first, "--clock-peer", second, healthy=False)
        turn(alone.clock, LONG)
        until(lambda: not is_red(alone.server))
        visitors = Visitors(62, label=cohort_label(datetime.now(UTC) + LONG), ahead=LONG)
        assert posted(alone.server, visitors, 1) == {(204, "counted", "")}
        turn(alone.clock, 2 * LONG)
        assert posted(alone.server, visitors, 1) == {(503, "clock", "2")}
        turn(alone.clock, LONG)
        asyncio.run(visitors.finish([alone.server.port]))
