"""Before there is a store: a service waits for its database, says so, and answers that it lives and is not ready."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from kanab.collector.http.app import Receive, Scope, Send
from kanab.collector.http.server import server_of
from kanab.collector.log import Level, Say
from kanab.collector.protocol.limits import RETRY_AFTER_SECONDS
from kanab.collector.readiness import Problem, Readiness, ready_answer
from kanab.errors import StoreAwayError

FIRST_WAIT, LONGEST_WAIT = 0.5, 15.0
"""Seconds until the second try, and at most between two later ones."""

SAY_AGAIN = 60.0
"""Seconds after which an operator is told again that the database is still away."""

_T = TypeVar("_T")


def wait_for_store(open_store: Callable[[], _T], listening: socket.socket, *, say: Say) -> _T:
    """Return what a function opens; while it raises `StoreAwayError`, try again for ever and answer on the socket.

    Any other error is raised at once: a wrong password does not become right by waiting.
    """
    try:
        return open_store()
    except StoreAwayError as problem:
        say(f"kanab: {problem} It is waited for.", Level.WARNING)
    wait, told = FIRST_WAIT, time.monotonic()
    with _answering(listening):
        while True:
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)
            try:
                opened = open_store()
            except StoreAwayError as problem:
                if time.monotonic() - told > SAY_AGAIN:
                    told = time.monotonic()
                    say(f"kanab: {problem} It is still waited for.", Level.WARNING)
            else:
                say("kanab: the database is there.")
                return opened


@contextmanager
def _answering(listening: socket.socket) -> Iterator[None]:
    """Answer requests in a thread; who connects later is left to the server that comes after it."""
    server = server_of(_not_ready, stop_within=1, plain=True)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening.dup()]}, name="kanab-waiting")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


async def _not_ready(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 200 to whoever asks whether the process lives, and 503 to everything else: send again."""
    if scope["type"] == "lifespan":
        for end in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{end}.complete"})
        return
    readiness = Readiness()
    readiness.set(Problem.STORE, wrong=True)
    status, text = (200, "ok\n") if scope["path"] == "/livez" else ready_answer(readiness)
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
    headers += [(b"cache-control", b"no-cache"), (b"connection", b"close")]
    if status != 200:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
