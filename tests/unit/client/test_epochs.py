"""Epochs of the store: whoever enrolled before it lost something keeps their arm, and nothing more is sent of them."""

from collections.abc import Callable

import pytest
from tests.closing import Keep
from tests.unit.client.counting_collector import Clock, CountingCollector

from kanab.client import Client
from kanab.client.state import OVER, unpack_state

EPOCH = "5f3a9c01"
Connect = Callable[[], Client]


@pytest.fixture
def connect(collector: CountingCollector, clock: Clock, closing: Keep) -> Connect:
    """Makes the client of one more process, which fetches its config from the collector."""

    def made() -> Client:
        client: Client = closing(Client("http://collector.example", collector, clock=clock))
        assert client.ready(10)
        return client

    return made


def enrolled(client: Client, state: bytes | None = None) -> bytes:
    person = client.person(state)
    person.enroll("banner")
    person.track("minutes", 4)
    assert person.flush(10)
    return person.save()


def epochs(collector: CountingCollector) -> list[str]:
    return [body.decode().partition("\n")[0][41:] for body in collector.received]


def test_a_process_that_does_not_know_yet_learns_it_from_one_answer(
    connect: Connect, collector: CountingCollector
) -> None:
    client = connect()
    states = [enrolled(client) for _ in range(5)]
    collector.epoch = EPOCH
    for state in states:
        person = client.person(state)
        person.track("minutes", 3)
        assert person.flush(10)
        assert unpack_state(person.save()).units == {"banner": OVER}
    assert epochs(collector) == [""] * 6  # one was refused, the others were not even sent
    assert collector.refusals == ["epoch"]
    enrolled(client)
    assert epochs(collector)[-1] == EPOCH


def test_a_client_with_a_plan_learns_it_from_the_answer_too(client: Client, collector: CountingCollector) -> None:
    collector.epoch = EPOCH
    enrolled(client)  # refused: nobody is counted
    enrolled(client)
    assert (epochs(collector), collector.refusals) == (["", EPOCH], ["epoch"])
    assert collector.tallies()["banner"].total == 1


def test_a_process_with_an_older_config_does_not_freeze_what_a_newer_one_began(
    connect: Connect, collector: CountingCollector
) -> None:
    older = connect()
    collector.epoch = EPOCH
    newer = connect()
    person = older.person(enrolled(newer))
    person.track("minutes", 3)
    assert person.flush(10)
    assert (epochs(collector), collector.refusals) == ([EPOCH, EPOCH], [])
    collector.epoch = "0badcafe"  # and once more: what was begun in the second epoch is over, too
    state = person.save()
    last = connect().person(state)
    last.track("minutes", 3)
    assert last.flush(10)
    assert collector.refusals == ["epoch"]
    assert unpack_state(last.save()).units == {"banner": OVER}
