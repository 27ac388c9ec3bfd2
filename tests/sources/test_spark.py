"""What goes wrong on Spark: cancelled jobs, files that disagree, numbers beyond its decimals, a master that is away."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kanab.counting.connect import open_table
from kanab.counting.engine.sql import count_table
from kanab.description import Mean
from kanab.errors import KanabError, QueryError, SourceError
from kanab.plan.model import make_plan
from kanab.scan.count import engine_people
from kanab.scan.count.pair_counting import count_pairs

PLAN = make_plan("variant", [Mean("spend", bounds=(0, 100), resolution=1.0)])


@pytest.mark.slow
def test_a_cancelled_job_is_an_error_and_the_next_one_counts(spark_session: Any) -> None:
    rows = spark_session.range(200_000).selectExpr(
        "if(id % 2 = 0, 'A', 'B') AS variant", "id % 7 AS spend", "id % 3 AS b"
    )
    people = open_table(rows)
    done = threading.Event()

    def cancel() -> None:
        while not done.wait(0.02):
            spark_session.sparkContext.cancelAllJobs()

    for count in (lambda: count_table(people, PLAN), lambda: count_pairs(people, ["variant", "b"], ["spend"])):
        done.clear()
        canceller = threading.Thread(target=cancel)
        canceller.start()
        try:
            with pytest.raises(QueryError):
                count()
        finally:
            done.set()
            canceller.join()
    assert count_table(people, PLAN).tallies["variant"].total == 200_000
    assert count_pairs(people, ["variant", "b"], ["spend"]).total == 200_000


@pytest.mark.parametrize("other", [["secret"] * 4, [0.5] * 4])
def test_a_column_that_changes_its_type_between_files_is_an_error(
    spark_session: Any, tmp_path: Path, other: list[Any]
) -> None:
    pq.write_table(
        pa.table({"variant": list("ABAB"), "b": [0, 0, 1, 1], "spend": [1, 2, 3, 4]}), tmp_path / "1.parquet"
    )
    pq.write_table(pa.table({"variant": list("ABAB"), "b": [0, 0, 1, 1], "spend": other}), tmp_path / "2.parquet")
    people = open_table(spark_session.read.schema("variant string, b long, spend long").parquet(str(tmp_path)))
    for count in (lambda: count_table(people, PLAN), lambda: count_pairs(people, ["variant", "b"], ["spend"])):
        with pytest.raises(SourceError) as caught:
            count()
        assert "secret" not in str(caught.value)


@pytest.mark.slow
def test_sums_beyond_the_decimals_of_spark_are_an_error(spark_session: Any) -> None:
    most = 2**53 - 1
    rows = spark_session.range(1_300_000).selectExpr("if(id % 2 = 0, 'A', 'B') AS variant", f"{most} - id % 2 AS big")
    with pytest.raises(KanabError) as caught:
        count_table(open_table(rows), make_plan("variant", ["big"]))
    assert str(most) not in str(caught.value)


@pytest.mark.slow
def test_sums_of_more_partitions_than_one_worker_adds_are_those_of_all_people(
    spark_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_people, "_PARTS_AT_ONCE", 3)  # ten become four, two, one; 70 take Spark a minute
    rows = spark_session.range(0, 7_000, numPartitions=10).selectExpr(
        "if(id % 2 = 0, 'A', 'B') AS variant", "id % 3 AS b", "(id % 97) / 4 AS spend", "id % 5 = 0 AS bought"
    )
    ids = np.arange(7_000)
    arms = np.where(ids % 2 == 0, "A", "B")
    people = {"variant": arms, "b": ids % 3, "spend": ids % 97 / 4, "bought": ids % 5 == 0}
    assert rows.rdd.getNumPartitions() == 10
    counts = [
        count_pairs(
            source, ["variant", "b"], ["spend", "bought"], bounds={"spend": (0, 25)}, resolution={"spend": 0.25}
        )
        for source in (open_table(rows), people)
    ]
    ours, theirs = (pairs.tally(0, 1) for pairs in counts)
    assert ours.total == 7_000
    assert ours == theirs


def test_a_master_that_is_away_is_told_at_once() -> None:
    with pytest.raises(SourceError, match=r"no connection to spark://127\.0\.0\.1:9"):
        open_table("spark://127.0.0.1:9", table="people")
