"""An older copy of a ledger with ε is noticed: the witness is kept apart from it."""

from pathlib import Path

import pytest
from tests.unit.privacy.epsilon.test_accountant import EXACT, counted

import kanab as kb
from kanab.errors import LedgerError
from kanab.privacy.ledger import read_ledger, witness_folder


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return witness_folder()


def test_a_restored_backup_is_refused_until_the_newest_copy_is_back(tmp_path: Path) -> None:
    ledger = tmp_path / "shop.ledger"
    half = counted("epsilon = 1\nper_release = 0.5")
    kb.release(half, ledger=ledger, new_ledger=True)
    backup = ledger.read_text()
    kb.release(half, epsilon=0.2, ledger=ledger)
    newest = ledger.read_text()
    ledger.write_text(backup)
    with pytest.raises(LedgerError, match="is an older copy: entries that followed it are missing"):
        kb.release(half, epsilon=0.3, ledger=ledger)
    assert ledger.read_text() == backup
    ledger.write_text(newest)
    assert kb.release(half, epsilon=0.3, ledger=ledger).receipt.noise is not None


def test_a_copy_that_went_another_way_is_refused(tmp_path: Path) -> None:
    ledger, copy = tmp_path / "shop.ledger", tmp_path / "copy.ledger"
    half = counted("epsilon = 1\nper_release = 0.5")
    kb.release(half, ledger=ledger, new_ledger=True)
    copy.write_text(ledger.read_text())
    kb.release(half, epsilon=0.2, ledger=ledger)
    with pytest.raises(LedgerError, match=r"copy\.ledger is an older copy"):
        kb.release(half, epsilon=0.2, ledger=copy)


def test_the_witness_holds_a_number_and_a_hash(tmp_path: Path, state: Path) -> None:
    ledger = tmp_path / "shop.ledger"
    kb.release(counted("epsilon = 1"), ledger=ledger, new_ledger=True)
    head = read_ledger(ledger).head
    assert [(file.name, file.read_text()) for file in state.iterdir()] == [(head, f"kanab-ledger-witness/1 1 {head}\n")]


def test_a_ledger_without_epsilon_has_no_witness(tmp_path: Path, state: Path) -> None:
    kb.release(counted(text=EXACT), ledger=tmp_path / "shop.ledger", new_ledger=True)
    assert not state.exists()


def test_a_damaged_witness_is_refused_with_its_name(tmp_path: Path, state: Path) -> None:
    ledger = tmp_path / "shop.ledger"
    kb.release(counted("epsilon = 1"), ledger=ledger, new_ledger=True)
    (file,) = state.iterdir()
    file.write_text("torn")
    with pytest.raises(LedgerError, match=f"delete kanab/ledgers/{file.name}"):
        kb.release(counted("epsilon = 1"), epsilon=0.5, ledger=ledger)


def test_where_nothing_can_be_noted_nothing_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(LedgerError, match="Set XDG_STATE_HOME"):
        kb.release(counted("epsilon = 1"), ledger=tmp_path / "shop.ledger", new_ledger=True)
    assert not (tmp_path / "shop.ledger").exists()
