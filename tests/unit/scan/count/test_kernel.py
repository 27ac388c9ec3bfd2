"""The loops behind all pairs: compiled and plain ones give the same integers, and no sum is rounded."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kanab.scan.count import kernel
from kanab.scan.count.counter import count_buckets, square_parts, value_parts
from kanab.scan.count.kernel import NOT_IN, ROWS, ArmLayout, choose_kernels

BOTH = [choose_kernels("numpy"), choose_kernels("numba")]


def drawn(layout: ArmLayout, people: int, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    found = []
    for arms, gap in zip(layout.arms, layout.gaps, strict=True):
        codes = rng.integers(0, max(1, arms), people).astype(np.uint8)
        away = rng.random(people) < (0.4 * gap if arms else 1)
        found.append(np.where(away, NOT_IN, codes).astype(np.uint8))
    return found


LAYOUTS = [
    ArmLayout((2,) * 13, (False,) * 13),
    ArmLayout((2, 3, 4, 8, 5, 2, 2), (True, False, True, True, False, False, True)),
    ArmLayout((8,) * 5, (True,) * 5),
    ArmLayout((2, 2), (False, False)),
    ArmLayout((1, 0, 3), (True, True, False)),
    ArmLayout((2, 5, 3, 4, 4, 2), (True,) * 6, largest_shift=4),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loops", BOTH, ids=lambda one: one.name)
@pytest.mark.parametrize("people", [1, 64, 1000])
def test_people_sums_and_squares_of_any_two_arms(layout: ArmLayout, loops: kernel.Kernels, people: int) -> None:
    codes = drawn(layout, people)
    steps = np.random.default_rng(2).integers(-1000, 1000, people)
    rows = layout.bits(codes)
    counts = np.zeros((len(rows), len(rows)), dtype=np.int64)
    loops.count_bits(rows, rows, counts)
    packed = layout.pack_groups(codes)
    sums, squares = layout.empty_tables(layout.sum_pairs), layout.empty_tables(layout.square_pairs)
    loops.add_weights(packed, layout.sum_pairs, steps, sums, layout.shift)
    loops.add_weights(packed, layout.square_pairs, steps**2, squares, layout.shift)
    arms = np.stack([codes[test] == arm for test, many in enumerate(layout.arms) for arm in range(many)]).astype(int)
    inside = np.stack([own != NOT_IN for own in codes]).astype(int)
    assert layout.all_arms(counts).tolist() == (arms @ arms.T).tolist()
    assert layout.sums(sums).tolist() == ((arms * steps) @ arms.T).tolist()
    assert layout.squares(squares).tolist() == ((arms * steps**2) @ inside.T).tolist()


def test_before_numpy_2_bits_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.random.default_rng(4).integers(0, 2**63, (3, 50), dtype=np.uint64)
    expected = np.bitwise_count(words).sum(axis=1).tolist()
    monkeypatch.delattr(np, "bitwise_count")
    found = np.zeros((4, 4), dtype=np.int64)
    choose_kernels("numpy").count_bits(np.vstack([words, words[:1]]), np.vstack([words, words[:1]]), found)
    assert np.diag(found)[:3].tolist() == expected


def test_the_heaviest_weights_are_added_without_rounding() -> None:
    layout = ArmLayout((2, 2), (False, False))
    codes = [np.zeros(ROWS, dtype=np.uint8)] * 2
    packed = layout.pack_groups(codes)
    for one in BOTH:
        table = layout.empty_tables(layout.sum_pairs)
        weights = np.full(ROWS, one.widest - 1, dtype=np.int64)
        one.add_weights(packed, layout.sum_pairs, weights, table, layout.shift)
        one.add_weights(packed, layout.sum_pairs, -weights[:1], table, layout.shift)
        assert int(table.sum()) == (ROWS - 1) * (one.widest - 1)


@pytest.mark.parametrize("most", [3, 2**18, 2**22, 2**31, 2**36, 2**44, 2**52])
@pytest.mark.parametrize("loops", BOTH, ids=lambda one: one.name)
def test_values_and_squares_are_sums_of_parts_that_fit(most: int, loops: kernel.Kernels) -> None:
    steps = np.array([most - 1, 1 - most, 0, 1, most // 3, -(most // 7)])
    for parts, power in ((value_parts, 1), (square_parts, 2)):
        found = list(parts(steps, loops.widest))
        assert sum(part.astype(object) * weight for weight, part in found).tolist() == [
            int(value) ** power for value in steps
        ]
        assert all(int(np.abs(part).max()) < loops.widest for _, part in found)


def test_a_hundred_tests_of_two_arms_make_seventeen_groups() -> None:
    layout = ArmLayout((2,) * 100, (False,) * 100)
    assert (len(layout.groups), len(layout.sum_pairs), len(layout.square_pairs)) == (17, 136, 9)
    gaps = ArmLayout((2, 3, 4) * 33, (True,) * 99)
    assert (len(gaps.groups), len(gaps.open_groups)) == (33, 17)


def test_five_hundred_tests_take_smaller_groups_and_little_memory() -> None:
    layout = ArmLayout((2,) * 500, (True,) * 500)
    tables = len(layout.sum_pairs) + len(layout.square_pairs)
    assert layout.shift < 6
    assert tables * (8 << 2 * layout.shift) < 130 << 20
    assert ArmLayout((2,) * 500, (False,) * 500).shift == 5


def test_the_commonest_value_is_looked_for_in_buckets_that_are_never_too_small() -> None:
    rng = np.random.default_rng(6)
    for values in (rng.integers(-(2**51), 2**51, 50_000), np.arange(5_000) * 2**22, np.arange(9_000) % 4_000):
        found = count_buckets(values, binary=False)
        commonest = int(np.unique(values, return_counts=True)[1].max())
        assert int(found.sum()) == len(values)
        assert commonest <= int(found.max()) <= commonest + 20
    assert count_buckets(np.array([0, 1, 1]), binary=True).tolist() == [1, 2]


def test_numba_is_taken_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    choose_kernels.cache_clear()
    assert choose_kernels().name == "numba"
    choose_kernels.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    assert choose_kernels().name == "numpy"
    choose_kernels.cache_clear()


@pytest.mark.slow
def test_importing_kanab_does_not_import_numba() -> None:
    code = "import sys, kanab, kanab.scan.count.pair_counting; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_without_a_place_to_keep_compiled_code_it_is_compiled_again(tmp_path: Path) -> None:
    code = """
import numba
from numba.core import caching
def nowhere(*_): raise RuntimeError("cannot cache function: no locator available")
caching.CacheImpl.__init__ = nowhere
from kanab.scan.count.kernel import choose_kernels
print(choose_kernels().name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.strip() == "numba", done.stderr
