"""Programs are installed once, one after another; where every test must run, a skipped one fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import programs

ROOT = Path(__file__).parents[1]
# Stands for Debian's: it has no package before an update, installs slowly, and refuses where another one runs.
APT_GET = """#!/bin/sh
here=$(dirname "$0")
mkdir "$here/busy" || exit 100
sleep 0.2
for package; do :; done
echo "$*" >> "$here/log"
if [ "$package" = update ]; then touch "$here/lists"
elif [ -e "$here/lists" ]; then printf '#!/bin/sh\\n' > "$here/$package"; chmod +x "$here/$package"
fi
rmdir "$here/busy"
"""
ASK = """
import os, sys
from pathlib import Path
from tests import programs
programs.LOCK, os.geteuid = Path(sys.argv[1]) / "lock", lambda: 0
print(programs.find_program(sys.argv[2], package=sys.argv[2]))
"""


@pytest.fixture
def debian(tmp_path: Path) -> Path:
    """A folder with an apt-get of its own."""
    (tmp_path / "apt-get").write_text(APT_GET)
    (tmp_path / "apt-get").chmod(0o755)
    return tmp_path


@pytest.mark.slow
def test_workers_that_need_programs_at_the_same_time_all_get_them_and_none_is_installed_twice(debian: Path) -> None:
    env = os.environ | {"PATH": f"{debian}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    names = ["kanab-caddy", "kanab-mariadb", "kanab-caddy"]
    asked = [
        subprocess.Popen([sys.executable, "-c", ASK, debian, name], env=env, stdout=subprocess.PIPE, text=True)
        for name in names
    ]
    assert [process.communicate()[0].strip() for process in asked] == [str(debian / name) for name in names]
    done = [line.split()[-1] for line in (debian / "log").read_text().splitlines()]
    first, second = sorted({*names}, key=done.index)
    assert done == [first, "update", first, second]


def test_what_cannot_be_installed_is_skipped_with_what_to_do(debian: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(debian))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(pytest.skip.Exception, match=r"no kanab-caddy here. Install it .* apt-get install caddy\)"):
        programs.need_program("kanab-caddy", package="caddy")
    assert not (debian / "log").exists()


SKIPPING = """
import pytest

@pytest.mark.skipif(True, reason="{reason}")
def test_by_a_mark(): ...

def test_inside():
    pytest.skip("{reason}")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "must_run", "outcome"),
    [
        ("there is no caddy here", "", "3 skipped"), ("there is no caddy here", "1", "1 failed, 2 errors"),
        ("the real experiments are not here: set KANAB_SHARED", "1", "3 skipped"),
    ],
)  # fmt: skip
def test_where_every_test_must_run_a_skipped_one_fails(
    tmp_path: Path, reason: str, must_run: str, outcome: str
) -> None:
    (tmp_path / "test_skipping.py").write_text(SKIPPING.format(reason=reason))
    (tmp_path / "test_module.py").write_text(f"import pytest\n\npytest.skip({reason!r}, allow_module_level=True)\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "--rootdir", tmp_path, "-rs"]
    command += ["--continue-on-collection-errors", tmp_path]
    env = os.environ | {"TESTS_MUST_RUN": must_run, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=tmp_path)
    assert outcome in done.stdout
    assert reason in done.stdout
