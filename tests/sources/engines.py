"""Print for every engine that runs here how many shapes of plan agree with DuckDB digit for digit.

python -m tests.sources.engines [ENGINE …]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import ibis
import pytest

from kanab.counting.connect import connect
from kanab.errors import KanabError

from .conftest import Loader, _create, _insert
from .mariadb_server import running_server
from .shapes import SHAPES
from .test_engines import assert_same


def duckdb(_: ExitStack) -> Loader:
    return Loader("duckdb", ibis.duckdb.connect(), _create)


def sqlite(_: ExitStack) -> Loader:
    return Loader("sqlite", ibis.sqlite.connect(), _insert)


def datafusion(_: ExitStack) -> Loader:
    return Loader("datafusion", ibis.datafusion.connect(), _create)


def polars(_: ExitStack) -> Loader:
    return Loader("polars", ibis.polars.connect(), _create)


def mysql(stack: ExitStack) -> Loader:
    return Loader("mysql", connect(stack.enter_context(running_server())), _insert)


STARTS: dict[str, Callable[[ExitStack], Loader]] = {
    start.__name__: start for start in (duckdb, sqlite, datafusion, polars, mysql)
}


def problem_of(shape: str, loader: Loader, expected: Any) -> str:
    """What went otherwise than in DuckDB; nothing where all digits agree."""
    try:
        assert_same(SHAPES[shape](loader.store), expected)
    except KanabError as problem:
        return str(problem)
    except AssertionError:
        return "other digits"
    return ""


def main(names: list[str]) -> int:
    reference = {shape: count(duckdb(ExitStack()).store) for shape, count in SHAPES.items()}
    failures = 0
    for name in names or STARTS:
        with ExitStack() as stack:
            try:
                loader = STARTS[name](stack)
            except pytest.skip.Exception as reason:
                print(f"{name:<12} not run: {reason}")
                continue
            problems = {shape: problem_of(shape, loader, reference[shape]) for shape in SHAPES}
        agreeing = sum(not problem for problem in problems.values())
        print(f"{name:<12} {agreeing} of {len(SHAPES)} agree")
        for shape, problem in problems.items():
            if problem:
                print(f"{'':<12} {shape}: {problem}")
        failures += agreeing < len(SHAPES)
    return failures


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
