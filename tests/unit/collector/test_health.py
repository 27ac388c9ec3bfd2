"""The live sample-ratio alarm, from counts in steps of k."""

import re
from itertools import product

import numpy as np
import pytest
from scipy.stats import chisquare

from kanab.collector.health import floored_ratio_p
from kanab.collector.readiness import Problem, Readiness, ready_answer
from kanab.errors import AnalysisError
from kanab.stats.srm import LIVE_SAMPLE_RATIO_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("shares", [(1.0, 1.0), (9.0, 1.0), (2.0, 1.0, 1.0)])
def test_the_p_value_is_the_largest_of_all_counts_in_the_box(shares: tuple[float, ...]) -> None:
    rng = np.random.default_rng(5)
    for _ in range(30):
        k = int(rng.integers(2, 8))
        floored = [
            int(n) // k * k for n in rng.multinomial(120, np.array(shares) / sum(shares) * 0.8 + 0.2 / len(shares))
        ]
        whole = [counts for counts in product(*(range(n, n + k) for n in floored)) if sum(counts)]
        largest = max(chisquare(counts, np.array(shares) / sum(shares) * sum(counts)).pvalue for counts in whole)
        assert floored_ratio_p(floored, shares, k) >= largest - 1e-6


def test_it_rings_for_a_broken_split_and_not_for_a_fair_one() -> None:
    assert floored_ratio_p([10_000, 9_000], [1, 1], 10) < LIVE_SAMPLE_RATIO_ALARM
    assert floored_ratio_p([10_000, 9_900], [1, 1], 10) > LIVE_SAMPLE_RATIO_ALARM
    assert floored_ratio_p([0, 0], [1, 1], 10) == 1.0
    assert floored_ratio_p([0, 0], [1, 1], 1) == 1.0


def test_k_equal_to_one_is_the_plain_test() -> None:
    assert floored_ratio_p([520, 480], [1, 1], 1) == pytest.approx(chisquare([520, 480]).pvalue, rel=1e-12)


@pytest.mark.parametrize(
    ("counts", "shares", "k"), [([1], [1], 10), ([1, 2], [1, 0], 10), ([1, 2], [1], 10), ([1, 2], [1, 1], 0)]
)
def test_what_is_no_split_is_refused(counts: list[int], shares: list[float], k: int) -> None:
    with pytest.raises(AnalysisError, match="every arm needs a count and a share"):
        floored_ratio_p(counts, shares, k)


def test_every_state_says_what_is_wrong_and_what_to_do_and_has_no_number() -> None:
    for problem in Problem:
        assert re.fullmatch(rf"{problem.value}: [^\d]+\. [A-Z;,\w ]+\.", problem.line), problem.line


def test_a_guard_notes_what_fails_and_what_works_again() -> None:
    readiness = Readiness()
    with pytest.raises(ZeroDivisionError), readiness.guard(Problem.SEAL):
        _ = 1 / 0
    assert readiness.problems() == [Problem.SEAL]
    with readiness.guard(Problem.STORE):
        pass
    assert ready_answer(readiness) == (503, f"{Problem.SEAL.line}\n")
    with readiness.guard(Problem.SEAL):
        pass
    assert ready_answer(readiness) == (200, "ok\n")
