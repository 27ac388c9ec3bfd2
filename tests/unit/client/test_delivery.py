"""The same bytes until a final answer; nobody waits; what is given up stops what it moved."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.closing import Keep
from tests.unit.client.counting_collector import Clock, CountingCollector

from kanab.client import Client, PostAnswer
from kanab.client.delivery import Delivery
from kanab.client.posts import nonce_of
from kanab.client.state import unpack_state
from kanab.collector.protocol.nonces import make_nonce

TIER = "checkout/tier|B:3"


def post(line: str = "checkout:B") -> str:
    return f"kanab/1 {make_nonce()}\n{line}\n"


class Line:
    """A transport that answers as it is told, and remembers what was sent."""

    def __init__(self, *answers: int | Exception | PostAnswer) -> None:
        self.answers = list(answers)
        self.sent: list[str] = []

    def __call__(self, body: bytes) -> PostAnswer:
        self.sent.append(body.decode())
        answer = self.answers.pop(0) if self.answers else 204
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, PostAnswer) else PostAnswer(answer)


@pytest.fixture
def make_delivery(closing: Keep) -> Callable[..., Delivery]:
    def make(send: Callable[[bytes], PostAnswer], life: int = 86_400, **options: Any) -> Delivery:
        return closing(Delivery(send, lambda: life, **({"pause": 0.01} | options)))

    return make


@pytest.mark.slow
def test_the_same_bytes_are_sent_until_an_answer_comes(make_delivery: Callable[..., Delivery]) -> None:
    line = Line(ConnectionRefusedError(), TimeoutError(), 503, 429, 500, 302, 204)
    delivery = make_delivery(line, threads=1)
    first = post()
    delivery.submit([first])
    assert delivery.flush(5)
    assert line.sent == [first] * 7
    assert delivery.counted(nonce_of(first)) is True


@pytest.mark.parametrize("status", [400, 403, 410, 413])
def test_final_answers_end_it_and_what_follows(make_delivery: Callable[..., Delivery], status: int) -> None:
    line = Line(status)
    delivery = make_delivery(line)
    chain = [post() for _ in range(3)]
    delivery.submit(chain)
    assert delivery.flush(5)
    assert line.sent == chain[:1]
    assert [delivery.counted(nonce_of(each)) for each in chain] == [False] * 3
    later = post()
    delivery.submit([*chain, later])
    assert (delivery.flush(5), line.sent, delivery.counted(nonce_of(later))) == (True, chain[:1], False)


def test_posts_of_one_chain_go_in_order_and_others_do_not_wait(make_delivery: Callable[..., Delivery]) -> None:
    hold, sent = threading.Event(), []

    def send(body: bytes) -> PostAnswer:
        sent.append(body.decode())
        if len(sent) == 1:
            hold.wait(5)
        return PostAnswer(204)

    delivery = make_delivery(send)
    chain, other = [post() for _ in range(3)], post()
    delivery.submit(chain)
    while not sent:
        time.sleep(0.001)
    delivery.submit([other])
    assert delivery.flush(5, [other])
    assert sent == [chain[0], other]
    hold.set()
    assert delivery.flush(5)
    assert sent == [chain[0], other, *chain[1:]]


def test_a_post_that_is_to_be_sent_again_for_hours_does_not_keep_others_from_being_counted(
    make_delivery: Callable[..., Delivery],
) -> None:
    """A server whose clock was fast left it in somebody's state: it lies ahead for everybody."""
    ahead, others = post(), [post() for _ in range(5)]
    delivery = make_delivery(lambda body: PostAnswer(503 if body.decode() == ahead else 204), threads=1)
    delivery.submit([ahead])
    for other in others:
        delivery.submit([other])
    assert delivery.flush(5, others)
    assert [delivery.counted(nonce_of(other)) for other in others] == [True] * 5
    delivery.withdraw([ahead])


def test_a_post_older_than_its_life_is_given_up_and_anothers_is_taken_as_sent(
    make_delivery: Callable[..., Delivery],
) -> None:
    line = Line()
    delivery = make_delivery(line, clock=lambda: time.time() + 26 * 3600)
    own, others = post(), post()
    delivery.submit([own])
    delivery.submit([others], fresh=False)
    assert delivery.flush(5)
    assert line.sent == []
    assert (delivery.counted(nonce_of(own)), delivery.counted(nonce_of(others))) == (False, True)


def test_a_collector_that_asks_for_time_gets_it(make_delivery: Callable[..., Delivery]) -> None:
    line = Line(PostAnswer(503, wait=0.3))
    delivery = make_delivery(line)
    began = time.monotonic()
    delivery.submit([post()])
    assert delivery.flush(5)
    assert 0.3 <= time.monotonic() - began < 5


@pytest.mark.slow
def test_while_nobody_answers_all_posts_wait_together(make_delivery: Callable[..., Delivery]) -> None:
    line = Line(*[ConnectionRefusedError()] * 1000)
    delivery = make_delivery(line, threads=2, pause=0.2)
    for _ in range(500):
        delivery.submit([post()])
    time.sleep(0.5)
    assert len(line.sent) < 12  # not one try for each
    line.answers.clear()
    assert delivery.flush(5)


