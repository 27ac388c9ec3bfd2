"""What a plan will give: classes, people and days until nothing has to be merged, and detectable effects.

Numbers come from the plan, from the traffic, and from a baseline: shares of levels, rates, standard
deviations, or a whole release of an earlier experiment. Nothing here reads anybody's data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Literal

import numpy as np
import scipy

from kanab.arguments import check_arguments
from kanab.dataframes import Frames, Tables
from kanab.errors import AnalysisError, DesignError, LevelError, PlanError
from kanab.plan.check import find_warnings
from kanab.plan.declared import control_of
from kanab.plan.joint_shares import share_table
from kanab.plan.model import ExperimentPlan, Linkage, MetricPlan, Plan
from kanab.plan.values import duration
from kanab.planning.epsilon import EpsilonForecast, PersonAccount, check_budgets, forecast_epsilon, person_account
from kanab.planning.planning_pictures import forecast_figure
from kanab.planning.power import MOST_PEOPLE, PlannedTest, Power, allotted, solve_power
from kanab.planning.spread import Spread, spread_of_amounts, spread_of_means, spread_of_rate
from kanab.privacy.class_rules import LEAST_DF, draft_table
from kanab.privacy.merging import SAFETY_FACTOR
from kanab.privacy.release import Release
from kanab.report.figure import Figure
from kanab.stats.adjust import adjusted_means
from kanab.stats.effect import ArmMeans, plain_means
from kanab.stats.gram import Floats
from kanab.stats.ratio import adjusted_ratio_means, ratio_means
from kanab.tabular import Table, number
from kanab.tally.factor import Factor, Level, as_level, numeric_scores
from kanab.tally.tally import Tally

SURE = 0.95
"""How probably a forecast number of people is enough."""

_DAY = timedelta(days=1)


@check_arguments()
@dataclass(frozen=True)
class Baseline:
    """What is known before the start: shares of levels, and how metrics vary. All of it may be missing.

    ``levels`` are shares per covariate and level; ``rates`` of 0/1 metrics; ``sds`` (and ``means``) of
    others, for a ratio metric that of its linearised form. ``spreads`` are those of an earlier
    experiment, by experiment and metric, the plain one and one per covariate.
    """

    levels: Mapping[str, Mapping[Level, float]] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    sds: Mapping[str, float] = field(default_factory=dict)
    means: Mapping[str, float] = field(default_factory=dict)
    spreads: Mapping[tuple[str, str], Mapping[str, Spread]] = field(default_factory=dict)


@dataclass(frozen=True)
class LinkageForecast:
    """The forecast of one table of the plan.

    ``people`` (of its experiments) are needed so that no level is merged and every class holds k, with
    probability ``SURE``; ``days`` that takes. ``batch`` people come together at a seal, or by the end;
    then so many ``levels_kept`` are left, or the table is ``left_out``. None where it is not known.
    """

    linkage: str
    classes: int | None
    levels: int | None
    equal_shares: bool
    people: int | None
    days: float | None
    batch: int | None
    levels_kept: int | None
    left_out: bool | None

    @property
    def outcome(self) -> str:
        """What is left at a seal, in words."""
        if self.left_out:
            return "left out"
        return "–" if self.levels_kept is None else f"{self.levels_kept} of {self.levels}"


@dataclass(frozen=True)
class EffectForecast:
    """The smallest effect on one metric that will be seen, plain or adjusted for a covariate."""

    experiment: str
    metric: str
    adjusted_for: str | None
    detectable: Power


@dataclass(frozen=True)
class Forecast(Frames[Literal["effects", "linkages", "epsilons", "notes"]]):
    """The forecast of a whole plan, as plain data; ``str`` is a table."""

    k: int
    seal: str
    first_seal: float | None
    linkages: tuple[LinkageForecast, ...]
    effects: tuple[EffectForecast, ...]
    notes: tuple[str, ...]
    epsilons: tuple[EpsilonForecast, ...] = ()
    account: PersonAccount | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as plain data, ready for JSON."""
        effects = [
            {
                "experiment": row.experiment, "metric": row.metric, "adjusted_for": row.adjusted_for,
                "people": row.detectable.people, "effect": row.detectable.effect,
                "relative": row.detectable.relative, "multiplying": _multiplying(row.detectable),
                "power": row.detectable.power,
                "confidence": row.detectable.test.confidence,
            }
            for row in self.effects
        ]  # fmt: skip
        linkages = [asdict(linkage) for linkage in self.linkages]
        seals = {"k": self.k, "sure": SURE, "seal": self.seal, "first_seal": self.first_seal}
        plain = seals | {"linkages": linkages, "effects": effects, "notes": list(self.notes)}
        plain |= {"account": asdict(self.account)} if self.account is not None else {}
        return plain | ({"epsilons": [asdict(row) for row in self.epsilons]} if self.epsilons else {})

    @check_arguments()
    def chart(self, *, metric: str | None = None) -> Figure:
        """Return a chart of the smallest effects that are found, of one metric or of all.

        Raises `AnalysisError` where there is nothing to draw.
        """
        return forecast_figure(self.to_dict(), metric)

    def _tables(self) -> Tables:
        data = self.to_dict()
        plain = {name: data.get(name, []) for name in ("effects", "linkages", "epsilons")}
        return plain | {"notes": [{"sentence": sentence} for sentence in data["notes"]]}

    def tables(self) -> list[Table]:
        """Return the tables of the plan, and a table of detectable effects if any are known."""
        rows = tuple(
            (row.linkage, *map(_or_dash, (row.classes, row.people, row.days, row.batch)), row.outcome)
            for row in self.linkages
        )
        header = ("table", "classes", f"people for k = {self.k}", "days", "people a seal", "levels then")
        tables = [Table(header, rows)]
        if self.effects:
            tables.append(self._effects())
        if self.epsilons:
            tables.append(self._epsilons())
        return tables

    def _epsilons(self) -> Table:
        """Return what every ε costs: wider intervals, or more people for the same width."""
        header = ("experiment", "metric", "ε", "people", "interval wider by", "people for the same width")
        rows = [
            (row.experiment, row.metric, f"{row.epsilon:g}", f"{row.people:,}", _share(row.wider).lstrip("+"),
             f"{row.people_needed:,} ({_share(row.people_needed / row.people - 1)})")
            for row in self.epsilons
        ]  # fmt: skip
        return Table(header, tuple(rows))

    def _effects(self) -> Table:
        """Return the detectable effects; amounts with a mean have a second one, which multiplies them."""
        header = ("experiment", "metric", "adjusted for", "people", "detectable", "relative", "if it multiplies")
        rows = [
            (
                row.experiment, row.metric, row.adjusted_for or "–", f"{row.detectable.people:,}",
                number(row.detectable.effect), _share(row.detectable.relative), _share(_multiplying(row.detectable)),
            )
            for row in self.effects
        ]  # fmt: skip
        columns = len(header) - all(row.detectable.other is None for row in self.effects)
        return Table(header[:columns], tuple(row[:columns] for row in rows))

    def __str__(self) -> str:
        account = [] if self.account is None else [f"{self.account.table}\n\n{self.account.sentence}"]
        notes = ["\n".join(self.notes)] if self.notes else []
        return "\n\n".join([*map(str, self.tables()), *account, *notes])


