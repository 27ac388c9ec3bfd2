"""Readers of the single values of a plan file; each raises `WrongValueError` with what the value must be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

from kanab.errors import PlanError
from kanab.fields import WrongValueError
from kanab.plan.check import unfit_name
from kanab.plan.joint_shares import JointShares
from kanab.plan.notify_plan import web_address_problem
from kanab.tally.factor import Level, as_level

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


MOST_PROSE = 2_000
"""So many characters a text about a plan may have."""

LONGEST_MAILBOX = 254
"""Characters of a mailbox's address (RFC 5321)."""


def duration(text: Any) -> timedelta:
    """Read a time span such as 30m, 24h, 7d or 2w.

    Raises `PlanError` for anything else.

    >>> duration("7d") == duration("1w")
    True
    """
    match = re.fullmatch(r"([1-9]\d{0,4})([mhdw])", text) if isinstance(text, str) else None
    if match is None:
        raise PlanError("a duration must be a whole number and a unit: m, h, d or w", "For example 24h or 7d.")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def one_of(*choices: Any) -> Callable[[Any], Any]:
    """Return a reader that takes one of a few values; true is not 1."""

    def read(value: Any) -> Any:
        for choice in choices:
            if type(value) is type(choice) and value == choice:
                return choice
        raise WrongValueError(f"must be {' or '.join(json.dumps(choice) for choice in choices)}")

    return read


def number(value: Any) -> float:
    """Read a finite number; true is none."""
    if type(value) not in (int, float) or not abs(value) < 1e300:
        raise WrongValueError("must be a finite number")
    return float(value)


def positive_whole(value: Any) -> int:
    """Read a whole number from 1."""
    if type(value) is not int or value < 1:
        raise WrongValueError("must be a whole number, at least 1")
    return value


def proportion(value: Any) -> float:
    """Read a share of all people, but not all of them."""
    share = number(value)
    if not 0 <= share < 1:
        raise WrongValueError("must be a share of all people: at least 0, and less than 1")
    return share


def text(value: Any) -> str:
    """Read a text that can be a name."""
    if problem := unfit_name(value):
        raise WrongValueError(problem)
    return str(value)


def prose(value: Any) -> str:
    """Read a text of a sentence or a few."""
    if not isinstance(value, str) or not value.strip() or len(value) > MOST_PROSE:
        raise WrongValueError(f"must be a text of at most {MOST_PROSE:,} characters")
    return value.strip()


def names(value: Any) -> tuple[str, ...]:
    """Read a list of texts."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise WrongValueError("must be a list of names")
    return tuple(value)


def two_names(value: Any) -> tuple[str, str]:
    """Read the two metrics of a ratio."""
    metrics = names(value)
    if len(metrics) != 2:
        raise WrongValueError("must name two metrics: [numerator, denominator]")
    return metrics[0], metrics[1]


def bounds(value: Any) -> tuple[float, float]:
    """Read a pair of numbers."""
    if not isinstance(value, list) or len(value) != 2:
        raise WrongValueError("must be two numbers: [lower, upper]")
    return number(value[0]), number(value[1])


def level(value: Any) -> Level:
    """Read a text, a number or true/false."""
    return value if isinstance(value, (str, bool)) else as_level(number(value), "the plan")


def levels(value: Any) -> tuple[Level, ...]:
    """Read a list of levels."""
    if not isinstance(value, list) or not all(isinstance(item, (str, bool, int, float)) for item in value):
        raise WrongValueError("must be a list of levels (texts, numbers, true/false) or a table of levels, bins or top")
    return tuple(level(item) for item in value)


def bins(value: Any) -> Any:
    """Read a number of bins, or their edges."""
    return tuple(number(edge) for edge in value) if isinstance(value, list) else value


def probabilities(value: Any) -> dict[str, tuple[float, ...]]:
    """Read the quantiles of metrics, each a share of people or a list of them.

    >>> probabilities({"latency": [0.9, 0.5]})
    {'latency': (0.5, 0.9)}
    """
    if not isinstance(value, dict):
        raise WrongValueError("must be a table of shares of people by metric, such as { latency = [0.5, 0.9, 0.99] }")
    listed = {name: shares if isinstance(shares, list) else [shares] for name, shares in value.items()}
    return {name: tuple(sorted({number(share) for share in shares})) for name, shares in listed.items()}


def shares(value: Any) -> tuple[tuple[Level, float], ...]:
    """Read shares by arm; a list of [arm, share] for arms that are numbers or true/false."""
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return tuple((level(arm), share) for arm, share in value)
    raise WrongValueError("must be a table of shares by arm, such as { A = 1, B = 1 }")


def joint_shares(value: Any) -> dict[str, JointShares]:
    """Read shares of pairs of arms, by the other experiment: by own arm and then by the other's, or a list of rows."""
    if not isinstance(value, dict):
        raise WrongValueError("must be a table by experiment, such as { search = { A = { off = 0.5, on = 0.5 } } }")
    return {name: tuple(_joint_share_rows(name, shares)) for name, shares in value.items()}


