"""Plans: the arms, covariates, levels and metrics that may be counted, k, and the linkages that this needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations, groupby, product
from typing import Any, Literal, cast

from kanab.arguments import check_arguments
from kanab.description import (
    DEFAULT_K,
    AnyCovariate,
    AnyMetric,
    Covariate,
    Mean,
    Number,
    Quantile,
    Ratio,
    covariate_values,
    metric_values,
)
from kanab.errors import PlanError, flag, listed
from kanab.fields import key
from kanab.plan import values as kinds
from kanab.plan.joint_shares import JointShares, turned
from kanab.plan.notify_plan import NotifyPlan
from kanab.tally.factor import Level, as_level
from kanab.tally.metric import Metric, Missing

SMALLEST_K = 2
"""With a smaller k there is nothing to hide among."""
MOST_CLASSES = 100_000
"""A table with more classes is refused: it would be rows under another name."""
MOST_LEVELS = 1_000
"""A covariate of more levels is refused: it is nearly a name."""
SHEET_ENTRIES = {
    "controller": "who is responsible (controller), with address",
    "contact": "whom people write to; the data protection officer",
    "people": "whose data these are: visitors of which site or app",
    "legal_basis": "on which legal basis, and whether the device is asked for consent",
    "recipients": "who reads releases and the dashboard; processors, such as whoever runs the machines",
    "transfers": "to which other countries, on which ground",
    "keep": "how long releases are kept",
}
"""What nobody can read off the rest of a plan: the keys of its table ``[sheet]``."""


CLUSTER_PEOPLE = "people"
"""The metric that counts the people of a cluster, where arms were assigned to clusters."""


@dataclass(frozen=True)
class MetricPlan:
    """One metric as declared. Without bounds (and not 0/1) its grid is taken from the data.

    Without a rule for ``missing`` values, people without one are left out where rows are counted,
    and begin with 0 where events are added up. ``min_events`` people of a class have a 0/1 metric (or the one that
    it is ``of``), and as many lack it, or nobody does. People are counted by the ``bins`` of a metric where quantiles
    are asked for.
    """

    name: str
    bounds: tuple[float, float] | None = key(kinds.BOUNDS, words=("winsorize", "range", "limits", "clip"))
    resolution: float | None = key(kinds.NUMBER, words=("step",))
    binary: bool = key(kinds.BINARY, False, "kind", words=("type",))
    missing: Missing | None = key(kinds.MISSING)
    of: str | None = key(kinds.NAME)
    sensitive: Literal["no", "yes", "both"] = key(kinds.SENSITIVE, "no")
    ratio: tuple[str, str] | None = key(kinds.RATIO, words=("numerator", "denominator"))
    squares: Literal["marginals", "class"] = key(kinds.SQUARES, "marginals")
    min_events: int | None = key(kinds.WHOLE, None, "least_events", words=("min_events",))
    bins: int | tuple[float, ...] | None = key(kinds.BINS, words=("quantiles",))

    @property
    def edges(self) -> tuple[float, ...]:
        """The edges of the bins that its quantiles are taken from: as declared, or so many bins between its bounds."""
        if not isinstance(self.bins, int):
            return self.bins or ()
        low, high = self.bounds or (0.0, 1.0)
        return tuple(float(f"{low + (high - low) * place / self.bins:.12g}") for place in range(self.bins + 1))

    @property
    def counting(self) -> MetricPlan:
        """What matters for counting it; the rest is for the gate."""
        return replace(self, of=None, sensitive="no", min_events=None)

    def events(self, k: int) -> int:
        """Return how many people of a class must have it, and lack it: by default k of a sensitive metric."""
        return self.min_events or (1 if self.sensitive == "no" else k)

    @property
    def declared(self) -> bool:
        """Whether its bounds are known without looking at the data."""
        return self.binary or self.bounds is not None

    def metric(self) -> Metric:
        """Return the metric on its declared grid. Raises `GridError` where it has none."""
        rule: Missing = self.missing or "zero"
        if self.binary:
            return Metric(self.name, 1, (0.0, 1.0), rule)
        return Metric.declare(self.name, bounds=self.bounds, resolution=self.resolution, missing=rule)


@dataclass(frozen=True)
class CovariatePlan:
    """One covariate: its levels as declared, or how they are taken from the pooled data.

    Bins are adjusted for as categories; with ``score`` by one slope on the mean of each bin. That says how they
    are read, not how they are counted.
    """

    name: str
    levels: tuple[Level, ...] | None = key(kinds.LEVELS, words=("values",))
    bins: int | tuple[float, ...] | None = key(kinds.BINS)
    top: int | None = key(kinds.UNREAD)
    score: bool = key(kinds.YES, False)

    @property
    def counting(self) -> CovariatePlan:
        """What matters of it for counting."""
        return replace(self, score=False)


@dataclass(frozen=True)
class DecisionRule:
    """What it takes to ship an arm: its switches are the keys of ``decision`` in a plan.

    ``primary``: "any" metric, or "all", must be clearly better. ``guardrails``: none may be clearly worse, and
    those with a margin must be shown to be within it; "non-inferior" demands a margin of all. ``people``: nothing
    is shipped before so many are counted. ``worth``: the smallest effect on a primary metric that is worth having.
    """

    primary: Literal["any", "all"] = key(kinds.SOME, "any")
    guardrails: Literal["not-worse", "non-inferior"] = key(kinds.GUARDING, "not-worse")
    people: int | None = key(kinds.WHOLE, words=("sample_size", "n"))
    worth: float | str | None = key(kinds.WORTH, words=("mde",))


@dataclass(frozen=True)
class ExperimentPlan:
    """One experiment. Its name is the column that holds the arm.

    ``numbers`` are metrics from before the experiment that it is adjusted for as they are, without classes.
    ``received`` is the metric that says who got what was assigned, or how much of it.
    ``primary`` to ``decision`` say how results are read, not what is counted: ``non_inferiority`` has the most that a
    metric may be worse, and whether that is a share of the control's mean. ``quantiles`` are shares of people by
    metric: 0.5 asks for the median.
    """

    name: str
    shares: tuple[tuple[Level, float], ...] | None = key(
        kinds.SHARES, None, "arms", words=("variants", "groups", "treatments", "split", "allocation", "weights")
    )
    control: Level = key(kinds.LEVEL, words=("baseline", "reference"))
    adjust: tuple[str, ...] = key(kinds.NAMES, (), words=("cuped", "covariates", "numbers"))
    segments: tuple[str, ...] = key(kinds.NAMES, (), words=("dimensions", "breakdowns"))
    interactions: tuple[str, ...] = key(kinds.NAMES, ())
    salt: str | None = key(kinds.NAME, words=("seed",))
    exclude_with: tuple[str, ...] = key(kinds.NAMES, (), words=("layer", "mutually_exclusive"))
    holdout: float = key(kinds.PROPORTION, 0.0)
    tolerance: Mapping[str, float] = key(kinds.TOLERANCE, {})
    looks: int | None = key(kinds.WHOLE, words=("sequential", "peeking"))
    joint_shares: Mapping[str, JointShares] = key(kinds.JOINT_SHARES, {})
    only: tuple[Level, ...] | None = key(kinds.LEVELS)
    primary: tuple[str, ...] = key(kinds.NAMES, ())
    guardrails: tuple[str, ...] = key(kinds.NAMES, ())
    lower_is_better: tuple[str, ...] = key(kinds.NAMES, ())
    non_inferiority: Mapping[str, tuple[float, bool]] = key(kinds.SIZES, {}, words=("margin", "nim"))
    decision: DecisionRule = key(kinds.UNREAD, DecisionRule())
    numbers: tuple[str, ...] = ()
    received: str | None = key(kinds.NAME, words=("treatment_received", "cace", "compliance"))
    quantiles: Mapping[str, tuple[float, ...]] = key(kinds.PROBABILITIES, {}, words=("percentiles",))

    @property
    def arms(self) -> tuple[Level, ...] | None:
        """The arms, if they were declared: with their shares, or as the only ones to count."""
        return self.only if self.shares is None else tuple(arm for arm, _ in self.shares)

    @property
    def covariates(self) -> tuple[str, ...]:
        """The covariates that the experiment is adjusted for or cut into segments by, each once."""
        return tuple(dict.fromkeys((*self.adjust, *self.segments)))


@dataclass(frozen=True)
class Cohorts:
    """Periods of enrollment, the window in which people are measured, and the tick of seals."""

    every: str = key(kinds.DAYS, "7d")
    window: str = key(kinds.DURATION, "7d")
    seal: str = key(kinds.TICK, "end")


@dataclass(frozen=True)
class Budget:
    """What everything that is ever released may tell about one person: ε at a δ.

    ``shares`` are its parts by experiment or table of two, ``weights`` those of an experiment by table. ``stores``
    share it. A release spends ``per_release``, or all. ``beside_exact`` is what plans of before said; it means nothing.
    """

    epsilon: float = key(kinds.REAL, 1.0)
    delta: float = key(kinds.REAL, 1e-6)
    per_release: float | None = key(kinds.REAL)
    weights: Mapping[str, float] = key(kinds.BY_NAME, {})
    beside_exact: str = key(kinds.NAME, "")
    shares: Mapping[str, float] = key(kinds.BY_NAME, {})
    stores: int = key(kinds.WHOLE, 1)


@dataclass(frozen=True)
class Linkage:
    """One table that the plan needs; with ``people_only`` a metric's bins are its covariate, without sums."""

    experiments: tuple[str, ...]
    covariate: str | None = None
    squares: Literal["arm", "marginals"] = "arm"
    people_only: bool = False

    @property
    def axes(self) -> tuple[str, ...]:
        """The columns that its classes are made of: arms, and perhaps a covariate."""
        return (*self.experiments, self.covariate) if self.covariate else self.experiments

    @property
    def name(self) -> str:
        """For example checkout, checkout/tier or banner/checkout."""
        return "/".join(self.axes)


