"""Serves an application by uvicorn: without logs, with connections that end, in a process that dumps no core.

While there is no database yet, it waits for it, and answers that it lives and is not ready.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from kanab.collector.log import Level, Say, say_nothing
from kanab.collector.protocol.limits import IDLE_SECONDS, RETRY_AFTER_SECONDS
from kanab.collector.readiness import Problem, Readiness, ready_answer
from kanab.errors import MissingExtraError, StoreAwayError, StoreError

if TYPE_CHECKING:
    from kanab.collector.http.app import Receive, Scope, Send

PLAIN_HTTP = "KANAB_PLAIN_HTTP"
"""The environment variable that turns the fast path off."""

_PLAIN = "using uvicorn's own HTTP, which is slower and does not end slow connections (keep a proxy in front)"

BACKLOG = 4096
"""Connections that may wait until they are accepted."""

MOST_FILES = 65_536
"""Files and connections that may be open, if the system allows as many."""

_FIRST_HANDED_OVER = 3
"""The number of the first file that systemd hands over."""


def listening_socket(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Return the socket that systemd, or whoever speaks as it does, handed over; else a new one."""
    count = os.environ.pop("LISTEN_FDS", "0")
    if os.environ.pop("LISTEN_PID", "") != str(os.getpid()) or count == "0":
        return bind(host, port, reuse_port=reuse_port)
    handed_over = socket.socket(fileno=_FIRST_HANDED_OVER)
    if count != "1" or handed_over.family not in (socket.AF_INET, socket.AF_INET6):
        raise StoreError("what was handed over is not one address and port", "Write one ListenStream=PORT in the unit.")
    handed_over.set_inheritable(False)
    return handed_over


def bind(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Return a listening socket, with ``reuse_port`` beside that of another process of the same user that allows it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        if not hasattr(socket, "SO_REUSEPORT"):
            raise StoreError("this system lets no two processes listen at one port", "Leave out --reuse-port.")
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if host == "::":  # whatever the system's default is
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        listening.bind((host, port))
    except OSError as problem:
        listening.close()
        if problem.errno == errno.EADDRINUSE:
            raise StoreError(f"port {port} is in use", "Stop what uses it, or give another one (--port).") from None
        if problem.errno == errno.EACCES:
            raise StoreError(f"port {port} may not be used", "Give one above 1023 (--port).") from None
        raise StoreError(f"this machine has no address {host}", "Give one that it has (--host).") from None
    return listening


def address_of(listening: socket.socket, host: str) -> str:
    """Return the address of a socket that connections can be made to from now on; they wait until it is served."""
    listening.listen(BACKLOG)
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}"


def serve(app: Any, listening: socket.socket, *, stop_within: int = 20, say: Say = say_nothing) -> None:
    """Serve until SIGINT or SIGTERM; then finish what is under way."""
    server = server_of(app, stop_within=stop_within, say=say)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # posts leave no cycles behind: there is nothing to find after every few
    with suppress(KeyboardInterrupt), ended_by_signals():  # uvicorn raises the signal again when it has finished
        server.run(sockets=[listening])


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Have SIGTERM raise ``KeyboardInterrupt``, as SIGINT does, so that everything that is open is closed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def server_of(app: Any, *, stop_within: int = 20, plain: bool | None = None, say: Say = say_nothing) -> Any:
    """Return the server as we run it; ``plain`` chooses uvicorn's own HTTP, None leaves it to ``KANAB_PLAIN_HTTP``."""
    try:
        import uvicorn  # noqa: PLC0415 - only collectors need it
    except ImportError:
        raise MissingExtraError("serving", "server") from None
    set_limits()
    http: Any = "auto"
    if plain is None and os.environ.get(PLAIN_HTTP):
        plain = True
        say(f"kanab: {PLAIN_HTTP} is set: {_PLAIN}.", Level.WARNING)
    if not plain:
        try:
            http = fast_protocol()
        except UnfamiliarError as problem:
            fact = f"the fast HTTP path does not fit uvicorn {uvicorn.__version__} ({problem})"
            say(f"kanab: {fact}: {_PLAIN}.", Level.WARNING)
    config = uvicorn.Config(
        app, http=http, ws="none", lifespan="on", access_log=False, log_level="critical",
        server_header=False, date_header=False, proxy_headers=False, timeout_keep_alive=IDLE_SECONDS, backlog=BACKLOG,
        timeout_graceful_shutdown=stop_within,
    )  # fmt: skip
    return uvicorn.Server(config)


def fast_protocol() -> type[Any]:
    """Return the class of the fast connections; raises ``UnfamiliarError`` where uvicorn lacks what they use."""
    try:
        from kanab.collector.http.connections import TimeoutProtocol, missing_parts  # noqa: PLC0415
    except ImportError as problem:
        raise UnfamiliarError(f"no {problem.name}") from None
    if missing := missing_parts():
        raise UnfamiliarError(f"no {' and no '.join(missing)} as expected")
    return TimeoutProtocol


class UnfamiliarError(Exception):
    """The installed uvicorn lacks something that the fast path uses."""


def set_limits() -> None:
    """Write no memory to a disk in a crash, and allow more files than shells do: silent connections use them up."""
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on Windows

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, MOST_FILES)), hard))


FIRST_WAIT, LONGEST_WAIT = 0.5, 15.0
"""Seconds until the second try, and at most between two later ones."""

SAY_AGAIN = 60.0
"""Seconds after which an operator is told again that the database is still away."""

_T = TypeVar("_T")


def wait_for_store(open_store: Callable[[], _T], listening: socket.socket, *, say: Say) -> _T:
    """Return what a function opens; while it raises `StoreAwayError`, try again for ever and answer on the socket."""
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
