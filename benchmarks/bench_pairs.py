"""All 4,950 pairs of a hundred experiments from Parquet: kanab, and what SQL would do.

    python benchmarks/bench_pairs.py [--people 10_000_000] [--rounds 3]

Every line runs in processes of its own, in turns, one warm-up and then the best of several runs, with
the peak memory of the process. SQL runs some of its queries, and the time of all follows. Ratios are
within one run of this script.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

TESTS = 100
PAIRS = TESTS * (TESTS - 1) // 2
NAMES = [f"test_{place:03d}" for place in range(TESTS)]
AT_ONCE = 5  # twice five tests to a query: 1,024 classes
SAMPLE = 20  # queries of one pair
TEN_QUERIES = TESTS // AT_ONCE * (TESTS // AT_ONCE - 1) // 2

TARGETS = (
    ("[fast] against a GROUP BY per pair", "one pair per query", "kanab [fast]", 100, "at least"),
    ("[fast] against ten tests per query", "ten tests per query", "kanab [fast]", 15, "at least"),
    ("without Numba against a GROUP BY per pair", "one pair per query", "kanab, NumPy alone", 30, "at least"),
    ("2–4 arms, people missing, against the simple case", "kanab [fast], mixed", "kanab [fast]", 4, "at most"),
)
MEMORY = 1_500  # megabytes


def generate(file: Path, people: int, *, mixed: bool) -> None:
    """Everybody in all tests of two arms; or 2 to 4 arms, with 30 % of the people missing from each."""
    import duckdb  # noqa: PLC0415

    def arm(place: int) -> str:
        return f"if(random() < 0.3, NULL, floor(random() * {2 + place % 3}))" if mixed else "(random() < 0.5)"

    arms = ", ".join(f"{arm(place)}::TINYINT AS {name}" for place, name in enumerate(NAMES))
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.42)")
        connection.execute(
            f"""COPY (SELECT {arms}, round(-20 * ln(1 - random()), 2) AS revenue, random() < 0.1 AS bought
                FROM range({people})) TO '{file}' (FORMAT parquet)"""
        )


# ── what is measured, each in a process of its own ─────────────────────────────────────────────


def kanab_pairs(file: str, *, compiled: bool = True) -> float:
    if not compiled:
        sys.modules["numba"] = None  # type: ignore[assignment] - as if it were not installed
    from kanab.scan.count.pair_counting import count_pairs  # noqa: PLC0415

    started = time.perf_counter()
    count_pairs(file, "test_*", ["revenue", "bought"])
    return time.perf_counter() - started


def one_pair_per_query(file: str) -> float:
    import duckdb  # noqa: PLC0415

    chosen = list(combinations(NAMES, 2))[7 :: PAIRS // SAMPLE][:SAMPLE]
    with duckdb.connect() as connection:
        connection.execute("SET parquet_metadata_cache = true")
        started = time.perf_counter()
        for pair in chosen:
            _group(connection, file, pair)
        return (time.perf_counter() - started) / len(chosen) * PAIRS


def ten_tests_per_query(file: str, queries: int = 3) -> float:
    import duckdb  # noqa: PLC0415

    with duckdb.connect() as connection:
        connection.execute("SET parquet_metadata_cache = true")
        started = time.perf_counter()
        for place in range(queries):
            _group(connection, file, NAMES[10 * place : 10 * place + 2 * AT_ONCE])
        return (time.perf_counter() - started) / queries * TEN_QUERIES


def _group(connection: Any, file: str, names: Any) -> None:
    keys = ", ".join(names)
    connection.execute(
        f"""SELECT {keys}, count(*), sum(revenue), sum(revenue * revenue), sum(bought::INTEGER)
            FROM '{file}' GROUP BY {keys}"""
    ).fetchall()


CASES: dict[str, tuple[str, Callable[[str], float]]] = {
    "kanab [fast]": ("simple", kanab_pairs),
    "kanab [fast], mixed": ("mixed", kanab_pairs),
    "kanab, NumPy alone": ("simple", lambda file: kanab_pairs(file, compiled=False)),
    "one pair per query": ("simple", one_pair_per_query),
    "ten tests per query": ("simple", ten_tests_per_query),
}


def measure(case: str, folder: Path) -> None:
    """One case in this process: the best of two runs after a warm-up, for the quick ones."""
    kind, run = CASES[case]
    file = str(folder / f"{kind}.parquet")
    runs = 3 if case.startswith("kanab") else 1
    seconds = [run(file) for _ in range(runs)]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": min(seconds[1:] or seconds), "first": seconds[0], "megabytes": memory}))


def in_a_process(case: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--case", case, "--folder", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONWARNINGS": "ignore"}
    )
    if done.returncode:
        sys.exit(f"{case} failed:\n{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--people", type=int, default=10_000_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--case", choices=CASES)
    options.add_argument("--folder", type=Path)
    given = options.parse_args()
    if given.case:
        measure(given.case, given.folder)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        for kind in ("simple", "mixed"):
            if not (folder / f"{kind}.parquet").exists():
                generate(folder / f"{kind}.parquet", given.people, mixed=kind == "mixed")
        found: dict[str, dict[str, float]] = {}
        for _ in range(given.rounds):
            for case in CASES:
                new = in_a_process(case, folder)
                old = found.setdefault(case, new)
                found[case] = {
                    "seconds": min(old["seconds"], new["seconds"]),
                    "megabytes": max(old["megabytes"], new["megabytes"]),
                }
    report(found, given.people)


def report(found: dict[str, dict[str, float]], people: int) -> None:
    print(f"all {PAIRS:,} pairs of {TESTS} tests, {people:,} people, one amount and one 0/1 metric, from Parquet")
    base = found["kanab [fast]"]["seconds"]
    for case, numbers in found.items():
        seconds = numbers["seconds"]
        print(f"  {case:24} {seconds:9.2f} s  × {seconds / base:7.1f}  {numbers['megabytes']:6.0f} MB")
    for what, slow, quick, target, word in TARGETS:
        ratio = found[slow]["seconds"] / found[quick]["seconds"]
        kept = ratio >= target if word == "at least" else ratio <= target
        print(f"  {what}: {ratio:.1f} × ({word} {target}) {'kept' if kept else 'MISSED'}")
    most = max(numbers["megabytes"] for case, numbers in found.items() if case.startswith("kanab"))
    print(f"  peak memory of kanab: {most:.0f} MB (below {MEMORY}) {'kept' if most < MEMORY else 'MISSED'}")


if __name__ == "__main__":
    main()
