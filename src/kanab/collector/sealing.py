"""Sealing: at a tick all ripe cohorts go through the privacy gate and become one batch, or wait for the next tick.

An experiment with an arm below k is held back if others are large enough: its counters go on to the next cohort, under
that one's key, until the experiment ends.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kanab.collector.counting.counters import Counters
from kanab.collector.counting.layout import layouts
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.counting.signatures import signatures_of
from kanab.collector.counting.tables import (
    PossibleTable,
    contributors_of,
    possible_arms,
    possible_tables,
    unchecked_tables,
)
from kanab.collector.counting.tables import people_by_arm as arm_counts
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import LAST_PERIOD
from kanab.collector.keys.store_witness import Link, Seen
from kanab.collector.protocol.encoding import encode
from kanab.collector.store_ledger import (
    closed_through,
    destroyed_counters,
    people_accounts,
    reopen_cohorts,
    voided_since,
)
from kanab.collector.stores.store import Record, Store
from kanab.counted import Counted, floor_to_k
from kanab.errors import KanabError, PrivacyError, listed
from kanab.plan.model import Plan
from kanab.plan.periods import Periods, Span
from kanab.privacy.class_rules import check_arms
from kanab.privacy.epsilon.accountant import check_account, planned_spending
from kanab.privacy.gate import make_release
from kanab.privacy.joint_rules import without_experiments, without_people_of
from kanab.privacy.ledger import Ledger, entry_text, read_entry, verified_entries
from kanab.privacy.release import COLLECTORS_CLOCK, DELETED, FORGED, HELD_BACK, Release
from kanab.tally.tally import Tally


@dataclass(frozen=True)
class Sealed:
    """The batch, or why the cohorts wait; the experiments held back and those destroyed, with a sentence each."""

    release: Release | None = None
    held_back: str = ""
    waiting: Mapping[str, str] = field(default_factory=dict)
    destroyed: Mapping[str, str] = field(default_factory=dict)


def seal_due(
    store: Store, cipher: RecordCipher, versions: Versions, through: int, deviations: Sequence[str] = ()
) -> list[Sealed]:
    """Seal everything through a cohort: one batch, or one for every phase with other shares."""
    store.claim(cipher.keyring.fingerprint)  # another store's key must not be moved
    reopen_cohorts(store)
    cipher.keyring.forget(closed_through(store))
    first = first_open(store, versions)
    if through < first:
        return []
    return [seal_cohorts(store, cipher, versions, end, deviations) for end in versions.phases(first, through)]


def first_open(store: Store, versions: Versions) -> int:
    """Return the first cohort that is not closed, by the ledger; none is older than the store."""
    return max(closed_through(store) + 1, versions.entries[0].since)


def seal_cohorts(
    store: Store, cipher: RecordCipher, versions: Versions, through: int, deviations: Sequence[str] = ()
) -> Sealed:
    """Seal everything through a cohort as one batch, then forget its keys; or return why it must wait.

    Safe against a crash at any point: the batch is written and its records are deleted in one
    transaction, and keys that a crash left are forgotten at the next start. The gate is passed before, so that
    nobody waits for it, and again in the transaction only if the store has changed meanwhile. With ε noise is drawn
    then, and what does not get into the store is never seen: the batch in it is the only draw. What lacks of the
    records that the cipher knows to have been committed stands in the receipt.
    """
    maker = _BatchMaker(store, cipher, versions, through, deviations)
    try:
        with suppress(KanabError):  # another collector may be sealing: the transaction tells
            maker.make(store.records(through), store.sealed())
        new = store.seal(through, maker.make, maker.carry)
    except PrivacyError as problem:
        return Sealed(held_back=". ".join([problem.fact, *maker.doubts, "These cohorts wait for the next seal"]))
    cipher.settle([through + 1] if new and maker.has_carried else [])
    cipher.keyring.forget(closed_through(store))
    return maker.sealed if new else Sealed(held_back="another collector has sealed these cohorts")


def missing_records(store: Store, cipher: RecordCipher) -> int:
    """Return how many records of open cohorts somebody deleted, by what the cipher knows to have been committed.

    From now on it also knows the records of other writers that are there.
    """
    records = store.records()
    open_cohorts = range(closed_through(store) + 1, LAST_PERIOD)  # as of after the records were read
    genuine = cipher.genuine(records, committed_records(store, cipher, open_cohorts))
    cipher.seen = cipher.seen.join(Seen(store.epoch(), 0, genuine.last))
    return genuine.missing


def committed_records(store: Store, cipher: RecordCipher, cohorts: range) -> dict[Link, int]:
    """Return how many records of each writer some cohorts must have; after another epoch began nobody knows that."""
    known = cipher.seen.records if cipher.seen.epoch == store.epoch() else {}
    return {link: last for link, last in known.items() if link[0] in cohorts}


class _BatchMaker:
    """Makes the batch of some cohorts, and what goes on to the cohort after them."""

    def __init__(
        self, store: Store, cipher: RecordCipher, versions: Versions, through: int, deviations: Sequence[str]
    ) -> None:
        self.sealed = Sealed()
        self.doubts: Sequence[str] = ()  # of the records in the store
        self.has_carried = False
        self._cipher, self._versions, self._through, self._deviations = cipher, versions, through, deviations
        self._first = min(first_open(store, versions), through)
        self._committed = committed_records(store, cipher, range(self._first, through + 1))
        self._plan = versions.over(self._first, through)
        self._seen: tuple[list[Record], list[bytes]] | None = None
        self._carried: Counters = {}

    def make(self, records: list[Record], entries: list[bytes]) -> bytes:
        """Return the batch as the ledger holds it. Raises `PrivacyError` where nothing can be published."""
        if self._seen != (records, entries):
            self._seen = None
            self._make(records, verified_entries(entries, "the store"))
            self._seen = records, entries
        assert self.sealed.release is not None
        return entry_text(self.sealed.release).encode()

    def carry(self, epoch: str, generation: int) -> Record | None:
        """Return what is held back, and how many were destroyed, as a record of the next cohort; None if nothing is."""
        if not self._carried or self._plan.cohorts is None:
            return None
        self.has_carried, after = True, self._through + 1
        return Record(after, self._cipher.encrypt(after, self._carried, epoch, generation))

    def _make(self, records: list[Record], ledger: Ledger) -> None:
        plan = self._plan
        counters = self._sum(records)
        span = _span(plan, ledger, self._through)
        collected = _Collected(Counted(plan, {}, None, span=span))
        if plan.budget is not None:
            tallies = unchecked_tables(plan, counters)
            release = make_release(replace(collected.counted, tallies=tallies), ledger=ledger)
        else:
            collected = _collected(plan, counters, span)
            release, withheld, failed = release_what_holds(_as_begun(collected.counted, self._versions), ledger)
            collected.left_out.update(withheld)
            collected.too_small.update(failed)
        self._hold_back(collected, counters)
        left_out = {**release.receipt.left_out, **collected.left_out, **self.sealed.waiting, **self.sealed.destroyed}
        before = ledger.releases[-1].receipt.left_out if ledger.releases else {}
        late = [name for name in release.plan.experiment_names if HELD_BACK in before.get(name, "")]
        noted = [*release.receipt.deviations, *self._deviations, *voided_since(ledger), *collected.doubts]
        noted += [f"{name} also holds its people of earlier cohorts, who were held back" for name in late]
        noted += self.doubts
        store = self._cipher.keyring.fingerprint.hex()
        receipt = replace(release.receipt, left_out=left_out, deviations=tuple(noted), store=store)
        release = replace(release, receipt=receipt)
        if plan.budget is None:
            people = people_accounts(self._versions.known, (*ledger.releases, release), self._carried, plan.k)
            release = replace(release, receipt=replace(receipt, people=people))
        self.sealed = replace(self.sealed, release=release)

    def _sum(self, records: Sequence[Record]) -> Counters:
        """Return the sum of the store's own records; note doubts if others are there, or some are not."""
        for cohort in {record.cohort for record in records if record.cohort >= self._first}:
            self._cipher.keyring.key(cohort)
        genuine = self._cipher.genuine(records, self._committed)
        doubts = {_OTHERS: genuine.left_out, _DELETED: genuine.missing}
        noisy = self._plan.budget is not None
        self.doubts = [text.format("some" if noisy else number) for text, number in doubts.items() if number]
        return genuine.counters

    def _hold_back(self, collected: _Collected, counters: Counters) -> None:
        """Decide which experiments that are not in the batch join the next seal: those that go on."""
        after = self._versions.in_force(self._through + 1)  # in which people may still enroll
        going_on = after.experiment_names if after.cohorts is not None else ()
        ended = {name: why for name, why in collected.too_small.items() if name not in going_on}
        waiting = {name: why for name, why in collected.too_small.items() if name not in ended}
        destroyed = {name: f"{name} is destroyed: {why}" for name, why in collected.spoilt.items()}
        destroyed |= {name: f"{name} has ended, and its people are destroyed: {why}" for name, why in ended.items()}
        self.sealed = Sealed(
            waiting={name: f"{name} {HELD_BACK}: {why}" for name, why in waiting.items()}, destroyed=destroyed
        )
        tables = {layout.name for layout in layouts(self._plan) if {*waiting} & {*layout.linkage.experiments}}
        tables |= {f"{encode(name)}/*" for name in waiting}  # their joint signatures
        self._carried = {name: value for name, value in counters.items() if name.partition("|")[0] in tables}
        known = self._versions.known
        over = {*known.experiment_names} - {*self._plan.experiment_names}  # enrolled after it had ended
        self._carried |= destroyed_counters(known, counters, {*destroyed, *over})


