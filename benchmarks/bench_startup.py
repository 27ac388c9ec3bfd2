"""Processor time of short commands, each in a process of its own, as a user runs them.

    python benchmarks/bench_startup.py [--runs 5] [--against SRC]

``--against`` is the folder ``src`` of another version, which runs in turn with this one. Modules are compiled
beforehand, as pip does when it installs them, also where PYTHONDONTWRITEBYTECODE is set.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PLAN = """
metrics.bought = { kind = "binary" }
metrics.spend = { bounds = [0, 500] }
experiments.variant = { arms = { A = 1, B = 1 } }
"""
COMMANDS = {
    "--help": "--help",
    "--version": "--version",
    "analyze r.json": "analyze r.json",
    "analyze r.json --html": "analyze r.json --html r.html",
    "power --html": "power --rate 0.1 --effect 0.01 --power 0.8 --html power.html",
    "plan --html": "plan kanab.toml --per-day 1000 --days 20 --rate bought=0.1 --sd spend=15 --html plan.html",
}
RELEASE = (
    "release people.csv --arm variant --metric bought,spend --bounds spend=0:500 --adjust tier --no-ledger -o r.json"
)


def run(words: str, folder: str, source: Path) -> float:
    """Run a command of the version in ``source`` and return its processor time."""
    before = os.times()
    code = "import sys; from kanab.cli.main import main; sys.exit(main())"
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONPYCACHEPREFIX": str(Path(folder) / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", code, *words.split()]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--against", type=Path)
    flags = parser.parse_args()
    sources = {"now": Path(__file__).resolve().parents[1] / "src"}
    if flags.against:
        sources["other"] = flags.against.resolve()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kanab.toml").write_text(PLAN, encoding="utf-8")
        for words in ("example people.csv --people 2000", RELEASE):
            run(words, folder, sources["now"])
        print(f"{'median processor time, s':26}", *(f"{name:>8}" for name in sources))
        for name, words in COMMANDS.items():
            times: dict[str, list[float]] = {version: [] for version in sources}
            for source in sources.values():
                run(words, folder, source)
            for _ in range(flags.runs):
                for version, source in sources.items():
                    times[version].append(run(words, folder, source))
            print(f"{name:26}", *(f"{statistics.median(each):8.2f}" for each in times.values()), flush=True)


if __name__ == "__main__":
    main()
