"""The restore drill: a copy of a backup is restored in a temporary place, and what would be lost is said."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.restoring import missing_entries
from kanab.collector.sealing import stored_ledger
from kanab.collector.stores.sqlite import SqliteStore, copied_store
from kanab.collector.stores.store import Store
from kanab.errors import KanabError, StoreError
from kanab.plan.periods import Periods
from kanab.privacy.ledger import Ledger

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
    """Restore a copy of a store with its key and an exported ledger, and report what would come of it.

    The backup is a store's file, or an open store, such as a scratch database with a dump in it. It is only read.
    """
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