def _multiplying(power: Power) -> float | None:
    """Return the detectable effect, as a share of the mean, if it multiplies amounts; rates and totals have none."""
    return None if power.other is None else power.other.relative


def _share(relative: float | None) -> str:
    return "–" if relative is None else f"{100 * relative:+.3g} %"


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


@check_arguments()
def forecast_plan(
    plan: Plan,
    *,
    per_day: float | Mapping[str, float] | None = None,
    days: float | None = None,
    baseline: Baseline | None = None,
    power: float = 0.8,
    test: PlannedTest | None = None,
    epsilons: Sequence[float] = (),
    delta: float | None = None,
) -> Forecast:
    """Forecast every table and every effect of a plan.

    ``per_day`` are people who meet an experiment, in all or by experiment; ``days`` how long it runs.
    A pair of experiments is met by whoever meets both, taken to be everybody of the smaller one.
    With ``epsilons``, or a plan that has a budget, it says what noise at that ε and ``delta`` costs.
    Raises `PlanError` where traffic or shares are not positive numbers, or name what the plan has not.
    """
    facts = baseline or Baseline()
    traffic = _Traffic(plan, per_day, days)
    linkages = tuple(_linkage(plan, linkage, facts, traffic) for linkage in plan.linkages)
    budgets, costs = check_budgets(plan, epsilons, delta), []
    effects: list[EffectForecast] = []
    unknown: list[str] = []
    for experiment in plan.experiments:
        people = traffic.people((experiment.name,))
        for metric in (plan.metrics_by_name[name] for name in plan.outcomes):
            spreads = _spreads(experiment, metric, facts)
            if not spreads:
                unknown.append(metric.name)
            elif people is not None:
                names = (experiment.name, metric.name)
                effects += _detectable(names, spreads, people, power, test)
                at = [forecast_epsilon(plan, each, names, spreads[""], people) for each in budgets if "" in spreads]
                costs += [cost for cost in at if cost is not None]
    notes = _notes(linkages, list(dict.fromkeys(unknown)), traffic)
    seal = "end" if plan.cohorts is None else plan.cohorts.seal
    return Forecast(
        plan.k, seal, traffic.first_seal, linkages, tuple(effects), tuple(notes), tuple(costs), person_account(plan)
    )


