"""The power calculator: people needed, detectable effect or power, from numbers, from rows or from a release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kanab.arguments import check_arguments
from kanab.description import AnyCovariate, Mean, Ratio, Rows
from kanab.errors import AnalysisError, PlanError
from kanab.fields import share
from kanab.planning.power import PlannedTest, Power, solve_power
from kanab.planning.spread import EVEN, spread_of_amounts, spread_of_rate, spread_of_release, spread_of_rows
from kanab.privacy.release import Release
from kanab.tally.factor import Level

USUAL_POWER = 0.8


@check_arguments()
def power(
    source: Any = None,
    metric: str | Mean | Ratio | None = None,
    *,
    people: int | None = None,
    effect: float | str | None = None,
    power: float | None = None,
    rate: float | None = None,
    sd: float | Mapping[Any, float] | None = None,
    mean: float | None = None,
    arm: str | None = None,
    control: Level = None,
    shares: Mapping[Any, float] | None = None,
    adjust: Sequence[AnyCovariate] = (),
    grows: bool = False,
    rows: Rows | None = None,
    test: PlannedTest | None = None,
) -> Power:
    """Return people needed, the smallest effect that is found (MDE), or the power: give two, or one at a power of 0.8.

    How the metric varies is known from one of source, rate and sd.

    source: rows of before the experiment, or a `Release`.
    metric: what to plan for, in the source: a name, `Mean` or `Ratio`.
    people: how many take part, in all arms together.
    effect: in units of the metric, or "5%" of the control's mean.
    power: the probability to find the effect.
    rate: the share of people with a 0/1 metric.
    sd: the standard deviation of an amount, or a dict by arm.
    mean: the control's mean of an amount, for relative effects.
    arm: a column of rows, or the experiment of a release.
    control: the arm to compare with.
    shares: how people are divided, a dict by arm; two equal arms unless given.
    adjust: what effects are adjusted for: names, `Covariate` or `Number`.
    grows: whether the effect multiplies amounts.
    rows: which rows of the source count, and how they become people.
    test: how results will be read: a `PlannedTest`.

    Raises `PlanError` where not one of rate, sd and source is given, or what does not belong to it, and `AnalysisError`
    for what has no solution.

    >>> print(power(rate=0.05, effect="10%"))
    62,464 people in all (31,232 per arm) find a change of 0.5 points in a rate of 5 % (+10 %) with power 80 %.
    95 % confidence; two-sided.
    >>> round(power(sd=30, mean=12, people=20_000, shares={"A": 9, "B": 1}).effect, 3)
    1.982
    """
    if power is None and (people is None or effect is None):
        power = USUAL_POWER
    relative = isinstance(effect, str) and effect.strip().endswith("%")
    try:
        size = share(effect) if isinstance(effect, str) else effect
    except ValueError:
        raise AnalysisError("effect must be a number, or a percentage of the control's mean", "effect='5%'.") from None
    given = [name for name, value in (("source", source), ("rate", rate), ("sd", sd)) if value is not None]
    if len(given) != 1:
        fact = f"{' and '.join(given)} contradict each other" if given else "how the metric varies is not said"
        raise PlanError(fact, "Give one of: rows of before, a release, a rate (0/1 metrics) or an sd (amounts).")
    of_source = {"metric": metric, "arm": arm, "adjust": adjust or None, "rows": rows}
    wrong: dict[str, Any] = {"rows": rows} if isinstance(source, Release) else of_source if source is None else {}
    wrong |= {"mean": mean} if sd is None else {}
    wrong |= {} if rate is None else {"grows (--multiplies)": grows or None}
    for name, value in wrong.items():
        if value is not None:
            raise PlanError(f"{name} does not go with {given[0]}", "Leave it out.")
    even = EVEN if shares is None else shares
    if rate is not None:
        spread = spread_of_rate(rate, shares=even, control=control)
    elif sd is not None:
        spread = spread_of_amounts(sd, mean=mean, shares=even, control=control, grows=grows)
    elif isinstance(source, Release):
        named = metric.column if isinstance(metric, Mean | Ratio) else metric
        columns = [each if isinstance(each, str) else each.column for each in adjust]
        plan = source.plan.experiment(arm)
        spread = spread_of_release(source, plan, named, adjust=columns, shares=shares, control=control, grows=grows)
    elif metric is None:
        raise PlanError("missing metric", "Name what to plan for: metric='spend'.")
    else:
        spread = spread_of_rows(
            source, metric, arm=arm, control=control, adjust=adjust, shares=even, grows=grows, rows=rows
        )
    return solve_power(spread, people=people, effect=size, power=power, relative=relative, test=test)
