"""Several plans as one, so that one pass over the people counts them all: ``join_plans``.

Experiments of the same name and arms are shared, and so are covariates and metrics of the same
name and definition. The same name with another meaning gets an alias, such as "tier#2", which reads
the same column. So does what is chosen on the people of a plan (a grid, bins, the commonest levels)
if another plan is about other people.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kanab.errors import KanabError, PlanError
from kanab.plan.model import CovariatePlan, ExperimentPlan, Linkage, MetricPlan, Plan
from kanab.tally.factor import Level

_LONGEST_STEM = 50  # bytes: PostgreSQL cuts names at 63

Population = tuple[str, ...]
"""The people who are in at least one of these experiments."""


@dataclass(frozen=True)
class View:
    """One of the plans, whom it is about, and what everything in it is called in the joint one."""

    plan: Plan
    population: Population
    experiments: Mapping[str, str]
    covariates: Mapping[str, str]
    metrics: Mapping[str, str]

    def table(self, own: Linkage) -> Linkage:
        """The joint table behind one of the plan's own."""
        covariate = None if own.covariate is None else self.covariates[own.covariate]
        return Linkage(tuple(self.experiments[name] for name in own.experiments), covariate, own.squares)


@dataclass(frozen=True)
class JointPlan(Plan):
    """A plan that counts what several plans need.

    ``copies`` are the columns behind aliases. ``about`` says whose people a covariate or metric is
    about, where that is not everybody.
    """

    tables: tuple[Linkage, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, Population] = field(default_factory=dict)
    views: tuple[View, ...] = ()

    @property
    def linkages(self) -> tuple[Linkage, ...]:
        """The tables of all plans, each once."""
        return self.tables


def views_of(plan: Plan) -> tuple[View, ...]:
    """The plans behind a joint one; a plan by itself is its only view."""
    if isinstance(plan, JointPlan):
        return plan.views
    metrics = [metric.name for metric in plan.counted_metrics]
    names = ({name: name for name in group} for group in (plan.experiment_names, plan.covariates_in_use, metrics))
    return (View(plan, plan.experiment_names, *names),)


def populations(plan: Plan) -> tuple[Population, ...]:
    """The groups of people that the views of a plan are about, each once."""
    return tuple(dict.fromkeys(view.population for view in views_of(plan)))


def covariates_about(plan: Plan, group: Population) -> set[str]:
    """The covariates of the views that are about one group of people."""
    return {name for view in views_of(plan) if view.population == group for name in view.covariates.values()}


def tables_about(plan: Plan, group: Population | None = None) -> dict[str, set[str]]:
    """The tables of all views, or of those about one group of people, and the metrics that each holds.

    Other metrics of a joint plan may not even be about the people of a table.
    """
    found: dict[str, set[str]] = {}
    for view in views_of(plan):
        if group in (None, view.population):
            for own in view.plan.linkages:
                found.setdefault(view.table(own).name, set()).update(view.metrics.values())
    return found


def people_of(plan: Plan, name: str) -> Population:
    """Whose people a covariate or metric is about."""
    everybody = plan.experiment_names
    return plan.about.get(name, everybody) if isinstance(plan, JointPlan) else everybody


def column_of(plan: Plan, name: str) -> str:
    """The column that a name of a plan reads."""
    return plan.copies.get(name, name) if isinstance(plan, JointPlan) else name


def counting_terms(plan: Plan) -> str:
    """What matters of a plan for counting, as a text; plans that agree in it have the same count.

    >>> plan = Plan((MetricPlan("spend"),), (ExperimentPlan("variant"),))
    >>> counting_terms(plan) == counting_terms(replace(plan, k=20))
    True
    """
    experiments = [(one.name, one.arms, one.adjust, one.segments, one.interactions) for one in plan.experiments]
    covariates = [plan.covariate(name) for name in plan.covariates_in_use]
    return repr((experiments, covariates, [_bare(one) for one in plan.metrics]))


def join_plans(plans: Sequence[Plan], taken: Iterable[str] = (), *, apart: bool = False) -> JointPlan:
    """One plan that counts what all of them need; ``taken`` are names that no alias may have.

    ``apart`` shares no covariate or metric among plans about other people: where people are made of
    exposures, each experiment has a first one of its own, and what happened after it.

    >>> first = Plan((MetricPlan("spend", (0, 500)),), (ExperimentPlan("variant", adjust=("tier",)),))
    >>> other = replace(first, metrics=(MetricPlan("spend", (0, 90)),), covariates=(CovariatePlan("tier", bins=3),))
    >>> joint = join_plans([first, other])
    >>> joint.linkage_names, joint.metric_names, dict(joint.copies)
    (('variant/tier', 'variant/tier#2'), ('spend', 'spend#2'), {'tier#2': 'tier', 'spend#2': 'spend'})
    """
    names = _Names(
        {
            *taken,
            *(name for plan in plans for name in (*plan.experiment_names, *plan.metric_names, *plan.covariates_in_use)),
        }
    )
    arms = [{one.name: names.of("arm", one.name, _typed(one.arms)) for one in plan.experiments} for plan in plans]
    order = list(dict.fromkeys(name for own in arms for name in own.values()))
    views = []
    for plan, own in zip(plans, arms, strict=True):
        people = tuple(sorted(own.values(), key=order.index))
        levels = {}
        for name in plan.covariates_in_use:
            one = plan.covariate(name)
            chosen = apart or one.bins is not None or one.top is not None
            levels[name] = names.of("level", name, _levels(one), people if chosen else ())
        metrics = {}
        for metric in plan.counted_metrics:
            chosen = apart or not metric.declared
            metrics[metric.name] = names.of("metric", metric.name, repr(_bare(metric)), people if chosen else ())
        views.append(View(plan, people, own, levels, metrics))
    return _joint(views, order, names)


