"""What was seen is known, however it is kept."""

import random

import pytest

from kanab.collector.stores import sqlite_append
from kanab.collector.stores.sqlite_append import HASH_BYTES, SeenNonces
from kanab.collector.stores.store import CountedPost


def nonce(number: int) -> bytes:
    return random.Random(number).randbytes(HASH_BYTES)


def fresh(seen: SeenNonces, numbers: list[int], hour: int = 9) -> list[bool]:
    return seen.fresh([CountedPost(nonce(number), hour, {}) for number in numbers])


@pytest.mark.parametrize("most", [0, 1, 7, 50_000])
def test_everything_that_was_added_is_known_and_nothing_else(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_append, "MOST_RECENT", most)
    chance = random.Random(1)
    seen, model = SeenNonces(), set[int]()
    for _ in range(200):
        asked = [chance.randrange(3000) for _ in range(chance.randrange(1, 20))]
        expected, here = [], set(model)
        for number in asked:
            expected.append(number not in here)
            here.add(number)
        assert fresh(seen, asked) == expected
        added = [chance.randrange(3000) for _ in range(chance.randrange(10))]
        seen.add(9, [nonce(number) for number in added])
        model |= set(added)


def test_hours_are_forgotten_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_append, "MOST_RECENT", 1)
    seen = SeenNonces()
    for hour in (7, 8, 9):
        seen.add(hour, [nonce(hour), nonce(hour + 100)])
    seen.forget(8)
    assert [fresh(seen, [hour], hour) for hour in (7, 8, 9)] == [[True], [False], [False]]


@pytest.mark.parametrize("most", [0, 7, 50_000])
def test_rows_that_were_read_at_a_start_are_known_and_what_comes_later_is_too(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_append, "MOST_RECENT", most)
    monkeypatch.setattr(sqlite_append, "LOAD_AT_ONCE", 200)
    seen = SeenNonces()
    seen.load(
        (hour, b"".join(nonce(number) for number in range(start, start + 10))) for hour in (8, 9) for start in (0, 10)
    )
    seen.add(9, [nonce(30), nonce(31)])
    assert len(seen) == 42
    assert fresh(seen, [0, 19, 20, 30, 31, 32]) == [False, False, True, False, False, True]
    seen.load([(9, nonce(40) + nonce(41))])
    assert fresh(seen, [5, 31, 41, 42]) == [False, False, False, True]
    assert fresh(seen, [12, 30], hour=8) == [False, True]
