from __future__ import annotations

from pathlib import Path

import pytest

from kanab.collector.keys.store_witness import Seen, Witness
from kanab.errors import StoreError


def test_numbers_of_an_epoch_never_fall_and_another_epoch_begins_anew(tmp_path: Path) -> None:
    first, second = (Witness(tmp_path / "key.witness", b"chain") for _ in range(2))
    assert first.read() is None
    first.note(Seen("", 12))
    second.note(Seen("", 7))  # another collector, which has seen less
    assert first.read() == Seen("", 12)
    second.note(Seen("5f3a9c01", 3))
    assert first.read() == Seen("5f3a9c01", 3)


@pytest.mark.parametrize(
    "text", ["", "kanab-witness/1", "kanab-witness/1 636861696e - many\n", "\u00e4\u00f6", "0" * 999]
)
def test_a_damaged_witness_and_that_of_another_key_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "key.witness").write_text(text, encoding="utf-8")
    assert Witness(tmp_path / "key.witness", b"chain").read() is None
    Witness(tmp_path / "other.witness", b"another chain").note(Seen("", 12))
    assert Witness(tmp_path / "other.witness", b"chain").read() is None


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"key\.witness cannot be written"):
        Witness(tmp_path / "nowhere" / "key.witness", b"chain").note(Seen("", 1))