@dataclass(frozen=True, eq=False)
class _Traffic:
    """The people who come, and how many of them are sealed together."""

    plan: Plan
    per_day: float | Mapping[str, float] | None
    days: float | None

    def __post_init__(self) -> None:
        rates = self.per_day.values() if isinstance(self.per_day, Mapping) else [self.per_day]
        for value in (*rates, self.days):
            if value is not None and not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise PlanError("people per day and days must be positive numbers", "For example 500 people, 14 days.")
        named = set(self.per_day) if isinstance(self.per_day, Mapping) else set()
        if named - set(self.plan.experiment_names):
            raise PlanError("people per day name an unknown experiment", "Use the plan's own names.")

    def daily(self, experiments: tuple[str, ...]) -> float | None:
        """Return the people a day who are in all of these experiments."""
        rates, inside = [], 1.0
        for name in experiments:
            rate = self.per_day.get(name) if isinstance(self.per_day, Mapping) else self.per_day
            if rate is None:
                return None
            rates.append(rate)
            inside *= 1 - self.plan.experiment(name).holdout
        exclusive = any(set(self.plan.experiment(name).exclude_with) & set(experiments) for name in experiments)
        return 0.0 if exclusive and len(experiments) > 1 else min(rates) * inside

    def people(self, experiments: tuple[str, ...]) -> int | None:
        """Return the people who will have come in the end."""
        daily = self.daily(experiments)
        return None if daily is None or self.days is None else math.floor(daily * self.days)

    def batch(self, experiments: tuple[str, ...]) -> int | None:
        """Return the people who are sealed together: those of a seal's cohorts, or everybody."""
        cohorts = self.plan.cohorts
        if cohorts is None or cohorts.seal == "end":
            return self.people(experiments)
        daily = self.daily(experiments)
        days = max(duration(cohorts.seal), duration(cohorts.every)) / _DAY
        return None if daily is None else math.floor(daily * days)

    @property
    def first_seal(self) -> float | None:
        """The days until the first cohort is sealed: its period, window and late messages are over."""
        cohorts = self.plan.cohorts
        if cohorts is None or cohorts.seal == "end":
            return None
        ripe = (duration(cohorts.every) + duration(cohorts.window) + duration(self.plan.nonce_life)) / _DAY
        tick = duration(cohorts.seal) / _DAY
        return math.ceil(ripe / tick) * tick


def _linkage(plan: Plan, linkage: Linkage, baseline: Baseline, traffic: _Traffic) -> LinkageForecast:
    """Forecast one table: classes, people, days, and what merging leaves at one seal."""
    arms = [_arms(plan.experiment(name)) for name in linkage.experiments]
    levels, equal = (None, False) if linkage.covariate is None else _levels(plan, linkage.covariate, baseline)
    if None in arms or (linkage.covariate is not None and levels is None):
        batch = traffic.batch(linkage.experiments)
        return LinkageForecast(linkage.name, None, None, False, None, None, batch, None, None)
    sides = [side for side in (*arms, levels) if side is not None]
    shares = np.ones(1)
    for side in sides:
        shares = np.outer(shares, list(side.values())).ravel()
    joint = plan.joint_shares(*linkage.experiments) if len(linkage.experiments) == 2 else None
    if joint is not None:
        shares = share_table(joint, *(list(side) for side in sides)).ravel()
    groups = [(shares[shares > 0], plan.k)]
    if levels is not None:
        groups.append((np.array(list(levels.values())), math.ceil(SAFETY_FACTOR * plan.k / min(sides[0].values()))))
    people = people_needed(groups, least=len(shares) + LEAST_DF)
    daily, batch = traffic.daily(linkage.experiments), traffic.batch(linkage.experiments)
    days = None if not daily else math.ceil(10 * people / daily) / 10
    levels_kept, left_out = (None, None) if batch is None else _merged(plan, linkage, sides, shares, batch)
    size = None if levels is None else len(levels)
    return LinkageForecast(
        linkage.name, len(shares), size, equal, people, days, batch, levels_kept, left_out
    )  # fmt: skip


