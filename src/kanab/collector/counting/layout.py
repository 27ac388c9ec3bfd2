"""The layout of what a collector counts by a plan: per linkage its factors, metrics and the names of its counters."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kanab.collector.counting.counters import CONTRIBUTORS
from kanab.collector.protocol.encoding import encode, spell
from kanab.collector.protocol.limits import MOST_POST_BYTES
from kanab.counting.levels import Bins
from kanab.errors import PlanError
from kanab.plan.check import check_plan, path_to, refuse
from kanab.plan.model import MOST_CLASSES, Linkage, MetricPlan, Plan
from kanab.tally.factor import Factor, Level, as_score
from kanab.tally.metric import Metric
from kanab.tally.moments import By

_LONGEST_NUMBER = 26
"""Characters of a total, or of a cohort's label, with what separates it."""

RATIO_PARTS = ("n", "s", "t", "q", "r", "p")
"""The sums of a ratio y/z over the people who have both: how many, Σy, Σz, Σy², Σz², Σyz."""

_NAMES_OF_OBJECTS = frozenset(
    "__proto__ constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf "
    "__defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__".split()
)
"""What every object of JavaScript has under a name already: the browser client keeps totals by name."""


@dataclass(frozen=True)
class RatioLayout:
    """A declared ratio; not demanded of clients of an experiment that began before it, whose config may be older."""

    pair: tuple[str, str]
    has_no_gaps: bool
    demanded: bool = True

    @property
    def name(self) -> str:
        """The ratio as messages and counters write it: revenue/orders."""
        return "/".join(encode(part) for part in self.pair)


@dataclass(frozen=True)
class TableLayout:
    """One linkage: its factors (a covariate with its missing level), metrics, marginals of squares and ratios.

    No message names a table of people by the bins of a metric: the lines of another table of the experiment, the
    first one, move people between these ``bins``.
    """

    linkage: Linkage
    factors: tuple[Factor, ...]
    metrics: tuple[Metric, ...]
    marginals: dict[str, tuple[By, ...]]
    ratios: tuple[RatioLayout, ...]
    bins: tuple[MetricBins, ...] = ()

    @cached_property
    def name(self) -> str:
        """The linkage as messages and counters write it: checkout/tier."""
        return "/".join(encode(factor.name) for factor in self.factors)

    @cached_property
    def ratio_parts(self) -> dict[int, tuple[int, int]]:
        """The measures of a ratio's two metrics, by the measure of the ratio: ratios are numbered after the metrics."""
        numbers = {metric.name: measure for measure, metric in enumerate(self.metrics)}
        return {
            measure: (numbers[ratio.pair[0]], numbers[ratio.pair[1]])
            for measure, ratio in enumerate(self.ratios, len(numbers))
        }

    @cached_property
    def demanded_ratios(self) -> dict[int, tuple[int, ...]]:
        """The ratios that must move with a metric, by its measure."""
        demanded: dict[int, tuple[int, ...]] = {}
        for (measure, parts), ratio in zip(self.ratio_parts.items(), self.ratios, strict=True):
            if ratio.has_no_gaps and ratio.demanded:
                for part in parts:
                    demanded[part] = (*demanded.get(part, ()), measure)
        return demanded

    @property
    def arms(self) -> tuple[Factor, ...]:
        """The factors that are experiments."""
        return tuple(factor for factor in self.factors if factor.role == "arm")

    @cached_property
    def amounts(self) -> tuple[str, ...]:
        """The metrics that are not 0/1, whose contributors are counted."""
        return tuple(metric.name for metric in self.metrics if not metric.binary)

    @cached_property
    def contributing_key(self) -> str:
        """The name of the counter of people whose contributions are counted: all who enrolled since it is done."""
        return f"{self.name}|{CONTRIBUTORS}"

    def class_key(self, levels: Sequence[Level], *rest: str) -> str:
        """Return the name of a class's counter: checkout/tier|B:3|minutes|s."""
        return "|".join([self.name, ":".join(encode(spell(level)) for level in levels), *rest])

    def marginal_key(self, by: By, levels: Sequence[Level], *rest: str) -> str:
        """Return the name of a marginal's counter, by its levels: checkout/tier|checkout=B|minutes|q."""
        place = ",".join(f"{encode(name)}={encode(spell(level))}" for name, level in zip(by, levels, strict=True))
        return "|".join([self.name, place, *rest])

    def marginal_of(self, by: By, levels: Sequence[Level]) -> tuple[Level, ...]:
        """Return the levels of the marginal that a class belongs to."""
        return tuple(level for factor, level in zip(self.factors, levels, strict=True) if factor.name in by)


