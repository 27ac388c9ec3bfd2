"""Kinds of value of a plan: each reads what a file says, or says what that must be, and writes it again."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal
from urllib.parse import urlsplit

from kanab import fields
from kanab.description import BINS as ANY_BINS
from kanab.description import SHARES as PARTS
from kanab.description import SIZE
from kanab.errors import PlanError
from kanab.fields import ANYTHING, WHOLE, YES, Kind, WrongValueError, checked, one_of
from kanab.plan.joint_shares import JointShares, nested, plain_number
from kanab.tally.factor import Level, as_level
from kanab.tally.metric import Missing

__all__ = ["WHOLE", "YES"]

LONGEST_NAME = 64
MOST_PROSE = 2_000
"""So many characters a text about a plan may have."""

LONGEST_ADDRESS = 2_000
"""Characters of an address; longer ones are no addresses of people or webhooks."""

LONGEST_MAILBOX = 254
"""Characters of a mailbox's address (RFC 5321)."""

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


# ── texts ──────────────────────────────────────────────────────────────────────────────────────


def unfit_name(name: object) -> str:
    """Say why a name or a text level would break messages and files; an empty text where it would not."""
    if not isinstance(name, str):
        return "must be a text"
    if not name.strip():
        return "must not be empty"
    if len(name) > LONGEST_NAME:
        return f"must not be longer than {LONGEST_NAME} characters"
    return "" if name.isprintable() else "must not hold control characters"


def _without(problem_of: Callable[[Any], str]) -> Kind:
    """Return the kind of a text that has no such problem."""

    def read(value: Any) -> str:
        if problem := problem_of(value):
            raise WrongValueError(problem)
        return str(value)

    return Kind(read)


_names = checked(
    lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "must be a list of names",
    tuple,
)
_two = checked(lambda names: len(names) == 2, "must name two metrics: [numerator, denominator]")
_prose = checked(
    lambda value: isinstance(value, str) and value.strip() and len(value) <= MOST_PROSE,
    f"must be a text of at most {MOST_PROSE:,} characters",
    str.strip,
)
NAME, PROSE = _without(unfit_name), Kind(_prose)
NAMES, RATIO = Kind(_names, write=list), Kind(lambda value: _two(_names(value)), write=list)


# ── words ──────────────────────────────────────────────────────────────────────────────────────

_SENSITIVE: dict[Any, str] = {False: "no", True: "yes", "both": "both"}
_WRITTEN_SENSITIVE = {"no": None, "yes": True, "both": "both"}

BINARY = Kind(lambda value: one_of(Literal["binary"]).read(value) == "binary", write=lambda _: "binary")
MISSING = replace(one_of(Missing), write=lambda rule: rule if rule == "exclude" else None)
SENSITIVE = Kind(
    lambda value: _SENSITIVE[one_of(Literal[False, True, "both"]).read(value)],
    write=lambda sensitive: _WRITTEN_SENSITIVE[sensitive],
)
SQUARES = one_of(Literal["marginals", "class"])
DURABILITY = one_of(Literal["disk", "memory"])
OWN_ROWS = one_of(Literal["internal", "gated"])
SOME = one_of(Literal["any", "all"])
GUARDING = one_of(Literal["not-worse", "non-inferior"])
UNREAD = ANYTHING


# ── numbers and levels ─────────────────────────────────────────────────────────────────────────


def _level(value: Any) -> Level:
    return value if isinstance(value, (str, bool)) else as_level(REAL.read(value), "the plan")


_levels = checked(
    lambda value: isinstance(value, list) and all(isinstance(item, (str, bool, int, float)) for item in value),
    "must be a list of levels (texts, numbers, true/false) or a table of levels, bins or top",
    lambda levels: tuple(map(_level, levels)),
)


def _bins(value: Any) -> Any:
    return tuple(map(REAL.read, value)) if isinstance(value, list) else ANY_BINS.read(value)


_part = checked(lambda share: 0 <= share < 1, "must be a share of all people: at least 0, and less than 1")


def _worth(value: Any) -> Any:
    SIZE.read(value)
    return value


REAL = fields.NUMBER
NUMBER, BOUNDS = replace(REAL, write=plain_number), replace(fields.BOUNDS, write=plain_number)
LEVEL, LEVELS = Kind(_level), Kind(_levels, write=plain_number)
BINS, PROPORTION = Kind(_bins, write=plain_number), Kind(lambda value: _part(REAL.read(value)), write=plain_number)
WORTH = Kind(_worth)


# ── tables by name ─────────────────────────────────────────────────────────────────────────────


