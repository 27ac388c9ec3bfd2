"""`make audit` is skipped where no index can be reached, and for no other reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"
OFFLINE = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"{NOWHERE}/simple", "PIP_RETRIES": "1"}


def audit(folder: Path, pin: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "constraints.txt").write_text("click==8.1.0\n")
    command = [sys.executable, str(ROOT / ".ci" / "audit.py"), pin]
    return subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.slow
def test_without_a_network_the_audit_is_skipped(tmp_path: Path) -> None:
    done = audit(tmp_path, "pip-audit==2.10.1", **OFFLINE)
    assert (done.returncode, done.stdout) == (0, "audit skipped: an index cannot be reached (pip)\n")


@pytest.mark.slow
@pytest.mark.parametrize("pin", ["pip-audit===none", "--no-such-option", str(ROOT / "no-such-folder")])
def test_a_wrong_pin_or_option_is_a_failure(tmp_path: Path, pin: str) -> None:
    done = audit(tmp_path, pin, PIP_NO_INDEX="1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("audit failed (pip): ")


@pytest.mark.slow
def test_a_program_that_answers_otherwise_is_a_failure(tmp_path: Path) -> None:
    """Another release of pip-audit, which does not know an option; what is in the folder comes first."""
    (tmp_path / "pip_audit.py").write_text("raise SystemExit('error: unrecognized arguments')\n")
    done = audit(tmp_path, "pip", PIP_NO_INDEX="1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "audit failed (pip_audit): error: unrecognized arguments\n"
