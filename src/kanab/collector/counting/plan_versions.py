"""Versions of a plan: which may follow which while people are counted, and which one is in force in a period.

What is added holds at once, what divides people anew from the next period, and what would give old numbers a new
meaning is refused, as is a plan that a newer one replaced (docs/how-to/collector.md). An experiment counts the metrics
that it began with; with ε, what it may tell about a person is settled then, and those that ended have spent theirs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from kanab.collector.stores.store import Store, StoredPlan
from kanab.errors import PlanError, StoreError
from kanab.plan.budget import ROUNDING, account_names, epsilon_shares, exclusions, table_names
from kanab.plan.check import path_to, refuse
from kanab.plan.file import plan_digest, plan_from_dict, plan_to_dict
from kanab.plan.model import Budget, CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.plan.values import duration
from kanab.privacy.epsilon.rho import SpentRho, rho_per_person

_Named = TypeVar("_Named", bound=MetricPlan | CovariatePlan | ExperimentPlan)
_STRICTNESS = {"no": 0, "yes": 1, "both": 2}
_WHERE = "the changed plan"


@dataclass(frozen=True)
class Change:
    """The differences between two plans: those that hold at once, and those from the next period; a sentence each."""

    at_once: tuple[str, ...] = ()
    next_period: tuple[str, ...] = ()


@dataclass(frozen=True)
class Version:
    """A plan, and the period in which it was accepted."""

    since: int
    plan: Plan


@dataclass(frozen=True)
class Versions:
    """The plans of a store in the order in which they were accepted."""

    entries: tuple[Version, ...] = ()

    @classmethod
    def read(cls, store: Store) -> Versions:
        """Read the plans that a store has recorded; raises `StoreError` if one has been changed."""
        return cls(tuple(Version(stored.since, _read_plan(stored)) for stored in store.versions()))

    @property
    def newest(self) -> Plan:
        """The plan that was accepted last."""
        return self.entries[-1].plan

    def is_changed(self, plan: Plan) -> bool:
        """Return whether a plan is another one than the newest."""
        return not self.entries or plan_digest(plan) != plan_digest(self.newest)

    def adopt(self, plan: Plan, period: int, *, replaces: int | None = None) -> tuple[Versions, Change]:
        """Return the versions with a plan that is accepted in a period; the newest one again changes nothing.

        A plan that was replaced before comes back only if ``replaces`` is the number of the newest version (1, 2, …).
        Raises `PlanError` with everything that would mix meanings, if the plan may not follow.
        """
        if not self.entries:
            return Versions((Version(period, plan),)), Change()
        if not self.is_changed(plan):
            return self, Change()
        if period < self.entries[-1].since:
            raise PlanError("the newest plan began in a later period than this one", "Check the clock.")
        if replaces != len(self.entries):
            self._refuse_earlier(plan)
        began = {name: self.metrics(name) for name in self.newest.experiment_names}
        refuse([*_mixed(self.known, plan), *_dropped(self.newest, plan, began)], _WHERE)
        later = Versions((*self.entries, Version(period, plan)))
        if plan.budget is not None:
            refuse([*_anew(self, plan), *_overspent(self.known, later.known)], _WHERE)
        return later, _change(self.newest, plan)

    def _refuse_earlier(self, plan: Plan) -> None:
        """Raise `PlanError` for a plan that a newer version has replaced."""
        digest, newest = plan_digest(plan), len(self.entries)
        same = [number for number, version in enumerate(self.entries, 1) if plan_digest(version.plan) == digest]
        if same:
            raise PlanError(
                f"this plan is version {same[-1]} of the store's, and version {newest} has replaced it",
                f"Give the newest plan file; to go back to this plan on purpose, add --replace-plan {newest}.",
            )

    def record(self, store: Store, plan: Plan, period: int, *, replaces: int | None = None) -> tuple[Versions, Change]:
        """Adopt a plan, and write it into the store if it is another one."""
        versions, change = self.adopt(plan, period, replaces=replaces)
        if versions is self:
            return self, change
        document = json.dumps(plan_to_dict(plan), ensure_ascii=False, allow_nan=False).encode()
        try:
            store.add_version(len(self.entries), StoredPlan(period, plan_digest(plan), document))
        except StoreError:
            recorded = Versions.read(store)  # another collector that starts with the same plan may have been quicker
            if len(recorded.entries) <= len(self.entries) or recorded.newest != plan:
                raise
            return recorded, change
        return versions, change

    def in_force(self, period: int) -> Plan:
        """Return the plan for the people who enroll in a period, for as long as they are measured."""
        if not self.entries:
            raise PlanError("the store has no plan yet", "Start the collector with one (--plan).")
        before = [version.plan for version in self.entries if version.since < period]
        plan = before[-1] if before else self.entries[0].plan
        for version in self.entries:
            if version.since == period:
                plan = _joined(plan, version.plan)
        return self._settled(plan)

    def _settled(self, plan: Plan) -> Plan:
        """Return a plan in which every experiment has the part of ε, and every table the weight, that it began with."""
        if plan.budget is None or len(self.entries) == 1:
            return plan
        shares: dict[str, float] = {}
        weights: dict[str, float] = {}
        for version in self.entries:
            shares = epsilon_shares(version.plan) | shares
            began = version.plan.budget.weights if version.plan.budget is not None else {}
            weights = {name: began.get(name, 1.0) for name in table_names(version.plan)} | weights
        shares = {name: shares[name] for name in account_names(plan)}
        weights = {name: weights[name] for name in table_names(plan) if weights[name] != 1}
        return replace(plan, budget=replace(plan.budget, shares=shares, weights=weights))

    def metrics(self, *experiments: str) -> tuple[str, ...]:
        """Return the metrics that an experiment began with; for several experiments those that all began with."""
        firsts = [
            next((version.plan.metric_names for version in self.entries if name in version.plan.experiment_names), ())
            for name in experiments
        ]
        return tuple(metric for metric in firsts[0] if all(metric in names for names in firsts)) if firsts else ()

    def over(self, first: int, last: int) -> Plan:
        """Return the plan for everybody who enrolled in some periods: the last one, and what ended on the way."""
        plan = self.in_force(first)
        for period in self._turns(first, last):
            plan = _with_ended(plan, self.in_force(period))
        return self._settled(plan)

    def phases(self, first: int, last: int) -> list[int]:
        """Return the last period of every phase between two periods: after it, people were divided anew."""
        ends = [
            period - 1
            for period in self._turns(first, last)
            if any(
                _divided(before) != _divided(after)
                for before, after in _both(self.in_force(period - 1).experiments, self.in_force(period).experiments)
            )
        ]
        return [*ends, last]

    def _turns(self, first: int, last: int) -> list[int]:
        """Return the periods after the first in which another plan may be in force than in the one before."""
        turns = {period for version in self.entries for period in (version.since, version.since + 1)}
        return sorted(period for period in turns if first < period <= last)

    @property
    def known(self) -> Plan:
        """Everything that was ever declared, as it was declared last."""
        plan = self.entries[0].plan
        for version in self.entries[1:]:
            plan = _with_ended(plan, version.plan)
        return self._settled(plan)


def _read_plan(stored: StoredPlan) -> Plan:
    problem = StoreError("a plan in the store has been changed", "Restore the store from a backup.")
    try:
        plan = plan_from_dict(json.loads(stored.document))
    except (ValueError, PlanError):
        raise problem from None
    if plan_digest(plan) != stored.digest:
        raise problem
    return plan


def _both(old: Sequence[_Named], new: Sequence[_Named]) -> Iterator[tuple[_Named, _Named]]:
    """Yield the parts of both plans that have the same name."""
    by_name = {part.name: part for part in new}
    yield from ((part, by_name[part.name]) for part in old if part.name in by_name)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


def _mixed(old: Plan, new: Plan) -> Iterator[str]:
    """Yield what would give numbers that are there already another meaning."""
    yield from _mixed_terms(old, new)
    for metric, changed_metric in _both(old.metrics, new.metrics):
        mistakes = [*_mixed_metric(metric, changed_metric)]
        yield from mistakes
        if not mistakes and changed_metric.events(new.k) < metric.events(old.k):
            yield f"{path_to('metrics', metric.name)}.least_events may not become smaller: batches were promised more"
    for covariate, changed in _both(old.covariates, new.covariates):
        if covariate.counting != changed.counting:
            yield f"{path_to('covariates', covariate.name)} may not change: people are counted by its levels already"
    for experiment, now in _both(old.experiments, new.experiments):
        yield from _mixed_experiment(experiment, now, phases=new.cohorts is not None)
    running = {*old.experiment_names} & {*new.experiment_names}
    before, after = ({link for link in plan.linkages if running.issuperset(link.experiments)} for plan in (old, new))
    for linkage in sorted(before ^ after, key=lambda link: (link.name, link.squares)):
        path = path_to("experiments", linkage.experiments[0])
        fact = "is counted already, and would end or hold something else" if linkage in before else "would begin"
        yield f"{path}: the table {linkage.name} {fact} while the experiment runs; begin another experiment"


def _mixed_terms(old: Plan, new: Plan) -> Iterator[str]:
    if new.k < old.k:
        yield "k may not become smaller: batches were promised the larger one"
    if (old.cohorts is None) != (new.cohorts is None):
        yield "cohorts may not be added or removed: begin a new store"
    elif old.cohorts is not None and new.cohorts is not None:
        for key in ("every", "window"):
            if duration(getattr(old.cohorts, key)) != duration(getattr(new.cohorts, key)):
                yield f"cohorts.{key} may not change: people of one cohort would be measured differently"
    if duration(new.nonce_life) > duration(old.nonce_life):
        yield "nonce_life may not become longer: nonces that are forgotten already could be counted again"
    if old.durability != new.durability:
        yield "durability may not change: begin a new store"
    if _terms_of(old.budget) != _terms_of(new.budget):
        yield "privacy may not change: people enrolled under what it promised; begin a new store"
    elif new.budget is not None and {*new.metric_names} - {*old.metric_names}:
        yield "metrics may not be added to a plan with privacy.epsilon: begin a new store"


def _terms_of(budget: Budget | None) -> Budget | None:
    """Return what ε promises, whichever experiments share it."""
    return budget and replace(budget, shares={}, weights={})


def _anew(before: Versions, new: Plan) -> Iterator[str]:
    """Yield what would spend ε on people once more, or otherwise than when their experiment began."""
    known, budget = before.known, new.budget
    assert budget is not None
    shares, weights = epsilon_shares(known), known.budget.weights if known.budget is not None else {}
    for name, share in budget.shares.items():
        if shares.get(name, share) != share:
            yield f"privacy.shares: that of {name!r} may not change: people enrolled under it"
    for name in {*table_names(known)} & {*table_names(new)}:
        if weights.get(name, 1.0) != budget.weights.get(name, 1.0):
            yield f"privacy.weights: that of {name!r} may not change: people are counted under it"
    ended = {*known.experiment_names} - {*before.newest.experiment_names}
    for name in new.experiment_names:
        if name in ended:
            yield f"{path_to('experiments', name)} ended, and people may be in it: with ε, begin one with another name"
    for name in _added(new.experiment_names, before.newest.experiment_names):
        for other in new.experiment_names:
            if frozenset((name, other)) in exclusions(known):
                path = path_to("experiments", name)
                yield f"{path} may not end before {other!r}, which would then take its people: with ε, end both"


def _overspent(old: Plan, new: Plan) -> Iterator[str]:
    """Yield why what is known of all experiments, those that ended too, spends more than the total."""
    spent, before = (rho_per_person([SpentRho(epsilon_shares(plan), apart=exclusions(plan))]) for plan in (new, old))
    if spent > 1 + ROUNDING:
        left = max(0.0, 1 - before)
        yield (
            "privacy.epsilon is what everything may tell about one person, and with experiments that have begun before "
            f"{spent:.3g} times as much would be told; {left:.3g} of it is left for new ones (privacy.shares)"
        )


def _mixed_metric(old: MetricPlan, new: MetricPlan) -> Iterator[str]:
    path = path_to("metrics", old.name)
    old, new = (replace(metric, missing=metric.missing or "zero") for metric in (old, new))  # everybody begins with 0
    for key in ("binary", "bounds", "resolution", "missing", "of", "ratio", "squares"):
        if getattr(old, key) != getattr(new, key):
            word = "kind" if key == "binary" else key
            yield f"{path}.{word} may not change: sums before and after would not be of the same thing"
    if old.bins not in (None, new.bins):
        yield f"{path}.bins may not change: people are counted by them already"
    if _STRICTNESS[new.sensitive] < _STRICTNESS[old.sensitive]:
        yield f"{path}.sensitive may only become stricter"


def _mixed_experiment(old: ExperimentPlan, new: ExperimentPlan, *, phases: bool) -> Iterator[str]:
    path = path_to("experiments", old.name)
    if set(old.arms or ()) != set(new.arms or ()):
        yield f"{path}.arms may not be added, removed or renamed while it runs; begin another experiment"
    elif not phases and _divided(old) != _divided(new):
        yield f"{path}.arms: other shares hold from the next period, and without cohorts there is none"
    for key, why in (
        ("salt", "people would change their arms"),
        ("exclude_with", "people would leave the experiment"),
        ("looks", "the limits of earlier looks depend on it"),
    ):
        if getattr(old, key) != getattr(new, key):
            yield f"{path}.{key} may not change while it runs: {why}"


def _dropped(old: Plan, new: Plan, began: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield what a plan may not leave out: a metric of an experiment that runs on; without cohorts, an experiment."""
    running = [name for name in old.experiment_names if name in new.experiment_names]
    for name in _added(new.metric_names, old.metric_names):
        if any(name in began[experiment] for experiment in running):
            yield f"{path_to('metrics', name)} may not be removed while an experiment that began with it runs"
    for name in _added(new.experiment_names, old.experiment_names):
        if new.cohorts is None:
            yield f"{path_to('experiments', name)} ends with a period, and without cohorts there is none: seal first"


