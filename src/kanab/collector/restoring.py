"""An older store was put back: how that is noticed, and what goes on from there.

Clients send running totals, old>new, and a store adds up what they moved by. One that has lost something would go on
adding to less than its clients believe, and its means would be wrong. So it begins another epoch: the people of the old
one send nothing any more, open cohorts are voided (or kept, and receipts say so), and newcomers are counted whole.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from kanab.collector.closed_cohorts import closed_through, last_cohort
from kanab.collector.counting.cohorts import Calendar
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.keys.store_witness import Seen, Witness
from kanab.collector.protocol.nonces import seconds_of
from kanab.collector.sealing import first_open, stored_ledger
from kanab.collector.stores.store import NOTHING_SEALED, Store
from kanab.collector.voiding import VoidedPeople
from kanab.errors import LedgerError, StoreError
from kanab.plan.periods import Periods
from kanab.privacy.ledger import EVERYTHING, Ledger, LedgerNote, entry_text, verified_entries
from kanab.privacy.release import Release

Entry = Release | LedgerNote

RESTORED = "the store was put back from an older backup, and what it was told since then is lost"
"""What ledgers and receipts say of it."""

LOST_MEMORY = "the collector was started again, and what it kept in memory alone is lost"
"""The same where ``durability = "memory"``."""


# ── noticing ───────────────────────────────────────────────────────────────────────────────────


def older_error(store: Store, keyring: Keyring | None, witness: Witness | None) -> StoreError | None:
    """Return what to say if a store is older than its witness or its key have seen it; None if nothing shows that."""
    lacks_batches = keyring is not None and lost_through(store, keyring) is not None
    if not lacks_batches and not _is_behind(store, witness):
        return None
    return StoreError(
        "the store is older than what its collectors have acknowledged: a backup was put back",
        "Decide with kanab restore; until then nothing is taken or sealed, and clients send again.",
    )


def lost_through(store: Store, keyring: Keyring) -> int | None:
    """Return the last cohort that was sealed, by what the key has erased, and has no batch in the store."""
    erased = keyring.period - 1
    return erased if keyring.erasable and erased > closed_through(store) else None


def _is_behind(store: Store, witness: Witness | None) -> bool:
    seen = None if witness is None else witness.read()
    if seen is None:
        return False
    if seen.epoch == store.epoch():
        return store.number() < seen.number
    ended: set[str] = set()  # the first epoch, once another began, and those that notes name
    for note in stored_ledger(store).notes:
        if "epoch" in note.asked:
            ended |= {"", note.asked["epoch"], *note.asked.get("ends", "").split()}
    return seen.epoch not in ended


# ── a new epoch ────────────────────────────────────────────────────────────────────────────────


def begin_epoch(
    store: Store,
    reason: str,
    now: datetime,
    *,
    keep: bool = False,
    witness: Witness | None = None,
    keyring: Keyring | None = None,
) -> str:
    """Begin another epoch of a store, and return its name; nonces stay.

    Open cohorts are voided, or kept if ``keep``; either way the ledger has a note, and the receipts of their batches
    say what was lost. With the ``keyring`` of the store it is counted who is voided.
    """
    epoch, (through, label) = secrets.token_hex(4), last_open(store, now)
    seen = None if witness is None else witness.read()
    asked = {"through": label, "at": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "epoch": epoch}
    asked |= {"ends": seen.epoch} if seen is not None and seen.epoch else {}

    def keep_open(entries: list[bytes]) -> bytes:
        return entry_text(LedgerNote("kept", reason, asked, verified_entries(entries, "the store").head)).encode()

    if keep:
        store.begin_epoch(through, keep_open, epoch)
        return epoch
    versions, cipher, first = Versions.read(store), None, 0
    if keyring is not None and versions.entries:  # cohorts stay open: who is voided is noted in the first of them
        cipher, first = RecordCipher(keyring), max(first_open(store, versions), keyring.period)
    voided = VoidedPeople(cipher, versions, first)
    store.void(through, partial(voided.note, reason, asked), epoch, voided.carry)
    return epoch


def expect_epoch(store: Store, witness: Witness | None) -> None:
    """Let a store count as older until another epoch begins: a restore that is killed half-way shows, and is done."""
    seen = None if witness is None else witness.read()
    if witness is not None and (seen is None or seen.epoch == store.epoch()):
        witness.note(Seen(store.epoch(), store.number() + 2**40))  # which no commit of the restore itself reaches


def last_open(store: Store, now: datetime) -> tuple[int, str]:
    """Return the last cohort that is open or has records, and its label."""
    versions = Versions.read(store)
    cohorts = versions.newest.cohorts if versions.entries else None
    if cohorts is None:
        return 0, EVERYTHING
    current = Calendar(versions.newest).opening(seconds_of(now)).current
    through = max(current, *store.sizes(), *store.lost(), NOTHING_SEALED)
    return through, Periods(cohorts.every).label(through)


# ── batches of an exported ledger ──────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Missing:
    """What an exported ledger has beyond a store's: entries, and the last cohort that each is about."""

    entries: Sequence[Entry] = ()
    through: Sequence[int] = ()

    def put_back(self, store: Store) -> None:
        """Append the entries to the store's ledger; records of cohorts that are sealed by that are deleted."""
        for entry, through in zip(self.entries, self.through, strict=True):
            if not _put(store, through, entry):
                raise StoreError("somebody has sealed these cohorts meanwhile", "Stop the collectors, and try again.")


