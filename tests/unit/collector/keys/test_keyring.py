import os
import stat
import threading
from pathlib import Path

import pytest

from kanab.collector.keys import keyring
from kanab.collector.keys.keyring import (
    LAST_PERIOD,
    KeyChain,
    Keyring,
    check_apart,
    create_key_file,
    key_beside,
    move_key_file,
    read_key_file,
)
from kanab.collector.keys.store_witness import Seen, Witness
from kanab.errors import StoreError

SECRET = "00112233445566778899aabbccddeeff" * 2


def test_keys_are_the_same_on_every_machine_that_has_the_secret() -> None:
    """A store that is open today must open after every update of this program."""
    chain = KeyChain.from_secret(SECRET)
    assert chain.key(3).hex() == "895a03ad83f05ec0d2f44dc5406206c59d155418e76ecd05e6edd2c16c4ccf73"
    assert chain.fingerprint.hex() == "093fc8057f85c57cbc2c83bdd6463ca3"
    assert Keyring(chain).nonce_hash(bytes(16)).hex() == "ebcde4e2c93b91392ae9811301301d69"
    assert KeyChain.from_secret(SECRET.upper() + "\n").key(3) == chain.key(3)


def test_nonce_hashes_stay_when_the_chain_moves_and_differ_between_chains() -> None:
    chain = KeyChain.new()
    assert Keyring(chain).nonce_hash(b"n" * 16) == Keyring(chain.forward(9)).nonce_hash(b"n" * 16)
    assert Keyring(chain).nonce_hash(b"n" * 16) != Keyring(KeyChain.new()).nonce_hash(b"n" * 16)
    assert len(Keyring(chain).nonce_hash(b"n" * 16)) == 16


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "0" * 63, "0" * 65])
def test_a_secret_is_64_hexadecimal_digits(text: str) -> None:
    with pytest.raises(StoreError, match="64 hexadecimal digits") as caught:
        KeyChain.from_secret(text)
    assert text == "" or text not in str(caught.value)


def test_a_cohort_beyond_the_calendar_is_not_walked_to() -> None:
    with pytest.raises(StoreError, match="too far in the future"):
        KeyChain.new().key(LAST_PERIOD + 1)


def test_a_new_key_file_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "shop.key"
    made = Keyring.create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Keyring.from_file(path).key(3) == made.key(3)
    assert [one.name for one in path.parent.iterdir()] == ["shop.key"]


def test_a_key_file_is_never_replaced_by_a_new_one(tmp_path: Path) -> None:
    first = Keyring.create(tmp_path / "key")
    assert Keyring.create(tmp_path / "key").key(0) == first.key(0)


def test_forgetting_takes_the_state_out_of_the_file_and_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / "key"
    keyring = Keyring.create(path)
    before, size = read_key_file(path), path.stat().st_size
    keyring.key(3)
    keyring.forget(6)
    assert keyring.period == 7
    assert before.state.hex().encode() not in path.read_bytes()
    assert path.stat().st_size == size
    for one in (keyring, Keyring.from_file(path)):
        with pytest.raises(StoreError, match="has been erased"):
            one.key(3)
        assert one.key(7) == before.key(7)


def test_a_file_that_another_process_moved_further_stays_there(tmp_path: Path) -> None:
    path = tmp_path / "key"
    slow, quick = Keyring.create(path), Keyring.from_file(path)
    quick.forget(9)
    slow.forget(4)
    assert read_key_file(path).period == 10


def test_a_secret_from_the_environment_cannot_be_erased() -> None:
    keyring = Keyring(KeyChain.from_secret(SECRET))
    keyring.forget(3)
    assert not keyring.erasable
    with pytest.raises(StoreError, match="has been erased"):
        keyring.key(3)


@pytest.mark.parametrize("crash", ["before the first sync", "between the lines", "half a line"])
def test_a_crash_while_moving_leaves_a_whole_link(tmp_path: Path, crash: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    create_key_file(path, KeyChain(0, b"a" * 32, b"n" * 32))
    writes: list[int] = []
    real = os.pwrite

    def pwrite(handle: int, data: bytes, place: int) -> int:
        writes.append(place)
        if crash == "before the first sync" or len(writes) == 2:
            raise KeyboardInterrupt
        if crash == "half a line":
            real(handle, data[:70], place)
            raise KeyboardInterrupt
        return real(handle, data, place)

    monkeypatch.setattr(keyring.os, "pwrite", pwrite)
    with pytest.raises(KeyboardInterrupt):
        move_key_file(path, KeyChain(1, b"b" * 32, b"n" * 32))
    monkeypatch.undo()
    assert read_key_file(path).period == (1 if crash == "between the lines" else 0)
    assert (b"61" * 32 in path.read_bytes()) == (crash != "between the lines")  # reading finished what was begun
    move_key_file(path, KeyChain(1, b"b" * 32, b"n" * 32))
    assert path.read_bytes().count(b"62" * 32) == 2
    assert b"61" * 32 not in path.read_bytes()


def test_what_is_wrong_with_a_key_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(StoreError, match="there is no key file 'key'"):
        Keyring.from_file(path)
    Keyring.create(path)
    path.chmod(0o640)
    with pytest.raises(StoreError, match=r"others may read the key file 'key'\. Run: chmod 600 key"):
        Keyring.from_file(path)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"0 ", b"1 "))
    with pytest.raises(StoreError, match="not a key file, or is damaged"):
        Keyring.from_file(path)
    with pytest.raises(StoreError, match="cannot be opened for writing: Is a directory"):
        Keyring.from_file(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written: "):
        Keyring.create(tmp_path / "file" / "key")


def test_a_key_file_that_was_exchanged_is_noticed(tmp_path: Path) -> None:
    keyring = Keyring.create(tmp_path / "key")
    (tmp_path / "key").unlink()
    Keyring.create(tmp_path / "key")
    with pytest.raises(StoreError, match="key of another store"):
        keyring.forget(3)
    assert keyring.period == 0


def test_keys_do_not_lie_in_the_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "kanab-data"
    assert key_beside(data) == tmp_path / "kanab-data.key"
    check_apart(key_beside(data), data)
    with pytest.raises(StoreError, match="lies in the data directory"):
        check_apart(data / "deep" / "key", data)


def test_many_threads_get_one_key_and_forget_once(tmp_path: Path) -> None:
    keyring = Keyring.create(tmp_path / "key")
    found: set[bytes] = set()
    threads = [threading.Thread(target=lambda: found.add(keyring.key(50))) for _ in range(8)]
    threads += [threading.Thread(target=lambda: keyring.forget(3)) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (len(found), keyring.period) == (1, 4)


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
