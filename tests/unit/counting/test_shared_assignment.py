from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kanab.counting.dispatch import SourceOptions
from kanab.counting.shared_assignment import people_share
from kanab.errors import SourceError


def homes(size: int) -> dict[str, Any]:
    """600 people, so many to a home; every tenth is in no arm."""
    place = np.arange(600)
    arm = np.where(place % 10 == 0, None, np.where(place // size % 2 == 0, "A", "B"))
    return {"person": place, "home": [f"h{i // size}" for i in place], "variant": arm}


def as_polars_lazy(rows: dict[str, Any]) -> Any:
    return pl.DataFrame({name: list(values) for name, values in rows.items()}).lazy()


MAKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dict": lambda rows: rows,
    "pandas": pd.DataFrame,
    "polars, lazy": as_polars_lazy,
    "arrow": lambda rows: pa.table({name: list(values) for name, values in rows.items()}),
    "ibis": lambda rows: ibis.memtable(pa.table({name: list(values) for name, values in rows.items()})),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(("size", "shared"), [(1, False), (3, True)])
def test_people_of_one_home_are_found_in_every_source(
    make: Callable[[dict[str, Any]], Any], size: int, shared: bool
) -> None:
    assert people_share(make(homes(size)), "home", ["variant"], SourceOptions(), 10) is shared


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_and_conditions_are_looked_at_by_an_engine(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"people.{kind}"
    frame = pd.DataFrame(homes(3))
    frame.to_csv(file, index=False) if kind == "csv" else frame.to_parquet(file)
    assert people_share(str(file), "home", ["variant"], SourceOptions(), 10)
    assert not people_share(file, "home", ["variant"], SourceOptions(where="person % 3 = 1"), 10)


def test_rows_of_one_person_are_one_person() -> None:
    rows = {name: np.repeat(values, 4) for name, values in homes(1).items()}
    assert people_share(rows, "home", ["variant"], SourceOptions(), 10)
    assert not people_share(rows, "home", ["variant"], SourceOptions(unit="person"), 10)
    shared = {name: np.repeat(values, 4) for name, values in homes(3).items()}
    assert people_share(shared, "home", ["variant"], SourceOptions(unit="person"), 10)
    assert not people_share(shared, "home", ["variant"], SourceOptions(unit="home"), 10)


def test_fewer_than_k_people_who_share_are_not_mentioned() -> None:
    rows = {"home": [*range(91), *range(9)], "variant": ["A", "B"] * 50}
    assert not people_share(rows, "home", ["variant"], SourceOptions(), 10)
    assert people_share(rows, "home", ["variant"], SourceOptions(), 9)


def test_people_in_no_arm_and_homes_that_nobody_knows_do_not_count() -> None:
    rows = {"home": [1, 1] * 20 + [None] * 60, "variant": ["A", None] * 20 + ["A", "B"] * 30}
    for options in (SourceOptions(), SourceOptions(where="1 = 1")):
        assert not people_share(rows | {"home": np.arange(100) // 2}, "home", ["variant"], options, 31)
        assert people_share(rows, "home", ["variant"], options, 19)
        assert not people_share(rows, "home", ["variant"], options, 20)


@pytest.mark.parametrize("options", [SourceOptions(), SourceOptions(where="1 = 1")])
def test_an_unknown_column_is_refused_with_its_neighbours(options: SourceOptions) -> None:
    with pytest.raises(SourceError, match=r"there is no column 'hom'\. Did you mean home"):
        people_share(homes(3), "hom", ["variant"], options, 10)
