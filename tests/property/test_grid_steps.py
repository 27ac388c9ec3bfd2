"""The rule "times the steps per unit, plus one half, floor, clamp" is one function; every copy of it agrees.

Copies stay where speed or language asks for one: the engines' SQL, the collector's loop over lines, exact sums of
class tables, and the browser client. Each has a test here.
"""

import json
import math
import re
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from pathlib import Path

import ibis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.node import program, run

import kanab
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.lines import MetricGrid
from kanab.counting.class_table import _steps
from kanab.counting.connect import open_table
from kanab.counting.engine.measures import Measure, careful_measure
from kanab.counting.engine.measures import grid_steps as engine_steps
from kanab.counting.grids import Profile
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
from kanab.tally.metric import Metric, grid_steps

SCALES = (1, 2, 3, 10, 100, 10_000, 1 << 22)
BOUNDS = ((0.0, 1.0), (0.0, 500.0), (-20.5, 20.25), (0.1, 7.3))
METRICS = [Metric("spend", scale, bounds) for scale in SCALES for bounds in BOUNDS]

numbers = st.floats(-1e9, 1e9) | st.integers(-200_000, 200_000).map(lambda n: n / 200) | st.floats(-1, 21)
metrics = st.sampled_from(METRICS)


def many_numbers() -> list[float]:
    """Ties, values beside them, values beyond every bound, and any others."""
    rng = np.random.default_rng(5)
    ties = rng.integers(-50_000, 50_000, 400) / 200
    around = [np.nextafter(ties, side) for side in (-np.inf, np.inf)]
    return np.concatenate(
        [ties, *around, rng.uniform(-600, 600, 400), rng.uniform(-1e9, 1e9, 50), [0.0, -0.0]]
    ).tolist()


def on_grid(metric: Metric, value: float) -> int:
    return int(metric.to_grid(np.array([value]))[0])


@given(metrics, numbers)
def test_a_metric_clamps_the_floor_of_steps_plus_one_half(metric: Metric, value: float) -> None:
    low, high = (math.floor(bound * metric.scale + 0.5) for bound in metric.bounds or ())
    steps = math.floor(value * metric.scale + 0.5)
    assert metric.grid_bounds == (low, high)
    assert grid_steps(value, metric.scale) == steps
    assert on_grid(metric, value) == min(max(steps, low), high)
    assert metric.beyond_bounds(np.array([value])).tolist() == [not low <= steps <= high]


@given(metrics, numbers)
def test_the_gauge_of_the_collector_and_of_the_client_steps_alike(metric: Metric, value: float) -> None:
    low, high = metric.grid_bounds or (0, 0)
    assert MetricGrid(float(metric.scale), low, high, True).steps(value) == on_grid(metric, value)


@cache
def collector_of(metric: Metric) -> PostAcceptor:
    plan = MetricPlan("spend", metric.bounds, 1 / metric.scale, missing="exclude")
    return PostAcceptor(Plan((plan,), (ExperimentPlan("shop", (("A", 1), ("B", 1))),)))


@given(metrics, numbers, numbers)
def test_the_collectors_loop_over_lines_steps_alike(metric: Metric, old: float, new: float) -> None:
    body = f"kanab/1 00079b70000102030405060708090a0b\nshop:A:spend:{old!r}>{new!r}\n"
    counters = collector_of(metric).accept(body.encode(), "text/plain", datetime(2026, 11, 15, 16, tzinfo=UTC)).deltas
    start, end = on_grid(metric, old), on_grid(metric, new)
    sums = [change for deltas in counters.values() for name, change in deltas.items() if name.endswith("|s")]
    assert sum(sums) == end - start


@given(st.sampled_from(SCALES), st.integers(-(2**51), 2**51))
def test_exact_sums_of_class_tables_step_alike_on_the_grid(scale: int, steps: int) -> None:
    assert list(_steps([Fraction(steps, scale)], scale)) == [steps]
    if abs(steps) < 2**40:  # a double next to the grid is rounded onto it
        assert grid_steps(steps / scale, scale) == steps


@pytest.mark.parametrize("metric", METRICS[::5], ids=lambda metric: f"{metric.scale}, {metric.bounds}")
def test_sql_steps_alike(metric: Metric) -> None:
    values = many_numbers()
    table = open_table({"spend": values, "place": list(range(len(values)))})
    plan = MetricPlan("spend", metric.bounds, 1 / metric.scale)
    measure: Measure = careful_measure(0, plan, "number", Profile())
    value = measure.value(table, ibis.literal(True))
    rows = table.select(place=table.place, raw=engine_steps(table.spend, metric.scale), steps=measure.steps(value))
    rows = rows.mutate(clamped=measure.clamped(rows.steps)).order_by("place").to_pyarrow()
    assert rows["raw"].to_pylist() == grid_steps(np.array(values), metric.scale).tolist()
    assert rows["clamped"].to_pylist() == metric.to_grid(np.array(values)).tolist()


def test_the_browser_client_steps_alike(tmp_path: Path) -> None:
    source = (Path(kanab.__file__).parent / "static" / "kanab.js").read_text(encoding="utf-8")
    rule = re.search(r"^const value = .*?^};$", source, flags=re.DOTALL | re.MULTILINE)
    assert rule is not None
    values = many_numbers()
    cases = [{"bounds": metric.bounds, "scale": metric.scale} for metric in METRICS]
    script = tmp_path / "steps.js"
    script.write_text(
        f"const {{ floor, min }} = Math;\n{rule[0]}\n"
        f"const values = {json.dumps(values)};\nconst cases = {json.dumps(cases)};\n"
        "const sent = (metric) => values.map((total) => value(metric, total));\n"
        "console.log(JSON.stringify(cases.map(sent)));\n",
        encoding="utf-8",
    )
    for metric, sent in zip(METRICS, json.loads(run(program("node"), script)), strict=True):
        assert sent == (metric.to_grid(np.array(values)) / metric.scale).tolist()
