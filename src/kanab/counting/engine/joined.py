"""Join what is known of people elsewhere, such as a file of countries, onto their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kanab.counting.engine.dialects import first_row
from kanab.counting.engine.group_keys import kind_of
from kanab.counting.frames import check_column
from kanab.errors import SourceError, listed


def join_table(people: Any, other: Any, on: Sequence[str] | str | None) -> Any:
    """Return the rows of a table with the columns of another one, whose rows share the columns ``on``.

    Every row stays; where the other table has no match its columns are missing. Raises `SourceError`
    where it names somebody twice or nobody at all, or both tables have a further column of one name.
    """
    keys = [on] if isinstance(on, str) else list(on or ())
    for table in (people, other):
        for key in keys:
            check_column(key, table.columns)
    for key in keys:
        if (kind_of(people, key) == "text") != (kind_of(other, key) == "text"):
            raise SourceError(
                f"{key!r} holds texts in one table and numbers in the other", "Write it alike in both: 007 is a text."
            )
    twice = [name for name in other.columns if name in people.columns and name not in keys]
    if twice:
        raise SourceError(f"both tables have a column {listed(twice)}", "Rename or remove it in one of them.")
    known = other.filter(*(other[key].notnull() for key in keys))
    distinct = known.select(*keys).distinct()
    if _rows(known) != _rows(distinct):
        raise SourceError(
            f"the joined table has several rows with one {listed(keys)}",
            "Give each once: which of them counts is not for us to choose.",
        )
    if not _rows(people.semi_join(known, keys).limit(1)):
        raise SourceError(f"no {listed(keys)} of the joined table is in the source", "Check that both name it alike.")
    renamed = known.rename({f"{key}_kanab": key for key in keys})
    joined = people.left_join(renamed, [people[key] == renamed[f"{key}_kanab"] for key in keys])
    return joined.select(*people.columns, *(name for name in other.columns if name not in keys))


def _rows(table: Any) -> int:
    return int(first_row(table.aggregate(rows=table.count()))["rows"])
