"""Who may read numbers: one brake for every way to try a token, and names that nobody else can make point here."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.collector.http.conftest import PLAN, RunningService, ask

from kanab.collector.http import access as access_module
from kanab.collector.http.access import Access, TokenCheck
from kanab.collector.http.addresses import Proxies, is_loopback, network
from kanab.collector.http.app import Collector
from kanab.errors import KanabError


def test_a_place_waits_twice_as_long_after_every_wrong_token_and_no_longer_than_that() -> None:
    now = [0.0]
    tokens = TokenCheck("right", clock=lambda: now[0])
    waits = []
    for _ in range(8):
        assert not tokens.accepts("wrong", "192.0.2.7")
        waits.append(tokens.delay("192.0.2.7"))
        now[0] += waits[-1]
    assert waits == [0.5, 1, 2, 4, 8, 16, 16, 16]
    assert tokens.delay("192.0.2.8") == 0
    assert tokens.accepts("right", "192.0.2.7")
    assert not tokens.accepts("wrong", "192.0.2.7")
    assert tokens.delay("192.0.2.7") == 0.5


def test_the_oldest_place_is_forgotten_before_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_module, "MOST_PLACES", 3)
    tokens = TokenCheck("right", clock=lambda: 0.0)
    for place in ("a", "b", "c", "a", "d"):
        tokens.accepts("wrong", place)
    assert [tokens.delay(place) for place in ("a", "b", "c", "d")] == [1.0, 0.0, 0.5, 0.5]


def metrics(app: Collector, token: str | None = None, address: str = "192.0.2.7", **headers: str) -> tuple[int, str]:
    given = {} if token is None else {"Authorization": f"Bearer {token}"}
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = ask(app, "GET", "/metrics", b"", given | more, client=(address, 1))
    return answer.status, answer.headers.get("retry-after", "")


def test_wrong_tokens_at_the_metrics_slow_their_place_down_and_nobody_else(running: RunningService) -> None:
    app = Collector(running.service, access=Access("right"))
    assert metrics(app) == (401, "")  # no token is no try
    assert metrics(app, "wrong") == (401, "")
    assert metrics(app, "right") == (429, "1")  # nothing is compared while it waits
    assert metrics(app, "right", "192.0.2.8") == (200, "")


def test_behind_a_proxy_that_is_trusted_a_guess_slows_down_its_visitor_only(running: RunningService) -> None:
    proxies = Proxies([network("127.0.0.1")])
    app = Collector(running.service, access=Access("right", proxies=proxies))
    assert metrics(app, "wrong", "127.0.0.1", x_forwarded_for="198.51.100.9, 192.0.2.7") == (401, "")
    assert metrics(app, "right", "127.0.0.1", x_forwarded_for="198.51.100.9, 192.0.2.7") == (429, "1")
    assert metrics(app, "right", "127.0.0.1", x_forwarded_for="203.0.113.5, 192.0.2.7") == (429, "1")
    assert metrics(app, "right", "127.0.0.1", x_forwarded_for="192.0.2.8") == (200, "")


@pytest.mark.parametrize(
    ("address", "host", "fine"),
    [
        ("127.0.0.1", "127.0.0.1:8000", True), ("::1", "[::1]:8000", True), ("127.0.0.1", "LOCALHOST", True),
        ("::ffff:127.0.0.1", "localhost", True), ("127.0.0.1", "stats.local:8000", True),
        ("127.0.0.1", "evil.example", False), ("192.0.2.7", "localhost", False), ("127.0.0.1", "", False),
        ("127.0.0.1", "localhost.evil.example", False), ("127.0.0.1", "[", False),
    ],
)  # fmt: skip
def test_without_a_token_numbers_are_read_here_under_names_that_point_here_only(
    running: RunningService, address: str, host: str, fine: bool
) -> None:
    """A page from elsewhere can let its name point to 127.0.0.1, and read what this machine reads."""
    app = Collector(running.service, access=Access(hosts=["stats.local"]))
    assert metrics(app, None, address, host=host)[0] == (200 if fine else 403)


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "via", "x-real-ip"])
def test_without_a_token_a_proxy_on_this_machine_shows_no_numbers_to_its_visitors(app: Collector, header: str) -> None:
    assert metrics(app, None, "127.0.0.1", **{header: "192.0.2.7"})[0] == 403


def test_with_a_token_any_name_will_do_unless_some_are_given(running: RunningService) -> None:
    assert metrics(Collector(running.service, access=Access("right")), "right", host="stats.example")[0] == 200
    app = Collector(running.service, access=Access("right", hosts=["stats.example"]))
    assert [metrics(app, "right", host=host)[0] for host in ("stats.example:443", "localhost", "evil.example")] == [
        200, 200, 403,
    ]  # fmt: skip


def test_what_pages_need_is_served_under_any_name(running: RunningService) -> None:
    app = Collector(running.service, access=Access(hosts=["stats.local"]))
    for path, status in (("/kanab.js", 200), ("/v1/config.json", 307), ("/readyz", 200), ("/livez", 200)):
        assert ask(app, "GET", path, b"", {"Host": "evil.example"}).status == status
    assert ask(app, "POST", "/v1/t", running.enroll(), {"Host": "evil.example"}).status == 204


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


HOST = {"Host": "collect.shop.example"}


@pytest.mark.parametrize(
    ("headers", "unnamed", "named"),
    [
        ({}, 204, 204),
        ({"Sec-Fetch-Site": "none"}, 204, 204),
        ({"Sec-Fetch-Site": "cross-site"}, 403, 403),
        ({"Origin": "https://shop.example", "Sec-Fetch-Site": "same-site"}, 204, 204),
        ({"Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"}, 403, 204),
        ({"Origin": "https://other.example", "Sec-Fetch-Site": "cross-site"}, 403, 403),
        ({"Origin": "https://other.example"}, 403, 403),
        ({"Origin": "https://collect.shop.example:8443"}, 204, 403),
        ({"Origin": "https://collect.shop.example.other.example"}, 403, 403),
        ({"Origin": "http://localhost:3000", "Sec-Fetch-Site": "cross-site"}, 403, 403),
        ({"Origin": "http://localhost:3000", "Sec-Fetch-Site": "cross-site", "Host": "127.0.0.1:8000"}, 204, 403),
        ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403, 403),
        ({"Origin": "null", "Host": ""}, 403, 403),
        ({"Origin": ""}, 403, 403),
    ],
)
def test_pages_of_other_sites_may_post_only_where_the_plan_names_them(
    open_service: Callable[..., RunningService], headers: dict[str, str], unnamed: int, named: int
) -> None:
    for origins, status in (((), unnamed), (("https://shop.example",), named)):
        running = open_service(replace(PLAN, origins=origins))
        assert ask(Collector(running.service), "POST", "/v1/t", running.enroll(), HOST | headers).status == status


def test_who_names_no_origins_is_told_once_that_pages_are_refused(open_service: Callable[..., RunningService]) -> None:
    running = open_service(replace(PLAN, origins=()))
    for _ in range(3):
        headers = HOST | {"Origin": "https://qzvxkwjy.example"}
        assert ask(Collector(running.service), "POST", "/v1/t", running.enroll(), headers).status == 403
    told = [sentence for sentence in running.said if "origins" in sentence]
    assert len(told) == 1
    assert 'origins = ["https://shop.example"]' in told[0]
    assert "qzvxkwjy" not in told[0]