@dataclass(frozen=True)
class MetricBins:
    """How the totals of a metric, by its number among the measures, place people in the bins of a table.

    ``edges`` are the first steps of all bins but the lowest; ``start`` is where everybody begins: with 0, or at the
    level of those without a value, which is the last one. ``names`` are of the counters of every arm, as it is spelled.
    """

    measure: int
    edges: tuple[int, ...]
    start: int
    names: Mapping[str, tuple[str, ...]]


def layouts(plan: Plan, began: Mapping[str, Sequence[str]] | None = None) -> tuple[TableLayout, ...]:
    """Return the layouts of a plan's linkages; raises `PlanError` for a plan that leaves something to the data."""
    check_plan(plan)
    refuse(list(_open_choices(plan)), "the plan of a collector")
    metrics = {metric.name: metric.metric() for metric in plan.counted_metrics}
    every = _with_bins([_layout(linkage, plan, metrics, began or {}) for linkage in plan.linkages], plan)
    for layout in every:
        if math.prod(len(factor.levels) for factor in layout.factors) > MOST_CLASSES:
            raise PlanError(
                f"{layout.linkage.name} would have more than {MOST_CLASSES:,} classes", "Declare fewer levels."
            )
    _check_sizes(every)
    return every


def _check_sizes(every: Sequence[TableLayout]) -> None:
    """Check that somebody can enroll and have a total in one post, which names all tables of an experiment."""
    longest = max((len(encode(metric.name)) for metric in every[0].metrics), default=0) + 2 * _LONGEST_NUMBER
    sizes: dict[str, int] = {}
    for layout in (layout for layout in every if not layout.linkage.people_only):
        levels = sum(1 + max(len(encode(spell(level))) for level in factor.levels) for factor in layout.factors)
        names = layout.linkage.experiments[0] if len(layout.linkage.experiments) == 1 else layout.linkage.name
        sizes[names] = sizes.get(names, 0) + 2 * (len(layout.name) + levels + _LONGEST_NUMBER) + longest
    for name, size in sizes.items():
        if size > MOST_POST_BYTES:
            raise PlanError(
                f"a post of {name!r} would be longer than {MOST_POST_BYTES:,} bytes",
                "Use shorter names or fewer covariates.",
            )


def _layout(
    linkage: Linkage, plan: Plan, metrics: dict[str, Metric], began: Mapping[str, Sequence[str]]
) -> TableLayout:
    factors = [Factor(name, plan.experiment(name).arms or (), "arm") for name in linkage.experiments]
    if linkage.people_only:
        return TableLayout(linkage, (*factors, _bins(plan.metrics_by_name[str(linkage.covariate)])), (), {}, ())
    if linkage.covariate is not None:
        levels = plan.covariate(linkage.covariate).levels or ()
        numeric = not any(isinstance(level, (str, bool)) for level in levels)
        scores = (*(as_score(level) for level in levels), None) if numeric else None
        factors.append(Factor(linkage.covariate, (*levels, None), "covariate", scores))
    zeros = [name for name, metric in metrics.items() if metric.missing == "zero"]
    pairs: dict[tuple[str, str], bool] = {}
    for metric in plan.metrics:
        if metric.ratio is not None:
            from_the_start = all(metric.name in began.get(name, (metric.name,)) for name in linkage.experiments)
            pairs[metric.ratio] = pairs.get(metric.ratio, False) or from_the_start
    return TableLayout(
        linkage,
        tuple(factors),
        tuple(metrics.values()),
        {metric.name: _marginals(metric, linkage, factors) for metric in plan.counted_metrics},
        tuple(RatioLayout(pair, all(part in zeros for part in pair), demanded) for pair, demanded in pairs.items()),
    )


def _bins(plan: MetricPlan) -> Factor:
    """Return the bins of a metric, scored by their numbers; without a value is a level where such are excluded."""
    labels = Bins(plan.name, plan.edges).labels
    scores = tuple(map(float, range(len(labels))))
    if plan.missing == "exclude":
        return Factor(plan.name, (*labels, None), "covariate", (*scores, None))
    return Factor(plan.name, labels, "covariate", scores)


