"""Plain posts take a faster path than ASGI, if uvicorn is as expected: the same bytes are answered on every path."""

import asyncio
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.collector.http.conftest import NOON, RunningService
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kanab.collector.http.access import Access
from kanab.collector.http.addresses import Proxies, network
from kanab.collector.http.app import CONNECTIONS, FAST_POST, PROXIES, Buckets, Collector, OpenConnections
from kanab.collector.http.connections import TimeoutProtocol, missing_parts
from kanab.collector.http.server import UnfamiliarError, fast_protocol, server_of
from kanab.collector.protocol.limits import MOST_POST_BYTES
from kanab.errors import StoreError

HOME = "https://shop.example"


class Line(asyncio.Transport):
    """The wire to a client: what was written, and how it ended."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        super().__init__({"peername": (address, 50_000), "sockname": ("127.0.0.1", 80)})
        self.written = b""
        self.ended = ""

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


PATHS = ("fast", "asgi", "plain")
"""Our connections with the fast path, or without it, and uvicorn's own."""


class Connections:
    """Connections to an application, by one of the paths."""

    def __init__(self, app: Collector, path: str = "fast") -> None:
        server = server_of(app, plain=path == "plain")
        server.config.load()
        self.state = (
            {} if path == "asgi" else {FAST_POST: app.fast_post, PROXIES: app._access.proxies}
        )  # uvicorn's own passes over it
        self._config, self._server = server.config, server.server_state

    def open(self, address: str = "127.0.0.1") -> tuple[Any, Line]:
        protocol = self._config.http_protocol_class(
            config=self._config, server_state=self._server, app_state=self.state, _loop=asyncio.get_running_loop()
        )
        line = Line(address)
        protocol.connection_made(line)
        return protocol, line


