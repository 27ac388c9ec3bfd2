"""Fail if a line or branch of the tally or of the statistics is never run by a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

WHOLE = ("tally/", "stats/", "scan/stats/")
SOURCE = Path("src/kanab")

report = Path(".coverage.json")
subprocess.run([sys.executable, "-m", "coverage", "json", "-q", "-o", str(report)], check=True)
files = json.loads(report.read_text())["files"]
report.unlink()
short = {
    name: round(entry["summary"]["percent_covered"], 1)
    for name, entry in files.items()
    if name.split("kanab/", 1)[1].startswith(WHOLE) and entry["summary"]["percent_covered"] < 100
}
named = {str(path) for path in SOURCE.rglob("*.py") if str(path.relative_to(SOURCE)).startswith(WHOLE)}
short |= dict.fromkeys(named - files.keys(), 0.0)  # never imported
if short:
    sys.exit(f"not fully covered: {short}")
print("tally and stats: every line and branch is covered")
