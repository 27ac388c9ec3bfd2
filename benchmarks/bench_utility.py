"""What does the privacy gate cost? How often realistic plans lose a table or a metric, and by which rule.

    python benchmarks/bench_utility.py [--quick] [--plans]

Hillstrom's e-mail test (../shared/data or $KANAB_SHARED; left out where it is absent; 64,000 people are all) and a
made-up shop, 500 to 100,000 people, k = 10; 3, 5 and 8 covariates, of which three are adjusted for and the rest are
segments. The shop's metrics come in the families that are hard to keep apart: a 0/1 metric and its amount, gross and
net, 7 and 14 days, raw and capped, counts and minutes, a sum divided by a 0/1 metric; and two site-wide experiments.
Every run draws other people; seeds are fixed.

Lost tables are those of a covariate that are left out; lost metrics are (table, metric) pairs that were planned and
are not published, those of lost tables included; altogether: not even the arm totals are. A release that is refused has
lost everything. ``--plans`` prints every family of plans by itself.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

import kanab as kb
from kanab.counting.dispatch import SourceOptions, count_source
from kanab.datasets import shop_rows
from kanab.errors import PrivacyError
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan

PEOPLE = (500, 1_000, 2_000, 5_000, 20_000, 100_000)
RUNS = {500: 6, 1_000: 6, 2_000: 6, 5_000: 6, 20_000: 3, 100_000: 2}
SHARED = Path(os.environ.get("KANAB_SHARED") or Path(__file__).parents[2] / "shared")
HILLSTROM = SHARED / "data" / "hillstrom_email.csv.gz"

Rows = dict[str, Any]


# ── plans ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Family:
    """Plans that differ in how many covariates they have."""

    name: str
    rows: Callable[[int, int], Rows]
    arms: tuple[str, ...]
    metrics: tuple[MetricPlan, ...]
    covariates: tuple[CovariatePlan, ...]
    interactions: bool = False

    def plans(self) -> Iterable[Plan]:
        for number in (3, 5, 8):
            chosen = self.covariates[:number]
            names = tuple(covariate.name for covariate in chosen)
            pair = self.arms[1:] if self.interactions else ()
            first = ExperimentPlan(self.arms[0], adjust=names[:3], segments=names[3:], interactions=pair)
            others = tuple(ExperimentPlan(name, adjust=names[:1]) for name in self.arms[1:])
            yield Plan(self.metrics, (first, *others), chosen)


BINARY, AMOUNT = {"binary": True}, {"bounds": (0, 500), "resolution": 0.01}


def metric(name: str, **options: Any) -> MetricPlan:
    return MetricPlan(name, **options)


def named(*names: str, **bins: int) -> tuple[CovariatePlan, ...]:
    return tuple(CovariatePlan(name, bins=bins.get(name)) for name in names)


IN_THE_MAIL = named(
    "zip_code", "channel", "newbie", "recency", "womens", "history_segment", "mens", "history", history=5
)
IN_THE_SHOP = named(
    "device", "country", "tier", "prior_spend", "age", "browser", "newsletter", "city", prior_spend=5, age=5
)


def families() -> list[Family]:
    made = []
    if HILLSTROM.exists():
        mail = read_rows(HILLSTROM)

        def some(people: int, seed: int) -> Rows:
            total = len(mail["visit"])
            chosen = np.random.default_rng(seed).permutation(total)[: min(people, total)]
            return {name: values[chosen] for name, values in mail.items()}

        made.append(Family(
            "Hillstrom: visit, conversion, spend", some, ("segment",),
            (metric("visit", **BINARY), metric("conversion", **BINARY), metric("spend", **AMOUNT, of="conversion")),
            IN_THE_MAIL,
        ))  # fmt: skip
    else:
        print(f"Hillstrom is left out: there is no {HILLSTROM.name} in the shared data.\n")
    bought, spend = metric("bought", **BINARY), metric("spend", **AMOUNT, of="bought")
    minutes = metric("minutes", bounds=(0, 240), resolution=0.1)
    for name, metrics, arms in (
        ("bought, spend", (bought, spend), ("variant",)),
        ("gross, net", (metric("gross", **AMOUNT), metric("net", **AMOUNT)), ("variant",)),
        ("spend_7d, spend_14d", (metric("spend_7d", **AMOUNT), metric("spend_14d", **AMOUNT)), ("variant",)),
        ("raw, capped", (metric("gross", **AMOUNT), metric("capped", bounds=(0, 100), resolution=0.01)), ("variant",)),
        ("orders, minutes", (metric("orders", bounds=(0, 20), resolution=1), minutes), ("variant",)),
        ("spend/bought", (bought, spend, metric("spend/bought", ratio=("spend", "bought"))), ("variant",)),
        ("two experiments", (bought, minutes), ("variant", "banner")),
    ):
        made.append(Family(f"shop: {name}", shop, arms, metrics, IN_THE_SHOP, len(arms) > 1))
    return made


def read_rows(path: Path) -> Rows:
    """A gzipped CSV file as columns."""
    return {str(name): column.to_numpy() for name, column in pd.read_csv(path).items()}


def shop(people: int, seed: int) -> Rows:
    """The made-up shop of kanab.datasets, with more covariates and the metrics that shops have beside spend."""
    rows = shop_rows(people, seed)
    rng = np.random.default_rng([seed, people])
    spend, bought = rows["spend"], rows["bought"] == 1
    returned = bought & (rng.random(people) < 0.08)
    later = (rng.random(people) < 0.04) * np.round(rng.gamma(2.0, 15.0, people), 2)
    cities = 0.8 ** np.arange(20)
    return rows | {
        "banner": rng.choice(["off", "on"], people),
        "age": np.round(rng.gamma(9, 4.5, people)),
        "browser": rng.choice(
            ["Chrome", "Safari", "Edge", "Firefox", "Samsung", "Opera"], people, p=[0.6, 0.2, 0.08, 0.06, 0.04, 0.02]
        ),
        "newsletter": (rng.random(people) < 0.3).astype(int),
        "city": rng.choice([f"city {place}" for place in range(20)], people, p=cities / cities.sum()),
        "gross": spend,
        "net": np.round(np.where(returned, spend * rng.choice([0, 0.5, 0.8], people), spend), 2),
        "spend_7d": spend,
        "spend_14d": np.minimum(500, np.round(spend + later, 2)),
        "capped": np.minimum(spend, 100),
        "orders": bought * (1 + rng.poisson(0.3, people)),
        "minutes": np.round(np.minimum(rng.gamma(2.0, 3.0, people) + 2 * bought, 240), 1),
    }


# ── what was lost ──────────────────────────────────────────────────────────────────────────────


@dataclass
class Losses:
    """Sums over the runs of one or more plans."""

    releases: int = 0
    tables: int = 0
    metrics: int = 0
    totals: int = 0
    levels: int = 0
    lost_tables: Counter[str] = field(default_factory=Counter)
    lost_metrics: Counter[str] = field(default_factory=Counter)
    lost_totals: Counter[str] = field(default_factory=Counter)
    lost_pairs: int = 0
    pairs: int = 0
    levels_kept: int = 0
    effective_k: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, plan: Plan, counted: kb.Counted, released: kb.Release | str) -> None:
        """Compare what was planned with what is there; a text is why the release was refused."""
        self.releases += 1
        metrics = [metric.name for metric in plan.counted_metrics]
        for name in plan.experiment_names:
            self.totals += len(metrics)
            for metric_ in metrics:
                if isinstance(released, str):
                    self.lost_totals[released] += 1
                elif metric_ not in released.totals(name).metric_names:
                    self.lost_totals[rule_of(released, name, metric_)] += 1
        for linkage in plan.linkages:
            self.tables += 1
            self.metrics += len(metrics)
            covariates = counted.tallies[linkage.name].covariates
            self.levels += sum(len(factor.levels) for factor in covariates)
            if isinstance(released, str) or linkage.name not in released.tables:
                why = released if isinstance(released, str) else rule_of(released, linkage.name)
                self.lost_tables[why] += 1
                self.lost_metrics[why] += len(metrics)
                continue
            table = released.tables[linkage.name]
            self.levels_kept += sum(len(factor.levels) for factor in table.covariates)
            for metric_ in metrics:
                if metric_ not in table.metric_names:
                    self.lost_metrics[rule_of(released, linkage.name, metric_)] += 1
        if not isinstance(released, str):
            left = {name for name in released.receipt.left_out if name.count("/") == 2 and ":" not in name}
            self.lost_pairs += len(left)
            self.pairs += len(left) + sum(len(table.covariates) == 2 for table in released.tables.values())
            self.effective_k.append(released.receipt.effective_k or 0)

    @staticmethod
    def sum(parts: Sequence[Losses]) -> Losses:
        total = Losses()
        for part in parts:
            for name, value in vars(part).items():
                setattr(total, name, getattr(total, name) + value)
        return total


def rule_of(released: kb.Release, name: str, metric_: str = "") -> str:
    """The reason in the receipt's words, without the names of what it is about."""
    said = released.receipt.left_out
    experiments = [each for each in name.split("/") if each in released.plan.experiment_names]
    keys = [f"{name}: {metric_}", *(f"{each}: {metric_}" for each in experiments)] if metric_ else [name]
    for key in keys:
        if key in said:
            reason = said[key].partition(": ")[2] or said[key]
            for word in (metric_, *released.plan.metric_names, *released.plan.linkage_names):
                reason = reason.replace(word, "…") if word and len(word) > 4 else reason
            return reason.partition(";")[0]
    return "no sentence"


