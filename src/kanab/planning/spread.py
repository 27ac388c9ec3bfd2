"""Spread: how much one person's value varies, from which the error of an effect follows before anybody has come."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from kanab.analysis.compare import AnalyzedTables
from kanab.analysis.metric_shapes import shapes_of
from kanab.analysis.options import named_arm
from kanab.analysis.own_rows import read_rows
from kanab.arguments import check_arguments
from kanab.choices import INTERNAL
from kanab.counting.dispatch import count_source, source_options
from kanab.counting.frames import load_frame
from kanab.description import AnyCovariate, Mean, Ratio, Rows, covariate_values
from kanab.errors import AnalysisError, LevelError, PlanError, flag, listed
from kanab.plan.declared import ControlChoice, control_of
from kanab.plan.model import ExperimentPlan, make_plan
from kanab.privacy.release import OwnRows, Release, Tables, refuse_own_rows
from kanab.stats.additive import additive_means
from kanab.stats.adjust import adjusted_means
from kanab.stats.distributions import correlations_of, satterthwaite_df
from kanab.stats.effect import ArmMeans, differences_from, known_control, plain_means
from kanab.stats.gram import Floats
from kanab.stats.ratio import additive_ratio_means, adjusted_ratio_means, ratio_means
from kanab.stats.skewness import LEVEL, Shape, Tilt, tilt
from kanab.tally.factor import EVERYBODY, Level, as_level, label
from kanab.tally.tally import Tally

EVEN: Mapping[Any, float] = {"A": 1, "B": 1}
"""Two arms of equal shares, the first one the control."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Per arm: its share of the people, and the variance of one person's value (after adjustment).

    ``drawn`` is what comes on top because people are drawn from a population whose slopes differ
    between arms (nothing for plain means); ``lost`` the coefficients of each arm's fit; ``mean``
    the control's mean, for relative effects. Of a 0/1 metric (``binary``) the variance follows the
    rate, and ``unexplained`` is the share of it that adjustment leaves. Where an effect multiplies
    amounts (``grows``), an arm's standard deviation grows with its mean. ``shape`` is what a release knows of the
    metric's values; without one they are taken to be symmetric. ``own_rows``: it was computed on rows, without the
    gate. ``chosen`` says how the control is known, ``notes`` what all of it rests on.
    """

    arms: tuple[Level, ...]
    control: Level
    shares: Floats
    variances: Floats
    drawn: Floats
    lost: Floats
    mean: float | None = None
    binary: bool = False
    unexplained: Floats | None = None
    grows: bool = False
    shape: Shape | None = None
    own_rows: bool = False
    chosen: ControlChoice = "declared"
    notes: tuple[str, ...] = ()

    @property
    def plain_rate(self) -> bool:
        """Whether it is a 0/1 metric without adjustment, which the score test is for."""
        return self.binary and (self.unexplained is None or bool(np.all(self.unexplained >= 1)))

    @property
    def others(self) -> tuple[Level, ...]:
        """Every arm but the control."""
        return tuple(arm for arm in self.arms if arm != self.control)

    def place(self, arm: Any) -> int:
        """Return the position of an arm; raises `LevelError` for an unknown one."""
        wanted = as_level(arm, "arm")
        if wanted not in self.arms:
            raise LevelError("unknown arm", f"Arms: {listed(map(label, self.arms))}.")
        return self.arms.index(wanted)

    def variance_of(self, arm: Level, effect: float) -> float:
        """Return the variance of one person of an arm that has this effect."""
        place = self.place(arm)
        if arm == self.control or self.mean is None or not (self.binary or self.grows):
            return float(self.variances[place])
        if self.grows:
            return float(self.variances[place]) * (1 + effect / self.mean) ** 2
        rate = min(1.0, max(0.0, self.mean + effect))
        left = 1.0 if self.unexplained is None else float(self.unexplained[place])
        return rate * (1 - rate) * left

    def error(self, arm: Level, people: float, effect: float) -> tuple[float, float]:
        """Return standard error and Satterthwaite's df of an arm minus the control, with so many people in all."""
        n, variances, freedom, beyond = self._pair(arm, people, effect)
        return math.sqrt(float(np.sum(variances / n)) + beyond), satterthwaite_df(variances / n, freedom)

    def alike_error(self, arm: Level, people: float, effect: float) -> tuple[float, float]:
        """Return the same with one variance for both arms."""
        n, variances, freedom, beyond = self._pair(arm, people, effect)
        variance = float(freedom @ variances / freedom.sum())
        return math.sqrt(variance * float(np.sum(1 / n)) + beyond), float(freedom.sum())

    def tilted(self, arm: Level, people: float, effect: float) -> Tilt:
        """Return how skewed the difference of an arm and the control is; not at all where that is unknown."""
        if self.shape is None or not self.shape.skewness:
            return LEVEL
        n, variances, _, _ = self._pair(arm, people, effect)
        return tilt(self.shape.skewness, np.array([1.0, -1.0]), n, variances / n)

    def needs_alike(self, arm: Level, people: float) -> bool:
        """Return whether the t-test with one variance for both arms has to agree."""
        fewest = people * float(self.shares[[self.place(arm), self.place(self.control)]].min())
        return self.shape is not None and self.shape.needs_alike(fewest)

    def _pair(self, arm: Level, people: float, effect: float) -> tuple[Floats, Floats, Floats, float]:
        """Return people, variances and degrees of freedom of an arm and the control, and what comes on top."""
        pair = [self.place(arm), self.place(self.control)]
        n = people * self.shares[pair]
        variances = np.array([self.variance_of(arm, effect), float(self.variances[pair[1]])])
        (own, shared), (_, base) = self.drawn[np.ix_(pair, pair)].tolist()
        return n, variances, np.maximum(n - self.lost[pair], 1e-9), max(0.0, own - 2 * shared + base) / people

    def correlations(self, effect: float) -> Floats:
        """Return how the arms' effects correlate, all being compared with one control."""
        variances = [self.variance_of(arm, effect) / share for arm, share in zip(self.arms, self.shares, strict=True)]
        c = differences_from(self.place(self.control), len(self.arms))
        return correlations_of(c @ (np.diag(variances) + self.drawn) @ c.T)

    @property
    def fewest(self) -> float:
        """The people in all below which an arm could not be fitted."""
        return float(np.max((self.lost + 1) / self.shares))


