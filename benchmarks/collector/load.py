"""The load of the collector's benchmark: many connections, on each a request as soon as the last one is answered.

    python benchmarks/collector/load.py --port 8000 --dialect kanab --messages 20 --seconds 5

One thread, plain sockets and poll(): as little work as Python allows, because it shares the machine with
what it measures. Prints a line of JSON: requests, seconds, latencies in milliseconds, processor time.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import sys
import time
from array import array
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from os import urandom

PATHS = {"kanab": "/v1/t", "rows": "/events"}
ARMS, TIERS = "AB", (1, 2, 3)
MARK = "%()s"


def moves(messages: int) -> list[tuple[str, float, float] | None]:
    """What one person does in one request: None is the enrollment, else a metric's running total, old and new."""
    minutes = [("minutes", step * 1.25, step * 1.25 + 1.25) for step in range(max(messages - 3, 1))]
    return [None, *minutes, ("bought", 0, 1), ("pages", 0, 12)] if messages > 3 else minutes[:messages]


def kanab_posts(messages: int) -> Iterator[bytes]:
    """Posts as Kanab's clients send them, each with a nonce of its own."""
    week = datetime.now(UTC).strftime("%G-W%V")
    nonce = b"%08x" % (int(time.time()) // 3600) + urandom(4).hex().encode() + b"%016x"
    parts = []
    for arm in ARMS:
        for tier in TIERS:
            place = f"checkout/tier:{arm}:{tier}@{week}"
            totals = [place if one is None else f"{place}:{one[0]}:{one[1]:g}>{one[2]:g}" for one in moves(messages)]
            body = f"kanab/1 {MARK}\n" + "\n".join(totals) + "\n"
            parts.append(request("kanab", "text/plain", body, nonce % 0))
    for number in count():
        yield parts[number % len(parts)] % {b"": nonce % number}


def row_posts(messages: int) -> Iterator[bytes]:
    """The same as events with an identity, which is how rows are collected."""
    visitor = urandom(4).hex().encode() + b"%08x"
    parts = []
    for arm in ARMS:
        for tier in TIERS:
            one = {"user": MARK, "experiment": "checkout", "arm": arm, "tier": tier}
            events = [
                one | ({"metric": "enrolled", "value": 1} if move is None else {"metric": move[0], "value": move[2]})
                for move in moves(messages)
            ]
            body = json.dumps(events[0] if messages == 1 else events, separators=(",", ":"))
            parts.append(request("rows", "application/json", body, visitor % 0))
    for number in count():
        yield parts[number % len(parts)] % {b"": visitor % number}


def request(dialect: str, kind: str, body: str, sample: bytes) -> bytes:
    """A whole request but for what is filled in at every mark."""
    length = len(body.encode() % {b"": sample})
    head = f"POST {PATHS[dialect]} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\nContent-Type: {kind}"
    return f"{head}\r\n\r\n{body}".encode()


def connected(port: int, connections: int) -> dict[int, socket.socket]:
    """Sockets by their number."""
    found = {}
    for _ in range(connections):
        one = socket.create_connection(("127.0.0.1", port))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found[one.fileno()] = one
    return found


def drive(sockets: dict[int, socket.socket], posts: Iterator[bytes], seconds: float) -> tuple[array[float], int]:
    """Send, wait, send again; the latency of every request that was answered 204, and how many were not."""
    poll, now = select.poll(), time.perf_counter
    began: dict[int, float] = {}
    for number, one in sockets.items():
        poll.register(number, select.POLLIN)
        began[number] = now()
        one.send(next(posts))
    waits = array("d")
    refused = 0
    end = now() + seconds
    while ready := poll.poll(10_000):
        for number, _ in ready:
            answer = sockets[number].recv(4096)
            moment = now()
            if answer.startswith(b"HTTP/1.1 204"):
                waits.append(moment - began[number])
            elif answer:
                refused += 1
            else:
                sys.exit("the server closed a connection")
            if moment > end:
                return waits, refused
            began[number] = moment
            sockets[number].send(next(posts))
    sys.exit("the server does not answer")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--dialect", choices=PATHS, required=True)
    parser.add_argument("--messages", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=64)
    options = parser.parse_args()
    posts = (kanab_posts if options.dialect == "kanab" else row_posts)(options.messages)
    sockets = connected(options.port, options.connections)
    warm, _ = drive(sockets, posts, min(1.0, options.seconds / 4))  # the first second is not counted
    for one in sockets.values():
        one.close()
    sockets = connected(options.port, options.connections)
    start, busy = time.perf_counter(), time.process_time()
    waits, refused = drive(sockets, posts, options.seconds)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    ordered = sorted(waits)
    middle, late = (1000 * ordered[int(share * len(ordered))] for share in (0.5, 0.99))
    found = {"requests": len(ordered), "seconds": seconds, "p50": middle, "p99": late, "busy": busy, "refused": refused}
    found["all"] = len(warm) + len(ordered)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
