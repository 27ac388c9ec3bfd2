"""kanab power: solve for people, effect or power, given the other two."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from kanab.choices import INTERNAL, OWN_ROWS, Alternative, Claim, PowerCorrection
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
from kanab.description import AnyCovariate, Mean, Number, Ratio
from kanab.errors import AnalysisError, PlanError
from kanab.fields import share

if TYPE_CHECKING:
    from kanab.plan.model import ExperimentPlan
    from kanab.planning.interactions import CrossedSpread
    from kanab.planning.spread import Spread
    from kanab.privacy.release import Release
    from kanab.stats.margins import Margin
    from kanab.tally.factor import Level

_STEPS = (0.25, 0.5, 1, 2, 4)
_FINE = tuple(2 ** (step / 8) for step in range(-16, 17))
_USUAL_POWER = 0.8
_MOST_ARMS = 100
_LARGE = 1e100  # its square is still a number
_WRITE = "Write --interaction 2x2, or with shares 9:1x6:3:1."

Solve = Callable[[int | None, float | None, float | None], dict[str, Any]]
Curve = Callable[[Sequence[float]], list[dict[str, Any]]]


@dataclass(frozen=True)
class _Basis:
    """What sentences need to know beside the spread: the control's mean, whether it is a rate, and where it is from."""

    mean: float | None
    binary: bool
    notes: tuple[str, ...] = ()
    chosen: str = "declared"
    own_rows: bool = False


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
@click.option("--r2", type=SHARE, help="With --rate or --sd: the share of the variance that covariates explain.")
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
@click.option(
    "--interaction", metavar="ROWSxCOLUMNS",
    help="An interaction of 2x2 arms, with shares 9:1x6:3:1; with --release a covariate or another experiment.",
)  # fmt: skip
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
    from kanab.planning.power_words import power_text

    data, curve = solve_flags(flags)
    show(
        flags,
        text=lambda: power_text(data),
        data=lambda: data,
        page=lambda: _page(data | {"curve": curve(_STEPS)}, curve(_FINE)),
        name="Page",
    )


def solve_flags(flags: Mapping[str, Any]) -> tuple[dict[str, Any], Curve]:
    """Return the answer as plain data, and a function that returns it for other numbers of people."""
    left_out = sum(flags[name] is None for name in ("people", "effect", "power"))
    if left_out == 0:
        raise PlanError("--people, --effect and --power are all given", "Leave out the one to solve for.")
    if flags["people"] is None and flags["effect"] is None:
        raise PlanError(
            "what to plan for is not said",
            "Give --effect 5% for the people who see it, or --people 20000 for the effect that they see.",
        )
    flags = {**flags, "power": _USUAL_POWER if left_out > 1 else flags["power"]}
    effect, relative = _asked_effect(flags)
    basis, solve = _interaction(flags) if flags["interaction"] else _effect(flags)
    if effect is not None and relative:
        if not basis.mean:
            raise PlanError(
                "a relative effect needs a control mean other than 0", "Give --mean, or an effect in units."
            )
        effect *= abs(basis.mean)
    answer = solve(flags["people"], effect, flags["power"])
    at_power = _USUAL_POWER if flags["power"] is None else flags["power"]
    curve = partial(_curve, solve, answer, at_power)
    data = answer | {
        "mean": basis.mean, "binary": basis.binary, "confidence": flags["confidence"],
        "notes": list(basis.notes),
        "curve": curve(_STEPS) if flags["curve"] else None,
    }  # fmt: skip
    return ({"scope": OWN_ROWS} if basis.own_rows else {}) | data, curve


def _asked_effect(flags: Mapping[str, Any]) -> tuple[float | None, bool]:
    """Read ``0.01``, or ``5%`` of the control's mean: the effect, and whether it is relative."""
    text = flags["effect"]
    try:
        return (None if text is None else share(str(text))), flags["relative"] or str(text).endswith("%")
    except ValueError:
        raise PlanError(
            "--effect needs a number or a percentage", "Write --effect 5% of the control's mean, or --effect 0.01."
        ) from None


