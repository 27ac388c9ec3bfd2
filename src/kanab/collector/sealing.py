"""Sealing: ripe cohorts go through the privacy gate and become a sealed batch.

At a tick all ripe cohorts become one batch: all tables and all arms, checked and sealed together, or
left to join the next tick. An experiment of which an arm is still below k is left out of the batch
if others are large enough: it must not hold them back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from kanab.collector.counting.counters import Counters
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.counting.signatures import signatures_of
from kanab.collector.counting.tables import PossibleTable, possible_tables, unchecked_tables, without_bins
from kanab.collector.counting.tables import people_by_arm as arm_counts
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.release_parts import release_what_holds, without_metrics
from kanab.collector.stores.store import Record, Store
from kanab.collector.voiding import voided_since
from kanab.counted import Counted, floor_to_k
from kanab.errors import KanabError, PrivacyError, listed
from kanab.plan.model import Plan
from kanab.plan.periods import Periods, Span
from kanab.privacy.epsilon.accountant import check_account, planned_spending
from kanab.privacy.gate import make_release
from kanab.privacy.joint_rules import without_experiments
from kanab.privacy.ledger import Ledger, entry_text, verified_entries
from kanab.privacy.ledger_note import LedgerNote
from kanab.privacy.release import COLLECTORS_CLOCK, Release
from kanab.tally.tally import Tally


@dataclass(frozen=True)
class Sealed:
    """The result of a seal: the batch, or why the cohorts were left to join the next tick."""

    release: Release | None = None
    held_back: str = ""


def seal_ripe(
    store: Store, cipher: RecordCipher, versions: Versions, through: int, deviations: Sequence[str] = ()
) -> list[Sealed]:
    """Seal everything through a cohort: one batch, or one for every phase with other shares.

    A phase that must wait joins the next one. Keys that a crash after an earlier seal left are forgotten first.
    """
    store.claim(cipher.keyring.fingerprint)  # another store's key must not be moved
    cipher.keyring.forget(store.sealed_through())
    first = first_open(store, versions)
    if through < first:
        return []
    return [seal_cohorts(store, cipher, versions, end, deviations) for end in versions.phases(first, through)]


def first_open(store: Store, versions: Versions) -> int:
    """Return the first cohort that is not sealed; none is older than the store."""
    return max(store.sealed_through() + 1, versions.entries[0].since)


def seal_cohorts(
    store: Store, cipher: RecordCipher, versions: Versions, through: int, deviations: Sequence[str] = ()
) -> Sealed:
    """Seal everything through a cohort as one batch, then forget its keys; or return why it must wait.

    Safe against a crash at any point: the batch is written and its records are deleted in one
    transaction, and keys that a crash left are forgotten at the next start. The gate is passed before, so that
    nobody waits for it, and again in the transaction only if the store has changed meanwhile. With ε noise is drawn
    then, and what does not get into the store is never seen: the batch in it is the only draw.
    """
    first = min(first_open(store, versions), through)
    plan = versions.over(first, through)
    made: list[Release] = []
    seen: list[tuple[list[Record], list[bytes]]] = []

    def make(records: list[Record], entries: list[bytes]) -> bytes:
        if seen == [(records, entries)]:
            return _document(made[-1])
        counters, odd = _sum(records, cipher, first, noisy=plan.budget is not None)
        ledger = verified_entries(entries, "the store")
        after = _last_sealed(ledger)
        left: dict[str, str] = {}
        failed: dict[str, str] = {}
        doubts: list[str] = []
        if plan.budget is not None:
            counted = Counted(plan, unchecked_tables(plan, counters), None, span=_span(plan, after, through))
            release = make_release(counted, ledger=ledger)
        else:
            counted, left, doubts = _counted(plan, counters, after, through)
            counted = replace(counted, tallies=_as_begun(counted.tallies, versions))
            release, failed = release_what_holds(counted, ledger)
        left_out = dict(release.receipt.left_out) | left | failed
        noted = (*release.receipt.deviations, *deviations, *voided_since(ledger), *doubts, *odd)
        receipt = replace(release.receipt, left_out=left_out, deviations=noted, store=cipher.keyring.fingerprint.hex())
        made.append(replace(release, receipt=receipt))
        seen[:] = [(records, entries)]
        return _document(made[-1])

    try:
        with suppress(KanabError):  # another collector may be sealing: the transaction tells
            make(store.records(through), store.sealed())
        new = store.seal(through, make)
    except PrivacyError as problem:
        return Sealed(held_back=f"{problem.fact}. These cohorts wait for the next seal")
    cipher.keyring.forget(through)
    return Sealed(made[-1]) if new else Sealed(held_back="another collector has sealed these cohorts")


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


def _document(entry: Release | LedgerNote) -> bytes:
    return entry_text(entry).encode()


def people_by_arm(store: Store, cipher: RecordCipher, plan: Plan) -> dict[str, dict[str, int]]:
    """Return everybody in open cohorts and sealed batches, by arm, floored to k: all that may be seen before a seal.

    For the live health of a collector without ε; call it on the clock, not on request.
    """
    counts = arm_counts(plan, cipher.genuine(store.records()).counters)
    for release in stored_ledger(store).releases:
        for name, arms in counts.items():
            table = next(iter(release.tables_of(name).values()), None)
            for arm, people in table.people_by(name).items() if table is not None else ():
                arms[arm] = arms.get(arm, 0) + people
    return {
        name: {str(arm): floor_to_k(people, plan.k) for arm, people in arms.items()} for name, arms in counts.items()
    }


def _sum(records: Sequence[Record], cipher: RecordCipher, first: int, *, noisy: bool) -> tuple[Counters, list[str]]:
    """Return the sum of the records that are the store's own, and a sentence if there are others.

    Raises `StoreError` if the key of an open cohort is erased: then the store is an older one.
    """
    for cohort in {record.cohort for record in records if record.cohort >= first}:
        cipher.keyring.key(cohort)
    genuine = cipher.genuine(records)
    some = "some" if noisy else genuine.left_out
    others = f"{some} records in the store were left out: they are not its own, or were counted already"
    return genuine.counters, [others] if genuine.left_out else []


def _last_sealed(ledger: Ledger) -> str | None:
    """Return the label of the last sealed cohort."""
    batch = ledger.releases[-1].receipt.batch if ledger.releases else None
    return None if batch is None else batch.through


def _counted(
    plan: Plan, counters: Counters, after: str | None, through: int
) -> tuple[Counted, dict[str, str], list[str]]:
    """Return what was collected, as if rows had been counted; what is left out of it, with the reasons; and doubts."""
    tallies, left = _without_forged(plan, possible_tables(plan, counters))
    apart = {name: _DISAGREE.format(name) for name in plan.experiment_names if not _agree(plan, name, tallies)}
    small = {name: _SMALL.format(name) for name in plan.experiment_names if _too_small(name, tallies, plan.k)}
    for gone in (apart, small):
        if gone and not gone.keys() >= {*plan.experiment_names}:
            plan = without_experiments(plan, [*gone])
            tallies = {name: tallies[name] for name in plan.linkage_names}
            left |= gone
    span = _span(plan, after, through)
    signatures, unknown = signatures_of(plan, tallies, counters)
    doubts = [f"effective k of {name} was not evaluated: {why}" for name, why in unknown.items()]
    doubts += [
        _BINS_APART.format(each.name, listed(each.quantiles))
        for each in plan.experiments
        if each.quantiles and each.name not in unknown
    ]
    return Counted(plan, tallies, signatures, span=span), left, doubts


def _span(plan: Plan, after: str | None, through: int) -> Span | None:
    """Return the cohorts of a batch; None where the plan has none."""
    if plan.cohorts is None:
        return None
    return Span(COLLECTORS_CLOCK, plan.cohorts.every, after, Periods(plan.cohorts.every).label(through))


def _as_begun(tallies: Mapping[str, Tally], versions: Versions) -> dict[str, Tally]:
    """Keep in each table the metrics that its experiments began with: the others would be zeros that nobody meant."""
    began = {name: versions.metrics(*tally.experiment_names) for name, tally in tallies.items()}
    return {
        name: tally.select_metrics(metric for metric in tally.metric_names if metric in began[name])
        for name, tally in tallies.items()
    }


_FORGED = "{} is withheld {}: its messages do not add up, some were forged or lost"
_FORGED_BINS = "{} is left out: messages do not add up in bins of it, some were forged or lost"
_BINS_APART = "effective k of {} takes people by bins of {} by themselves, not together with its other tables"
_SMALL = "{} is left out of this batch: an arm holds fewer than k people"
_DISAGREE = "{} is left out of this batch: its tables are not about the same people, some records were lost"


def _without_forged(plan: Plan, possible: Mapping[str, PossibleTable]) -> tuple[dict[str, Tally], dict[str, str]]:
    """Return the tables without metrics and ratios whose messages no group of people could have sent, and why.

    Anybody can post. What does not add up in one table of an experiment is withheld in all of them, and with it what
    is defined by it; other experiments keep it.
    """
    tallies = {name: table.tally for name, table in possible.items()}
    left: dict[str, str] = {}
    for linkage in plan.linkages:
        impossible = {*possible[linkage.name].impossible}
        if linkage.people_only:
            name = str(linkage.covariate)
            if impossible or f"{linkage.experiments[0]}: {name}" in left:
                table = tallies[linkage.name]
                tallies[linkage.name] = without_bins(table.factors, [*table.people_by(table.axes[0]).values()])
                left[linkage.name] = _FORGED_BINS.format(name)
            continue
        if not impossible:
            continue
        own = len(linkage.experiments) == 1
        spoilt = [m.name for m in plan.metrics if impossible & {m.name, m.of, m.ratio, *(m.ratio or ())}]
        where = "altogether" if own else f"in {linkage.name}"
        left |= {
            f"{linkage.experiments[0] if own else linkage.name}: {name}": _FORGED.format(name, where) for name in spoilt
        }
        for other in plan.linkages:
            if other == linkage or (own and linkage.experiments[0] in other.experiments):
                tallies[other.name] = without_metrics(tallies[other.name], plan, spoilt)
    return tallies, left


def _agree(plan: Plan, experiment: str, tallies: Mapping[str, Tally]) -> bool:
    """Return whether all tables of an experiment are about the same people, as every post was applied whole."""
    arms = [tallies[link.name].people_by(experiment) for link in plan.linkages_of(experiment)]
    return all(other == arms[0] for other in arms)


def _too_small(experiment: str, tallies: Mapping[str, Tally], k: int) -> bool:
    table = next(tally for tally in tallies.values() if tally.experiment_names == (experiment,))
    return min(table.people_by(experiment).values()) < k
