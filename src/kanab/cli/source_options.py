"""Flags about a source: what is counted, how rows become people, and the plan that they make."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanab.cli.help_pages import flags_together, several
from kanab.cli.output import progress
from kanab.description import (
    DEFAULT_K,
    HOW,
    LEAST_K_WITHOUT_OVERRIDE,
    SHARES,
    AnyCovariate,
    AnyMetric,
    Covariate,
    Mean,
    Number,
    Quantile,
    Ratio,
    Rows,
)
from kanab.errors import PlanError, listed
from kanab.fields import NUMBER, YES, Described, WrongValueError, described, share

if TYPE_CHECKING:
    from kanab.counted import Counted
    from kanab.counting.dispatch import SourceOptions
    from kanab.plan.model import Plan
    from kanab.plan.periods import Span
    from kanab.stats.margins import Margin
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


def pairs(texts: Iterable[str], flag: str, example: str = "spend=0.01") -> dict[str, str]:
    """Read ``a=1,b=2``, given once or several times, as a mapping."""
    values: dict[str, str] = {}
    for part in names(",".join(texts)):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not key or not value:
            raise PlanError(f"{flag} cannot be read", f"Write {flag} {example}.")
        if key in values:
            raise PlanError(f"{flag} names {key} twice", "Name each once.")
        values[key] = value
    return values


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


def number(text: str, flag: str, example: str = "spend=0.01", read: Callable[[str], float] = float) -> float:
    """Read a number in a flag; with ``read=share`` also a percentage."""
    try:
        return read(text)
    except ValueError:
        raise PlanError(f"{flag} needs numbers", f"For example {flag} {example}.") from None


def numbers(texts: tuple[str, ...], flag: str, read: Callable[[str], float] = float) -> dict[str, float]:
    """Read ``spend=0.01`` as a mapping to numbers."""
    return {name: number(text, flag, read=read) for name, text in pairs(texts, flag).items()}


def shares_of(texts: tuple[str, ...]) -> dict[Level, float]:
    """Read planned shares: ratios such as ``A=9,B=1``, parts of 1, or percentages that add up to 100."""
    example = "A=50%,B=50%"
    written = pairs(texts, "--shares", example)
    if len(written) == 1:
        raise PlanError("--shares names a single arm", f"Name every arm with its share: --shares {example}.")
    shares = {level(arm): number(text.removesuffix("%"), "--shares", example) for arm, text in written.items()}
    percent = {text.endswith("%") for text in written.values()}
    if len(percent) > 1:
        raise PlanError("--shares mixes percentages and numbers", f"Write all of them alike: --shares {example}.")
    whole = math.fsum(shares.values())
    if True in percent and not _adds_up(shares.values(), 100):
        raise PlanError(f"the percentages of --shares add up to {whole:g} %, not to 100 %", "Is an arm missing?")
    if shares and all(0 < share < 1 for share in shares.values()) and not _adds_up(shares.values(), 1):
        remedy = "Is an arm missing? Or write ratios: A=9,B=1."
        raise PlanError(f"the parts of --shares add up to {whole:g}, not to 1", remedy)
    return shares


def _adds_up(shares: Iterable[float], whole: int) -> bool:
    """Return whether shares add up to a whole, but for the rounding of their last digits."""
    written = [Decimal(repr(float(share))) for share in shares]
    digits = [min(0, int(share.normalize().as_tuple().exponent)) for share in written]
    room = sum((Decimal((0, (5,), digit - 1)) for digit in digits), Decimal(0))
    return abs(sum(written, Decimal(0)) - whole) < min(room, Decimal(whole) / 20)


def by_column(texts: tuple[str, ...], field: Described) -> dict[str, Any]:
    """Read what a flag says of columns as plain values of a field.

    Several shares belong to the column before them.
    """
    several: dict[str, list[str]] = {}
    name = ""
    for part in names(",".join(texts)):
        key, equals, value = (word.strip() for word in part.rpartition("="))
        name = key if equals else name
        if not name or not value or not (equals or field.setting.kind is SHARES):
            raise PlanError(f"{field.flag} cannot be read", f"Write {field.keyed_example}.")
        if name in several and field.setting.kind is not SHARES:
            raise PlanError(f"{field.flag} names {name} twice", "Name each once.")
        several.setdefault(name, []).append(value)
    values = {}
    for name, written in several.items():
        try:
            values[name] = field.setting.kind.read(field.setting.kind.text(",".join(written)))
        except WrongValueError as problem:
            raise PlanError(f"{field.flag} {problem}", f"For example {field.keyed_example}.") from None
        except ValueError:
            raise PlanError(f"{field.flag} needs numbers", f"For example {field.keyed_example}.") from None
    return values


def claimed(flag: str, claim: Any, text: str, better: Any = "higher", *, relative: bool = False) -> Margin:
    """Read the size of a claim: ``0.1``, ``2%``, or for equivalence two limits, ``-0.5:1`` or ``-2%:3%``."""
    from kanab.stats.margins import Margin

    parts = [part.strip() for part in text.split(":")]
    percent = {part.endswith("%") for part in parts}
    try:
        sizes = [share(part) for part in parts]
    except ValueError:
        sizes = []
    if len(percent) > 1:
        raise PlanError(f"{flag} mixes a number and a percentage", "Give both limits in percent, or none.")
    if claim == "equivalence" and len(sizes) == 2 and sizes[0] < 0 < sizes[1] and all(map(math.isfinite, sizes)):
        return Margin(claim, (sizes[0], sizes[1]), better, relative or True in percent)
    if len(sizes) != 1 or not 0 < sizes[0] < math.inf:
        two = "; for equivalence also two limits, on both sides of 0: -0.5:1" if claim == "equivalence" else ""
        lower = "Where less is better, say so: --lower-is-better (analyze), --better lower (power)."
        raise PlanError(f"{flag} needs a positive size", f"Write 0.1, or 2% of the control's mean{two}. {lower}")
    return Margin(claim, sizes[0], better, relative or True in percent)


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
    """Return the beginning of a day, in UTC."""
    try:
        return datetime.fromisoformat(day).replace(tzinfo=UTC)
    except ValueError:
        raise PlanError("--as-of is not a day", "Write it as 2026-11-15.") from None


# ── the flags ──────────────────────────────────────────────────────────────────────────────────

override_option = click.option(
    "--override", default="", metavar="REASON", help=f"Reason for a k below {LEAST_K_WITHOUT_OVERRIDE}; recorded."
)

SAID_OF_COLUMNS: Mapping[str, Described] = {
    each.name: each
    for each in chain.from_iterable(described(cls).values() for cls in (Quantile, Covariate, Mean))
    if each.flag and each.setting.kind is not YES
}
"""What flags say of columns (--bounds spend=0:500), by the name of the field."""


ROWS = described(Rows)


def said_flag(field: Described) -> Callable[[Any], Any]:
    """Return the flag that says something of columns."""
    words = f"{field.setting.help.removesuffix('.')}: {field.keyed_example}."
    return click.option(field.flag, field.name, multiple=True, metavar=f"NAME={field.setting.kind.metavar}", help=words)


def flag_of(field: Described) -> Callable[[Any], Any]:
    """Return the flag of a field."""
    kind, words = field.setting.kind, field.setting.help
    if kind.names:
        return names_option(field.flag, field.name, help=words)
    if kind is HOW:
        return click.option(field.flag, field.name, multiple=True, metavar="NAME=HOW", help=words)
    if kind.choices:
        choices = click.Choice(kind.choices)
        return click.option(field.flag, field.name, type=choices, default=field.default, show_default=True, help=words)
    if kind is NUMBER:
        return click.option(field.flag, field.name, type=SHARE, default=field.default, show_default=True, help=words)
    return click.option(field.flag, field.name, default=field.default, help=words)


source_options = flags_together(
    click.option("--plan", "plan_file", type=click.Path(), help="Plan file (kanab.toml), instead of such flags."),
    click.option("--arm", help="Column that holds the arm."),
    names_option("--metric", help="Columns to compare, separated by commas."),
    names_option("--ratio", help="Ratios of two metrics, such as revenue/orders, separated by commas."),
    click.option("--treatment-received", metavar="COLUMN", help="Who got what was assigned (0/1), or how much of it."),
    *map(said_flag, SAID_OF_COLUMNS.values()),
    names_option("--score", help="Bins to adjust for by one slope, not as categories: --score age."),
    names_option("--number", help="Columns of --adjust to adjust for as they are, without classes."),
    names_option("--arms", help="Arms to count, separated by commas; people of others are left out. Default all."),
    several("--shares", "ARM=SHARE", "Planned split: A=9,B=1 or A=90%,B=10%."),
    click.option("--control", help="Arm to compare with."),
    click.option("--k", type=int, help=f"Minimum people in a class; default {DEFAULT_K}, or the plan's."),
    override_option,
    *(flag_of(each) for each in ROWS.values() if each.flag),
    click.option("--exposures", help="Table of who saw which arm when; not needed if the source is that file."),
    click.option("--show-sql", is_flag=True, help="Print the SQL statement that would run, and exit."),
)  # fmt: skip
"""Gives a command the flags that say what to count."""

COUNTING_FLAGS = frozenset(
    option.opts[0] for option in source_options(lambda: None).__click_params__ if option.name != "control"
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
    from kanab.counting.files import holds_rows, lake_at

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
    "--arm --metric --ratio --treatment-received --score --number --arms --shares".split()
    + "--adjust --segment --covariate".split()
) | {each.flag for each in SAID_OF_COLUMNS.values()}
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
    if not flags["arm"] or not (flags["metric"] or flags["ratio"] or flags["at"]):
        raise not_said("what to count", "Give --arm and --metric, or --plan.", source, flags)
    arms: Any = [level(arm) for arm in names(flags["arms"])] or None
    if shares := shares_of(flags["shares"]):
        if arms is not None and {*map(str, arms)} != {*map(str, shares)}:
            raise PlanError("--arms and --shares name different arms", "Give a share to each arm that is counted.")
        arms = shares
    said = {name: by_column(flags[name], field) for name, field in SAID_OF_COLUMNS.items()}
    metrics, adjust, segments = _values_of(said, flags)
    return make_plan(
        flags["arm"], metrics, adjust, segments,
        arms=arms,
        control=level(flags["control"]),
        treatment_received=flags["treatment_received"],
        k=DEFAULT_K if flags["k"] is None else flags["k"],
    )  # fmt: skip


def _values_of(
    said: Mapping[str, Mapping[str, Any]], flags: Mapping[str, Any]
) -> tuple[list[AnyMetric], list[AnyCovariate], list[AnyCovariate]]:
    """Return metrics, what is adjusted for and segments, as flags describe them; each flag is about one of these."""
    ratios = [tuple(map(str.strip, ratio.split("/"))) for ratio in names(flags["ratio"])]
    if any(len(parts) != 2 or "" in parts for parts in ratios):
        raise PlanError("a ratio cannot be read", "Write it as --ratio revenue/orders.")
    received = [flags["treatment_received"]] if flags["treatment_received"] else []
    counted = list(dict.fromkeys([*names(flags["metric"]), *chain.from_iterable(ratios), *received]))
    adjust, segments = names(flags.get("adjust")), names(flags.get("segment"))
    as_numbers = [name for name in adjust if name in (*names(flags["number"]), *said["bounds"]) and name not in counted]
    in_levels = [name for name in (*adjust, *segments) if name not in as_numbers]
    _check_said(said, flags, [*counted, *said["at"]], in_levels, as_numbers)

    def value(cls: Any, name: str) -> Any:
        fields = [field for field in described(cls) if field != "clip"]  # which is of the rows: `rows_of`
        of_name = {field: said[field][name] for field in fields if name in said.get(field, ())}
        score = {"score": True} if cls is Covariate and name in names(flags["score"]) else {}
        return cls(name, **of_name, **score)

    metrics: list[AnyMetric] = [value(Mean, name) for name in dict.fromkeys([*counted, *said["at"]])]
    metrics += [Ratio(parts[0], parts[1]) for parts in ratios]
    metrics += [value(Quantile, name) for name in said["at"]]
    adjusted = [value(Number if name in as_numbers else Covariate, name) for name in dict.fromkeys(adjust)]
    return metrics, adjusted, [value(Covariate, name) for name in dict.fromkeys(segments)]


def _check_said(
    said: Mapping[str, Mapping[str, Any]],
    flags: Mapping[str, Any],
    metrics: Sequence[str],
    covariates: Sequence[str],
    as_numbers: Sequence[str],
) -> None:
    """Raise `PlanError` where a flag is about a column that is not counted, or that has another role."""
    for name in names(flags["number"]):
        if name not in (*as_numbers, *metrics):
            raise PlanError(f"--number names something that is not adjusted for: {name!r}", "Name it in --adjust, too.")
    measured = (*metrics, *as_numbers)
    about: dict[str, Sequence[str]] = {"top": covariates, "score": covariates, "bins": (*covariates, *said["at"])}
    for field, columns in (*said.items(), ("score", names(flags["score"]))):
        for name in columns:
            if name not in about.get(field, measured):
                raise _not_counted(field, name, metrics, covariates, about.get(field, measured))


def _not_counted(
    field: str, name: str, metrics: Sequence[str], covariates: Sequence[str], known: Sequence[str]
) -> PlanError:
    written = SAID_OF_COLUMNS[field].flag if field in SAID_OF_COLUMNS else f"--{field}"
    if field == "bins" and name in metrics:
        return PlanError(
            f"--bin: bins of the metric {name!r} are for its quantiles, and none are asked for",
            f"Name it in --quantile, too (--quantile {name}=0.5), or leave out its bins.",
        )
    if field in ("resolution", "missing") and name in covariates:
        return PlanError(
            f"{written} is of metrics and numbers, and {name!r} is not said to be one",
            f"Adjust for it as it is (--number {name}), or leave out {written}.",
        )
    fact = f"{written} names something that is not counted: {name!r}"
    if not known:
        return PlanError(fact, "No covariates are named: name some in --adjust or --segment.")
    return PlanError(fact, f"Counted: {listed(known)}.")


def not_said(what: str, remedy: str, source: str, flags: Mapping[str, Any]) -> PlanError:
    """Return the error of a command that does not say which columns it is about: it names those that there are."""
    from kanab.counting.dispatch import SourceOptions, source_columns

    said = {name: flags[name] for name in ("table", "sql", "sep", "decimal") if flags.get(name)}
    columns = source_columns(source, SourceOptions(**said))
    return PlanError(f"{what} is not said", f"{remedy} Columns of the source: {listed(columns, most=30)}.")


def rows_said(flags: Mapping[str, Any]) -> Rows:
    """Return the rows that the flags of a command say, as many of them as it has."""
    said = {name: flags[name] for name, field in ROWS.items() if field.flag and flags.get(name) not in (None, ())}
    said |= {name: names(said[name]) for name in ("on", "cluster") if name in said}
    return Rows(**said | {"aggregate": pairs(flags["aggregate"], "--aggregate", "visits=max") or None})


def rows_of(flags: Mapping[str, Any]) -> SourceOptions:
    """Return what the flags say about rows and people."""
    from kanab.counting.dispatch import SourceOptions

    if flags["exposures"] and flags["table"]:
        raise PlanError("--table and --exposures name the same thing", "Leave one out.")
    rows = replace(rows_said(flags), table=flags["table"] or flags["exposures"])
    if flags.get("cohort") and not flags["events"]:
        rows = replace(rows, window=None)  # then it is that of the cohorts
    return SourceOptions(**vars(rows), clip=by_column(flags["clip"], SAID_OF_COLUMNS["clip"]))


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
