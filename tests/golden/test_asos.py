"""ASOS's 78 real experiments at their checkpoints: how often was a p below .05 on the way not confirmed at the end?

The figures are those of benchmarks/bench_sequential.py. Both were computed from the same file of n, means and
variances; there is no published figure to compare them with.
"""

from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from tests.benchmarks import load_benchmark

import kanab as kb
from kanab.stats.sequential import any_time_look, planned_look

FILE = "asos_digital_experiments.csv.gz"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load_benchmark("bench_sequential")


@pytest.mark.slow
def test_half_of_the_early_alarms_of_every_p_were_not_confirmed(bench: ModuleType, shared: Path) -> None:
    found = bench.asos(shared / FILE)
    assert found["all"] == (381, 276)
    assert found["every p"] == (222, 120)
    assert found["p at ten looks"] == (153, 63)
    assert found["O'Brien-Fleming"] == (98, 21)
    assert found["any time"] == (74, 21)


def effect_of(row: pd.Series) -> kb.stats.Effect:
    """One checkpoint as an effect: arm means with their own variances are all that it takes."""
    arms = [(row[f"mean_{arm}"], row[f"variance_{arm}"], int(row[f"count_{arm}"])) for arm in "ct"]
    means = kb.stats.ArmMeans(
        "metric", "difference", (), ("control", "variant"), "control", tuple(n for _, _, n in arms),
        tuple(Fraction(mean) for mean, _, _ in arms), np.array([variance / n for _, variance, n in arms]),
        np.array([n - 1.0 for _, _, n in arms]), ((), ()), np.zeros((0, 0)),
    )  # fmt: skip
    return kb.stats.against_control(means)


def test_a_real_series_read_look_by_look_agrees_with_the_table(bench: ModuleType, shared: Path) -> None:
    rows = pd.read_csv(shared / FILE)
    series = rows[(rows["experiment_id"] == "036afc") & (rows["variant_id"] == 2) & (rows["metric_id"] == 1)]
    series = series.sort_values("time_since_start")
    people = (series["count_c"] + series["count_t"]).to_numpy(dtype=float)
    effects = [effect_of(row) for _, row in series.iterrows()]
    p = np.array([effect.p for effect in effects])
    table = bench.on_the_way(people, p)
    kept = bench.ten_looks(people)[:-1]
    counted = [int(people[place]) for place in kept]
    planned = [
        planned_look(effects[place], counted[: number + 1], planned=int(people[-1]))
        for number, place in enumerate(kept)
    ]
    anywhere = [any_time_look(effect, int(n)) for effect, n in zip(effects[:-1], people[:-1], strict=True)]
    assert any(look.verdict == "may stop" for look in planned) == table["O'Brien-Fleming"]
    assert any(look.verdict == "may stop" for look in anywhere) == table["any time"]
    assert all((look.p <= 0.05) == (look.verdict == "may stop") for look in (*planned, *anywhere))
