from __future__ import annotations

import pytest

from kanab.collector.http.addresses import Proxies, network
from kanab.collector.http.rate_limit import Buckets


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def taken(buckets: Buckets, address: str | None, times: int) -> int:
    return sum(buckets.take(address) for _ in range(times))


def test_a_burst_is_let_through_and_then_the_rate() -> None:
    clock = Clock()
    buckets = Buckets(rate=5, burst=20, clock=clock)
    assert taken(buckets, "192.0.2.7", 100) == 20
    clock.now = 2.0
    assert taken(buckets, "192.0.2.7", 100) == 10
    clock.now = 1000.0
    assert taken(buckets, "192.0.2.7", 100) == 20


def test_places_do_not_share_a_bucket_but_a_network_of_ipv6_does() -> None:
    buckets = Buckets(rate=0, burst=3, clock=Clock())
    assert taken(buckets, "192.0.2.7", 5) == taken(buckets, "192.0.2.8", 5) == 3
    assert taken(buckets, "2001:db8::1", 2) + taken(buckets, "2001:db8::ffff", 2) == 3
    assert taken(buckets, "2001:db8:0:1::1", 5) == 3
    assert taken(buckets, "a pipe", 5) == 3


def test_where_both_kinds_of_addresses_are_heard_visitors_of_ipv4_stay_apart() -> None:
    """A socket of ``--host ::`` shows 192.0.2.7 as ::ffff:192.0.2.7, which all are in one /64."""
    buckets = Buckets(rate=0, burst=3, clock=Clock())
    assert taken(buckets, "::ffff:192.0.2.7", 5) == taken(buckets, "::ffff:192.0.2.8", 5) == 3
    assert taken(buckets, "192.0.2.7", 5) == 0  # the same visitor
    assert taken(buckets, "::ffff:127.0.0.1", 50) == 50


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "localhost", None])
def test_this_machine_is_not_limited(address: str | None) -> None:
    assert taken(Buckets(rate=0, burst=1), address, 50) == 50


def test_no_address_is_kept_and_a_flood_of_addresses_neither_grows_the_table_nor_frees_those_who_flood() -> None:
    buckets = Buckets(rate=0, burst=2, clock=Clock())
    before = len(buckets._tokens), len(buckets._since)
    assert taken(buckets, "192.0.2.7", 3) == 2
    assert sum(buckets.take(f"10.{number >> 8}.{number & 255}.1") for number in range(5_000)) > 4_900
    assert taken(buckets, "192.0.2.7", 3) == 0
    assert (len(buckets._tokens), len(buckets._since)) == before
    assert "192.0.2.7" not in repr(vars(buckets))


def test_whoever_is_trusted_is_not_limited() -> None:
    buckets = Buckets(rate=0, burst=1, proxies=Proxies([network("10.0.0.0/8"), network("2001:db8::7")]))
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7"):
        assert taken(buckets, address, 50) == 50
    for address in ("11.1.2.3", "::ffff:11.1.2.4", "2001:db8::8", "a pipe"):
        assert taken(buckets, address, 50) == 1
