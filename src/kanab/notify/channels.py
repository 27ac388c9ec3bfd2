"""The ways to tell people: Slack's JSON, plain JSON with a signature, and mail; of each address its host is shown."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Protocol

from kanab.collector.http.addresses import is_loopback
from kanab.errors import StoreError
from kanab.notify.delivery import post, send_mail
from kanab.notify.notices import Notice
from kanab.plan.notify import MailPlan, host_of, web_address_problem

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
    """Return the header that proves who sent a body, and when: the HMAC-SHA256 of the time, a dot and the body.

    >>> signature("key", b"{}", 1_700_000_000)[:20]
    't=1700000000,v1=9d71'
    """
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
            told.data | {"sentences": [inert(sentence) for sentence in told.sentences], "link": told.link}
            for told in notice.experiments
        ],
        "left_out": notice.left_out,
        "link": notice.link,
    }
    return json.dumps(data, ensure_ascii=False, allow_nan=False).encode()


def notice_text(notice: Notice) -> str:
    """Return a notice as text: a title, its sentences, every experiment with a line for each sentence, the link."""
    lines = [notice.title, *notice.sentences]
    for told in notice.experiments:
        lines += ["", told.name, *(f"• {sentence}" for sentence in told.sentences)]
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
