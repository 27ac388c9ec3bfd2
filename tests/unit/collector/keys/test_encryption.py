import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanab.collector.counting.counters import Counters
from kanab.collector.keys.encryption import PADDED_BYTES, RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.errors import StoreError

CIPHER = RecordCipher(Keyring(KeyChain.new()))


def counters(number: int) -> Counters:
    return {f"checkout/tier|B:{index}|minutes|s": index - 7 for index in range(number)}


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=30), st.integers(-(2**130), 2**130), max_size=200))
def test_what_is_decrypted_is_what_was_encrypted(given: Counters) -> None:
    assert CIPHER.decrypt(5, CIPHER.encrypt(5, given)) == {name: value for name, value in given.items() if value}


def test_the_length_of_a_box_does_not_tell_how_many_counters_changed() -> None:
    lengths = {len(CIPHER.encrypt(5, counters(number))) for number in range(100)}
    assert lengths == {PADDED_BYTES - 54}  # which leaves room around it in a page of that size


def test_longer_records_grow_in_powers_of_two() -> None:
    lengths = {len(CIPHER.encrypt(5, counters(number))) + 54 for number in range(100, 2000, 50)}
    assert lengths == {4096, 8192, 16384, 32768, 65536}


def test_two_records_of_the_same_counters_have_nothing_in_common() -> None:
    first, second = (CIPHER.encrypt(5, counters(3)) for _ in range(2))
    assert sum(a == b for a, b in zip(first[14:], second[14:], strict=True)) < 60  # chance: 16 of 4,140


def test_a_box_opens_in_its_own_cohort_only() -> None:
    with pytest.raises(StoreError, match="cannot be decrypted"):
        CIPHER.decrypt(6, CIPHER.encrypt(5, counters(3)))


def test_a_box_does_not_open_with_another_key() -> None:
    with pytest.raises(StoreError, match=r"cannot be decrypted. .* check --key"):
        RecordCipher(Keyring(KeyChain.new())).decrypt(5, CIPHER.encrypt(5, counters(3)))


@pytest.mark.parametrize("place", [1, 2, 5, 13, 20, 30, 2000, -1])
def test_a_changed_byte_is_noticed(place: int) -> None:
    ciphertext = bytearray(CIPHER.encrypt(5, counters(3)))
    ciphertext[place] ^= 1
    with pytest.raises(StoreError, match="cannot be decrypted"):
        CIPHER.decrypt(5, bytes(ciphertext))


@pytest.mark.parametrize("ciphertext", [b"", b"\x01", b"\x02", b"\x03" + bytes(5000)])
def test_something_else_is_no_ciphertext(ciphertext: bytes) -> None:
    with pytest.raises(StoreError, match="unknown form"):
        CIPHER.decrypt(5, ciphertext)


def test_merging_records_adds_their_counters() -> None:
    ciphertexts = [CIPHER.encrypt(5, {"a|n": 1, f"b{index}|n": index}) for index in range(300)]
    merged, places = CIPHER.merge(5, ciphertexts)
    assert places == [*range(300)]
    assert CIPHER.decrypt(5, merged) == {"a|n": 300} | {f"b{index}|n": index for index in range(1, 300)}


def test_copies_moved_records_and_those_from_before_a_merge_do_not_count() -> None:
    own = CIPHER.encrypt(5, {"a|n": 1}, generation=2)
    moved, changed = CIPHER.encrypt(6, {"a|n": 10}), own[:-1] + bytes([own[-1] ^ 1])
    assert CIPHER.genuine([(5, changed), (5, own), (5, own), (5, moved)])[:3] == ({"a|n": 1}, [1], 3)
    merged, _ = CIPHER.merge(5, [own], "", 3)
    later = CIPHER.encrypt(5, {"a|n": 100}, generation=3)
    stale, _ = CIPHER.merge(5, [own], "", 1)
    records = [(5, own), (5, stale), (5, merged), (5, later), (6, moved)]
    assert CIPHER.genuine(records)[:3] == ({"a|n": 111}, [2, 3, 4], 2)


def test_a_record_cannot_be_made_younger() -> None:
    """Neither the generation nor the epoch can be changed without the key."""
    box = CIPHER.encrypt(5, {"a|n": 1}, "5f3a9c01", 2)
    for changed in (CIPHER.encrypt(5, {}, "5f3a9c01", 3), CIPHER.encrypt(5, {}, "", 2)):
        assert CIPHER.genuine([(5, changed[:14] + box[14:])])[:3] == ({}, [], 1)


@pytest.mark.parametrize("stored", [True, False])
def test_a_commit_whose_end_nobody_knows_leaves_neither_a_gap_nor_a_number_that_is_used_twice(*, stored: bool) -> None:
    """A lost connection, say: the posts are found to be there when they are sent again, or they are not."""
    cipher = RecordCipher(Keyring(KeyChain.new()))

    def commit() -> bytes:
        cipher.encrypt(5, {"a|n": 1})  # somebody else had changed the store: it is tried again
        record = cipher.encrypt(5, {"a|n": 1})
        cipher.settle([5])
        return record

    records = [commit(), commit()]
    unsure = cipher.encrypt(5, {"a|n": 1})
    cipher.settle([])
    records += [unsure] * stored + [commit(), commit()]
    genuine = cipher.genuine([(5, record) for record in records], cipher.seen.records)
    assert (genuine.counters, genuine.missing) == ({"a|n": 4 + stored}, 0)
    assert sorted(genuine.last.values()) == [2, 2 + stored]
    for place in range(len(records)):
        rest = [(5, record) for record in records[:place] + records[place + 1 :]]
        known = cipher.genuine(rest, cipher.seen.records).missing
        assert known == (0 if stored and place == 2 else 1)  # the one of which nobody knows is not acknowledged
