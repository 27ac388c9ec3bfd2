"""The gate: ``release`` applies every rule to what was counted, and makes a release or refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from os import PathLike

import numpy as np

from kanab.arguments import check_arguments
from kanab.counted import Counted, decided_plan, floor_to_k
from kanab.description import LEAST_K_WITHOUT_OVERRIDE
from kanab.errors import PlanError, PrivacyError
from kanab.plan.model import Budget, published_plan
from kanab.plan.paired_covariates import planned_pairs
from kanab.privacy.audit import audit_table
from kanab.privacy.class_rules import (
    Draft,
    check_arms,
    check_k,
    draft_table,
    leave_out,
    missing_values_are_safe,
    products_are_safe,
    published_map,
    ways_out,
)
from kanab.privacy.covariate_pairs import cross_pairs, single_tables
from kanab.privacy.epsilon.accountant import NO_LEDGER, asked_budget, with_budget, within_ledger
from kanab.privacy.epsilon.noisy_release import check_declared, release_with_noise
from kanab.privacy.joint_rules import (
    JointDrafts,
    arm_columns,
    as_published,
    first_linkages,
    leave_out_experiments,
    merge_jointly,
)
from kanab.privacy.ledger import Ledger, append_release, hold_ledger, ready_witness
from kanab.privacy.leverage import holds
from kanab.privacy.merging import LevelMap
from kanab.privacy.numbers.design import Weights, known_numbers
from kanab.privacy.numbers.rule import weigh_numbers
from kanab.privacy.overlap import Column, Place, ShownTable
from kanab.privacy.recoding import few_numbers, merge_to_contributors, recode, squares_by_arm
from kanab.privacy.recount import batch_of, check_batches, recount_earlier
from kanab.privacy.release import Receipt, Release, refuse_own_rows
from kanab.privacy.request import ReleaseRequest, refusals_noted, same_release, validate_choices, validate_request
from kanab.tally.tally import Tally


@check_arguments(skip=("counted", "k"))
def release(
    counted: Counted,
    k: int | None = None,
    *,
    override: str = "",
    ledger: str | PathLike[str] | None = None,
    new_ledger: bool = False,
    reviewed: str = "",
    epsilon: float | None = None,
    delta: float | None = None,
) -> Release:
    """Merge sparse levels, check every rule, and say what was done; or refuse.

    counted: what `count` returned.
    k: people whom a class holds at least, or nobody; by default that of the plan.
    override: the reason for a k below 5; it is recorded.
    ledger: the path of a ledger: what was released into it before counts as well, and the release is added to it.
    new_ledger: whether to begin it.
    reviewed: the reason why refused attempts, which a ledger notes, are none to stop; needed after 20 of them.
    epsilon: instead of withholding, every number carries noise, so that differential privacy holds at this ε.
    delta: the δ that goes with it.

    Raises `PrivacyError` where a rule cannot be kept.
    """
    budget = asked_budget(_checked(counted).plan, epsilon, delta)
    if budget is not None:  # before a ledger is begun
        check_declared(decided_plan(_with_budget(counted, budget)), counted.choices)
    if ledger is None:
        return make_release(_with_budget(counted, budget), k, override=override)
    with hold_ledger(ledger) as held:
        asked = _with_budget(counted, budget and within_ledger(budget, counted.plan, held))
        request = ReleaseRequest.of(asked, k)
        before = validate_request(ledger, held, request, new_ledger=new_ledger, reviewed=reviewed)
        if (same := same_release(request, before)) is not None:
            return same
        return release_into(ledger, before, asked, k, override=override, request=request)


def release_into(
    path: str | PathLike[str],
    before: Ledger,
    counted: Counted,
    k: int | None,
    *,
    override: str,
    request: ReleaseRequest,
    deviations: tuple[str, ...] = (),
) -> Release:
    """Make a release after those of a ledger that is held, and add it: nothing leaves before the ledger has it."""
    if counted.plan.budget is not None:
        ready_witness()
    with refusals_noted(path, before, request):
        made = deviating(make_release(counted, k, override=override, ledger=before), deviations)
    append_release(path, before, made)
    return made


def deviating(released: Release, deviations: tuple[str, ...]) -> Release:
    """Return a release whose receipt records further deviations."""
    return replace(released, receipt=replace(released.receipt, deviations=(*released.receipt.deviations, *deviations)))


def _with_budget(counted: Counted, budget: Budget | None) -> Counted:
    return replace(counted, plan=with_budget(counted.plan, budget))


def _check_events(counted: Counted) -> None:
    """Raise `PlanError` where events are asked for of a metric that nobody has or lacks."""
    binary = {metric.name: metric.binary for tally in counted.tallies.values() for metric in tally.metrics}
    for plan in counted.plan.counted_metrics:
        if plan.min_events is not None and plan.of is None and not binary.get(plan.name, True):
            raise PlanError(
                f"least_events of {plan.name!r}: that is not a 0/1 metric",
                "Ask for it of a 0/1 metric, or say in a plan file of which 0/1 metric this is (of).",
            )


def _checked(counted: Counted) -> Counted:
    refuse_own_rows(counted)
    if not isinstance(counted, Counted):
        raise PrivacyError("only what count() returns can be released", "Call count() on the source first.")
    if not counted.for_release:
        raise PrivacyError(
            "this was counted to be read here, without what the rules ask for", "Count it again: count()."
        )
    return counted


def make_release(
    counted: Counted,
    k: int | None = None,
    *,
    override: str = "",
    ledger: Ledger | None = None,
    without: Mapping[str, str] | None = None,
) -> Release:
    """Make a release after those of a ledger; nothing is written. Raises `PrivacyError` where a rule cannot be kept.

    Tables ``without`` which it is to be made, if it has no ε, are left out, with the reason.
    """
    before, budget = ledger or Ledger(), _checked(counted).plan.budget
    validate_choices(ReleaseRequest.of(counted), before)
    rule = check_k(counted.plan.k if k is None else k, override)
    deviations: tuple[str, ...] = (f"k = {rule}: {override}",) if rule < LEAST_K_WITHOUT_OVERRIDE else ()
    if budget is not None:
        alone = (NO_LEDGER,) if ledger is None else ()
        return release_with_noise(counted, budget, rule, ledger, deviations=(*deviations, *alone))
    counted = replace(counted, plan=published_plan(counted.plan, rule))
    if any(old.receipt.k > rule for old in before.releases):
        raise PrivacyError("earlier releases of the ledger promise a larger k", "Give that k, or a larger one (--k).")
    maps = check_batches(counted, before.releases)
    # Arms before anything that values decide: where an arm is too small, no value changes what is said.
    units = "clusters" if "assigned_by" in counted.choices else "people"
    for linkage in first_linkages(counted.plan):
        check_arms(counted.tallies[linkage.name], counted.plan.experiment(linkage.experiments[0]), rule, units)
    if ledger is not None and not counted.bounds_declared:
        raise PrivacyError(
            "bounds were taken from the data, and a ledger would give them away",
            "Declare them: --bounds spend=0:500, or in the plan.",
        )
    _check_events(counted)
    earlier = () if counted.span is not None else recount_earlier(counted, before.releases)
    old = [classes for table in earlier for classes in (*table.columns, *(having for _, having in table.cut))]
    counted, apart = leave_out_experiments(squares_by_arm(counted), old)
    weights = Weights(known_numbers(counted)).with_columns(column for table in earlier for column in table.weighted)
    joint = merge_jointly(counted, _drafts(counted, maps, before, without or {}), old, weights)
    gate = _Gate(counted, joint, earlier, sentences=apart, weights=weights)
    gate.recode(old)
    gate.publish_arms()
    for name in gate.joint.drafts:
        gate.publish(name)
    gate.keep_effects()
    gate.cut_products()
    gate.weigh_numbers()
    gate.cross()
    return Release(
        counted.plan,
        gate.tables,
        gate.receipt(deviations, before.name),
        counted.bounds_declared,
        None if ledger is None else ledger.head,
        ranges=counted.ranges_in_units,
        rates=counted.rates,
    )


def _drafts(
    counted: Counted, maps: Mapping[str, LevelMap | None], before: Ledger, without: Mapping[str, str]
) -> dict[str, Draft]:
    """Draft every table by its own rules. What an earlier batch left out stays out."""
    drafts = {}
    planned_before = {name for old in before.releases for name in old.plan.linkage_names}
    for linkage in counted.plan.linkages:
        draft = draft_table(linkage, counted.tallies[linkage.name], counted.plan, maps.get(linkage.name))
        gone = counted.span is not None and linkage.name in planned_before and linkage.name not in maps
        why = without.get(linkage.name) or ("an earlier batch is without it" if gone else "")
        drafts[linkage.name] = leave_out(draft, why) if why and not draft.why else draft
    return drafts


# ── the rules over all tables ──────────────────────────────────────────────────────────────────


@dataclass
class _Gate:
    """Tables as they pass, one by one, and what is said about those that do not."""

    counted: Counted
    joint: JointDrafts
    earlier: Sequence[ShownTable] = ()
    tables: dict[str, Tally] = field(default_factory=dict)
    maps: dict[str, LevelMap] = field(default_factory=dict)
    sentences: dict[str, str] = field(default_factory=dict)
    barred: set[Place] = field(default_factory=set)
    weights: Weights = field(default_factory=Weights)
    products: set[tuple[str, frozenset[str]]] = field(default_factory=set)

    def recode(self, old: Sequence[Column]) -> None:
        """Merge levels further, or withhold metrics, where few people are behind an amount."""
        values_known = self.counted.spans_experiments
        if values_known:
            recoded = recode(self.counted, self.joint.drafts, self.earlier)
        else:
            recoded = merge_to_contributors(self.counted, self.joint.drafts)
        if recoded.drafts != self.joint.drafts:  # what is merged further hides people better
            self.joint = merge_jointly(self.counted, recoded.drafts, old, self.weights)
        few = few_numbers(self.counted, self.joint.drafts, self.earlier) if values_known else {}
        for place, why in {**recoded.withheld, **few}.items():
            self.sentences[": ".join(place)] = why
            self.barred.add(place)
        for (experiment, pair), why in recoded.products.items():
            self.sentences[f"{experiment}: {' and '.join(sorted(pair))}"] = why
            self.products.add((experiment, pair))

    def publish_arms(self) -> None:
        """Bar metrics whose arm totals give somebody away from all tables, for every table adds up to them."""
        for linkage in first_linkages(self.counted.plan):
            name = linkage.experiments[0]
            whole = self.counted.arm_totals(name)
            shown = self._audited(name, self._without_gaps(name, self._without_barred((name,), whole)), whole)
            self.barred |= {(name, metric) for metric in whole.metric_names if metric not in shown.metric_names}

    def publish(self, name: str) -> None:
        """Add a table without the metrics that may not be shown by class."""
        draft = self.joint.drafts[name]
        if draft.why:
            self.sentences[name] = draft.why
            return
        levels = published_map(draft, self.counted.plan)
        if levels is not None and levels.merged:
            self.maps[name] = levels
        whole = draft.tally if levels is None else levels.apply(draft.tally)
        table = self._without_barred((name, *draft.linkage.experiments), whole)
        table = self._audited(name, self._without_gaps(name, table), whole)
        self.tables[name] = self._without_products(name, table)

    def _without_barred(self, names: Sequence[str], table: Tally) -> Tally:
        """Leave out the metrics that are withheld under one of some names."""
        barred = {metric for name, metric in self.barred if name in names}
        return table.select_metrics(metric for metric in table.metric_names if metric not in barred)

    def cut_products(self) -> None:
        """Withhold products with 0/1 metrics that, beside the classes, would single out those who have one."""
        signatures, k = self.counted.signatures, self.counted.plan.k
        if signatures is None or signatures.within:
            return
        for name, arms in arm_columns(self.counted).items():
            own = [table for table in self.tables.values() if table.experiment_names == (name,)]
            pairs = {frozenset(cross.pair) for table in own for cross in table.crosses}
            for metric, having in signatures.cut.items():
                if not any(metric in pair for pair in pairs):
                    continue
                columns = (*self.joint.columns, np.where(having, arms, -1))
                result = self.weights.leverage(np.stack(columns, axis=1), signatures.people)
                if holds(result, k):
                    self.joint = replace(self.joint, columns=columns)
                    self._lower(result.floored(k))
                else:
                    self.sentences[f"{name}: products of {metric}"] = (
                        f"products of {metric} are withheld in {name}: beside its classes, fewer than k people could "
                        "be told by having it"
                    )
                    self._drop_products(name, {metric})

    def keep_effects(self) -> None:
        """Add the arm totals of metrics that no table of their experiment carries any more, with their products."""
        plan = self.counted.plan
        for linkage in first_linkages(plan):
            name = linkage.experiments[0]
            links = [link for link in plan.linkages_of(name) if not link.people_only]
            names = [link.name for link in links if link.name in self.tables]
            published = {metric for table in names for metric in self.tables[table].metric_names}
            arms = self.counted.arm_totals(name)
            lost = {m for m in arms.metric_names if m not in published and (name, m) not in self.barred}
            if lost or not names:
                crosses = tuple(
                    part for part in arms.crosses if {*part.pair} & lost and {*part.pair} <= lost | published
                )
                kept = lost.union(*(part.pair for part in crosses))
                arms = replace(arms.select_metrics(m for m in arms.metric_names if m in kept), crosses=crosses)
                self.tables[name] = self._without_products(name, arms)

    def weigh_numbers(self) -> None:
        """Withhold products with numbers that could be searched for people, or weigh somebody too heavily."""
        weighed = weigh_numbers(self.counted, self.tables, self.joint.columns, self.weights)
        self.weights = weighed.weights
        for (experiment, parts), why in weighed.withheld.items():
            what = " and ".join(sorted(parts)) if len(parts) > 1 else f"products of {min(parts)}"
            self.sentences[f"{experiment}: {what}"] = why
            self._drop_products(experiment, parts)
        if weighed.result is not None:
            self._lower(weighed.result.floored(self.counted.plan.k))

    def _drop_products(self, experiment: str, metrics: Set[str]) -> None:
        """Withhold the products in which all of these metrics are."""
        for name, table in self.tables.items():
            if table.experiment_names == (experiment,):
                crosses = tuple(cross for cross in table.crosses if not metrics <= {*cross.pair})
                self.tables[name] = replace(table, crosses=crosses)

    def _lower(self, effective_k: int) -> None:
        """Note an effective k that further sums or tables lower."""
        self.joint = replace(self.joint, effective_k=min(effective_k, self.joint.effective_k or effective_k))

    def cross(self) -> None:
        """Add tables of two covariates, people only, as far as they may join the others: for joint adjustment."""
        if self.counted.signatures is None or not planned_pairs(self.counted.plan):
            return
        drafts, parts = self.joint.drafts, self.joint.parts
        for counted, classes in ((self.counted, self.joint.columns),) if parts is None else parts:
            published = {
                name: as_published(drafts[name])
                for name, table in self.tables.items()
                if name in drafts and name in counted.tallies and len(table.arms) == len(table.covariates) == 1
            }
            singles = single_tables(counted, published, self.tables)
            pairs = cross_pairs(counted, singles, classes, self.weights if parts is None else None)
            self.tables |= pairs.tables
            self.maps |= pairs.maps
            self.sentences |= pairs.left_out
            if pairs.effective_k is not None:
                self._lower(pairs.effective_k)

    def receipt(self, deviations: tuple[str, ...], ledger: str) -> Receipt:
        """Say what was done."""
        counted, k = self.counted, self.counted.plan.k
        classes = [int(n) for tally in self.tables.values() for n in tally.people.ravel() if n]
        known = counted.signatures is not None and not counted.signatures.unknown
        effective = self.joint.effective_k if known else None
        # A collector knows who has some of an amount, not how much.
        counted_contributors = counted.contributors.keys() >= counted.tallies.keys()
        checked: tuple[str, ...] = ("contributors",) if counted_contributors else ()
        if counted.spans_experiments:
            checked = ("contributors", "dominance")
        return Receipt(
            k, min(classes), len(classes), effective,
            "" if effective is None or counted.spans_experiments else "experiment",
            left_out=self.sentences, deviations=deviations,
            clamped={name: floor_to_k(people, k) for name, people in counted.clamped.items()},
            missing={name: floor_to_k(people, k) for name, people in counted.missing.items()},
            excluded=floor_to_k(counted.excluded, k), outside=floor_to_k(counted.outside, k), where=counted.where,
            choices={name: text for name, text in counted.choices.items() if name != "where"},
            ledger=ledger, shapes=self._shapes(), batch=batch_of(counted), checked=checked,
            repeats=counted.repeats, maps=self.maps,
        )  # fmt: skip

    def _shapes(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Return the classes of shapes, of what is published of each experiment."""
        shapes = {}
        for experiment, classes in self.counted.shape_classes(self.counted.plan.k).items():
            tables = [table for table in self.tables.values() if experiment in table.experiment_names]
            shown = {name for table in tables for name in table.metric_names}
            shown |= {"/".join(cross.pair) for table in tables for cross in table.crosses}
            shapes[experiment] = {name: shape for name, shape in classes.items() if name in shown}
        return {experiment: classes for experiment, classes in shapes.items() if classes}

    def _without_gaps(self, name: str, table: Tally) -> Tally:
        """Withhold metrics whose missing values would single people out, in one table or over several."""
        shown = []
        for part in table.moments:
            metric = part.metric.name
            if missing_values_are_safe(part, table, self.counted.plan.k) and (name, metric) not in self.joint.withheld:
                shown.append(metric)
            else:
                self.sentences[f"{name}: {metric}"] = (
                    f"{metric} is withheld {self._where(name)}: fewer than k people could be told by having a value; "
                    + ways_out(metric)
                )
        return table.select_metrics(shown)

    def _without_products(self, name: str, table: Tally) -> Tally:
        """Withhold products of two metrics that would tell about a few people."""
        signatures, shown = self.counted.signatures, []
        binary = [metric.name for metric in table.metrics if metric.binary]
        cut = {*binary, *(() if signatures is None else signatures.cut)}
        for cross in table.crosses:
            if (cross.by[0], frozenset(cross.pair)) in self.products:
                continue
            if products_are_safe(cross, table, self.counted.plan.k, cut):
                shown.append(cross)
            else:
                both = " and ".join(cross.pair)
                self.sentences[f"{name}: {both}"] = (
                    f"products of {both} are withheld in {name}: fewer than k people could be told by them"
                )
        return replace(table, crosses=tuple(shown))

    def _audited(self, name: str, table: Tally, whole: Tally) -> Tally:
        """Withhold metrics that break the rules for sensitive values, or for squares by class."""
        plans = self.counted.plan.metrics_by_name
        judged = []
        for metric in table.metric_names:
            plan = plans[metric]
            if plan.sensitive != "no" or plan.min_events is not None or plan.squares == "class":
                judged.append(metric)
        if not judged:
            return table
        audit = audit_table(
            name, table.select_metrics(judged), plans, k=self.counted.plan.k, ranges=self.counted.ranges, whole=whole
        )
        for broken in audit.broken:
            self.sentences[f"{name}: {broken.metric}"] = (
                f"{broken.metric} is withheld {self._where(name)}: {broken.meaning}"
            )
        withheld = {broken.metric for broken in audit.broken}
        return table.select_metrics(metric for metric in table.metric_names if metric not in withheld)

    def _where(self, name: str) -> str:
        """Say where a metric is withheld: what fails in the arm totals is in no table."""
        return "altogether" if name in self.counted.plan.experiment_names else f"in {name}"
