"""What does the privacy gate cost? How many tables and levels of ordinary plans are left, and what a seal publishes.

    python benchmarks/bench_utility.py [--quick] [--sentences]

Five made-up shops and Hillstrom's e-mail test (../shared/data or $KANAB_SHARED; left out where it is absent), k = 10. A
shop has six metrics (converted, orders, revenue, revenue capped at 200, sessions, latency) and six covariates (2 to 30
levels), so 36 tables of a metric by a covariate; they differ in how many people buy and how amounts spread. Levels are
those of all six covariates that any metric keeps, of so many that have people. Nobody attacks; seeds are fixed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import kanab as kb
from kanab.errors import PrivacyError
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan

SHARED = Path(os.environ.get("KANAB_SHARED") or Path(__file__).parents[2] / "shared")
HILLSTROM = SHARED / "data" / "hillstrom_email.csv.gz"
PEOPLE = (1_000, 10_000, 100_000)
MAILED = (1_000, 4_000, 16_000, 64_000)
SHOPS = {  # how many buy, and the spread of what an order costs
    "fashion": (0.05, 0.9),
    "groceries": (0.25, 0.5),
    "travel": (0.02, 1.1),
    "books": (0.08, 0.7),
    "marketplace": (0.04, 1.3),
}
COVARIATES = ("device", "channel", "tier", "country", "browser", "returning")

Rows = dict[str, Any]


def whole(name: str, most: int) -> MetricPlan:
    return MetricPlan(name, bounds=(0, most), resolution=1)


def amount(name: str, most: int) -> MetricPlan:
    return MetricPlan(name, bounds=(0, most), resolution=0.01)


METRICS = (
    MetricPlan("converted", binary=True), whole("orders", 50), amount("revenue", 1_000), amount("revenue_capped", 200),
    whole("sessions", 100), whole("latency", 10_000),
)  # fmt: skip


def shop(people: int, arms: int, seed: int, rate: float, spread: float) -> Rows:
    """People of a shop, with levels as texts."""
    rng = np.random.default_rng([seed, people, arms])
    zipf = {
        name: 1 / np.arange(1, size + 1) ** power for name, size, power in (("country", 30, 1.2), ("browser", 8, 1.3))
    }
    shares = {
        "device": [0.6, 0.4], "channel": [0.4, 0.3, 0.1, 0.2], "tier": [0.4, 0.25, 0.2, 0.1, 0.05],
        "returning": [0.35, 0.65], **{name: weights / weights.sum() for name, weights in zipf.items()},
    }  # fmt: skip
    rows: Rows = {"arm": np.array(["A", "B", "C", "D"])[rng.integers(0, arms, people)]}
    for name in COVARIATES:
        names = np.array([f"{name} {place}" for place in range(len(shares[name]))])
        rows[name] = names[rng.choice(len(names), people, p=shares[name])]
    bought = rng.random(people) < rate * (1 + 0.1 * (rows["arm"] == "B"))
    orders = np.where(bought, 1 + rng.poisson(0.25, people), 0)
    revenue = np.minimum(np.round(orders * rng.lognormal(3.5, spread, people), 2), 1_000)
    return rows | {
        "converted": bought.astype(int),
        "orders": orders,
        "revenue": revenue,
        "revenue_capped": np.minimum(revenue, 200),
        "sessions": 1 + rng.poisson(1.5, people),
        "latency": np.round(rng.lognormal(5, 0.5, people)),
    }


def mailed() -> Rows:
    return {str(name): column.to_numpy() for name, column in pd.read_csv(HILLSTROM).items()}


def plan_of(metrics: tuple[MetricPlan, ...], arm: str, covariates: tuple[CovariatePlan, ...]) -> Plan:
    names = tuple(covariate.name for covariate in covariates)
    return Plan(metrics, (ExperimentPlan(arm, adjust=names),), covariates)


class Kept:
    """What one release keeps, of how much, and the processor time that it took."""

    def __init__(self, rows: Rows, plan: Plan) -> None:
        arm, start = plan.experiment_names[0], time.process_time()
        counted = kb.count(rows, plan)
        try:
            made = kb.release(counted)
            tables, self.sentences = made.tables, dict(made.receipt.left_out)
        except PrivacyError as refused:
            tables, self.sentences = {}, {"refused": str(refused)}
        self.seconds = time.process_time() - start
        self.planned = len(plan.linkages) * len(plan.counted_metrics)
        self.levels_planned = sum(len(tally.covariates[0].levels) for tally in counted.tallies.values())
        own = [tables[f"{arm}/{name}"] for name in plan.covariates_in_use if f"{arm}/{name}" in tables]
        self.tables = sum(len(table.metric_names) for table in own)
        self.levels = sum(len(table.covariates[0].levels) for table in own)
        self.arms = len(made.totals(arm).metric_names) if tables else 0


def shops(quick: bool) -> Iterator[tuple[str, list[Kept]]]:
    covariates = tuple(CovariatePlan(name) for name in COVARIATES)
    plan = plan_of(METRICS, "arm", covariates)
    for arms in (2, 4):
        for people in PEOPLE[: 2 if quick else 3]:
            kept = [Kept(shop(people, arms, seed, *shape), plan) for seed, shape in enumerate(SHOPS.values())]
            yield f"five shops, {arms} arms, {people:,} people", kept


def mail(quick: bool) -> Iterator[tuple[str, list[Kept]]]:
    if not HILLSTROM.exists():
        print(f"Hillstrom is left out: there is no {HILLSTROM.name} in the shared data.")
        return
    rows = mailed()
    metrics = (MetricPlan("visit", binary=True), MetricPlan("conversion", binary=True), amount("spend", 500))
    names = ("zip_code", "channel", "newbie", "recency", "womens", "history_segment")
    plan = plan_of(metrics, "segment", tuple(CovariatePlan(name) for name in names))
    order = np.random.default_rng(1).permutation(len(rows["visit"]))
    for people in MAILED[: 2 if quick else 4]:
        some = {name: column[order[:people]] for name, column in rows.items()}
        yield f"Hillstrom, 3 arms, {people:,} people", [Kept(some, plan)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer people")
    parser.add_argument("--sentences", action="store_true", help="what each receipt says was withheld")
    asked = parser.parse_args()
    print(f"{'':38} {'tables kept':>16} {'levels kept':>16} {'arm totals':>11} {'processor':>10}")
    for cases in (shops(asked.quick), mail(asked.quick)):
        for name, kept in cases:
            tables, levels = np.mean([each.tables for each in kept]), np.mean([each.levels for each in kept])
            of_tables, of_levels = kept[0].planned, np.mean([each.levels_planned for each in kept])
            arms, seconds = np.mean([each.arms for each in kept]), np.mean([each.seconds for each in kept])
            print(
                f"{name:38} {tables:6.1f} of {of_tables:5} {levels:7.1f} of {of_levels:5.1f} "
                f"{arms:11.1f} {seconds:8.2f} s"
            )
            for each in kept if asked.sentences else ():
                print("\n".join(f"    {place}: {why}" for place, why in each.sentences.items()))


if __name__ == "__main__":
    main()
