"""Voiding: open cohorts are destroyed without a batch, and the ledger of the store says which, when and why.

Keys move forward only, so that the key of a cohort cannot be destroyed without those before it: all open cohorts
through the named one are voided together.
"""

from __future__ import annotations

from datetime import UTC, datetime

from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores.store import Store
from kanab.plan.periods import Periods
from kanab.privacy.ledger import Ledger, entry_text, verified_entries
from kanab.privacy.ledger_note import EVERYTHING, LedgerNote, void_sentence
from kanab.privacy.release import Batch


def void_cohorts(store: Store, keyring: Keyring, through: int, reason: str, now: datetime) -> bool:
    """Destroy all open cohorts through one of them, and their keys; return False if they were closed before."""
    store.claim(keyring.fingerprint)  # another store's key must not be moved
    new = append_void(store, through, reason, now)
    keyring.forget(store.sealed_through())
    return new


def append_void(store: Store, through: int, reason: str, now: datetime) -> bool:
    """Destroy the records of cohorts and append the note of it to the ledger; keys are the caller's."""
    cohorts = Versions.read(store).newest.cohorts
    label = EVERYTHING if cohorts is None else Periods(cohorts.every).label(through)
    asked = {"through": label, "at": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}

    def make(entries: list[bytes]) -> bytes:
        return entry_text(LedgerNote("voided", reason, asked, verified_entries(entries, "the store").head)).encode()

    return store.void(through, make)


def voided_since(ledger: Ledger) -> list[str]:
    """Return what was voided since the last batch, a sentence each, for the receipt of the next one.

    Cohorts that lost something when an epoch began may be in later batches, too.
    """
    last = max((place for place, entry in enumerate(ledger.entries) if not isinstance(entry, LedgerNote)), default=-1)
    batch = ledger.releases[-1].receipt.batch if ledger.releases else None
    return [
        void_sentence(entry)
        for place, entry in enumerate(ledger.entries)
        if isinstance(entry, LedgerNote)
        and entry.kind in ("voided", "kept")
        and (place > last or (batch is not None and "epoch" in entry.asked and _is_after(entry, batch)))
    ]


def _is_after(note: LedgerNote, batch: Batch) -> bool:
    """Return whether a note is about cohorts after those of a batch."""
    through, periods = note.asked.get("through", EVERYTHING), Periods(batch.every)
    return through != EVERYTHING and periods.number(through) > periods.number(batch.through)
