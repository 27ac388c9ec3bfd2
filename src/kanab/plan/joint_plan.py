"""Several plans as one, so that one pass over the people counts them all; what means the same is shared.

A name with another meaning gets an alias of its column, such as "tier#2". So does what is chosen on the people of a
plan (a grid, bins, the commonest levels) if another plan is about other people.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Any

from kanab.errors import KanabError, PlanError
from kanab.plan.model import ExperimentPlan, Linkage, Plan
from kanab.tally.factor import Level

_LONGEST_STEM = 50  # bytes: PostgreSQL cuts names at 63

Population = tuple[str, ...]
"""The people who are in at least one of these experiments."""


@dataclass(frozen=True)
class View:
    """One of the plans, the people it is about, and its names in the joint plan."""

    plan: Plan
    population: Population
    experiments: Mapping[str, str]
    covariates: Mapping[str, str]
    metrics: Mapping[str, str]

    def table(self, linkage: Linkage) -> Linkage:
        """Return the joint table behind one of the plan's own."""
        covariate = None if linkage.covariate is None else self.covariates[linkage.covariate]
        experiments = tuple(self.experiments[name] for name in linkage.experiments)
        return replace(linkage, experiments=experiments, covariate=covariate)


@dataclass(frozen=True)
class JointPlan(Plan):
    """A plan for several: ``copies`` are the columns behind aliases, ``about`` says whose people a name is about."""

    tables: tuple[Linkage, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, Population] = field(default_factory=dict)
    views: tuple[View, ...] = ()

    @property
    def linkages(self) -> tuple[Linkage, ...]:
        """The tables of all plans, each once."""
        return self.tables

    @property
    def weights(self) -> tuple[str, ...]:
        """The metrics that weigh sums of others in any plan."""
        weights = chain.from_iterable(map(view.metrics.__getitem__, view.plan.weights) for view in self.views)
        return tuple(dict.fromkeys(weights))

    @property
    def products(self) -> tuple[tuple[str, str], ...]:
        """Every product of all plans once: that of y and z is that of z and y."""
        pairs: dict[frozenset[str], tuple[str, str]] = {}
        for view in self.views:
            for pair in view.plan.products:
                first, second = (view.metrics[name] for name in pair)
                pairs.setdefault(frozenset((first, second)), (first, second))
        return tuple(pairs.values())


def views_of(plan: Plan) -> tuple[View, ...]:
    """Return the plans behind a joint one; a plan by itself is its only view."""
    if isinstance(plan, JointPlan):
        return plan.views
    metrics = [metric.name for metric in plan.counted_metrics]
    names = ({name: name for name in group} for group in (plan.experiment_names, plan.factors_in_use, metrics))
    return (View(plan, plan.experiment_names, *names),)


def populations(plan: Plan) -> tuple[Population, ...]:
    """Return the groups of people that the views of a plan are about, each once."""
    return tuple(dict.fromkeys(view.population for view in views_of(plan)))


def covariates_about(plan: Plan, group: Population) -> set[str]:
    """Return the covariates of the views that are about one group of people."""
    return {*chain.from_iterable(view.covariates.values() for view in views_of(plan) if view.population == group)}


def tables_about(plan: Plan, group: Population | None = None) -> dict[str, set[str]]:
    """Return the tables of all views, or of those about one group of people, with the metrics about the same people."""
    tables: dict[str, set[str]] = {}
    for view in views_of(plan):
        if group in (None, view.population):
            for linkage in view.plan.linkages:
                own = {view.metrics[metric.name] for metric in view.plan.metrics_of(linkage)}
                tables.setdefault(view.table(linkage).name, set()).update(own)
    return tables


def people_of(plan: Plan, name: str) -> Population:
    """Return the experiments whose people a covariate or metric is about."""
    everybody = plan.experiment_names
    return plan.about.get(name, everybody) if isinstance(plan, JointPlan) else everybody


def column_of(plan: Plan, name: str) -> str:
    """Return the column that a name of a plan reads."""
    return plan.copies.get(name, name) if isinstance(plan, JointPlan) else name


def counting_terms(plan: Plan) -> str:
    """Return what matters of a plan for counting, as a text; plans that agree in it have the same count."""
    parts = attrgetter("name", "arms", "adjust", "segments", "interactions", "numbers", "received")
    experiments = [(*parts(each), tuple(each.quantiles)) for each in plan.experiments]
    covariates = [plan.covariate(name).counting for name in plan.covariates_in_use]
    return repr((experiments, covariates, [metric.counting for metric in plan.metrics]))


