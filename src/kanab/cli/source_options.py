"""Flags about a source: what is counted, how rows become people, and the plan that they make."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanab.choices import DEFAULT_K, LEAST_K_WITHOUT_OVERRIDE
from kanab.cli.help_pages import flags_together
from kanab.cli.output import progress
from kanab.errors import PlanError, listed

if TYPE_CHECKING:
    from kanab.counted import Counted
    from kanab.counting.dispatch import SourceOptions
    from kanab.plan.model import Plan
    from kanab.plan.periods import Span
    from kanab.tally.factor import Level

# ── reading flags ──────────────────────────────────────────────────────────────────────────────


class NameList(click.Option):
    """An option for names that are separated by commas, or given by several flags."""

    def __init__(self, *args: Any, **details: Any) -> None:
        super().__init__(*args, **(details | {"multiple": True}))

    def type_cast_value(self, ctx: click.Context, value: Any) -> str | None:
        """Return all names as one text with commas, None where there are none."""
        return ",".join(super().type_cast_value(ctx, value)) or None


names_option = partial(click.option, cls=NameList)


def names(text: str | None) -> list[str]:
    """Read ``spend,bought`` as a list."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


_EXAMPLES = {
    "--aggregate": "visits=max",
    "--bin": "age=5",
    "--clip": "spend=99%",
    "--bounds": "spend=0:500",
    "--least-events": "bought=10",
    "--missing": "rating=exclude",
    "--per-day": "checkout=500",
    "--quantile": "latency=0.5,0.9,0.99",
    "--pool": "any=B+C",
    "--rate": "bought=0.1",
    "--shares": "A=50%,B=50%",
    "--top": "country=20",
}
"""What to write after a flag; after the others a number for a metric."""


def _example(flag: str) -> str:
    return f"{flag} {_EXAMPLES.get(flag, 'spend=0.01')}"


def pairs(texts: tuple[str, ...], flag: str) -> dict[str, str]:
    """Read ``a=1,b=2``, given once or several times, as a mapping."""
    values: dict[str, str] = {}
    for part in (part for text in texts for part in text.split(",") if part.strip()):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not key or not value:
            raise PlanError(f"{flag} cannot be read", f"Write {_example(flag)}.")
        if key in values:
            raise PlanError(f"{flag} names {key} twice", "Name each once.")
        values[key] = value
    return values


def share(text: str) -> float:
    """Read a number, or a percentage as a part of 1; raise `ValueError` for anything else.

    >>> share("0.05"), share("5%"), share("-12.5 %")
    (0.05, 0.05, -0.125)
    """
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


class ShareType(click.ParamType):  # type: ignore[type-arg]  # older versions are not generic
    """The type of an option that is a share: 0.8 or 80%."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share as a number."""
        try:
            return share(str(value))
        except ValueError:
            self.fail("it needs a number or a percentage, such as 0.8 or 80%.", param, ctx)


SHARE = ShareType()


def number(text: str, flag: str, read: Callable[[str], float] = float) -> float:
    """Read a number in a flag; with ``read=share`` also a percentage."""
    try:
        return read(text)
    except ValueError:
        raise PlanError(f"{flag} needs numbers", f"For example {_example(flag)}.") from None


def numbers(texts: tuple[str, ...], flag: str, read: Callable[[str], float] = float) -> dict[str, float]:
    """Read ``spend=0.01`` as a mapping to numbers."""
    return {name: number(text, flag, read) for name, text in pairs(texts, flag).items()}


def shares_of(texts: tuple[str, ...]) -> dict[Level, float]:
    """Read planned shares: ratios such as ``A=9,B=1``, parts of 1, or percentages that add up to 100.

    >>> shares_of(("A=90%,B=10%",))
    {'A': 90.0, 'B': 10.0}
    """
    written = pairs(texts, "--shares")
    if len(written) == 1:
        raise PlanError("--shares names a single arm", f"Name every arm with its share: {_example('--shares')}.")
    shares = {level(arm): number(text.removesuffix("%"), "--shares") for arm, text in written.items()}
    percent = {text.endswith("%") for text in written.values()}
    if len(percent) > 1:
        raise PlanError("--shares mixes percentages and numbers", f"Write all of them alike: {_example('--shares')}.")
    whole = math.fsum(shares.values())
    if True in percent and not _adds_up(shares.values(), 100):
        raise PlanError(f"the percentages of --shares add up to {whole:g} %, not to 100 %", "Is an arm missing?")
    if shares and all(0 < share < 1 for share in shares.values()) and not _adds_up(shares.values(), 1):
        remedy = "Is an arm missing? Or write ratios: A=9,B=1."
        raise PlanError(f"the parts of --shares add up to {whole:g}, not to 1", remedy)
    return shares


