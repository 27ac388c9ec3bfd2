"""Flags that several commands share, and the plan that they build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from kanab.errors import PlanError
from kanab.plan.file import read_plan
from kanab.plan.model import DEFAULT_K, Plan, make_plan
from kanab.tally.factor import Level

Command = TypeVar("Command", bound=Callable[..., Any])


def names(text: str | None) -> list[str]:
    """``spend,bought`` as a list."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def pairs(text: tuple[str, ...], flag: str) -> dict[str, str]:
    """``a=1,b=2``, given once or several times, as a mapping."""
    found: dict[str, str] = {}
    for part in (part for one in text for part in one.split(",") if part.strip()):
        key, equals, value = part.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise PlanError(f"{flag} cannot be read", f"Write {flag} NAME=VALUE, several separated by commas.")
        found[key.strip()] = value.strip()
    return found


def number(text: str, flag: str) -> float:
    """A number in a flag."""
    try:
        return float(text)
    except ValueError:
        raise PlanError(f"{flag} needs numbers", f"For example {flag} spend=0.01.") from None


def bounds_of(texts: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """``spend=0:500`` as a mapping."""
    return {name: _bounds(text) for name, text in pairs(texts, "--bounds").items()}


def _bounds(text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    if not colon:
        raise PlanError("--bounds cannot be read", "Write --bounds spend=0:500.")
    return number(low, "--bounds"), number(high, "--bounds")


def _bins(text: str) -> int | tuple[float, ...]:
    if ":" in text:
        return tuple(number(edge, "--bin") for edge in text.split(":"))
    size = number(text, "--bin")
    if size != int(size):
        raise PlanError("--bin cannot be read", "Write --bin age=5, or edges: --bin age=20:40:60.")
    return int(size)


def level(text: str | None) -> Level:
    """An arm on the command line: a number if it looks like one, true/false, else a text."""
    if text is None:
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


_SOURCE = (
    click.option("--plan", "plan_file", type=click.Path(), help="A plan file (kanab.toml) instead of the flags below."),
    click.option("--arm", help="The column that holds the arm."),
    click.option("--metric", help="Columns to compare, separated by commas."),
    click.option("--ratio", help="Ratios of two metrics, such as revenue/orders, separated by commas."),
    click.option("--bounds", multiple=True, metavar="NAME=LOW:HIGH", help="Clamp a metric: --bounds spend=0:500."),
    click.option("--resolution", multiple=True, metavar="NAME=STEP", help="Grid of a metric: --resolution spend=0.01."),
    click.option("--missing", multiple=True, metavar="NAME=RULE", help="zero (default) or exclude."),
    click.option("--bin", "bins", multiple=True, metavar="NAME=N", help="Quantile bins of a covariate, or edges a:b."),
    click.option("--top", multiple=True, metavar="NAME=N", help='Keep the N commonest levels, the rest is "other".'),
    click.option("--shares", multiple=True, metavar="ARM=SHARE", help="Planned split: --shares A=9,B=1; else equal."),
    click.option("--control", help="The arm to compare with."),
    click.option("--k", type=int, help="Least people in a class; default 10, or the plan's."),
    click.option("--override", default="", metavar="REASON", help="Why k may be below 5; recorded."),
    click.option("--table", help="Table of a database."),
    click.option("--sql", help="A query instead of a table."),
    click.option("--where", help="Count only rows where this SQL holds; recorded."),
    click.option("--unit", help="Column that names a person, where people have several rows."),
    click.option("--aggregate", multiple=True, metavar="NAME=HOW", help="sum (default), max or mean of a person."),
    click.option("--exposures", help="Table of who saw which arm when (the source itself, if it is a file)."),
    click.option("--events", help="Table or file of what happened when; metrics are taken from it."),
    click.option("--window", help="Time after a person's first exposure that counts, such as 14d."),
    click.option("--time", default="time", help="Column of an event's moment."),
    click.option("--exposure-time", default="time", help="Column of an exposure's moment."),
    click.option("--show-sql", is_flag=True, help="Print the statement that would run, and stop."),
)  # fmt: skip


def source_options(command: Command) -> Command:
    """Everything that says what to count."""
    for option in reversed(_SOURCE):
        command = option(command)
    return command


def plan_of(given: Mapping[str, Any]) -> Plan:
    """The plan of a file, or of the flags."""
    if given["plan_file"]:
        clash = [flag for flag in ("arm", "metric", "ratio", "bounds", "shares") if given[flag]]
        if clash:
            raise PlanError(f"--plan and --{clash[0]} contradict each other", "Change the plan file instead.")
        return read_plan(given["plan_file"])
    if not given["arm"] or not (given["metric"] or given["ratio"]):
        raise PlanError("what to count is not said", "Give --arm and --metric, or --plan.")
    return make_plan(
        given["arm"],
        names(given["metric"]),
        adjust=names(given.get("adjust")),
        segments=names(given.get("segment")),
        bounds=bounds_of(given["bounds"]),
        resolution={
            name: number(text, "--resolution") for name, text in pairs(given["resolution"], "--resolution").items()
        },
        missing=pairs(given["missing"], "--missing"),  # type: ignore[arg-type]  # checked by Metric
        bins={name: _bins(text) for name, text in pairs(given["bins"], "--bin").items()},
        top={name: int(number(text, "--top")) for name, text in pairs(given["top"], "--top").items()},
        shares={level(name): number(text, "--shares") for name, text in pairs(given["shares"], "--shares").items()}
        or None,
        control=level(given["control"]),
        ratios=names(given["ratio"]),
        k=DEFAULT_K if given["k"] is None else given["k"],
    )
