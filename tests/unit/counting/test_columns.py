import math
from typing import Any

import numpy as np
import pytest

from kanab import KanabError, Metric, count_columns
from kanab.counting import columns as module
from kanab.counting.columns import group_products, group_sums
from kanab.errors import GridError, LevelError, SourceError, TallyError

ROWS: dict[str, list[Any]] = {
    "arm": ["A", "B", "A", "B", "A", "B"],
    "tier": [1, 2, 2, None, 1, 1],
    "plan": ["x", "y", None, "x", "y", "y"],
    "member": [True, False, None, True, True, False],
    "spend": [0.5, None, 2.5, 1.0, 3.5, 2.0],
    "visits": [3, 1, None, 2, 7, 4],
    "paid": [True, False, True, None, False, True],
}
CHOICES: dict[str, Any] = {
    "arm": "arm",
    "covariates": ["tier", "plan", "member"],
    "metrics": ["spend", "visits", "paid"],
    "resolution": {"spend": 0.5},
    "missing": {"spend": "zero", "visits": "exclude", "paid": "exclude"},
    "products": [("spend", "visits")],
}


def test_the_tally_of_the_rows_is_this_one() -> None:
    tally = count_columns(ROWS, **CHOICES)
    assert [covariate.levels for covariate in tally.covariates] == [(1, 2, None), ("x", "y", None), (False, True, None)]
    assert tally.factor("tier").scores == (1.0, 2.0, None)
    assert tally.people_by() == {"A": 3, "B": 3}
    assert tally.moments_of("spend").sums.sum(axis=(1, 2, 3)).tolist() == [13, 6]
    assert tally.squares("spend").tolist() == [1 + 25 + 49, 4 + 16]
    assert tally.moments_of("visits").counts.sum(axis=(1, 2, 3)).tolist() == [2, 3]
    assert tally.moments_of("paid").metric == Metric("paid", 1, (0, 1), "exclude")
    cross = tally.cross("spend", "visits")
    assert cross.counts.tolist() == [2, 3]
    assert [cells.tolist() for cells in cross.sums] == [[8, 6], [10, 7]]
    assert [cells.tolist() for cells in cross.squares] == [[50, 20], [58, 21]]
    assert cross.products.tolist() == [3 + 49, 4 + 16]


# ── squares and products ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("squares", "marginals"),
    [
        ("arm", {("arm",)}),
        ("marginals", {("arm",), ("tier",), ("plan",)}),
        ("class", {("arm", "tier", "plan")}),
    ],
)
def test_squares_are_kept_as_finely_as_asked(squares: Any, marginals: set[tuple[str, ...]]) -> None:
    tally = count_columns(
        ROWS, arm="arm", covariates=["tier", "plan"], metrics=["visits", "paid"], squares=squares,
    )  # fmt: skip
    assert set(tally.moments_of("visits").squares) == marginals
    assert tally.moments_of("paid").squares == {}  # 0/1: its squares are its sums


def test_a_pair_of_experiments_keeps_squares_per_arm_of_each() -> None:
    pair = {**ROWS, "variant": list("xxyyxy")}
    tally = count_columns(pair, arm=["arm", "variant"], metrics=["visits"], squares="arm")
    assert tally.squares(by=["arm"]).tolist() == [9 + 0 + 49, 1 + 4 + 16]
    assert tally.squares(by=["variant"]).tolist() == [9 + 1 + 49, 0 + 4 + 16]
    assert tally.squares(by=["arm", "variant"]) is None


def test_products_count_only_people_who_have_both_values() -> None:
    rows = {"arm": list("AAAB"), "y": [1, None, 3, 5], "z": [2, 2, None, 7]}
    both = count_columns(rows, arm="arm", metrics=["y", "z"], missing={"y": "exclude", "z": "exclude"},
                         products=[("y", "z")])  # fmt: skip
    assert both.cross("y", "z").counts.tolist() == [1, 1]
    assert both.cross("y", "z").products.tolist() == [2, 35]
    zeros = {"y": "zero", "z": "zero"}
    zero = count_columns(rows, arm="arm", metrics=["y", "z"], missing=zeros, products=[("y", "z")])
    assert zero.cross("y", "z").counts.tolist() == [3, 1]
    assert zero.cross("y", "z").products.tolist() == [2, 35]


