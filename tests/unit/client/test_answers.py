"""Answers of the collector, epochs of its store, and vouchers; somebody in between (a hotel's page) is not believed."""

import logging
from collections.abc import Callable

import pytest
from tests.closing import Keep
from tests.unit.client.counting_collector import SHOP, Clock, CountingCollector, plan

from kanab.client import Client, PostAnswer
from kanab.client.delivery import Delivery
from kanab.client.posts import nonce_of
from kanab.client.state import OVER, unpack_state
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.protocol.config import public_config
from kanab.collector.protocol.nonces import make_nonce
from kanab.errors import KanabError

PAGES = (200, 204, 302, 400, 401, 403, 404, 410, 413)


class Proxy:
    """Answers the first posts itself, without the header, and then lets them through."""

    def __init__(self, behind: CountingCollector, *statuses: int) -> None:
        self.behind, self.statuses = behind, list(statuses)
        self.config, self.close = behind.config, behind.close

    def post(self, body: bytes) -> PostAnswer:
        return PostAnswer(self.statuses.pop(0), answer="") if self.statuses else self.behind.post(body)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kanab.client.delivery.LONGEST_PAUSE", 0.01)


@pytest.mark.parametrize("status", PAGES)
def test_an_answer_that_is_not_the_collectors_is_no_answer(
    status: int, collector: CountingCollector, clock: Clock, closing: Keep
) -> None:
    client = closing(Client(collector.plan, Proxy(collector, status, status), clock=clock))
    person = client.person(id="user-1")
    person.enroll("banner")
    assert person.flush(10)
    assert len(collector.received) == 1
    assert collector.tallies()["banner"].total == 1


def test_a_collector_that_does_not_sign_its_answers_yet_is_believed(
    collector: CountingCollector, clock: Clock, closing: Keep
) -> None:
    older = public_config(collector.plan).replace(b'"answers":true,', b"")
    assert b"answers" not in older
    for status, posts in ((204, 1), (400, 1)):
        proxy = Proxy(collector, status, 204, 204)
        client = closing(Client(older, proxy, clock=clock))
        person = client.person(id="user-1")
        person.enroll("banner")
        assert person.flush(10)
        assert len(proxy.statuses) == 3 - posts


@pytest.mark.parametrize(
    ("answer", "counted"),
    [(PostAnswer(410), True), (PostAnswer(410, answer="expired"), True), (PostAnswer(410, answer="untimely"), False)],
)
def test_only_an_expired_post_of_another_process_is_taken_as_counted(answer: PostAnswer, counted: bool) -> None:
    delivery = Delivery(lambda _: answer, lambda: 86_400)
    post = f"kanab/1 {make_nonce()}\ncheckout:B\n"
    delivery.submit([post], fresh=False)
    assert delivery.flush(10)
    assert delivery.counted(nonce_of(post)) is counted
    delivery.close()


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


KEY = "07" * 32


@pytest.fixture
def vouching(clock: Clock) -> CountingCollector:
    collector = CountingCollector(plan("vouch = true\n" + SHOP), clock)
    collector._scheme = PostAcceptor(collector.plan, None, [bytes.fromhex(KEY)])
    return collector


def visit(client: Client, state: bytes | None = None) -> bytes:
    person = client.person(state)
    person.enroll("checkout", {"tier": 1, "device": "phone"})
    person.enroll("banner")
    person.track("minutes", 2)
    return person.save()


def test_posts_carry_vouchers_and_parallel_requests_count_once(
    vouching: CountingCollector, clock: Clock, closing: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KANAB_VOUCHER_KEY", f"{KEY} {'01' * 32}")
    first, second = (closing(Client(vouching.plan, vouching, voucher_key=key, clock=clock)) for key in (KEY, None))
    began = first.person()
    began.variant("checkout")
    state = began.save()
    for client in (first, second):  # two processes go on from one state: the same transitions, the same vouchers
        visit(client, state)
        assert client.flush(10)
    assert vouching.refusals == []
    assert sum(vouching.number(f"banner|{arm}|n") for arm in ("off", "on")) == 1


def test_without_the_key_nobody_is_counted_and_the_log_says_so_once(
    vouching: CountingCollector, clock: Clock, closing: Keep, caplog: pytest.LogCaptureFixture
) -> None:
    client = closing(Client(vouching.plan, vouching, clock=clock))
    with caplog.at_level(logging.ERROR, "kanab.client"):
        state = visit(client)
        visit(client)
    assert client.flush(10)
    assert [record.getMessage() for record in caplog.records] == [
        "the plan asks for vouchers, and KANAB_VOUCHER_KEY is not set: nobody is counted"
    ]
    assert vouching.received == []
    with pytest.raises(KanabError, match="vouchers need a key"):
        client.voucher()
    visit(closing(Client(vouching.plan, vouching, voucher_key=KEY, clock=clock)), state)  # and later they are
