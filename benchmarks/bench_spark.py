"""What one core of a Spark executor counts: people per second of processor time, warm, from Parquet.

    python benchmarks/bench_spark.py [PEOPLE]

Two arms, four levels and an amount with declared bounds, on ``local[1]``. The first rounds also compile; the last one
is what a long job does. Most of it are the tasks of the shuffle (200 by default), which do not grow with people.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

import kanab as kb

ROUNDS = 3
CLOCK = os.sysconf("SC_CLK_TCK")


def processor_seconds(of: int) -> float:
    """Processor time of the processes that this one started."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12]) if int(fields[1]) == of else 0
    return total / CLOCK


def main() -> None:
    people = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/people.parquet"
        duckdb.sql(
            "copy (select if(random() < 0.5, 'A', 'B') as variant, (random() * 3)::int as tier, "
            f"round(random() * 100, 2) as spend from range({people})) to '{file}' (format parquet)"
        )
        builder = SparkSession.builder.master("local[1]").config("spark.ui.showConsoleProgress", "false")
        session = builder.config("spark.ui.enabled", "false").getOrCreate()
        rows = session.read.parquet(file)
        for number in range(1, ROUNDS + 1):
            before = processor_seconds(os.getpid())
            kb.count(
                rows,
                arm="variant",
                metrics=[kb.Mean("spend", bounds=(0, 100), resolution=0.01)],
                adjust=["tier"],
                segments=["tier"],
            )
            took = processor_seconds(os.getpid()) - before
            print(f"round {number}: {people:,} people in {took:.1f} s of processor time, {people / took:,.0f} a second")
        session.stop()


if __name__ == "__main__":
    main()
