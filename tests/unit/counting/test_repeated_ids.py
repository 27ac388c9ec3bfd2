"""Columns that look like a person's id and repeat: rows are hardly people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import kanab as kb
from kanab.counting.repeated_ids import id_columns, repeated_in, repeats

VISITS: dict[str, Any] = {
    "user_id": [f"u{row // 2}" for row in range(400)],
    "variant": ["A", "A", "B", "B"] * 100,
    "spend": [row % 7 for row in range(400)],
}


@pytest.mark.parametrize("name", ["id", "user_id", "userId", "visitorID", "UUID", "anon-uuid", "customerid", "user id"])
def test_names_of_ids_are_known(name: str) -> None:
    assert id_columns([name], []) == [name]


@pytest.mark.parametrize("name", ["paid", "valid", "covid", "grid", "identity", "ids", "id_type", "Madrid"])
def test_other_names_are_not(name: str) -> None:
    assert id_columns([name], []) == []


def test_what_is_counted_is_no_id() -> None:
    assert id_columns(["user_id", "arm_id"], ["arm_id"]) == ["user_id"]


def test_a_few_rows_each_are_a_person_and_many_are_something_else() -> None:
    assert [repeats(1000, values, 10) for values in (1000, 991, 990, 200, 199, 3)] == [
        False, False, True, True, False, False,
    ]  # fmt: skip


def test_missing_ids_are_nobody() -> None:
    ids = np.array([*range(100), *[None] * 100, *[np.nan] * 100], dtype=object)
    assert not repeated_in(ids, 10)
    assert repeated_in(np.array([*ids, *range(50)], dtype=object), 10)


@pytest.mark.slow
def test_rows_counted_as_people_are_told_for_every_source_and_no_number_with_it(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    pd.DataFrame(VISITS).to_csv(file, index=False)
    for source in (VISITS, pd.DataFrame(VISITS), pl.DataFrame(VISITS), file):
        cautions = kb.readout(source, arm="variant", metrics=["spend"]).cautions
        caution = next(each for each in cautions if each.code == "rows-not-people")
        assert str(caution).startswith("Rows are not people: user_id looks like a person's id and repeats")
        assert "(--unit user_id)" in str(caution)
        assert not any(sign.isdigit() for sign in str(caution))
        cautions = kb.readout(source, arm="variant", metrics=["spend"], unit="user_id").cautions
        assert "rows-not-people" not in {each.code for each in cautions}


def test_one_row_per_person_is_no_reason_to_warn() -> None:
    once = VISITS | {"user_id": list(range(400))}
    assert kb.count(once, arm="variant", metrics=["spend"]).repeats == ()
    assert kb.count(once, arm="variant", metrics=["spend"], where="spend >= 0").repeats == ()