@check_arguments()
def spread_of_amounts(
    sd: float | Mapping[Any, float],
    *,
    mean: float | None = None,
    shares: Mapping[Any, float] = EVEN,
    control: Any = None,
    r2: float | Mapping[Any, float] = 0.0,
    slopes: int = 0,
    grows: bool = False,
) -> Spread:
    """Return the spread of a standard deviation of one person, the same in all arms or per arm.

    For a ratio metric it is that of the linearised metric, (y − R z)/z̄. ``r2`` is the share of the
    variance that covariates explain, ``slopes`` how many coefficients they take. ``mean`` is the
    control's, for relative effects. ``grows``: the effect multiplies amounts, and so their spread.
    Raises `AnalysisError` for numbers that no experiment has, `LevelError` for an unknown control.

    >>> spread_of_amounts(20, r2=0.5, shares={"off": 9, "on": 1}).variances
    array([200., 200.])
    """
    arms, share, base = _arms(shares, control)
    deviations = _per_arm(sd, arms, "a standard deviation", least=0.0)
    if not np.all(deviations > 0):
        raise AnalysisError("a standard deviation must be positive", "Give that of one person's value.")
    if mean is not None and not (isinstance(mean, Real) and math.isfinite(mean)):
        raise AnalysisError("the control's mean must be a finite number", "Leave it out if it is not known.")
    left = 1 - _explained(r2, arms)
    return Spread(
        arms, base, share, deviations**2 * left, np.zeros((len(arms), len(arms))),
        np.full(len(arms), 1.0 + _slopes(slopes)), None if mean is None else float(mean),
        grows=_multiplied(grows, mean), chosen=_chosen(control), notes=_explained_note(r2),
    )  # fmt: skip


@check_arguments()
def spread_of_rate(
    rate: float,
    *,
    shares: Mapping[Any, float] = EVEN,
    control: Any = None,
    r2: float | Mapping[Any, float] = 0.0,
    slopes: int = 0,
) -> Spread:
    """Return the spread of a 0/1 metric: the control's rate says it all; an arm's own follows from its effect.

    Raises `AnalysisError` for a rate outside 0 … 1, `LevelError` for an unknown control.
    """
    arms, share, base = _arms(shares, control)
    if not isinstance(rate, Real) or not 0 < rate < 1:
        raise AnalysisError("a rate must lie between 0 and 1", "For example 0.05 for five in a hundred.")
    left = 1 - _explained(r2, arms)
    return Spread(
        arms, base, share, rate * (1 - rate) * left, np.zeros((len(arms), len(arms))),
        np.full(len(arms), 1.0 + _slopes(slopes)), float(rate), True, left,
        chosen=_chosen(control), notes=_explained_note(r2),
    )  # fmt: skip