def run(family: Family, plan: Plan, people: int, runs: int) -> Losses:
    losses = Losses()
    for seed in range(runs):
        counted = count_source(family.rows(people, seed), plan, SourceOptions())
        start = time.process_time()
        try:
            released: kb.Release | str = kb.release(counted)
        except PrivacyError as refused:
            released = f"refused: {refused.args[0]}"
        losses.seconds.append(time.process_time() - start)
        losses.add(plan, counted, released)
    return losses


# ── tables ─────────────────────────────────────────────────────────────────────────────────────

HEAD = (
    f"{'people':>9} {'releases':>8} {'tables lost':>11} {'metrics lost':>12} {'altogether':>10} {'pairs lost':>10} "
    f"{'levels kept':>11} {'effective k':>11} {'gate ms':>8}"
)


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def line(people: int, losses: Losses) -> str:
    return (
        f"{people:>9,} {losses.releases:>8} {share(losses.lost_tables.total(), losses.tables):>11} "
        f"{share(losses.lost_metrics.total(), losses.metrics):>12} "
        f"{share(losses.lost_totals.total(), losses.totals):>10} {share(losses.lost_pairs, losses.pairs):>10} "
        f"{share(losses.levels_kept, losses.levels):>11} {median(losses.effective_k or [0]):>11,.0f} "
        f"{1000 * median(losses.seconds):>8.0f}"
    )


