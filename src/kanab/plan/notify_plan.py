"""Whom a collector tells about seals and alarms: the table ``[notify]`` of a plan, without its secrets.

It belongs to the machine: no release and no version of the plan holds it. Secrets (addresses with a token in them,
keys, passwords) come from the environment or from files, see docs/how-to/notifications.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import urlsplit

Event = Literal["seal", "sample-ratio", "may-stop"]
EVENTS: tuple[Event, ...] = get_args(Event)
"""What people can be told about."""

Encryption = Literal["tls", "starttls", "none"]
PORTS: dict[Encryption, int] = {"tls": 465, "starttls": 587, "none": 25}
"""The ports of mail servers, by how the connection is encrypted."""

LONGEST_ADDRESS = 2_000
"""Characters of an address; longer ones are no addresses of people or webhooks."""


@dataclass(frozen=True)
class MailPlan:
    """Who writes to whom, by which mail server."""

    server: str
    port: int
    sender: str
    to: tuple[str, ...]
    encryption: Encryption = "starttls"
    user: str | None = None


@dataclass(frozen=True)
class NotifyPlan:
    """Which events are told, how, and where the dashboard is.

    ``json_to`` is None where its address comes from the environment.
    """

    events: tuple[Event, ...] = EVENTS
    url: str | None = None
    slack: bool = False
    json: bool = False
    json_to: str | None = None
    mail: MailPlan | None = None


def web_address_problem(address: object) -> str:
    """Say what is wrong with a web address; an empty text where nothing is. The address is not repeated.

    >>> web_address_problem("https://hooks.example/T0/B0"), web_address_problem("hooks.example")
    ('', 'must begin with https:// or http://')
    >>> web_address_problem("https://me:secret@hooks.example/")
    'must not hold a name or a password before its host'
    """
    if not isinstance(address, str) or not address.isprintable() or len(address) > LONGEST_ADDRESS:
        return "must be a web address such as 'https://hooks.example/kanab'"
    try:
        parts = urlsplit(address)
        port, host = parts.port, parts.hostname
    except ValueError:
        return "must be a web address with a host and, perhaps, a port from 1 to 65535"
    if parts.scheme not in ("http", "https"):
        return "must begin with https:// or http://"
    if "@" in parts.netloc:
        return "must not hold a name or a password before its host"
    if not host or port == 0 or " " in address or not address.isascii() or parts.fragment:
        return "must be a web address such as 'https://hooks.example/kanab'"
    return ""


def host_of(address: str) -> str:
    """Return the host of a web address, with its port: all of it that may be logged.

    >>> host_of("https://hooks.example:8443/services/T0/B0/secret?token=1")
    'hooks.example:8443'
    """
    return urlsplit(address).netloc.rpartition("@")[2]
