"""Shared states: parallel requests of one person in several processes lose nothing and double nothing."""

import logging
import random
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


def enrolled(client: Client) -> bytes:
    person = client.person(id="user-1")
    person.enroll("checkout", {"tier": 3, "device": "phone"})
    person.flush(5)
    return person.save()


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
