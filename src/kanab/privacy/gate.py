"""The one door: ``release`` turns what was counted into what may leave, or refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike

from kanab.arguments import check_arguments
from kanab.counted import Counted, floor_to_k
from kanab.errors import PrivacyError
from kanab.plan.model import LEAST_K_WITHOUT_OVERRIDE, Plan
from kanab.privacy.audit import MEANING, Audit, audit_table
from kanab.privacy.class_rules import (
    Draft,
    check_arms,
    checked_k,
    drafted,
    gapless,
    left_out,
    products_hide,
    published_map,
)
from kanab.privacy.joint_rules import Together, first_linkages, settled, shown, totals
from kanab.privacy.largest import largest_of
from kanab.privacy.ledger import Ledger, append, held
from kanab.privacy.merging import LevelMap
from kanab.privacy.overlap import Shown
from kanab.privacy.rare_values import WHY, too_sparse
from kanab.privacy.recount import batch_of, check_batches, recounted
from kanab.privacy.release import Receipt, Release
from kanab.tally.tally import Tally


@check_arguments(skip=("counted", "k"))
def release(
    counted: Counted, k: int | None = None, *, override: str = "", ledger: str | PathLike[str] | None = None
) -> Release:
    """Merge sparse levels, check every rule, and say what was done; or refuse.

    With ``ledger`` (a path) everything that was released into it before counts as well, and the
    release is added to it. ``override`` is the recorded reason for a k below 5.
    """
    if ledger is None:
        return passed(counted, k, override=override)
    with held(ledger) as before:
        found = passed(counted, k, override=override, ledger=before)
        append(ledger, before, found)
        return found


def passed(counted: Counted, k: int | None = None, *, override: str = "", ledger: Ledger | None = None) -> Release:
    """What the gate lets through, after everything in a ledger; nothing is written."""
    if not isinstance(counted, Counted):
        raise PrivacyError("only what count() returns can be released", "Call count() on the source first.")
    rule = checked_k(counted.plan.k if k is None else k, override)
    counted = replace(counted, plan=_published(counted.plan, rule))
    before = ledger or Ledger()
    if any(one.receipt.k > rule for one in before.releases):
        raise PrivacyError("earlier releases of the ledger promise a larger k", "Give that k, or a larger one (--k).")
    maps = check_batches(counted, before)
    # Arms before anything that values decide: where an arm is too small, no value changes what is said.
    for linkage in first_linkages(counted.plan):
        check_arms(counted.tallies[linkage.name], linkage.experiments[0], rule)
    if ledger is not None and not counted.bounds_declared:
        raise PrivacyError(
            "bounds were taken from the data, and a ledger would give them away",
            "Declare them: --bounds spend=0:500, or in the plan.",
        )
    known = () if counted.span is not None else recounted(counted, before)
    together = settled(counted, _drafts(counted, maps, before), known)
    others = before.releases if counted.span is None else ()
    gate = _Gate(counted, together, too_sparse(counted, together.drafts, others))
    gate.audit_arms()
    for name in gate.together.drafts:
        gate.publish(name)
    gate.keep_effects()
    return Release(
        counted.plan,
        gate.tables,
        gate.receipt((f"k = {rule}: {override}",) if rule < LEAST_K_WITHOUT_OVERRIDE else ()),
        counted.bounds_declared,
        None if ledger is None else ledger.head,
    )


def _published(plan: Plan, k: int) -> Plan:
    """The plan as it is published: without hosts, and without what arms are drawn by."""
    experiments = tuple(replace(one, salt=None) for one in plan.experiments)
    return replace(plan, k=k, origins=(), experiments=experiments)


def _drafts(counted: Counted, maps: Mapping[str, LevelMap | None], before: Ledger) -> dict[str, Draft]:
    """Every table as its own rules want it. What an earlier batch left out stays out."""
    drafts = {}
    known = {name for old in before.releases for name in old.plan.linkage_names}
    for linkage in counted.plan.linkages:
        draft = drafted(linkage, counted.tallies[linkage.name], counted.plan, maps.get(linkage.name))
        gone = counted.span is not None and linkage.name in known and linkage.name not in maps
        drafts[linkage.name] = left_out(draft) if gone and not draft.why else draft
    return drafts


# ── what is inside a class ─────────────────────────────────────────────────────────────────────


@dataclass
class _Gate:
    """Tables as they pass, one by one, and what is said about those that do not."""

    counted: Counted
    together: Together
    sparse: frozenset[tuple[str, str]]
    tables: dict[str, Tally] = field(default_factory=dict)
    maps: dict[str, LevelMap] = field(default_factory=dict)
    sentences: dict[str, str] = field(default_factory=dict)
    audits: list[Audit] = field(default_factory=list)
    barred: set[tuple[str, str]] = field(default_factory=set)

    def audit_arms(self) -> None:
        """A metric whose arm totals give somebody away is in no table, for every table adds up to them."""
        for linkage in first_linkages(self.counted.plan):
            name = linkage.experiments[0]
            arms = self._without_gaps(name, self.counted.tallies[linkage.name].keep())
            found = self._audit(name, arms, totals(linkage, self.counted))
            shown_metrics = set(arms.metric_names) - {one.metric for one in found.broken}
            metrics = self.counted.tallies[linkage.name].metric_names
            self.barred |= {(name, metric) for metric in metrics if metric not in shown_metrics}

    def publish(self, name: str) -> None:
        """A table without the metrics that may not be shown by class."""
        draft = self.together.drafts[name]
        if draft.why:
            self.sentences[name] = draft.why
            return
        levels = published_map(draft, self.counted.plan)
        if levels is not None and levels.merged:
            self.maps[name] = levels
        table = draft.tally if levels is None else levels.apply(draft.tally)
        barred = {metric for one, metric in self.barred if one in draft.linkage.experiments}
        for metric in (one for table, one in sorted(self.sparse) if table == name and one not in barred):
            barred.add(metric)
            self.sentences[f"{name}: {metric}"] = f"{metric} is withheld in {name}: {WHY}"
        table = table.select_metrics(metric for metric in table.metric_names if metric not in barred)
        table = self._without_gaps(name, table)
        found = self._audit(name, table, replace(shown(draft), levels=levels))
        withheld = {one.metric for one in found.broken}
        table = table.select_metrics(metric for metric in table.metric_names if metric not in withheld)
        self.tables[name] = self._without_products(name, table)

    def keep_effects(self) -> None:
        """Where no table of an experiment carries a metric any more, its arm totals still go out."""
        plan = self.counted.plan
        for linkage in first_linkages(plan):
            name = linkage.experiments[0]
            own = [link.name for link in plan.linkages_of(name) if link.name in self.tables]
            published = {metric for one in own for metric in self.tables[one].metric_names}
            arms = self.counted.tallies[linkage.name].keep()
            lost = [m for m in arms.metric_names if m not in published and (name, m) not in self.barred]
            if lost or not own:
                self.tables[name] = self._without_products(name, arms.select_metrics(lost))

    def receipt(self, deviations: tuple[str, ...]) -> Receipt:
        """What was done."""
        counted, k = self.counted, self.counted.plan.k
        classes = [int(n) for tally in self.tables.values() for n in tally.people.ravel() if n]
        narrowest = [one.worst.ratio for one in self.audits if one.worst is not None]
        return Receipt(
            k, min(classes), len(classes), self.maps, self.sentences, deviations,
            {name: floor_to_k(people, k) for name, people in counted.clamped.items()},
            {name: floor_to_k(people, k) for name, people in counted.missing.items()},
            floor_to_k(counted.excluded, k), floor_to_k(counted.outside, k), counted.where, self.together.effective_k,
            sum(one.homogeneous for one in self.audits), sum(one.not_enumerated for one in self.audits),
            min(narrowest) if narrowest else None, batch_of(counted),
        )  # fmt: skip

    def _without_gaps(self, name: str, table: Tally) -> Tally:
        """Withhold metrics whose missing values would single people out, in one table or over several."""
        kept = []
        for part in table.moments:
            metric = part.metric.name
            if gapless(part, table, self.counted.plan.k) and (name, metric) not in self.together.withheld:
                kept.append(metric)
            else:
                self.sentences[f"{name}: {metric}"] = (
                    f"{metric} is withheld {self._where(name)}: fewer than k people could be told by having a value"
                )
        return table.select_metrics(kept)

    def _without_products(self, name: str, table: Tally) -> Tally:
        """Withhold products of two metrics that would tell about a few people."""
        kept = tuple(cross for cross in table.crosses if products_hide(cross, table, self.counted.plan.k))
        for cross in table.crosses:
            if cross not in kept:
                both = " and ".join(cross.pair)
                self.sentences[f"{name}: {both}"] = (
                    f"products of {both} are withheld in {name}: fewer than k people could be told by them"
                )
        return replace(table, crosses=kept)

    def _audit(self, name: str, table: Tally, as_shown: Shown) -> Audit:
        counted = self.counted
        plans = counted.plan.metrics_by_name
        found = audit_table(name, table, plans, ranges=counted.ranges, largest=largest_of(counted, as_shown))
        withheld = {one.metric for one in found.broken}
        rest = table.select_metrics(metric for metric in table.metric_names if metric not in withheld)
        # The receipt says how narrow intervals are: of what is published, not of what is withheld.
        self.audits.append(audit_table(name, rest, plans, ranges=counted.ranges) if withheld else found)
        for one in found.broken:
            self.sentences[f"{name}: {one.metric}"] = (
                f"{one.metric} is withheld {self._where(name)}: {MEANING[one.rule]}"
            )
        return found

    def _where(self, name: str) -> str:
        """What fails in the arm totals is in no table."""
        return "altogether" if name in self.counted.plan.experiment_names else f"in {name}"
