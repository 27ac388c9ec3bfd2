"""Hands messages over: a post to a webhook, a mail to a mail server.

Of redirects only those within a host are followed, and an answer is not read. What goes wrong is said in words that
hold no address but its host, and no secret.
"""

from __future__ import annotations

import http.client
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from http import HTTPStatus
from urllib.parse import urljoin, urlsplit

from kanab import __version__
from kanab.errors import DeliveryError
from kanab.plan.notify import MailPlan, host_of

PATIENCE_SECONDS = 10.0
"""Seconds that a single step of a call (connecting, an answer) may take."""

CALL_SECONDS = 30.0
"""Seconds that a whole call may take: a server that sends a letter at a time is hung up on."""

MOST_REDIRECTS = 3
"""So many redirects within a host are followed."""

LONGEST_WAIT = 3_600.0
"""Seconds that a receiver may ask to be left alone."""

_KEEPING = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)
_OF_MESSAGE = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)


@contextmanager
def _ended_after(seconds: float, opened: Callable[[], socket.socket | None]) -> Iterator[None]:
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


def post(address: str, body: bytes, headers: Mapping[str, str], *, seconds: float = CALL_SECONDS) -> None:
    """Post JSON to an address. Raises `DeliveryError` unless the answer says that it was taken."""
    for _ in range(MOST_REDIRECTS + 1):
        status, answer = _asked(address, body, headers, seconds)
        if 200 <= status < 300:
            return
        if not 300 <= status < 400:
            raise _refused_post(host_of(address), status, answer)
        address = _redirected(address, status, answer.get("Location", ""))
    raise DeliveryError(f"{host_of(address)} redirects again and again", "Give the address that takes messages.")


def _asked(
    address: str, body: bytes, headers: Mapping[str, str], seconds: float
) -> tuple[int, http.client.HTTPMessage]:
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port
    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE_SECONDS)
    if parts.scheme == "https":
        trusted = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, port, timeout=PATIENCE_SECONDS, context=trusted)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    sent = {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"kanab/{__version__}"} | dict(headers)
    try:
        with _ended_after(seconds, lambda: connection.sock):
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


def _refused_post(host: str, status: int, headers: http.client.HTTPMessage) -> DeliveryError:
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


def send_mail(mail: EmailMessage, plan: MailPlan, password: str | None, *, seconds: float = CALL_SECONDS) -> str:
    """Hand a mail over; return a sentence if some of its mailboxes, but not all, were refused.

    Raises `DeliveryError` where nobody gets it.
    """
    host = f"{plan.server}:{plan.port}"
    client: smtplib.SMTP | None = None
    try:
        context = ssl.create_default_context()
        if plan.encryption == "tls":
            client = smtplib.SMTP_SSL(plan.server, plan.port, timeout=PATIENCE_SECONDS, context=context)
        else:
            client = smtplib.SMTP(plan.server, plan.port, timeout=PATIENCE_SECONDS)
        opened = client
        with _ended_after(seconds, lambda: opened.sock):
            if plan.encryption == "starttls":
                client.starttls(context=context)
            if plan.user is not None:
                client.login(plan.user, password or "")
            refused = client.send_message(mail, plan.sender, plan.to)
            client.quit()
    except smtplib.SMTPException as problem:
        raise _refused_mail(host, problem) from None
    except (OSError, UnicodeError) as problem:
        raise connection_error(host, problem) from None
    finally:
        if client is not None:
            client.close()
    return f"{host} refused some of the mailboxes; the others got the mail" if refused else ""


def _refused_mail(host: str, problem: smtplib.SMTPException) -> DeliveryError:
    """Return what a mail server's refusal means, without its words: they may repeat what it was sent."""
    if isinstance(problem, smtplib.SMTPAuthenticationError):
        return DeliveryError(f"{host} does not accept user and password", "Check user and KANAB_NOTIFY_PASSWORD.")
    if isinstance(problem, smtplib.SMTPRecipientsRefused):
        return DeliveryError(f"{host} refuses every mailbox", "Check to, and that it relays for this sender.")
    if isinstance(problem, smtplib.SMTPSenderRefused):
        return DeliveryError(f"{host} refuses the sender", "Check from, and whether it wants user and password.")
    if isinstance(problem, smtplib.SMTPNotSupportedError):
        return DeliveryError(f"{host} does not offer what the plan asks for", "Check encryption and user.")
    if isinstance(problem, smtplib.SMTPServerDisconnected):
        return DeliveryError(f"{host} hung up or is too slow", "Check port and encryption, and its own log.")
    code = problem.smtp_code if isinstance(problem, smtplib.SMTPResponseException) else type(problem).__name__
    return DeliveryError(f"{host} refuses the mail ({code})", "See its own log.")