def _merged(
    plan: Plan, linkage: Linkage, sides: list[dict[Level, float]], shares: Floats, people: int
) -> tuple[int | None, bool]:
    """Return how many levels are left if people come exactly in their shares; the gate's own rules decide."""
    factors = [Factor(name, tuple(side), "arm") for name, side in zip(linkage.experiments, sides, strict=False)]
    if linkage.covariate is not None:
        levels = tuple(sides[-1])
        factors.append(Factor(linkage.covariate, levels, "covariate", numeric_scores(levels)))
    cells = np.array(allotted(people, shares), dtype=object).reshape([len(side) for side in sides])
    tally = Tally(tuple(factors), cells)
    arms = [tally.people_by(name) for name in linkage.experiments]
    if any(n < plan.k for side in arms for n in side.values()):
        return None, True
    draft = draft_table(linkage, tally, plan, None)
    if draft.why or linkage.covariate is None:
        return None, bool(draft.why)
    return len(draft.table.factor(linkage.covariate).levels), False


def _arms(experiment: ExperimentPlan) -> dict[Level, float] | None:
    """Return the shares of the arms, adding up to one."""
    if experiment.shares is None:
        return None
    whole = math.fsum(share for _, share in experiment.shares)
    return {arm: share / whole for arm, share in experiment.shares}


def _levels(plan: Plan, name: str, baseline: Baseline) -> tuple[dict[Level, float] | None, bool]:
    """Return the shares of the levels: as known, else equal ones; None if not even their number is known."""
    declared = plan.covariate(name)
    if name in baseline.levels:
        shares = {as_level(level, name): share for level, share in baseline.levels[name].items()}
        whole = math.fsum(shares.values())
        if not shares or min(shares.values()) <= 0:
            raise PlanError(f"the shares of {name!r} must be positive numbers", "One for every level that people have.")
        return {level: share / whole for level, share in shares.items()}, False
    if declared.levels is not None:
        levels: tuple[Level, ...] = declared.levels
    elif declared.bins is not None:
        levels = tuple(range(declared.bins if isinstance(declared.bins, int) else len(declared.bins) + 1))
    elif declared.top is not None:
        levels = (*(f"{place + 1}." for place in range(declared.top)), "other")
    else:
        return None, False
    return dict.fromkeys(levels, 1 / len(levels)), True


def _spreads(experiment: ExperimentPlan, metric: MetricPlan, baseline: Baseline) -> dict[str, Spread]:
    """Return how the metric varies: plain under "", adjusted under the covariate's name."""
    if (experiment.name, metric.name) in baseline.spreads:
        return dict(baseline.spreads[experiment.name, metric.name])
    if experiment.shares is None:
        return {}
    shares, control = dict(experiment.shares), experiment.control
    if metric.name in baseline.rates:
        return {"": spread_of_rate(baseline.rates[metric.name], shares=shares, control=control)}
    if metric.name in baseline.sds:
        mean = baseline.means.get(metric.name)
        return {"": spread_of_amounts(baseline.sds[metric.name], mean=mean, shares=shares, control=control)}
    return {}


def _detectable(
    names: tuple[str, str], spreads: Mapping[str, Spread], people: int, power: float, test: PlannedTest | None
) -> list[EffectForecast]:
    effects = []
    for covariate, spread in spreads.items():
        if people >= spread.fewest:
            try:
                solved = solve_power(spread, people=people, power=power, test=test)
            except AnalysisError:  # so few people see no effect that is possible
                continue
            effects.append(EffectForecast(*names, covariate or None, solved))
    return effects