@check_arguments()
def spread_of_means(
    means: ArmMeans,
    *,
    shares: Mapping[Any, float] | None = None,
    control: Any = None,
    rate: bool = False,
    grows: bool = False,
) -> Spread:
    """Return the spread of a finished experiment, from its plain, adjusted or ratio means.

    Shares are the realised ones unless others are given. ``rate``: a 0/1 metric, whose variance follows
    from its rate and what adjustment left of it then. ``grows``: the effect multiplies amounts. The means' shape is
    kept, and what was added for ε is left out. Raises `LevelError` for unknown arms, `AnalysisError` for a rate outside
    0 … 1 and for values of which noise hides how they vary.
    """
    people = np.array(means.people, dtype=np.float64)
    arms, share = positive_shares(dict(zip(means.arms, people, strict=True)) if shares is None else shares, "arm")
    if set(arms) != set(means.arms):
        raise LevelError("the shares are not those of these arms", f"Arms: {listed(map(label, means.arms))}.")
    order = [means.arms.index(arm) for arm in arms]
    drawn = means.slopes @ means.spread @ means.slopes.T * people.sum()
    base = known_control(arms, means.base(control))
    mean = float(means.means[means.arms.index(base)])
    if np.any(means.too_noisy):
        raise AnalysisError(
            f"how {means.metric} varies is hidden by the noise of this release",
            "Give a standard deviation that you know (--sd 20), or a rate (--rate 0.1).",
        )
    variances = (means.sample * people)[order]
    lost = people - means.df if means.spread is None else np.full(len(people), 1.0 + means.slopes.shape[1])
    left = None
    if rate:
        whole = (means.means * (1 - means.means))[order]
        if grows or not np.all(whole > 0):
            raise AnalysisError("a rate must lie between 0 and 1", "Amounts are planned without rate=True.")
        left = variances / whole
    return Spread(
        arms, base, share, variances, drawn[np.ix_(order, order)], lost[order], mean, rate, left,
        _multiplied(grows, mean), means.shape,
    )  # fmt: skip


def positive_shares(shares: Any, kind: str) -> tuple[tuple[Level, ...], Floats]:
    """Return arms (or levels) and their shares, adding up to one; raises `AnalysisError` for fewer than two."""
    by_name = {as_level(name, kind): share for name, share in shares.items()} if isinstance(shares, Mapping) else {}
    if len(by_name) < 2 or not all(isinstance(x, Real) and 0 < float(x) < math.inf for x in by_name.values()):
        raise AnalysisError(f"shares need a positive number for every {kind}, two at least", "For example 9 and 1.")
    numbers = np.array([float(x) for x in by_name.values()])
    return tuple(by_name), numbers / numbers.sum()


def _arms(shares: Any, control: Any) -> tuple[tuple[Level, ...], Floats, Level]:
    """Return the arms, their shares adding up to one, and the control: the first unless named."""
    arms, share = positive_shares(shares, "arm")
    return arms, share, known_control(arms, arms[0] if control is None else as_level(control, "arm"))


def _per_arm(value: Any, arms: tuple[Level, ...], name: str, least: float) -> Floats:
    """Return a number per arm, from one for all arms or one for each."""
    by_arm = {as_level(arm, "arm"): x for arm, x in value.items()} if isinstance(value, Mapping) else None
    if by_arm is not None and set(by_arm) != set(arms):
        raise AnalysisError(f"{name} is needed for every arm", f"Arms: {listed(map(label, arms))}.")
    numbers = [value if by_arm is None else by_arm[arm] for arm in arms]
    if not all(isinstance(x, Real) and least <= float(x) < math.inf for x in numbers):
        raise AnalysisError(f"{name} must be a finite number, not below {least:g}", "One number, or one per arm.")
    return np.array(numbers, dtype=np.float64)


def _explained(r2: Any, arms: tuple[Level, ...]) -> Floats:
    explained = _per_arm(r2, arms, "R²", least=0.0)
    if not np.all(explained < 1):
        raise AnalysisError("R² must be below 1", "It is the share of the variance that covariates explain.")
    return explained


def _explained_note(r2: Any) -> tuple[str, ...]:
    known = isinstance(r2, Real) and r2
    return (f"Covariates are taken to explain {100 * r2:.4g} % of the variance.",) if known else ()


def _chosen(control: Any) -> ControlChoice:
    return "declared" if control is None else "named"


def _slopes(slopes: Any) -> int:
    if type(slopes) is not int or slopes < 0:
        raise AnalysisError("slopes must be a whole number, not below 0", "Count the coefficients of the covariates.")
    return slopes


