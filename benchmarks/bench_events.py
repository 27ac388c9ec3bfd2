"""Exposures and events to people, arms and sums in one statement: DuckDB from Parquet, beside the bare query.

    python benchmarks/bench_events.py [--events 10_000_000] [--people 2_000_000]

Every person has one exposure at some second of two weeks, and the events are spread over people and six weeks; those
within 7 days after somebody's exposure count. Each line runs in a process of its own. The bare query adds the same
events up with floating-point sums, and leaves out what Kanab checks. Files are written to a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

KANAB = """
import sys
import kanab as kb
seen, events = sys.argv[1:]
kb.readout(
    seen, arm="variant", metrics=["amount"], bounds={"amount": (0, 500)}, resolution={"amount": 0.01}, unit="person",
    events=events, window="7d", time="moment", exposure_time="seen",
)
"""

BARE = """
import sys
import duckdb
seen, events = sys.argv[1:]
with duckdb.connect() as connection:
    print(len(connection.execute(f'''
        SELECT variant, count(*), sum(total), sum(total * total) FROM (
            SELECT any_value(variant) AS variant, coalesce(sum(amount), 0) AS total
            FROM '{seen}' AS seen LEFT JOIN '{events}' AS events
            ON events.person = seen.person AND events.moment >= seen.seen AND events.moment < seen.seen + INTERVAL 7 DAY
            GROUP BY seen.person
        ) GROUP BY variant
    ''').fetchall()))
"""


def generate(seen: Path, events: Path, people: int, rows: int) -> None:
    """Write both files."""
    import duckdb  # noqa: PLC0415

    start = "TIMESTAMP '2026-01-01'"
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false; SELECT setseed(0.42)")
        connection.execute(
            f"""COPY (SELECT range AS person, if(random() < 0.5, 'A', 'B') AS variant,
                {start} + to_seconds(floor(random() * 14 * 86400)::INT) AS seen FROM range({people}))
                TO '{seen}' (FORMAT parquet)"""
        )
        connection.execute(
            f"""COPY (SELECT floor(random() * {people})::BIGINT AS person,
                {start} + to_seconds(floor(random() * 42 * 86400)::INT) AS moment,
                round(-20 * ln(1 - random()), 2) AS amount FROM range({rows})) TO '{events}' (FORMAT parquet)"""
        )


def run(name: str, script: str, *files: Path) -> float:
    """Run one of both, and print and return its processor time."""
    process = subprocess.Popen([sys.executable, "-c", script, *map(str, files)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(process.returncode)
    seconds = usage.ru_utime + usage.ru_stime
    print(f"{name}: {seconds:.1f} s of processor time, {usage.ru_maxrss / 1024:,.0f} MB", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--people", type=int, default=2_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kanab-events-") as name:
        seen, events = Path(name) / "seen.parquet", Path(name) / "events.parquet"
        generate(seen, events, arguments.people, arguments.events)
        print(f"{arguments.people:,} people, {arguments.events:,} events: {events.stat().st_size / 1e6:,.0f} MB")
        bare, kanab = run("bare query", BARE, seen, events), run("kanab", KANAB, seen, events)
        print(f"kanab / bare: {kanab / bare:.2f}")


if __name__ == "__main__":
    main()