def missing_entries(
    store: Store, ledger: Ledger, now: datetime, keyring: Keyring | None = None, *, delete_open: bool = False
) -> Missing:
    """Return what an exported ledger has beyond a store's; raises `LedgerError` if it is not this store's.

    Records of sealed cohorts, which no key decrypts, go with it. If a cohort has records and its key has not been
    erased, it was hardly sealed: then the ledger is refused unless ``delete_open``.
    """
    stored, versions = stored_ledger(store), Versions.read(store)
    of_stores = [isinstance(entry, Release) or entry.kind in ("voided", "kept") for entry in ledger.entries]
    kept = [place for place, is_stored in enumerate(of_stores) if is_stored]
    if kept != [*range(len(kept))]:  # notes of kanab release, not of a store
        raise _foreign("it holds attempts that a store does not make")
    if ledger.hashes[: len(stored.hashes)] != stored.hashes[: len(ledger.hashes)]:
        raise _foreign("its first batches are not those of the store")
    entries = ledger.entries[len(stored.hashes) : len(kept)]
    if not entries:
        return Missing()
    if not versions.entries:
        raise _foreign("the store has no plan yet")
    _check_store(ledger, store.fingerprint() or (None if keyring is None else keyring.fingerprint), versions)
    cohorts = versions.newest.cohorts
    through = [last_cohort(entry, store) for entry in entries]
    if cohorts is not None and max(through) > Calendar(versions.newest).opening(seconds_of(now)).current:
        raise LedgerError("the ledger has cohorts ahead of this machine's clock", "Give another, or set the clock.")
    proven = (keyring is None or not keyring.erasable) and all(release.receipt.store for release in ledger.releases)
    erased = max(through) if proven else NOTHING_SEALED if keyring is None else keyring.period - 1
    if any(erased < cohort <= max(through) for cohort in store.sizes()) and not delete_open:
        raise LedgerError(
            "the ledger has batches of cohorts that are open in this store, and whose keys still exist",
            "If it is this store's, and these cohorts shall be deleted, add --delete-open.",
        )
    return Missing(entries, through)


def _check_store(ledger: Ledger, fingerprint: bytes | None, versions: Versions) -> None:
    """Check that all batches are of the store's key chain, if they say so (older ones do not), and of its plan."""
    known = versions.known
    for release in ledger.releases:
        if release.receipt.store not in ("", (fingerprint or b"").hex()):
            raise _foreign("its batches were sealed with another key")
        every = None if release.receipt.batch is None else release.receipt.batch.every
        arms = {experiment.name: experiment.arms for experiment in known.experiments}
        if every != (known.cohorts and known.cohorts.every) or any(
            arms.get(experiment.name) != experiment.arms for experiment in release.plan.experiments
        ):
            raise _foreign("its batches are of another plan")


def _put(store: Store, through: int, entry: Entry) -> bool:
    document = entry_text(entry).encode()
    if isinstance(entry, Release):
        return store.seal(through, lambda _records, _entries: document)
    epoch = entry.asked.get("epoch")
    if entry.kind == "kept" and epoch is not None:
        return store.begin_epoch(through, lambda _entries: document, epoch)
    return store.void(through, lambda _records, _entries: document, epoch)


def _foreign(why: str) -> LedgerError:
    return LedgerError(
        f"the ledger is not this store's: {why}", "Give the one that kanab export wrote from it; nothing was changed."
    )
