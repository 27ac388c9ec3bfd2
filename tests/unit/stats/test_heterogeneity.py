"""Does the effect differ between levels: the score test of rates, the corrected F of amounts, and thin levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from kanab.counting.columns import count_columns
from kanab.errors import AnalysisError
from kanab.stats import effect_differs, follow_ups, robust_f
from kanab.stats.skewness import Shape
from kanab.tally.metric import Metric

SYMMETRIC = Shape(0.0, 1.0)


def rates(*cells: tuple[int, int, int, int]) -> dict[str, list[Any]]:
    """People by level from (people in A, events, people in B, events)."""
    rows: dict[str, list[Any]] = {"arm": [], "level": [], "y": []}
    for level, (n0, x0, n1, x1) in enumerate(cells):
        rows["arm"] += ["A"] * n0 + ["B"] * n1
        rows["level"] += [f"l{level}"] * (n0 + n1)
        rows["y"] += [1] * x0 + [0] * (n0 - x0) + [1] * x1 + [0] * (n1 - x1)
    return rows


def answer(rows: dict[str, Any], shape: Shape | None = None, **choices: Any) -> Any:
    binary = set(rows["y"]) <= {0, 1}
    metric = Metric("y", 1, (0, 1)) if binary else Metric("y", 1000)
    return effect_differs(
        count_columns(rows, arm="arm", covariates=["level"], metrics={"y": metric}, **choices), shape=shape
    )


def amounts(people: int, rng: np.random.Generator, *, levels: int = 3, share: float = 0.5) -> dict[str, Any]:
    return {
        "arm": np.where(rng.random(people) < share, "B", "A"),
        "level": [f"l{place}" for place in rng.integers(0, levels, people)],
        "y": rng.normal(3, 1, people),
    }


def test_two_levels_of_a_rate_are_a_score_test_of_two_differences() -> None:
    cells = (400, 40, 300, 60), (500, 100, 200, 30)
    d, v = [], []
    weights = [n0 * n1 / (n0 + n1) for n0, _, n1, _ in cells]
    common = sum(w * (x1 / n1 - x0 / n0) for w, (n0, x0, n1, x1) in zip(weights, cells, strict=True)) / sum(weights)
    for n0, x0, n1, x1 in cells:
        low = (x1 + x0 - n1 * common) / (n0 + n1)
        high, n = low + common, n0 + n1
        d.append(x1 / n1 - x0 / n0)
        v.append((high * (1 - high) / n1 + low * (1 - low) / n0) * n / (n - 1))
    chi2 = (d[0] - d[1]) ** 2 / (v[0] + v[1])
    test = answer(rates(*cells))
    assert (test.variance, test.df) == ("score", (1.0, np.inf))
    assert (test.F, test.p) == (pytest.approx(chi2), pytest.approx(stats.chi2.sf(chi2, 1)))


def test_a_level_without_events_does_not_make_the_others_untestable() -> None:
    clear = (2000, 100, 2000, 300), (2000, 300, 2000, 100)
    test = answer(rates(*clear, (40, 0, 40, 0)))
    assert test.p < 1e-15
    assert "taken as one level" in test.note  # with the smaller of the others, for nobody there has an event
    alone = answer(rates(*clear))
    assert alone.p < 1e-15
    assert alone.note == ""


def test_thin_levels_are_taken_as_one_and_named() -> None:
    test = answer(rates((900, 90, 900, 90), (900, 90, 900, 95), (20, 2, 20, 2), (30, 3, 30, 2), (25, 2, 25, 3)))
    assert test.df == (2.0, np.inf)
    assert test.note == "l2, l3, l4 taken as one level"


def test_where_one_level_is_left_nothing_is_answer() -> None:
    test = answer(rates((30, 1, 30, 0), (30, 0, 30, 1)))
    assert (test.F, test.p) == (None, None)
    assert test.note == "too few people at all levels but one"


@pytest.mark.parametrize("choices", [{"squares": "arm"}, {}, {"squares": "class"}])
def test_of_a_symmetric_amount_in_two_arms_it_is_the_robust_f(choices: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    rows = amounts(3_000, rng, levels=4, share=0.2)
    table = count_columns(rows, arm="arm", covariates=["level"], metrics={"y": Metric("y", 1000)}, **choices)
    expected, test = robust_f(table), effect_differs(table, shape=SYMMETRIC)
    assert (test.F, test.df, test.p) == (
        pytest.approx(expected.F, rel=1e-9), pytest.approx(expected.df, rel=1e-9), pytest.approx(expected.p, rel=1e-9)
    )  # fmt: skip
    assert test.variance == expected.variance


def test_skewness_shrinks_what_lies_on_the_side_at_risk() -> None:
    rng = np.random.default_rng(8)
    rows = amounts(600, rng, share=0.1)
    low = (rows["arm"] == "B") & (np.array(rows["level"]) == "l0")
    rows["y"] = np.where(low, rows["y"] - 0.7, rows["y"])
    symmetric = answer(rows, SYMMETRIC)
    assert answer(rows, Shape(4.0, 1.0)).p > symmetric.p
    assert answer(rows, Shape(-4.0, 1.0)).p > symmetric.p  # the others are high against the common effect
    assert answer(rows, None).p >= symmetric.p  # unknown: a second test has to agree


def test_levels_of_a_skewed_amount_that_few_people_have_are_taken_as_one() -> None:
    rng = np.random.default_rng(1)
    rows = amounts(6_000, rng, levels=3)
    rows["level"] = np.where(rng.random(6_000) < 0.01, "rare", rows["level"])
    assert answer(rows, Shape(4.0, 0.1)).df[0] == 2  # some 30 in an arm, of whom 3 have any, with the smallest level
    assert "rare" in answer(rows, Shape(4.0, 0.1)).note
    assert answer(rows, Shape(4.0, 1.0)).df[0] == 3


def test_of_an_amount_that_hardly_anybody_has_nothing_is_tested() -> None:
    test = answer(amounts(300, np.random.default_rng(1)), Shape(4.0, 0.02))
    assert (test.F, test.p, test.note) == (None, None, "too few people at all levels but one")


def test_several_arms_are_compared_with_the_control_one_by_one() -> None:
    rng = np.random.default_rng(2)
    rows = amounts(9_000, rng)
    rows["arm"] = rng.choice(["A", "B", "C"], 9_000)
    moved = (rows["arm"] == "C") & (np.array(rows["level"]) == "l1")
    rows["y"] = np.where(moved, rows["y"] + 0.5, rows["y"])
    table = count_columns(rows, arm="arm", covariates=["level"], metrics={"y": Metric("y", 1000)})
    test = effect_differs(table, shape=SYMMETRIC)
    assert test.note == "C against A"
    alone = effect_differs(
        count_columns({name: np.asarray(column)[rows["arm"] != "B"] for name, column in rows.items()}, arm="arm",
                      covariates=["level"], metrics={"y": Metric("y", 1000)}), shape=SYMMETRIC,
    )  # fmt: skip
    assert test.p == pytest.approx(2 * alone.p, rel=0.5)  # its marginals of squares have no third arm
    assert effect_differs(table, control="C", shape=SYMMETRIC).p < 1e-6


def test_follow_ups_of_a_level_without_events_are_no_certainties() -> None:
    table = count_columns(
        rates((2000, 200, 2000, 400), (60, 0, 60, 0)), arm="arm", covariates=["level"],
        metrics={"y": Metric("y", 1, (0, 1))},
    )  # fmt: skip
    (row,) = follow_ups(table)
    assert 0.01 < row.se < 0.05


def test_pairs_of_experiments_have_no_levels() -> None:
    rows = {"one": ["A", "B"] * 20, "two": ["A", "A", "B", "B"] * 10, "y": [0.5, 1, 2, 3] * 10}
    with pytest.raises(AnalysisError, match="no levels"):
        effect_differs(count_columns(rows, arm=["one", "two"], metrics={"y": Metric("y", 10)}))
