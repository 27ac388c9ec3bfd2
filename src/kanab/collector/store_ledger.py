"""What the chained ledger of a store says: which cohorts are closed, what became of people, and what was voided.

A store keeps the number of the last closed cohort, too. Whoever may write the store can raise that: a key is erased,
and records are given up, only for what the ledger has a batch or a void of. Per experiment, acknowledged = published +
held back + destroyed; all but the published stand in encrypted counters, and are shown in steps of k.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial

from kanab.collector.counting.counters import DESTROYED, Counters
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.counting.tables import people_by_arm
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.encoding import decode, encode
from kanab.collector.stores.store import NOTHING_SEALED, Record, Store
from kanab.counted import floor_to_k
from kanab.plan.model import Plan
from kanab.plan.periods import Periods
from kanab.privacy.ledger import EVERYTHING, Ledger, LedgerNote, entry_text, verified_entries, void_sentence
from kanab.privacy.release import Batch, PeopleAccounts, Release

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


_STATES = ("published", "held_back", "destroyed")
_NOTED = "destroyed of "
"""How the note of a void names the number of destroyed people of an experiment."""


def people_accounts(plan: Plan, releases: Sequence[Release], counters: Counters, k: int) -> PeopleAccounts:
    """Return what became of everybody acknowledged, by experiment, floored to k: published, destroyed, or held back."""
    published: dict[str, int] = {}
    for release in releases:
        for name in release.plan.experiment_names:
            table = next(iter(release.tables_of(name).values()), None)
            published[name] = published.get(name, 0) + (0 if table is None else table.total)
    states = dict(zip(_STATES, (published, _people(plan, counters), _destroyed(counters)), strict=True))
    names = dict.fromkeys([*plan.experiment_names, *published, *states["destroyed"]])
    return {name: {state: floor_to_k(n.get(name, 0), k) for state, n in states.items()} for name in names}


def destroyed_counters(plan: Plan, counters: Counters, experiments: Collection[str]) -> Counters:
    """Return the numbers of destroyed people that go on to later cohorts, with those of some experiments now."""
    destroyed, people = _destroyed(counters), _people(plan, counters)
    for name in experiments:
        destroyed[name] = destroyed.get(name, 0) + people.get(name, 0)
    return {encode(name) + DESTROYED: number for name, number in destroyed.items() if number}


def would_be_destroyed(plan: Plan, ended: Collection[str], counters: Counters) -> list[str]:
    """Return the experiments among those that have ended of which a seal could not publish an arm."""
    people = {name: arms.values() for name, arms in people_by_arm(plan, counters).items() if name in ended}
    return [name for name, arms in people.items() if any(arms) and min(arms) < plan.k]


def shown_accounts(ledger: Ledger) -> PeopleAccounts:
    """Return the accounts as of the last entry of a store's ledger, floored to multiples of k. No key is needed."""
    shown: dict[str, dict[str, int]] = {}
    for entry in ledger.entries:
        if not isinstance(entry, LedgerNote):
            shown = {name: {**states} for name, states in entry.receipt.people.items()} or shown
        elif entry.kind == "voided":
            for name in shown:
                shown[name]["held_back"] = 0  # those who wait are in the first open cohort, which every void takes
            for name, text in entry.asked.items():
                if name.startswith(_NOTED):
                    nobody = dict.fromkeys(_STATES, 0)
                    shown.setdefault(name.removeprefix(_NOTED), nobody)["destroyed"] = int(text)
    return shown


def _people(plan: Plan, counters: Counters) -> dict[str, int]:
    return {name: sum(arms.values()) for name, arms in people_by_arm(plan, counters).items()}


def _destroyed(counters: Counters) -> dict[str, int]:
    """Return the destroyed people by experiment, as the counters have them."""
    return {
        decode(name.removesuffix(DESTROYED)): number for name, number in counters.items() if name.endswith(DESTROYED)
    }


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
    """Counts the people of records that are destroyed: in a note floored to k, exactly as ciphertext; not with an ε."""

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
        accounts = people_accounts(plan, ledger.releases, self._carried, self._versions.newest.k)
        return {f"{_NOTED}{name}": str(n["destroyed"]) for name, n in accounts.items() if n["destroyed"]}

    def carry(self, epoch: str, generation: int) -> Record | None:
        """Return how many were destroyed, as a record of a later cohort."""
        if self._cipher is None or not self._carried:
            return None
        return Record(self._cohort, self._cipher.encrypt(self._cohort, self._carried, epoch, generation))


def voided_since(ledger: Ledger) -> list[str]:
    """Return what was voided since the last batch, or lost in an epoch that it is later than, a sentence each."""
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
