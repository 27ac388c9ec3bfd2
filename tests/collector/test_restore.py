"""A store from an older backup gets its batches back and begins a new epoch; another store's ledger changes nothing."""

import shutil
import signal
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.collector.collector_process import ForkServer, Place
from tests.collector.test_sealing import PLAN, VERSIONS, cohort, people, posts, send

from kanab import count
from kanab.cli.main import cli
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.nonces import seconds_of
from kanab.collector.restoring import missing_entries
from kanab.collector.sealing import seal_cohorts, seal_due, stored_ledger
from kanab.collector.store_ledger import void_cohorts
from kanab.collector.stores.sqlite import SqliteStore
from kanab.errors import LedgerError, SourceError, StoreError
from kanab.inspection.officer.account import privacy_account
from kanab.inspection.officer.officer_page import privacy_html
from kanab.plan.file import parse_plan
from kanab.privacy.ledger import Ledger, LedgerNote, ledger_text
from kanab.privacy.release import Release

MONDAY = datetime(2025, 11, 10, 12, tzinfo=UTC)  # of week 46, long ago on any clock
NOW = MONDAY + timedelta(weeks=3)


@dataclass
class Site:
    """A data directory with its key, and exported ledgers beside them."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def cipher(self) -> RecordCipher:
        return RecordCipher(Keyring.create(self.folder / "data.key"))

    def open(self) -> SqliteStore:
        self.data.mkdir(parents=True, exist_ok=True)
        store = SqliteStore(self.data / "store.db")
        if not store.versions():
            Versions().record(store, PLAN, 0)
            store.claim(self.cipher.keyring.fingerprint)
        return store

    def fill(self, store: SqliteStore, week: int) -> None:
        now = MONDAY + timedelta(weeks=week)
        send(store, self.cipher, posts(people(400, week), f"2025-W{46 + week}"), now)

    def seal(self, store: SqliteStore, week: int) -> Release:
        sealed = seal_cohorts(store, self.cipher, VERSIONS, cohort(MONDAY + timedelta(weeks=week)))
        assert sealed.release is not None
        return sealed.release

    def export(self, ledger: Ledger) -> Path:
        path = self.folder / "kanab.ledger"
        path.write_text(ledger_text(ledger))
        return path

    def restore(self, *options: str | Path) -> str:
        """What the command printed, or its error."""
        done = CliRunner().invoke(cli, ["restore", *map(str, options), "--data", str(self.data)])
        return str(done.exception) if done.exception else done.output

    def contents(self) -> tuple[list[bytes], dict[int, int], int, str]:
        store = SqliteStore(self.data / "store.db")
        seen = store.sealed(), store.sizes(), store.sealed_through(), store.epoch()
        store.close()
        return seen


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


@pytest.fixture
def restored(site: Site) -> Ledger:
    """The site as it was before two seals, and the ledger that was exported after them."""
    store = site.open()
    for week in range(3):
        site.fill(store, week)
        if week == 1:
            store.tidy()
            shutil.copy(site.data / "store.db", site.folder / "backup.db")
        site.seal(store, week)
    ledger = stored_ledger(store)
    store.close()
    shutil.rmtree(site.data)
    site.data.mkdir()
    shutil.copy(site.folder / "backup.db", site.data / "store.db")
    return ledger


def test_without_its_batches_nothing_can_be_sealed_and_with_them_it_goes_on(site: Site, restored: Ledger) -> None:
    store = SqliteStore(site.data / "store.db")
    with pytest.raises(StoreError, match="the key of a cohort has been erased"):
        seal_cohorts(store, site.cipher, VERSIONS, cohort(NOW))
    assert len(stored_ledger(store).releases) == 1
    store.close()

    before = site.contents()
    assert "cohorts were sealed after this backup, and their batches are not in the store" in site.restore()
    path = site.export(restored)
    dry = site.restore(path, "--dry-run")
    assert dry.startswith("Would do: 2 sealed batches put back.\nWould do: A new epoch: open cohorts through ")
    assert site.contents() == before
    done = site.restore(path)
    assert done == dry.replace("Would do: ", "")
    again = site.restore(path)
    assert again.startswith("The store has every batch of the ledger: nothing was put back.\nNothing shows")

    store = SqliteStore(site.data / "store.db")
    assert store.records() == []
    ledger = stored_ledger(store)
    assert ledger.hashes[:3] == restored.hashes
    assert [note.kind for note in ledger.notes] == ["voided"]
    assert ledger.notes[0].asked["epoch"] == store.epoch() != ""
    store.close()


def test_a_restore_may_be_killed_before_any_write_and_is_finished_by_the_next(
    site: Site, restored: Ledger, tmp_path: Path, fork_server: ForkServer
) -> None:
    path, place = site.export(restored), Place(tmp_path / "place", fork_server)
    truth = count(people(400, 3), plan=PLAN).tallies
    kills, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        attempt = Site(shutil.copytree(site.folder, tmp_path / f"attempt{kills}"))
        code = place.run("restore", path, "--data", attempt.data, die_at=kills).code
        again = attempt.restore(path)
        store = attempt.open()
        ledger = stored_ledger(store)
        assert ledger.hashes[:3] == restored.hashes, kills
        assert [note.asked["epoch"] for note in ledger.notes] == [store.epoch()], (kills, again)
        if not kills % 5:  # whatever comes then is counted and sealed
            attempt.fill(store, 3)
            assert dict(attempt.seal(store, 3).tables) == truth
        store.close()
        kills += 1
    assert code == 0
    assert kills > 30


def test_a_lost_ledger_costs_its_batches_and_no_more(site: Site, restored: Ledger) -> None:
    del restored
    done = site.restore("--without-ledger")
    assert done.startswith("Cohorts whose batches were lost are closed.\nA new epoch: ")
    store = SqliteStore(site.data / "store.db")
    assert store.sealed_through() == cohort(MONDAY + timedelta(weeks=2))
    assert [note.kind for note in stored_ledger(store).notes] == ["voided", "voided"]
    store.close()
    assert site.restore().startswith("Nothing shows that the store is older")


def test_open_cohorts_can_be_kept_and_every_batch_of_them_says_what_was_lost(site: Site) -> None:
    store = site.open()
    for week in range(3):
        site.fill(store, week)
    site.seal(store, 0)
    store.close()
    assert "are kept as they are" in site.restore("--new-epoch", "--keep-open")
    store = SqliteStore(site.data / "store.db")
    for week in (1, 2):
        release = site.seal(store, week)
        assert release.tables["checkout/tier"].total == 400
        (deviation,) = release.receipt.deviations
        assert "were kept at" in deviation
        assert "the store was put back from an older backup, and what it was told since then is lost" in deviation
    store.close()


def other_site(tmp_path: Path, weeks: int = 3) -> Ledger:
    """Another store by the same plan, and what it has sealed."""
    other = Site(tmp_path / "other")
    store = other.open()
    for week in range(weeks):
        other.fill(store, week)
        other.seal(store, week)
    ledger = stored_ledger(store)
    store.close()
    return ledger


def unbound(ledger: Ledger) -> Ledger:
    """As versions of before wrote it, where a batch does not say which store sealed it."""
    releases: list[Release] = []
    hashes: list[str] = []
    for release in ledger.releases:
        old = replace(release, receipt=replace(release.receipt, store=""), previous=hashes[-1] if hashes else "")
        text = ledger_text(Ledger((old,)))
        hashes.append(text.rsplit('"hash": "', 1)[1][:64])
        releases.append(old)
    return Ledger(tuple(releases), tuple(hashes))


@pytest.mark.parametrize("kind", ["bound", "unbound", "unbound, without a key"])
def test_a_foreign_ledger_never_wipes_what_is_open_before_the_first_seal(site: Site, tmp_path: Path, kind: str) -> None:
    """Every ledger continues an empty one: it has to say whose it is, or meet erased keys."""
    foreign = other_site(tmp_path)
    store = site.open()
    for week in range(3):
        site.fill(store, week)
    store.close()
    if kind == "unbound, without a key":
        (site.folder / "data.key").rename(tmp_path / "elsewhere.key")
    before = site.contents()
    refused = site.restore(site.export(foreign if kind == "bound" else unbound(foreign)))
    expected = "sealed with another key" if kind == "bound" else "cohorts that are open in this store"
    assert expected in refused
    assert site.contents() == before


def test_an_old_ledger_of_this_store_is_taken_where_the_keys_are_erased_or_on_demand(
    site: Site, tmp_path: Path
) -> None:
    store = site.open()
    for week in range(2):
        site.fill(store, week)
    store.tidy()
    shutil.copy(site.data / "store.db", tmp_path / "backup.db")
    shutil.copy(site.folder / "data.key", tmp_path / "first.key")
    site.seal(store, 0)
    ledger = unbound(stored_ledger(store))
    store.close()
    for key, options in ((None, ()), (tmp_path / "first.key", ("--delete-open",))):
        (site.data / "store.db-wal").unlink(missing_ok=True)
        (site.data / "store.db-shm").unlink(missing_ok=True)
        shutil.copy(tmp_path / "backup.db", site.data / "store.db")
        if key is not None:  # an old key file came back, too
            shutil.copy(key, site.folder / "data.key")
            assert "add --delete-open" in site.restore(site.export(ledger))
        assert "1 sealed batch put back." in site.restore(site.export(ledger), *options)
        assert site.contents()[2] == cohort(MONDAY)


def test_a_ledger_of_another_plan_a_foreign_continuation_and_one_from_the_future_are_refused(
    site: Site, tmp_path: Path
) -> None:
    foreign = other_site(tmp_path, 1)
    empty = SqliteStore(tmp_path / "empty.db")
    with pytest.raises(LedgerError, match="the ledger is not this store's"):
        missing_entries(empty, foreign, NOW, site.cipher.keyring)
    empty.close()
    store = site.open()
    keyring = site.cipher.keyring
    other = SqliteStore(tmp_path / "other.db")
    Versions().record(other, OTHER_PLAN, 0)
    with pytest.raises(LedgerError, match="are of another plan"):
        missing_entries(other, unbound(foreign), NOW, keyring)
    other.close()
    with pytest.raises(LedgerError, match="has cohorts ahead of this machine's clock"):
        missing_entries(store, unbound(foreign), MONDAY - timedelta(weeks=1), keyring)
    site.fill(store, 0)
    site.seal(store, 0)
    with pytest.raises(LedgerError, match="its first batches are not those of the store"):
        missing_entries(store, unbound(foreign), NOW, keyring)
    assert missing_entries(store, Ledger(), NOW, keyring).entries == ()  # it ends before the store: nothing is missing
    store.close()


OTHER_PLAN = parse_plan("""
k = 10
[cohorts]
every = "7d"
[metrics]
bought = { kind = "binary" }
[experiments.prices]
arms = { low = 1, high = 1 }
""")


def test_notes_of_refused_releases_after_the_batches_do_not_matter_and_between_them_they_do(
    site: Site, restored: Ledger
) -> None:
    store = SqliteStore(site.data / "store.db")
    note = LedgerNote("refused", "other choices", previous=restored.head)
    entries, hashes, keyring = restored.entries, restored.hashes, site.cipher.keyring
    between = Ledger((*entries[:2], note, entries[2]), (*hashes[:2], "x", hashes[2]))
    with pytest.raises(LedgerError, match="is not this store's"):
        missing_entries(store, between, NOW, keyring)
    missing = missing_entries(store, Ledger((*entries, note), (*hashes, "x")), NOW, keyring)
    missing.put_back(store)
    assert len(missing.entries) == 2
    assert stored_ledger(store).hashes == hashes
    store.close()


# ── cohorts that are voided ────────────────────────────────────────────────────────────────────


CALENDAR = PostAcceptor(PLAN).calendar
TODAY = datetime.now(UTC)
CURRENT = CALENDAR.opening(seconds_of(TODAY)).current
assert CALENDAR.periods is not None
LABELS = {weeks: CALENDAR.periods.label(CURRENT - weeks) for weeks in range(4)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory: three weeks ago is sealed, two weeks ago and last week are open."""
    store, keyring = SqliteStore(tmp_path / "data" / "store.db"), Keyring.create(tmp_path / "data.key")
    cipher = RecordCipher(keyring)
    Versions().record(store, PLAN, CURRENT - 3)
    for weeks in (3, 2, 1):
        send(store, cipher, posts(people(300, weeks), LABELS[weeks]), TODAY - timedelta(weeks=weeks))
    [first] = seal_due(store, cipher, Versions.read(store), CURRENT - 3)
    assert first.release is not None
    store.close()
    return tmp_path / "data"


