"""Ask pip-audit about the pinned packages; where its index of vulnerabilities cannot be reached, say so and go on."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

PIP_AUDIT = "pip-audit==2.10.1"
FOLDER = Path("build/audit")  # an environment of its own: what it needs is no business of ours
WORDS = "--requirement constraints.txt --no-deps --disable-pip --format json --progress-spinner off"


def skip(reason: str) -> None:
    """Say why nothing was asked, and end without a failure."""
    print(f"audit skipped: {reason}")
    sys.exit()


venv.create(FOLDER, with_pip=True)
python = [str(FOLDER / "bin" / "python"), "-m"]
made = subprocess.run([*python, "pip", "install", "-q", PIP_AUDIT], capture_output=True, text=True, check=False)
if made.returncode:
    skip(f"{PIP_AUDIT} cannot be installed here")
done = subprocess.run([*python, "pip_audit", *WORDS.split()], capture_output=True, text=True, check=False)
try:
    packages = json.loads(done.stdout)["dependencies"]
except ValueError:  # no answer at all, rather than one that finds something
    skip(f"the index of vulnerabilities cannot be reached ({done.stderr.strip()[-200:]})")
unknown = [package["name"] for package in packages if "skip_reason" in package]
if len(unknown) == len(packages):
    skip("the index that is reached here knows of no package")
found = [(package, flaw["id"]) for package in packages for flaw in package.get("vulns", ())]
print(f"audit: {len(packages) - len(unknown)} pinned packages, {len(found)} known vulnerabilities; unknown: {unknown}")
sys.exit("\n".join(f"{package['name']} {package['version']}: {flaw}" for package, flaw in found))
