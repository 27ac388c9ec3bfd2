"""Slack's JSON, plain JSON with a signature, and mail. Errors name no address but its host, and no secret."""

import hashlib
import hmac
import http.client
import json
import re
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlsplit

from kanab import __version__
from kanab.collector.http.addresses import is_loopback
from kanab.errors import DeliveryError, StoreError
from kanab.notify.notices import Notice
from kanab.plan.notify_plan import MailPlan, host_of
from kanab.plan.values import web_address_problem

FORMAT = "kanab-notice/1"
"""What plain JSON calls itself."""

SIGNATURE, NOTICE_ID = "Kanab-Signature", "Kanab-Notice"
"""Headers of plain JSON: the time and the HMAC of the body, and which notice it is."""

SHORTEST_SECRET = 16
"""Characters of a secret that signs."""

MOST_TEXT = 12_000
"""Characters of a text in a message; what is longer is cut, and says so. Slack cuts at 40,000."""

MOST_IN_A_MAIL = 20
"""So many notices are in one mail."""

PATIENCE_SECONDS = 10.0
"""Seconds that a single step of a call (connecting, an answer) may take."""

CALL_SECONDS = 30.0
"""Seconds that a whole call may take: a server that sends a letter at a time is hung up on."""

LONGEST_WAIT = 3_600.0
"""Seconds that a receiver may ask to be left alone."""

_OF_MESSAGE = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)


class Channel(Protocol):
    """Hands notices over."""

    name: str
    where: str
    """The host, which may be logged."""
    most: int
    """How many notices go into one message."""

    def send(self, notices: Sequence[Notice]) -> str:
        """Hand notices over, and return what else an operator should read; raises `DeliveryError`."""


class Slack:
    """An incoming webhook of Slack, Mattermost or another that takes ``{"text": …}``. Its address is a secret.

    Raises `StoreError` for an address that is none, or that would travel in the clear.
    """

    name, most = "slack", 1

    def __init__(self, address: str) -> None:
        self._address = _checked(address, "the address for Slack", "KANAB_NOTIFY_SLACK", secret=True)
        self.where = host_of(self._address)

    def send(self, notices: Sequence[Notice]) -> str:
        """Post each notice."""
        for notice in notices:
            post(self._address, slack_body(notice), {})
        return ""


class Webhook:
    """A webhook that takes plain JSON, signed with a ``secret`` that both sides know.

    Raises `StoreError` for an address that is none, or that is a secret and would travel in the clear, and for a
    secret that is short.
    """

    name, most = "json", 1

    def __init__(self, address: str, secret: str, *, from_plan: bool = False) -> None:
        self._address = _checked(address, "the address of the webhook", "KANAB_NOTIFY_JSON", secret=not from_plan)
        if len(secret) < SHORTEST_SECRET:
            raise StoreError(
                f"the secret that signs messages has fewer than {SHORTEST_SECRET} characters",
                "Make one: openssl rand -hex 32",
            )
        self._secret = secret
        self.where = host_of(self._address)

    def send(self, notices: Sequence[Notice]) -> str:
        """Post each notice, signed anew at each try."""
        for notice in notices:
            body = json_body(notice)
            signed = signature(self._secret, body, int(time.time()))
            post(self._address, body, {NOTICE_ID: notice.id, SIGNATURE: signed})
        return ""


class Mail:
    """Mailboxes that get all notices of a moment as one mail.

    Raises `StoreError` where a password would travel in the clear, or a user has none.
    """

    name, most = "mail", MOST_IN_A_MAIL

    def __init__(self, plan: MailPlan, password: str | None = None) -> None:
        self._plan, self._password = plan, password
        self.where = f"{plan.server}:{plan.port}"
        if plan.user is not None and password is None:
            raise StoreError(
                "the password of the mail server is not said",
                "Set KANAB_NOTIFY_PASSWORD or KANAB_NOTIFY_PASSWORD_FILE, or leave out notify.mail.user.",
            )
        if plan.user is not None and plan.encryption == "none" and not is_loopback(plan.server):
            raise StoreError(
                "the password of the mail server would travel in the clear",
                "Set notify.mail.encryption to 'tls' or 'starttls'.",
            )

    def send(self, notices: Sequence[Notice]) -> str:
        """Send one mail."""
        return send_mail(mail_of(notices, self._plan), self._plan, self._password)


def _checked(address: str, what: str, variable: str, *, secret: bool) -> str:
    if problem := web_address_problem(address):
        raise StoreError(f"{what} {problem}", f"Set {variable}, or the file that {variable}_FILE names, to it.")
    if secret and not address.startswith("https://") and not is_loopback(host_of(address).partition(":")[0]):
        raise StoreError(f"{what} is a secret, and would travel in the clear", "Use https://.")
    return address


def signature(secret: str, body: bytes, moment: int) -> str:
    """Return the header that proves who sent a body, and when: the HMAC-SHA256 of the time, a dot and the body."""
    mac = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={mac}"


_ACTIVE = re.compile(r"@(?=\w)|(?<=\w)[.:](?=[^\W\d])|://|\]\(|(?i:www)\.")  # not the dots of numbers
_JOINER = "\u2060"  # takes no room, and breaks no line


def inert(text: str) -> str:
    """Return a text in which names call nobody and lead nowhere, by a joiner that nobody sees.

    >>> inert("@all at https://evil.example: 0.5").replace(_JOINER, "|")
    '@|all at https:|//evil.|example: 0.5'
    """
    return _ACTIVE.sub(lambda match: match[0][0] + _JOINER + match[0][1:], text)