# ── what changes, and when ──────────────────────────────────────────────────────────────────────


def _divided(experiment: ExperimentPlan) -> tuple[dict[Any, float], float]:
    """Return how people are divided: each arm's part of all of them, and the holdout."""
    total = sum(share for _, share in experiment.shares or ())
    return {arm: share / total for arm, share in experiment.shares or ()}, experiment.holdout


def _change(old: Plan, new: Plan) -> Change:
    began = [f"{path_to('experiments', name)} begins" for name in _added(old.experiment_names, new.experiment_names)]
    goes_on = any(name in new.experiment_names for name in old.experiment_names)
    rest = "; the others keep the metrics they began with" if goes_on else ""
    counted = [
        f"{path_to('metrics', name)} is counted by experiments that begin with it or later{rest}"
        for name in _added(old.metric_names, new.metric_names)
    ]
    at_once = ("k", "origins", "nonce_life", "vouch")
    terms = [f"{key} changes" for key in at_once if getattr(old, key) != getattr(new, key)]
    if old.cohorts and new.cohorts and old.cohorts.seal != new.cohorts.seal:
        terms.append("cohorts.seal changes")
    phases = [
        f"{path_to('experiments', before.name)} has a new phase with other shares"
        for before, now in _both(old.experiments, new.experiments)
        if _divided(before) != _divided(now)
    ]
    read = [
        f"{path_to('experiments', before.name)}.{key} changes: results are read so from the next seal on"
        for before, now in _both(old.experiments, new.experiments)
        for key in ("primary", "guardrails", "lower_is_better", "non_inferiority", "decision", "quantiles")
        if getattr(before, key) != getattr(now, key)
    ]
    ended = [f"{path_to('experiments', name)} ends" for name in _added(new.experiment_names, old.experiment_names)]
    return Change((*began, *counted, *terms, *read), (*phases, *ended))


def _added(old: Sequence[str], new: Sequence[str]) -> list[str]:
    return [name for name in new if name not in old]


def _joined(old: Plan, new: Plan) -> Plan:
    """Return the new plan for the rest of the period in which it was accepted: nobody is divided anew, nothing ends."""
    before = {experiment.name: experiment for experiment in old.experiments}
    experiments = tuple(
        replace(experiment, shares=before[experiment.name].shares, holdout=before[experiment.name].holdout)
        if experiment.name in before
        else experiment
        for experiment in new.experiments
    )
    return _with_ended(old, replace(new, experiments=experiments))


def _with_ended(old: Plan, new: Plan) -> Plan:
    """Return the new plan, and what only the old one has."""
    return replace(
        new,
        metrics=_union(new.metrics, old.metrics),
        covariates=_union(new.covariates, old.covariates),
        experiments=_union(new.experiments, old.experiments),
    )


def _union(new: Sequence[_Named], old: Sequence[_Named]) -> tuple[_Named, ...]:
    names = {part.name for part in new}
    return (*new, *(part for part in old if part.name not in names))
