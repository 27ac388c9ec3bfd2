"""Whatever is sent: no 500, no traceback, no echo, no growing memory; and others are still served."""

from __future__ import annotations

import asyncio
import json
import random
import re
import resource
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.closing import Keep
from tests.collector.collector_process import HOST, Place, Server
from tests.collector.many_visitors import PLAN, PLAN_TEXT, Visitors, collected, this_week

from kanab.collector.clock import GuardedClock
from kanab.collector.http.app import Collector
from kanab.collector.http.service import Service
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.limits import REQUEST_SECONDS
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.stores.sqlite import SqliteStore

MANY = 40_000
SPY = "qzvxkwjy"
"""In everything that is sent, and in nothing that is answered."""

STATUSES = {100, 200, 204, 307, 400, 403, 404, 405, 410, 413, 429, 503}
MOST_GROWTH = 60 * 2**20


PLAIN = {"type": "http", "method": "POST", "path": "/v1/t", "headers": [], "client": None}
NAMES = ["checkout", "checkout/tier", "checkout/device", "banner", "banner/checkout", SPY, "", "/", "%"]
FIRST = ["A", "B", "on", "off", "1", "3", "phone", SPY, "", "%41", "%zz", "é", "\x00", "-0"]
SECOND = ["1", "2", "3.0", "phone", "A", SPY, "nan", "1e3", "٣"]
LABELS = ["2026-W99", "0000-W00", "9999-W52", SPY, "", "2026-11-15", "٢٠٢٦-W46"]
TOTALS = [
    "0>4", "4>0", ">4", "0>", "1e308>1e309", "nan>inf", "0>1e-320", "0/0>3/1", "--1>2", f"{SPY}>1", "0>" + "9" * 400,
    "1_0>2", "0>0x10", "٣>٤",
]  # fmt: skip
KINDS = [b"text/plain", b"text/plain; charset=utf-8", b"application/json", b"TEXT/PLAIN ;x", b"", SPY.encode(), b"\xff"]
TAILS = ["", "/", SPY, "config.json", f"config/{SPY}.json", "config/.json", "t", "T", "../metrics", "t\x00", "é"]
OTHERS = [b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\n", b": \r\n"]


class Fuzz:
    """Requests that are almost right, and some that are not at all."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.label = this_week()

    def body(self) -> bytes:
        rng = self.rng
        kind = rng.random()
        if kind < 0.1:
            return rng.randbytes(rng.choice([0, 1, 7, 100, 3000])) + SPY.encode()
        if kind < 0.3:
            return self._json()
        text = f"kanab/1 {self._nonce()}\n" + "\n".join(self._line() for _ in range(rng.choice([0, 1, 1, 2, 4, 101])))
        return self._bent(text.encode("utf-8", "surrogatepass"))

    def _nonce(self) -> str:
        rng, fine = self.rng, make_nonce()
        return rng.choice(
            [fine, fine, fine, fine[:-1], fine + "0", "f" * 32, "0" * 32, "٣" * 32, SPY, "", fine.upper()]
        )

    def _line(self) -> str:
        choice = self.rng.choice
        levels = [choice(FIRST), *[choice(SECOND)] * choice([0, 1, 1, 2])]
        total = choice(TOTALS)
        metric = choice(
            ["", f":minutes:{total}", f":bought:{total}", f":{SPY}:{total}", f":minutes/bought:{total}", ":>"]
        )
        return f"{choice(NAMES)}:{':'.join(levels)}@{choice([self.label] * 6 + LABELS)}{metric}"

    def _json(self) -> bytes:
        rng = self.rng
        value: Any = {"kanab": 1, "nonce": self._nonce(), "messages": [
            {"linkage": ["checkout", "tier"], "levels": ["A", rng.choice([1, 1.5, None, True, SPY, 10**400, [], {}])],
             "cohort": rng.choice([self.label, SPY, None, 5]), "metric": rng.choice([None, "minutes", SPY]),
             "old": rng.choice([None, 0, 1e300, [0, 0]]), "new": rng.choice([None, 4, "4", [1, 2]])}
        ]}  # fmt: skip
        if rng.random() < 0.3:
            value[rng.choice([SPY, "messages", "nonce", "kanab"])] = rng.choice([SPY, None, 2, [[]], {SPY: SPY}])
        return self._bent(json.dumps(value).encode())

    def _bent(self, data: bytes) -> bytes:
        """Some bytes are changed, lost, doubled or new."""
        rng, bent = self.rng, bytearray(data)
        for _ in range(rng.choice([0, 0, 1, 1, 3])):
            at = rng.randrange(len(bent) + 1)
            how = rng.random()
            if how < 0.3 and at < len(bent):
                bent[at] = rng.randrange(256)
            elif how < 0.5:
                del bent[at : at + rng.choice([1, 5, 50])]
            elif how < 0.7:
                bent[at:at] = rng.choice([SPY.encode(), b"\n", b":", b">", b"@", b"%", b"\xff", b"\x00", b"/", b"\r\n"])
            elif how < 0.75:
                bent *= rng.choice([2, 40])
        return bytes(bent)

    def headers(self) -> list[tuple[bytes, bytes]]:
        rng = self.rng
        found = [(b"content-type", rng.choice(KINDS)), (b"user-agent", SPY.encode()), (b"cookie", SPY.encode())]
        if rng.random() < 0.1:
            found.append((b"content-length", rng.choice([b"0", b"-1", b"1e9", b"99999", SPY.encode(), b"\xb2", b""])))
        if rng.random() < 0.1:
            found.append((b"origin", rng.choice([b"null", b"https://" + SPY.encode(), b"\x00"])))
        return found

    def path(self) -> str:
        return self.rng.choice(["/v1/", "/", "//", "/v1//", ""]) + self.rng.choice(TAILS)

    def scope(self) -> dict[str, Any]:
        rng = self.rng
        plain = rng.random() < 0.9
        return {
            "type": "http", "method": "POST" if plain else rng.choice(["GET", "HEAD", "PUT", "OPTIONS", SPY, ""]),
            "path": "/v1/t" if plain else self.path(), "headers": self.headers(), "query_string": SPY.encode(),
            "client": rng.choice([(HOST, 1), None, ("::1", 0)]), "root_path": "",
        }  # fmt: skip


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Collector]:
    store = SqliteStore(tmp_path / "data" / "store.db")
    service = Service(store, Keyring.create(tmp_path / "data.key"), PLAN, clock=GuardedClock(accepted=True))
    yield Collector(service)
    asyncio.run(service.stop())
    store.close()


async def _asked(app: Collector, scope: dict[str, Any], body: bytes) -> tuple[int, dict[str, Any]]:
    """The status and everything else of an answer."""
    answer: dict[str, Any] = {"body": b""}
    events = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return events.pop(0)

    async def send(message: Any) -> None:
        answer.update(message | {"body": answer["body"] + message.get("body", b"")})

    await app(scope, receive, send)
    return answer["status"], answer


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_tens_of_thousands_of_malformed_requests_are_answered_in_a_few_words(app: Collector) -> None:
    fuzz, statuses, words = Fuzz(1), Counter[int](), set[bytes]()

    async def one() -> None:
        status, answer = await _asked(app, fuzz.scope(), fuzz.body())
        statuses[status] += 1
        assert SPY.encode() not in repr(answer).encode()
        words.add(re.sub(rb"\d+", b"0", answer["body"])[:300])

    async def many(times: int) -> None:
        for _ in range(times // 100):
            async with asyncio.TaskGroup() as group:
                for _ in range(100):
                    group.create_task(one())

    asyncio.run(many(5_000))
    before = _resident()
    asyncio.run(many(MANY - 5_000))
    assert _resident() - before < MOST_GROWTH
    assert sum(statuses.values()) == MANY
    assert set(statuses) <= STATUSES
    assert {204, 400, 404, 405, 410, 413} <= set(statuses)
    assert statuses[400] > MANY // 3
    assert app.service.drops.floored(1)["busy"] == 0  # no mistake of the program was covered up
    assert len(words) < 60  # a closed list of sentences
    assert all(one.count(b"\n") == 1 for one in words if one and not one.startswith((b"# HELP", b"{")))


@pytest.fixture
def server(place: Place, closing: Keep) -> Server:
    return _started(place, closing)


@pytest.fixture
def server_on_each_path(place_on_each_path: Place, closing: Keep) -> Server:
    return _started(place_on_each_path, closing)


def _started(place: Place, closing: Keep) -> Server:
    plan = place.plan('origins = ["https://shop.example"]\n' + PLAN_TEXT)
    server = Server(place, "--plan", plan, "--data", place.data, limits={"NOFILE": 1024})
    return closing(server).start()


async def _raw(server: Server, data: bytes, quiet: float = 0.3) -> bytes:
    """Bytes on a connection of their own, and what comes back until it is closed or quiet."""
    answer, writer = b"", None
    try:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(data)
        while piece := await asyncio.wait_for(reader.read(65536), quiet):
            answer += piece
    except (OSError, TimeoutError):
        pass
    finally:
        if writer is not None:
            writer.transport.abort()
            await asyncio.sleep(0)
    return answer


async def _answers(server: Server, requests: Sequence[bytes]) -> list[bytes]:
    """What comes back from many, some at a time."""
    room = asyncio.Semaphore(40)

    async def one(data: bytes) -> bytes:
        async with room:
            return await _raw(server, data)

    return list(await asyncio.gather(*map(one, requests)))


def _is_fine(server: Server) -> None:
    """Somebody else is served, at once."""
    begun = time.monotonic()
    visitors = Visitors(21)
    assert server.post(visitors.next_post(visitors.join()).body) == 204
    assert time.monotonic() - begun < 5.0


def test_thousands_of_malformed_requests_over_http_leave_no_trace(server_on_each_path: Server) -> None:
    server = server_on_each_path
    fuzz, statuses = Fuzz(2), Counter[bytes]()
    rng = fuzz.rng
    asyncio.run(_answers(server, [_request(fuzz) for _ in range(300)]))  # what is kept for ever is there
    before = server.memory()
    requests = [_request(fuzz) for _ in range(2_500)]
    requests += [rng.randbytes(rng.choice([1, 40, 2000])) + b"\r\n\r\n" for _ in range(500)]
    for answer in asyncio.run(_answers(server, requests)):
        assert SPY.encode() not in answer
        statuses.update(re.findall(rb"HTTP/1\.1 (\d+)", answer))
    assert server.memory() - before < MOST_GROWTH
    assert {int(status) for status in statuses} <= STATUSES
    assert sum(statuses.values()) > 2_500
    assert statuses[b"400"] > 500
    _is_fine(server)
    _, same_people, collecting, *more = server.stderr.splitlines()
    assert " warning kanab: Experiments of this plan are open to the same people." in same_people
    assert collecting.endswith(f" info kanab: Collecting for kanab.toml at http://{HOST}:{server.port}")
    assert len(more) == len(server.place.variables)  # which path it is


def _request(fuzz: Fuzz) -> bytes:
    scope, body, rng = fuzz.scope(), fuzz.body(), fuzz.rng
    head = f"{scope['method']} {scope['path']} HTTP/1.{rng.choice('1110x')}\r\n".encode("utf-8", "replace")
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in scope["headers"])
    if rng.random() < 0.8:
        lines += b"Content-Length: %d\r\n" % max(0, len(body) + rng.choice([0, 0, 0, 0, -1, 5]))
    else:
        lines += rng.choice(OTHERS)
    return fuzz._bent(head + lines + b"\r\n") + body


def test_oversized_bodies_and_heads_are_refused_without_being_kept(server: Server) -> None:
    _is_fine(server)
    before, big = server.memory(), b"x" * (32 * 2**20)
    declared = b"POST /v1/t HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(big)
    assert asyncio.run(_raw(server, declared, 5.0)).startswith(b"HTTP/1.1 413")
    attempts = {
        "a body": declared + big,
        "a chunk": b"POST /v1/t HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(big) + big,
        "a path": b"GET /" + big,
        "a query": b"GET /healthz?" + big,
        "a header": b"GET /healthz HTTP/1.1\r\nCookie: " + big,
        "a header's name": b"GET /healthz HTTP/1.1\r\n" + big,
        "many headers": b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * (2**20),
        "a trailer": b"POST /v1/t HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: " + big,
        "a method": big,
        "a body where none belongs": b"GET /healthz HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(big) + big,
        "many requests whose answers nobody reads": b"GET /v1/config.json HTTP/1.1\r\n\r\n" * 50_000,
    }
    for what, data in attempts.items():
        begun = time.monotonic()
        with socket.create_connection((HOST, server.port), 2) as line, suppress(OSError):
            line.sendall(data)
            with suppress(TimeoutError):
                assert b" 500 " not in line.recv(100)
        assert server.memory() - before < 24 * 2**20, what
        assert time.monotonic() - begun < 10, what
    _is_fine(server)
    assert "Traceback" not in server.stderr


def test_slow_and_silent_clients_are_let_go_and_others_are_served_meanwhile(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    lines: list[socket.socket] = []

    def connected(number: int, data: bytes = b"") -> list[socket.socket]:
        made = [socket.create_connection((HOST, server.port), 20) for _ in range(number)]
        lines.extend(made)
        for line in made:
            line.sendall(data)
        return made

    try:
        connected(1_000)
        used = connected(50, b"GET /healthz HTTP/1.1\r\n\r\n")  # asked once, and then silent
        heads = connected(100, b"POST /v1/t HTTP/1.1\r\nX: ")
        bodies = connected(100, b"POST /v1/t HTTP/1.1\r\nContent-Length: 500\r\n\r\nkanab/1 ")
        begun = time.monotonic()
        while time.monotonic() - begun < REQUEST_SECONDS - 1:
            for line in (*heads, *bodies):
                with suppress(OSError):
                    line.send(b"0")  # a byte now and then
            _is_fine(server)
            time.sleep(0.5)
        left = [line for line in lines if line not in used]
        while left and time.monotonic() - begun < 3 * REQUEST_SECONDS:
            time.sleep(0.2)
            left = [line for line in left if not _is_closed(line)]
        assert left == []
        _is_fine(server)
    finally:
        for line in lines:
            line.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "Traceback" not in server.stderr


def _is_closed(line: socket.socket) -> bool:
    line.setblocking(False)
    try:
        while piece := line.recv(65536):
            assert not piece.startswith(b"HTTP/1.1 5")
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def test_a_flood_is_answered_with_503_beyond_the_queue_and_nothing_is_lost(
    app: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitors, statuses = Visitors(22), Counter[int]()
    people = [visitors.join() for _ in range(300)]
    app.service._writer.limit = 50
    append = app.service.store.append

    def slowly(*given: Any) -> Any:
        time.sleep(0.03)
        return append(*given)

    monkeypatch.setattr(app.service.store, "append", slowly)

    async def one(person: Any) -> int:
        status, _ = await _asked(app, PLAIN, visitors.next_post(person).body)
        statuses[status] += 1
        if status == 204:
            visitors.acknowledge(person)
        return status

    async def flood() -> None:
        waiting = people
        while waiting:
            answers = await asyncio.gather(*map(one, waiting))
            waiting = [person for person, status in zip(waiting, answers, strict=True) if status != 204]

    asyncio.run(flood())
    assert set(statuses) == {204, 503}
    assert statuses[204] == 300
    assert collected(app.service.store, app.service._cipher) == visitors.tallies()
