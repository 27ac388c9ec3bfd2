"""All pairs at once: the same integers from every engine, files and frames."""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