def _joint(views: Sequence[View], experiments: Sequence[str], names: _Names) -> JointPlan:
    users: dict[str, set[str]] = {}
    for view in views:
        for name in (*view.covariates.values(), *view.metrics.values()):
            users.setdefault(name, set()).update(view.population)
    about = {
        name: tuple(one for one in experiments if one in people)
        for name, people in users.items()
        if len(people) < len(experiments)
    }
    tables = _tables(views)
    return JointPlan(
        (*_metrics(views), *_ratios(views, names)),
        tuple(_experiment(name, views, tables) for name in experiments),
        tuple(_covariate_plans(views)),
        tables=tables,
        copies=names.copies,
        about=about,
        views=tuple(views),
    )


@contextmanager
def own_names(plan: Plan) -> Iterator[None]:
    """Problems within this block come out in words that their reader knows: columns, not aliases."""
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
        """The joint name of something; the same for everything that means the same."""
        key = role, name, meaning
        if key not in self._known:
            self._known[key] = self.fresh(name)
            if self._known[key] != name:
                self.copies[self._known[key]] = name
        return self._known[key]

    def fresh(self, name: str) -> str:
        """The name itself, or the first alias that nothing else is called."""
        found, number = name, 1
        stem = name.encode()[:_LONGEST_STEM].decode(errors="ignore")
        while found in self._used or (number > 1 and found in self._taken):
            number += 1
            found = f"{stem}#{number}"
        self._used.add(found)
        return found


def _typed(levels: Sequence[Level] | None) -> Hashable:
    """Levels as something to compare: true is not the number 1."""
    return None if levels is None else tuple((type(level), level) for level in levels)


def _levels(covariate: CovariatePlan) -> Hashable:
    return _typed(covariate.levels), covariate.bins, covariate.top


def _bare(metric: MetricPlan) -> MetricPlan:
    """What matters for counting a metric."""
    return replace(metric, of=None, sensitive="no")


def _tables(views: Sequence[View]) -> tuple[Linkage, ...]:
    """Every table once, with all the squares that any plan wants of it."""
    found: dict[tuple[Any, ...], Linkage] = {}
    for view in views:
        for own in view.plan.linkages:
            table = view.table(own)
            key = table.experiments, table.covariate
            if key not in found or table.squares == "margins":
                found[key] = table
    names = [table.name for table in found.values()]
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise PlanError(f"two plans need different tables called {name!r}", "Rename an experiment or a covariate.")
    return tuple(found.values())


def _experiment(name: str, views: Sequence[View], tables: Sequence[Linkage]) -> ExperimentPlan:
    arms = next(
        view.plan.experiment(own).shares for view in views for own, joint in view.experiments.items() if joint == name
    )
    own = [table for table in tables if table.experiments == (name,) and table.covariate]
    adjust = tuple(str(table.covariate) for table in own if table.squares == "arm")
    segments = tuple(str(table.covariate) for table in own if table.squares == "margins")
    return ExperimentPlan(name, arms, adjust=adjust, segments=segments)


def _covariate_plans(views: Sequence[View]) -> Iterable[CovariatePlan]:
    found = {joint: view.plan.covariate(own) for view in views for own, joint in view.covariates.items()}
    return (replace(one, name=joint) for joint, one in found.items())


def _metrics(views: Sequence[View]) -> Iterable[MetricPlan]:
    found = {
        view.metrics[one.name]: replace(_bare(one), name=view.metrics[one.name])
        for view in views
        for one in view.plan.counted_metrics
    }
    return found.values()


def _ratios(views: Sequence[View], names: _Names) -> Iterable[MetricPlan]:
    """Every product once: of y and z is of z and y."""
    pairs: dict[frozenset[str], tuple[str, str]] = {}
    for view in views:
        for numerator, denominator in view.plan.ratios:
            first, second = view.metrics[numerator], view.metrics[denominator]
            pairs.setdefault(frozenset((first, second)), (first, second))
    return [MetricPlan(names.fresh("/".join(pair)), ratio=pair) for pair in pairs.values()]