def request(body: bytes, *headers: str, method: str = "POST", path: str = "/v1/t", length: int | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: here", f"Content-Length: {len(body) if length is None else length}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def statuses(written: bytes) -> list[bytes]:
    return re.findall(rb"HTTP/1\.1 (\d+) ", written)


async def answered(line: Line, times: int = 1) -> bytes:
    for _ in range(500):
        if len([one for one in statuses(line.written) if one != b"100"]) >= times:
            await asyncio.sleep(0)
            return line.written
        await asyncio.sleep(0.01)
    raise AssertionError("no answer")


Step = bytes | int | float | Callable[[Any], None]


def talk(app: Collector, *steps: Step, path: str = "fast", address: str = "127.0.0.1") -> Line:
    """On one connection send bytes, wait for so many answers (int) or seconds (float), or do something with it."""

    async def on_it() -> Line:
        protocol, line = Connections(app, path).open(address)
        for step in steps:
            if isinstance(step, bytes):
                protocol.data_received(step)
            elif isinstance(step, int):
                await answered(line, step)
            elif isinstance(step, float):
                await asyncio.sleep(step)
            else:
                step(protocol)
        ended = line.ended
        protocol.connection_lost(None)  # which closes the line, too
        line.ended = ended
        return line

    return asyncio.run(on_it())


def exchange(app: Collector, *requests: bytes, path: str = "fast", address: str = "127.0.0.1") -> tuple[bytes, str]:
    """Each request on a connection of its own; all that was written, and how the last one ended."""
    lines = [talk(app, data, 1, path=path, address=address) for data in requests]
    return b"".join(line.written for line in lines), lines[-1].ended


def stop(protocol: Any) -> None:
    protocol.shutdown()


def is_open(protocol: Any) -> None:
    assert protocol.transport.ended == ""


def leave(protocol: Any) -> None:
    protocol.connection_lost(None)


def counted_ways(app: Collector, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which way each post took."""
    ways: list[str] = []
    direct, usual = app.fast_post, app._post

    def shorter(*given: Any) -> None:
        ways.append("direct")
        direct(*given)

    async def longer(*given: Any) -> None:
        ways.append("usual")
        await usual(*given)

    monkeypatch.setattr(app, "fast_post", shorter)
    monkeypatch.setattr(app, "_post", longer)
    return ways


def test_a_plain_post_takes_the_fast_path_and_is_counted(
    app: Collector, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = counted_ways(app, monkeypatch)
    written, ended = exchange(app, request(running.enroll(), "Content-Type: text/plain"))
    assert written == (
        b"HTTP/1.1 204 No Content\r\nx-content-type-options: nosniff\r\nreferrer-policy: no-referrer\r\n"
        b"kanab-answer: counted\r\n\r\n"
    )
    assert (ways, ended) == (["direct"], "")
    assert running.service.store.sizes() == {2966: 1}


POSTS: dict[str, Callable[[RunningService], bytes]] = {
    "counted": lambda running: request(running.enroll()),
    "from a page": lambda running: request(running.enroll(), f"Origin: {HOME}"),
    "from another page": lambda running: request(running.enroll(), "Origin: https://other.example"),
    "from another site": lambda running: request(running.enroll(), "Sec-Fetch-Site: cross-site"),
    "unreadable": lambda _: request(b"what"),
    "unreadable, from a page": lambda _: request(b"what", f"Origin: {HOME}"),
    "nothing": lambda _: request(b""),
    "not in the plan": lambda running: request(running.body("checkout/tier:C:3@2026-W46")),
    "an unknown experiment": lambda running: request(running.body("retired:B@2026-W46")),
    "too old": lambda running: request(running.body("checkout/tier:B:3@2026-W46", now=NOON.replace(day=9))),
    "of another type": lambda running: request(running.enroll(), "Content-Type: image/png"),
    "too large": lambda _: request(b"x" * (MOST_POST_BYTES + 1)),
}


@pytest.mark.parametrize("post", POSTS.values(), ids=POSTS.keys())
def test_every_path_answers_the_same_bytes_and_counts_the_same(
    app: Collector, running: RunningService, post: Callable[[RunningService], bytes]
) -> None:
    first, *others = (exchange(app, post(running), path=path) for path in PATHS)
    assert others == [first, first]
    counts = running.service.drops.floored(1)
    assert all(count % 3 == 0 for count in counts.values())  # all, or none
    assert sum(running.service.store.sizes().values()) in (0, 3)


def test_a_flood_from_one_place_ends_its_connection(running: RunningService) -> None:
    for path in PATHS:
        app = Collector(running.service, buckets=Buckets(rate=0.0, burst=1))
        written, ended = exchange(
            app, request(running.enroll()), request(running.enroll()), path=path, address="192.0.2.7"
        )
        assert statuses(written) == [b"204", b"429"]
        assert ended == "closed"


def test_behind_a_proxy_that_is_trusted_visitors_are_limited_one_by_one_on_every_path(running: RunningService) -> None:
    for path in PATHS:
        proxies = Proxies([network("10.0.0.0/8")])
        buckets = Buckets(rate=0.0, burst=1, proxies=proxies)
        app = Collector(running.service, access=Access(proxies=proxies), buckets=buckets)
        visitors = ("192.0.2.7", "192.0.2.8", "203.0.113.1, 192.0.2.7", "10.0.0.3")
        posts = [request(running.enroll(), f"X-Forwarded-For: {visitor}") for visitor in visitors]
        written, _ = exchange(app, *posts, path=path, address="10.0.0.2")
        assert statuses(written) == [b"204", b"204", b"429", b"204"]


def test_a_store_that_fails_is_503_on_every_path(
    app: Collector, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise StoreError("the disk of the store is full", "Free some room.")

    monkeypatch.setattr(running.service.store, "append", fail)
    first, *others = (exchange(app, request(running.enroll()), path=path) for path in PATHS)
    assert others == [first, first]
    assert first[0].startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 2" in first[0]


@pytest.mark.parametrize(
    ("unusual", "status"),
    [
        (lambda body: request(body, "Expect: 100-continue"), b"204"),
        (lambda body: request(body, "Connection: close"), b"204"),
        (lambda body: request(body).replace(b"HTTP/1.1", b"HTTP/1.0"), b"204"),
        (lambda body: request(body, path="/v1/t?x=1"), b"204"),
        (lambda _: request(b"x" * 20_000), b"413"),
        (lambda _: request(b"", method="PUT"), b"405"),
        (
            lambda body: (
                b"POST /v1/t HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
            ),
            b"204",
        ),
    ],
)
def test_what_is_unusual_takes_the_usual_way(
    app: Collector,
    running: RunningService,
    monkeypatch: pytest.MonkeyPatch,
    unusual: Callable[[bytes], bytes],
    status: bytes,
) -> None:
    ways = counted_ways(app, monkeypatch)
    for path in PATHS:
        written, _ = exchange(app, unusual(running.enroll()), path=path)
        assert b"HTTP/1.1 " + status in written
    assert ways == ["usual"] * 3


def test_under_another_address_there_is_no_fast_path(app: Collector) -> None:
    async def look() -> None:
        connections = Connections(app)
        connections._config.root_path = "/collect"
        protocol, _ = connections.open()
        assert protocol._fast_post is None
        protocol.connection_lost(None)

    asyncio.run(look())


@pytest.mark.parametrize("path", PATHS)
def test_a_body_in_pieces_is_one_post(app: Collector, running: RunningService, path: str) -> None:
    line = talk(app, *(bytes([byte]) for byte in request(running.enroll())), 1, path=path)
    assert statuses(line.written) == [b"204"]
    assert running.service.store.sizes() == {2966: 1}


def test_a_body_that_comes_after_its_head_still_takes_the_fast_path(
    app: Collector, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = counted_ways(app, monkeypatch)
    whole = request(running.enroll())
    head = whole.index(b"\r\n\r\n") + 4
    line = talk(app, whole[:head], 0.01, whole[head:-5], 0.01, whole[-5:], 1)
    assert (ways, statuses(line.written)) == (["direct"], [b"204"])
    assert running.service.store.sizes() == {2966: 1}


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.mark.parametrize("path", PATHS)
def test_the_rest_of_a_post_with_something_after_it_is_two_requests(
    app: Collector, running: RunningService, path: str
) -> None:
    whole = request(running.enroll())
    line = talk(app, whole[:-5], whole[-5:] + HEALTH, 2, path=path)
    assert statuses(line.written) == [b"204", b"200"]
    assert running.service.store.sizes() == {2966: 1}


def test_a_server_that_stops_does_not_wait_long_for_the_rest_of_a_post(
    app: Collector, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kanab.collector.http.connections.LAST_SECONDS", 0.05)
    line = talk(app, request(running.enroll())[:-5], stop, is_open, 0.2)
    assert line.ended == "closed"
    assert running.service.store.sizes() == {}


@pytest.mark.slow
def test_a_slow_disk_costs_nobody_the_connection(
    app: Collector, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimeoutProtocol, "request_timeout", 0.1)
    real = running.service.store.append

    def slow(*given: Any) -> Any:
        time.sleep(0.5)
        return real(*given)

    monkeypatch.setattr(running.service.store, "append", slow)
    written, ended = exchange(app, request(running.enroll()))
    assert (statuses(written), ended) == ([b"204"], "")


@pytest.mark.slow
def test_a_connection_on_which_nothing_follows_is_closed(
    app: Collector, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimeoutProtocol, "request_timeout", 0.1)

    def hurry(protocol: Any) -> None:
        protocol.timeout_keep_alive = 0.3

    for first, more in (
        (request(running.enroll()), b""), (HEALTH, b""), (HEALTH, b"\r\n"), (request(b"what"), b"\r\n"),
    ):  # fmt: skip
        line = talk(app, hurry, first, 1, 0.05, more, is_open, 0.4)
        assert line.ended


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("together", [True, False])
def test_requests_that_do_not_wait_for_answers_are_answered_in_their_order(
    app: Collector, running: RunningService, path: str, together: bool
) -> None:
    requests = [request(running.enroll()), HEALTH, request(b"what"), request(running.enroll())]
    line = talk(app, *([b"".join(requests)] if together else requests), 4, path=path)
    assert statuses(line.written) == [b"204", b"200", b"400", b"204"]
    assert sum(running.service.store.sizes().values()) == 2


@pytest.mark.parametrize("path", PATHS)
def test_posts_that_come_at_the_same_moment_share_a_commit(app: Collector, running: RunningService, path: str) -> None:
    async def talk() -> None:
        connections = Connections(app, path)
        opened = [connections.open() for _ in range(40)]
        for protocol, _ in opened:
            protocol.data_received(request(running.enroll()))
        for protocol, line in opened:
            assert (await answered(line)).startswith(b"HTTP/1.1 204")
            protocol.connection_lost(None)

    asyncio.run(talk())
    assert sum(running.service.store.sizes().values()) <= 5  # one, unless the machine was very busy


def test_whoever_leaves_with_the_whole_post_sent_is_counted_and_nothing_is_written(
    app: Collector, running: RunningService
) -> None:
    assert talk(app, request(running.enroll()), leave, 0.3).written == b""
    assert running.service.store.sizes() == {2966: 1}


@pytest.mark.parametrize("path", PATHS)
def test_whoever_leaves_before_the_end_of_a_post_is_not_counted(
    app: Collector, running: RunningService, path: str
) -> None:
    assert talk(app, request(running.enroll())[:-1], leave, 0.05, path=path).written == b""
    assert running.service.store.sizes() == {}


def test_a_server_that_stops_finishes_the_post_that_is_under_way(app: Collector, running: RunningService) -> None:
    line = talk(app, request(running.enroll()), stop, 1)
    assert b"connection: close\r\n" in line.written
    assert line.ended == "closed"
    assert running.service.store.sizes() == {2966: 1}


@pytest.mark.parametrize("usual", [False, True])
def test_a_server_that_stops_answers_a_post_that_was_on_its_way_and_says_that_it_was_the_last(
    app: Collector, running: RunningService, usual: bool
) -> None:
    """A client that keeps its connection does not know that the server stops, and has sent its next post already."""
    last = request(running.enroll(), *(["Connection: Keep-Alive, x"] if usual else []))
    line = talk(app, request(running.enroll()), 1, stop, last, 2)
    first, second = line.written.split(b"HTTP/1.1 204")[1:]
    assert (b"connection: close" in first, b"connection: close\r\n" in second, line.ended) == (False, True, "closed")
    assert running.service.store.sizes() == {2966: 2}


def test_whoever_reads_no_answers_takes_the_usual_way_which_waits(
    app: Collector, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = counted_ways(app, monkeypatch)

    def pause(protocol: Any) -> None:
        protocol.pause_writing()

    def resume(protocol: Any) -> None:
        assert protocol.transport.written == b""
        protocol.resume_writing()

    assert statuses(talk(app, pause, request(running.enroll()), 0.1, resume, 1).written) == [b"204"]
    assert ways == ["usual"]


@pytest.mark.slow
def test_every_request_has_its_own_time_and_idle_connections_are_left_alone(
    app: Collector, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimeoutProtocol, "request_timeout", 0.4)

    steps: list[Step] = []
    for number in range(1, 4):
        steps += [0.2, request(running.enroll()), number]  # together longer than the timeout
    line = talk(app, *steps, 0.6, is_open, request(running.enroll())[:-1], 0.1, is_open, 0.8)
    assert line.ended == "aborted"


def test_an_address_has_so_many_connections_and_others_have_theirs(app: Collector) -> None:
    async def talk() -> None:
        connections = Connections(app)
        connections.state[CONNECTIONS] = open_ones = OpenConnections(most=2, proxies=Proxies([network("10.0.0.0/8")]))
        _, line = connections.open("192.0.2.7")
        second, _ = connections.open("192.0.2.7")
        third, refused = connections.open("192.0.2.7")
        assert (line.ended, refused.ended) == ("", "aborted")
        assert [connections.open("2001:db8::" + end)[1].ended for end in "123"] == ["", "", "aborted"]
        for address in ("192.0.2.8", "2001:db8:0:1::1", *["127.0.0.1"] * 3, *["10.0.0.2"] * 3):
            assert connections.open(address)[1].ended == ""
        third.connection_lost(None)  # which was not counted
        assert connections.open("192.0.2.7")[1].ended == "aborted"
        second.connection_lost(None)
        assert connections.open("192.0.2.7")[1].ended == ""
        assert "192.0.2.7" not in repr(vars(open_ones))

    asyncio.run(talk())


@pytest.mark.parametrize("length", ["Content-Length: 9", "Transfer-Encoding: chunked"])
def test_behind_a_proxy_a_visitor_has_so_many_posts_under_way_and_others_have_theirs(
    app: Collector, length: str
) -> None:
    async def talk() -> None:
        proxies = Proxies([network("10.0.0.0/8")])
        connections = Connections(app)
        connections.state[CONNECTIONS] = open_ones = OpenConnections(most=2, proxies=proxies)
        connections.state[PROXIES] = proxies

        def begin(visitor: str) -> tuple[TimeoutProtocol, Line]:
            protocol, line = connections.open("10.0.0.2")
            protocol.data_received(f"POST /v1/t HTTP/1.1\r\nX-Forwarded-For: {visitor}\r\n{length}\r\n\r\n".encode())
            return protocol, line

        first, lost = begin("192.0.2.7")[0], begin("192.0.2.7")[0]
        assert begin("192.0.2.7")[1].ended == "aborted"
        assert begin("192.0.2.8")[1].ended == ""
        lost.connection_lost(None)
        first.data_received(b"too short" if "Length" in length else b"0\r\n\r\n")  # the whole body
        for _ in range(2):
            assert begin("192.0.2.7")[1].ended == ""
        assert begin("192.0.2.7")[1].ended == "aborted"
        assert sorted(open_ones._open.values()) == [1, 2]

    asyncio.run(talk())


# ── another uvicorn ────────────────────────────────────────────────────────────────────────────


def served_by(app: Collector, *, plain: bool | None = None) -> tuple[type[Any], list[str]]:
    """The class of the connections, and what the operator reads."""
    sentences: list[str] = []
    server = server_of(app, plain=plain, say=lambda sentence, _=None: sentences.append(sentence))
    server.config.load()
    return server.config.http_protocol_class, sentences


def test_the_fast_path_fits_the_uvicorn_that_is_installed(app: Collector) -> None:
    assert missing_parts() == []
    assert served_by(app) == (TimeoutProtocol, [])


def test_a_variable_turns_the_fast_path_off_and_is_answered_by_a_sentence(
    app: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KANAB_PLAIN_HTTP", "1")
    protocol, sentences = served_by(app)
    assert protocol is HttpToolsProtocol
    assert [sentence.partition(",")[0] for sentence in sentences] == [
        "kanab: KANAB_PLAIN_HTTP is set: using uvicorn's own HTTP"
    ]
    assert served_by(app, plain=False) == (TimeoutProtocol, [])


def unfamiliar(**parts: Any) -> type[HttpToolsProtocol]:
    return type("Unfamiliar", (HttpToolsProtocol,), parts)


def without_pipeline(self: Any, **named: Any) -> None:
    HttpToolsProtocol.__init__(self, **named)
    del self.pipeline


@pytest.mark.parametrize(
    ("protocol", "missing"),
    [
        (
            unfamiliar(_unset_keepalive_if_required=None),
            ["_unset_keepalive_if_required", "working connection (TypeError)"],
        ),
        (unfamiliar(on_header=lambda _self, _name, _value, _position: None), ["on_header"]),
        (unfamiliar(__init__=lambda _self, _config, _limits: None), ["working connection (TypeError)"]),
        (unfamiliar(__init__=without_pipeline), ["pipeline"]),
        (unfamiliar(shutdown=lambda self: self.cycle.cancel()), ["working connection (AttributeError)"]),
    ],
)
def test_parts_of_an_unfamiliar_uvicorn_are_missed_by_name(protocol: type[Any], missing: list[str]) -> None:
    assert missing_parts(protocol) == missing


def test_with_an_unfamiliar_uvicorn_posts_are_counted_by_its_own_http(
    app: Collector, running: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(HttpToolsProtocol, "_unset_keepalive_if_required")
    protocol, sentences = served_by(app)
    assert protocol is HttpToolsProtocol
    assert len(sentences) == 1
    assert "(no _unset_keepalive_if_required" in sentences[0]
    monkeypatch.undo()
    monkeypatch.setattr("kanab.collector.http.connections.missing_parts", lambda: ["cycle"])
    ways = counted_ways(app, monkeypatch)
    written, _ = exchange(app, request(running.enroll()))
    assert (statuses(written), ways) == ([b"204"], ["usual"])


def test_without_uvicorns_private_module_its_own_http_serves(app: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kanab.collector.http.connections")
    monkeypatch.delattr(httptools_impl, "HttpToolsProtocol")
    with pytest.raises(UnfamiliarError, match=r"no uvicorn\.protocols\.http\.httptools_impl"):
        fast_protocol()
