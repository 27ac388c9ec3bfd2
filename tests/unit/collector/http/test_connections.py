"""Plain posts take a shorter way than ASGI: the same bytes are answered, and what is unusual takes the usual way."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.collector.http.conftest import NOON, Desk

from kanab.collector.http.app import DIRECT, Collector
from kanab.collector.http.connections import PatientProtocol
from kanab.collector.http.rate_limit import Buckets
from kanab.collector.http.server import server_of
from kanab.collector.protocol.post import MOST_BYTES
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


class Connections:
    """Connections to an application, with the shorter way or without it."""

    def __init__(self, app: Collector, *, direct: bool) -> None:
        server = server_of(app)
        server.config.load()
        self.state = {DIRECT: app.direct} if direct else {}
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


def exchange(app: Collector, *requests: bytes, direct: bool = True, address: str = "127.0.0.1") -> tuple[bytes, str]:
    """Each request on a connection of its own; all that was written, and how the last one ended."""

    async def talk() -> tuple[bytes, str]:
        connections, found, ended = Connections(app, direct=direct), b"", ""
        for one in requests:
            protocol, line = connections.open(address)
            protocol.data_received(one)
            found += await answered(line)
            ended = line.ended
            protocol.connection_lost(None)
        return found, ended

    return asyncio.run(talk())


def counted_ways(app: Collector, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which way each post took."""
    ways: list[str] = []
    direct, usual = app.direct, app._post

    def shorter(*given: Any) -> None:
        ways.append("direct")
        direct(*given)

    async def longer(*given: Any) -> None:
        ways.append("usual")
        await usual(*given)

    monkeypatch.setattr(app, "direct", shorter)
    monkeypatch.setattr(app, "_post", longer)
    return ways


