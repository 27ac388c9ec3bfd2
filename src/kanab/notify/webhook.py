"""A post to a webhook: one request, redirects only within its host, an answer that is not read."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urljoin, urlsplit

from kanab import __version__
from kanab.errors import DeliveryError
from kanab.notify.delivery import CALL_SECONDS, PATIENCE_SECONDS, connection_error, ended_after
from kanab.plan.notify import host_of

MOST_REDIRECTS = 3
"""So many redirects within a host are followed."""

LONGEST_WAIT = 3_600.0
"""Seconds that a receiver may ask to be left alone."""

_KEEPING = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)
_OF_MESSAGE = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)


def post(address: str, body: bytes, headers: Mapping[str, str], *, seconds: float = CALL_SECONDS) -> None:
    """Post JSON to an address. Raises `DeliveryError` unless the answer says that it was taken."""
    for _ in range(MOST_REDIRECTS + 1):
        status, answer = _asked(address, body, headers, seconds)
        if 200 <= status < 300:
            return
        if not 300 <= status < 400:
            raise _refused(host_of(address), status, answer)
        address = _redirected(address, status, answer.get("Location", ""))
    raise DeliveryError(f"{host_of(address)} redirects again and again", "Give the address that takes messages.")


def _asked(
    address: str, body: bytes, headers: Mapping[str, str], seconds: float
) -> tuple[int, http.client.HTTPMessage]:
    parts = urlsplit(address)
    connection = _connection(parts.scheme, parts.hostname or "", parts.port)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    sent = {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"kanab/{__version__}"} | dict(headers)
    try:
        with ended_after(seconds, lambda: connection.sock):
            connection.request("POST", target, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.headers
    except (OSError, UnicodeError) as problem:
        raise connection_error(host_of(address), problem) from None
    except (http.client.HTTPException, ValueError) as problem:
        fact = f"{host_of(address)} gave no answer of HTTP ({type(problem).__name__})"
        raise DeliveryError(fact, "Check host and port.") from None
    finally:
        connection.close()


def _connection(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=PATIENCE_SECONDS, context=ssl.create_default_context())
    return http.client.HTTPConnection(host, port, timeout=PATIENCE_SECONDS)


def _redirected(address: str, status: int, place: str) -> str:
    """Return where a redirect leads, if that is the same host and keeps the message."""
    host = host_of(address)
    try:
        new = urljoin(address, place)
        here, there = urlsplit(address), urlsplit(new)
        same = (here.scheme, here.hostname, here.port) == (there.scheme, there.hostname, there.port)
    except ValueError:
        same = False
    if not place or not same:
        raise DeliveryError(
            f"{host} redirects to another host, which is refused: the message and its address are for {host} alone",
            "Give the address that takes messages.",
        )
    if status not in _KEEPING:
        raise DeliveryError(
            f"{host} answers {status}, a redirect that drops the message", "Give the address that takes messages."
        )
    return new


def _refused(host: str, status: int, headers: http.client.HTTPMessage) -> DeliveryError:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return DeliveryError(f"{host} answers {status}: it does not accept this sender", "Check address and secret.")
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return DeliveryError(f"{host} answers {status}: there is no such webhook", "Check the address; make a new one.")
    asked = headers.get("Retry-After", "")
    wait = min(float(asked), LONGEST_WAIT) if asked.isdecimal() and len(asked) < 6 else 0.0
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500:
        return DeliveryError(f"{host} answers {status}: it cannot take messages now", "See its own log.", wait=wait)
    return DeliveryError(
        f"{host} answers {status}: it does not take this message", "See its own log.", of_message=status in _OF_MESSAGE
    )
