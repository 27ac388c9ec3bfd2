import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kanab.collector.clock import (
    BACK_SECONDS,
    HOLD_SECONDS,
    JUMP_LIMIT,
    MOST_DOWN_HOURS,
    SLEW,
    STEP_LIMIT,
    GuardedClock,
    check_before_seal,
)
from kanab.collector.protocol.limits import GRACE_HOURS, HOURS_AHEAD
from kanab.collector.protocol.nonces import expired_error
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import CountedPost
from kanab.errors import StoreError

NOON = datetime(2026, 11, 11, 12, tzinfo=UTC).timestamp()
HOUR = 3600.0
DAY = 24 * HOUR
LIFE = int(DAY)


@dataclass
class Machine:
    """A machine with a wall clock and a steady one, both in the hands of the test."""

    wall: float = NOON
    steady: float = 1_000.0
    clocks: list[GuardedClock] = field(default_factory=list)

    def clock(self, *, settled: bool = True, **more: Any) -> GuardedClock:
        clock = GuardedClock(wall=lambda: datetime.fromtimestamp(self.wall, UTC), steady=lambda: self.steady, **more)
        clock.settled |= settled
        return clock

    def wait(self, seconds: float, drift: float = 0.0) -> None:
        self.steady += seconds
        self.wall += seconds * (1 + drift)


@pytest.fixture
def machine() -> Machine:
    return Machine()


class Engine(SqliteStore):
    """A store whose engine has a clock of its own, as a database on another machine."""

    ahead: Callable[[], float | None] = staticmethod(lambda: None)

    def time(self) -> float | None:
        return self.ahead()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(tmp_path / "store.db")
    yield opened
    opened.close()


def fill(store: SqliteStore, hour: float) -> None:
    store.append([CountedPost(bytes(16), int(hour), {})], lambda _cohort, _counters: b"")


