"""All pairs at once: the same integers from every engine, files and frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.shop import assert_same_pairs

from kanab.errors import GridError, QueryError, SourceError
from kanab.scan.count import engine_people
from kanab.scan.count.pair_counting import count_pairs
from kanab.scan.pair_tables import Pairs
from kanab.tally.metric import Metric

from .conftest import ALL_ENGINES, Loader

TESTS = 40


@pytest.fixture(params=ALL_ENGINES, name="engine")
def each_engine(request: pytest.FixtureRequest) -> Loader:
    """Each engine in turn, not only the three that most tests are about."""
    return request.getfixturevalue(f"{request.param}_loader")


def people_of(people: int = 700, seed: int = 3) -> pa.Table:
    """Forty experiments of two to four arms, of all kinds of values, with and without people missing."""
    rng = np.random.default_rng(seed)

    def some(values: Any, share: float) -> pa.Array:
        return pa.array(list(values), mask=rng.random(people) < share)

    columns: dict[str, Any] = {"who": np.arange(people)}
    for place in range(TESTS):
        arms, share = 2 + place % 3, 0.25 * (place % 4 == 0)
        codes = rng.integers(0, arms, people)
        named = np.array(["off", "on", "both", "none"])[codes]
        columns[f"test_{place:02d}"] = some((codes, named, codes * 1.0, codes == 0)[place // 3 % 4], share)
    spend = np.round(rng.gamma(1.2, 20, people), 2)
    return pa.table(
        columns
        | {
            "spend": some(spend, 0.1),
            "balance": some(np.round(rng.normal(-5, 80, people), 2), 0.1),
            "orders": pa.array(rng.poisson(1.3, people)),
            "bought": pa.array(spend > 15),
            "huge": pa.array(1e9 + rng.normal(0, 1, people)),
            "rating": some(rng.integers(1, 6, people), 0.5),
        }
    )


PEOPLE = people_of()
METRICS = ["spend", "balance", "orders", "bought", "huge", "rating"]
CHOICES: dict[str, Any] = {"missing": {"rating": "exclude"}, "bounds": {"balance": (-100, 100)}}


@pytest.fixture(scope="module")
def expected() -> Pairs:
    return count_pairs(PEOPLE, "test_*", METRICS, **CHOICES)


def test_every_engine_gives_the_same_integers(engine: Loader, expected: Pairs) -> None:
    calls = []
    table = engine.load(PEOPLE)
    found = count_pairs(table, "test_*", METRICS, progress=lambda *seen: calls.append(seen), **CHOICES)
    assert_same_pairs(found, expected)
    assert calls[-1] == (700, 700)


def test_a_filter_chooses_people_in_every_engine(engine: Loader) -> None:
    some = PEOPLE.filter(pc.greater(PEOPLE["orders"], 0))
    found = count_pairs(engine.load(PEOPLE), ["test_0?"], ["spend", "bought"], where="orders > 0")
    assert_same_pairs(found, count_pairs(some, ["test_0?"], ["spend", "bought"]))


def test_several_rows_of_a_person_become_one_in_every_engine(engine: Loader) -> None:
    rows = pa.concat_tables([PEOPLE.select(["who", "test_01", "test_04", "test_07", "spend", "bought"])] * 2)
    extra = pa.table(
        {
            "who": [3, 4], "test_01": [None, None], "test_04": ["on", "off"], "test_07": [None, None],
            "spend": [1.0, None], "bought": [True, False],
        },
        schema=rows.schema,
    )  # fmt: skip
    rows = pa.concat_tables([rows, extra])
    arms = [PEOPLE["test_04"][who].as_py() for who in (3, 4)]
    twice = [(arm is not None) and arm != new for arm, new in zip(arms, ("on", "off"), strict=True)]
    assert any(twice)
    once = PEOPLE.to_pandas()
    for who, new, out in zip((3, 4), ("on", "off"), twice, strict=True):
        once.loc[who, "test_04"] = None if out else new
    once["spend"] *= 2
    once.loc[3, "spend"] = (0 if np.isnan(once.loc[3, "spend"]) else once.loc[3, "spend"]) + 1
    once.loc[3, "bought"] = True
    once["spend"] = once["spend"].round(2)
    expected = count_pairs(
        once, ["test_01", "test_04", "test_07"], ["spend", "bought"], missing={"spend": "zero", "bought": "zero"}
    )
    found = count_pairs(engine.load(rows), ["test_01", "test_04", "test_07"], ["spend", "bought"], unit="who")
    assert_same_pairs(found, expected)


def long_shape() -> tuple[pa.Table, pa.Table]:
    """The same people as a row per assignment, and a row or two per person with metrics."""
    assigned: dict[str, list[Any]] = {"user": [], "experiment": [], "arm": []}
    for place in range(TESTS):
        name = f"test_{place:02d}"
        for who, arm in enumerate(PEOPLE[name].to_pylist()):
            if arm is not None and place // 3 % 4 == 1:  # those whose arms are texts
                for column, value in zip(assigned, (who, name, arm), strict=True):
                    assigned[column].append(value)
    for column, value in zip(assigned, (5, "test_05", "none of these"), strict=True):
        assigned[column].append(value)
    return pa.table(assigned), PEOPLE.select(["who", "spend", "bought", "rating"])


def test_a_row_per_assignment_becomes_a_row_per_person_in_every_engine(engine: Loader) -> None:
    assigned, values = long_shape()

    def count() -> Pairs:
        return count_pairs(
            engine.store(values), "test_*", ["spend", "bought", "rating"], unit="who",
            missing={"rating": "exclude"}, assignments=(engine.store(assigned), "user", "experiment", "arm"),
        )  # fmt: skip

    if engine.name in ("sqlite", "mysql"):
        with pytest.raises(SourceError, match=r"has no lists.* Give a row per person, with a column per experiment"):
            count()
        return
    found = count()
    wide = PEOPLE.to_pandas()
    names = [f"test_{place:02d}" for place in range(TESTS) if place // 3 % 4 == 1]
    wide.loc[5, "test_05"] = None  # seen in two arms
    alone = wide.groupby("who").first()[names].notna().sum(axis=1)
    rules = {"spend": "zero", "bought": "zero", "rating": "exclude"}
    expected = count_pairs(wide, names, ["spend", "bought", "rating"], missing=rules)
    assert alone.min() > 0
    assert_same_pairs(found, expected)


# ── everybody at once, against SQL ─────────────────────────────────────────────────────────────


# ── one engine at a time ───────────────────────────────────────────────────────────────────────


def test_a_connection_is_read_by_its_url(postgres_url: str, postgres_loader: Loader, tmp_path: Path) -> None:
    table = postgres_loader.load(PEOPLE)
    expected = count_pairs(PEOPLE, "test_0*", ["spend"])
    assert_same_pairs(count_pairs(postgres_url, "test_0*", ["spend"], table=table.get_name()), expected)
    with duckdb.connect(tmp_path / "shop.duckdb") as connection:
        connection.register("arrow", PEOPLE)
        connection.execute("CREATE TABLE people AS SELECT * FROM arrow")
    place = f"duckdb://{tmp_path / 'shop.duckdb'}"
    assert_same_pairs(count_pairs(place, "test_0*", ["spend"], table="people"), expected)
    found = count_pairs(place, "test_0*", ["spend"], sql="SELECT * FROM people WHERE orders > 0")
    assert_same_pairs(found, count_pairs(PEOPLE.filter(pc.greater(PEOPLE["orders"], 0)), "test_0*", ["spend"]))


def test_what_is_wrong_with_the_data_comes_back_from_every_engine(engine: Loader) -> None:
    infinite = 1.0 if engine.name == "mysql" else float("inf")
    table = engine.load(PEOPLE.append_column("late", pa.array([infinite] + [0.0] * 699)))
    with pytest.raises(SourceError, match="'who' has more than 8 arms"):
        count_pairs(table, ["test_01", "who"])
    if engine.name != "mysql":
        with pytest.raises(SourceError, match="metric 'late' holds infinite values"):
            count_pairs(table, ["test_01", "test_02"], ["late"])
    with pytest.raises(GridError, match="too large for its grid"):
        count_pairs(table, ["test_01", "test_02"], {"huge": Metric("huge", 2**30)})
    with pytest.raises(SourceError, match="not a condition"):
        count_pairs(table, ["test_01", "test_02"], where="nonsense =")
    with pytest.raises(SourceError, match="no rows to count"):
        count_pairs(table, ["test_01", "test_02"], where="who < 0")
    with pytest.raises(SourceError, match="nobody is in an arm"):
        count_pairs(table, ["test_00", "test_12"], where="test_00 IS NULL AND test_12 IS NULL")


def test_a_query_that_fails_says_nothing_of_the_data(duckdb_loader: Loader) -> None:
    table = duckdb_loader.load({"a": [0, 1, 0, 1], "b": [0, 0, 1, 1], "text": ["1", "2", "3", "secret"]})
    wrong = table.mutate(y=table["text"].cast("int64"))
    with pytest.raises(QueryError) as caught:
        count_pairs(wrong, ["a", "b"], {"y": Metric("y")})
    assert "secret" not in str(caught.value)


def test_workers_of_spark_without_kanab_are_told(spark_loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("ModuleNotFoundError: No module named 'kanab'")

    monkeypatch.setattr(engine_people, "_Partition", fail)
    with pytest.raises(SourceError, match="workers of Spark cannot load kanab"):
        count_pairs(spark_loader.load(PEOPLE), ["test_01", "test_02"])


# ── assignments ────────────────────────────────────────────────────────────────────────────────


def test_assignments_are_read_from_files_and_frames(tmp_path: Path) -> None:
    assigned, values = long_shape()
    pq.write_table(assigned, tmp_path / "assigned.parquet")
    pq.write_table(values, tmp_path / "values.parquet")
    columns = ("user", "experiment", "arm")
    expected = count_pairs(values, "test_*", ["spend"], unit="who", assignments=(assigned, *columns))
    assert (expected.total, len(expected.experiments)) == (700, 10)
    found = count_pairs(
        tmp_path / "values.parquet", "test_*", ["spend"], unit="who",
        assignments=(tmp_path / "assigned.parquet", *columns),
    )  # fmt: skip
    assert_same_pairs(found, expected)
    found = count_pairs(values, "test_*", ["spend"], unit="who", assignments=(assigned.to_pydict(), *columns))
    assert_same_pairs(found, expected)


@pytest.mark.parametrize("kind", ["whole", "number", "truth"])
def test_arms_of_assignments_may_be_numbers_or_truths(kind: str) -> None:
    values = pa.table({"user": ["u", "v", "w", "x", "nobody"], "y": [1, 2, 3, 4, 5]})
    arms = {"whole": [0, 1, 0, 1, 0, 0, 1, 1], "number": [0.0, 1, 0, 1, 0, 0, 1, 1]}
    arms["truth"] = [bool(arm) for arm in arms["whole"]]
    assigned = pa.table({"user": list("uvwxuvwx"), "experiment": ["a"] * 4 + ["b"] * 4, "arm": arms[kind]})
    found = count_pairs(values, ["a", "b"], ["y"], assignments=(assigned, "user", "experiment", "arm"))
    assert found.experiments[0].levels == ((False, True) if kind == "truth" else (0, 1))
    assert found.moments[0].sums[0:2, 2:4].tolist() == [[1, 3], [2, 4]]
    assert found.total == 4


def test_several_rows_of_metrics_are_added_up_for_assigned_people() -> None:
    values = {"who": [1, 2, 3, 4, 4, None], "y": [1, 2, 3, 4, 10, 99]}
    assigned = {"user": [1, 2, 3, 4, 1, 2, 3, 4], "experiment": ["a"] * 4 + ["b"] * 4, "arm": list("xyxyxxyy")}
    columns = (assigned, "user", "experiment", "arm")
    found = count_pairs(values, "*", ["y"], unit="who", assignments=columns)
    assert found.moments[0].sums[0:2, 2:4].tolist() == [[1, 3], [2, 14]]
    found = count_pairs(values, "*", ["y"], unit="who", aggregate="max", assignments=columns)
    assert found.moments[0].sums[0:2, 2:4].tolist() == [[1, 3], [2, 10]]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"assignments": "table"}, "not a table and three of its columns"),
        ({"assignments": ({"user": [1]}, "user")}, "not a table and three of its columns"),
        (
            {"assignments": ({"user": [1], "e": ["a"], "arm": [0]}, "user", "experiment", "arm")},
            "no column 'experiment'",
        ),
        ({"where": "y > 0"}, "a filter could mean either table"),
        ({"experiments": ["a", "c"]}, "no column 'c'"),
        ({"unit": "y"}, "hold different kinds of values"),
    ],
)
def test_mistakes_in_assignments_are_told(choices: dict[str, Any], message: str) -> None:
    values = {"user": ["1", "2"], "y": [1, 2]}
    assigned = {"user": ["1", "2"] * 2, "experiment": ["a", "a", "b", "b"], "arm": [0, 1, 0, 1]}
    given = {"experiments": ["a", "b"], "metrics": ["y"], "assignments": (assigned, "user", "experiment", "arm")}
    with pytest.raises(SourceError, match=message):
        count_pairs(values, **(given | choices))


def test_an_experiment_of_too_many_arms_is_told_by_its_name() -> None:
    assigned = {"user": list(range(40)), "experiment": ["a", "b"] * 20, "arm": list(range(20)) * 2}
    with pytest.raises(SourceError, match=r"experiment '[ab]' has more than 8 arms"):
        count_pairs({"user": [1], "y": [1]}, "*", ["y"], assignments=(assigned, "user", "experiment", "arm"))


def test_assignments_and_metrics_come_from_one_place(postgres_loader: Loader, duckdb_loader: Loader) -> None:
    assigned, values = long_shape()
    columns = ("user", "experiment", "arm")
    for other in (assigned, duckdb_loader.load(assigned)):
        with pytest.raises(SourceError, match="in different places"):
            count_pairs(postgres_loader.load(values), "*", ["spend"], unit="who", assignments=(other, *columns))