def _table(value: Any, of: str, example: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WrongValueError(f"must be a table of {of}, such as {example}")
    return value


def _shares(value: Any) -> tuple[tuple[Level, float], ...]:
    """Read shares by arm; a list of [arm, share] for arms that are numbers or true/false."""
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return tuple((_level(arm), share) for arm, share in value)
    return tuple(_table(value, "shares by arm", "{ A = 1, B = 1 }").items())


def _written_shares(shares: Any) -> Any:
    rows = [[arm, plain_number(share)] for arm, share in shares]
    return dict(rows) if rows and all(isinstance(arm, str) for arm, _ in rows) else rows


def _joint_shares(value: Any) -> dict[str, JointShares]:
    """Read shares of pairs of arms, by the other experiment: by own arm and then by the other's, or a list of rows."""
    tables = _table(value, "shares of pairs of arms by experiment", "{ search = { A = { off = 0.5, on = 0.5 } } }")
    return {name: tuple(_joint_share_rows(name, shares)) for name, shares in tables.items()}


def _joint_share_rows(name: str, value: Any) -> Iterator[tuple[Level, Level, float]]:
    if isinstance(value, dict) and all(isinstance(row, dict) for row in value.values()):
        for first, row in value.items():
            yield from ((first, second, REAL.read(share)) for second, share in row.items())
    elif isinstance(value, list) and all(isinstance(row, list) and len(row) == 3 for row in value):
        yield from ((_level(first), _level(second), REAL.read(share)) for first, second, share in value)
    else:
        raise WrongValueError(f"of {name!r} must be tables of shares by arm: {'{ A = { off = 0.5, on = 0.5 } }'}")


def _tolerance(value: Any) -> Any:
    """Read numbers by metric, or one number for all metrics."""
    sizes = value if isinstance(value, dict) else {"": value}
    limits = {name: REAL.read(size) for name, size in sizes.items()}
    if not all(limit > 0 for limit in limits.values()):
        raise WrongValueError("must be positive: one number, or a table of numbers by metric")
    return limits if isinstance(value, dict) else limits[""]


def _by_name(of: str, example: str, kind: Kind) -> Callable[[Any], dict[str, Any]]:
    """Return what reads a table that has a value of a kind for every name."""
    return lambda value: {name: kind.read(part) for name, part in _table(value, of, example).items()}


def _written_sizes(sizes: Mapping[str, tuple[float, bool]]) -> dict[str, Any]:
    written = sorted(sizes.items())
    return {name: f"{100 * size:.12g}%" if relative else plain_number(size) for name, (size, relative) in written}


SHARES = Kind(_shares, write=_written_shares)
JOINT_SHARES = Kind(_joint_shares, write=lambda pairs: {name: nested(shares) for name, shares in sorted(pairs.items())})
TOLERANCE = Kind(_tolerance, write=lambda sizes: {name: plain_number(size) for name, size in sorted(sizes.items())})
BY_NAME = Kind(_by_name("numbers by name", "{ checkout = 0.5 }", REAL), write=lambda parts: dict(sorted(parts.items())))
SIZES = Kind(_by_name("sizes by metric", "{ latency = '2%', refunds = 0.01 }", SIZE), write=_written_sizes)
PROBABILITIES = Kind(
    _by_name("shares of people by metric", "{ latency = [0.5, 0.9, 0.99] }", PARTS),
    write=lambda shares: {name: list(parts) for name, parts in shares.items()},
)


# ── times ──────────────────────────────────────────────────────────────────────────────────────


def duration(text: Any) -> timedelta:
    """Read a time span such as 30m, 24h, 7d or 2w; raise `PlanError` for anything else."""
    match = re.fullmatch(r"([1-9]\d{0,4})([mhdw])", text) if isinstance(text, str) else None
    if match is None:
        raise PlanError("a duration must be a whole number and a unit: m, h, d or w", "For example 24h or 7d.")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _duration(value: Any) -> str:
    """Read a duration, and keep it as it is written."""
    try:
        duration(value)
    except PlanError:
        raise WrongValueError("must be a duration such as '24h' or '7d'") from None
    return str(value)


def _days(value: Any) -> str:
    """Read a duration of whole days: cohorts are labelled by the day they begin."""
    if duration(_duration(value)) % timedelta(days=1):
        raise WrongValueError("must be whole days, such as '1d' or '7d'")
    return str(value)


DURATION, DAYS = Kind(_duration), Kind(_days)
TICK = Kind(lambda value: "end" if value == "end" else _duration(value))
"""Every so often, or only at the end."""


# ── addresses ──────────────────────────────────────────────────────────────────────────────────


def web_address_problem(address: object) -> str:
    """Say what is wrong with a web address; an empty text where nothing is. The address is not repeated."""
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


_sites = checked(
    lambda names: all(re.fullmatch(r"https?://[^\s/?#@]+", name) for name in names),
    "must list origins such as 'https://shop.example', without a path",
)
_mailbox = checked(
    lambda value: (
        isinstance(value, str) and re.fullmatch(r"[!-?A-~]+@[A-Za-z0-9.\-]+", value) and len(value) <= LONGEST_MAILBOX
    ),
    "must be the address of a mailbox such as 'team@shop.example'",
)
_mailboxes = checked(
    lambda value: value != [],
    "must name at least one mailbox",
    lambda value: tuple(map(_mailbox, value if isinstance(value, list) else [value])),
)


def _mail_server(value: Any) -> tuple[str, int | None]:
    """Read a host, perhaps with a port."""
    pattern = r"([A-Za-z0-9.\-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?"
    match = re.fullmatch(pattern, value) if isinstance(value, str) else None
    if match is None or not 0 < int(match[2] or 25) < 65_536:
        raise WrongValueError("must be a host such as 'mail.example' or 'mail.example:587'")
    return match[1].strip("[]"), int(match[2]) if match[2] else None


WEB_ADDRESS, ORIGINS = _without(web_address_problem), Kind(lambda value: _sites(_names(value)), write=list)
MAILBOX, MAILBOXES, MAIL_SERVER = Kind(_mailbox), Kind(_mailboxes), Kind(_mail_server)
