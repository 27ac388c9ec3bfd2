"""The tables of all pairs as one value."""

from __future__ import annotations

import numpy as np
import pytest

from kanab.errors import LevelError
from kanab.scan.count.pair_counting import count_pairs
from kanab.scan.pair_tables import Pairs, fitting, largest, plus
from kanab.tally.metric import Metric

ROWS = {
    "red": ["on", "off", "on", "off", "on", None],
    "blue": [0, 0, 1, 1, 1, 1],
    "green": [1, 2, 3, 1, 2, 3],
    "spend": [1.0, 2.5, 0.0, 4.0, 1.5, 9.0],
    "bought": [1, 1, 0, 1, 1, 1],
}
NAMES = ["red", "blue", "green"]


def pairs_of(rows: dict[str, list] = ROWS, **metrics: Metric) -> Pairs:
    return count_pairs(rows, NAMES, metrics or ["spend", "bought"])


def test_an_unknown_experiment_is_told_with_the_known_ones() -> None:
    with pytest.raises(LevelError, match="red, blue, green"):
        pairs_of().place("yellow")


def test_what_is_shown_holds_no_counts() -> None:
    assert repr(pairs_of()) == "Pairs of 3 experiments (red, blue, green): spend in steps of 0.1; bought is 0/1"
    assert (
        repr(pairs_of().moments[0]) == "PairMoments(metric=Metric(name='spend', scale=10, bounds=None, missing='zero'))"
    )


def test_sums_that_outgrow_64_bits_become_python_integers() -> None:
    large = np.array([[2**62 + 5]])
    assert plus(large, large).tolist() == [[2**63 + 10]]
    assert plus(np.array([[-(2**62)]]), np.array([[-(2**62) - 1]])).tolist() == [[-(2**63) - 1]]
    assert plus(np.array([[2]]), np.array([[2**70]], dtype=object)).tolist() == [[2**70 + 2]]
    assert plus(np.array([[2]]), np.array([[3]])).dtype == np.int64


def test_whole_numbers_go_back_to_64_bits_where_they_fit() -> None:
    assert fitting(np.array([2**40], dtype=object)).dtype == np.int64
    assert fitting(np.array([-(2**63)], dtype=object)).dtype == object
    assert fitting(np.array([2**63], dtype=object)).tolist() == [2**63]
    assert (largest(np.array([], dtype=np.int64)), largest(np.array([-(2**63), 5]))) == (0, 2**63)
