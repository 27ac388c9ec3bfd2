"""The map of levels is chosen so that it does not bias the effect; the way it must not be chosen fails."""

import pytest
from tests.benchmarks import load_benchmark

bench = load_benchmark("bench_merging")


@pytest.mark.slow
def test_one_map_from_pooled_counts_leaves_a_true_effect_of_zero_unbiased() -> None:
    found = bench.simulate([bench.pooled, bench.per_arm], runs=150, seed=7)
    bias, se = found["pooled"]
    assert abs(bias) < 3 * se
    wrong, its_se = found["per_arm"]
    assert abs(wrong) > 10 * its_se, "the negative control must fail"


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.2, 0.1], ids=["50/50", "80/20", "90/10"])
def test_merging_for_an_amount_moves_no_effect_and_a_map_per_arm_does(share: float) -> None:
    """The mean of 100 paired runs is known to ± .006 standard errors, half of what is asserted.

    That a test at 5 % rejects within ± .5 points of it takes 8,000 runs of each split, two to four minutes: it is left
    to benchmarks/bench_merging.py, whose figures stand in docs/privacy.md. Here decisions agree with those of k alone.
    """
    found = bench.compare(share, runs=100, seed=3)
    assert abs(found["ours"].shift) <= 0.01
    assert abs(found["ours"].size - found["k alone"].size) <= 0.01
    if share == 0.1:
        assert found["by arm"].shift > 5 * found["by arm"].error, "the negative control must fail"
        assert found["by arm"].shift > 0.3
