"""Which cohorts are closed: the ledger of a store says so, whose entries are chained.

A store keeps the number of the last one, too, by which posts are sorted quickly. Whoever may write the store can raise
that: a key is erased, and records are given up, only for what the ledger has a batch or the note of a void of.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kanab.collector.counting.plan_versions import Versions
from kanab.collector.stores.store import NOTHING_SEALED, Store
from kanab.plan.periods import Periods
from kanab.privacy.ledger import EVERYTHING, LedgerNote, verified_entries
from kanab.privacy.release import Release

RAISED = "cohorts were marked as sealed in the store that have no batch: somebody changed it"
"""What is said where the store's own number is ahead of its ledger."""


def closed_through(store: Store) -> int:
    """Return the last cohort that a batch or a void closed, by the verified ledger; ``NOTHING_SEALED`` before that."""
    return _closed_by(store.sealed(), store)


def is_raised(store: Store) -> bool:
    """Return whether a store calls cohorts sealed that its ledger has nothing of."""
    said = store.sealed_through()  # first: a seal in between moves both
    return said > NOTHING_SEALED and said > closed_through(store)


def reopen_cohorts(store: Store) -> bool:
    """Open the cohorts again that somebody only marked as sealed; return whether there were any."""
    return is_raised(store) and store.reopen(lambda entries: _closed_by(entries, store))


def last_cohort(entry: Release | LedgerNote, store: Store) -> int:
    """Return the number of the last cohort that an entry of a store's ledger is about; 0 without cohorts."""
    if isinstance(entry, LedgerNote):
        label = entry.asked.get("through", EVERYTHING)
        cohorts = None if label == EVERYTHING else Versions.read(store).newest.cohorts
        return 0 if cohorts is None else Periods(cohorts.every).number(label)
    batch = entry.receipt.batch
    return 0 if batch is None else Periods(batch.every).number(batch.through)


def _closed_by(entries: Sequence[bytes], store: Store) -> int:
    last = _last_closing(tuple(entries))
    return NOTHING_SEALED if last is None else last_cohort(last, store)


@lru_cache(maxsize=1)  # a seal asks several times, and a ledger takes a while to verify
def _last_closing(entries: tuple[bytes, ...]) -> Release | LedgerNote | None:
    """Return the last entry that closed cohorts: a batch, or a void that began no epoch."""
    for entry in reversed(verified_entries(entries, "the store").entries):
        stays_open = isinstance(entry, LedgerNote) and (entry.kind != "voided" or "epoch" in entry.asked)
        if not stays_open:
            return entry
    return None
