"""NIST's reference data sets for analysis of variance, all eleven, from counts and sums alone.

SciPy ships the files (NIST/ITL StRD, in the public domain) with its own tests.
"""

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import kanab as kb

SETS = ("AtmWtAg", "SiRstv", *(f"SmLs0{number}" for number in range(1, 10)))


@dataclass(frozen=True)
class DataSet:
    """One file: the certified analysis, and the data as written."""

    df: tuple[int, int]
    squares: tuple[float, float]
    F: float
    residual_sd: float
    treatments: list[str]
    responses: list[str]

    @property
    def decimals(self) -> int:
        return max(len(response.partition(".")[2]) for response in self.responses)


def read(name: str) -> DataSet:
    spec = importlib.util.find_spec("scipy.stats")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "tests" / "data" / "nist_anova" / f"{name}.dat"
    if not path.is_file():
        pytest.skip("this build of SciPy comes without its tests' data")
    lines = path.read_text(encoding="ascii").splitlines()
    first, last = map(int, re.findall(r"Data +\(lines (\d+) to (\d+)\)", "\n".join(lines))[0])
    between = next(line.split() for line in lines if line.startswith("Between"))[-4:]
    within = next(line.split() for line in lines if line.startswith("Within"))[-3:]
    residual = next(line.split()[-1] for line in lines if line.strip().startswith("Standard Deviation"))
    rows = [line.split() for line in lines[first - 1 : last]]
    return DataSet(
        (int(between[0]), int(within[0])), (float(between[1]), float(within[1])), float(between[3]), float(residual),
        [treatment for treatment, _ in rows], [response for _, response in rows],
    )  # fmt: skip


def count(data: DataSet) -> kb.Tally:
    """The responses on the grid of their decimals, counted as columns."""
    metric = kb.Metric("response", 10**data.decimals)
    columns = {"treatment": data.treatments, "response": np.array([float(text) for text in data.responses])}
    return kb.count_columns(columns, arm="treatment", metrics={"response": metric})


@pytest.mark.parametrize("name", SETS)
def test_the_certified_analysis_follows_from_the_classes(name: str) -> None:
    data = read(name)
    fit = kb.stats.fit(count(data), "arm")
    assert fit.anova.df[:2] == data.df
    assert fit.anova.ss[:2] == pytest.approx(data.squares, rel=1e-13)
    assert pytest.approx(data.F, rel=1e-13) == fit.anova.F
    assert np.sqrt(fit.anova.ss[1] / fit.anova.df[1]) == pytest.approx(data.residual_sd, rel=1e-13)
