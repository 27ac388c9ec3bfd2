"""kanab power: solve for people, effect or power, given the other two."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import click

from kanab.choices import Alternative, Claim, PowerCorrection
from kanab.cli.help_pages import flags_together, several
from kanab.cli.output import PAGE, json_option, output_option, show
from kanab.cli.source_options import (
    ROWS,
    SAID_OF_COLUMNS,
    SHARE,
    by_column,
    claimed,
    flag_of,
    is_release,
    level,
    names,
    not_said,
    pairs,
    rows_said,
    said_flag,
    shares_of,
)
from kanab.description import Mean, Number, Ratio, Rows
from kanab.errors import PlanError
from kanab.fields import share

if TYPE_CHECKING:
    from kanab.planning.power import Power
    from kanab.stats.margins import Margin

_LARGE = 1e100  # its square is still a number


@click.command()
@click.argument("source", required=False)
@click.option("--people", type=int, help="People in all arms together (sample size).")
@click.option("--effect", help="Change of the mean: 5% of the control's, or in units (0.01 is a point of a rate).")
@click.option("--power", type=SHARE, help="Probability of finding the effect; default 0.8.")
@click.option("--rate", type=SHARE, help="For a 0/1 metric: the control's rate, 0.1 or 10%.")
@click.option(
    "--sd", metavar="SD", help="For an amount: the standard deviation of a person, or one per arm: A=20,B=25."
)
@click.option("--mean", type=float, help="With --sd: the control's mean, for relative effects.")
@click.option(
    "--release", "release_file", type=click.Path(), help="Release of a finished experiment, whose variances are used."
)
@click.option("--metric", help="Of SOURCE or --release: the metric; a ratio as revenue/orders.")
@click.option("--experiment", help="With --release: the experiment, if it holds several.")
@click.option(
    "--adjust", metavar="COVARIATES", help="Of SOURCE or --release: adjust for covariates, and for numbers that it has."
)
@click.option("--arm", help="Column of SOURCE that holds arms: its control is taken. Default everybody.")
@flags_together(*(flag_of(ROWS[name]) for name in ("where", "unit", "aggregate", "table", "sql")))
@said_flag(SAID_OF_COLUMNS["bounds"])
@several("--shares", "ARM=SHARE", "Planned split, such as A=9,B=1; default equal.")
@click.option("--control", help="Arm to compare with; of --shares the first, of a release its control.")
@click.option("--relative", is_flag=True, help="The effect (and the margin) are shares of the control's mean.")
@click.option("--multiplies", is_flag=True, help="Answer first for an effect that multiplies amounts.")
@click.option(
    "--correction", type=click.Choice(get_args(PowerCorrection)), default="none", help="Correction over arms."
)
@click.option("--tests", type=int, help="Number of tests corrected together; default one per arm but the control.")
@click.option("--confidence", type=SHARE, default=0.95, show_default=True, help="Confidence of the interval.")
@click.option("--alternative", type=click.Choice(get_args(Alternative)), default="two-sided", help="Sides of the test.")
@click.option(
    "--margin", metavar="CLAIM=SIZE", help="Claim: non-inferiority=2%, superiority=0.01, equivalence=0.5 or =-0.5:1."
)
@click.option(
    "--better", type=click.Choice(["higher", "lower"]), default="higher", help="With --margin: the better direction."
)
@click.option("--curve", is_flag=True, help="Also solve for fewer and for more people.")
@json_option
@output_option("--html", mark=PAGE, words="Write a page with both curves to this file.")
def power(**flags: Any) -> None:
    """Compute sample size, detectable effect or power.

    Give two of --people, --effect and --power (default 0.8), and how the metric varies: a SOURCE, --rate or --sd.

    SOURCE is a file or a database of people before the experiment, or a release.

    \b
    kanab power visits.csv --metric spend --effect 5%
    kanab power --rate 0.1 --effect 0.01 --power 0.8
    kanab power --sd 30 --mean 12 --people 20000 --power 0.8 --shares A=9,B=1
    kanab power --release checkout.json --metric spend --adjust tier --effect 0.05 --relative --power 0.8
    """
    from kanab.planning.planning_pages import power_report
    from kanab.planning.power import COARSE, FINE
    from kanab.planning.power_words import power_text

    answer = solved(flags)
    curve = partial(answer.around, at_power=flags["power"] or 0.8)
    data = answer.to_dict() | {"curve": curve(COARSE) if flags["curve"] else None}
    show(
        flags,
        text=lambda: power_text(data),
        data=lambda: data,
        page=lambda: power_report(data | {"curve": curve(COARSE)}, curve(FINE)),
        name="Page",
    )


def solved(flags: Mapping[str, Any]) -> Power:
    """Return the answer of `kanab.power` to what the flags say."""
    from kanab.planning.calculator import power as solve
    from kanab.planning.power import PlannedTest
    from kanab.privacy.release_json import read_release

    test = PlannedTest(flags["confidence"], flags["alternative"], _margin(flags), flags["correction"], flags["tests"])
    source, file, rows = flags["source"], flags["release_file"], rows_said(flags)
    if source and file:
        raise PlanError("SOURCE and --release contradict each other", "Name one of them.")
    if source and is_release(source):
        source, file = None, source
    if source and not flags["metric"]:
        raise not_said("what to plan for", "Name it: --metric spend.", source, flags)
    bounds = by_column(flags["bounds"], SAID_OF_COLUMNS["bounds"])
    if bounds and not source:
        raise PlanError("--bounds goes with rows alone", "Leave it out.")
    above, slash, below = (flags["metric"] or "").partition("/")
    return solve(
        read_release(file) if file else source,
        Ratio(above, below) if slash else Mean(above, bounds=bounds.get(above)) if above else None,
        people=flags["people"], effect=_asked_effect(flags), power=flags["power"], rate=flags["rate"],
        sd=_deviations(flags["sd"]), mean=flags["mean"], arm=flags["experiment"] or flags["arm"],
        control=level(flags["control"]), shares=shares_of(flags["shares"]) or None,
        adjust=[Number(name, bounds=bounds[name]) if name in bounds else name for name in names(flags["adjust"])],
        grows=flags["multiplies"], rows=None if rows == Rows() else rows, test=test,
    )  # fmt: skip


def _asked_effect(flags: Mapping[str, Any]) -> float | str | None:
    """Read ``0.01``, or ``5%`` of the control's mean."""
    text = flags["effect"]
    try:
        size = None if text is None else share(text)
    except ValueError:
        raise PlanError(
            "--effect needs a number or a percentage", "Write --effect 5% of the control's mean, or --effect 0.01."
        ) from None
    return f"{100 * size:.15g}%" if size is not None and (flags["relative"] or text.endswith("%")) else size


def _deviations(text: str | None) -> float | dict[Any, float] | None:
    """Read ``20``, or one per arm: ``A=20,B=25``."""
    if text is None or "=" not in text:
        return None if text is None else _size(text)
    return {level(arm): _size(size) for arm, size in pairs((text,), "--sd").items()}


def _margin(flags: Mapping[str, Any]) -> Margin | None:
    """Read ``non-inferiority=0.01``, or ``equivalence=-0.5:1`` with two limits."""
    if flags["margin"] is None:
        if flags["better"] != "higher":
            raise PlanError("--better says in which direction a margin lies", "Give --margin, or --alternative less.")
        return None
    claim, _, text = flags["margin"].partition("=")
    if claim not in get_args(Claim):
        claims = ", ".join(f"{known}=SIZE" for known in get_args(Claim))
        raise PlanError("--margin cannot be read", f"Write one of: {claims}; or equivalence=-0.5:1, =-2%:2%.")
    return claimed("--margin", claim, text, flags["better"], relative=flags["relative"])


def _size(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not 1 / _LARGE <= size <= _LARGE:
        raise PlanError("--sd needs a positive number", "Write --sd 30, or one per arm: --sd A=20,B=25.")
    return size
