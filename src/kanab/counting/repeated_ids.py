"""Find columns that look like a person's id and repeat, where every row was counted as a person."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kanab.counting.frames import Array

_PERSON = (
    "user|visitor|customer|client|member|person|session|account|subscriber|player|patient|participant|respondent|"
    "student|guest|buyer|shopper|cookie|e_?mail|login|user_?name|kunden?|nutzer|besucher|mitglied"
)
_ID = "id|uid|uuid|guid"
_IDS = re.compile(rf"(.*_)?({_ID})")
_PEOPLE = re.compile(
    rf"({_ID})"
    rf"|(the_|anonymous_|anon_|hashed_|unique_)?({_PERSON})(_({_PERSON}))*(_address|_hash)?"
    rf"|(.*_)?({_PERSON}|people|device|browser|anonymous|anon|subject)_?({_ID}|key|token)"
    r"|(.*_)?(customer|client|member|account|patient|kunden|mitglieds)_?(number|nummer|no|nr)"
)
"""Names of people: nothing that ends otherwise (user_type, session_count), and no rate such as spend_per_user."""

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+")
_FEWEST_REPEATS = 0.02
"""So many rows are doubles in many a clean table: errors are too small by a hundredth."""
_FEWEST_PEOPLE = 20
"""Fewer values than so many are kinds of people: a column ``customer`` that holds new and returning."""
_FEWEST_VALUES = 0.2
"""What any other id names has a few rows where it is a person; a shop has more."""
_MOST_COLUMNS = 3


def id_columns(columns: Iterable[str], used: Sequence[str]) -> list[str]:
    """Return the columns whose names are those of ids, people's first, but for those that are counted."""
    ids = [name for name in columns if name not in used and (names_people(name) or _IDS.fullmatch(_words(name)))]
    return sorted(ids, key=names_people, reverse=True)[:_MOST_COLUMNS]


def names_people(column: str) -> bool:
    """Return whether a column's name is one of people."""
    return _PEOPLE.fullmatch(_words(column)) is not None


def _words(column: str) -> str:
    """Return the words of a column's name in lower case."""
    return _WORDS.sub("_", column).strip("_").lower()


def repeats(column: str, rows: int, values: int, k: int) -> bool:
    """Return whether a column of ids has several rows for each, so that rows are hardly people."""
    fewest = _FEWEST_PEOPLE if names_people(column) else _FEWEST_VALUES * rows
    return rows - values >= max(k, _FEWEST_REPEATS * rows) and values >= fewest


def repeated_in(column: str, values: Array, k: int) -> bool:
    """Return whether the ids of a column in memory repeat; fractions are no ids."""
    known = [value for value in values.tolist() if value is not None and value == value]  # noqa: PLR0124 - not NaN
    if any(isinstance(value, float) and not value.is_integer() for value in known):
        return False
    return repeats(column, len(known), len(set(known)), k)


def repeated_by_engine(rows: Any, names: Sequence[str], k: int) -> tuple[str, ...]:
    """Return which columns of ids repeat in an Ibis table, in one query."""
    from kanab.counting.engine.dialects import first_row  # noqa: PLC0415 - needs the [sql] extra

    kinds = {name: rows[name].type() for name in names}
    ids = [
        name
        for name, kind in kinds.items()
        if kind.is_string() or kind.is_integer() or kind.is_floating() or kind.is_uuid()
    ]
    if not ids:
        return ()
    answers = {}
    for place, name in enumerate(ids):
        column = rows[name]
        known = None
        if column.type().is_floating():  # of pandas, which has no whole numbers with gaps
            known = column - column == 0  # neither NaN nor infinite
            answers[f"parts{place}"] = (column != column.floor()).cast("int32").max(where=known)
        answers |= {f"rows{place}": column.count(where=known), f"values{place}": column.nunique(where=known)}
    row = first_row(rows.aggregate(**answers))
    return tuple(
        name
        for place, name in enumerate(ids)
        if not row.get(f"parts{place}") and repeats(name, int(row[f"rows{place}"]), int(row[f"values{place}"]), k)
    )