def run_sure(store: SqliteStore, seconds: float) -> None:
    """Forget nonces as a collector does that is sure of its clock at this time."""
    store.forget_nonces(int((seconds - LIFE) // HOUR) - GRACE_HOURS)


# ── jumps ──────────────────────────────────────────────────────────────────────────────────────


def test_a_clock_that_runs_as_the_steady_one_is_believed_for_ever(machine: Machine) -> None:
    clock = machine.clock()
    for _ in range(1_000):
        machine.wait(9 * HOUR)
        assert clock().timestamp() == machine.wall
        assert clock.trouble is None
    assert abs(clock.step) < 1e-3


@pytest.mark.parametrize("drift", [SLEW, -SLEW])
def test_what_a_time_server_corrects_slowly_is_followed(machine: Machine, drift: float) -> None:
    clock = machine.clock()
    for _ in range(1_000):
        machine.wait(HOUR, drift * 0.99)
        clock()
    assert clock.trouble is None
    assert abs(machine.wall - machine.steady - (NOON - 1_000)) > 20 * STEP_LIMIT


@pytest.mark.parametrize("step", [-1, 1, STEP_LIMIT - 1, 1 - STEP_LIMIT])
def test_a_leap_second_and_other_small_steps_are_no_jump(machine: Machine, step: float) -> None:
    clock = machine.clock()
    machine.wall += step
    clock()
    assert clock.trouble is None
    assert clock.step == pytest.approx(step)
    machine.wait(DAY)
    for _ in range(20):
        machine.wait(DAY)
        clock()
    assert clock.step == pytest.approx(0, abs=1e-3)  # and is made up for in a while


def test_many_small_steps_in_a_short_time_are_a_jump(machine: Machine) -> None:
    clock = machine.clock()
    for _ in range(3):
        machine.wait(60)
        machine.wall += STEP_LIMIT / 2
        clock()
    assert not clock.is_sure
    for _ in range(130):
        machine.wait(1)
        machine.wall += STEP_LIMIT / 2
        clock()
    assert str(clock.trouble).startswith("this machine's clock jumped ahead by 1 hour.")


@pytest.mark.parametrize("step", [STEP_LIMIT + 1, -STEP_LIMIT - 1, 600, JUMP_LIMIT - 1])
def test_a_machine_that_was_paused_for_minutes_takes_posts_and_seals_nothing_for_an_hour(
    machine: Machine, step: float
) -> None:
    clock = machine.clock()
    machine.wall += step
    for _ in range(60):
        clock()
        assert clock.trouble is None
        assert not clock.is_sure
        assert clock.untimely(expired_error()).status == 503
        machine.wait(HOLD_SECONDS / 60)
    machine.wait(1)
    clock()
    assert clock.is_sure
    assert clock.step == 0.0
    assert clock.untimely(expired_error()).status == 410


@pytest.mark.parametrize("step", [JUMP_LIMIT + 1, -JUMP_LIMIT - 1, 2 * HOUR, -30 * DAY])
def test_a_jump_lasts_until_the_clock_has_been_back_for_a_moment(machine: Machine, step: float) -> None:
    clock = machine.clock()
    machine.wall += step
    for _ in range(100):
        machine.wait(HOUR)
        clock()
        assert clock.trouble is not None
    machine.wall -= step
    clock()
    assert clock.trouble is not None  # what was read a moment ago may still be in use
    machine.wait(BACK_SECONDS + 0.1)
    clock()
    assert clock.trouble is None


def test_a_clock_that_nothing_has_confirmed_may_be_set(machine: Machine) -> None:
    """A machine without a battery starts in 1970, and gets its time a little later."""
    clock = machine.clock(settled=False)
    machine.wall += 30 * DAY
    clock()
    assert clock.trouble is None
    assert clock.step == 0.0
    clock.settled = True
    machine.wall += 2 * HOUR
    clock()
    assert clock.trouble is not None


def test_a_rehearsal_moves_its_clock_as_it_likes() -> None:
    times = iter([NOON, NOON + 90 * DAY, NOON])
    clock = GuardedClock(wall=lambda: datetime.fromtimestamp(next(times), UTC), steady=None)
    for _ in range(3):
        clock()
        assert clock.trouble is None
    assert clock.settled


# ── starts ─────────────────────────────────────────────────────────────────────────────────────


def test_the_clock_of_a_new_store_is_believed_after_an_hour(machine: Machine, store: Engine) -> None:
    clock = machine.clock(settled=False)
    clock.compare(store, LIFE)
    fill(store, NOON // HOUR)
    machine.wait(HOLD_SECONDS - 1)
    clock.compare(store, LIFE)
    assert not clock.is_sure
    machine.wait(2)
    clock.compare(store, LIFE)
    assert clock.is_sure


@pytest.mark.parametrize("days", [0, 1, 14])
def test_posts_never_confirm_a_start_days_after_the_last_collector(machine: Machine, store: Engine, days: int) -> None:
    """Whoever knows the wrong time of a machine can send posts that fit it."""
    run_sure(store, NOON)
    machine.wall += days * DAY
    for _ in range(2):  # also after a further start
        clock = machine.clock(settled=False)
        for _ in range(3):
            fill(store, machine.wall // HOUR)
            clock.compare(store, LIFE)
            machine.wait(HOLD_SECONDS)
        assert clock.trouble is None
        assert clock.is_sure is (days <= MOST_DOWN_HOURS // 24)
        if clock.is_sure:
            run_sure(store, machine.wall)


def test_no_post_settles_a_clock_that_no_collector_has_been_sure_of(machine: Machine, store: Engine) -> None:
    """A wrong start, one post that fits it, and a further start."""
    fill(store, NOON // HOUR)
    machine.wall += 14 * DAY
    for _ in range(2):
        clock = machine.clock(settled=False)
        for _ in range(3):
            clock.compare(store, LIFE)
            fill(store, machine.wall // HOUR)
            machine.wait(HOLD_SECONDS)
        assert clock.trouble is None
        assert not clock.is_sure
    machine.wall -= 14 * DAY  # and none contradicts the right one
    clock = machine.clock(settled=False)
    clock.compare(store, LIFE)
    assert clock.trouble is None
    assert not clock.is_sure
    machine.wait(HOLD_SECONDS + 1)
    clock.compare(store, LIFE)
    assert clock.is_sure


# ── other clocks ───────────────────────────────────────────────────────────────────────────────


def test_a_start_before_the_last_collector_was_sure_is_doubted_until_it_is_accepted(
    machine: Machine, store: Engine
) -> None:
    run_sure(store, NOON + HOURS_AHEAD * HOUR)
    fill(store, NOON // HOUR + 14 * 24)  # whoever sent this: it says nothing about clocks
    clock = machine.clock(settled=False)
    clock.compare(store, LIFE)
    assert clock.trouble is None
    machine.wall -= HOUR
    clock = machine.clock(settled=False)
    clock.compare(store, LIFE)
    assert str(clock.trouble).startswith("this machine's clock stands before the time at which")
    accepted = machine.clock(settled=False, accepted=True)
    accepted.compare(store, LIFE)
    assert accepted.trouble is None
    machine.wall += HOUR
    clock.compare(store, LIFE)
    assert clock.trouble is None


@contextmanager
def web_server(*headers: tuple[str, str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(404)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/page"
    server.shutdown()
    thread.join()
    server.server_close()


RIGHT = ("Date", "Wed, 11 Nov 2026 14:00:00 GMT")
WRONG = ("Date", "Wed, 11 Nov 2026 11:00:00 GMT")


@pytest.mark.parametrize(
    ("peers", "database", "confirmed"),
    [
        ([RIGHT], False, False),
        ([RIGHT], True, True),
        ([RIGHT, RIGHT], False, True),
        ([RIGHT, RIGHT, WRONG], False, True),
        ([RIGHT, RIGHT, WRONG, WRONG], False, False),
        ([RIGHT, WRONG], False, False),
        ([RIGHT, ("Date", "yesterday")], False, False),
        ([RIGHT, ("Server", "no date")], False, False),
    ],
)
def test_a_jump_is_confirmed_by_two_other_clocks_unless_as_many_contradict(
    machine: Machine, store: Engine, peers: list[tuple[str, str]], database: bool, confirmed: bool
) -> None:
    if database:
        store.ahead = lambda: machine.wall  # type: ignore[method-assign]
    with ExitStack() as servers:
        addresses = [servers.enter_context(web_server(peer)) for peer in peers]
        clock = machine.clock(accepted=True, peers=addresses)
        machine.wall += 2 * HOUR
        clock.compare(store, LIFE)
        assert (clock.trouble is None) == confirmed


def test_an_answer_from_a_cache_is_as_old_as_it_says_and_no_answer_tells_nothing(
    machine: Machine, store: Engine
) -> None:
    with web_server(WRONG, ("Age", "3600")) as peer:
        [difference] = machine.clock(peers=[peer]).differences(store)
    assert abs(difference) < 2
    assert machine.clock(peers=[peer]).differences(store) == []  # it has stopped


@pytest.mark.parametrize(
    "text", ["", "time.example.com", "ntp://time.example.com", "https://", "http://[", "https://x:y/"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match="that is no address of a clock"):
        GuardedClock(peers=[text])


# ── seals by hand ──────────────────────────────────────────────────────────────────────────────


def test_a_command_seals_by_a_clock_that_the_store_confirms_or_somebody_who_has_looked(
    machine: Machine, store: Engine
) -> None:
    fill(store, NOON // HOUR)
    with pytest.raises(StoreError, match="nothing confirms this machine's clock"):  # nobody has been sure yet
        check_before_seal(machine.clock(settled=False), store, LIFE)
    run_sure(store, NOON)
    check_before_seal(machine.clock(settled=False), store, LIFE)
    machine.wall += DAY
    check_before_seal(machine.clock(settled=False), store, LIFE)
    machine.wall += DAY
    with pytest.raises(StoreError, match="nothing confirms this machine's clock"):
        check_before_seal(machine.clock(settled=False), store, LIFE)
    check_before_seal(machine.clock(settled=False, accepted=True), store, LIFE)
    machine.wall -= 3 * DAY
    with pytest.raises(StoreError, match="stands before the time at which"):
        check_before_seal(machine.clock(settled=False), store, LIFE)