def stored_ledger(store: Store) -> Ledger:
    """Return the sealed batches of a store, verified entry by entry. No key is needed."""
    return verified_entries(store.sealed(), "the store")


def check_store_account(store: Store, versions: Versions) -> None:
    """Raise `PrivacyError` where what was sealed, and what is still to be sealed, tells more than a plan's ε allows."""
    first = first_open(store, versions)
    plan = versions.over(first, max(first, versions.entries[-1].since + 1))
    if plan.cohorts is None and store.sealed():
        return  # everybody is sealed, and nobody is counted any more
    check_account(plan, stored_ledger(store).releases, planned_spending(plan, after=first - 1))


def people_by_arm(store: Store, cipher: RecordCipher, plan: Plan) -> dict[str, dict[str, int]]:
    """Return everybody in open cohorts and sealed batches, by arm, floored to k: all that may be seen before a seal."""
    counts = arm_counts(plan, cipher.genuine(store.records()).counters)
    for release in stored_ledger(store).releases:
        for name, arms in counts.items():
            table = next(iter(release.tables_of(name).values()), None)
            for arm, people in table.people_by(name).items() if table is not None else ():
                arms[arm] = arms.get(arm, 0) + people
    return {
        name: {str(arm): floor_to_k(people, plan.k) for arm, people in arms.items()} for name, arms in counts.items()
    }


