"""Levels out of too many values, by the same rules in every source."""

from __future__ import annotations

import numpy as np
import pytest

from kanab.counting.levels import (
    Bins,
    check_levels,
    choose_bins,
    common_levels,
    declare_levels,
    quantile_shares,
)
from kanab.errors import SourceError
from kanab.plan.model import CovariatePlan, make_plan
from kanab.tally.factor import Factor


def test_bins_are_named_by_their_edges_and_close_on_the_left() -> None:
    bins = Bins("age", (12.5, 30.0))
    assert bins.labels == ("< 12.5", "12.5 – 30", "≥ 30")
    assert bins.place(np.array([-1e9, 12.4, 12.5, 29.9, 30.0, 1e9])).tolist() == [0, 0, 1, 1, 2, 2]
    assert Bins("age", ()).labels == ("any",)
    assert Bins("age", (1_234_567.0, 0.1 + 0.2)).labels[0] == "< 1234567"


@pytest.mark.parametrize(
    ("quantiles", "low", "high", "edges"),
    [
        ([12.3456, 250.4], 0, 900, (12.3, 250.0)),
        ([12.34, 12.341, 12.29], 0, 900, (12.3,)),
        ([112.5, np.nextafter(112.5, 200)], 0, 900, (112.0,)),  # the last bit decides nothing
        ([np.nextafter(113.5, 0), 113.5], 0, 900, (114.0,)),
        ([0.0, -0.00012345], -1, 1, (-0.000123, 0.0)),
        ([2003.75, 2011.5], 1999, 2024, (2003.8, 2011.5)),  # years: three digits of their range
        ([7.0, 7.0], 7, 7, (7.0,)),
        ([1.0e9 + 0.126], 1.0e9, 1.0e9 + 1, (1.0e9 + 0.13,)),
    ],
)
def test_quantiles_are_rounded_to_three_digits(
    quantiles: list[float], low: float, high: float, edges: tuple[float, ...]
) -> None:
    assert choose_bins(CovariatePlan("x", bins=4), quantiles, low, high).edges == pytest.approx(edges, rel=1e-12)
    assert len(choose_bins(CovariatePlan("x", bins=4), quantiles, low, high).edges) == len(edges)


def test_a_bin_is_scored_by_the_exact_mean_of_its_people() -> None:
    factor = Bins("x", (10.0, 20.0)).factor([3, 0, 7], [100, 0, 2**60], 100, missing=True)
    assert factor == Factor("x", ("< 10", "≥ 20", None), "covariate", (100 / 300, 2**60 / 700, None))
    assert Bins("x", ()).factor([0], [0], 1, missing=True) == Factor("x", (None,), "covariate")


def test_equal_shares_and_given_edges() -> None:
    assert quantile_shares(CovariatePlan("x", bins=5)) == (0.2, 0.4, 0.6, 0.8)
    assert quantile_shares(CovariatePlan("x", bins=(1.0, 2.0))) == ()
    assert choose_bins(CovariatePlan("x", bins=(1.0, 2.0)), [], 0, 9) == Bins("x", (1.0, 2.0))
    assert choose_bins(CovariatePlan("x", bins=2), [4.5], 0, 9) == Bins("x", (4.5,))


def test_equally_common_levels_are_taken_in_sorted_order() -> None:
    assert common_levels({"d": 5, "c": 5, "b": 9, "a": 1, None: 99}, 2) == ("b", "c")
    assert common_levels({10: 3, 9: 3, 8: 1}, 1) == (9,)
    assert common_levels({None: 4}, 3) == ()


def test_the_rest_is_other_and_other_is_one_level() -> None:
    assert declare_levels("x", ("a", "b"), rest=False).levels == ("a", "b")
    assert declare_levels("x", ("a", "other"), rest=True).levels == ("a", "other")
    assert declare_levels("x", ("a", "other"), rest=False).levels == ("a", "other")


def test_a_covariate_of_names_is_refused_with_the_number_and_the_remedy() -> None:
    plan = make_plan("arm", ["y"], adjust=["city"])
    check_levels("city", 1_000, plan)
    with pytest.raises(SourceError, match=r"'city' has more than 1,000 levels. .*--bin city=5.*--top city=20"):
        check_levels("city", 5_000, plan)