def _multiplied(grows: bool, mean: float | None) -> bool:
    if grows and not (mean is not None and mean > 0):
        raise AnalysisError("only amounts with a positive mean are multiplied", "Give the control's mean.")
    return grows


# ── of a release, or of rows ─────────────────────────────────────────────


def spread_of_release(
    released: Release,
    plan: ExperimentPlan,
    metric: str | None = None,
    *,
    adjust: Sequence[str] = (),
    shares: Mapping[Any, float] | None = None,
    control: Level = None,
    grows: bool = False,
) -> Spread:
    """Return the spread of each arm of an experiment.

    ``adjust`` are covariates and numbers from before; ``shares`` and ``control`` are those of the plan unless others
    are given; a control that nothing tells has to be named. Raises `PlanError`, `AnalysisError` or `LevelError` for
    what the release does not hold.
    """
    refuse_own_rows(released)
    control, chosen = released_control(released, plan, control)
    means, name = _means(released, plan, metric, adjust)
    planned = None if plan.shares is None else dict(plan.shares)
    binary = is_binary(released, name)
    if binary and grows:
        raise _no_factor()
    shape = shapes_of(released, plan.name, released.tables_of(plan.name)).get(name)
    spread = spread_of_means(
        replace(means, shape=shape), shares=planned if shares is None else shares, control=control, rate=binary,
        grows=grows,
    )  # fmt: skip
    adjusted = f", adjusted for {listed(adjust)}" if adjust else ""
    notes = [f"How {name} varies is as it was found in {plan.name}{adjusted}."]
    if released.receipt.noise is not None:
        notes.append("That is without noise; kanab plan --epsilon says what it adds.")
    notes.append(f"Arms are compared with {label(spread.control)}.")
    return replace(spread, chosen=chosen, notes=tuple(notes))


@check_arguments()
def spread_of_rows(
    source: Any,
    metric: str | Mean | Ratio,
    *,
    arm: str | None = None,
    control: Level = None,
    adjust: Sequence[AnyCovariate] = (),
    shares: Mapping[Any, float] = EVEN,
    grows: bool = False,
    rows: Rows | None = None,
) -> Spread:
    """Return how a metric or a ratio varies in rows: everybody's, or with ``arm`` the control's.

    It serves for all arms of the next experiment, at ``shares``. ``adjust`` and ``rows`` are as for `count`. It is
    internal, unless own rows are gated. Raises what `count` raises, and `AnalysisError` where nothing varies.

    >>> from kanab.datasets import shop_rows
    >>> from kanab.planning.power import solve_power
    >>> solve_power(spread_of_rows(shop_rows(4_000), "bought"), effect=0.1, relative=True, power=0.8).people
    27706
    """
    if control is not None and arm is None:
        raise PlanError("a control is named, and no column of arms", "Name the column, too: arm=… (--arm).")
    before = covariate_values(adjust, "adjust")
    wanted = make_plan(arm or EVERYBODY, [metric], before, arms=None if arm else [EVERYBODY], control=control)
    options, source = source_options(rows), load_frame(source)
    tables = read_rows(wanted, lambda for_release: count_source(source, wanted, options, for_release=for_release))
    plan = tables.plan.experiment()
    base, _ = released_control(tables, plan)
    called = metric if isinstance(metric, str) else metric.column
    means, name = _means(tables, plan, called, [each.column for each in before])
    place = means.arms.index(base)
    people, mean = means.people[place], float(means.means[place])
    variance = float(means.sample[place]) * people
    if variance <= 0:
        remedy = "Take other rows, or give numbers: --sd 20 (spread_of_amounts), --rate 0.1 (spread_of_rate)."
        raise AnalysisError(f"nothing varies in {name}, so there is nothing to plan with", remedy)
    slopes = round(people - float(means.df[place])) - 1
    if is_binary(tables, name):
        if grows:
            raise _no_factor()
        r2 = max(0.0, 1 - variance / (mean * (1 - mean))) if adjust else 0.0
        spread = spread_of_rate(mean, shares=shares, r2=r2, slopes=slopes)
    else:
        spread = spread_of_amounts(math.sqrt(variance), mean=mean, shares=shares, slopes=slopes, grows=grows)
    shape = shapes_of(tables, plan.name, tables.tables_of(plan.name)).get(name)
    whose = f"the control of {arm}" if arm else "everybody"
    adjusted = f", adjusted for {listed([each.column for each in before])}" if before else ""
    own_rows = isinstance(tables, OwnRows)
    note = f"How {called} varies is taken from {whose} in these rows{adjusted}."
    return replace(spread, shape=shape, own_rows=own_rows, chosen="declared", notes=(note, *[INTERNAL] * own_rows))