def slack_body(notice: Notice) -> bytes:
    """Return a notice as Slack's JSON; what would call people or make links in it is escaped."""
    text = notice_text(notice)
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return json.dumps({"text": text}, ensure_ascii=False).encode()


def json_body(notice: Notice) -> bytes:
    """Return a notice as plain JSON, as docs/how-to/notifications.md lists it."""
    data: dict[str, Any] = {
        "format": FORMAT,
        "id": notice.id,
        "kind": notice.kind,
        "title": inert(notice.title),
        "sentences": [inert(sentence) for sentence in notice.sentences],
        "through": notice.through,
        "epsilon": notice.epsilon,
        "experiments": [
            entry.data | {"sentences": [inert(sentence) for sentence in entry.sentences], "link": entry.link}
            for entry in notice.experiments
        ],
        "left_out": notice.left_out,
        "link": notice.link,
    }
    return json.dumps(data, ensure_ascii=False, allow_nan=False).encode()


def notice_text(notice: Notice) -> str:
    """Return a notice as text: a title, its sentences, every experiment with a line for each sentence, the link."""
    lines = [notice.title, *notice.sentences]
    for entry in notice.experiments:
        lines += ["", entry.name, *(f"• {sentence}" for sentence in entry.sentences)]
    if notice.left_out:
        lines += ["", f"And {notice.left_out:,} more experiments."]
    text = inert("\n".join(" ".join(line.split()) for line in lines))
    if len(text) > MOST_TEXT:
        text = f"{text[:MOST_TEXT]} …\nThe rest is cut off."
    return f"{text}\n{notice.link}" if notice.link else text


def mail_of(notices: Sequence[Notice], plan: MailPlan) -> EmailMessage:
    """Return a mail with notices; the same notices have the same Message-ID, so that mailboxes can tell."""
    mail = EmailMessage()
    more = f", and {len(notices) - 1} more" if len(notices) > 1 else ""
    mail["Subject"] = " ".join(f"[kanab] {inert(notices[0].title)}{more}".split())
    mail["From"], mail["To"] = plan.sender, ", ".join(plan.to)
    mail["Date"] = formatdate()
    digest = hashlib.sha256("\n".join(notice.id for notice in notices).encode()).hexdigest()[:32]
    mail["Message-ID"] = f"<{digest}@{plan.sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("\n\n".join(f"{notice_text(notice)}\nNotice {notice.id}" for notice in notices) + "\n")
    return mail


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────


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


_MEANINGS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
    (ssl.SSLError, "cannot be reached: it does not speak TLS at this port", "Check port and TLS."),
    (TimeoutError, "is too slow: no answer within the time", "Check it, and the way to it."),
    ((socket.gaierror, UnicodeError), "cannot be found", "Check its name, and the name server of this machine."),
    (
        ConnectionRefusedError,
        "cannot be reached: nothing listens at its port",
        "Check host and port, and that it runs.",
    ),
    (smtplib.SMTPAuthenticationError, "does not accept user and password", "Check user and KANAB_NOTIFY_PASSWORD."),
    (smtplib.SMTPRecipientsRefused, "refuses every mailbox", "Check to, and that it relays for this sender."),
    (smtplib.SMTPSenderRefused, "refuses the sender", "Check from, and whether it wants user and password."),
    (smtplib.SMTPNotSupportedError, "does not offer what the plan asks for", "Check encryption and user."),
    (smtplib.SMTPServerDisconnected, "hung up or is too slow", "Check port and encryption, and its own log."),
)
"""What a problem of the network or a refusal means; the first kind that fits says it."""


def connection_error(host: str, problem: Exception) -> DeliveryError:
    """Return what a problem means, without the words of a library or a mail server: they may repeat what was sent."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        why = f"its certificate is not trusted ({problem.verify_message})" if problem.verify_message else "certificate"
        return DeliveryError(f"{host} cannot be reached: {why}", "Renew it, or trust its authority (SSL_CERT_FILE).")
    for kinds, what, remedy in _MEANINGS:
        if isinstance(problem, kinds):
            return DeliveryError(f"{host} {what}", remedy)
    if isinstance(problem, smtplib.SMTPException):
        code = problem.smtp_code if isinstance(problem, smtplib.SMTPResponseException) else type(problem).__name__
        return DeliveryError(f"{host} refuses the mail ({code})", "See its own log.")
    return DeliveryError(f"{host} cannot be reached ({type(problem).__name__})", "Check the way to it.")


def post(address: str, body: bytes, headers: Mapping[str, str], *, seconds: float = CALL_SECONDS) -> None:
    """Post JSON to an address. Raises `DeliveryError` unless the answer says that it was taken."""
    status, answer = _asked(address, body, headers, seconds)
    if not 200 <= status < 300:
        raise _refused_post(host_of(address), status, answer)


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


def _refused_post(host: str, status: int, headers: http.client.HTTPMessage) -> DeliveryError:
    if 300 <= status < 400:
        fact = f"{host} answers {status}, a redirect, which is not followed"
        return DeliveryError(fact, "Give the address that takes messages.")
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
    """Hand a mail over; return a sentence if some of its mailboxes, but not all, were refused."""
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
    except (OSError, UnicodeError) as problem:  # and those of smtplib
        raise connection_error(host, problem) from None
    finally:
        if client is not None:
            client.close()
    return f"{host} refused some of the mailboxes; the others got the mail" if refused else ""