def _adds_up(shares: Iterable[float], whole: int) -> bool:
    """Return whether shares add up to a whole, but for the rounding of their last digits.

    >>> _adds_up([0.33, 0.33, 0.33], 1), _adds_up([0.5, 0.4], 1)
    (True, False)
    """
    written = [Decimal(repr(float(share))) for share in shares]
    digits = [min(0, int(share.normalize().as_tuple().exponent)) for share in written]
    room = sum((Decimal((0, (5,), digit - 1)) for digit in digits), Decimal(0))
    return abs(sum(written, Decimal(0)) - whole) < min(room, Decimal(whole) / 20)


def bounds_of(texts: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Read ``spend=0:500`` as a mapping."""
    bounds = {}
    for name, text in pairs(texts, "--bounds").items():
        low, colon, high = text.partition(":")
        if not colon:
            raise PlanError("--bounds cannot be read", f"Write {_example('--bounds')}.")
        bounds[name] = number(low, "--bounds"), number(high, "--bounds")
    return bounds


def _bins(text: str) -> int | tuple[float, ...]:
    if ":" in text:
        return tuple(number(edge, "--bin") for edge in text.split(":"))
    size = number(text, "--bin")
    if size != int(size):
        raise PlanError("--bin cannot be read", "Write --bin age=5, or edges: --bin age=20:40:60.")
    return int(size)


def quantiles_of(texts: tuple[str, ...]) -> dict[str, list[float]]:
    """Read ``latency=0.5,0.9`` as shares of people by metric; a name may come again.

    >>> quantiles_of(("latency=0.5,0.9", "spend=0.5"))
    {'latency': [0.5, 0.9], 'spend': [0.5]}
    """
    shares: dict[str, list[float]] = {}
    name = ""
    for part in (part for text in texts for part in text.split(",") if part.strip()):
        key, equals, value = (word.strip() for word in part.rpartition("="))
        name = key if equals else name
        if not name or not value:
            raise PlanError("--quantile cannot be read", f"Write {_example('--quantile')}.")
        shares.setdefault(name, []).append(number(value, "--quantile", share))
    return shares


def _whole(number: float) -> Any:
    """Return a whole number as such; what is wrong with another one is said by the checks of a plan."""
    return int(number) if number.is_integer() else number


def level(text: str | None) -> Level:
    """Read an arm on the command line: a number if it looks like one, true/false, else a text."""
    if text is None:
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


def moment(day: str) -> datetime:
    """Return the beginning of a day, in UTC.

    >>> moment("2026-11-15").isoformat()
    '2026-11-15T00:00:00+00:00'
    """
    try:
        return datetime.fromisoformat(day).replace(tzinfo=UTC)
    except ValueError:
        raise PlanError("--as-of is not a day", "Write it as 2026-11-15.") from None


# ── the flags ──────────────────────────────────────────────────────────────────────────────────

override_option = click.option(
    "--override", default="", metavar="REASON", help=f"Reason for a k below {LEAST_K_WITHOUT_OVERRIDE}; recorded."
)

source_options = flags_together(
    click.option("--plan", "plan_file", type=click.Path(), help="Plan file (kanab.toml), instead of such flags."),
    click.option("--arm", help="Column that holds the arm."),
    names_option("--metric", help="Columns to compare, separated by commas."),
    names_option("--ratio", help="Ratios of two metrics, such as revenue/orders, separated by commas."),
    click.option("--received", metavar="COLUMN", help="Who got what was assigned (0/1), or how much of it."),
    click.option("--bounds", multiple=True, metavar="NAME=LOW:HIGH", help="Clamp a metric: --bounds spend=0:500."),
    click.option(
        "--clip", multiple=True, metavar="NAME=SHARE",
        help="Clip a metric at a point of all arms together, such as --clip spend=99%; noted in the result.",
    ),
    click.option("--resolution", multiple=True, metavar="NAME=STEP", help="Grid of a metric: --resolution spend=0.01."),
    click.option("--missing", multiple=True, metavar="NAME=RULE", help="Missing values: exclude (default) or zero."),
    click.option(
        "--least-events", multiple=True, metavar="NAME=N",
        help="People of a class who must have a 0/1 metric, and lack it, or nobody: --least-events bought=10.",
    ),
    click.option(
        "--bin", "bins", multiple=True, metavar="NAME=N", help="Bins of a covariate: so many quantiles, or edges a:b."
    ),
    click.option(
        "--quantile", multiple=True, metavar="NAME=SHARES",
        help="Compare quantiles of a metric, from bins of it: --quantile latency=0.5,0.9 --bin latency=0:50:100:200.",
    ),
    click.option("--top", multiple=True, metavar="NAME=N", help='Keep the N most common levels; the rest is "other".'),
    names_option("--score", help="Bins to adjust for by one slope, not as categories: --score age."),
    names_option("--number", help="Columns of --adjust to adjust for as they are, without classes."),
    names_option("--arms", help="Arms to count, separated by commas; people of others are left out. Default all."),
    click.option("--shares", multiple=True, metavar="ARM=SHARE", help="Planned split: A=9,B=1 or A=90%,B=10%."),
    click.option("--control", help="Arm to compare with."),
    click.option("--k", type=int, help=f"Minimum people in a class; default {DEFAULT_K}, or the plan's."),
    override_option,
    click.option("--table", help="Table of the database, or sheet of an Excel file."),
    click.option("--sql", help="Query, instead of a table; a file is the table rows: SELECT * FROM rows."),
    click.option("--sep", help="What separates fields of a CSV file: ';', tab; default as its first lines show."),
    click.option("--decimal", default=".", help="Decimal mark of a CSV file; default a point."),
    click.option("--join", metavar="FILE", help="Second table or file with more columns about the same people."),
    names_option("--on", help="Column by which --join is matched, such as user_id; several separated by commas."),
    click.option("--where", help="Count only rows where this SQL condition holds; recorded."),
    click.option("--unit", help="Column that identifies a person, where people have several rows."),
    click.option("--aggregate", multiple=True, metavar="NAME=HOW", help="A person's rows: sum (0/1: max), max, mean."),
    click.option("--first-by", metavar="COLUMN", help="Time by which covariates are those of a person's first row."),
    click.option(
        "--assigned-by", metavar="COLUMN",
        help="What arms were assigned by, if not by person: a shop; or several columns, city,hour. Each counts once.",
    ),
    click.option("--exposures", help="Table of who saw which arm when; not needed if the source is that file."),
    click.option("--events", help="Table or file of what happened when; metrics are taken from it."),
    click.option("--window", help="How long after a person's first exposure events count, such as 14d."),
    click.option("--time", default="time", help="Column with the time of an event."),
    click.option("--exposure-time", default="time", help="Column with the time of an exposure."),
    click.option("--show-sql", is_flag=True, help="Print the SQL statement that would run, and exit."),
)  # fmt: skip
"""Gives a command the flags that say what to count."""

COUNTING_FLAGS = frozenset(
    option.opts[0]
    for option in source_options(lambda: None).__click_params__  # type: ignore[attr-defined]
    if option.name != "control"
)
"""The flags that say what is counted: all of the above but the control, which may be chosen later."""


def flags_said() -> list[str]:
    """Return the flags that the command line of the running command names."""
    context = click.get_current_context()
    said = (option for option in context.command.params if isinstance(option, click.Option) and option.name)
    return [
        option.opts[0]
        for option in said
        if context.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE
    ]


# ── what they say ──────────────────────────────────────────────────────────────────────────────


def is_release(source: str) -> bool:
    """Check for a JSON file that does not hold rows: it is a release, or it should be."""
    from kanab.counting.files import holds_rows
    from kanab.counting.lakes import lake_at

    path = Path(source)
    return path.suffix == ".json" and lake_at(path) is None and not holds_rows(path)


def check_single(source: tuple[str, ...]) -> None:
    """Check that one source is named; raise `PlanError` for several."""
    if len(source) > 1:
        raise PlanError(
            "several sources are given",
            "Files with the same columns go by a pattern in quotes: 'visits-*.parquet'. "
            "One with more columns about the same people is joined: --join countries.csv --on user_id.",
        )


_IN_A_PLAN = frozenset(
    "--arm --metric --ratio --bounds --clip --resolution --missing --least-events --bin --top --score --number "
    "--arms --shares --quantile --adjust --segment --covariate --received".split()
)
"""The flags that make a plan, and so cannot stand beside one."""


def plan_of(flags: Mapping[str, Any], source: str) -> Plan:
    """Return the plan of a file, or of the flags; where nothing is said, what the source has is."""
    from kanab.plan.file import read_plan
    from kanab.plan.model import make_plan

    if flags["plan_file"]:
        clash = [flag for flag in flags_said() if flag in _IN_A_PLAN]
        if clash:
            raise PlanError(f"--plan and {clash[0]} contradict each other", "Change the plan file instead.")
        return read_plan(flags["plan_file"])
    if not flags["arm"] or not (flags["metric"] or flags["ratio"] or flags["quantile"]):
        raise not_said("what to count", "Give --arm and --metric, or --plan.", source, flags)
    return make_plan(
        flags["arm"],
        names(flags["metric"]),
        adjust=names(flags.get("adjust")),
        segments=names(flags.get("segment")),
        bounds=bounds_of(flags["bounds"]),
        resolution=numbers(flags["resolution"], "--resolution"),
        missing=pairs(flags["missing"], "--missing"),  # type: ignore[arg-type]  # checked by Metric
        least_events={name: _whole(least) for name, least in numbers(flags["least_events"], "--least-events").items()},
        bins={name: _bins(text) for name, text in pairs(flags["bins"], "--bin").items()},
        top={name: _whole(limit) for name, limit in numbers(flags["top"], "--top").items()},
        score=names(flags["score"]),
        numbers=names(flags["number"]),
        arms=[level(arm) for arm in names(flags["arms"])] or None,
        shares=shares_of(flags["shares"]) or None,
        control=level(flags["control"]),
        ratios=names(flags["ratio"]),
        k=DEFAULT_K if flags["k"] is None else flags["k"],
        received=flags["received"],
        quantiles=quantiles_of(flags["quantile"]) or None,
    )


def not_said(what: str, remedy: str, source: str, flags: Mapping[str, Any]) -> PlanError:
    """Return the error of a command that does not say which columns it is about: it names those that there are."""
    from kanab.counting.dispatch import SourceOptions, source_columns

    said = {name: flags[name] for name in ("table", "sql", "sep", "decimal") if flags.get(name)}
    columns = source_columns(source, SourceOptions(**said))
    return PlanError(f"{what} is not said", f"{remedy} Columns of the source: {listed(columns, most=30)}.")


def rows_of(flags: Mapping[str, Any]) -> SourceOptions:
    """Return what the flags say about rows and people."""
    from kanab.counting.dispatch import SourceOptions

    if flags["exposures"] and flags["table"]:
        raise PlanError("--table and --exposures name the same thing", "Leave one out.")
    return SourceOptions(
        flags["unit"],
        pairs(flags["aggregate"], "--aggregate") or None,
        flags["where"],
        flags["table"] or flags["exposures"],
        flags["sql"],
        flags["events"],
        flags["window"] if flags["events"] or not flags.get("cohort") else None,
        flags["time"],
        flags["exposure_time"],
        join=flags["join"],
        on=names(flags["on"]) or None,
        sep=flags["sep"],
        decimal=flags["decimal"],
        first_by=flags["first_by"],
        assigned_by=names(flags["assigned_by"]) or None,
        clip=pairs(flags["clip"], "--clip"),
    )


def counted_source(
    source: str,
    plan: Plan,
    flags: Mapping[str, Any],
    *,
    earlier: Sequence[Plan] = (),
    span: Span | None = None,
    for_release: bool = True,
) -> Counted:
    """Count the source of a command; older plans again, and some cohorts only, where a ledger needs it."""
    from kanab.counting.dispatch import count_source, explain

    options = replace(rows_of(flags), span=span)
    if flags["show_sql"]:
        click.echo(explain(source, plan, options, earlier, for_release=for_release))
        sys.exit(0)
    tables = sum(len(counted.linkages) for counted in (plan, *earlier))
    with progress(f"counting {tables} table{'s' if tables > 1 else ''}"):
        return count_source(source, plan, options, earlier, for_release=for_release)
