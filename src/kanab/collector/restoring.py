"""An older store was put back: how that is noticed, what goes on from there, and the drill of it.

Clients send running totals: a store that lost something would add to less than they believe. So it begins another
epoch: people of the old one send nothing any more, and open cohorts are voided (or kept, and receipts say so).
"""

import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from kanab.collector.counting.cohorts import Calendar
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.keys.store_witness import Seen, Witness
from kanab.collector.protocol.nonces import seconds_of
from kanab.collector.sealing import first_open, stored_ledger
from kanab.collector.store_ledger import VoidedPeople, closed_through, last_cohort
from kanab.collector.stores.sqlite import SqliteStore, copied_store
from kanab.collector.stores.store import NOTHING_SEALED, Store
from kanab.errors import KanabError, LedgerError, StoreError
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

    Open cohorts are voided (with the ``keyring`` it is counted who), or kept if ``keep``; the ledger has a note of it.
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


_HOUR = 3600


@dataclass
class DrillReport:
    """What a drill says, line by line: what would work, what would be lost, and what is wrong."""

    lines: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def works(self) -> bool:
        """Whether a restore would bring back all that the backup is for."""
        return not self.wrong

    @property
    def text(self) -> str:
        """The report, with the verdict as its last line."""
        parts = [*self.lines, *(f"Lost: {line}" for line in self.lost), *(f"Wrong: {line}" for line in self.wrong)]
        verdict = "A restore would work." if self.works else "A restore would NOT work."
        return "\n".join([*parts, verdict])


def rehearse(backup: Path | Store, keyring: Keyring | None, ledger: Ledger | None, now: datetime) -> DrillReport:
    """Restore a copy of a store with its key and an exported ledger, and report what would come of it."""
    report = DrillReport()
    try:
        with _restored(backup) as store:
            _read(store, keyring, ledger, now, report)
    except KanabError as problem:
        report.wrong.append(str(problem))
    return report


@contextmanager
def _restored(backup: Path | Store) -> Iterator[SqliteStore]:
    """Open a copy of a store in a temporary folder, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kanab-drill-") as folder:
        copy = Path(folder) / "store.db"
        with closing(_copied_file(backup, copy) if isinstance(backup, Path) else copied_store(backup, copy)) as store:
            yield store


def _copied_file(file: Path, copy: Path) -> SqliteStore:
    """Return a copy of a store's file; raises `StoreError` where that was copied while it was written, say."""
    try:
        for end in ("", "-wal"):
            if not end or file.with_name(f"{file.name}{end}").exists():
                shutil.copyfile(file.with_name(f"{file.name}{end}"), copy.with_name(f"{copy.name}{end}"))
    except OSError as problem:
        raise StoreError(f"the backup cannot be read: {problem.strerror}", "Check path and rights.") from None
    sound = False
    with suppress(sqlite3.Error), closing(sqlite3.connect(copy)) as db:
        sound = db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    if not sound:
        raise StoreError("the backup is damaged", "Take another one; docs/how-to/keys-and-backups.md says how.")
    return SqliteStore(copy)


def _read(
    store: SqliteStore, keyring: Keyring | None, ledger: Ledger | None, now: datetime, report: DrillReport
) -> None:
    versions = Versions.read(store)
    if not versions.entries:
        raise StoreError("the backup has no plan: no collector has used this store", "Take another one.")
    report.lines.append("The store opens, and all of it can be read.")
    batches = len(stored_ledger(store).releases)
    report.lines.append(f"Its ledger verifies: {_counted(batches, 'sealed batch', 'sealed batches')}.")
    if ledger is not None:
        missing = missing_entries(store, ledger, now, keyring)
        missing.put_back(store)
        back = len(missing.entries)
        verb = "are put back" if back > 1 else "is put back"
        report.lines.append(
            f"The exported ledger continues it: {_counted(back, 'entry', 'entries')} {verb} (kanab restore)."
            if back
            else "The exported ledger has nothing beyond it."
        )
    _open_cohorts(store, keyring, versions, report, exported=ledger is not None)
    _age(store, now, report)


def _open_cohorts(
    store: SqliteStore, keyring: Keyring | None, versions: Versions, report: DrillReport, *, exported: bool
) -> None:
    """Decrypt every record that is left, and say which cohorts cannot be."""
    cohorts, sizes = versions.newest.cohorts, store.sizes()

    def names(numbers: Iterable[int]) -> str:
        return ", ".join("everybody" if cohorts is None else Periods(cohorts.every).label(n) for n in sorted(numbers))

    if keyring is None:
        report.wrong.append("there is no key. Give the key file (--key); it belongs into a backup of its own.")
        if sizes:
            report.lost.append(f"the open cohorts {names(sizes)}; what is sealed needs no key.")
        return
    store.claim(keyring.fingerprint)
    report.lines.append("The key is the one of this store.")
    cipher, spoilt = RecordCipher(keyring), set()
    erased = {cohort for cohort in sizes if cohort < keyring.period}
    for cohort, ciphertext in store.records():
        try:
            cipher.decrypt(cohort, ciphertext)
        except StoreError:
            spoilt |= {cohort} - erased
    fine = names({*sizes} - erased - spoilt)
    if fine:
        report.lost.append(f"with kanab restore the open cohorts {fine}, too, unless it is run with --keep-open.")
    report.lines.append(f"Open cohorts decrypt: {fine}." if fine else "No cohort is open that could be decrypted.")
    if spoilt:
        report.lost.append(f"records of {names(spoilt)}, which were changed.")
        report.wrong.append("records cannot be decrypted with this key. Take another backup.")
    if erased:
        newer = "Give a newer one (kanab export)." if exported else "Give the exported ledger (--ledger)."
        report.wrong.append(f"{names(erased)} was sealed after this backup, and its batch is not in it. {newer}")


def _age(store: SqliteStore, now: datetime, report: DrillReport) -> None:
    """Say how old the newest post is: what came later would be lost."""
    hour = store.last_hour()
    if hour:
        newest = datetime.fromtimestamp(hour * _HOUR, UTC)
        hours = max(int((now - newest).total_seconds() // _HOUR), 0)
        ago = f"{hours // 24} days" if hours >= 48 else _counted(hours, "hour", "hours")
        report.lost.append(f"posts to open cohorts that came after the hour of {newest:%Y-%m-%d %H:%M} UTC, {ago} ago.")


def _counted(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"
