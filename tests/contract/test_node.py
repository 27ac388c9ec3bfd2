"""The browser client keeps the same contract, in node: vectors, shares over a million draws, types and size."""

import json
from pathlib import Path

import pytest
from tests.contract.node import ROOT, installed, program, run

import kanab
from kanab.collector.protocol.config import public_config
from kanab.plan.file import plan_from_dict

MOST_BYTES = 4096
"""Of the client, minified and gzipped."""

CASES = json.loads((Path(__file__).parent / "cases.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_vectors_and_shares_hold_in_node(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_bytes(public_config(plan_from_dict(CASES["plans"][CASES["assignment"]["plan"]])))
    told = run(program("node"), "--test", "--test-reporter=tap", "test/assignment.test.js", KANAB_CONFIG=str(config))
    assert "# fail 0" in told
    assert "# pass 8" in told


def test_vouchers_of_a_server_in_node_are_the_same() -> None:
    told = run(program("node"), "--test", "--test-reporter=tap", "test/vouchers.test.js")
    assert "# fail 0" in told
    assert "# pass 1" in told


@pytest.mark.slow
def test_the_package_builds_with_types_and_keeps_its_size() -> None:
    package = installed()
    told = run(program("node"), "build.js")
    assert int(told.split()[1]) <= MOST_BYTES
    assert {path.name for path in (package / "dist").iterdir()} == {
        "kanab.js", "kanab.d.ts", "openfeature.js", "openfeature.d.ts",
    }  # fmt: skip
    types = (package / "dist" / "kanab.d.ts").read_text()
    assert "export declare const init:" in types
    for verb in ("variant", "enroll", "track", "flush", "optOut"):
        assert f"    {verb}: (" in types
    assert "../src" not in (package / "dist" / "openfeature.d.ts").read_text()


def test_the_package_has_the_version_of_the_project() -> None:
    assert json.loads((ROOT / "js" / "package.json").read_text())["version"] == kanab.__version__
