"""A shop's experiment, from rows to an answer: what leaves the building, and what it tells.

    python examples/shop.py FOLDER

writes visits.csv (made-up people), releases it at k = 10, analyzes the release alone, and writes a
report. Everything is done by the same commands that a person would type.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PLAN = """\
k = 10

[covariates]
tier = [1, 2, 3, 4, 5]
device = ["phone", "desktop", "tablet"]
country = { top = 5 }

[metrics]
bought = { kind = "binary" }
spend = { bounds = [0, 500], resolution = 0.01, of = "bought" }

[experiments.variant]
arms = { A = 1, B = 1 }
adjust = ["tier"]
segments = ["device", "country"]
"""


def run(*arguments: str) -> None:
    """Show a command and run it."""
    print(f"\n$ kanab {' '.join(arguments)}\n", flush=True)
    subprocess.run([Path(sys.executable).with_name("kanab"), *arguments], check=True, cwd=folder)


folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo")
folder.mkdir(parents=True, exist_ok=True)
(folder / "kanab.toml").write_text(PLAN, encoding="utf-8")
run("example", "visits.csv")
print(f"The plan, which says everything that may leave: {folder / 'kanab.toml'}")
begun = (folder / "kanab.ledger").exists()  # a second run counts the first release again
run(
    "release",
    "visits.csv",
    "--plan",
    "kanab.toml",
    "-o",
    "checkout.release.json",
    *(() if begun else ("--new-ledger",)),
)
size, left = (folder / "visits.csv").stat().st_size, (folder / "checkout.release.json").stat().st_size
print(f"The rows take {size:,} bytes; what leaves takes {left:,}.")
run("analyze", "checkout.release.json", "--html", "report.html")
print(f"\nOpen {folder / 'report.html'}")