def _page(data: Mapping[str, Any], points: list[dict[str, Any]]) -> str:
    from kanab.planning.planning_pages import power_report
    from kanab.planning.planning_pictures import power_figures

    return power_report(data, figures=power_figures(data, points))


def _effect(flags: Mapping[str, Any]) -> tuple[_Basis, Solve]:
    """Plan the comparison of an arm with the control."""
    from kanab.planning.power import PlannedTest, power_data, solve_power

    test = PlannedTest(flags["confidence"], flags["alternative"], _margin(flags), flags["correction"], flags["tests"])
    basis, spread = _spread(flags)

    def solve(people: int | None, effect: float | None, power: float | None) -> dict[str, Any]:
        design = solve_power(spread, people=people, effect=effect, power=power, test=test)
        return power_data(design, spread.control, basis.chosen)

    return basis, solve


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


def _interaction(flags: Mapping[str, Any]) -> tuple[_Basis, Solve]:
    """Plan an interaction: by how much one cell departs from what its row and its column say."""
    from kanab.planning.interactions import interaction_power

    clash = ["control"] if flags["control"] and not flags["release_file"] else []
    clash += [flag for flag in ("shares", "margin", "tests", "adjust", "multiplies") if flags[flag]]
    clash += ["correction"] if flags["correction"] != "none" else []
    clash += ["alternative"] if flags["alternative"] != "two-sided" else []
    if clash:
        raise PlanError(
            f"--interaction and --{clash[0]} contradict each other",
            "An interaction is one F test over all cells; shares are written 9:1x1:1.",
        )
    basis, cells = _crossed_spread(flags)

    def solve(people: int | None, effect: float | None, power: float | None) -> dict[str, Any]:
        design = interaction_power(cells, people=people, effect=effect, power=power, confidence=flags["confidence"])
        table = {"rows": len(cells.rows), "columns": len(cells.columns), "where": design.where, "df": list(design.df)}
        return {
            "solved": design.solved, "people": design.people, "arms": None, "control": None,
            "control_chosen": None, "arm": None, "effect": design.effect,
            "relative": design.effect / abs(basis.mean) if basis.mean else None,
            "power": design.power, "alternative": "two-sided", "correction": "none", "margin": None,
            "interaction": table, "multiplies": False, "other": None,
        }  # fmt: skip

    return basis, solve


def _curve(solve: Solve, answer: Mapping[str, Any], at_power: float, steps: Sequence[float]) -> list[dict[str, Any]]:
    """Solve for so many times the people; what cannot be reached is None."""
    rows = []
    for people in dict.fromkeys(round(answer["people"] * step) for step in steps):
        smallest = _reached(solve, people, None, at_power)
        same = _reached(solve, people, answer["effect"], None)
        rows.append(
            {
                "people": people, "at_power": at_power, "effect": smallest.get("effect"),
                "relative": smallest.get("relative"), "power": same.get("power"),
            }
        )  # fmt: skip
    return rows


def _reached(solve: Solve, people: int, effect: float | None, power: float | None) -> Mapping[str, Any]:
    """Solve, or return nothing where there are too few people for any possible effect."""
    try:
        return solve(people, effect, power)
    except AnalysisError:
        return {}


# ── how the metric varies ──────────────────────────────────────────────────────────────────────


def _spread(flags: Mapping[str, Any]) -> tuple[_Basis, Spread]:
    from kanab.planning.spread import EVEN

    flags = _check_inputs(flags)
    shares = shares_of(flags["shares"])
    control = level(flags["control"])
    if flags["release_file"]:
        return _released(flags, shares or None, control)
    if flags["source"]:
        return _rows(flags, shares or EVEN, control)
    return _numbers(flags, shares or EVEN, control)


def _crossed_spread(flags: Mapping[str, Any]) -> tuple[_Basis, CrossedSpread]:
    from kanab.planning.interactions import crossed_spread
    from kanab.planning.spread import EVEN

    flags = _check_inputs(flags)
    if flags["release_file"]:
        return _released_cells(flags)
    if flags["source"]:
        raise PlanError("an interaction is not planned from rows", "Release them (kanab release), or give --sd.")
    rows, columns = _sides(flags["interaction"])
    if "=" in (flags["sd"] or ""):
        raise PlanError("the cells of an interaction share one standard deviation", "Give one number: --sd 30.")
    basis, spread = _numbers(flags, EVEN, None)
    return basis, crossed_spread(rows, columns, sd=math.sqrt(float(spread.variances[0])))


