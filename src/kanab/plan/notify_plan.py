"""Whom a collector tells about seals and alarms: the table ``[notify]`` of a plan, without its secrets.

It belongs to the machine: no release and no version of the plan holds it.
"""

from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import urlsplit

from kanab.fields import Kind, checked, key, one_of
from kanab.plan.values import MAIL_SERVER, MAILBOX, MAILBOXES, PROSE, WEB_ADDRESS

Event = Literal["seal", "sample-ratio", "may-stop"]
EVENTS: tuple[Event, ...] = get_args(Event)
"""What people can be told about."""

Encryption = Literal["tls", "starttls", "none"]
PORTS: dict[Encryption, int] = {"tls": 465, "starttls": 587, "none": 25}
"""The ports of mail servers, by how the connection is encrypted."""


_events = checked(
    lambda value: isinstance(value, list) and value and all(word in EVENTS for word in value),
    f"must list some of {', '.join(map(repr, EVENTS))}",
    lambda events: tuple(dict.fromkeys(events)),
)


@dataclass(frozen=True)
class MailPlan:
    """Who writes to whom, by which mail server."""

    server: str = key(MAIL_SERVER, "")
    port: int = 25
    sender: str = key(MAILBOX, "", "from")
    to: tuple[str, ...] = key(MAILBOXES, ())
    encryption: Encryption = key(one_of(Encryption), "starttls")
    user: str | None = key(PROSE)


@dataclass(frozen=True)
class NotifyPlan:
    """Which events are told, how, and where the dashboard is; ``json_to`` may come from the environment instead."""

    events: tuple[Event, ...] = key(Kind(_events), EVENTS)
    url: str | None = key(WEB_ADDRESS)
    slack: bool = False
    json: bool = False
    json_to: str | None = None
    mail: MailPlan | None = None


def host_of(address: str) -> str:
    """Return the host of a web address, with its port: all of it that may be logged."""
    return urlsplit(address).netloc.rpartition("@")[2]