# ── missing values ─────────────────────────────────────────────────────────────────────────────


def test_missing_values_are_zero_or_left_out() -> None:
    rows = {"arm": ["A", "A", "B"], "y": [4.0, None, 2.0]}
    zero = count_columns(rows, arm="arm", metrics=["y"], missing={"y": "zero"}).moments_of()
    assert (zero.counts.tolist(), zero.sums.tolist()) == ([2, 1], [4, 2])
    for rule in (None, {"y": "exclude"}):
        left = count_columns(rows, arm="arm", metrics=["y"], missing=rule).moments_of()
        assert (left.counts.tolist(), left.sums.tolist()) == ([1, 1], [4, 2])
        assert left.squares[("arm",)].tolist() == [16, 4]


def test_a_missing_value_is_not_clamped_but_refused_where_zero_is_out_of_bounds() -> None:
    rows = {"arm": ["A", "A", "B"], "y": [4.0, None, 2.0]}
    with pytest.raises(GridError, match=r"missing values of 'y' would count as 0, outside its bounds. Declare missing"):
        count_columns(rows, arm="arm", metrics=["y"], bounds={"y": (1, 5)}, missing={"y": "zero"})
    left = count_columns(rows, arm="arm", metrics=["y"], bounds={"y": (1, 5)})
    assert left.moments_of().counts.tolist() == [1, 1]


# ── grids ──────────────────────────────────────────────────────────────────────────────────────


def metric_of(values: list[Any], **choices: Any) -> Metric:
    rows = {"arm": ["A"] * len(values), "y": values}
    return count_columns(rows, arm="arm", metrics=["y"], **choices).metrics[0]


@pytest.mark.parametrize(
    ("values", "choices", "metric"),
    [
        ([0, 1, 1], {}, Metric("y", 1, (0, 1))),
        ([True, False], {}, Metric("y", 1, (0, 1))),
        ([0, 1, None], {}, Metric("y", 1, (0, 1), "exclude")),
        ([0, 2, None], {"bounds": {"y": (0, 5)}}, Metric("y", 1, (0, 5), "exclude")),
        ([0, 1, 2], {}, Metric("y")),
        ([0, -1], {}, Metric("y")),
        ([0, 1], {"bounds": {"y": (0, 5)}}, Metric("y", 1, (0, 5))),
        ([0, 1], {"resolution": {"y": 0.5}}, Metric("y", 2)),
        ([0.5, 1], {"resolution": {"y": 0.1}}, Metric("y", 10)),
        ([0.25, 1], {"bounds": {"y": (0, 500)}}, Metric("y", 2**22, (0, 500))),
        ([1, 2], {"missing": {"y": "exclude"}}, Metric("y", missing="exclude")),
        ([1 / 3, -3], {}, Metric("y", 2**49)),
        ([0.29, 19.99], {}, Metric("y", 100)),
        ([0.125], {}, Metric("y", 1_000)),
        ([0.0625], {}, Metric("y", 10_000)),
        ([2**52 - 1, 1 - 2**52], {}, Metric("y")),  # the last that fit
        ([0.5, 2.0**60], {"bounds": {"y": (0, 5)}}, Metric("y", 2**28, (0, 5))),
    ],
    ids=repr,
)
def test_the_grid_is_declared_or_the_simplest_that_holds_the_values(values: Any, choices: Any, metric: Metric) -> None:
    assert metric_of(values, **choices) == metric


def test_declared_metrics_are_used_as_they_are() -> None:
    metric = Metric("y", 4, (0, 9), "exclude")
    tally = count_columns({"arm": ["A", "B"], "y": [0.5, 99]}, arm="arm", metrics={"y": metric})
    assert tally.metrics == (metric,)
    assert tally.moments_of().sums.tolist() == [2, 36]


# ── exact sums ─────────────────────────────────────────────────────────────────────────────────

TOP = 2**52 - 1