def test_a_plain_post_takes_the_shorter_way_and_is_counted(
    app: Collector, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = counted_ways(app, monkeypatch)
    written, ended = exchange(app, request(desk.enroll(), "Content-Type: text/plain"))
    assert written == (
        b"HTTP/1.1 204 No Content\r\nx-content-type-options: nosniff\r\nreferrer-policy: no-referrer\r\n\r\n"
    )
    assert (ways, ended) == (["direct"], "")
    assert desk.service.store.sizes() == {2966: 1}


POSTS: dict[str, Callable[[Desk], bytes]] = {
    "counted": lambda desk: request(desk.enroll()),
    "from a page": lambda desk: request(desk.enroll(), f"Origin: {HOME}"),
    "from another page": lambda desk: request(desk.enroll(), "Origin: https://other.example"),
    "unreadable": lambda _: request(b"what"),
    "unreadable, from a page": lambda _: request(b"what", f"Origin: {HOME}"),
    "nothing": lambda _: request(b""),
    "not in the plan": lambda desk: request(desk.body("checkout/tier:C:3@2026-W46")),
    "an unknown experiment": lambda desk: request(desk.body("retired:B@2026-W46")),
    "too old": lambda desk: request(desk.body("checkout/tier:B:3@2026-W46", now=NOON.replace(day=9))),
    "of another type": lambda desk: request(desk.enroll(), "Content-Type: image/png"),
    "too large": lambda _: request(b"x" * (MOST_BYTES + 1)),
}


@pytest.mark.parametrize("post", POSTS.values(), ids=POSTS.keys())
def test_both_ways_answer_the_same_bytes_and_count_the_same(
    app: Collector, desk: Desk, post: Callable[[Desk], bytes]
) -> None:
    assert exchange(app, post(desk), direct=True) == exchange(app, post(desk), direct=False)
    counts = desk.service.drops.floored(1)
    assert all(count % 2 == 0 for count in counts.values())  # both, or none
    assert sum(desk.service.store.sizes().values()) in (0, 2)


def test_a_flood_from_one_place_ends_its_connection(desk: Desk) -> None:
    for direct in (True, False):
        app = Collector(desk.service, buckets=Buckets(rate=0.0, burst=1))
        written, ended = exchange(
            app, request(desk.enroll()), request(desk.enroll()), direct=direct, address="192.0.2.7"
        )
        assert statuses(written) == [b"204", b"429"]
        assert ended == "closed"


def test_a_store_that_fails_is_503_on_both_ways(app: Collector, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise StoreError("the disk of the store is full", "Free some room.")

    monkeypatch.setattr(desk.service.store, "append", fail)
    first, second = (exchange(app, request(desk.enroll()), direct=direct) for direct in (True, False))
    assert first == second
    assert first[0].startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 2" in first[0]


def test_a_retry_adds_nothing_on_either_way(app: Collector, desk: Desk) -> None:
    same = request(desk.enroll())
    for direct in (True, False, True):
        assert exchange(app, same, direct=direct)[0].startswith(b"HTTP/1.1 204")
    assert desk.service.store.sizes() == {2966: 1}
    assert desk.service.drops.floored(1)["duplicate"] == 2


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
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
    unusual: Callable[[bytes], bytes],
    status: bytes,
) -> None:
    ways = counted_ways(app, monkeypatch)
    written, _ = exchange(app, unusual(desk.enroll()))
    assert b"HTTP/1.1 " + status in written
    assert ways == ["usual"]


def test_under_another_address_there_is_no_shorter_way(app: Collector) -> None:
    async def look() -> None:
        connections = Connections(app, direct=True)
        connections._config.root_path = "/collect"
        protocol, _ = connections.open()
        assert protocol._direct is None
        protocol.connection_lost(None)

    asyncio.run(look())


def test_a_body_in_pieces_is_one_post(app: Collector, desk: Desk) -> None:
    async def talk() -> None:
        protocol, line = Connections(app, direct=True).open()
        for byte in request(desk.enroll()):
            assert line.written == b""
            protocol.data_received(bytes([byte]))
        assert (await answered(line)).startswith(b"HTTP/1.1 204")
        protocol.connection_lost(None)

    asyncio.run(talk())
    assert desk.service.store.sizes() == {2966: 1}


def test_a_body_that_comes_after_its_head_still_takes_the_shorter_way(
    app: Collector, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = counted_ways(app, monkeypatch)
    whole = request(desk.enroll())
    head = whole.index(b"\r\n\r\n") + 4

    async def talk() -> None:
        protocol, line = Connections(app, direct=True).open()
        for piece in (whole[:head], whole[head:-5], whole[-5:]):
            await asyncio.sleep(0.01)
            assert line.written == b""
            protocol.data_received(piece)
        assert (await answered(line)).startswith(b"HTTP/1.1 204")
        protocol.connection_lost(None)

    asyncio.run(talk())
    assert ways == ["direct"]
    assert desk.service.store.sizes() == {2966: 1}


def test_the_rest_of_a_post_with_something_after_it_is_two_requests(app: Collector, desk: Desk) -> None:
    whole = request(desk.enroll())

    async def talk() -> bytes:
        protocol, line = Connections(app, direct=True).open()
        protocol.data_received(whole[:-5])
        protocol.data_received(whole[-5:] + b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
        found = await answered(line, 2)
        protocol.connection_lost(None)
        return found

    assert statuses(asyncio.run(talk())) == [b"204", b"200"]
    assert desk.service.store.sizes() == {2966: 1}


def test_what_comes_before_the_answer_is_answered_after_it(app: Collector, desk: Desk) -> None:
    async def talk() -> bytes:
        protocol, line = Connections(app, direct=True).open()
        protocol.data_received(request(desk.enroll()))
        protocol.data_received(request(b"what"))
        protocol.data_received(request(desk.enroll()))
        found = await answered(line, 3)
        protocol.connection_lost(None)
        return found

    assert statuses(asyncio.run(talk())) == [b"204", b"400", b"204"]


def test_a_server_that_stops_does_not_wait_for_the_rest_of_a_post(app: Collector, desk: Desk) -> None:
    async def talk() -> None:
        protocol, line = Connections(app, direct=True).open()
        protocol.data_received(request(desk.enroll())[:-5])
        protocol.shutdown()
        assert line.ended == "closed"
        protocol.connection_lost(None)

    asyncio.run(talk())
    assert desk.service.store.sizes() == {}


def test_a_slow_disk_costs_nobody_the_connection(app: Collector, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "patience", 0.1)
    real = desk.service.store.append

    def slow(*given: Any) -> Any:
        time.sleep(0.5)
        return real(*given)

    monkeypatch.setattr(desk.service.store, "append", slow)
    written, ended = exchange(app, request(desk.enroll()))
    assert (statuses(written), ended) == ([b"204"], "")


def test_a_connection_on_which_nothing_follows_is_closed(
    app: Collector, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PatientProtocol, "patience", 0.1)

    async def talk() -> None:
        health = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"
        for one, more in ((request(desk.enroll()), b""), (health, b""), (health, b"\r\n"), (request(b"what"), b"\r\n")):
            protocol, line = Connections(app, direct=True).open()
            protocol.timeout_keep_alive = 0.3
            protocol.data_received(one)
            await answered(line)
            await asyncio.sleep(0.05)
            protocol.data_received(more)
            assert line.ended == ""
            await asyncio.sleep(0.4)
            assert line.ended
            protocol.connection_lost(None)

    asyncio.run(talk())


def test_requests_that_come_together_are_answered_in_their_order(app: Collector, desk: Desk) -> None:
    health = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"

    async def talk() -> bytes:
        protocol, line = Connections(app, direct=True).open()
        protocol.data_received(request(desk.enroll()) + health + request(b"what") + request(desk.enroll()))
        found = await answered(line, 4)
        protocol.connection_lost(None)
        return found

    assert statuses(asyncio.run(talk())) == [b"204", b"200", b"400", b"204"]
    assert sum(desk.service.store.sizes().values()) == 2


def test_one_connection_carries_many_posts(app: Collector, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = counted_ways(app, monkeypatch)

    async def talk() -> None:
        protocol, line = Connections(app, direct=True).open()
        for number in range(1, 21):
            protocol.data_received(request(desk.enroll()))
            await answered(line, number)
        assert line.ended == ""
        protocol.connection_lost(None)

    asyncio.run(talk())
    assert ways == ["direct"] * 20


def test_posts_that_come_at_the_same_moment_share_a_commit(app: Collector, desk: Desk) -> None:
    async def talk() -> None:
        connections = Connections(app, direct=True)
        opened = [connections.open() for _ in range(40)]
        for protocol, _ in opened:
            protocol.data_received(request(desk.enroll()))
        for protocol, line in opened:
            assert (await answered(line)).startswith(b"HTTP/1.1 204")
            protocol.connection_lost(None)

    asyncio.run(talk())
    assert sum(desk.service.store.sizes().values()) <= 5  # one, unless the machine was very busy


def test_whoever_leaves_with_the_whole_post_sent_is_counted_and_nothing_is_written(app: Collector, desk: Desk) -> None:
    async def talk() -> None:
        protocol, line = Connections(app, direct=True).open()
        protocol.data_received(request(desk.enroll()))
        protocol.connection_lost(None)
        while not desk.service.store.sizes():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.02)
        assert line.written == b""

    asyncio.run(talk())


def test_whoever_leaves_before_the_end_of_a_post_is_not_counted(app: Collector, desk: Desk) -> None:
    async def talk() -> None:
        protocol, line = Connections(app, direct=True).open()
        protocol.data_received(request(desk.enroll())[:-1])
        protocol.connection_lost(None)
        await asyncio.sleep(0.05)
        assert line.written == b""

    asyncio.run(talk())
    assert desk.service.store.sizes() == {}


def test_a_server_that_stops_finishes_the_post_that_is_under_way(app: Collector, desk: Desk) -> None:
    async def talk() -> None:
        protocol, line = Connections(app, direct=True).open()
        protocol.data_received(request(desk.enroll()))
        protocol.shutdown()
        assert b"connection: close\r\n" in await answered(line)
        assert line.ended == "closed"
        protocol.connection_lost(None)

    asyncio.run(talk())
    assert desk.service.store.sizes() == {2966: 1}


def test_whoever_reads_no_answers_takes_the_usual_way_which_waits(
    app: Collector, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = counted_ways(app, monkeypatch)

    async def talk() -> None:
        protocol, line = Connections(app, direct=True).open()
        protocol.pause_writing()
        protocol.data_received(request(desk.enroll()))
        await asyncio.sleep(0.1)
        assert line.written == b""
        protocol.resume_writing()
        assert (await answered(line)).startswith(b"HTTP/1.1 204")
        protocol.connection_lost(None)

    asyncio.run(talk())
    assert ways == ["usual"]


def test_every_request_has_its_own_time_and_idle_connections_are_left_alone(
    app: Collector, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PatientProtocol, "patience", 0.4)

    async def talk() -> None:
        protocol, line = Connections(app, direct=True).open()
        for number in range(1, 4):
            await asyncio.sleep(0.2)  # together longer than patience
            protocol.data_received(request(desk.enroll()))
            await answered(line, number)
        await asyncio.sleep(0.6)
        assert line.ended == ""
        protocol.data_received(request(desk.enroll())[:-1])
        await asyncio.sleep(0.1)
        assert line.ended == ""
        await asyncio.sleep(0.8)
        assert line.ended == "aborted"
        protocol.connection_lost(None)

    asyncio.run(talk())


def test_a_lifespan_offers_the_shorter_way(app: Collector) -> None:
    state: dict[str, Any] = {}
    events = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return events.pop(0)

    async def send(message: Any) -> None: ...

    asyncio.run(app({"type": "lifespan", "state": state}, receive, send))
    assert state == {DIRECT: app.direct}
