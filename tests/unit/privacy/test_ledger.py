import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.described import as_values

import kanab as kb
from kanab.errors import KanabError, LedgerError, SourceError
from kanab.privacy.ledger import Ledger, append_release, hold_ledger, read_ledger
from kanab.privacy.release import Release
from kanab.privacy.release_json import hash_of, release_to_dict

BOUNDS: dict[str, Any] = {"bounds": {"spend": (0, 500)}, "resolution": {"spend": 0.01}}


def released(seed: int = 1, n: int = 900) -> Release:
    rng = np.random.default_rng(seed)
    rows = {
        "variant": rng.choice(["A", "B"], n),
        "tier": rng.choice([1, 2, 3], n),
        "spend": np.round(rng.gamma(2, 10, n), 2),
    }
    return kb.release(
        kb.count(rows, **as_values("count", arm="variant", metrics=["spend"], covariates=["tier"], **BOUNDS))
    )


def filled(path: Path, entries: int = 3) -> Ledger:
    for seed in range(entries):
        with hold_ledger(path) as ledger:
            append_release(path, ledger, replace(released(seed), previous=ledger.head))
    return read_ledger(path)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_every_entry_names_the_hash_of_the_one_before(tmp_path: Path) -> None:
    ledger = filled(tmp_path / "kanab.ledger")
    assert [one.previous for one in ledger.releases] == ["", *ledger.hashes[:-1]]
    assert [release_to_dict(one)["hash"] for one in ledger.releases] == list(ledger.hashes)
    assert [path.name for path in tmp_path.iterdir()] == ["kanab.ledger"]


def test_an_edited_entry_with_a_new_hash_breaks_the_chain_after_it(tmp_path: Path) -> None:
    path = tmp_path / "kanab.ledger"
    filled(path)
    found = lines(path)
    entry = json.loads(found[1])
    entry["receipt"]["deviations"] = ["none at all"]
    entry["hash"] = hash_of(entry)
    found[1] = json.dumps(entry)
    path.write_text("\n".join(found) + "\n", encoding="utf-8")
    with pytest.raises(LedgerError, match=r"entry 2 .* an entry was removed or moved"):
        read_ledger(path)


@pytest.mark.parametrize("order", [(0, 2, 3), (0, 3), (0, 2, 1, 3), (0, 1, 3, 2), (0, 1, 1, 2, 3), (1, 2, 3)])
def test_removed_and_reordered_entries_are_detected(tmp_path: Path, order: tuple[int, ...]) -> None:
    path = tmp_path / "kanab.ledger"
    filled(path)
    found = lines(path)
    path.write_text("\n".join(found[place] for place in order) + "\n", encoding="utf-8")
    with pytest.raises(LedgerError):
        read_ledger(path)


@pytest.mark.parametrize("text", ["", "{}", "PAR1", '{"format": "kanab-ledger/2"}\n', "\n\n", "[1, 2]\n"])
def test_something_else_is_not_a_ledger(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kanab.ledger"
    path.write_text(text)
    with pytest.raises(LedgerError, match=r"kanab\.ledger is not a ledger"):
        read_ledger(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LedgerError, match="is not a ledger"):
        read_ledger(path)


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, max_examples=60)
def test_any_changed_byte_is_detected(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("ledger") / "kanab.ledger"
    filled(path, 2)
    text = path.read_text(encoding="utf-8")
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from('0123456789abcxyz{}[]:," .\n').filter(lambda letter: letter != text[place]))
    path.write_text(text[:place] + other + text[place + 1 :], encoding="utf-8")
    try:
        found = read_ledger(path)
    except LedgerError:
        return
    original = [json.loads(line) for line in text.splitlines()[1:]]
    assert [release_to_dict(one) for one in found.releases] == original  # a space more or less says the same


@pytest.mark.slow
def test_two_processes_do_not_release_at_once(tmp_path: Path) -> None:
    path = tmp_path / "kanab.ledger"
    script = (
        "import sys, time\nfrom kanab.privacy.ledger import hold_ledger\n"
        "with hold_ledger(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LedgerError, match=r"another release into kanab\.ledger is under way"), hold_ledger(path):
            pass
        other.send_signal(signal.SIGKILL)
    with hold_ledger(path) as ledger:  # the lock of a killed process is gone
        assert ledger.releases == ()


def test_a_full_disk_leaves_the_ledger_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kanab.ledger"
    filled(path, 1)
    before = path.read_bytes()

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(SourceError, match=r"kanab\.ledger cannot be written: No space left"),
        hold_ledger(path) as ledger,
    ):
        append_release(path, ledger, replace(released(5), previous=ledger.head))
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["kanab.ledger"]


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be opened"), hold_ledger(tmp_path / "no folder" / "kanab.ledger"):
        pass
    with pytest.raises(LedgerError, match="cannot be read"):
        read_ledger(tmp_path)


def test_errors_hold_no_number_of_the_data(tmp_path: Path) -> None:
    path = tmp_path / "kanab.ledger"
    filled(path, 1)
    text = path.read_text(encoding="utf-8").replace('"people": ', '"people": 1')
    path.write_text(text, encoding="utf-8")
    with pytest.raises(KanabError) as problem:
        read_ledger(path)
    assert str(problem.value) == (
        "entry 1 of kanab.ledger has been changed. Take the ledger from a backup; do not release into it."
    )


def test_a_ledger_of_before_there_were_salts_keeps_its_hashes_and_grows(tmp_path: Path) -> None:
    path = tmp_path / "kanab.ledger"
    before = Path(__file__).with_name("before_salts.ledger").read_bytes()
    path.write_bytes(before)
    ledger = read_ledger(path)
    assert ledger.head == "4b0e35ab32e74cb8ce0efd2c3e552682c33e7ee531d0df32c4dd4251698d6eb3"
    assert [release_to_dict(release)["hash"] for release in ledger.releases] == list(ledger.hashes)
    with hold_ledger(path) as held:
        append_release(path, held, replace(released(), previous=held.head))
    assert path.read_bytes().startswith(before)
    assert len(read_ledger(path).releases) == 3


def test_a_release_for_another_state_of_the_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kanab.ledger"
    with pytest.raises(LedgerError, match="another state"):
        append_release(path, Ledger(), replace(released(), previous="f" * 64))
    assert not path.exists()
