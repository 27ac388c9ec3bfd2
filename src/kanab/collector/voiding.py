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


def void_cohorts(store: Store, keyring: Keyring, through: int, reason: str, now: datetime) -> bool:
    """Destroy all open cohorts through one of them, and their keys; return False if they were closed before."""
    store.claim(keyring.fingerprint)  # another store's key must not be moved
    new = append_void(store, through, reason, now)
    keyring.forget(store.sealed_through())
    return new


def append_void(store: Store, through: int, reason: str, now: datetime, epoch: str | None = None) -> bool:
    """Destroy the records of cohorts and append the note of it to the ledger; keys are the caller's.

    With the name of a new ``epoch`` the cohorts stay open for people who enroll in it.
    """
    cohorts = Versions.read(store).newest.cohorts
    label = EVERYTHING if cohorts is None else Periods(cohorts.every).label(through)
    asked = {"through": label, "at": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    asked |= {} if epoch is None else {"epoch": epoch}

    def make(entries: list[bytes]) -> bytes:
        return entry_text(LedgerNote("voided", reason, asked, verified_entries(entries, "the store").head)).encode()

    return store.void(through, make, epoch)


def voided_since(ledger: Ledger) -> list[str]:
    """Return what was voided since the last batch, a sentence each, for the receipt of the next one."""
    last = max((place for place, entry in enumerate(ledger.entries) if not isinstance(entry, LedgerNote)), default=-1)
    notes = (entry for entry in ledger.entries[last + 1 :] if isinstance(entry, LedgerNote) and entry.kind == "voided")
    return [void_sentence(note) for note in notes]
