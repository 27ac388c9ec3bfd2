"""A plan that asks for vouchers: the server's own posts carry them, and without the key nobody is lost for good."""

import logging

import pytest
from tests.closing import Keep
from tests.unit.client.counting_collector import SHOP, Clock, CountingCollector, plan

from kanab.client import Client
from kanab.collector.counting.accept import PostAcceptor
from kanab.errors import KanabError

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