def test_no_more_is_taken_than_memory_has_room_for_and_nothing_after_closing(
    make_delivery: Callable[..., Delivery],
) -> None:
    line = Line(*[ConnectionRefusedError()] * 1000)
    delivery = make_delivery(line, most=3)
    posts = [post() for _ in range(5)]
    for each in posts:
        delivery.submit([each])
    line.answers.clear()
    assert delivery.flush(5)
    assert [delivery.counted(nonce_of(each)) for each in posts] == [True] * 3 + [None] * 2
    delivery.close()
    delivery.submit([post()])
    assert delivery.flush(1)  # nothing is taken any more


def test_old_outcomes_are_forgotten(make_delivery: Callable[..., Delivery], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kanab.client.delivery.MOST_OUTCOMES", 2)
    delivery = make_delivery(Line())
    posts = [post() for _ in range(3)]
    for each in posts:
        delivery.submit([each])
        assert delivery.flush(5)
    assert [delivery.counted(nonce_of(each)) for each in posts] == [None, True, True]


def test_what_is_withdrawn_is_not_sent_even_if_it_was_about_to(make_delivery: Callable[..., Delivery]) -> None:
    began, hold = threading.Event(), threading.Event()

    def send(body: bytes) -> PostAnswer:
        began.set()
        hold.wait(5)
        return PostAnswer(503)

    delivery = make_delivery(send, threads=1)
    posts = [post(), post()]
    delivery.submit(posts[:1])
    began.wait(5)
    delivery.submit(posts[1:])
    delivery.withdraw(posts)
    hold.set()
    assert delivery.flush(5)
    assert [delivery.counted(nonce_of(each)) for each in posts] == [False, False]


def test_a_courier_that_nobody_holds_ends_with_its_last_post() -> None:
    sent = []

    def send(body: bytes) -> PostAnswer:
        time.sleep(0.1)
        sent.append(body)
        return PostAnswer(204)

    delivery = Delivery(send, lambda: 86_400, threads=1)
    delivery.submit([post(), post()])
    (thread,) = delivery._running
    del delivery
    thread.join(10)
    assert (len(sent), thread.is_alive()) == (2, False)


@pytest.mark.slow
def test_a_process_that_ends_sends_what_waits_first(tmp_path: Any) -> None:
    out = tmp_path / "sent"
    code = f"""
import time
from kanab.client.delivery import PostAnswer, Delivery
from kanab.collector.protocol.nonces import make_nonce
def send(body):
    time.sleep(0.05)
    with open({str(out)!r}, "ab") as file:
        file.write(body)
    return PostAnswer(204)
delivery = Delivery(send, lambda: 86400, threads=1)
for _ in range(5):
    delivery.submit([f"kanab/1 {{make_nonce()}}\\ncheckout:B\\n"])
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    assert out.read_text().count("checkout:B") == 5


# ── what it means for people ───────────────────────────────────────────────────────────────────


def enrolled(client: Client) -> bytes:
    person = client.person(id="user-1")
    person.enroll("checkout", {"tier": 3, "device": "phone"})
    return person.save()


@pytest.mark.slow
def test_verbs_return_at_once_while_the_collector_is_down(client: Client, collector: CountingCollector) -> None:
    collector.down = True
    began = time.monotonic()
    state = enrolled(client)
    for _ in range(50):
        person = client.person(state, id="user-1")
        person.track("minutes", 1)
        state = person.save()
    assert time.monotonic() - began < 5  # a single wait for each verb would take longer
    assert len(unpack_state(state).units["checkout"].outbox) == 16
    collector.down = False
    assert client.flush(10)
    client.person(state, id="user-1").flush(5)
    assert collector.refusals == []
    assert collector.number(f"{TIER}|minutes|s") == 5000
    assert collector.number("checkout/tier|checkout=B|minutes|q") == 5000**2


@pytest.mark.slow
def test_lost_answers_cost_a_second_sending_and_no_second_count(client: Client, collector: CountingCollector) -> None:
    collector.answers_lost = 2
    state = enrolled(client)
    assert client.flush(10)
    person = client.person(state, id="user-1")
    person.track("bought")
    assert person.flush(5)
    assert len(collector.received) == 4
    assert len(set(collector.received)) == 2
    assert collector.number(f"{TIER}|n") == 1


def test_an_enrollment_that_is_refused_ends_it(client: Client, collector: CountingCollector, clock: Clock) -> None:
    clock.pass_by(days=-7)
    late = client.person(id="user-1")
    late.enroll("checkout", {"tier": 3, "device": "phone"})
    clock.pass_by(days=7)
    late.save()
    assert client.flush(5)
    late.track("minutes", 4)
    late.flush(5)
    assert collector.refusals == ["untimely"]
    assert len(collector.received) == 1
    assert unpack_state(late.save()).units["checkout"].over


def test_a_total_that_is_refused_freezes_its_metric_and_its_ratios_and_nothing_else(
    client: Client, collector: CountingCollector
) -> None:
    state = enrolled(client)
    client.flush(5)
    answers = iter([PostAnswer(400)])
    right = collector.post
    collector.post = lambda body: next(answers, None) or right(body)  # type: ignore[method-assign]
    client._delivery._send = collector.post
    person = client.person(state, id="user-1")
    person.track("minutes", 4)
    person.flush(5)
    person.track("minutes", 4)
    person.track("orders")
    person.track("bought")
    person.flush(5)
    assert unpack_state(person.save()).units["checkout"].frozen == ("minutes",)
    assert [line for line in collector.lines() if "tier" in line] == [
        "checkout/tier:B:3@2026-W46", "checkout/tier:B:3@2026-W46:bought:0>1",
    ]  # fmt: skip