@dataclass(frozen=True)
class _Collected:
    """What was collected, as if rows had been counted, and with reasons what is left out of it."""

    counted: Counted
    left_out: dict[str, str] = field(default_factory=dict)
    too_small: dict[str, str] = field(default_factory=dict)
    spoilt: dict[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()


def _collected(plan: Plan, counters: Counters, span: Span | None) -> _Collected:
    """Return what can be published of some counters. Raises `PrivacyError` where no experiment is large enough."""
    tables, arms = possible_tables(plan, counters), possible_arms(plan, counters)
    tallies, left = {name: table.tally for name, table in tables.items()}, _forged(plan, tables, arms)
    spoilt = {name: _DISAGREE for name in plan.experiment_names if not _agree(plan, name, tallies)}
    problems = {name: _too_small(plan, name, tallies) for name in plan.experiment_names if name not in spoilt}
    too_small = {name: _SMALL for name, problem in problems.items() if problem is not None}
    if len(spoilt) + len(too_small) == len(plan.experiments):
        raise next((problem for problem in problems.values() if problem), PrivacyError(_DISAGREE, _SPOILT_REMEDY))
    plan = without_experiments(plan, [*spoilt, *too_small])
    tallies = {name: tallies[name] for name in plan.linkage_names}
    signatures, unknown = signatures_of(plan, tallies, counters)
    doubts = [f"effective k of {name} was not evaluated: {why}" for name, why in unknown.items()]
    doubts += [
        _BINS_APART.format(each.name, listed(each.quantiles))
        for each in plan.experiments
        if each.quantiles and each.name not in unknown
    ]
    contributors = contributors_of(plan, tallies, counters)
    doubts += [_NO_CONTRIBUTORS.format(name) for name in _without_contributors(plan, tallies, contributors)]
    totals = {name: arms[name].tally for name in plan.experiment_names}
    counted = Counted(plan, tallies, signatures, span=span, contributors=contributors, arms=totals)
    return _Collected(counted, left, too_small, spoilt, tuple(doubts))


def _without_contributors(plan: Plan, tallies: Mapping[str, Tally], known: Collection[str]) -> list[str]:
    """Return the experiments with amounts in a table whose contributors were not counted."""
    unknown = [name for name in tallies if name not in known and not all(m.binary for m in tallies[name].metrics)]
    return [each for each in plan.experiment_names if any(each in tallies[name].experiment_names for name in unknown)]


def _span(plan: Plan, ledger: Ledger, through: int) -> Span | None:
    """Return the cohorts of a batch, those after the last sealed one; None where the plan has none."""
    if plan.cohorts is None:
        return None
    before = ledger.releases[-1].receipt.batch if ledger.releases else None
    after = None if before is None else before.through
    return Span(COLLECTORS_CLOCK, plan.cohorts.every, after, Periods(plan.cohorts.every).label(through))


def _as_begun(counted: Counted, versions: Versions) -> Counted:
    """Keep in each table the metrics that its experiments began with: the others would be zeros that nobody meant."""

    def begun(tally: Tally) -> Tally:
        known = versions.metrics(*tally.experiment_names)
        return tally.select_metrics(metric for metric in tally.metric_names if metric in known)

    return replace(
        counted,
        tallies={name: begun(tally) for name, tally in counted.tallies.items()},
        arms={name: begun(tally) for name, tally in counted.arms.items()},
    )


_REMEDY = "Update kanab and seal again, or destroy these cohorts (kanab void)."


class BatchPart(NamedTuple):
    """A part of a batch: the people of an experiment by arm; or one of its tables; or one of its metrics or ratios."""

    experiment: str
    table: str = ""
    metric: str = ""


class Passed(NamedTuple):
    """What passed the gate, which metrics are left out of it, and which experiments failed; with the reasons."""

    release: Release
    left_out: dict[str, str]
    failed: dict[str, str]


def release_what_holds(counted: Counted, ledger: Ledger) -> Passed:
    """Return the release of everything, or of as much as passes; raises `PrivacyError` where no experiment does.

    Anybody can post, so numbers may reach the gate that nobody thought of. What it fails on, the smallest part that can
    be told (a metric of an experiment, a table), is left out with a sentence, and costs nothing else.
    """
    try:
        return Passed(_readable(make_release(counted, ledger=ledger)), {}, {})
    except Exception as problem:  # numbers that nobody thought of may fail anywhere
        refusal = problem if isinstance(problem, PrivacyError) else PrivacyError(_reason(problem), _REMEDY)
    gate = _PartialGate(counted, ledger)
    release = gate.release()
    if release is None:
        raise refusal
    left_out = {  # the receipt names the tables
        f"{part.experiment}: {part.metric}": f"{part.metric} is withheld altogether: {why}"
        for part, why in gate.reasons.items()
        if part.metric
    }
    failed = {part.experiment: why for part, why in gate.reasons.items() if not part.metric and not part.table}
    return Passed(release, left_out, failed)


class _PartialGate:
    """Passes the gate with part after part: what it fails on is searched for by halves, and left out."""

    def __init__(self, counted: Counted, ledger: Ledger) -> None:
        self._counted, self._ledger = counted, ledger
        self._kept: list[BatchPart] = []
        self.reasons: dict[BatchPart, str] = {}
        self._release: Release | None = None

    def release(self) -> Release | None:
        """Return the release of all parts that pass together; None if nothing does."""
        plan = self._counted.plan
        self._add([BatchPart(name) for name in plan.experiment_names])
        links = [link for link in plan.linkages if all(BatchPart(name) in self._kept for name in link.experiments)]
        self._add([BatchPart(link.experiments[0], table=link.name) for link in links])
        names = [part.experiment for part in self._kept if not part.table]
        self._add([BatchPart(experiment, metric=metric) for experiment in names for metric in plan.metric_names])
        if self._kept:  # once more, with all reasons
            self._attempt(self._kept)
        return self._release

    def _add(self, parts: Sequence[BatchPart]) -> None:
        """Keep as many parts as pass together with those that are kept."""
        why = self._attempt([*self._kept, *parts]) if parts else ""
        if not why:
            self._kept += parts
        elif len(parts) == 1:
            self.reasons[parts[0]] = why
        else:
            self._add(parts[: len(parts) // 2])
            self._add(parts[len(parts) // 2 :])

    def _attempt(self, parts: Sequence[BatchPart]) -> str:
        """Pass the gate with some parts only, and keep the release; return why it failed, if it did."""
        counted, kept = self._counted, {*parts}
        gone = [name for name in counted.plan.experiment_names if BatchPart(name) not in kept]
        counted = without_people_of(counted, gone) if gone else counted
        tallies, arms, without = {}, {}, {}
        for link in counted.plan.linkages:
            part = BatchPart(link.experiments[0], table=link.name)
            if part not in kept:
                without[link.name] = self.reasons.get(part, "it is not checked yet")
            names = [
                name
                for name in counted.plan.metric_names
                if not all(BatchPart(experiment, metric=name) in kept for experiment in link.experiments)
            ]
            tallies[link.name] = without_metrics(counted.tallies[link.name], counted.plan, names)
            if [*link.experiments] == [part.experiment] and part.experiment in counted.arms:
                arms[part.experiment] = without_metrics(counted.arms[part.experiment], counted.plan, names)
        try:
            counted = replace(counted, tallies=tallies, arms=arms)
            self._release = _readable(make_release(counted, ledger=self._ledger, without=without))
        except Exception as problem:  # whatever it is, the part is left out
            return _reason(problem)
        return ""


def without_metrics(tally: Tally, plan: Plan, names: Collection[str]) -> Tally:
    """Return a tally without some metrics, what is defined by them, and the products of some ratios."""
    gone = {metric.name for metric in plan.metrics if {metric.name, metric.of} & {*names}}
    pairs = {metric.ratio for metric in plan.metrics if metric.name in names}
    kept = tally.select_metrics(name for name in tally.metric_names if name not in gone)
    return replace(kept, crosses=tuple(cross for cross in kept.crosses if cross.pair not in pairs))


def _readable(release: Release) -> Release:
    """Return a release that can be read again: an entry of the ledger that cannot would block all later seals."""
    read_entry(entry_text(release))
    return release


def _reason(problem: Exception) -> str:
    """Return why a part does not pass, without anything that it held."""
    if isinstance(problem, KanabError):
        return problem.fact
    return f"a rule fails on its numbers ({type(problem).__name__})"


_BINS_APART = "effective k of {} takes people by bins of {} by themselves, not together with its other tables"
_NO_CONTRIBUTORS = (
    "how many people have some of each amount in {} was not evaluated: some of its people were counted by an earlier "
    "version of kanab"
)
_OTHERS = "{} records in the store were left out: they are not its own, or were counted already"
_DELETED = f"{DELETED}: {{}}"
_SMALL = "an arm holds fewer than k people"
_DISAGREE = "its tables are not about the same people, some records were lost"
_SPOILT_REMEDY = "Take the store from a backup, or destroy these cohorts (kanab void)."


def _forged(plan: Plan, tables: Mapping[str, PossibleTable], arms: Mapping[str, PossibleTable]) -> dict[str, str]:
    """Return what no group of people could have sent, with the reasons: a metric of a table, or of an experiment.

    Where not even the arms' totals of a metric add up, the experiment is without it.
    """
    left: dict[str, str] = {}
    for linkage in plan.linkages:
        impossible = {*tables[linkage.name].impossible}
        if linkage.people_only and impossible:
            left[linkage.name] = f"{linkage.covariate} is left out: {FORGED}"
            continue
        own = linkage.experiments[0] if len(linkage.experiments) == 1 else ""
        altogether = {*arms[own].impossible} if own else set()
        for metric in plan.metrics:
            meant = metric.ratio or metric.name
            if meant in altogether:
                left[f"{own}: {metric.name}"] = f"{metric.name} is withheld altogether: {FORGED}"
            elif meant in impossible:
                left[f"{linkage.name}: {metric.name}"] = f"{metric.name} is withheld in {linkage.name}: {FORGED}"
    return left


def _agree(plan: Plan, experiment: str, tallies: Mapping[str, Tally]) -> bool:
    """Return whether all tables of an experiment are about the same people, as every post was applied whole."""
    arms = [tallies[link.name].people_by(experiment) for link in plan.linkages_of(experiment)]
    return all(other == arms[0] for other in arms)


def _too_small(plan: Plan, experiment: str, tallies: Mapping[str, Tally]) -> PrivacyError | None:
    """Return what the gate would say of an experiment with too few people; None where there are enough."""
    table = tallies[plan.linkages_of(experiment)[0].name]
    try:
        check_arms(table, plan.experiment(experiment), plan.k)
    except PrivacyError as problem:
        return problem
    return None
