"""Answers: the collector's own count, and somebody in between (a proxy, a hotel's page) is not believed."""

import pytest
from tests.closing import Keep
from tests.unit.client.counting_collector import Clock, CountingCollector

from kanab.client import Client, PostAnswer
from kanab.client.delivery import Delivery
from kanab.client.posts import nonce_of
from kanab.collector.protocol.config import public_config
from kanab.collector.protocol.nonces import make_nonce

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