def _with_bins(every: Sequence[TableLayout], plan: Plan) -> tuple[TableLayout, ...]:
    """Let the lines of one table of each experiment, the first, move people between bins: each counts once."""
    binned: dict[str, list[TableLayout]] = {}
    for layout in every:
        if layout.linkage.people_only:
            binned.setdefault(layout.linkage.experiments[0], []).append(layout)
    moving = []
    for layout in every:
        tables = binned.pop(layout.linkage.experiments[0], []) if len(layout.linkage.experiments) == 1 else []
        moving.append(replace(layout, bins=tuple(_metric_bins(table, layout, plan) for table in tables)))
    return tuple(moving)


def _metric_bins(table: TableLayout, layout: TableLayout, plan: Plan) -> MetricBins:
    name = table.factors[-1].name
    measure = next(measure for measure, metric in enumerate(layout.metrics) if metric.name == name)
    metric = layout.metrics[measure]
    low, high = metric.grid_bounds or (0, 0)
    grid = range(low, high + 1)  # an edge is the first step that is not below it, as when rows are counted
    edges = tuple(
        low + bisect_left(grid, edge, key=lambda step: step / metric.scale) for edge in plan.metrics_by_name[name].edges
    )
    start = len(edges) + 1 if metric.missing == "exclude" else bisect_right(edges, 0)
    arms, bins = table.factors
    names = {spell(arm): tuple(table.class_key((arm, level), "n") for level in bins.levels) for arm in arms.levels}
    return MetricBins(measure, edges, start, names)


def _marginals(metric: MetricPlan, linkage: Linkage, factors: Sequence[Factor]) -> tuple[By, ...]:
    """Return where squares are kept, as when rows are counted: none for 0/1 metrics, whose squares are their sums."""
    if metric.metric().binary:
        return ()
    if metric.squares == "class":
        return (tuple(factor.name for factor in factors),)
    return tuple((factor.name,) for factor in factors if factor.role == "arm" or linkage.squares == "marginals")


def _open_choices(plan: Plan) -> Iterator[str]:
    """Yield what a collector would have to take from the data, which it must not look at, or could not tell apart."""
    if not plan.experiments:
        yield "experiments is missing: name at least one"
    yield from _unusable_names(plan)
    for metric in plan.counted_metrics:
        path = path_to("metrics", metric.name)
        if not metric.declared:
            yield f"{path} takes its bounds from the data; declare them"
        elif metric.missing != "exclude" and metric.bounds and not metric.bounds[0] <= 0 <= metric.bounds[1]:
            yield f"{path}.bounds do not hold 0, with which everybody begins; declare missing = 'exclude'"
    for experiment in plan.experiments:
        path = path_to("experiments", experiment.name)
        if experiment.arms is None:
            yield f"{path} takes its arms from the data; declare them"
        elif len({spell(arm) for arm in experiment.arms}) < len(experiment.arms):
            yield f"{path}.arms has two arms that are spelled alike in messages; rename one"
        needed = {
            "adjust names a metric, which needs products": experiment.numbers,
            "received needs products": experiment.received,
        }
        for words in (words for words, said in needed.items() if said):
            yield f"{path}.{words} that messages do not carry; count rows instead (kanab release)"
    for name in plan.covariates_in_use:
        if plan.covariate(name).levels is None:
            yield f"{path_to('covariates', name)} takes its levels from the data; declare them"
    if len({frozenset(pair) for pair in plan.ratios}) < len({*plan.ratios}):
        yield "metrics has a ratio and its inverse; declare one of them"


def _unusable_names(plan: Plan) -> Iterator[str]:
    """Yield names that a browser gives another meaning to, in whatever way they are written."""
    groups = {"metrics": plan.metric_names, "covariates": plan.covariates_in_use, "experiments": plan.experiment_names}
    for group, names in groups.items():
        for name in names:
            if name in _NAMES_OF_OBJECTS:
                yield f"{path_to(group, name)}: this name means something else in JavaScript; use another one"
            elif name in (".", ".."):
                yield f"{path_to(group, name)}: this name means something else in an address; use another one"
