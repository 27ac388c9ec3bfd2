"""Ripe cohorts → gate → sealed batch: where what was collected meets the privacy gate.

At a tick all ripe cohorts become one batch: all tables and all arms, checked and sealed together, or
left to join the next tick. An experiment of which an arm is still below k is left out of the batch
if others are large enough: it must not hold them back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kanab.collector.counting.counters import Counters, add_counters
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.counting.tables import tables
from kanab.collector.keys.encryption import Boxes
from kanab.collector.protocol.encoding import encode
from kanab.collector.stores.store import Record, Store
from kanab.counted import Counted, floor_to_k
from kanab.errors import LedgerError, PrivacyError, StoreError, TallyError
from kanab.plan.model import MetricPlan, Plan
from kanab.plan.periods import Periods, Span
from kanab.privacy.gate import make_release
from kanab.privacy.ledger import Ledger, verified_entries
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict
from kanab.tally.tally import Tally

CLOCK = "the collector's clock"
"""What decides who belongs to which cohort."""


@dataclass(frozen=True)
class Sealed:
    """What came of a seal: the batch, or why the cohorts were left to join the next tick."""

    release: Release | None = None
    held_back: str = ""


def seal_ripe(
    store: Store, boxes: Boxes, versions: Versions, through: int, deviations: Sequence[str] = ()
) -> list[Sealed]:
    """Seal everything through a cohort: one batch, or one for every phase in which people were divided otherwise.

    A phase that must wait joins the next one. Keys that a crash after an earlier seal left are forgotten first.
    """
    store.claim(boxes.keyring.fingerprint)  # another store's key must not be moved
    boxes.keyring.forget(store.sealed_through())
    first = first_open(store, versions)
    if through < first:
        return []
    return [seal_cohorts(store, boxes, versions, end, deviations) for end in versions.phases(first, through)]


def first_open(store: Store, versions: Versions) -> int:
    """The first cohort that is not sealed; none is older than the store."""
    return max(store.sealed_through() + 1, versions.entries[0].since)


def seal_cohorts(
    store: Store, boxes: Boxes, versions: Versions, through: int, deviations: Sequence[str] = ()
) -> Sealed:
    """Seal everything through a cohort as one batch, then forget its keys; or say why not yet.

    Safe against a crash at any point: the batch is written and its records are deleted in one
    transaction, and keys that a crash left are forgotten at the next start.
    """
    plan = versions.over(min(first_open(store, versions), through), through)
    made: list[Release] = []

    def make(records: list[Record], entries: list[bytes]) -> bytes:
        counters = _summed(records, boxes)
        ledger = verified_entries(entries, "the store")
        counted, left = _counted(plan, counters, _last_sealed(ledger), through)
        counted = replace(counted, tallies=_as_begun(counted.tallies, versions))
        found = make_release(counted, ledger=ledger)
        receipt = found.receipt
        told = replace(receipt, left_out=dict(receipt.left_out) | left, deviations=(*receipt.deviations, *deviations))
        made.append(replace(found, receipt=told))
        return _document(made[-1])

    try:
        new = store.seal(through, make)
    except PrivacyError as problem:
        return Sealed(held_back=f"{problem.fact}. These cohorts wait for the next seal")
    boxes.keyring.forget(through)
    return Sealed(made[-1]) if new else Sealed(held_back="another collector has sealed these cohorts")


def stored_ledger(store: Store) -> Ledger:
    """The sealed batches of a store, verified entry by entry. No key is needed."""
    return verified_entries(store.sealed(), "the store")


def put_back(store: Store, ledger: Ledger) -> int:
    """Put the batches that an exported ledger has beyond a store's own back into it; how many these are.

    A store that was restored from a backup has records of sealed cohorts again, which no key opens: they go, as they
    went at the seal.
    """
    own, versions = stored_ledger(store), Versions.read(store)
    if not versions.entries or ledger.hashes[: len(own.hashes)] != own.hashes:
        raise LedgerError(
            "the ledger is not this store's: its first batches are not those of the store",
            "Give the one that kanab export wrote from it.",
        )
    cohorts = versions.newest.cohorts
    missing = ledger.releases[len(own.hashes) :]
    for one in missing:
        batch, document = one.receipt.batch, _document(one)
        through = 0 if cohorts is None or batch is None else Periods(cohorts.every).number(batch.through)
        if not store.seal(through, lambda _records, _entries, document=document: document):  # type: ignore[misc]
            raise StoreError("somebody has sealed these cohorts meanwhile", "Stop the collectors, and try again.")
    return len(missing)


def _document(release: Release) -> bytes:
    return json.dumps(release_to_dict(release), ensure_ascii=False, allow_nan=False).encode()


def people_by_arm(store: Store, boxes: Boxes, plan: Plan) -> dict[str, dict[str, int]]:
    """Everybody in open cohorts and sealed batches, by arm, floored to multiples of k: what may be seen before a seal.

    For the live health of a collector; call it on the clock, not when somebody asks.
    """
    found = {one.name: dict.fromkeys((str(arm) for arm in one.arms or ()), 0) for one in plan.experiments}
    now = tables(plan, _own(plan, _summed(store.records(), boxes)))
    sums: list[Mapping[str, Tally]] = [now, *(one.tables for one in stored_ledger(store).releases)]
    for one in plan.experiments:
        for counted in sums:
            table = next((t for t in counted.values() if t.experiment_names == (one.name,)), None)
            for arm, people in table.people_by(one.name).items() if table is not None else ():
                found[one.name][str(arm)] += people
    return {name: {arm: floor_to_k(people, plan.k) for arm, people in arms.items()} for name, arms in found.items()}


def _summed(records: Sequence[Record], boxes: Boxes) -> Counters:
    found: Counters = {}
    for record in records:
        add_counters(found, boxes.unwrap(record.cohort, record.box))
    return found


def _last_sealed(ledger: Ledger) -> str | None:
    """The label of the last sealed cohort."""
    batch = ledger.releases[-1].receipt.batch if ledger.releases else None
    return None if batch is None else batch.through


def _counted(plan: Plan, counters: Counters, after: str | None, through: int) -> tuple[Counted, dict[str, str]]:
    """What was collected, as if rows had been counted; and what is left out of it, with the reasons."""
    left: dict[str, str] = {}
    plan, left_metrics = _possible(plan, counters)
    left |= left_metrics
    tallies = tables(plan, _own(plan, counters))
    _check_agreement(plan, tallies)
    small = [one.name for one in plan.experiments if _too_small(one.name, tallies, plan.k)]
    if small and len(small) < len(plan.experiments):
        plan = _without(plan, small)
        tallies = {name: tallies[name] for name in plan.linkage_names}
        left |= {name: f"{name} is left out of this batch: an arm holds fewer than k people" for name in small}
    span = None
    if plan.cohorts is not None:
        span = Span(CLOCK, plan.cohorts.every, after, Periods(plan.cohorts.every).label(through))
    return Counted(plan, tallies, None, span=span), left


def _as_begun(tallies: Mapping[str, Tally], versions: Versions) -> dict[str, Tally]:
    """Each table with the metrics that its experiments began with: the others would be zeros that nobody meant."""
    found = {}
    for name, tally in tallies.items():
        began = versions.metrics(*tally.experiment_names)
        found[name] = tally.select_metrics(metric for metric in tally.metric_names if metric in began)
    return found


def _possible(plan: Plan, counters: Counters) -> tuple[Plan, dict[str, str]]:
    """The plan without metrics whose messages no group of people could have sent.

    Anybody can post: a forged total spoils its metric for one batch, and nothing else.
    """
    spoilt = [metric.name for metric in plan.counted_metrics if not _adds_up(plan, metric, counters)]
    if not spoilt:
        return plan, {}
    kept = [one for one in plan.metrics if not {one.name, one.of, *(one.ratio or ())} & set(spoilt)]
    told = {
        f"{one.name}: {name}": f"{name} is withheld altogether: its messages do not add up, some were forged or lost"
        for one in plan.experiments
        for name in spoilt
    }
    return _with_metrics(plan, kept), told


def _adds_up(plan: Plan, metric: MetricPlan, counters: Counters) -> bool:
    alone = _with_metrics(plan, [replace(metric, of=None)])
    try:
        tables(alone, _own(alone, counters))
    except TallyError:
        return False
    return True


def _with_metrics(plan: Plan, metrics: Sequence[MetricPlan]) -> Plan:
    names = {one.name for one in metrics}
    experiments = [
        replace(one, tolerance={name: size for name, size in one.tolerance.items() if name in names})
        for one in plan.experiments
    ]
    return replace(plan, metrics=tuple(metrics), experiments=tuple(experiments))


def _own(plan: Plan, counters: Counters) -> Counters:
    """The counters of the tables and metrics that a plan has."""
    linkages = {"/".join(map(encode, name.split("/"))) for name in plan.linkage_names}
    names = {"n", *("/".join(map(encode, one.ratio or (one.name,))) for one in plan.metrics)}
    parts = ((name, name.split("|"), value) for name, value in counters.items())
    return {name: value for name, (linkage, _, what, *_), value in parts if linkage in linkages and what in names}


def _check_agreement(plan: Plan, tallies: Mapping[str, Tally]) -> None:
    """All tables of one experiment are about the same people: every post was applied whole."""
    for one in plan.experiments:
        arms = [tallies[link.name].people_by(one.name) for link in plan.linkages_of(one.name)]
        if any(other != arms[0] for other in arms):
            raise StoreError(
                f"the tables of {one.name} disagree about its arms", "The store is damaged: take it from a backup."
            )


def _too_small(experiment: str, tallies: Mapping[str, Tally], k: int) -> bool:
    table = next(tally for tally in tallies.values() if tally.experiment_names == (experiment,))
    return min(table.people_by(experiment).values()) < k


def _without(plan: Plan, names: Sequence[str]) -> Plan:
    """The plan without some experiments, and without the pairs that they are in."""
    kept = [one for one in plan.experiments if one.name not in names]
    cut = [
        replace(
            one,
            interactions=tuple(other for other in one.interactions if other not in names),
            exclude_with=tuple(other for other in one.exclude_with if other not in names),
        )
        for one in kept
    ]
    return replace(plan, experiments=tuple(cut))
