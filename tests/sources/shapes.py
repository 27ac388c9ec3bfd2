"""Ten shapes of plan that every engine must count to the same digits."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from tests.described import as_values

import kanab as kb
from kanab.counted import Counted
from kanab.description import Covariate, Ratio
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan, make_plan
from kanab.plan.periods import Span

Load = Callable[[dict[str, Any]], Any]
Shape = Callable[[Load], Counted]
START = datetime(2026, 3, 1)


def people(number: int = 300, seed: int = 5) -> dict[str, Any]:
    """People with missing values, amounts of money, integers, true and false, and when they enrolled."""
    rng = np.random.default_rng(seed)

    def some(values: Any, share: float = 0.1) -> pa.Array:
        return pa.array(values.tolist(), mask=rng.random(number) < share)

    at = [START + timedelta(microseconds=int(each)) for each in rng.integers(0, 21 * 86_400_000_000, number)]
    return {
        "variant": some(rng.choice(["A", "B"], number), 0.03),
        "banner": some(rng.integers(0, 2, number), 0.3),
        "tier": some(rng.integers(1, 4, number)),
        "device": some(rng.choice(["phone", "Phone", "tv"], number, p=[0.6, 0.3, 0.1])),
        "vip": some(rng.random(number) < 0.4),
        "prior": some(np.round(rng.exponential(50, number), 1)),
        "spend": some(np.round(rng.gamma(1.2, 20, number), 2)),
        "orders": some(rng.poisson(1.3, number)),
        "at": pa.array(at, pa.timestamp("us")),
        "day": pa.array([f"{moment:%Y-%m-%d}" for moment in at]),
    }


def visits(number: int = 120, seed: int = 6) -> dict[str, Any]:
    """One to four rows per person, named by letters that differ in case only for some."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[Any]] = {name: [] for name in ("user", "variant", "tier", "spend", "bought", "time")}
    for person in range(number):
        arm, tier = "AB"[person % 2], person % 3
        for _ in range(int(rng.integers(1, 5))):
            values = (f"{'uU'[person % 4 // 2]}{person // 4 * 4 + person % 2}", arm, tier)
            values += (float(np.round(rng.gamma(1, 9), 2)), bool(rng.random() < 0.3))
            at = START + timedelta(seconds=int(rng.integers(0, 20 * 86_400)), microseconds=int(rng.integers(0, 10**6)))
            for name, value in zip(rows, (*values, at), strict=True):
                rows[name].append(value)
    return rows | {"time": pa.array(rows["time"], pa.timestamp("us"))}


PEOPLE, VISITS = people(), visits()
SPEND = MetricPlan("spend", (0, 100), 0.01, missing="zero")
ARMS = (("A", 1), ("B", 1))
COHORTS = Plan((SPEND,), (ExperimentPlan("variant", ARMS, adjust=("tier",)),), (CovariatePlan("tier", (1, 2, 3)),))
DECLARED = Plan(
    (SPEND, MetricPlan("orders", (0, 4), 1)),
    (
        ExperimentPlan("variant", ARMS, adjust=("tier",), segments=("vip",), interactions=("banner",)),
        ExperimentPlan("banner", adjust=("device",)),
    ),
)


def _of_people(plan: Plan, **options: Any) -> Shape:
    return lambda load: kb.count(load(PEOPLE), **as_values("count", plan=plan, **options))


def _of_visits(plan: Plan, **options: Any) -> Shape:
    return lambda load: kb.count(load(VISITS), **as_values("count", plan=plan, unit="user", **options))


def _of_events(load: Load) -> Counted:
    """The first rows are exposures; all are events too, some of them before."""
    exposures = {name: VISITS[name] for name in ("user", "variant", "tier", "time")}
    events = {name: VISITS[name] for name in ("user", "spend", "bought", "time")}
    plan = make_plan("variant", ["spend", "bought", "spend@2d..5d"], adjust=["tier"])
    return kb.count(load(exposures), plan=plan, rows=kb.Rows(unit="user", events=load(events), window="7d"))


SHAPES: Mapping[str, Shape] = {
    "declared bounds, a pair of experiments": _of_people(DECLARED),
    "open bounds": _of_people(make_plan("variant", ["spend", "orders"], adjust=["tier"], segments=["device"])),
    "a ratio": _of_people(make_plan("variant", ["spend", "orders", Ratio("spend", "orders")], adjust=["device"])),
    "bins at quantiles": _of_people(make_plan("variant", ["spend"], adjust=[Covariate("prior", bins=4)])),
    "bins at edges": _of_people(make_plan("variant", ["spend"], adjust=[Covariate("prior", bins=(10.0, 60.5))])),
    "commonest levels": _of_people(make_plan("variant", ["spend"], adjust=[Covariate("device", top=1)])),
    "cohorts by a time": _of_people(COHORTS, span=Span("at", "7d", "2026-W09", "2026-W11")),
    "cohorts by a text": _of_people(COHORTS, span=Span("day", "1d", "2026-03-03", "2026-03-12")),
    "several rows per person": _of_visits(
        make_plan("variant", ["spend", "bought"], adjust=["tier"]), where="spend < 60"
    ),
    "exposures and events": _of_events,
}