def void(data: Path, cohort: str, *more: str) -> Result:
    command = ["void", cohort, "--data", str(data), "--key", str(data.parent / "data.key"), *more]
    return CliRunner().invoke(cli, command, input="n\n")


def test_a_voided_cohort_is_gone_with_its_key_and_the_ledger_says_when_and_why(data: Path) -> None:
    done = void(data, LABELS[2], "--reason", "a test site posted into it.", "--yes")
    assert done.output.startswith(f"Voided the open cohorts through {LABELS[2]}.")
    keyring, store = Keyring.from_file(data.parent / "data.key"), SqliteStore(data / "store.db")
    assert (keyring.period, {*store.sizes()}) == (CURRENT - 1, {CURRENT - 1})
    audited = CliRunner().invoke(cli, ["audit", str(data)])
    assert audited.exit_code == 0
    assert audited.output.startswith(f"data: open cohorts through {LABELS[2]} were voided at {TODAY:%Y-}")
    assert "nobody of them is in a batch: a test site posted into it." in audited.output

    [batch] = seal_due(store, RecordCipher(keyring), Versions.read(store), CURRENT - 1)
    assert batch.release is not None
    assert batch.release.totals("checkout").total == 300
    assert any("a test site posted into it" in deviation for deviation in batch.release.receipt.deviations)
    ledger = stored_ledger(store)
    assert [type(entry).__name__ for entry in ledger.entries] == ["Release", "LedgerNote", "Release"]
    account = privacy_account(dict(zip("ab", ledger.releases, strict=True)), ledger)
    assert account["verdict"]["state"] == "passed"
    assert "Open cohorts through" in privacy_html(account)
    store.close()


