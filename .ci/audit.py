"""Ask pip-audit about the pinned packages; where its index of vulnerabilities cannot be reached, say so and go on.

Anything else that keeps it from answering, such as a wrong option or a version that does not exist, is a failure.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from pathlib import Path

PIP_AUDIT = sys.argv[1] if len(sys.argv) > 1 else "pip-audit==2.10.1"
FOLDER = Path("build/audit")  # an environment of its own: what it needs is no business of ours
WORDS = "--requirement constraints.txt --no-deps --disable-pip --format json --progress-spinner off"
UNREACHABLE = re.compile(r"connection broken by|Max retries exceeded|Read timed out|ConnectionError")


def skip(reason: str) -> None:
    """Say why nothing was asked, and end without a failure."""
    print(f"audit skipped: {reason}")
    sys.exit()


def run(*words: str) -> str:
    """Return what a module of the environment prints; end where there is no network, fail where it has no answer."""
    command = [str(FOLDER / "bin" / "python"), "-m", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if (done.returncode or not done.stdout) and UNREACHABLE.search(done.stderr):
        skip(f"an index cannot be reached ({words[0]})")
    if done.returncode > 1 or (done.returncode and not done.stdout):
        sys.exit(f"audit failed ({words[0]}): {done.stderr.strip()[-500:]}")
    return done.stdout


venv.create(FOLDER, with_pip=True)
run("pip", "install", "-q", PIP_AUDIT)
packages = json.loads(run("pip_audit", *WORDS.split()))["dependencies"]  # it ends with 1 where it finds something
unknown = [package["name"] for package in packages if "skip_reason" in package]
if len(unknown) == len(packages):
    skip("the index that is reached here knows of no package")
found = [(package, flaw["id"]) for package in packages for flaw in package.get("vulns", ())]
print(f"audit: {len(packages) - len(unknown)} pinned packages, {len(found)} known vulnerabilities; unknown: {unknown}")
sys.exit("\n".join(f"{package['name']} {package['version']}: {flaw}" for package, flaw in found))