def _no_factor() -> PlanError:
    return PlanError("--multiplies is for amounts", "The spread of a 0/1 metric follows from its rate.")


def released_control(released: Tables, plan: ExperimentPlan, named: Level = None) -> tuple[Level, ControlChoice]:
    """Return the control of an experiment, and how it is known; raise `AnalysisError` where nothing tells."""
    totals = released.totals(plan.name)
    arms = totals.experiment
    control, chosen = control_of(plan, arms, None if named is None else named_arm(arms, named))
    if chosen == "unknown":
        shown = [label(arm) for arm, people in totals.people_by(plan.name).items() if people >= released.receipt.k]
        first = shown[0] if shown else "NAME"
        example = f'{flag("--control", first)} (control="{first}"). Arms: {listed(shown)}'
        raise AnalysisError("which arm is the control?", f"Name it: {example}.")
    return control, chosen


def _means(released: Tables, plan: ExperimentPlan, metric: str | None, adjust: Sequence[str]) -> tuple[ArmMeans, str]:
    """Return plain, adjusted or ratio means, and the metric's name."""
    ratio, metric = ratio_parts(released, metric), outcome_of(released, plan, metric)
    tables = released.tables_of(plan.name)
    asked = sorted(set(adjust))
    numbers = [name for name in asked if name in plan.numbers]
    categories = [name for name in asked if name not in numbers]
    single = {name: table_with(list(tables.values()), name, plan) for name in categories}
    if len(asked) > 1 or numbers:
        analyzed = AnalyzedTables(plan, tables, released.receipt.maps, released.plan.categories)
        held = {analyzed.of(name): table for name, table in single.items()}
        used = analyzed.crossed(categories, held) if categories else [_first(list(tables.values()), plan.name)]
        if ratio is not None:
            return additive_ratio_means(used, *ratio, categories, numbers=numbers), "/".join(ratio)
        means = additive_means(used, metric, categories, numbers=numbers)
    elif asked:
        table = single[asked[0]].as_categories(released.plan.categories)
        if ratio is not None:
            return adjusted_ratio_means(table, *ratio), "/".join(ratio)
        means = adjusted_means(table, metric)
    elif ratio is not None:
        return ratio_means(_first(list(tables.values()), plan.name), *ratio), "/".join(ratio)
    else:
        means = plain_means(released.totals(plan.name), metric)
    return means, means.metric


def outcome_of(released: Tables, plan: ExperimentPlan, metric: str | None) -> str | None:
    """Return the metric, or the only one that is no number from before the experiment."""
    outcomes = [name for name in released.totals(plan.name).metric_names if name not in released.plan.numbers]
    if metric in released.plan.numbers:
        raise PlanError(
            f"{metric} was measured before the experiment, so that there is no effect on it",
            f"Name a metric ({', '.join(outcomes)}), and adjust for it: {flag('--adjust', metric)}.",
        )
    if metric is None and len(outcomes) > 1:
        raise AnalysisError("several metrics, and none named", f"Name one of: {', '.join(outcomes)}.")
    return outcomes[0] if metric is None and outcomes else metric


def ratio_parts(released: Tables, metric: str | None) -> tuple[str, str] | None:
    """Return the two parts of a ratio metric: named in the plan, or written revenue/orders."""
    if metric in released.plan.metrics_by_name:
        return released.plan.metrics_by_name[metric].ratio
    first, slash, second = (metric or "").partition("/")
    return (first, second) if slash else None


def _first(tables: list[Tally], experiment: str) -> Tally:
    if not tables:
        raise PlanError(f"the release holds no table of {experiment}", "Name another experiment, or give numbers.")
    return max(tables, key=lambda tally: len(tally.crosses))


def table_with(tables: list[Tally], name: str, plan: ExperimentPlan) -> Tally:
    """Return the table of an experiment that holds metrics by a covariate, or by another experiment."""
    measured = [tally for tally in tables if tally.moments]
    for tally in measured:
        if name in [factor.name for factor in tally.factors if factor.name != plan.name]:
            return tally
    others = {factor.name for tally in measured for factor in tally.factors} - {plan.name}
    numbers = f"; numbers: {listed(plan.numbers)}" if plan.numbers else ""
    raise LevelError(
        f"the release holds no table of {plan.name} by {name!r}",
        f"It has: {listed(sorted(others)) or 'none'}{numbers}.",
    )


def is_binary(released: Tables, metric: str) -> bool:
    """Return whether a metric of a release is 0 or 1."""
    return any(held.name == metric and held.binary for tally in released.tables.values() for held in tally.metrics)
