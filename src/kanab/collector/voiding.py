"""Voiding: open cohorts are destroyed without a batch, and the ledger of the store says which, when and why.

Keys move forward only, so that the key of a cohort cannot be destroyed without those before it: all open cohorts
through the named one are voided together.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

from kanab.collector.closed_cohorts import closed_through, reopen_cohorts
from kanab.collector.counting.counters import Counters
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.people_accounts import destroyed_counters, floored_accounts, noted_accounts, people_accounts
from kanab.collector.stores.store import Record, Store
from kanab.plan.periods import Periods
from kanab.privacy.ledger import EVERYTHING, Ledger, LedgerNote, entry_text, verified_entries, void_sentence
from kanab.privacy.release import Batch


def void_cohorts(store: Store, keyring: Keyring, through: int, reason: str, now: datetime) -> bool:
    """Destroy all open cohorts through one of them, and their keys; return False if they were closed before."""
    store.claim(keyring.fingerprint)  # another store's key must not be moved
    reopen_cohorts(store)
    new = append_void(store, through, reason, now, RecordCipher(keyring))
    keyring.forget(closed_through(store))
    return new


def append_void(store: Store, through: int, reason: str, now: datetime, cipher: RecordCipher | None = None) -> bool:
    """Destroy the records of cohorts and append the note of it to the ledger; keys are the caller's."""
    versions = Versions.read(store)
    cohorts = versions.newest.cohorts
    voided = VoidedPeople(cipher, versions, through + 1)
    label = EVERYTHING if cohorts is None else Periods(cohorts.every).label(through)
    asked = {"through": label, "at": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    return store.void(through, partial(voided.note, reason, asked), carry=voided.carry)


class VoidedPeople:
    """Counts the people of records that are destroyed, for the account: in a note floored to k, exactly as ciphertext.

    Without the key of the store, or with an ε, nobody is counted.
    """

    def __init__(self, cipher: RecordCipher | None, versions: Versions, cohort: int) -> None:
        exact = bool(versions.entries) and versions.newest.budget is None
        self._cipher = cipher if exact else None
        self._versions, self._cohort = versions, cohort
        self._carried: Counters = {}

    def note(self, reason: str, asked: Mapping[str, str], records: list[Record], entries: list[bytes]) -> bytes:
        """Return the note of the ledger: why, what was asked, and everybody who was destroyed so far."""
        ledger = verified_entries(entries, "the store")
        asked = {**asked, **self._destroyed(records, ledger)}
        return entry_text(LedgerNote("voided", reason, asked, ledger.head)).encode()

    def _destroyed(self, records: list[Record], ledger: Ledger) -> dict[str, str]:
        if self._cipher is None:
            return {}
        plan, counters = self._versions.known, self._cipher.genuine(records).counters
        self._carried = destroyed_counters(plan, counters, plan.experiment_names)
        accounts = people_accounts(plan, ledger.releases, self._carried)
        return noted_accounts(floored_accounts(accounts, self._versions.newest.k))

    def carry(self, epoch: str, generation: int) -> Record | None:
        """Return how many were destroyed, as a record of a later cohort."""
        if self._cipher is None or not self._carried:
            return None
        return Record(self._cohort, self._cipher.encrypt(self._cohort, self._carried, epoch, generation))


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
    through, periods = note.asked.get("through", EVERYTHING), Periods(batch.every)
    return through != EVERYTHING and periods.number(through) > periods.number(batch.through)
