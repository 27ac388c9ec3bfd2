"""Check whether several people share what arms were assigned by, such as a household or a device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from os import PathLike
from typing import Any

import numpy as np

from kanab.counting.dispatch import SourceOptions, joined_rows
from kanab.counting.frames import check_column, encode, get_columns


def people_share(source: Any, by: str, arms: Sequence[str], options: SourceOptions, k: int) -> bool:
    """Return whether there are at least k people more than there are values of a column.

    Only people in an arm count, and only those whose value is known. Nothing says how many people there
    are, nor how many share.

    >>> rows = {"variant": ["A", "B"] * 50, "household": [i // 4 for i in range(100)]}
    >>> people_share(rows, "household", ["variant"], SourceOptions(), 10)
    True
    """
    in_memory = not isinstance(source, (str, PathLike)) and not options.needs_engine
    if in_memory and type(source).__module__.partition(".")[0] not in ("ibis", "pyspark"):
        people, clusters = _in_memory(source, by, arms)
    else:
        people, clusters = _by_engine(source, by, arms, options)
    return people - clusters >= k


def _in_memory(source: Any, by: str, arms: Sequence[str]) -> tuple[int, int]:
    """Count the people and the values in a dict or a frame, one row per person."""
    data = source.collect() if hasattr(source, "collect") else source
    table = {name: encode(values, name) for name, values in get_columns(data, [by, *arms]).items()}
    known = {name: np.array([level is not None for level in levels])[codes] for name, (codes, levels) in table.items()}
    there = known[by] & reduce(or_, (known[name] for name in arms), np.array(not arms))
    return int(there.sum()), len(np.unique(table[by][0][there]))


def _by_engine(source: Any, by: str, arms: Sequence[str], options: SourceOptions) -> tuple[int, int]:
    """Count the people and the values in one query, over the rows that are counted."""
    from kanab.counting.connect import opened_table  # noqa: PLC0415 - needs the [sql] extra
    from kanab.counting.engine.dialects import first_row  # noqa: PLC0415
    from kanab.counting.engine.filters import filter_rows  # noqa: PLC0415

    with opened_table(source, table=options.table, sql=options.sql, form=options.form) as opened:
        table = joined_rows(opened, options)
        check_column(by, table.columns)
        rows = filter_rows(table, options.where) if options.where else table
        rows = rows.filter(rows[by].notnull())
        if arms:
            rows = rows.filter(reduce(or_, (rows[name].notnull() for name in arms)))
        people = rows.count() if options.unit is None else rows[options.unit].nunique()
        row = first_row(rows.aggregate(people=people, clusters=rows[by].nunique()))
    return int(row["people"]), int(row["clusters"])