@pytest.mark.parametrize("rows", [1, 2, 1000, 100_003])
@pytest.mark.parametrize("spread", [0, 1, 2**20, 2**51])
def test_sums_and_squares_near_2_to_the_52_are_those_of_python_integers(rows: int, spread: int) -> None:
    random = np.random.default_rng(rows + spread)
    y = TOP - random.integers(0, spread + 1, rows)
    z = -(TOP - random.integers(0, spread + 1, rows))
    arm = random.integers(0, 3, rows)
    tally = count_columns(
        {"arm": arm, "y": y, "z": z}, arm="arm", metrics={"y": Metric("y"), "z": Metric("z")}, products=[("y", "z")]
    )
    people = [list(zip(y[arm == a].tolist(), z[arm == a].tolist(), strict=True)) for a in np.unique(arm)]
    assert tally.moments_of("y").sums.tolist() == [sum(y for y, _ in group) for group in people]
    assert tally.squares("y").tolist() == [sum(y**2 for y, _ in group) for group in people]
    assert tally.squares("z").tolist() == [sum(z**2 for _, z in group) for group in people]
    assert tally.cross("y", "z").products.tolist() == [sum(y * z for y, z in group) for group in people]


def test_more_rows_than_one_chunk_add_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(7)
    y = random.integers(-TOP, TOP, 10_007)
    code = random.integers(0, 5, 10_007)
    whole = group_sums(y, code, 5).tolist(), group_products(y, y[::-1].copy(), code, 5).tolist()
    monkeypatch.setattr(module, "_CHUNK", 1000)
    parts = group_sums(y, code, 5).tolist(), group_products(y, y[::-1].copy(), code, 5).tolist()
    exact = [sum(value for value, c in zip(y.tolist(), code, strict=True) if c == group) for group in range(5)]
    products = [
        sum(a * b for a, b, c in zip(y.tolist(), y[::-1].tolist(), code, strict=True) if c == group)
        for group in range(5)
    ]
    assert whole == parts == (exact, products)


def test_a_million_rows_beyond_a_chunk_add_exactly() -> None:
    rows = (1 << 20) + 3
    values, code = np.full(rows, TOP), np.zeros(rows, dtype=np.intp)
    assert group_sums(values, code, 1).tolist() == [TOP * rows]
    assert group_products(values, values, code, 1).tolist() == [TOP**2 * rows]
    small = np.full(rows, (1 << 32) - 1)
    assert group_sums(-small, code, 1).tolist() == [-((1 << 32) - 1) * rows]


# ── bad input ──────────────────────────────────────────────────────────────────────────────────

GOOD: dict[str, Any] = {"arm": ["A", "B", "B"], "tier": [1, 2, 2], "y": [1, 2, 918273645]}

LIST, NAMES = "must be a list of column names", "must be column names. Give texts"
TWICE, NO_LEVEL = "names a column twice. Name each column once", "a level of 'tier' is neither text"
OTHER = ".* for a metric that is not counted"

REFUSED: list[tuple[dict[str, Any], type[KanabError], str]] = [
    ({"arm": "amr"}, SourceError, r"there is no column 'amr'. Did you mean arm\?"),
    ({"arm": []}, SourceError, "no arm column is named"),
    ({"arm": [5]}, SourceError, f"arm {NAMES}"),
    ({"arm": None}, SourceError, f"arm {LIST}"),
    ({"arm": ["arm", "arm"]}, SourceError, f"arm {TWICE}"),
    ({"metrics": ["clicks"]}, SourceError, r"no column 'clicks'. There are: arm, tier, y"),
    ({"metrics": "y"}, SourceError, rf"metrics {LIST}. Write metrics=\['y'\]"),
    ({"metrics": 5}, SourceError, f"metrics {LIST}"),
    ({"metrics": [918273645]}, SourceError, f"metrics {NAMES}"),
    ({"metrics": ["y", "y"]}, SourceError, f"metrics {TWICE}"),
    ({"metrics": {"y": Metric("z")}}, SourceError, "metric 'y' is not declared under its name"),
    ({"metrics": {"y": 5}}, SourceError, "metric 'y' is not declared under its name"),
    ({"metrics": {"y": Metric("y")}, "bounds": {"y": (0, 5)}}, SourceError, "metrics are declared, and bounds"),
    ({"covariates": ["tear"]}, SourceError, r"there is no column 'tear'. Did you mean tier"),
    ({"covariates": "tier"}, SourceError, f"covariates {LIST}"),
    ({"covariates": ["arm"]}, TallyError, "the same arm column or covariate is named twice"),
    ({"bounds": {"z": (0, 1)}}, SourceError, f"bounds {OTHER}"),
    ({"bounds": (0, 1)}, SourceError, "bounds must say which metric they are for"),
    ({"bounds": {"y": (2, 1)}}, GridError, "the bounds of 'y' must be two finite numbers"),
    ({"resolution": {"z": 1}}, SourceError, f"resolution {OTHER}"),
    ({"resolution": {"y": 0.3}}, GridError, "the resolution of 'y' must be 1 divided by a whole"),
    ({"missing": {"z": "zero"}}, SourceError, f"missing {OTHER}"),
    ({"missing": {"y": "drop"}}, GridError, "unknown rule for missing values of 'y'"),
    ({"squares": "level"}, SourceError, r"unknown choice of squares. Use 'arm'"),
    ({"squares": ["arm"]}, SourceError, r"unknown choice of squares. Use 'arm'"),
    ({"products": [("y", "z")]}, SourceError, "product names a metric that is not counted"),
    ({"products": [("y", "y")]}, TallyError, "the cross-products of 'y' and 'y' are squares"),
    ({"products": [("y",)]}, SourceError, "products must be pairs of metrics"),
    ({"products": 5}, SourceError, "products must be pairs of metrics"),
]

