"""People are read some at a time, however many there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kanab.scan.count import people_batches
from kanab.scan.count.pair_counting import count_pairs
from kanab.scan.count.people_batches import ParquetPeople

PEOPLE = 40_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of 40 row groups whose numbers cannot be compressed."""
    rng = np.random.default_rng(1)
    columns = {"layout": rng.integers(0, 2, PEOPLE), "price": rng.integers(0, 3, PEOPLE), "spend": rng.random(PEOPLE)}
    columns |= {f"other{place}": rng.random(PEOPLE) for place in range(20)}
    pq.write_table(pa.table(columns), tmp_path / "people.parquet", row_group_size=1_000)
    return tmp_path / "people.parquet"


@pytest.mark.parametrize("rows", [700, 2_500, 1 << 17])
def test_row_groups_are_read_in_runs_and_nobody_is_lost(file: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    choices = {"bounds": {"spend": (0, 1)}, "resolution": {"spend": 0.001}}
    monkeypatch.setattr(people_batches, "rows_at_once", lambda _: rows)
    counted = count_pairs(str(file), ["layout", "price"], ["spend"], **choices)
    columns = pq.read_table(file, columns=["layout", "price", "spend"]).to_pydict()
    assert counted.total == PEOPLE
    assert counted.tally(0, 1) == count_pairs(columns, ["layout", "price"], ["spend"], **choices).tally(0, 1)


def test_what_was_read_of_a_file_does_not_stay_in_memory(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people_batches, "rows_at_once", lambda _: 1_000)
    people = ParquetPeople.open([file])
    assert people is not None
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in people._batches(people.columns)]
    assert len(held) == 40
    assert max(held) < file.stat().st_size / 4
