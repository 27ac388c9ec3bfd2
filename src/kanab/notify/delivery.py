"""What can go wrong when a message is handed over, in words that hold no address but its host, and no secret."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kanab.errors import DeliveryError

PATIENCE_SECONDS = 10.0
"""Seconds that a single step of a call (connecting, an answer) may take."""

CALL_SECONDS = 30.0
"""Seconds that a whole call may take: a server that sends a letter at a time is hung up on."""


@contextmanager
def ended_after(seconds: float, opened: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Shut down the socket of a call that takes too long; the call then fails, and is called slow."""
    over = threading.Event()

    def end() -> None:
        over.set()
        with suppress(OSError):
            if (connection := opened()) is not None:
                connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception:
        if over.is_set():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


def connection_error(host: str, problem: Exception) -> DeliveryError:
    """Return what a problem of the network means, without what the network library says of it.

    >>> print(connection_error("hooks.example", ConnectionRefusedError()))
    hooks.example cannot be reached: nothing listens at its port. Check host and port, and that it runs.
    """
    if isinstance(problem, ssl.SSLCertVerificationError):
        why = f"its certificate is not trusted ({problem.verify_message})" if problem.verify_message else "certificate"
        return DeliveryError(f"{host} cannot be reached: {why}", "Renew it, or trust its authority (SSL_CERT_FILE).")
    if isinstance(problem, ssl.SSLError):
        return DeliveryError(f"{host} cannot be reached: it does not speak TLS at this port", "Check port and TLS.")
    if isinstance(problem, TimeoutError):
        return DeliveryError(f"{host} is too slow: no answer within the time", "Check it, and the way to it.")
    if isinstance(problem, socket.gaierror | UnicodeError):
        return DeliveryError(f"{host} cannot be found", "Check its name, and the name server of this machine.")
    if isinstance(problem, ConnectionRefusedError):
        fact = f"{host} cannot be reached: nothing listens at its port"
        return DeliveryError(fact, "Check host and port, and that it runs.")
    return DeliveryError(f"{host} cannot be reached ({type(problem).__name__})", "Check the way to it.")
