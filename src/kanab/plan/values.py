"""Single values of a plan file: each is read as what it must be, or refused with a phrase that says so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from kanab.errors import PlanError
from kanab.plan.check import unfit_name
from kanab.tally.factor import Level, as_level

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class WrongValueError(Exception):
    """What a value must be instead; the reader of the file adds the path."""


def duration(text: Any) -> timedelta:
    """A time span such as 30m, 24h, 7d or 2w.

    >>> duration("7d") == duration("1w")
    True
    """
    match = re.fullmatch(r"([1-9]\d{0,4})([mhdw])", text) if isinstance(text, str) else None
    if match is None:
        raise PlanError("a duration must be a whole number and a unit: m, h, d or w", "For example 24h or 7d.")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def one_of(*choices: Any) -> Callable[[Any], Any]:
    """A reader that takes one of a few values; true is not 1."""

    def read(value: Any) -> Any:
        for choice in choices:
            if type(value) is type(choice) and value == choice:
                return choice
        raise WrongValueError(f"must be {' or '.join(json.dumps(choice) for choice in choices)}")

    return read


def number(value: Any) -> float:
    """A finite number; true is none."""
    if type(value) not in (int, float) or not abs(value) < 1e300:
        raise WrongValueError("must be a finite number")
    return float(value)


def positive_whole(value: Any) -> int:
    """1, 2, 3, …"""
    if type(value) is not int or value < 1:
        raise WrongValueError("must be a whole number, at least 1")
    return value


def proportion(value: Any) -> float:
    """A share of all people, but not all of them."""
    share = number(value)
    if not 0 <= share < 1:
        raise WrongValueError("must be a share of all people: at least 0, and less than 1")
    return share


def text(value: Any) -> str:
    """A text that can be a name."""
    if problem := unfit_name(value):
        raise WrongValueError(problem)
    return str(value)


def names(value: Any) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise WrongValueError("must be a list of names")
    return tuple(value)


def two_names(value: Any) -> tuple[str, str]:
    """The two metrics of a ratio."""
    found = names(value)
    if len(found) != 2:
        raise WrongValueError("must name two metrics: [numerator, denominator]")
    return found[0], found[1]


def bounds(value: Any) -> tuple[float, float]:
    """A pair of numbers."""
    if not isinstance(value, list) or len(value) != 2:
        raise WrongValueError("must be two numbers: [lower, upper]")
    return number(value[0]), number(value[1])


def level(value: Any) -> Level:
    """A text, a number or true/false."""
    return value if isinstance(value, (str, bool)) else as_level(number(value), "the plan")


def levels(value: Any) -> tuple[Level, ...]:
    """A list of levels."""
    if not isinstance(value, list) or not all(isinstance(one, (str, bool, int, float)) for one in value):
        raise WrongValueError("must be a list of levels (texts, numbers, true/false) or a table of levels, bins or top")
    return tuple(level(one) for one in value)


def bins(value: Any) -> Any:
    """A number of bins, or their edges."""
    return tuple(number(edge) for edge in value) if isinstance(value, list) else value


def shares(value: Any) -> tuple[tuple[Level, float], ...]:
    """Shares by arm; a list of [arm, share] for arms that are numbers or true/false."""
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return tuple((level(arm), share) for arm, share in value)
    raise WrongValueError("must be a table of shares by arm, such as { A = 1, B = 1 }")


def tolerance(value: Any, metrics: Iterable[str]) -> dict[str, float]:
    """Numbers by metric, or one number for all metrics."""
    limits = value if isinstance(value, dict) else dict.fromkeys(metrics, value)
    found = {name: number(limit) for name, limit in limits.items()}
    if not all(limit > 0 for limit in found.values()):
        raise WrongValueError("must be positive: one number, or a table of numbers by metric")
    return found


def origins(value: Any) -> tuple[str, ...]:
    """Web origins: scheme and host, perhaps a port."""
    for origin in names(value):
        if not re.fullmatch(r"https?://[^\s/?#@]+", origin):
            raise WrongValueError("must list origins such as 'https://shop.example', without a path")
    return tuple(value)


def span(value: Any) -> str:
    """A duration, kept as it is written."""
    try:
        duration(value)
    except PlanError:
        raise WrongValueError("must be a duration such as '24h' or '7d'") from None
    return str(value)


def days(value: Any) -> str:
    """A duration of whole days: cohorts are labelled by the day they begin."""
    if duration(span(value)) % timedelta(days=1):
        raise WrongValueError("must be whole days, such as '1d' or '7d'")
    return str(value)


def tick(value: Any) -> str:
    """When batches are sealed: every so often, or only at the end."""
    return "end" if value == "end" else span(value)