def test_a_restored_store_gets_the_note_back_in_its_place(data: Path, tmp_path: Path) -> None:
    (tmp_path / "old.db").write_bytes(_whole_file(data / "store.db"))
    assert void(data, LABELS[1], "--reason", "forged", "--yes").exit_code == 0
    store, restored = SqliteStore(data / "store.db"), SqliteStore(tmp_path / "old.db")
    missing = missing_entries(restored, stored_ledger(store), TODAY, delete_open=True)
    assert len(missing.entries) == 1
    missing.put_back(restored)
    assert (restored.sealed(), restored.records()) == (store.sealed(), [])
    store.close()
    restored.close()


def test_nothing_is_voided_without_a_yes_a_reason_or_an_open_cohort_that_is_over(data: Path) -> None:
    store = SqliteStore(data / "store.db")
    before = store.sealed(), store.records()
    asked = void(data, LABELS[2], "--reason", "forged")
    assert (asked.exit_code, "for good? [y/N]: n" in asked.output) == (1, True)
    assert void(data, LABELS[2], "--reason", "  ", "--yes").exit_code == 2
    for label, fact in ((LABELS[0], "is not over"), (LABELS[3], "sealed or voided already")):
        refusal = void(data, label, "--reason", "forged", "--yes").exception
        assert isinstance(refusal, SourceError)
        assert fact in str(refusal)
    assert (store.sealed(), store.records()) == before
    assert not void_cohorts(store, Keyring.from_file(data.parent / "data.key"), CURRENT - 3, "twice", TODAY)
    store.close()


def _whole_file(path: Path) -> bytes:
    """The bytes of a store without its write-ahead log."""
    store = SqliteStore(path)
    store.tidy()
    store.close()
    return path.read_bytes()
