"""Parallel requests of one person: in one process nothing is lost, in several nothing is counted twice."""

import logging
import os
import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.closing import Keep
from tests.unit.client.counting_collector import Clock, CountingCollector

from kanab.client import Client, SqliteStates
from kanab.client.shared_states import RecentStates
from kanab.client.state import State, unpack_state
from kanab.errors import KanabError

TIER = "checkout/tier|B:3"
SQUARES = "checkout/tier|checkout=B|minutes|q"


def enrolled(client: Client) -> bytes:
    person = client.person(id="user-1")
    person.enroll("checkout", {"tier": 3, "device": "phone"})
    person.flush(5)
    return person.save()


def test_forty_requests_at_once_with_one_state_all_count(client: Client, collector: CountingCollector) -> None:
    state = enrolled(client)
    gate = threading.Barrier(8)

    def request(number: int) -> bytes:
        if number < 8:
            gate.wait(5)
        person = client.person(state, id="user-1")
        person.enroll("checkout", {"tier": 3, "device": "phone"})
        person.track("minutes", number)
        return person.save()

    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(request, range(40)))
    person = client.person(states[3], id="user-1")  # whichever answer the browser took last
    person.track("minutes", 0.5)
    person.flush(5)
    total = sum(range(40)) * 100 + 50
    assert collector.refusals == []
    assert collector.number(f"{TIER}|n") == 1
    assert collector.number(f"{TIER}|minutes|s") == min(total, 60_000)
    assert collector.number(SQUARES) == min(total, 60_000) ** 2


@pytest.fixture
def two(collector: CountingCollector, clock: Clock, closing: Keep) -> list[Client]:
    """Two processes that know nothing of each other."""
    return [closing(Client(collector.plan, collector, clock=clock)) for _ in range(2)]


def test_an_enrollment_beside_a_total_in_another_process_counts_once_whichever_answer_stays(
    two: list[Client], collector: CountingCollector, clock: Clock
) -> None:
    for hours in (0, 30):  # in the hour of the state, and long after it
        before = collector.number("banner|on|n") + collector.number("banner|off|n")
        first = two[0].person()
        first.enroll("checkout", {"tier": 3, "device": "phone"})
        state = first.save()
        assert two[0].flush(5)
        clock.pass_by(hours=hours)
        tracking, enrolling = two[0].person(state), two[1].person(state)
        tracking.track("minutes", 4)
        enrolling.enroll("banner")
        assert enrolling.flush(5)
        again = two[0].person(tracking.save())  # this one knows nothing of the other
        assert again.variant("banner") == enrolling.variant("banner")
        again.enroll("banner")
        assert again.flush(5)
        assert collector.number("banner|on|n") + collector.number("banner|off|n") == before + 1
    assert collector.refusals == []


def test_a_root_moves_on_with_the_hour_and_not_within_it(client: Client, clock: Clock) -> None:
    roots = []
    state = b""
    for minutes in (0, 10, 30, 5, 60):
        clock.pass_by(minutes=minutes)
        person = client.person(state, id="user-1")
        person.enroll("checkout", {"tier": 3})
        person.track("minutes", 1)
        state = person.save()
        client.flush(5)
        roots.append(unpack_state(state).root)
    assert [roots[place] == roots[place + 1] for place in range(4)] == [True, False, True, False]
    assert len({root[8:] for root in roots}) == 3


def test_requests_one_after_another_may_go_to_any_process(two: list[Client], collector: CountingCollector) -> None:
    """The state carries the posts whose answers it has not heard of; the other process sends them again first."""
    state = b""
    for number in range(30):
        person = two[number % 2].person(state, id="user-1")
        person.enroll("checkout", {"tier": 3, "device": "phone"})
        person.track("minutes", 1.25)
        state = person.save()
    assert all(client.flush(5) for client in two)
    person = two[1].person(state, id="user-1")  # what waited while too many posts were without an answer
    person.flush(5)
    assert collector.refusals == []
    assert collector.number(f"{TIER}|n") == 1
    assert collector.number(f"{TIER}|minutes|s") == 3750
    assert collector.number(SQUARES) == 3750**2


def test_a_forked_process_sends_its_own_posts(client: Client, collector: CountingCollector) -> None:
    enrolled(client)
    before = len(collector.received)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks with threads, as servers do
        child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        try:
            person = client.person(id="user-2")
            person.enroll("banner")
            done = person.flush(5)
            os.write(writing, b"%d %d" % (done, len(collector.received) - before))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"1 1"
    os.close(reading)
    os.close(writing)
    assert len(collector.received) == before


# ── processes that share states lose nothing, either ────────────────────────────────────────────────


