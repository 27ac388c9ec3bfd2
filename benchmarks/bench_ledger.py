"""A ledger that grows: its next release, its audit and its privacy report, for 50, 100, 200 and 500 releases.

    python benchmarks/bench_ledger.py [--releases 50,100,200,500]

Weekly batches of one experiment (two metrics, one covariate) are in a ledger, each about people of its own. The
commands run in processes of their own, as a user runs them; the time is their processor time, less that of
`kanab release --help`. Growth is the time per release, beside that of the shortest ledger: 1 is linear.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np

import kanab as kb
from kanab.counted import Counted
from kanab.plan.model import Cohorts, CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.plan.periods import Periods, Span
from kanab.privacy.gate import make_release
from kanab.privacy.ledger import Ledger, ledger_text
from kanab.privacy.release_json import release_to_dict

PEOPLE = 400
FIRST = date(2010, 1, 4)
PLAN = Plan(
    (MetricPlan("bought", binary=True), MetricPlan("spend", (0, 200), 0.01)),
    (ExperimentPlan("checkout", (("A", 1), ("B", 1)), "A", adjust=("tier",)),),
    (CovariatePlan("tier", (1, 2, 3)),),
    cohorts=Cohorts("7d", "7d", "7d"),
)


def counted(number: int) -> Counted:
    """Count the people of one week."""
    rng = np.random.default_rng(number)
    day = FIRST + timedelta(days=7 * number)
    bought = rng.random(PEOPLE) < 0.2
    rows = {
        "day": np.full(PEOPLE, day.isoformat()),
        "checkout": rng.choice(["A", "B"], PEOPLE),
        "tier": rng.choice([1, 2, 3], PEOPLE),
        "bought": bought,
        "spend": np.where(bought, np.round(rng.gamma(2, 20, PEOPLE).clip(0, 200), 2), 0),
    }
    periods = Periods("7d")
    week = periods.of_day(day)
    after = None if number == 0 else periods.label(week - 1)
    return kb.count(rows, PLAN, rows=kb.Rows(span=Span("day", "7d", after, periods.label(week))))


def longer(ledger: Ledger, number: int) -> Ledger:
    """Return a ledger with the release of one more week, in memory: the file is written once."""
    made = make_release(counted(number), ledger=ledger)
    return replace(ledger, entries=(*ledger.entries, made), hashes=(*ledger.hashes, str(release_to_dict(made)["hash"])))


def next_release(number: int, path: Path) -> float:
    """Release one more week into the ledger's file, and return the processor time that took."""
    week = counted(number)
    started = time.process_time()
    kb.release(week, ledger=path)
    return time.process_time() - started


def command(folder: Path, *arguments: str) -> float:
    """Run a command and return its processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    kanab = str(Path(sys.executable).with_name("kanab"))
    done = subprocess.run([kanab, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"kanab {' '.join(arguments)} failed:\n{done.stdout[-500:]}\n{done.stderr[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--releases", default="50,100,200,500")
    sizes = [int(size) for size in options.parse_args().releases.split(",")]
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    print("releases   next release       audit   privacy-report    seconds of processor time (growth per release)")
    shortest: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, ledger = folder / "kanab.ledger", Ledger(name="kanab.ledger")
        for size in sizes:
            while len(ledger.entries) < size:
                ledger = longer(ledger, len(ledger.entries))
            path.write_text(ledger_text(ledger))
            start = command(folder, "release", "--help")
            times = [
                next_release(size, path),
                command(folder, "audit", "kanab.ledger") - start,
                command(folder, "privacy-report", "kanab.ledger", "-o", "report.html") - start,
            ]
            each = [seconds / size for seconds in times]
            shortest = shortest or each
            growth = [now / first for now, first in zip(each, shortest, strict=True)]
            cells = "  ".join(f"{seconds:7.2f} ({ratio:4.2f})" for seconds, ratio in zip(times, growth, strict=True))
            print(f"{size:8,}  {cells}", flush=True)


if __name__ == "__main__":
    main()
