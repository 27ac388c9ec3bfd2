"""Find columns that look like a person's id and repeat, where every row was counted as a person."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kanab.counting.frames import Array

_ID = re.compile(
    r"(?i:^(.*[\W_])?(id|uid|uuid|guid)$)|(?:Id|ID|UUID)$"
    r"|(?i:^(user|visitor|customer|client|person|member|player|patient|subject|account|device)s?id$)"
)
_FEWEST_VALUES = 0.2
"""A person has a few rows; what has more, such as a shop, names something else."""
_MOST_COLUMNS = 3


def id_columns(columns: Iterable[str], used: Sequence[str]) -> list[str]:
    """Return the columns whose names are those of ids, but for those that are counted.

    >>> id_columns(["user_id", "userId", "uuid", "paid", "covid", "arm_id"], ["arm_id"])
    ['user_id', 'userId', 'uuid']
    """
    return [name for name in columns if _ID.search(name) and name not in used][:_MOST_COLUMNS]


def repeats(rows: int, values: int, k: int) -> bool:
    """Return whether a column of ids has a few rows for each, so that rows are hardly people.

    >>> repeats(1000, 400, 10), repeats(1000, 995, 10), repeats(1000, 12, 10)
    (True, False, False)
    """
    return rows - values >= k and values >= _FEWEST_VALUES * rows


def repeated_in(column: Array, k: int) -> bool:
    """Return whether the ids of a column in memory repeat."""
    known = [value for value in column.tolist() if value is not None and value == value]  # noqa: PLR0124 - not NaN
    return repeats(len(known), len(set(known)), k)


def repeated_by_engine(rows: Any, names: Sequence[str], k: int) -> tuple[str, ...]:
    """Return which columns of ids repeat in an Ibis table, in one query."""
    from kanab.counting.engine.dialects import first_row  # noqa: PLC0415 - needs the [sql] extra

    ids = [name for name in names if rows[name].type().is_string() or rows[name].type().is_integer()]
    if not ids:
        return ()
    counts = {f"rows{place}": rows[name].count() for place, name in enumerate(ids)}
    values = {f"values{place}": rows[name].nunique() for place, name in enumerate(ids)}
    row = first_row(rows.aggregate(**counts, **values))
    return tuple(
        name for place, name in enumerate(ids) if repeats(int(row[f"rows{place}"]), int(row[f"values{place}"]), k)
    )
