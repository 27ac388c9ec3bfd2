"""count_pairs on frames and files: names and patterns, grids, and everything that is wrong with the data."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.shop import assert_same_pairs

from kanab.errors import GridError, KanabError, LevelError, MissingExtraError, PlanError, SourceError
from kanab.scan.count import people_batches
from kanab.scan.count.pair_counting import count_pairs
from kanab.scan.count.people_batches import ParquetPeople
from kanab.scan.pair_tables import Pairs, fitting, largest, plus
from kanab.tally.metric import Metric

PEOPLE = 300


def shop(people: int = PEOPLE, seed: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "test_b": rng.choice(["on", "off"], people),
        "id": np.arange(people),
        "test_a": rng.integers(0, 3, people),
        "other": rng.random(people) < 0.5,
        "spend": np.round(rng.gamma(1, 20, people), 2),
        "test_spend": rng.integers(0, 5, people),
    }


SHOP = shop()


# ── names ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("wanted", "metrics", "experiments"),
    [
        (["other", "test_a", "test_b"], (), ["test_b", "test_a", "other"]),  # in the order of the columns
        ("test_*", ["test_spend"], ["test_b", "test_a"]),  # no metric
        (["test_?", "o*"], ["spend"], ["test_b", "test_a", "other"]),
        (["test_?", "test_a"], ["spend"], ["test_b", "test_a"]),
    ],
)
def test_a_pattern_takes_all_that_match(wanted: Any, metrics: Any, experiments: list[str]) -> None:
    assert [factor.name for factor in count_pairs(SHOP, wanted, metrics).experiments] == experiments


def test_a_column_may_be_called_like_a_pattern() -> None:
    pairs = count_pairs({"a*": [0, 1, 0, 1], "ab": [0, 0, 1, 1], "ac": [0, 1, 1, 0]}, ["a*", "ac"])
    assert [factor.name for factor in pairs.experiments] == ["a*", "ac"]


@pytest.mark.parametrize(
    ("experiments", "metrics", "kind", "message"),
    [
        (["test_a"], ["spend"], PlanError, "pairs need two experiments or more"),
        ("test_a", ["spend"], PlanError, "pairs need two experiments or more"),
        ([], ["spend"], PlanError, "pairs need two experiments or more"),
        (["test_a", "test_a"], ["spend"], SourceError, "experiments names a column twice"),
        (["exp_*"], ["spend"], SourceError, r"no column matches the pattern 'exp_\*'. There are: test_b, id"),
        (["test_a", "tset_b"], ["spend"], SourceError, "no column 'tset_b'. Did you mean test_b"),
        (["test_a", "test_b"], ["spent"], SourceError, "no column 'spent'. Did you mean spend"),
        (["test_a", "test_b"], ["spend", "spend"], SourceError, "metrics names a column twice"),
        (["test_a", "spend"], ["spend"], PlanError, "'spend' is named as an experiment and as something else"),
        (7, ["spend"], SourceError, "experiments must be a list"),
        (["test_a", "test_b"], 7, SourceError, "metrics must be a list"),
        (["test_a", 7], ["spend"], SourceError, "experiments must be column names"),
    ],
)
def test_mistakes_in_names_are_told(experiments: Any, metrics: Any, kind: type[KanabError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        count_pairs(SHOP, experiments, metrics)
    assert caught.value.remedy


def test_more_than_a_thousand_experiments_are_refused() -> None:
    many = {f"t{place}": np.array([0, 1]) for place in range(1_001)}
    with pytest.raises(PlanError, match="1,001 experiments are named; the limit is 1,000"):
        count_pairs(many, "t*")


# ── arms ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["same"] * PEOPLE, "column 'wrong' holds a single arm"),
        ([None] * PEOPLE, "column 'wrong' holds no arm"),
        (np.arange(PEOPLE), "experiment 'wrong' has more than 8 arms"),
        (np.arange(PEOPLE) % 1000 % 9, "experiment 'wrong' has more than 8 arms"),
        ([f"user {place}" for place in range(PEOPLE)], "experiment 'wrong' has more than 8 arms"),
        (np.linspace(0, 1, PEOPLE), "experiment 'wrong' has arms that are numbers with a fraction"),
        ([True, 1] * (PEOPLE // 2), "column 'wrong' mixes true/false with numbers"),
    ],
)
def test_what_cannot_be_arms_is_told_with_the_column_and_a_remedy(column: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        count_pairs(SHOP | {"wrong": column}, ["test_a", "wrong"], ["spend"])
    assert caught.value.remedy


def test_eight_arms_are_allowed_and_more_are_noticed_over_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people_batches, "ROWS", 50)
    monkeypatch.setattr(people_batches, "_workers", lambda: 3)
    eight = np.repeat(np.arange(8), PEOPLE // 8 + 1)[:PEOPLE]
    assert len(count_pairs(SHOP | {"many": eight}, ["test_a", "many"]).experiments[1].levels) == 8
    with pytest.raises(SourceError, match="'many' has more than 8 arms"):
        count_pairs(SHOP | {"many": np.arange(PEOPLE) // 30}, ["test_a", "many"])
    mixed = [True, False] * 75 + [1, 0] * 75
    with pytest.raises(SourceError, match="'many' mixes true/false with numbers"):
        count_pairs(SHOP | {"many": mixed}, ["test_a", "many"])


def test_experiments_without_people_in_common_are_told() -> None:
    apart = {"a": [0, 1, 0, 1, None, None, None, None], "b": [None, None, None, None, 0, 1, 0, 1]}
    with pytest.raises(SourceError, match="no two of the experiments have people in common"):
        count_pairs(apart, ["a", "b"])
    joined = count_pairs(apart | {"c": [0, 1, 1, 0, 0, 1, 0, 1]}, ["a", "b", "c"])
    assert joined.tally(0, 1).people.sum() == 0
    assert joined.tally(0, 2).people.tolist() == [[1, 1], [1, 1]]


EMPTY = pa.table({"a": pa.array([], pa.int8()), "b": pa.array([], pa.int8())})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"a": [None, None], "b": [None, None]}, "nobody is in an arm"),
        ({"a": [], "b": []}, "no rows to count"),
        (EMPTY, "no rows to count"),
        ({"a": [0, 1], "b": [0, 1, 1]}, "different lengths"),
        (pd.DataFrame([[0, 1, 2], [1, 0, 3]], columns=["a", "b", "b"]), "several columns 'b'"),
    ],
)
def test_what_cannot_be_counted_is_told(rows: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        count_pairs(rows, ["a", "b"])


# ── metrics ────────────────────────────────────────────────────────────────────────────────────


def two(**columns: Any) -> dict[str, Any]:
    return {"a": [0, 1, 0, 1, None], "b": [0, 0, 1, 1, None], **columns}


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        ([None] * 5, SourceError, "nobody in an experiment has a value of metric 'y'"),
        ([None, None, None, None, 3.0], SourceError, "nobody in an experiment has a value of metric 'y'"),
        ([np.nan] * 5, SourceError, "nobody in an experiment has a value of metric 'y'"),
        (["1"] * 5, SourceError, "metric 'y' holds texts that look like numbers. Make them numbers"),
        ([1.0, np.inf, 0, 0, 0], SourceError, "metric 'y' holds infinite values"),
        ([1e17, 0, 0, 0, 0], GridError, "too large for its grid"),
        ([1e-17, 0, 0, 0, 0], GridError, "finer than every grid"),
    ],
)
def test_metrics_that_cannot_be_added_are_told(column: list[Any], kind: type[KanabError], message: str) -> None:
    with pytest.raises(kind, match=message):
        count_pairs(two(y=column), ["a", "b"], ["y"])


def test_a_missing_value_that_would_be_a_zero_out_of_bounds_is_told() -> None:
    with pytest.raises(GridError, match="would count as 0, outside its bounds"):
        count_pairs(two(y=[5, None, 5, 5, 5]), ["a", "b"], ["y"], bounds={"y": (1, 9)}, missing={"y": "zero"})


def test_people_without_a_value_are_left_out_unless_rows_are_added_up() -> None:
    rows = two(y=[5, None, 5, 5, 5])
    left = count_pairs(rows, ["a", "b"], ["y"], bounds={"y": (1, 9)}).moments[0]
    assert left.metric.missing == "exclude"
    assert (left.sums[0:2, 2:4] // left.metric.scale).tolist() == [
        [5, 5],
        [0, 5],
    ]  # 0 is out of bounds, and nobody is lifted to 1
    assert left.counts.sum() < count_pairs(rows, ["a", "b"], ["y"], missing={"y": "zero"}).moments[0].counts.sum()
    whole = count_pairs(two(y=[5, 0, 5, 5, 5]), ["a", "b"], ["y"]).moments[0]
    assert whole.metric.missing == "zero"
    visits = count_pairs(rows | {"who": list(range(5))}, ["a", "b"], ["y"], unit="who").moments[0]
    assert visits.metric.missing == "zero"
    means = count_pairs(rows | {"who": list(range(5))}, ["a", "b"], ["y"], unit="who", aggregate="mean").moments[0]
    assert means.metric.missing == "exclude"


def test_grids_are_chosen_by_people_in_an_experiment_and_by_nobody_else() -> None:
    found = count_pairs(two(y=[0, 1, 1, 0, 0.333]), ["a", "b"], ["y"])
    assert found.moments[0].metric.binary
    found = count_pairs(two(y=[0.5, 1, 1, 0, np.inf]), ["a", "b"], ["y"])
    assert found.moments[0].metric == Metric("y", 10)
    assert found.total == 4
    found = count_pairs(two(y=[0.5, 1, 1, 0, "no number"]), ["a", "b"], ["y"])
    assert found.moments[0].metric == Metric("y", 10)


def test_declared_grids_bounds_and_rules_are_kept() -> None:
    rows = two(y=[0.25, 70.0, None, -3.0, 99.0], z=[1, 0, None, 1, 0])
    found = count_pairs(
        rows,
        ["a", "b"],
        ["y", "z"],
        bounds={"y": (0, 50)},
        resolution={"y": 0.01},
        missing={"y": "zero", "z": "exclude"},
    )
    assert found.moments[0].metric == Metric("y", 100, (0, 50))
    assert found.moments[0].sums[0:2, 2:4].tolist() == [[25, 0], [5000, 0]]
    assert found.missing == {"y": 1, "z": 1}
    assert found.moments[1].counts[0:2, 2:4].tolist() == [[1, 0], [1, 1]]
    assert found.unusual == {"y": 2, "z": 1}  # 25, 5000 and two zeros; and of those who have a value two of three are 1


def test_declared_metrics_are_taken_as_they_are() -> None:
    metric = Metric("y", 4, missing="exclude")
    found = count_pairs(two(y=[0.3, 1, None, 0, 7]), ["a", "b"], {"y": metric})
    assert found.moments[0].metric == metric
    assert found.moments[0].sums[0:2, 2:4].tolist() == [[1, 0], [4, 0]]


@pytest.mark.parametrize(
    ("metrics", "choices", "message"),
    [
        ({"y": Metric("z")}, {}, "not declared under its name"),
        ({"y": 3}, {}, "not declared under its name"),
        ({"y": Metric("y")}, {"bounds": {"y": (0, 1)}}, "given besides"),
        (["y"], {"bounds": (0, 1)}, "must say which metric"),
        (["y"], {"bounds": {"z": (0, 1)}}, "a metric that is not counted"),
    ],
)
def test_mistakes_in_metrics_are_told(metrics: Any, choices: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        count_pairs(two(y=[1, 2, 3, 4, 5]), ["a", "b"], metrics, **choices)


def test_sums_and_squares_of_the_largest_values_are_exact() -> None:
    most = 2**52 - 1
    rows = {"a": [0, 1] * 6, "b": [0, 0, 1, 1] * 3, "y": [most, -most] * 6}
    found = count_pairs(rows, ["a", "b"], ["y"])
    assert found.moments[0].sums[0].tolist() == [6 * most, 0, 3 * most, 3 * most]
    assert found.moments[0].squares.tolist() == [[6 * most**2] * 2] * 4
    assert found.unusual["y"] == 6


# ── sources ────────────────────────────────────────────────────────────────────────────────────

FRAMES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "lists": lambda rows: {name: list(values) for name, values in rows.items()},
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "lazy": lambda rows: pl.DataFrame(rows).lazy(),
    "arrow": pa.table,
    "record batch": pa.RecordBatch.from_pydict,
    "dict of series": lambda rows: {name: pd.Series(values) for name, values in rows.items()},
    "dict of arrow": lambda rows: {name: pa.array(values) for name, values in rows.items()},
}


@pytest.mark.parametrize("frame", FRAMES)
def test_frames_of_all_kinds_give_the_same(frame: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = count_pairs(SHOP, ["test_?", "other"], ["spend", "test_spend"])
    monkeypatch.setattr(people_batches, "ROWS", 70)
    monkeypatch.setattr(people_batches, "rows_at_once", lambda _: 70)
    assert_same_pairs(count_pairs(FRAMES[frame](SHOP), ["test_?", "other"], ["spend", "test_spend"]), expected)


def test_parquet_files_give_the_same(tmp_path: Path) -> None:
    expected = count_pairs(SHOP, ["test_?", "other"], ["spend", "test_spend"])
    table = pa.table(SHOP)
    pq.write_table(table, tmp_path / "all.parquet", row_group_size=37)
    pq.write_table(table.slice(0, 100), tmp_path / "part1.pq")
    pq.write_table(table.slice(100), tmp_path / "part2.pq")
    calls: list[tuple[int, int | None]] = []
    for place in (tmp_path / "all.parquet", str(tmp_path / "part?.pq")):
        found = count_pairs(
            place, ["test_?", "other"], ["spend", "test_spend"], progress=lambda *seen: calls.append(seen)
        )
        assert_same_pairs(found, expected)
        assert calls[-1] == (PEOPLE, PEOPLE)
    assert all(total == PEOPLE for _, total in calls)


def test_parquet_files_whose_columns_differ_are_left_to_an_engine(tmp_path: Path) -> None:
    expected = count_pairs(SHOP, ["test_?"], ["spend"])
    table = pa.table(SHOP)
    pq.write_table(table.slice(0, 100), tmp_path / "part1.parquet")
    wider = table.slice(100).set_column(2, "test_a", table.slice(100)["test_a"].cast(pa.int8()))
    pq.write_table(wider, tmp_path / "part2.parquet")
    assert_same_pairs(count_pairs(str(tmp_path / "*.parquet"), ["test_?"], ["spend"]), expected)


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "people.parquet").write_text("no")
    pq.write_table(pa.table(SHOP), tmp_path / "full.parquet")
    pq.write_table(pa.table(SHOP).slice(0, 0), tmp_path / "empty.parquet")
    for name, metrics, message in (
        ("people.parquet", (), r"people\.parquet cannot be read as Parquet"),
        ("gone.parquet", (), "file"),
        ("*.pq", (), "file"),
        ("empty.parquet", (), "no rows to count"),
        ("full.parquet", ["spent"], r"no column 'spent'\. Did you mean spend"),
    ):
        with pytest.raises(SourceError, match=message):
            count_pairs(tmp_path / name, "test_?", metrics)


@pytest.mark.parametrize("installed", [True, False])
def test_csv_files_give_the_same_with_and_without_an_engine(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = count_pairs(SHOP, ["test_?", "other"], ["spend"])
    frame = pd.DataFrame(SHOP)
    frame.iloc[:100].to_csv(tmp_path / "part1.csv", index=False)
    frame.iloc[100:].to_csv(tmp_path / "part2.csv", index=False)
    if not installed:
        hide(monkeypatch, "ibis")
    assert_same_pairs(count_pairs(str(tmp_path / "*.csv"), ["test_?", "other"], ["spend"]), expected)


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in packages else found(name))


def test_what_needs_an_extra_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table(SHOP), tmp_path / "people.parquet")
    hide(monkeypatch, "ibis", "pyarrow")
    with pytest.raises(MissingExtraError, match=r"kanab\[sql\]"):
        count_pairs(tmp_path / "people.parquet", "test_?")
    with pytest.raises(MissingExtraError, match="choosing rows"):
        count_pairs(SHOP, "test_?", where="id > 3")


def test_an_interruption_stops_the_threads() -> None:
    def stop(_done: int, _total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        count_pairs(SHOP, "test_?", ["spend"], progress=stop)


# ── the tables ────────────────────────────────────────────────────────────────────────────────────


SIX = {
    "red": ["on", "off", "on", "off", "on", None],
    "blue": [0, 0, 1, 1, 1, 1],
    "green": [1, 2, 3, 1, 2, 3],
    "spend": [1.0, 2.5, 0.0, 4.0, 1.5, 9.0],
    "bought": [1, 1, 0, 1, 1, 1],
}
COLOURS = ["red", "blue", "green"]


def pairs_of(rows: dict[str, list] = SIX, **metrics: Metric) -> Pairs:
    return count_pairs(rows, COLOURS, metrics or ["spend", "bought"])


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


# ── some at a time ────────────────────────────────────────────────────────────────────────────────


MANY = 40_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of 40 row groups whose numbers cannot be compressed."""
    rng = np.random.default_rng(1)
    columns = {"layout": rng.integers(0, 2, MANY), "price": rng.integers(0, 3, MANY), "spend": rng.random(MANY)}
    columns |= {f"other{place}": rng.random(MANY) for place in range(20)}
    pq.write_table(pa.table(columns), tmp_path / "people.parquet", row_group_size=1_000)
    return tmp_path / "people.parquet"


@pytest.mark.parametrize("rows", [700, 2_500, 1 << 17])
def test_row_groups_are_read_in_runs_and_nobody_is_lost(file: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    choices = {"bounds": {"spend": (0, 1)}, "resolution": {"spend": 0.001}}
    monkeypatch.setattr(people_batches, "rows_at_once", lambda _: rows)
    counted = count_pairs(str(file), ["layout", "price"], ["spend"], **choices)
    columns = pq.read_table(file, columns=["layout", "price", "spend"]).to_pydict()
    assert counted.total == MANY
    assert counted.tally(0, 1) == count_pairs(columns, ["layout", "price"], ["spend"], **choices).tally(0, 1)


def test_what_was_read_of_a_file_does_not_stay_in_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people_batches, "rows_at_once", lambda _: 1_000)
    people = ParquetPeople.open([file])
    assert people is not None
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in people._batches(people.columns)]
    assert len(held) == 40
    assert max(held) < file.stat().st_size / 4
