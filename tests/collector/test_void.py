"""kanab void destroys open cohorts, and everybody who reads the ledger sees when and why."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.collector.test_sealing import PLAN, people, posts, send

from kanab.cli.main import cli
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.nonces import seconds_of
from kanab.collector.restoring import missing_entries
from kanab.collector.sealing import seal_due, stored_ledger
from kanab.collector.store_ledger import void_cohorts
from kanab.collector.stores.sqlite import SqliteStore
from kanab.errors import SourceError
from kanab.inspection.officer.account import privacy_account
from kanab.inspection.officer.officer_page import privacy_html

CALENDAR = PostAcceptor(PLAN).calendar
NOW = datetime.now(UTC)
CURRENT = CALENDAR.opening(seconds_of(NOW)).current
assert CALENDAR.periods is not None
LABELS = {weeks: CALENDAR.periods.label(CURRENT - weeks) for weeks in range(4)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory: three weeks ago is sealed, two weeks ago and last week are open."""
    store, keyring = SqliteStore(tmp_path / "data" / "store.db"), Keyring.create(tmp_path / "data.key")
    cipher = RecordCipher(keyring)
    Versions().record(store, PLAN, CURRENT - 3)
    for weeks in (3, 2, 1):
        send(store, cipher, posts(people(300, weeks), LABELS[weeks]), NOW - timedelta(weeks=weeks))
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
    assert audited.output.startswith(f"data: open cohorts through {LABELS[2]} were voided at {NOW:%Y-}")
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
    missing = missing_entries(restored, stored_ledger(store), NOW, delete_open=True)
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
    for cohort, fact in ((LABELS[0], "is not over"), (LABELS[3], "sealed or voided already")):
        refusal = void(data, cohort, "--reason", "forged", "--yes").exception
        assert isinstance(refusal, SourceError)
        assert fact in str(refusal)
    assert (store.sealed(), store.records()) == before
    assert not void_cohorts(store, Keyring.from_file(data.parent / "data.key"), CURRENT - 3, "twice", NOW)
    store.close()


def _whole_file(path: Path) -> bytes:
    """The bytes of a store without its write-ahead log."""
    store = SqliteStore(path)
    store.tidy()
    store.close()
    return path.read_bytes()
