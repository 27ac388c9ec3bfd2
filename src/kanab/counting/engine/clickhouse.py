"""Make ClickHouse count as SQL says: casts that fail, signed absolute values, joins and aggregates that know NULL.

Left to itself it casts 2^63 and 1e30 to other integers, casts what stands behind a NULL, returns unsigned absolute
values, fills left joins with 0 and '', and says that the largest of no numbers is 0.
"""

from collections.abc import Mapping
from typing import Any

import ibis
import ibis.expr.operations as ops

from kanab.errors import SourceError

_LONG = 100_000_000
_SOME_DAY = "1970-01-01"

_MEANING = {
    "join_use_nulls": 1,
    "aggregate_functions_null_for_empty": 1,
    "group_by_use_nulls": 0,
    "transform_null_in": 0,
    "decimal_check_overflow": 1,
    "prefer_column_name_to_alias": 1,
    "limit": 0,
    "offset": 0,
    "short_circuit_function_evaluation": "enable",
} | {
    f"{step}_overflow_mode": "throw"
    for step in ("distinct", "group_by", "join", "read", "read_leaf", "result", "set", "sort", "timeout")
}
"""Settings that decide what an answer says; some servers have others, or answer in part where it gets long."""

_ROOM = {"max_query_size": _LONG, "max_ast_elements": _LONG, "max_expanded_ast_elements": _LONG}
"""Settings that decide how long a statement may be: one for many tables has more than 256 KiB."""


def run(backend: Any, text: str) -> Any:
    """Run a query with the settings that give it its meaning; raise `SourceError` where the user may not have them."""
    return backend.raw_sql(text, settings=needed_settings(backend.con.server_settings))


def needed_settings(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return what has to be sent with a query: what is otherwise on the server, as far as the user may change it."""
    wanted = {}
    for name, value in (_MEANING | _ROOM).items():
        known = server.get(name)
        if known is None or str(known.value) == str(value):
            continue
        if not known.readonly:
            wanted[name] = value
        elif name in _MEANING:
            raise SourceError(
                f"ClickHouse's setting {name} is not {value}, and its user may not change it",
                "Set it in the user's profile, or let the user change settings (readonly = 2).",
            )
    return wanted


@ibis.udf.scalar.builtin(name="accurateCast", signature=(("float64", "string"), "int64"))  # type: ignore[untyped-decorator]
def _accurate_cast(value: Any, kind: Any) -> Any:
    """Return an integer; fail where it would be another number."""


@ibis.udf.scalar.builtin(name="parseDateTime64", signature=(("string", "string"), "timestamp"))  # type: ignore[untyped-decorator]
def _parse_day(text: Any, form: Any) -> Any:
    """Return the beginning of a day; fail where there is no such day."""


@ibis.udf.scalar.builtin(name="parseDateTime64BestEffort", signature=(("string", "int8"), "timestamp"))  # type: ignore[untyped-decorator]
def _parse_time(text: Any, digits: Any) -> Any:
    """Return a point in time with so many digits of a second; fail where a text is none."""


@ibis.udf.scalar.builtin(name="toTimeZone", signature=(("timestamp", "string"), "timestamp"))  # type: ignore[untyped-decorator]
def _to_zone(time: Any, zone: Any) -> Any:
    """Return the same moment in another zone."""


@ibis.udf.scalar.builtin(name="toDate32", signature=(("timestamp",), "date"))  # type: ignore[untyped-decorator]
def _day(time: Any) -> Any:
    """Return the day of a point in time, also before 1970."""


def standard_node(node: Any, changed: Mapping[str, Any] | None) -> Any:
    """Return a part of an Ibis expression so that it means in ClickHouse what it means elsewhere."""
    node = node.__recreate__(changed) if changed else node
    if isinstance(node, ops.Abs) and node.dtype.is_integer():
        value = node.arg.to_expr()
        return ibis.ifelse(value < 0, -value, value).op()
    if isinstance(node, ops.Date) and node.arg.dtype.is_timestamp():
        return _day(_to_zone(node.arg.to_expr(), "UTC")).op()  # what has no zone is a moment, shown in the server's
    return _standard_cast(node.arg.to_expr(), node.to).op() if isinstance(node, ops.Cast) else node


def _standard_cast(value: Any, to: Any) -> Any:
    """Return a cast that fails where a value does not fit, and looks at nothing where there is none."""
    kind = value.type()
    if to.is_int64() and (kind.is_floating() or kind.is_unsigned_integer()):
        return _unless_missing(value, _accurate_cast(value.fill_null(0), "Int64"))
    if to.is_date() and kind.is_string():
        return _unless_missing(value, _day(_parse_day(value.fill_null(_SOME_DAY), "%Y-%m-%d")))
    if to.is_timestamp() and kind.is_string():
        return _unless_missing(value, _parse_time(value.fill_null(_SOME_DAY), 6))
    return ops.Cast(value, to=to.copy(nullable=True)).to_expr()


def _unless_missing(value: Any, result: Any) -> Any:
    return ibis.ifelse(value.isnull(), ibis.null(result.type()), result)