def _check_inputs(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check that the flags name one source of the spread, and none that belongs to another; a release may be SOURCE."""
    if flags["source"] and is_release(flags["source"]) and not flags["release_file"]:
        flags = {**flags, "source": None, "release_file": flags["source"]}
    sources = {
        "SOURCE": flags["source"], "--rate": flags["rate"], "--sd": flags["sd"], "--release": flags["release_file"],
    }  # fmt: skip
    named = [flag for flag, value in sources.items() if value is not None]
    if len(named) != 1:
        fact = f"{' and '.join(named)} contradict each other" if named else "how the metric varies is not said"
        raise PlanError(fact, "Give one of: a file (kanab power visits.csv), --rate (0/1), --sd (amounts), --release.")
    rows = ("arm", "where", "unit", "aggregate", "bounds", "table", "sql")
    belongs = {"mean": ("--sd",), "r2": ("--rate", "--sd"), "experiment": ("--release",)}
    belongs |= dict.fromkeys(("metric", "adjust"), ("SOURCE", "--release")) | dict.fromkeys(rows, ("SOURCE",))
    if flags["multiplies"] and flags["rate"] is not None:
        raise PlanError("--multiplies does not go with --rate", "The spread of a 0/1 metric follows from its rate.")
    for name, owners in belongs.items():
        if flags[name] not in (None, ()) and named[0] not in owners:
            raise PlanError(f"--{name} does not go with {named[0]}", f"It belongs to {' or '.join(owners)}.")
    return flags


def _rows(flags: Mapping[str, Any], shares: Mapping[Any, float], control: Level) -> tuple[_Basis, Spread]:
    """Return how a metric varies in rows: everybody's, or the control's where a column of arms is named."""
    from kanab.planning.spread import spread_of_rows

    if not flags["metric"]:
        raise not_said("what to plan for", "Name it: --metric spend.", flags["source"], flags)
    bounds = by_column(flags["bounds"], SAID_OF_COLUMNS["bounds"])
    above, slash, below = flags["metric"].partition("/")
    metric = Ratio(above, below) if slash else Mean(above, bounds=bounds.get(above))
    adjust: list[AnyCovariate] = [
        Number(name, bounds=bounds[name]) if name in bounds else name for name in names(flags["adjust"])
    ]
    spread = spread_of_rows(
        flags["source"], metric, arm=flags["arm"], control=control, adjust=adjust, shares=shares,
        grows=flags["multiplies"], rows=rows_said(flags),
    )  # fmt: skip
    adjusted = f", adjusted for {flags['adjust']}" if flags["adjust"] else ""
    whose = f"the control of {flags['arm']}" if flags["arm"] else "everybody"
    notes = [f"How {flags['metric']} varies is taken from {whose} in these rows{adjusted}."]
    return _Basis(spread.mean, spread.binary, (*notes, *[INTERNAL] * spread.own_rows), own_rows=spread.own_rows), spread


def _numbers(flags: Mapping[str, Any], shares: Mapping[Any, float], control: Level) -> tuple[_Basis, Spread]:
    from kanab.planning.power_words import short
    from kanab.planning.spread import spread_of_amounts, spread_of_rate

    r2, sd = flags["r2"] or 0.0, flags["sd"] or ""
    if flags["rate"] is not None:
        spread = spread_of_rate(flags["rate"], shares=shares, control=control, r2=r2)
    else:
        by_arm = {level(arm): _size(size) for arm, size in pairs((sd,), "--sd").items()} if "=" in sd else {}
        spread = spread_of_amounts(
            by_arm or _size(sd), mean=flags["mean"], shares=shares, control=control, r2=r2,
            grows=flags["multiplies"],
        )  # fmt: skip
    notes = (f"Covariates are taken to explain {short(100 * r2)} % of the variance.",) if r2 else ()
    return _Basis(spread.mean, spread.binary, notes, "declared" if control is None else "named"), spread


def _size(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not 1 / _LARGE <= size <= _LARGE:
        raise PlanError("--sd needs a positive number", "Write --sd 30, or one per arm: --sd A=20,B=25.")
    return size


def _released(flags: Mapping[str, Any], shares: Mapping[Any, float] | None, control: Level) -> tuple[_Basis, Spread]:
    """Return variances as the release found them, at the shares of its plan unless others are given."""
    from kanab.planning.spread import released_control, spread_of_release
    from kanab.privacy.release_json import read_release
    from kanab.tally.factor import label

    released = read_release(flags["release_file"])
    plan = released.plan.experiment(flags["experiment"])
    control, chosen = released_control(released, plan, control)
    spread, name = spread_of_release(
        released, plan, flags["metric"], adjust=names(flags["adjust"]), shares=shares, control=control,
        grows=flags["multiplies"],
    )  # fmt: skip
    against = f"Arms are compared with {label(spread.control)}."
    return _Basis(spread.mean, spread.binary, (*_origin(released, flags, plan, name), against), chosen), spread


def _released_cells(flags: Mapping[str, Any]) -> tuple[_Basis, CrossedSpread]:
    """Return the spread of arm × covariate, or of two experiments, as the release found it."""
    from kanab.planning.interactions import crossed_spread_of
    from kanab.planning.spread import is_binary, outcome_of, ratio_parts, released_control, table_with
    from kanab.privacy.release_json import read_release
    from kanab.stats.effect import plain_means

    released = read_release(flags["release_file"])
    plan = released.plan.experiment(flags["experiment"])
    if ratio_parts(released, flags["metric"]) is not None:
        raise PlanError("the interaction of a ratio is not planned from a release", "Name one of its two parts.")
    tables = [tally for tally in released.tables.values() if plan.name in tally.experiment_names]
    table = table_with(tables, flags["interaction"], plan)
    covariate = None if len(table.arms) == 2 else flags["interaction"]
    asked = outcome_of(released, plan, flags["metric"])
    cells = crossed_spread_of(table, covariate, asked)
    metric = table.moments_of(asked).metric.name
    means = plain_means(released.totals(plan.name), metric)
    base = means.arms.index(released_control(released, plan, level(flags["control"]))[0])
    return _Basis(
        float(means.means[base]), is_binary(released, metric), (*_origin(released, flags, plan, metric),)
    ), cells


def _origin(released: Release, flags: Mapping[str, Any], plan: ExperimentPlan, metric: str) -> list[str]:
    adjusted = f", adjusted for {flags['adjust']}" if flags["adjust"] else ""
    name = Path(flags["release_file"]).name
    return [
        f"How {metric} varies is as it was found in {plan.name} ({name}){adjusted}.",
        *([] if released.receipt.noise is None else ["That is without noise; kanab plan --epsilon says what it adds."]),
    ]


def _sides(text: str) -> tuple[dict[Level, float], dict[Level, float]]:
    """Read ``2x2`` or ``9:1x6:3:1`` as the shares of rows and columns.

    >>> _sides("2x3")
    ({'A': 1.0, 'B': 1.0}, {1: 1.0, 2: 1.0, 3: 1.0})
    """
    rows, times, columns = text.lower().replace("×", "x").partition("x")
    if not times:
        raise PlanError("--interaction cannot be read", _WRITE)
    row, column = _shares(rows), _shares(columns)
    named = [chr(ord("A") + place) if len(row) <= 26 else place + 1 for place in range(len(row))]
    return dict(zip(named, row, strict=True)), {place + 1: share for place, share in enumerate(column)}


def _shares(text: str) -> list[float]:
    try:
        parts = [float(part) for part in text.split(":")]
        equal = [1.0] * int(text) if ":" not in text and 0 < int(text) <= _MOST_ARMS else None
    except ValueError:
        raise PlanError("--interaction cannot be read", _WRITE) from None
    if equal is None and len(parts) == 1:
        raise PlanError("--interaction cannot be read", _WRITE)
    return parts if equal is None else equal
