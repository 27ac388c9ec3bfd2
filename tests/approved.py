"""Whole outputs that somebody has read and approved: what a surface says is one file, not a sentence in many tests.

``APPROVE=1 pytest …`` writes them anew; the difference is then read in the commit.
"""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "approved"


def assert_approved(name: str, text: str) -> None:
    """Compare an output with the approved one of this name, such as ``"readout/two_arms.txt"``."""
    path = FOLDER / name
    if os.environ.get("APPROVE"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"Nobody has approved {name}: run with APPROVE=1, read what was written, and commit it."
    assert text == path.read_text(encoding="utf-8")
