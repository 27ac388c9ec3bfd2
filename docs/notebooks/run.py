"""Run the notebooks and store what they print: `python docs/notebooks/run.py`, or one of them into another file.

Stored are texts, tables and pictures; no numbers of executions, times or paths, so that the same notebook
gives the same file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

HERE = Path(__file__).parent


def run(source: Path, target: Path) -> None:
    """Run a notebook in an empty folder and write it with its outputs."""
    notebook = nbformat.read(source, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(
            notebook, timeout=600, kernel_name="python3", record_timing=False, resources={"metadata": {"path": folder}},
            coalesce_streams=True,  # else a print is two outputs where the machine is busy: the text, and its newline
        )  # fmt: skip
        client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.metadata.clear()
            cell.outputs = [_kept(output) for output in cell.outputs]
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, target)


def _kept(output: Any) -> Any:
    """Return an output without what differs from run to run."""
    if "execution_count" in output:
        output["execution_count"] = None
    if "metadata" in output:
        output["metadata"] = {}
    return output


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        for path in sorted(HERE.glob("*.ipynb")):
            run(path, path)
