"""What SQLite lacks, as functions of its connection: sums beyond 64 bits, and points in time.

Its own sums stop at 64 bits with an error. So everybody's integers are added in two halves, which is quick, and only
the few totals go through Python. Points in time are texts there, of several forms, and become whole microseconds.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import ibis

from kanab.errors import SourceError

_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@ibis.udf.scalar.builtin(name="kanab_total")  # type: ignore[untyped-decorator]
def from_words(high: int, low: int) -> str:  # type: ignore[empty-body]
    """Return a total as text, from those of the high and the low 32 bits."""


@ibis.udf.scalar.builtin(name="kanab_moment")  # type: ignore[untyped-decorator]
def from_text(moment) -> int:  # type: ignore[no-untyped-def, empty-body]
    """Return the microseconds of a point in time from 1970-01-01 in UTC; a text that is none is an error."""


@ibis.udf.scalar.builtin(name="typeof")  # type: ignore[untyped-decorator]
def storage(value) -> str:  # type: ignore[no-untyped-def, empty-body]
    """Return how a value is stored, which is not always what its column was declared to hold."""


def without_collation(text: Any) -> Any:
    """Return texts that are compared letter by letter, whatever rule their column was declared with."""
    return text.concat("")


def add_functions(backend: Any) -> None:
    """Add our functions to a connection that does not have them."""
    connection = backend.con
    ours = connection.execute("SELECT 1 FROM pragma_function_list WHERE name = 'kanab_total'").fetchone()
    if ours is None:
        connection.create_function("kanab_moment", 1, _moment, deterministic=True)
        connection.create_aggregate("kanab_sum", 1, _Sum)
        connection.create_function("kanab_total", 2, _total, deterministic=True)


def check_storage(table: Any, names: Iterable[str]) -> None:
    """Raise `SourceError` where a column of numbers holds something else: SQLite keeps whatever it is given."""
    columns = {name: kind for name, kind in table.schema().items() if name in set(names) and kind.is_numeric()}
    wanted = {
        name: ["integer", "null"] if kind.is_integer() else ["integer", "real", "null"]
        for name, kind in columns.items()
    }
    strange = {
        f"strange{place}": storage(table[name]).notin(kinds).cast("int32").max()
        for place, (name, kinds) in enumerate(wanted.items())
    }
    if not strange:
        return
    backend = table.get_backend()
    row = backend.raw_sql(backend.compile(table.aggregate(**strange))).fetchone()
    for name, there in zip(columns, row, strict=True):
        if there:
            raise SourceError(
                f"column {name!r} holds something other than it was declared to",
                "SQLite keeps texts in columns of numbers, and fractions in those of integers: "
                f"look for them with typeof({name}).",
            )


def _total(high: int | None, low: int | None) -> str | None:
    return None if high is None or low is None else str((high << 32) + low)


class _Sum:
    """The sum of whole numbers of any size, some of them texts; nothing where there is none."""

    def __init__(self) -> None:
        self.total: int | None = None

    def step(self, value: int | str | None) -> None:
        if value is not None:
            self.total = (self.total or 0) + int(value)

    def finalize(self) -> str | None:
        return None if self.total is None else str(self.total)


def _moment(text: str | None) -> int | None:
    """Return microseconds from 1970-01-01 in UTC."""
    if text is None:
        return None
    moment = datetime.fromisoformat(text.strip())
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _FIRST) // _MICROSECOND
