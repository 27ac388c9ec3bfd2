"""Does spotify-confidence give the same numbers from the same aggregates? An assertion per question.

It needs pandas below 3, so it cannot be installed beside the project's own tools. This script makes a
throwaway environment, installs both there and runs itself in it; where that is impossible it says so.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import venv
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import kanab as kb
from kanab.stats.spending import z_boundaries

ROOT = Path(__file__).parents[1]
CORRECTIONS = {
    "bonferroni": "bonferroni",
    "sidak": "sidak",
    "holm": "holm",
    "bh": "fdr_bh",
}
CORRECTIONS |= {"by": "fdr_by"}


def rows(arms: str, n: int = 9_000) -> dict[str, Any]:
    rng = np.random.default_rng(8)
    arm = rng.choice(list(arms), n)
    lift = {name: 0.15 * place for place, name in enumerate(arms)}
    return {"arm": arm, "y": rng.poisson(rng.gamma(2.0, 1.0, n) + np.array([lift[one] for one in arm]))}


def frame(tally: kb.Tally, pandas: Any) -> Any:
    """People, sums and squares per arm: all that either side sees."""
    part, squares = tally.moments_of("y"), tally.squares("y")
    assert squares is not None
    return pandas.DataFrame(
        {
            "arm": list(tally.experiment.levels),
            "n": part.counts.astype(float),
            "s": part.sums.astype(float),
            "q": squares.astype(float),
        }
    )


def compared() -> Iterator[tuple[str, Any, Any, float]]:
    """What is compared, ours, theirs, and how near they have to be (relative)."""
    import pandas as pd  # noqa: PLC0415 - only in the throwaway environment
    from spotify_confidence import SampleSize, StudentsTTest  # noqa: PLC0415
    from spotify_confidence.analysis.frequentist.sample_ratio_test import sample_ratio_test  # noqa: PLC0415
    from spotify_confidence.analysis.frequentist.sequential_bound_solver import bounds  # noqa: PLC0415

    def students(tally: kb.Tally, method: str = "bonferroni") -> Any:
        return StudentsTTest(frame(tally, pd), "s", "q", "n", categorical_group_columns="arm", correction_method=method)

    two = kb.count_columns(rows("AB"), arm="arm", metrics=["y"])
    ours = kb.stats.difference_in_means(two)
    found = students(two).difference("A", "B", absolute=True).iloc[0]
    yield "difference", ours.estimate, found["difference"], 1e-10
    yield "p", ours.p, found["p-value"], 1e-9
    yield "interval", ours.interval, (found["ci_lower"], found["ci_upper"]), 1e-9

    four = kb.count_columns(rows("ABCD"), arm="arm", metrics=["y"])
    p = [kb.stats.difference_in_means(four, arm=arm, control="A").p for arm in "BCD"]
    for name, method in CORRECTIONS.items():
        table = students(four, method).multiple_difference("A", absolute=True, level_as_reference=True)
        yield (
            f"p, {name}",
            kb.stats.correct(p, name),
            table.set_index("level_2").loc[list("BCD"), "adjusted p-value"],
            1e-9,
        )

    share, _ = sample_ratio_test(frame(two, pd), ["arm"], "n", {"A": 0.5, "B": 0.5})
    yield "sample ratio, p", kb.stats.sample_ratio(two, {"A": 1, "B": 1}).p, share, 1e-9

    for times in ([0.2, 0.4, 0.6, 0.8, 1.0], [0.1, 0.5, 0.55, 1.0]):
        fractions = np.array(times)
        limits = bounds(fractions, 0.05, rho=2, ztrun=8, sides=2, max_nints=1000).df["zb"]
        spent = tuple((0.05 * fractions**2).tolist())  # theirs is Kim and DeMets' power family
        yield f"boundaries at {times}", z_boundaries(tuple(times), spent, 2), limits, 2e-4

    for shares in ((0.5, 0.5), (0.8, 0.2)):
        people, *_ = SampleSize.continuous(0.2, 9.0, alpha=0.05, power=0.8, treatment_allocations=np.array(shares))
        noise = kb.planning.spread_of_amounts(3.0, shares=dict(zip("AB", shares, strict=True)))
        yield (
            f"people at {shares}",
            kb.planning.solve_power(noise, effect=0.2, power=0.8).people,
            people,
            2e-3,
        )  # z, not t


def report() -> None:
    warnings.simplefilter("ignore")  # theirs about pandas
    for what, ours, theirs, near in compared():
        one, other = np.ravel(np.array(ours, dtype=float)), np.ravel(np.array(theirs, dtype=float))
        apart = float(np.max(np.abs(one - other) / np.abs(other)))
        assert apart <= near, f"{what}: {ours} and {theirs}"
        print(f"{what:<44}{'same to':>9} {apart:.0e}   {', '.join(f'{value:.6g}' for value in one)}", flush=True)


def in_an_environment_of_its_own() -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "spotify-confidence", "--editable", str(ROOT)]
        if subprocess.run(install, capture_output=True, check=False).returncode:
            print("spotify-confidence cannot be installed here: not compared")
            return
        sys.exit(subprocess.run([python, __file__], check=False).returncode)


if __name__ == "__main__":
    if importlib.util.find_spec("spotify_confidence"):
        report()
    else:
        in_an_environment_of_its_own()