class Cache:
    """A cache in memory with the verbs of Django's; it may be away."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.away = False

    def get(self, key: str) -> bytes | None:
        if self.away:
            raise ConnectionRefusedError
        return self.kept.get(key)

    def add(self, key: str, value: bytes, timeout: int) -> bool:
        assert timeout >= 3600
        if self.away:
            raise ConnectionRefusedError
        return self.kept.setdefault(key, value) is value


@pytest.fixture
def cache() -> Cache:
    return Cache()


@pytest.fixture
def processes(cache: Cache, collector: CountingCollector, clock: Clock, closing: Keep) -> list[Client]:
    """Three processes that know of each other only through the cache."""
    return [closing(Client(collector.plan, collector, shared=cache, clock=clock)) for _ in range(3)]


@pytest.mark.slow
def test_a_hundred_requests_at_once_on_one_file_all_count(
    tmp_path: Path, collector: CountingCollector, clock: Clock, closing: Keep
) -> None:
    file = tmp_path / "states.db"
    processes = [closing(Client(collector.plan, collector, shared=SqliteStates(file), clock=clock)) for _ in range(3)]
    states = [enrolled(processes[0])]
    rng = random.Random(1)

    def request(number: int) -> None:
        person = processes[number % 3].person(rng.choice(states[-4:]), id="user-1")
        person.track("minutes", 0.25)
        states.append(person.save())

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(request, range(100)))
    person = processes[0].person(states[0], id="user-1")
    assert person.flush(5)
    person.flush(5)  # what waited while too many posts were without an answer
    assert (collector.number(f"{TIER}|minutes|s"), collector.number(SQUARES)) == (2500, 2500**2)
    assert collector.refusals == []
    assert file.stat().st_mode & 0o077 == 0
    assert b"checkout" not in file.read_bytes()


def test_enrollments_of_every_request_travel_in_one_post_and_count_once(
    processes: list[Client], collector: CountingCollector
) -> None:
    for round_ in range(10):
        first = processes[0].person()
        first.variant("checkout")
        state = first.save()
        before = len(collector.received)
        for client, names in zip(processes, (("checkout", "banner"), ("banner",), ("checkout",)), strict=True):
            person = client.person(state)
            for name in names:
                person.enroll(name, {"tier": 3, "device": "phone"})
            person.save()
        assert all(client.flush(5) for client in processes)
        assert len(set(collector.received[before:])) == 1  # both, and their pair
        tallies = collector.tallies()
        assert {name: table.total for name, table in tallies.items()} == dict.fromkeys(tallies, round_ + 1)


def test_an_opt_out_holds_in_every_process(processes: list[Client], collector: CountingCollector) -> None:
    state = enrolled(processes[0])
    processes[0].person(state).opt_out()
    other = processes[1].person(state)
    other.track("minutes", 4)
    assert unpack_state(other.save()).out
    assert collector.number(f"{TIER}|minutes|s") == 0


def test_what_is_shared_says_nothing_without_the_state(processes: list[Client], cache: Cache) -> None:
    state = enrolled(processes[0])
    version = unpack_state(state).version
    kept = repr(cache.kept)
    assert cache.kept
    assert "checkout" not in kept
    assert version not in kept


def test_a_cache_that_is_away_stops_nobody_and_is_said_once(
    processes: list[Client], cache: Cache, collector: CountingCollector, caplog: pytest.LogCaptureFixture
) -> None:
    state = enrolled(processes[0])
    cache.away = True
    with caplog.at_level(logging.WARNING, "kanab.client"):
        for _ in range(3):
            person = processes[0].person(state, id="user-1")
            person.track("minutes", 1)
            assert person.flush(5)
            state = person.save()
    assert [message for message in caplog.messages if "shared" in message] == [
        "shared states cannot be used (ConnectionRefusedError): totals of parallel requests may be lost"
    ]
    assert collector.number(f"{TIER}|minutes|s") == 300


def test_a_file_that_cannot_be_opened_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(KanabError, match="shared states cannot be opened"):
        SqliteStates(tmp_path / "nowhere" / "states.db")


# ── within one process: for some minutes, and so many people ────────────────────────────────────


def test_it_forgets_after_its_time_and_beyond_its_room() -> None:
    now = [0.0]
    memory = RecentStates(most=4, minutes=1, clock=lambda: now[0])
    memory.follow("a0", State("a1"))
    now[0] = 30
    memory.follow("b0", State("b1"))
    assert memory.newest(State("a0")).version == "a1"
    now[0] = 61
    memory.follow("c0", State("c1"))
    assert [memory.newest(State(version)).version for version in ("a0", "b0", "c0")] == ["a0", "b1", "c1"]
    memory.follow("d0", State("d1"))
    assert [memory.newest(State(version)).version for version in ("b0", "c0", "d0")] == ["b0", "c1", "d1"]
