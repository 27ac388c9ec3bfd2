"""What does the privacy gate cost? How many tables and levels of ordinary plans are left, and what a seal publishes.

    python benchmarks/bench_utility.py [--quick] [--sentences]
    python benchmarks/bench_utility.py --seal

Five made-up shops and Hillstrom's e-mail test (../shared/data or $KANAB_SHARED; left out where it is absent), k = 10. A
shop has six metrics (converted, orders, revenue, revenue capped at 200, sessions, latency) and six covariates (2 to 30
levels), so 36 tables of a metric by a covariate; they differ in how many people buy and how amounts spread. Levels are
those of all six covariates that any metric keeps, of so many that have people. Nobody attacks; seeds are fixed.

``--seal`` is about local mode: 20 unrelated experiments with Poisson traffic in one store, arms only and with two
covariates that all of them share. Printed is the share of what was planned that a seal publishes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import kanab as kb
from kanab.collector.counting.accept import PostAcceptor
from kanab.collector.counting.plan_versions import Version, Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.protocol.nonces import hour_of, make_nonce
from kanab.collector.sealing import seal_cohorts
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import CountedPost
from kanab.errors import PrivacyError
from kanab.plan.file import parse_plan
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


# ── a seal ─────────────────────────────────────────────────────────────────────────────────────

MONDAY = datetime(2026, 11, 9, 12, tzinfo=UTC)  # of week 46
UNRELATED = 20
COUNTRIES = {"DE": 0.4, "FR": 0.25, "AT": 0.15, "IT": 0.1, "NL": 0.07, "MT": 0.03}
COLLECTED = """
k = 10
[cohorts]
every = "7d"
[covariates]
country = ["DE", "FR", "AT", "IT", "NL", "MT"]
device = ["phone", "laptop", "tablet"]
[metrics]
bought = { kind = "binary" }
spend = { bounds = [0, 500], resolution = 0.01, of = "bought" }
minutes = { bounds = [0, 240], resolution = 0.1 }
"""


def sealed_shares(people: int, seed: int, *, covariates: bool) -> dict[str, tuple[int, int]]:
    """What a seal publishes of what was planned: numbers of experiments, metrics by arm, tables, levels, metrics."""
    rng, adjust = np.random.default_rng([seed, people]), 'adjust = ["country", "device"]\n' if covariates else ""
    plan = parse_plan(
        COLLECTED + "".join(f"[experiments.e{n}]\narms = {{ A = 1, B = 1 }}\n{adjust}" for n in range(UNRELATED))
    )
    acceptor, cipher = PostAcceptor(plan), RecordCipher(Keyring(KeyChain.new()))
    entries = []
    for name in plan.experiment_names:
        for _ in range(rng.poisson(people)):
            arm, device = rng.choice(["A", "B"]), rng.choice(["phone", "laptop", "tablet"], p=[0.6, 0.3, 0.1])
            country = rng.choice([*COUNTRIES], p=[*COUNTRIES.values()])
            heads = (
                [f"{name}/country:{arm}:{country}", f"{name}/device:{arm}:{device}"] if adjust else [f"{name}:{arm}"]
            )
            totals = {"minutes": round(rng.gamma(2, 3), 1)}
            totals |= {"bought": 1, "spend": round(5 + rng.gamma(2, 20), 2)} if rng.random() < 0.1 else {}
            lines = [f"{head}@2026-W46" for head in heads]
            lines += [f"{line}:{metric}:0>{total}" for line in lines for metric, total in totals.items()]
            body = "\n".join([f"kanab/1 {make_nonce(MONDAY)}", *lines, ""]).encode()
            accepted = acceptor.accept(body, "text/plain", MONDAY)
            entries.append(CountedPost(accepted.nonce, hour_of(accepted.nonce), accepted.deltas))
    (cohort,) = entries[0].deltas
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "store.db")
        store.append(entries, cipher.encrypt)
        released = seal_cohorts(store, cipher, Versions((Version(0, plan),)), cohort).release
        store.close()
    names = [name for name in plan.experiment_names if released and released.tables_of(name)]
    tables = {name: released.tables[name] for name in plan.linkage_names if released and name in released.tables}
    metrics, planned = len(plan.counted_metrics), sum(bool(linkage.covariate) for linkage in plan.linkages)
    crossed = [table for table in tables.values() if table.covariates]
    return {
        "experiments": (len(names), UNRELATED),
        "metrics by arm": (sum(len(released.totals(n).metric_names) for n in names if released), UNRELATED * metrics),
        "tables": (len(crossed), planned),
        "levels": (sum(len(table.covariates[0].levels) for table in crossed), UNRELATED * 9 if covariates else 0),
        "metrics by table": (sum(len(table.metric_names) for table in crossed), planned * metrics),
    }


def print_seals(runs: int) -> None:
    """The share of what was planned that a seal publishes."""
    print(f"\n== a seal of {UNRELATED} unrelated experiments, k = 10, {runs} runs each")
    for covariates in (False, True):
        print("country and device, in all experiments" if covariates else "arms only")
        for people in (300, 1_000, 3_000):
            sums: Counter[str] = Counter()
            whole: Counter[str] = Counter()
            for seed in range(runs):
                for what, (part, planned) in sealed_shares(people, seed, covariates=covariates).items():
                    sums[what] += part
                    whole[what] += planned
            print(f"{people:>9,} people  " + "  ".join(f"{what} {share(sums[what], whole[what])}" for what in whole))


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer people")
    parser.add_argument("--sentences", action="store_true", help="what each receipt says was withheld")
    parser.add_argument("--seal", action="store_true", help="only what a seal publishes of unrelated experiments")
    asked = parser.parse_args()
    if asked.seal:
        print_seals(runs=1 if asked.quick else 3)
        return
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
