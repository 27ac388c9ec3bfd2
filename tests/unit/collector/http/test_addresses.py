from __future__ import annotations

import pytest

from kanab.collector.http.addresses import Proxies, is_loopback, network
from kanab.errors import KanabError


def test_only_this_machine_is_this_machine() -> None:
    assert [is_loopback(one) for one in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "192.0.2.7", "x", None)] == [
        True, True, True, False, False, False, False, False,
    ]  # fmt: skip


PROXIES = Proxies([network("10.0.0.0/8"), network("127.0.0.1")])


@pytest.mark.parametrize(
    ("address", "forwarded", "visitor"),
    [
        ("10.0.0.2", ["192.0.2.7"], "192.0.2.7"),
        ("::ffff:10.0.0.2", ["192.0.2.7"], "192.0.2.7"),
        ("10.0.0.2", ["127.0.0.1, 198.51.100.9 , 192.0.2.7, 10.9.9.9,10.0.0.3"], "192.0.2.7"),
        ("10.0.0.2", ["198.51.100.9", "192.0.2.7"], "192.0.2.7"),
        ("10.0.0.2", ["192.0.2.7:5123"], "192.0.2.7"),
        ("10.0.0.2", ["[2001:db8::1]:5123"], "2001:db8::1"),
        ("10.0.0.2", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.2", ["unknown"], "unknown"),
        ("10.0.0.2", [], "10.0.0.2"),
        ("10.0.0.2", [" , ,"], "10.0.0.2"),
        ("10.0.0.2", ["10.0.0.3"], "10.0.0.2"),
        ("192.0.2.8", ["192.0.2.7"], "192.0.2.8"),
        (None, ["192.0.2.7"], None),
    ],
)
def test_the_visitor_is_the_last_one_who_is_no_proxy_of_ours(
    address: str | None, forwarded: list[str], visitor: str | None
) -> None:
    assert PROXIES.visitor(address, forwarded) == visitor
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    assert PROXIES.visitor_of(address, headers) == visitor
    head = b"".join([b"POST / HTTP/1.1", *(b"\r\nX-Forwarded-FOR: " + value for _, value in headers), b"\r\n\r\n"])
    assert PROXIES.visitor_in_head(address, head) == visitor
    assert Proxies().visitor_of(address, headers) == address


@pytest.mark.parametrize("text", ["", "proxy", "10.0.0.1/8", "10.0.0.0/33"])
def test_what_is_no_network_is_refused(text: str) -> None:
    with pytest.raises(KanabError, match="is no address and no network"):
        network(text)
