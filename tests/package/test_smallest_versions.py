"""The smallest versions that the package allows, installed from the registry: the same digits as with the newest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ANALYZE = ["analyze", "visits.csv", "--arm", "variant", "--metric", "bought,spend", "--adjust", "tier", "--json"]


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the core's requirements at their lower ends."""
    folder = tmp_path_factory.mktemp("smallest") / "env"
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    pinned = [re.sub(r"^([\w-]+)>=([\d.]+)$", r"\1==\2", need) for need in needs]
    assert all("==" in need for need in pinned)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *pinned], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1500:]
    return python


def kanab(python: Path, words: list[str], cwd: Path) -> str:
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); sys.argv = ['kanab', *{words!r}]; "
    done = subprocess.run(
        [str(python), "-c", code + "from kanab.cli.main import main; main()"],
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1500:]
    return done.stdout


def test_readouts_are_those_of_the_newest_versions(smallest: Path, tmp_path: Path) -> None:
    kanab(smallest, ["example", "visits.csv", "--people", "6000"], tmp_path)
    old, new = (json.loads(kanab(python, ANALYZE, tmp_path)) for python in (smallest, Path(sys.executable)))
    for before, after in zip(old["effects"], new["effects"], strict=True):
        for name in ("estimate", "se", "p"):
            assert before[name] == pytest.approx(after[name], rel=1e-10)


def test_the_paper_is_recomputed(smallest: Path) -> None:
    source = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    program = [smallest, ROOT / "examples" / "paper.py"]
    done = subprocess.run(program, env=source, capture_output=True, text=True, check=True)
    assert "163 numbers: 157 as printed, 6 misprints of the paper." in done.stdout
