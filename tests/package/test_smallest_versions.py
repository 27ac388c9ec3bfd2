"""The smallest versions that the package allows, installed from the registry: the same digits as with the newest."""

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
def smallest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables under which Python sees the core's requirements at their lower ends first."""
    folder = tmp_path_factory.mktemp("smallest")
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    pinned = [re.sub(r"^([\w-]+)>=([\d.]+)$", r"\1==\2", need) for need in needs]
    assert all("==" in need for need in pinned)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    done = subprocess.run([*pip, "--target", str(folder), *pinned], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1500:]
    variables = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{folder}"}
    first, *_ = pinned
    name, _, version = first.partition("==")
    code = f"from importlib.metadata import version; print(version({name!r}))"
    assert python(["-c", code], folder, variables).strip().startswith(version)
    return variables


def python(words: list[str], cwd: Path, variables: dict[str, str]) -> str:
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")} | variables
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1500:]
    return done.stdout


def kanab(words: list[str], cwd: Path, variables: dict[str, str]) -> str:
    code = f"import sys; sys.argv = ['kanab', *{words!r}]; from kanab.cli.main import main; main()"
    return python(["-c", code], cwd, variables)


def test_readouts_are_those_of_the_newest_versions(smallest: dict[str, str], tmp_path: Path) -> None:
    kanab(["example", "visits.csv", "--people", "6000"], tmp_path, smallest)
    old, new = (json.loads(kanab(ANALYZE, tmp_path, variables)) for variables in (smallest, {}))
    for before, after in zip(old["effects"], new["effects"], strict=True):
        for name in ("estimate", "se", "p"):
            assert before[name] == pytest.approx(after[name], rel=1e-10)


def test_the_paper_is_recomputed(smallest: dict[str, str], tmp_path: Path) -> None:
    told = python([str(ROOT / "examples" / "paper.py")], tmp_path, smallest)
    assert "163 numbers: 157 as printed, 6 misprints of the paper." in told
