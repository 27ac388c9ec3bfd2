"""What exact sums cost DuckDB at least: forms written by hand beside the bare query, and where Kanab's time goes.

    python benchmarks/bench_floor.py [--people 10_000_000] [--file people.parquet]

One amount, 2 × 3 classes, from Parquet. All forms take turns in one process and on one connection; of each the least
processor time of all threads counts, which a busy machine disturbs less. Every form is checked to give the sums that
the first exact one gives, so that a form that is quick because it is another number shows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_count import generate, kanab_one

ROUNDS = 5

STEPS = "floor(spend * 100.0 + 0.5)"
ALL = "count(*), sum(d), sum(d * d)"

FORMS = {
    "the bare query: doubles as they are": ("spend", "count(*), sum(d), sum(d * d)"),
    "floor(y), which is another number": ("floor(spend)", ALL),
    "y * 100, not rounded": ("spend * 100.0", ALL),
    "floor(y * 100 + 0.5)": (STEPS, ALL),
    "… and bounds that the file's statistics prove": (STEPS, f"{ALL}, bool_and(y BETWEEN 0.0 AND 500.0)"),
    "… and bounds that they do not prove": (STEPS, f"{ALL}, bool_and(y BETWEEN 0.0 AND 99.999)"),
    "… and that the grid holds every value": (STEPS, f"{ALL}, bool_and(y BETWEEN 0.0 AND 500.0 AND d / 100.0 = y)"),
    "the same by round(y, 2) = y": (STEPS, f"{ALL}, bool_and(round(y, 2) = y)"),
    "the same as a sum of differences": (STEPS, f"{ALL}, sum(abs(d / 100.0 - y))"),
    "round(y * 100)": ("round(spend * 100.0)", ALL),
    "round(y, 2) by Kahan's sum": ("round(spend, 2)", "count(*), fsum(d) * 100, fsum(d * d) * 10000"),
    "y * 100 as 32-bit integers": ("CAST(spend * 100.0 AS INTEGER)", "count(*), sum(d), sum(d::BIGINT * d)"),
    "y as a decimal": ("CAST(spend AS DECIMAL(9, 2))", "count(*), sum(d) * 100, sum(d * d) * 10000"),
}


def hand_written(file: Path) -> None:
    """Print every form as a multiple of the bare query."""
    import duckdb  # noqa: PLC0415

    best: dict[str, float] = {}
    sums: dict[str, list[tuple[int, ...]]] = {}
    with duckdb.connect() as connection:
        connection.execute("SET parquet_metadata_cache = true; SET enable_progress_bar = false")
        for _ in range(ROUNDS):
            for name, (steps, numbers) in FORMS.items():
                rows = f"SELECT treated, tier, spend AS y, {steps} AS d FROM '{file}'"
                start = time.process_time()
                answer = connection.execute(f"SELECT treated, tier, {numbers} FROM ({rows}) GROUP BY 1, 2").fetchall()
                best[name] = min(best.get(name, 9e9), time.process_time() - start)
                sums[name] = sorted((*row[:3], *map(round, row[3:5])) for row in answer)
    bare = next(iter(best.values()))
    print(f"\nwritten by hand, processor time; the bare query takes {bare * 1000:.0f} ms\n")
    for name, seconds in best.items():
        same = sums[name] == sums["floor(y * 100 + 0.5)"]
        print(f"{name:46} {seconds * 1000:7.0f} ms {seconds / bare:6.2f} ×   {'' if same else 'other sums'}")


def where_the_time_goes(file: Path, *, declared: bool) -> None:
    """Print what a count by Kanab spends in its statements, in connecting, and in Python."""
    import duckdb  # noqa: PLC0415
    from ibis.backends.duckdb import Backend  # noqa: PLC0415

    spent: dict[str, float] = defaultdict(float)

    def timed(function: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return function(*given, **named)
            finally:
                spent[name(*given)] += time.process_time() - start

        return run

    connect, ask = duckdb.connect, Backend.raw_sql
    duckdb.connect = timed(connect, lambda *_: "connecting")
    Backend.raw_sql = timed(ask, lambda _, text: "the statement" if "kanab_sig" in str(text) else "other questions")
    try:
        kanab_one(str(file), "tier", declared=declared)
        best: dict[str, float] = {}
        for _ in range(ROUNDS):
            spent.clear()
            start = time.process_time()
            kanab_one(str(file), "tier", declared=declared)
            total = time.process_time() - start
            parts = {**spent, "Python": total - sum(spent.values()), "everything": total}
            best = {name: min(seconds, best.get(name, 9e9)) for name, seconds in parts.items()}
    finally:
        duckdb.connect, Backend.raw_sql = connect, ask
    print(
        f"\nkanab, {'declared bounds' if declared else 'grid taken from the data'}: effect and adjusted effect, warm\n"
    )
    for name, seconds in best.items():
        print(f"{name:46} {seconds * 1000:7.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=lambda text: int(text.replace("_", "")), default=10_000_000)
    parser.add_argument("--file", type=Path, help="a file that bench_count.py would make")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kanab-floor-") as folder:
        file = arguments.file or Path(folder) / "people.parquet"
        if arguments.file is None:
            generate(file, arguments.people, one_amount=True)
        print(f"{file.stat().st_size / 1e6:,.0f} MB of Parquet")
        hand_written(file)
        for declared in (True, False):
            where_the_time_goes(file, declared=declared)


if __name__ == "__main__":
    main()
