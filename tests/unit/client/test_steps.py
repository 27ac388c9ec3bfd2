"""Arms by id are those of every other language, and shares are those of the plan."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from kanab.client.client_config import Experiment, read_config
from kanab.client.state import fresh_version
from kanab.client.steps import assign, draw, murmur3, numbers_of_id, numbers_of_root
from kanab.collector.protocol.config import public_config
from kanab.plan.file import plan_from_dict

CASES = json.loads((Path(__file__).parents[2] / "contract" / "cases.json").read_text(encoding="utf-8"))
ASSIGNMENT = CASES["assignment"]


def test_the_contract_is_the_one_that_this_was_written_for() -> None:
    assert ASSIGNMENT["version"] == 1


@pytest.mark.parametrize(("text", "number"), ASSIGNMENT["hashes"])
def test_hashes_are_those_of_the_contract(text: str, number: int) -> None:
    assert murmur3(text) == number


def test_draws_are_those_of_the_contract() -> None:
    assert len(ASSIGNMENT["draws"]) > 50
    for arms, number, arm in ASSIGNMENT["draws"]:
        assert draw([(name, share) for name, share in arms], number) == arm


def test_people_get_the_arms_of_the_contract() -> None:
    config = read_config(public_config(plan_from_dict(CASES["plans"][ASSIGNMENT["plan"]])))
    assert len(ASSIGNMENT["people"]) > 30
    for id, arms in ASSIGNMENT["people"]:
        assert assign(config.experiments, numbers_of_id(id)) == arms


@pytest.mark.slow
def test_a_million_draws_have_the_planned_shares() -> None:
    """By hash (drawn in NumPy, checked against the function) and by the random digits of versions."""
    arms = [("A", 1.0), ("B", 2.0), ("C", 5.0)]
    ids = 1_000_000
    numbers = _murmur3_of_ids("checkout:arm:", ids)
    for one in random.Random(1).sample(range(ids), 200):
        assert numbers[one] == murmur3(f"checkout:arm:{one:08d}")
    points = np.floor(numbers / 2**32 * 8)
    found = [int((points == 0).sum()), int(((points >= 1) & (points < 3)).sum()), int((points >= 3).sum())]
    for one in random.Random(2).sample(range(ids), 200):
        assert draw(arms, int(numbers[one])) == ("A" if points[one] < 1 else "B" if points[one] < 3 else "C")
    assert stats.chisquare(found, np.array([1, 2, 5]) / 8 * ids).pvalue > 1e-3
    versions = 100_000
    drawn = Counter(draw(arms, numbers_of_root(fresh_version())("checkout:arm")) for _ in range(versions))
    assert stats.chisquare([drawn[name] for name in "ABC"], np.array([1, 2, 5]) / 8 * versions).pvalue > 1e-4


def _murmur3_of_ids(prefix: str, count: int) -> np.ndarray:
    """murmur3 of the prefix and eight digits, for many at once: another way than the function's."""
    texts = np.array([f"{prefix}{one:08d}" for one in range(count)], dtype=f"S{len(prefix) + 8}")
    data = texts.view(np.uint8).reshape(count, -1)
    size = data.shape[1]
    padded = np.zeros((count, -(-size // 4) * 4), np.uint8)
    padded[:, :size] = data
    blocks = padded.view("<u4").astype(np.uint64)
    low = np.uint64(2**32 - 1)

    def turned(x: np.ndarray, bits: int) -> np.ndarray:
        return ((x << np.uint64(bits)) | (x >> np.uint64(32 - bits))) & low

    found = np.zeros(count, np.uint64)
    for at in range(blocks.shape[1]):
        mixed = turned(blocks[:, at] * np.uint64(0xCC9E2D51) & low, 15) * np.uint64(0x1B873593) & low
        found ^= mixed
        if (at + 1) * 4 <= size:
            found = (turned(found, 13) * np.uint64(5) + np.uint64(0xE6546B64)) & low
    found ^= np.uint64(size)
    found = (found ^ found >> np.uint64(16)) * np.uint64(0x85EBCA6B) & low
    found = (found ^ found >> np.uint64(13)) * np.uint64(0xC2B2AE35) & low
    return found ^ found >> np.uint64(16)


@pytest.mark.slow
def test_experiments_that_exclude_each_other_share_nobody_and_divide_everybody() -> None:
    names = ("one", "two", "three")
    experiments = {
        name: Experiment([("A", 1), ("B", 1)], "A", exclude_with=[other for other in names if other != name])
        for name in names
    }
    taken = Counter()
    for _ in range(10_000):
        arms = assign(experiments, numbers_of_root(fresh_version()))
        inside = [name for name in names if arms[name] is not None]
        assert len(inside) == 1
        taken[inside[0]] += 1
    assert stats.chisquare([taken[name] for name in names]).pvalue > 1e-4


def test_a_holdout_keeps_its_share_out() -> None:
    experiments = {"shop": Experiment([("A", 1), ("B", 1)], "A", holdout=0.2)}
    out = sum(assign(experiments, numbers_of_id(str(one)))["shop"] is None for one in range(8_000))
    assert stats.binomtest(out, 8_000, 0.2).pvalue > 1e-4


def test_what_is_known_stays_and_keeps_others_away() -> None:
    experiments = {
        "old": Experiment([("A", 1), ("B", 1)], "A", exclude_with=["new"]),
        "new": Experiment([("A", 1), ("B", 1)], "A", exclude_with=["old"]),
    }
    for one in range(200):
        numbers = numbers_of_id(str(one))
        assert assign(experiments, numbers, {"old": "B"}) == {"old": "B", "new": None}
        assert assign(experiments, numbers, {"old": None})["new"] is not None


def test_a_last_arm_takes_what_rounding_leaves() -> None:
    assert draw([("A", 0.1), ("B", 0.2), ("C", 0.7)], 2**32 - 1) == "C"
    assert draw([("A", 0.0), ("B", 0.0)], 5) == "B"
