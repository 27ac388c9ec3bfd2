"""Whatever is sent: no 500, no traceback, no echo, no growing memory; and others are still served."""

import asyncio
import resource
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.closing import Keep
from tests.collector.collector_process import HOST, Place, Server
from tests.collector.many_visitors import PLAN_TEXT, Visitors
from tests.soak.malformed import send_malformed

from kanab.collector.protocol.limits import REQUEST_SECONDS


@pytest.fixture
def server(place: Place, closing: Keep) -> Server:
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


def _is_fine(server: Server) -> None:
    """Somebody else is served, at once."""
    begun = time.monotonic()
    visitors = Visitors(21)
    assert server.post(visitors.next_post(visitors.join()).body) == 204
    assert time.monotonic() - begun < 5.0


@pytest.mark.parametrize("variables", [{}, {"KANAB_PLAIN_HTTP": "1"}], ids=["fast", "plain"])
def test_thousands_of_malformed_requests_over_http_leave_no_trace(tmp_path: Path, variables: dict[str, str]) -> None:
    assert " answered (" in send_malformed(tmp_path, 6_000, variables=variables)


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