def join_plans(plans: Sequence[Plan], taken: Iterable[str] = (), *, apart: bool = False) -> JointPlan:
    """Return one plan that counts what all of them need; ``taken`` are names that no alias may have.

    ``apart`` shares no covariate or metric among plans about other people: where people are made of
    exposures, each experiment has a first one of its own, and what happened after it. Raises `PlanError`
    where different tables would have the same name.
    """
    own = ((*plan.experiment_names, *plan.metric_names, *plan.covariates_in_use) for plan in plans)
    names = _Names({*taken, *chain.from_iterable(own)})
    aliases = [
        {each.name: names.of("arm", each.name, _typed(each.arms)) for each in plan.experiments} for plan in plans
    ]
    order = list(dict.fromkeys(chain.from_iterable(experiments.values() for experiments in aliases)))
    views = []
    for plan, experiments in zip(plans, aliases, strict=True):
        people = tuple(sorted(experiments.values(), key=order.index))
        levels = {}
        for name in plan.covariates_in_use:
            covariate = plan.covariate(name)
            chosen = apart or covariate.bins is not None or covariate.top is not None
            meaning = _typed(covariate.levels), covariate.bins, covariate.top
            levels[name] = names.of("level", name, meaning, people if chosen else ())
        metrics = {}
        for metric in plan.counted_metrics:
            chosen = apart or not metric.declared or metric.missing is None
            role = "number" if metric.name in plan.numbers else "metric"
            metrics[metric.name] = names.of(role, metric.name, repr(metric.counting), people if chosen else ())
        levels |= {name: metrics[name] for name in plan.binned_metrics}
        views.append(View(plan, people, experiments, levels, metrics))
    return _joint(views, order, names)


def _joint(views: Sequence[View], experiments: Sequence[str], names: _Names) -> JointPlan:
    users: dict[str, set[str]] = {}
    for view in views:
        for name in (*view.covariates.values(), *view.metrics.values()):
            users.setdefault(name, set()).update(view.population)
    about = {
        name: tuple(experiment for experiment in experiments if experiment in people)
        for name, people in users.items()
        if len(people) < len(experiments)
    }
    covariates, metrics = {}, {}
    for view in views:
        for name in view.plan.covariates_in_use:
            joint = view.covariates[name]
            covariates[joint] = replace(view.plan.covariate(name), name=joint)
        for metric in view.plan.counted_metrics:
            joint = view.metrics[metric.name]
            metrics[joint] = replace(metric.counting, name=joint)
    tables = _tables(views)
    return JointPlan(
        tuple(metrics.values()),
        tuple(_experiment(name, views, tables) for name in experiments),
        tuple(covariates.values()),
        tables=tables,
        copies=names.copies,
        about=about,
        views=tuple(views),
    )


@contextmanager
def own_names(plan: Plan) -> Iterator[None]:
    """Raise the problems of this block in words that their reader knows: columns, not aliases."""
    try:
        yield
    except KanabError as problem:
        copies = plan.copies if isinstance(plan, JointPlan) else {}
        for alias in sorted(copies, key=len, reverse=True):
            problem.fact = problem.fact.replace(alias, copies[alias])
            problem.remedy = problem.remedy.replace(alias, copies[alias])
            problem.args = (str(problem).replace(alias, copies[alias]),)
        raise


class _Names:
    """Gives out names: the first meaning keeps its own, every other one gets an alias."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._used: set[str] = set()
        self._known: dict[Hashable, str] = {}
        self.copies: dict[str, str] = {}

    def of(self, role: str, name: str, *meaning: Hashable) -> str:
        """Return the joint name of something; the same for everything that means the same."""
        key = role, name, meaning
        if key not in self._known:
            alias, number = name, 1
            stem = name.encode()[:_LONGEST_STEM].decode(errors="ignore")
            while alias in self._used or (number > 1 and alias in self._taken):
                number += 1
                alias = f"{stem}#{number}"
            self._used.add(alias)
            self._known[key] = alias
            if alias != name:
                self.copies[alias] = name
        return self._known[key]


def _typed(levels: Sequence[Level] | None) -> Hashable:
    """Return levels as something to compare: true is not the number 1."""
    return None if levels is None else tuple((type(level), level) for level in levels)


def _tables(views: Sequence[View]) -> tuple[Linkage, ...]:
    """Return every table once, with all the squares that any plan wants of it."""
    tables: dict[tuple[Any, ...], Linkage] = {}
    for view in views:
        for linkage in view.plan.linkages:
            table = view.table(linkage)
            key = table.experiments, table.covariate
            if key not in tables or table.squares == "marginals":
                tables[key] = table
    names = [table.name for table in tables.values()]
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise PlanError(f"two plans need different tables called {name!r}", "Rename an experiment or a covariate.")
    return tuple(tables.values())


def _experiment(name: str, views: Sequence[View], tables: Sequence[Linkage]) -> ExperimentPlan:
    planned: ExperimentPlan | None = None
    numbers: set[str] = set()
    for view in views:
        for alone in (alone for alone, joint in view.experiments.items() if joint == name):
            asked = view.plan.experiment(alone)
            planned = planned or asked
            numbers.update(view.metrics[number] for number in asked.numbers)
    assert planned is not None
    own = [table for table in tables if table.experiments == (name,) and table.covariate]
    crossed = [table for table in own if not table.people_only]
    quantiles: dict[str, tuple[float, ...]] = {str(table.covariate): () for table in own if table.people_only}
    adjust = tuple(str(table.covariate) for table in crossed if table.squares == "arm")
    segments = tuple(str(table.covariate) for table in crossed if table.squares == "marginals")
    return ExperimentPlan(
        name,
        planned.shares,
        adjust=adjust,
        segments=segments,
        only=planned.only,
        numbers=tuple(sorted(numbers)),
        quantiles=quantiles,
    )
