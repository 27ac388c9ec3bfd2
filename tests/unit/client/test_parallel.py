"""Parallel requests of one person: in one process nothing is lost, in several nothing is counted twice."""

import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.closing import Keep
from tests.unit.client.counting_collector import Clock, CountingCollector

from kanab.client import Client
from kanab.client.state import unpack_state

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
