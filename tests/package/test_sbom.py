"""`make dist` lists what kanab[all] brings, and no lower bound allows a version with a known vulnerability."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from tests.package.test_wheel import needed

ROOT = Path(__file__).parents[2]
WITHOUT_KNOWN = {"starlette": "0.49.1", "jinja2": "3.1.6", "cryptography": "46.0.5", "pymysql": "1.1.1"}
"""The first versions without a known vulnerability when this was written; the changelog names the advisories."""


@pytest.fixture(scope="module")
def bom(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("sbom") / "kanab.cdx.json"
    subprocess.run([sys.executable, ROOT / ".ci" / "sbom.py", file], check=True, capture_output=True)
    return dict(json.loads(file.read_text(encoding="utf-8")))


def test_the_sbom_lists_what_every_extra_brings_as_it_is_installed(bom: dict[str, Any]) -> None:
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    listed = {part["name"]: part for part in bom["components"]}
    assert listed.keys() == set(needed(["kanab[all]"], {""}, set()))
    for name, part in listed.items():
        assert part["version"] == version(name)
        assert part["purl"] == part["bom-ref"] == f"pkg:pypi/{name}@{part['version']}"
    assert "pytest" not in listed


def test_the_sbom_says_who_needs_whom(bom: dict[str, Any]) -> None:
    own = bom["metadata"]["component"]["bom-ref"]
    edges = {entry["ref"]: entry["dependsOn"] for entry in bom["dependencies"]}
    assert edges.keys() == {own, *(part["bom-ref"] for part in bom["components"])}
    assert {ref for refs in edges.values() for ref in refs} == edges.keys() - {own}
    assert f"pkg:pypi/anyio@{version('anyio')}" in edges[f"pkg:pypi/starlette@{version('starlette')}"]


def test_no_lower_bound_allows_a_version_with_a_known_vulnerability() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: needs for name, needs in project["optional-dependencies"].items() if name not in ("all", "dev")}
    bounds = [Requirement(need) for needs in extras.values() for need in needs]
    found = [need for need in bounds if need.name in WITHOUT_KNOWN]
    assert {need.name for need in found} == WITHOUT_KNOWN.keys()
    for need in found:
        assert re.search(r">=([\d.]+)", str(need.specifier))[1] == WITHOUT_KNOWN[need.name]  # type: ignore[index]


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
