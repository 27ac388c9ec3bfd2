"""The notebooks: what is stored in them is what they print."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def printed(path: Path) -> list[tuple[str, str, str]]:
    """Return every text of every output, and of pictures the words; each with its cell and kind."""
    outputs = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            assert output["output_type"] != "error", output
            data: dict[str, Any] = output.get("data", {"text": output.get("text")})
            outputs += [(cell["id"], kind, _text(kind, "".join(value))) for kind, value in data.items()]
    return outputs


def _text(kind: str, value: str) -> str:
    return "\n".join(re.findall(r"<text[^>]*>([^<]*)", value)) if kind == "image/svg+xml" else value


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_those_of_a_fresh_run(notebook: Path, tmp_path: Path) -> None:
    fresh = tmp_path / notebook.name
    folders = {name: str(tmp_path) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "notebooks" / "run.py"), str(notebook), str(fresh)],
        env=os.environ | folders, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert printed(fresh) == printed(notebook), "run: python docs/notebooks/run.py"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_is_stored_that_changes_from_run_to_run(notebook: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert {cell["execution_count"] for cell in code} == {None}
    assert all(cell["metadata"] == {} for cell in code)
    assert len(printed(notebook)) >= 5
    assert not re.search(r"/(home|tmp|root|work)/|<script", notebook.read_text(encoding="utf-8"))


def test_there_are_three_notebooks_and_a_page_links_to_each() -> None:
    page = (ROOT / "docs" / "how-to" / "notebooks.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 3
    assert all(f"](../notebooks/{notebook.name})" in page for notebook in NOTEBOOKS)
