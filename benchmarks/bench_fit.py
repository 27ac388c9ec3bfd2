"""How long does an answer take from a tally, and from a million rows with statsmodels?

Counting the rows is paid once and timed by itself; every answer after that starts from classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from statsmodels.api import OLS
from statsmodels.stats.anova import anova_lm

from kanab import Metric, Tally, count_columns
from kanab.stats import adjusted_effect, fit, robust_f

ROWS = 1_000_000


@dataclass(frozen=True)
class Shape:
    """A table to count into: so many arms, so many levels, numeric or categories."""

    name: str
    arms: int
    levels: int
    numeric: bool

    @property
    def covariate(self) -> str:
        return "level" if self.numeric else "C(level)"

    @property
    def formula(self) -> str:
        return f"arm + {self.covariate}"


SHAPES = (
    Shape("6 classes (2 × 3)", 2, 3, numeric=False),
    Shape("1,000 classes (2 × 500, numeric)", 2, 500, numeric=True),
    Shape("1,000 classes (10 × 100, categories)", 10, 100, numeric=False),
)


def people(shape: Shape, seed: int = 1) -> pd.DataFrame:
    """A million rows: arm, level and a metric with two decimals."""
    rng = np.random.default_rng(seed)
    arm, level = rng.integers(0, shape.arms, ROWS), rng.integers(0, shape.levels, ROWS)
    y = np.rint((rng.normal(size=ROWS) + 0.01 * arm + level / shape.levels) * 100) / 100
    return pd.DataFrame({"arm": arm, "level": level, "y": y})


def tallied(rows: pd.DataFrame) -> Tally:
    return count_columns(rows, arm="arm", covariates=["level"], metrics={"y": Metric("y", 100)}, squares="class")


def matrix(shape: Shape, rows: pd.DataFrame, *, arms: bool = True) -> np.ndarray:
    """The design in NumPy, for those who build it themselves: intercept, arms, level."""
    arm, level = rows["arm"].to_numpy(), rows["level"].to_numpy()
    parts = [np.ones(len(rows))]
    if arms:
        parts += [(arm == one).astype(float) for one in range(1, shape.arms)]
    parts += [level.astype(float)] if shape.numeric else [(level == one) * 1.0 for one in range(1, shape.levels)]
    return np.column_stack(parts)


def by_arm(shape: Shape, rows: pd.DataFrame) -> list[Any]:
    """What a row-level adjusted effect costs: one regression per arm on demeaned covariates."""
    x = matrix(shape, rows, arms=False)
    x[:, 1:] -= x[:, 1:].mean(axis=0)
    y, arm = rows["y"].to_numpy(), rows["arm"].to_numpy()
    return [OLS(y[arm == one], x[arm == one]).fit().bse for one in range(2)]


def interaction(rows: pd.DataFrame) -> Any:
    """The nearest row-level thing to the robust F: two formula fits and their (pooled) comparison."""
    main, full = (smf.ols(f"y ~ C(arm) {sign} C(level)", rows).fit() for sign in "+*")
    return anova_lm(main, full)


def seconds(call: Callable[[], Any], *, least: float = 0.5) -> float:
    """The best time of several; one run where a single one already takes long."""
    best, started = float("inf"), time.perf_counter()
    while True:
        before = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - before)
        if time.perf_counter() - started > least:
            return best


@dataclass(frozen=True)
class Line:
    """Seconds for one question, from the tally, from arrays and by formula; None is not measured."""

    what: str
    tally: float
    arrays: float | None = None
    formula: float | None = None

    @property
    def ratio(self) -> str:
        rows = [one for one in (self.arrays, self.formula) if one is not None]
        return f"{min(rows) / self.tally:,.0f} ×" if rows else "–"


def lines(shape: Shape) -> Iterator[Line]:
    rows = people(shape)
    y = rows["y"].to_numpy()
    text = rows.assign(arm=rows["arm"].astype(str))
    tally = tallied(rows)
    yield Line("counting the rows, once", seconds(lambda: tallied(rows)))
    yield Line(
        f"fit {shape.formula}",
        seconds(lambda: fit(tally, shape.formula)),
        seconds(lambda: OLS(y, matrix(shape, rows)).fit().pvalues),
        seconds(lambda: smf.ols(f"y ~ {shape.formula}", text).fit().pvalues),
    )
    yield Line(
        "adjusted effect",
        seconds(lambda: adjusted_effect(tally, covariates=shape.covariate, arm=1)),
        seconds(lambda: by_arm(shape, rows)),
    )
    # A row-level design with all 1,000 classes as columns would need 8 GB: not measured.
    few = shape.arms * shape.levels < 100
    yield Line(
        "robust F", seconds(lambda: robust_f(tally)), None, seconds(lambda: interaction(rows)) if few else None
    )  # fmt: skip


def shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value * 1e3:,.2f} ms" if value < 1 else f"{value:,.2f} s"


def main() -> None:
    print(f"from a tally, and from {ROWS:,} rows with statsmodels; ratio: the faster row-level time / the tally's")
    print("counting is paid once and not in the ratios; statsmodels has no robust F: its two pooled fits stand there")
    layout = "{:<38}{:<26}{:>12}{:>12}{:>12}{:>10}"
    print(layout.format("", "", "tally", "arrays", "formula", "ratio"))
    for shape in SHAPES:
        for line in lines(shape):
            times = (shown(one) for one in (line.tally, line.arrays, line.formula))
            print(layout.format(shape.name, line.what, *times, line.ratio), flush=True)


if __name__ == "__main__":
    main()