@dataclass(frozen=True)
class Plan:
    """Everything that may be collected or released."""

    metrics: tuple[MetricPlan, ...]
    experiments: tuple[ExperimentPlan, ...]
    covariates: tuple[CovariatePlan, ...] = ()
    k: int = key(kinds.UNREAD, DEFAULT_K)
    cohorts: Cohorts | None = None
    origins: tuple[str, ...] = key(kinds.ORIGINS, ())
    durability: Literal["disk", "memory"] = key(kinds.DURABILITY, "disk")
    nonce_life: str = key(kinds.DURATION, "24h")
    export: str | None = field(default=None, compare=False)  # where a copy goes, not what is counted
    budget: Budget | None = None
    sheet: Mapping[str, str] = field(default_factory=dict, compare=False)  # what people say of it, for its sheet
    notify: NotifyPlan | None = field(default=None, compare=False)  # who is told, not what is counted
    own_rows: Literal["internal", "gated"] = key(kinds.OWN_ROWS, "internal", compare=False)  # who may read it
    vouch: bool = key(kinds.YES, False)

    def experiment(self, name: str | None = None) -> ExperimentPlan:
        """Return an experiment by name, or the only one. Raises `PlanError` where it is unknown or none is named."""
        if name in self._experiments_by_name:
            return self._experiments_by_name[name]
        fact = "several experiments, and none named" if name is None else "unknown experiment"
        raise PlanError(fact, f"The plan has: {listed(self.experiment_names)}.")

    @cached_property
    def _experiments_by_name(self) -> dict[str | None, ExperimentPlan]:
        named: dict[str | None, ExperimentPlan] = {each.name: each for each in reversed(self.experiments)}
        return named | {None: self.experiments[0]} if len(self.experiments) == 1 else named

    @cached_property
    def experiment_names(self) -> tuple[str, ...]:
        """The names of the experiments, in order."""
        return tuple(experiment.name for experiment in self.experiments)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the metrics and ratios, in order."""
        return tuple(metric.name for metric in self.metrics)

    @property
    def metrics_by_name(self) -> dict[str, MetricPlan]:
        """The metrics and ratios by their names."""
        return {metric.name: metric for metric in self.metrics}

    @property
    def counted_metrics(self) -> tuple[MetricPlan, ...]:
        """The metrics that are counted: all but ratios, which are computed from two of them."""
        return tuple(metric for metric in self.metrics if metric.ratio is None)

    @property
    def ratios(self) -> tuple[tuple[str, str], ...]:
        """The two metrics of every ratio: numerator and denominator."""
        return tuple(metric.ratio for metric in self.metrics if metric.ratio is not None)

    @cached_property
    def receiving(self) -> tuple[tuple[str, str], ...]:
        """The pairs of what was received and every outcome, but for those that ratios have anyway."""
        doses = dict.fromkeys(experiment.received for experiment in self.experiments if experiment.received)
        outcomes = [metric.name for metric in self.counted_metrics if metric.name not in self.numbers]
        divided = [{*pair} for pair in self.ratios]
        return tuple((d, y) for d, y in product(doses, outcomes) if y != d and {d, y} not in divided)

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """The metrics that some experiment is adjusted for, in the order of their names; they are no outcomes."""
        return tuple(sorted({*chain.from_iterable(each.numbers for each in self.experiments)}))

    @property
    def weights(self) -> tuple[str, ...]:
        """The metrics that weigh sums of others: numbers, denominators but for clusters' people, what was received."""
        denominators = (below for _, below in self.ratios if below != CLUSTER_PEOPLE)
        doses = (experiment.received for experiment in self.experiments if experiment.received)
        return tuple(dict.fromkeys((*self.numbers, *denominators, *doses)))

    @property
    def products(self) -> tuple[tuple[str, str], ...]:
        """The pairs of metrics whose products are counted per arm: those of ratios, and of numbers with all others."""
        return (*self.ratios, *self.receiving, *self._products_with(self.numbers))

    def _products_with(self, numbers: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Return the pairs of some numbers with every outcome, and with each other."""
        outcomes = [metric.name for metric in self.counted_metrics if metric.name not in self.numbers]
        return (*product(numbers, outcomes), *combinations(numbers, 2))

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The metrics and ratios that experiments are about: all but the numbers that they are adjusted for."""
        return tuple(name for name in self.metric_names if name not in self.numbers)

    def numbers_of(self, linkage: Linkage) -> tuple[str, ...]:
        """Return the numbers that a table holds: those its experiment is adjusted for; none where two are crossed."""
        own = self.experiment(linkage.experiments[0]).numbers if len(linkage.experiments) == 1 else ()
        return tuple(sorted(own))

    def metrics_of(self, linkage: Linkage) -> tuple[MetricPlan, ...]:
        """Return the metrics that a table holds, but for ratios."""
        if linkage.people_only:
            return ()
        gone = {*self.numbers} - {*self.numbers_of(linkage)}
        return tuple(metric for metric in self.counted_metrics if metric.name not in gone)

    def products_of(self, linkage: Linkage) -> tuple[tuple[str, str], ...]:
        """Return the pairs of metrics whose products a table holds per arm, each once."""
        if linkage.people_only:
            return ()
        numbers = self._products_with(self.numbers_of(linkage))
        return tuple(dict.fromkeys((*self.ratios, *self.receiving, *numbers)))

    @property
    def metrics_squared_by_class(self) -> frozenset[str]:
        """The names of metrics whose squares are kept in every class."""
        return frozenset(metric.name for metric in self.metrics if metric.squares == "class")

    def squares_of(self, linkage: Linkage, metric: str) -> Literal["arm", "marginals", "class"]:
        """Return how finely a table keeps the squares of a metric: those of numbers per arm, which is enough."""
        if metric in self.metrics_squared_by_class:
            return "class"
        return "arm" if metric in self.numbers else linkage.squares

    def joint_shares(self, first: str, second: str) -> JointShares | None:
        """Return the planned shares of two experiments' pairs of arms; None where they are assigned independently."""
        for experiment in self.experiments:
            if experiment.name == first and second in experiment.joint_shares:
                return experiment.joint_shares[second]
            if experiment.name == second and first in experiment.joint_shares:
                return turned(experiment.joint_shares[first])
        return None

    def covariate(self, name: str) -> CovariatePlan:
        """Return a covariate by name, declared or not; a metric in bins is one too, for whoever reads its table."""
        for covariate in self.covariates:
            if covariate.name == name:
                return covariate
        return CovariatePlan(name, bins=self.metrics_by_name[name].edges if name in self.binned_metrics else None)

    @property
    def categories(self) -> frozenset[str]:
        """The covariates in bins that are adjusted for as categories, although their bins have scores."""
        return frozenset(each.name for each in self.covariates if each.bins is not None and not each.score)

    @cached_property
    def covariates_in_use(self) -> tuple[str, ...]:
        """The covariates that some experiment uses, each once; others may be declared."""
        return tuple(dict.fromkeys(chain.from_iterable(each.covariates for each in self.experiments)))

    @cached_property
    def binned_metrics(self) -> tuple[str, ...]:
        """The metrics whose quantiles some experiment asks for, each once: people are counted by their bins."""
        return tuple(dict.fromkeys(chain.from_iterable(each.quantiles for each in self.experiments)))

    @property
    def factors_in_use(self) -> tuple[str, ...]:
        """Everything but arms that people are classed by: covariates, and metrics in bins."""
        return (*self.covariates_in_use, *self.binned_metrics)

    @cached_property
    def linkages(self) -> tuple[Linkage, ...]:
        """The tables that the planned analyses need; covariates are never crossed: the gate adds people by two."""
        linkages: list[Linkage] = []
        tables = {frozenset((name,)) for name in self.experiment_names}
        for experiment in self.experiments:
            own = (experiment.name,)
            if not experiment.covariates:
                linkages.append(Linkage(own))
            for name in experiment.covariates:
                linkages.append(Linkage(own, name, "marginals" if name in experiment.segments else "arm"))
            linkages += [Linkage(own, name, people_only=True) for name in experiment.quantiles]
            for pair in ((experiment.name, other) for other in experiment.interactions):
                if frozenset(pair) not in tables:
                    tables.add(frozenset(pair))
                    linkages.append(Linkage(pair))
        return tuple(linkages)

    @cached_property
    def linkage_names(self) -> tuple[str, ...]:
        """The names of the tables, in order."""
        return tuple(linkage.name for linkage in self.linkages)

    def linkages_of(self, experiment: str) -> tuple[Linkage, ...]:
        """Return the tables of one experiment, but for those with another one."""
        return self._linkages_by_experiment.get((experiment,), ())

    @cached_property
    def _linkages_by_experiment(self) -> dict[tuple[str, ...], tuple[Linkage, ...]]:
        return {names: tuple(own) for names, own in groupby(self.linkages, key=lambda linkage: linkage.experiments)}


@check_arguments(skip=("metrics", "adjust", "segments", "k"))
def make_plan(
    arm: str,
    metrics: Sequence[AnyMetric],
    adjust: Sequence[AnyCovariate] = (),
    segments: Sequence[AnyCovariate] = (),
    *,
    arms: Sequence[Any] | Mapping[Any, float] | None = None,
    control: Level = None,
    treatment_received: str | None = None,
    k: int = DEFAULT_K,
) -> Plan:
    """Return the plan of one experiment, from values or names.

    arm: the column that holds the arm.
    metrics: what is compared: names, `Mean`, `Ratio` or `Quantile`.
    adjust: what effects are adjusted for: names, `Covariate` or `Number`; a column decides about a bare name.
    segments: what effects may differ by: names or `Covariate`.
    arms: the arms to count, or a dict with their planned shares; people of other arms are left out.
    control: the arm to compare with.
    treatment_received: the metric that says who got what was assigned.
    k: people whom a class holds at least, or nobody.

    Raises `PlanError` for values that contradict each other.

    >>> plan = make_plan("variant", [Mean("spend", bounds=(0, 500))], ["tier"], ["device"])
    >>> plan.linkage_names, plan.metrics[0].declared
    (('variant/tier', 'variant/device'), True)
    >>> plan = make_plan("variant", ["spend"], ["tier", Number("spend_before")])
    >>> plan.experiment().adjust, plan.numbers
    (('tier',), ('spend_before',))
    """
    measured = metric_values(metrics)
    means = _by_column(each for each in measured if isinstance(each, Mean))
    for mean in means.values():
        if mean.clip is not None:
            raise PlanError(
                f"the clip of {mean.column!r} is a point of the rows, and a plan knows none",
                "Give it to count() or readout(), or give bounds.",
            )
    quantiles = _by_column(each for each in measured if isinstance(each, Quantile))
    ratios = _by_column(each for each in measured if isinstance(each, Ratio))
    parts = chain.from_iterable((ratio.numerator, ratio.denominator) for ratio in ratios.values())
    received = [] if treatment_received is None else [treatment_received]
    counted = dict.fromkeys([*means, *parts, *received, *sorted(quantiles)])
    before, cut = covariate_values(adjust, "adjust"), covariate_values(segments, "segments")
    numbers = _by_column(each for each in before if isinstance(each, Number))
    in_levels = (*sorted(before, key=lambda each: each.column), *sorted(cut, key=lambda each: each.column))
    covariates = _settled_covariates([each for each in in_levels if isinstance(each, Covariate)])
    cuts = sorted({each.column for each in cut})  # the order of writing means nothing
    _check_numbers(numbers, counted, [*covariates, *cuts])
    roles = [each for each in measured if not isinstance(each, Quantile)]
    return Plan(
        (
            *(_metric_plan(name, means.get(name), quantiles.get(name)) for name in counted),
            *(MetricPlan(each.column, each.bounds, each.resolution, missing="zero") for each in numbers.values()),
            *(MetricPlan(each.column, ratio=(each.numerator, each.denominator)) for each in ratios.values()),
        ),
        (
            ExperimentPlan(
                arm,
                tuple((as_level(each, arm), share) for each, share in arms.items())
                if isinstance(arms, Mapping)
                else None,
                as_level(control, arm),
                tuple(sorted({each.column for each in before} - {*numbers})),
                tuple(cuts),
                only=None if arms is None or isinstance(arms, Mapping) else tuple(as_level(each, arm) for each in arms),
                primary=tuple(each.column for each in roles if each.role == "primary"),
                guardrails=tuple(each.column for each in roles if each.role == "guardrail"),
                lower_is_better=tuple(each.column for each in roles if each.better == "lower"),
                non_inferiority={each.column: each.margin for each in roles if isinstance(each.margin, tuple)},
                numbers=tuple(numbers),
                received=treatment_received,
                quantiles={name: quantiles[name].at for name in sorted(quantiles)},
            ),
        ),
        tuple(
            CovariatePlan(each.column, None, cast(Any, each.bins), each.top, each.score)
            for each in covariates.values()
            if each.column in cuts or each != Covariate(each.column)
        ),
        k,
    )


def _by_column(values: Iterable[Any]) -> dict[str, Any]:
    """Return values by their columns, in the order of their names where that means nothing; no column twice."""
    listed_values = list(values)
    named = {each.column: each for each in listed_values}
    if len(named) < len(listed_values):
        twice = next(name for name, times in Counter(each.column for each in listed_values).items() if times > 1)
        raise PlanError(f"{twice!r} is named twice", "Name each column once, with all that is said of it.")
    return dict(sorted(named.items())) if listed_values and isinstance(listed_values[0], Number) else named


def _settled_covariates(values: Sequence[Covariate]) -> dict[str, Covariate]:
    """Return covariates by name; what is said of one in adjust or in segments holds for both."""
    settled: dict[str, Covariate] = {}
    for each in values:
        known = settled.setdefault(each.column, each)
        if known == Covariate(each.column):
            settled[each.column] = each
        elif each not in (known, Covariate(each.column)):
            raise PlanError(
                f"{each.column!r} is said to be two things, in adjust and in segments", "Write the same value in both."
            )
    return settled


def _metric_plan(name: str, mean: Mean | None, quantile: Quantile | None) -> MetricPlan:
    mean = mean or Mean(name)
    bounds = mean.bounds or (quantile.bounds if quantile else None)
    bins: Any = quantile.bins if quantile else None
    return MetricPlan(name, bounds, mean.resolution, missing=mean.missing, min_events=mean.min_events, bins=bins)


def _check_numbers(numbers: Iterable[str], metrics: Collection[str], classes: Collection[str]) -> None:
    """Raise `PlanError` where something that is adjusted for as it is has another role, or is cut into classes."""
    for name in numbers:
        if name in metrics:
            raise PlanError(
                f"{name!r} is a metric to compare, and adjusted for as a number",
                "What is adjusted for was measured before the experiment: leave it out of one of the two.",
            )
        if name in classes:
            raise PlanError(
                f"{name!r} is adjusted for as a number, and a number has no segments",
                f"Cut it into bins for both: Covariate({name!r}, bins=5) ({flag('--bin', f'{name}=5')}).",
            )


def settle_missing(plan: Plan, rules: Mapping[str, Missing] | Missing = "zero") -> Plan:
    """Return the plan with a rule for missing values where it says nothing: a collector's sums begin with 0."""
    metrics = tuple(
        replace(metric, missing=rules if isinstance(rules, str) else rules.get(metric.name))
        if metric.missing is None and metric.ratio is None
        else metric
        for metric in plan.metrics
    )
    return replace(plan, metrics=metrics)


def published_plan(plan: Plan, k: int) -> Plan:
    """Return the plan as a release with this k publishes it: without hosts, and without what arms are drawn by."""
    experiments = tuple(replace(experiment, salt=None) for experiment in plan.experiments)
    return replace(settle_missing(plan), k=k, origins=(), vouch=False, experiments=experiments)


def settle_kinds(plan: Plan, is_number: Callable[[str], bool]) -> Plan:
    """Return the plan with what its columns decide: which covariates are adjusted for as numbers.

    Those are covariates that nothing is said of, and that are not segments. Missing numbers count as 0.
    """
    declared = {covariate.name for covariate in plan.covariates}
    classes = {*chain.from_iterable(each.segments for each in plan.experiments)}
    undecided = [name for name in plan.covariates_in_use if name not in declared]
    numbers = [name for name in undecided if name not in classes and is_number(name)]
    experiments = tuple(
        replace(
            each,
            adjust=tuple(name for name in each.adjust if name not in numbers),
            numbers=tuple(sorted({*each.numbers, *each.adjust} & {*each.numbers, *numbers})),
        )
        for each in plan.experiments
    )
    levels = [name for name in plan.covariates_in_use if name not in numbers]
    zero: dict[str, Missing] = dict.fromkeys((*plan.numbers, *numbers), "zero")
    return replace(
        settle_missing(replace(plan, metrics=(*plan.metrics, *map(MetricPlan, numbers))), zero),
        experiments=experiments,
        covariates=(
            *(plan.covariate(name) for name in levels),
            *(covariate for covariate in plan.covariates if covariate.name not in levels),
        ),
    )


def rules_of(plans: Iterable[Plan]) -> dict[str, Missing]:
    """Return the rules for missing values that plans declare, by metric."""
    metrics = chain.from_iterable(plan.metrics for plan in plans)
    return {metric.name: metric.missing for metric in metrics if metric.missing is not None}
