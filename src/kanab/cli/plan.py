"""kanab plan: what a plan will give, before anybody is counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanab.cli.help_pages import several
from kanab.cli.output import PAGE, json_option, output_option, show
from kanab.cli.source_options import SHARE, numbers
from kanab.errors import PlanError, listed
from kanab.fields import share

if TYPE_CHECKING:
    from kanab.plan.model import ExperimentPlan, Plan
    from kanab.planning.forecast import Baseline, Forecast
    from kanab.planning.spread import Spread

_STEPS = tuple(step / 8 for step in range(2, 17))


@click.command()
@click.argument("file", type=click.Path())
@click.option("--per-day", metavar="N", help="People per day who enter an experiment, or for each: checkout=500.")
@click.option("--days", type=float, help="Days during which people enter.")
@click.option(
    "--release",
    "release_file",
    type=click.Path(),
    help="Release of an earlier experiment: shares of levels, variances.",
)
@several("--rate", "METRIC=RATE", "The control's rate of a 0/1 metric.")
@several("--sd", "METRIC=SD", "Standard deviation of an amount, per person.")
@several("--mean", "METRIC=MEAN", "The control's mean, for relative effects.")
@click.option("--power", type=SHARE, default=0.8, show_default=True, help="Power of the detectable effects.")
@click.option("--confidence", type=SHARE, default=0.95, show_default=True, help="Confidence of the intervals.")
@click.option("--epsilon", metavar="E,…", help="What noise at these ε costs: 0.5,1,2. Without it, that of the plan.")
@click.option("--delta", type=float, help="The δ of --epsilon; without it, that of the plan, or 1e-6.")
@json_option
@output_option("--html", mark=PAGE, words="Write a page with tables and curves to this file.")
def plan(file: str, **flags: Any) -> None:
    """Forecast what a plan will give.

    For the plan in FILE: its classes, the people and days until each has k, what is merged, the detectable effects.

    \b
    kanab plan kanab.toml --per-day 500 --days 28 --rate bought=0.1 --sd spend=30
    kanab plan kanab.toml --per-day 500 --days 28 --release earlier.json
    kanab plan kanab.toml --per-day 500 --days 28 --rate bought=0.1 --epsilon 0.5,1,2
    """
    from kanab.plan.file import read_plan
    from kanab.planning.forecast import forecast_plan
    from kanab.planning.power import PlannedTest

    planned = read_plan(file)
    if not 0 < flags["power"] < 1:
        raise PlanError("--power must lie between 0 and 1", "For example 0.8.")
    forecast = partial(
        forecast_plan, planned, per_day=_per_day(flags["per_day"]), baseline=_baseline(planned, flags),
        power=flags["power"], test=PlannedTest(flags["confidence"]), epsilons=_epsilons(flags["epsilon"]),
        delta=flags["delta"],
    )  # fmt: skip
    outlook = forecast(days=flags["days"])
    show(
        flags,
        text=lambda: f"{_summary(outlook)}\n\n{outlook}",
        data=outlook.to_dict,
        page=lambda: _page(outlook, Path(file).name, forecast, flags["days"]),
        name="Page",
    )


def _page(outlook: Forecast, name: str, forecast: Callable[..., Forecast], days: float | None) -> str:
    """Return the page, with figures where days are flags and effects are known."""
    from kanab.planning.epsilon import epsilon_range
    from kanab.planning.planning_pages import plan_report
    from kanab.planning.planning_pictures import epsilon_figure, plan_figures

    data = outlook.to_dict() | {"days": days}
    figures, epsilon = [], None
    if outlook.epsilons:
        asked = [row.epsilon for row in outlook.epsilons]
        wide = forecast(days=days, epsilons=epsilon_range(asked)).to_dict()["epsilons"]
        epsilon = epsilon_figure(wide, data["epsilons"])
    if days is not None and outlook.effects:
        later = {days * step: forecast(days=days * step).to_dict() for step in _STEPS}
        figures = plan_figures(data, later)
    return plan_report(
        data, name, _summary(outlook), outlook.tables(), figures=figures, epsilon=epsilon, account=outlook.account
    )


def _summary(outlook: Forecast) -> str:
    """Say when every table is whole: the one that needs the most people decides."""
    known = [linkage for linkage in outlook.linkages if linkage.people is not None]
    if not known:
        return "Nothing can be forecast: declare arms and levels."
    slowest = max(known, key=lambda linkage: (linkage.days or 0, linkage.people or 0))
    days = "" if slowest.days is None else f", {slowest.days:,g} days"
    every = (
        "Every table is"
        if len(known) == len(outlook.linkages)
        else f"{len(known)} of {len(outlook.linkages)} tables are"
    )
    decides = f" ({slowest.linkage} decides)" if len(known) > 1 else ""
    return f"{every} whole, with k = {outlook.k} people in every class, after {slowest.people:,} people{days}{decides}."


def _epsilons(text: str | None) -> list[float]:
    """Read ``0.5,1,2``."""
    try:
        return [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise PlanError("--epsilon cannot be read", "Write --epsilon 1, or several: --epsilon 0.5,1,2.") from None


def _per_day(text: str | None) -> float | dict[str, float] | None:
    """Read ``500``, or ``checkout=500,banner=300``."""
    if text is None:
        return None
    if "=" in text:
        return numbers((text,), "--per-day")
    try:
        return float(text)
    except ValueError:
        raise PlanError("--per-day cannot be read", "Write --per-day 500, or --per-day checkout=500.") from None


def _baseline(plan: Plan, flags: Mapping[str, Any]) -> Baseline:
    """Return what a release says, overridden by what the flags say."""
    from kanab.planning.forecast import Baseline, baseline_from_release
    from kanab.privacy.release_json import read_release

    rates = numbers(flags["rate"], "--rate", share)
    sds, means = (numbers(flags[name], f"--{name}") for name in ("sd", "mean"))
    for flag, values in (("--rate", rates), ("--sd", sds), ("--mean", means)):
        if set(values) - set(plan.metric_names):
            raise PlanError(f"{flag} names an unknown metric", f"The plan has: {listed(plan.metric_names)}.")
    if both := set(rates) & set(sds):
        raise PlanError(f"--rate and --sd both name {listed(sorted(both))}", "A metric has the one or the other.")
    if alone := set(means) - set(sds):
        raise PlanError(f"--mean needs --sd for {listed(sorted(alone))}", "A rate is its own mean.")
    if any(not 0 < rate < 1 for rate in rates.values()):
        raise PlanError("a rate must lie between 0 and 1", "For example --rate bought=0.05.")
    if any(not 1e-100 < sd < 1e100 for sd in sds.values()) or not all(map(math.isfinite, means.values())):
        raise PlanError("a standard deviation must be positive, a mean finite", "For example --sd spend=30.")
    if not flags["release_file"]:
        return Baseline(rates=rates, sds=sds, means=means)
    return _fitted(plan, baseline_from_release(read_release(flags["release_file"])), Baseline({}, rates, sds, means))


def _fitted(plan: Plan, earlier: Baseline, flagged: Baseline) -> Baseline:
    """Return an earlier experiment's variances under this plan's names and shares.

    An experiment that the release does not know, or whose arms have changed, takes the metric's
    spread from the first experiment that has it.
    """
    from kanab.planning.forecast import Baseline

    rates, sds, means = dict(flagged.rates), dict(flagged.sds), dict(flagged.means)
    spreads: dict[tuple[str, str], dict[str, Spread]] = {}
    binary = {metric.name for metric in plan.metrics if metric.binary}
    for (name, metric), earlier_spreads in earlier.spreads.items():
        if metric in {*flagged.rates, *flagged.sds}:
            continue
        experiment = next((planned for planned in plan.experiments if planned.name == name), None)
        reshared = {key: _reshared(spread, experiment) for key, spread in earlier_spreads.items()}
        fits = {key: spread for key, spread in reshared.items() if spread is not None}
        if fits:
            spreads[name, metric] = fits
        plain = earlier_spreads.get("")
        if plain is not None and plain.mean is not None and metric not in {*rates, *sds}:
            if metric in binary and 0 < plain.mean < 1:
                rates[metric] = plain.mean
            else:
                sds[metric], means[metric] = math.sqrt(float(plain.shares @ plain.variances)), plain.mean
    return Baseline(earlier.levels, rates, sds, means, spreads)


def _reshared(spread: Spread, experiment: ExperimentPlan | None) -> Spread | None:
    """Return the same spread at this plan's shares, or None if arms or control are others."""
    import numpy as np

    if experiment is None or experiment.shares is None:
        return None
    shares = dict(experiment.shares)
    if set(shares) != set(spread.arms) or experiment.control not in (None, spread.control):
        return None
    weights = np.array([float(shares[arm]) for arm in spread.arms])
    return replace(spread, shares=weights / weights.sum())
