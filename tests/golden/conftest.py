"""Where the real experiments lie, and an oracle that makes no rounding errors."""

import json
import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

Oracle = Callable[[Sequence[Sequence[Any]], Sequence[int], Sequence[Any], Any], tuple[list[Fraction], Fraction]]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real experiments: next to the project, or inside the one that KANAB_SHARED names."""
    beside = Path(__file__).resolve().parents[3] / "shared"
    folder = Path(os.environ.get("KANAB_SHARED") or beside) / "data"
    if not (folder / "README.md").is_file():
        pytest.skip("the real experiments are not here: set KANAB_SHARED to the folder that holds data/")
    return folder


@pytest.fixture(scope="session")
def published(shared: Path) -> dict[str, Any]:
    """Figures that the studies' authors printed."""
    return json.loads((shared / "expected_published.json").read_text())


@pytest.fixture(scope="session")
def reference(shared: Path) -> dict[str, Any]:
    """Figures computed on the rows with statsmodels."""
    return json.loads((shared / "reference_statsmodels.json").read_text())


@pytest.fixture(scope="session")
def exact_ols() -> Oracle:
    """Weighted least squares over cells in rational arithmetic: coefficients and rss, without rounding."""
    return _exact_ols


def _exact_ols(
    design: Sequence[Sequence[Any]], counts: Sequence[int], sums: Sequence[Any], squares: Any
) -> tuple[list[Fraction], Fraction]:
    size = len(design[0])
    rows = [[Fraction(value) for value in row] for row in design]
    total = [Fraction(value) for value in sums]
    gram = [
        [sum((n * row[i] * row[j] for row, n in zip(rows, counts, strict=True)), Fraction(0)) for j in range(size)]
        + [sum((row[i] * s for row, s in zip(rows, total, strict=True)), Fraction(0))]
        for i in range(size)
    ]
    xty = [line[-1] for line in gram]
    for pivot in range(size):
        lead = next(line for line in range(pivot, size) if gram[line][pivot])
        gram[pivot], gram[lead] = gram[lead], gram[pivot]
        gram[pivot] = [value / gram[pivot][pivot] for value in gram[pivot]]
        for line in range(size):
            if line != pivot and gram[line][pivot]:
                factor = gram[line][pivot]
                gram[line] = [a - factor * b for a, b in zip(gram[line], gram[pivot], strict=True)]
    b = [line[-1] for line in gram]
    return b, Fraction(squares) - sum((x * y for x, y in zip(b, xty, strict=True)), Fraction(0))
