"""kanab power: people, effect and power; any two of them give the third."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import click

from kanab.atomicfile import write_whole
from kanab.cli.power_inputs import Basis, crossed_noise_from, noise_of
from kanab.errors import AnalysisError, MissingExtraError, PlanError
from kanab.planning.interactions import interaction_power
from kanab.planning.power import PlannedTest, PowerCorrection, solve_power
from kanab.planning.report.power_charts import power_charts
from kanab.planning.report.power_html import power_report
from kanab.planning.report.power_words import power_text
from kanab.stats.distributions import Alternative
from kanab.stats.margins import Claim, Margin
from kanab.tally.factor import label

_STEPS = (0.25, 0.5, 1, 2, 4)
_FINE = tuple(2 ** (step / 8) for step in range(-16, 17))
_USUAL_POWER = 0.8

Solve = Callable[[int | None, float | None, float | None], dict[str, Any]]
Curve = Callable[[Sequence[float]], list[dict[str, Any]]]


@click.command()
@click.option("--people", type=int, help="People in all arms together.")
@click.option("--effect", type=float, help="Change of the mean, in units of the metric (0.01 is a point of a rate).")
@click.option("--power", type=float, help="How often the effect is to be found, for example 0.8.")
@click.option("--rate", type=float, help="A 0/1 metric: the control's rate.")
@click.option("--sd", metavar="SD", help="An amount: one person's standard deviation, or one per arm: A=20,B=25.")
@click.option("--mean", type=float, help="With --sd: the control's mean, for relative effects.")
@click.option(
    "--release", "release_file", type=click.Path(), help="A finished experiment: variances as they were found."
)
@click.option("--metric", help="With --release: the metric; a ratio as revenue/orders.")
@click.option("--experiment", help="With --release: the experiment, if it holds several.")
@click.option("--adjust", metavar="COVARIATE", help="With --release: adjusted for this covariate.")
@click.option("--r2", type=float, help="With --rate or --sd: the share of the variance that covariates explain.")
@click.option("--shares", multiple=True, metavar="ARM=SHARE", help="Planned split: --shares A=9,B=1; else equal.")
@click.option("--control", help="The arm to compare with; else the first.")
@click.option("--relative", is_flag=True, help="The effect (and the margin) is a share of the control's mean.")
@click.option("--multiplies", is_flag=True, help="The effect multiplies amounts, and so their spread.")
@click.option("--correction", type=click.Choice(get_args(PowerCorrection)), default="none", help="Over arms.")
@click.option("--tests", type=int, help="Tests that are corrected together; else the arms but the control.")
@click.option("--confidence", type=float, default=0.95, show_default=True)
@click.option("--alternative", type=click.Choice(get_args(Alternative)), default="two-sided")
@click.option(
    "--margin", metavar="CLAIM=SIZE", help="non-inferiority=0.01, superiority=0.01, equivalence=0.5 or =-0.5:1."
)
@click.option("--better", type=click.Choice(["higher", "lower"]), default="higher", help="With --margin.")
@click.option(
    "--interaction", metavar="ROWSxCOLUMNS",
    help="An interaction of 2x2 arms, with shares 9:1x6:3:1; with --release a covariate or another experiment.",
)  # fmt: skip
@click.option("--curve", is_flag=True, help="Also for fewer and for more people.")
@click.option("--json", "as_json", is_flag=True, help="Print the documented plain data.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write a page with both curves into this file.")
def power(**given: Any) -> None:
    """Plan an experiment: give two of --people, --effect and --power, and how the metric varies.

    \b
    kanab power --rate 0.1 --effect 0.01 --power 0.8
    kanab power --sd 30 --mean 12 --people 20000 --power 0.8 --shares A=9,B=1
    kanab power --release checkout.json --metric spend --adjust tier --effect 0.05 --relative --power 0.8
    """
    data, curve = planned(given)
    if given["html"]:
        write_whole(given["html"], _page(data | {"curve": curve(_STEPS)}, curve(_FINE)))
    if given["as_json"]:
        click.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
        return
    click.echo(power_text(data))
    if given["html"]:
        click.echo(f"\nPage: {given['html']}")


def planned(given: Mapping[str, Any]) -> tuple[dict[str, Any], Curve]:
    """The answer as plain data, and the same for other numbers of people."""
    left_out = sum(given[name] is None for name in ("people", "effect", "power"))
    if left_out == 0:
        raise PlanError("--people, --effect and --power are all given", "Leave out the one to solve for.")
    if left_out > 1:
        raise PlanError("two of --people, --effect and --power are needed", "The third is solved for.")
    basis, solve = _interaction(given) if given["interaction"] else _effect(given)
    effect = given["effect"]
    if effect is not None and given["relative"]:
        effect *= _known(basis.mean)
    found = solve(given["people"], effect, given["power"])
    asked = _USUAL_POWER if given["power"] is None else given["power"]
    curve = partial(_curve, solve, found, asked)
    data = found | {
        "mean": basis.mean, "binary": basis.binary, "confidence": given["confidence"],
        "multiplies": given["multiplies"], "notes": list(basis.notes),
        "curve": curve(_STEPS) if given["curve"] else None,
    }  # fmt: skip
    return data, curve


def _page(data: Mapping[str, Any], points: list[dict[str, Any]]) -> str:
    """The page, with pictures where the [charts] extra is installed."""
    try:
        charts = power_charts(data, points)
    except MissingExtraError:
        charts = {}
    return power_report(data, charts=charts)


def _effect(given: Mapping[str, Any]) -> tuple[Basis, Solve]:
    """An arm against the control."""
    test = PlannedTest(given["confidence"], given["alternative"], _margin(given), given["correction"], given["tests"])
    basis, noise = noise_of(given)

    def solve(people: int | None, effect: float | None, power: float | None) -> dict[str, Any]:
        one = solve_power(noise, people=people, effect=effect, power=power, test=test)
        return {
            "solved": one.solved, "people": one.people, "arms": {label(arm): n for arm, n in one.arms},
            "control": label(noise.control), "arm": label(one.arm), "effect": one.effect, "relative": one.relative,
            "power": one.power, "alternative": test.alternative, "correction": test.correction,
            "margin": None if test.margin is None else str(test.margin), "interaction": None,
        }  # fmt: skip

    return basis, solve


def _margin(given: Mapping[str, Any]) -> Margin | None:
    """``non-inferiority=0.01``, or ``equivalence=-0.5:1`` with two limits."""
    if given["margin"] is None:
        if given["better"] != "higher":
            raise PlanError("--better says in which direction a margin lies", "Give --margin, or --alternative less.")
        return None
    claim, _, text = given["margin"].partition("=")
    try:
        sizes = [float(part) for part in text.split(":")]
    except ValueError:
        sizes = []
    if claim not in get_args(Claim) or len(sizes) not in (1, 2):
        claims = ", ".join(f"{one}=SIZE" for one in get_args(Claim))
        raise PlanError("--margin cannot be read", f"Write one of: {claims}; or equivalence=-0.5:1.")
    size = sizes[0] if len(sizes) == 1 else (sizes[0], sizes[1])
    return Margin(claim, size, given["better"], given["relative"])


def _interaction(given: Mapping[str, Any]) -> tuple[Basis, Solve]:
    """By how much one cell departs from what its row and its column say."""
    clash = [flag for flag in ("shares", "control", "margin", "tests", "adjust", "multiplies") if given[flag]]
    clash += ["correction"] if given["correction"] != "none" else []
    clash += ["alternative"] if given["alternative"] != "two-sided" else []
    if clash:
        raise PlanError(
            f"--interaction and --{clash[0]} contradict each other",
            "An interaction is one F test over all cells; shares are written 9:1x1:1.",
        )
    basis, cells = crossed_noise_from(given)

    def solve(people: int | None, effect: float | None, power: float | None) -> dict[str, Any]:
        one = interaction_power(cells, people=people, effect=effect, power=power, confidence=given["confidence"])
        table = {"rows": len(cells.rows), "columns": len(cells.columns), "where": one.where, "df": list(one.df)}
        return {
            "solved": one.solved, "people": one.people, "arms": None, "control": None, "arm": None,
            "effect": one.effect, "relative": one.effect / abs(basis.mean) if basis.mean else None,
            "power": one.power, "alternative": "two-sided", "correction": "none", "margin": None,
            "interaction": table,
        }  # fmt: skip

    return basis, solve


def _known(mean: float | None) -> float:
    if not mean:
        raise PlanError("a relative effect needs a control mean other than 0", "Give --mean, or an effect in units.")
    return abs(mean)


def _curve(solve: Solve, found: Mapping[str, Any], asked: float, steps: Sequence[float]) -> list[dict[str, Any]]:
    """For so many times the people; what cannot be reached is None."""
    rows = []
    for people in dict.fromkeys(round(found["people"] * step) for step in steps):
        smallest = _reached(solve, people, None, asked)
        same = _reached(solve, people, found["effect"], None)
        rows.append(
            {
                "people": people, "at_power": asked, "effect": smallest.get("effect"),
                "relative": smallest.get("relative"), "power": same.get("power"),
            }
        )  # fmt: skip
    return rows


def _reached(solve: Solve, people: int, effect: float | None, power: float | None) -> Mapping[str, Any]:
    """The answer, or nothing where there is none: too few people for any possible effect."""
    try:
        return solve(people, effect, power)
    except AnalysisError:
        return {}