@check_arguments()
def baseline_from_release(released: Release) -> Baseline:
    """Return the shares of levels and the spread of every metric and ratio of an earlier experiment's release."""
    levels: dict[str, dict[Level, float]] = {}
    spreads: dict[tuple[str, str], dict[str, Spread]] = {}
    for tally in released.tables.values():
        for factor in tally.covariates:
            people = {level: n for level, n in tally.people_by(factor.name).items() if n > 0}
            levels.setdefault(factor.name, {level: n / sum(people.values()) for level, n in people.items()})
        if len(tally.arms) == 1:
            plan = released.plan.experiment(tally.experiment.name)
            shares = None if plan.shares is None else dict(plan.shares)
            for metric in (released.plan.metrics_by_name[name] for name in released.plan.outcomes):
                of_metric = spreads.setdefault((plan.name, metric.name), {})
                for name in ("", *(factor.name for factor in tally.covariates if factor.name in plan.adjust)):
                    try:
                        means = _means(tally.as_categories(released.plan.categories), metric, adjusted=bool(name))
                        rate = metric.ratio is None and tally.moments_of(metric.name).metric.binary
                        control, _ = control_of(plan, tally.experiment)
                        spread = spread_of_means(means, shares=shares, control=control, rate=rate)
                        of_metric.setdefault(name, spread)
                    except (AnalysisError, DesignError, LevelError):  # withheld, nothing varies, or too few people
                        continue
    return Baseline(levels=levels, spreads={key: by_covariate for key, by_covariate in spreads.items() if by_covariate})


def _means(tally: Tally, metric: MetricPlan, *, adjusted: bool) -> ArmMeans:
    """Return the means of a metric, or of a ratio by the products that were kept."""
    if metric.ratio is not None:
        return adjusted_ratio_means(tally, *metric.ratio) if adjusted else ratio_means(tally, *metric.ratio)
    return adjusted_means(tally, metric.name) if adjusted else plain_means(tally, metric.name)


def _notes(linkages: tuple[LinkageForecast, ...], unknown: list[str], traffic: _Traffic) -> list[str]:
    """Return what the numbers rest on, one sentence each."""
    notes = [f"People: no level merged and k in every class with probability {SURE:.0%}, at the planned shares."]
    equal = [linkage.linkage for linkage in linkages if linkage.equal_shares]
    if equal:
        notes.append(f"Levels are taken to be equally frequent in {', '.join(equal)}: rarer ones need more people.")
    open_levels = [linkage.linkage for linkage in linkages if linkage.classes is None]
    if open_levels:
        notes.append(f"Levels or arms are not declared, so nothing is forecast for {', '.join(open_levels)}.")
    if unknown:
        notes.append(f"How it varies is not known, so no effect is forecast: {', '.join(unknown)}.")
    if traffic.first_seal is not None:
        notes.append(
            f"Every seal is checked by itself, so each needs these people; the first after {traffic.first_seal:g} days."
        )
    if traffic.per_day is None:
        notes.append("Give people per day (and days) for days, seals and effects.")
    if len(linkages) > 1 and traffic.plan.budget is None:
        notes.append("Whether all tables together may be released (leverage) is known only when they are counted.")
    return notes + (find_warnings(traffic.plan) if traffic.plan.cohorts is not None else [])


def people_needed(groups: Sequence[tuple[Floats, int]], least: int = 1) -> int:
    """Return the fewest people with whom every group of a share holds its number, with probability `SURE`.

    ``groups`` are shares with the number that each must hold. The chances that one holds fewer are
    binomial, and added up, which never gives too few people. ``least`` is a floor for everybody.
    Raises `AnalysisError` where a share is not positive, or so small that `MOST_PEOPLE` would not do.
    """
    shares = np.concatenate([share for share, _ in groups])
    numbers = np.concatenate([np.full(len(share), float(number)) for share, number in groups])
    if not np.all(shares > 0):
        raise AnalysisError("every group needs a positive share", "For example 0.5.")

    def too_few(n: int) -> bool:
        if n < floor:
            return True
        # how often a group holds fewer than its number
        fewer = scipy.special.betaincc(numbers, n - numbers + 1, shares)
        return float(np.sum(fewer)) > 1 - SURE

    floor = max(least, int(np.max(numbers)))
    low, high = 0, floor
    while too_few(high):
        low, high = high, 2 * high
        if high > MOST_PEOPLE:
            raise AnalysisError(
                "a group has next to no share of the people", "Merge levels, or widen the arms' shares."
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if too_few(middle) else (low, middle)
    return high