def _joint_share_rows(name: str, value: Any) -> Iterator[tuple[Level, Level, float]]:
    if isinstance(value, dict) and all(isinstance(row, dict) for row in value.values()):
        yield from ((first, second, number(share)) for first, row in value.items() for second, share in row.items())
    elif isinstance(value, list) and all(isinstance(row, list) and len(row) == 3 for row in value):
        yield from ((level(first), level(second), number(share)) for first, second, share in value)
    else:
        raise WrongValueError(f"of {name!r} must be tables of shares by arm: {'{ A = { off = 0.5, on = 0.5 } }'}")


def tolerance(value: Any, metrics: Iterable[str]) -> dict[str, float]:
    """Read numbers by metric, or one number for all metrics."""
    sizes = value if isinstance(value, dict) else dict.fromkeys(metrics, value)
    limits = {name: number(size) for name, size in sizes.items()}
    if not all(limit > 0 for limit in limits.values()):
        raise WrongValueError("must be positive: one number, or a table of numbers by metric")
    return limits


def sizes(value: Any) -> dict[str, tuple[float, bool]]:
    """Read positive sizes by metric: a number, or a share of the control's mean such as "2%"."""
    if not isinstance(value, dict):
        raise WrongValueError("must be a table of sizes by metric, such as { latency = '2%', refunds = 0.01 }")
    return {name: size(amount) for name, amount in value.items()}


def size(value: Any) -> tuple[float, bool]:
    """Read a positive number, or a percentage as a text; true says that it was one.

    >>> size("2%"), size(0.01)
    ((0.02, True), (0.01, False))
    """
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,12})?)\s*%\s*", value) if isinstance(value, str) else None
    amount = float(match[1]) / 100 if match else number(value)
    if not amount > 0:
        raise WrongValueError("must be a positive number, or a share of the control's mean such as '2%'")
    return amount, match is not None


SWITCHES: dict[str, Callable[[Any], Any]] = {  # of a decision
    "primary": one_of("any", "all"),
    "guardrails": one_of("not-worse", "non-inferior"),
    "people": positive_whole,
    "worth": lambda value: size(value) and value,
}


def origins(value: Any) -> tuple[str, ...]:
    """Read web origins: scheme and host, perhaps a port."""
    for origin in names(value):
        if not re.fullmatch(r"https?://[^\s/?#@]+", origin):
            raise WrongValueError("must list origins such as 'https://shop.example', without a path")
    return tuple(value)


def web_address(value: Any) -> str:
    """Read a web address without a name or a password in it."""
    if problem := web_address_problem(value):
        raise WrongValueError(problem)
    return str(value)


def some_of(*choices: str) -> Callable[[Any], tuple[Any, ...]]:
    """Return a reader that takes a list of some of a few words, at least one."""

    def read(value: Any) -> tuple[Any, ...]:
        if (
            not isinstance(value, list)
            or not value
            or not all(isinstance(word, str) and word in choices for word in value)
        ):
            raise WrongValueError(f"must list some of {', '.join(json.dumps(choice) for choice in choices)}")
        return tuple(dict.fromkeys(value))

    return read


def mail_address(value: Any) -> str:
    """Read the address of a mailbox, without a name."""
    if (
        not isinstance(value, str)
        or not re.fullmatch(r"[!-?A-~]+@[A-Za-z0-9.\-]+", value)
        or len(value) > LONGEST_MAILBOX
    ):
        raise WrongValueError("must be the address of a mailbox such as 'team@shop.example'")
    return value


def mail_addresses(value: Any) -> tuple[str, ...]:
    """Read one mailbox or a list of them."""
    addresses = tuple(mail_address(item) for item in (value if isinstance(value, list) else [value]))
    if not addresses:
        raise WrongValueError("must name at least one mailbox")
    return addresses


def mail_server(value: Any) -> tuple[str, int | None]:
    """Read a host, perhaps with a port.

    >>> mail_server("mail.example:2525"), mail_server("mail.example")
    (('mail.example', 2525), ('mail.example', None))
    """
    match = (
        re.fullmatch(r"([A-Za-z0-9.\-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?", value) if isinstance(value, str) else None
    )
    if match is None or not 0 < int(match[2] or 25) < 65_536:
        raise WrongValueError("must be a host such as 'mail.example' or 'mail.example:587'")
    return match[1].strip("[]"), int(match[2]) if match[2] else None


def span(value: Any) -> str:
    """Read a duration, and keep it as it is written."""
    try:
        duration(value)
    except PlanError:
        raise WrongValueError("must be a duration such as '24h' or '7d'") from None
    return str(value)


def days(value: Any) -> str:
    """Read a duration of whole days: cohorts are labelled by the day they begin."""
    if duration(span(value)) % timedelta(days=1):
        raise WrongValueError("must be whole days, such as '1d' or '7d'")
    return str(value)


def tick(value: Any) -> str:
    """Read when batches are sealed: every so often, or only at the end."""
    return "end" if value == "end" else span(value)