UNFIT: list[tuple[dict[str, Any], type[KanabError], str]] = [
    ({"y": [1, 918273645]}, SourceError, "the columns have different lengths"),
    ({"arm": [], "tier": [], "y": []}, SourceError, "there are no rows to count"),
    ({"arm": ["A", None, "B"]}, SourceError, r"arm column 'arm' has missing values. Leave out peop"),
    ({"y": [1, 2, "918273645"]}, SourceError, "metric 'y' holds texts that look like numbers"),
    ({"y": [1, 2, math.inf]}, SourceError, "metric 'y' holds infinite values"),
    ({"y": [1, 2, 2**52]}, GridError, "too large for its grid"),
    ({"y": [1, 2, -(2**52)]}, GridError, "too large for its grid"),
    ({"y": [1e-20, 2e-20, 0]}, GridError, "values of 'y' are finer than every grid"),
    ({"tier": [1, 2, math.inf]}, LevelError, NO_LEVEL),
    ({"tier": [1, 2, b"918273645"]}, LevelError, NO_LEVEL),
    ({"tier": [1, 2, [918273645]]}, SourceError, "holds values that are not levels"),
]


@pytest.mark.parametrize(("choices", "error", "fact"), REFUSED)
def test_choices_that_cannot_be_are_refused_with_a_fact_and_a_remedy(
    choices: dict[str, Any], error: type[KanabError], fact: str
) -> None:
    with pytest.raises(error, match=fact) as caught:
        count_columns(GOOD, **{"arm": "arm", "covariates": ["tier"], "metrics": ["y"], **choices})
    assert "918273645" not in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(("rows", "error", "fact"), UNFIT)
def test_columns_that_cannot_be_counted_are_refused_without_a_value(
    rows: dict[str, Any], error: type[KanabError], fact: str
) -> None:
    with pytest.raises(error, match=fact) as caught:
        count_columns({**GOOD, **rows}, arm="arm", covariates=["tier"], metrics=["y"])
    assert "918273645" not in str(caught.value)


def test_too_many_classes_are_refused() -> None:
    people = np.arange(400)
    with pytest.raises(SourceError, match=r"'b' brings the table to more than 100,000 classes. Bin or"):
        count_columns({"arm": people % 2, "a": people, "b": people}, arm="arm", covariates=["a", "b"])


def test_more_covariates_than_an_array_has_axes_are_refused() -> None:
    rows = {f"c{i}": ["x", "x"] for i in range(65)}
    with pytest.raises(KanabError):
        count_columns(rows, arm="c0", covariates=list(rows)[1:])


@pytest.mark.parametrize("values", [[1e308, 0.5], [-1.7e308, 1.7e308, 0.5], [1e308, -1e308]], ids=repr)
def test_values_near_the_largest_double_are_refused_without_a_warning(values: list[float]) -> None:
    with pytest.raises(GridError, match="too large for its grid"):
        metric_of(values)
    with pytest.raises(GridError, match="too large for its grid"):
        metric_of(values, resolution={"y": 0.01})