def print_rules(by_people: dict[int, Losses]) -> None:
    """The share of (table, metric) pairs that each rule took, by people."""
    rules = Counter[str]()
    for losses in by_people.values():
        rules += losses.lost_metrics
    print("\nlost metrics (table, metric) by rule" + "".join(f"{people:>10,}" for people in by_people))
    for rule, _ in rules.most_common():
        figures = [share(losses.lost_metrics[rule], losses.metrics) for losses in by_people.values()]
        print(f"  {rule}\n{'':36}" + "".join(f"{figure:>10}" for figure in figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="Two runs a plan, and no more than 5,000 people.")
    parser.add_argument(
        "--plans", action="store_true", help="A table for every family of plans and number of covariates."
    )
    flags = parser.parse_args()
    sizes = [people for people in PEOPLE if not flags.quick or people <= 5_000]
    every: dict[tuple[str, int, int], Losses] = {}
    for family in families():
        for plan in family.plans():
            for people in sizes:
                runs = 2 if flags.quick else RUNS[people]
                every[family.name, len(plan.covariates), people] = run(family, plan, people, runs)
    plans = list(dict.fromkeys((name, number) for name, number, _ in every))
    groups = {"all plans": plans}
    for name, number in plans:
        groups.setdefault(name.partition(":")[0], []).append((name, number))
    groups |= {f"{name}; {number} covariates": [(name, number)] for name, number in plans if flags.plans}
    for title, members in groups.items():
        by_people = {people: Losses.sum([every[*plan, people] for plan in members]) for people in sizes}
        print(f"\n== {title}\n{HEAD}")
        for people, losses in by_people.items():
            print(line(people, losses))
        print_rules(by_people)


if __name__ == "__main__":
    main()
