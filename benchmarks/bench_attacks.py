"""What does each attack learn: from a plain dashboard, with small classes blacked out, and from Kanab's releases?

    python benchmarks/bench_attacks.py [--rounds 20] [--write FOLDER | --read FOLDER]

Every attack meets people made up for it, other ones in every round, and knows everybody's arms and covariates. A
dashboard publishes every table of the plan as it is; suppression blacks out classes of fewer than k people. The numbers
are rounds in which something was learnt about fewer than k people. ``--write`` only makes Kanab's releases and keeps
them, so that those of another version can be attacked with ``--read``.
"""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import kanab as kb
from kanab.errors import PrivacyError
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.ledger import read_ledger
from kanab.privacy.release_json import release_to_dict
from kanab.scan import scan_interactions

K = 10
Rows = dict[str, Any]
Rng = np.random.Generator

BOUGHT = MetricPlan("bought", binary=True)
SPEND = MetricPlan("spend", (0, 500), 0.01)


@dataclass(frozen=True)
class Scenario:
    """People made up for one attack, and the plan by which they are published; ``cuts`` publish the first so many."""

    name: str
    rows: Callable[[Rng], Rows]
    plan: Plan
    cuts: tuple[int, ...] = ()

    def published(self, rng: Rng) -> tuple[Rows, list[Rows]]:
        """Return everybody, and the people of every release."""
        rows = self.rows(rng)
        total = len(next(iter(rows.values())))
        return rows, [{name: values[:cut] for name, values in rows.items()} for cut in self.cuts or (total,)]


def _plan(metrics: Sequence[MetricPlan], covariates: Sequence[str], experiments: Sequence[str] = ("arm",)) -> Plan:
    first = tuple(ExperimentPlan(name, segments=tuple(covariates)) for name in experiments[:1])
    others = tuple(ExperimentPlan(name) for name in experiments[1:])
    return Plan(tuple(metrics), (*first, *others), tuple(CovariatePlan(name) for name in covariates), K)


def _amounts(rng: Rng, n: int, rate: float) -> np.ndarray:
    return np.round((rng.random(n) < rate) * np.minimum(500, 5 + rng.gamma(2, 20, n)), 2)


def _base(rng: Rng, n: int, rate: float = 0.3) -> Rows:
    spend = _amounts(rng, n, rate)
    return {"arm": rng.choice(["A", "B"], n), "bought": (spend > 0).astype(int), "spend": spend}


# ── people ─────────────────────────────────────────────────────────────────────────────────────


def small_classes(rng: Rng) -> Rows:
    sizes = 0.6 ** np.arange(9)
    city = rng.choice([f"city {i}" for i in range(9)], 600, p=sizes / sizes.sum())
    return _base(rng, 600) | {"city": city}


def linked_tables(rng: Rng) -> Rows:
    device = rng.choice(["phone", "laptop", "tablet"], 1_000)
    system = np.where(device == "phone", "mobile", "desktop")
    system[rng.integers(0, 1_000, 2)] = "mobile"
    return _base(rng, 1_000) | {"device": device, "system": system}


def nested_levels(rng: Rng) -> Rows:
    region = rng.choice(["north", "south"], 1_500)
    own = rng.choice(["1", "2", "3"], 1_500, p=[0.47, 0.47, 0.06])
    country = np.char.add(np.char.add(region, " "), own)
    country[own == "3"] = "elsewhere"
    return _base(rng, 1_500, 0.06) | {"region": region, "country": country}


def metric_differences(rng: Rng) -> Rows:
    rows = _base(rng, 2_000) | {"tier": rng.choice([1, 2, 3, 4], 2_000), "device": rng.choice(["x", "y", "z"], 2_000)}
    back = (rows["spend"] > 0) & (rng.random(2_000) < 0.004)
    return rows | {"net": np.round(rows["spend"] * np.where(back, rng.random(2_000), 1), 2)}


def products(rng: Rng) -> Rows:
    rows = _base(rng, 1_000)
    ordered = rows["bought"].copy()
    ordered[rng.choice(np.flatnonzero(ordered), 2, replace=False)] = 0
    return rows | {"ordered": ordered}


def rare_in_one_arm(rng: Rng) -> Rows:
    rows = _base(rng, 2_000) | {f"c{i}": rng.choice([1, 2, 3, 4], 2_000) for i in range(6)}
    used = ((rows["arm"] == "B") & (rng.random(2_000) < 0.4)).astype(int)
    used[rng.choice(np.flatnonzero(rows["arm"] == "A"), 1)] = 1
    return rows | {"used": used}


EXPERIMENTS = tuple(f"test {i:02}" for i in range(1, 26))


def arms_only(rng: Rng) -> Rows:
    rows: Rows = {name: rng.choice(["A", "B"], 800) for name in EXPERIMENTS}
    return rows | {"bought": np.isin(np.arange(800), rng.choice(800, 2, replace=False)).astype(int)}


def unusual_price(rng: Rng) -> Rows:
    rows: Rows = {"arm": rng.choice(["A", "B"], 2_000)} | {f"c{i}": rng.choice([1, 2, 3, 4], 2_000) for i in range(6)}
    price = np.full(2_000, 9.99)
    price[rng.choice(2_000, 3, replace=False)] = [4.99, 19.99, 14.99]
    return rows | {"price": price}


def two_experiments(rng: Rng) -> Rows:
    rows = _base(rng, 1_500) | {"other": rng.choice(["X", "Y"], 1_500).astype(object)}
    rows["other"][rng.integers(0, 1_500)] = None
    return rows | {"tier": rng.choice([1, 2, 3], 1_500)}


def whole_numbers(rng: Rng) -> Rows:
    n = 300
    rows: Rows = {"arm": rng.choice(["A", "B"], n)} | {f"c{i}": rng.choice([1, 2, 3], n) for i in range(4)}
    logit = sum(rng.normal(0, 2, 4)[rows[f"c{i}"]] for i in range(4))
    return rows | {"bought": (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int)}


def growing(rng: Rng) -> Rows:
    return _base(rng, 1_003) | {"tier": rng.choice([1, 2, 3], 1_003)}


TESTS = tuple(f"t{i:02}" for i in range(40))


def scanned(rng: Rng) -> Rows:
    arms: Rows = {name: rng.choice(["A", "B"], 300) for name in TESTS}
    return arms | {"bought": (rng.random(300) < 0.3).astype(int)}


AMOUNTS = (BOUGHT, MetricPlan("spend", (0, 500), 0.01, of="bought"))
RARE = tuple(f"c{i}" for i in range(6))
SCENARIOS = (
    Scenario("small classes", small_classes, _plan(AMOUNTS, ["city"])),
    Scenario("a table that grows", growing, _plan(AMOUNTS, ["tier"]), (1_000, 1_003)),
    Scenario("tables that differ in two people", linked_tables, _plan(AMOUNTS, ["device", "system"])),
    Scenario("levels inside levels", nested_levels, _plan(AMOUNTS, ["region", "country"])),
    Scenario(
        "metric minus metric", metric_differences, _plan((SPEND, MetricPlan("net", (0, 500), 0.01)), ["tier", "device"])
    ),
    Scenario(
        "products with a 0/1 metric", products,
        _plan((SPEND, MetricPlan("ordered", binary=True), MetricPlan("value", ratio=("spend", "ordered"))), []),
    ),
    Scenario("rare in one arm", rare_in_one_arm, _plan((MetricPlan("used", binary=True),), RARE)),
    Scenario("many experiments, arms only", arms_only, _plan((BOUGHT,), (), EXPERIMENTS)),
    Scenario("an unusual price", unusual_price, _plan((MetricPlan("price", (0, 100), 0.01),), RARE)),
    Scenario("experiment minus experiment", two_experiments, _plan(AMOUNTS, ["tier"], ("arm", "other"))),
    Scenario("whole numbers", whole_numbers, _plan((BOUGHT,), RARE[:4])),
)  # fmt: skip


# ── publishing ─────────────────────────────────────────────────────────────────────────────────


def released(scenario: Scenario, parts: Sequence[Rows]) -> list[dict[str, Any]]:
    """Release people into one ledger, as far as the gate lets them; what is refused is not published."""
    files = []
    with TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        for part in parts:
            try:
                before = read_ledger(ledger) if files else None
                counted = kb.count(part, scenario.plan, earlier=before.plans if before else ())
                files.append(release_to_dict(kb.release(counted, ledger=ledger, **_new(ledger))))
            except PrivacyError:
                continue
    return files


def _new(ledger: Path) -> dict[str, Any]:
    """Return the argument that begins a ledger, where this version has one."""
    known = "new_ledger" in inspect.signature(kb.release).parameters
    return {"new_ledger": True} if known and not ledger.exists() else {}


def scan_file(rows: Rows) -> list[dict[str, Any]]:
    """Scan all pairs, and return the JSON."""
    return [json.loads(json.dumps(scan_interactions(rows, list(TESTS), ["bought"], k=K).to_dict()))]


def dashboard(scenario: Scenario, parts: Sequence[Rows], *, suppress: bool) -> list[Any]:
    """Publish every table as it is, or without small classes."""
    from kanab.inspection.attack.published import AttackedRelease  # noqa: PLC0415

    of = {metric.name: metric.of for metric in scenario.plan.counted_metrics if metric.of}
    return [
        AttackedRelease(f"day {day}", tuple(_tables(scenario.plan, part, suppress=suppress)), K, contributors=of)
        for day, part in enumerate(parts, 1)
    ]


def _tables(plan: Plan, rows: Rows, *, suppress: bool) -> list[Any]:
    from kanab.inspection.attack.examples.making import tabulate  # noqa: PLC0415
    from kanab.inspection.attack.published import AttackedTable, Axis  # noqa: PLC0415
    from kanab.tally.metric import Metric  # noqa: PLC0415
    from kanab.tally.moments import Moments  # noqa: PLC0415

    values = {}
    for metric in plan.counted_metrics:
        scale = 1 if metric.binary else 100
        bounds = (0.0, 1.0) if metric.binary else tuple(map(float, metric.bounds or (0, 500)))
        steps = np.rint(np.asarray(rows[metric.name], dtype=float) * scale).astype(np.int64)
        values[Metric(metric.name, scale, bounds)] = steps
    tables = []
    for linkage in plan.linkages:
        arms = len(linkage.experiments)
        there = np.all([np.array([v is not None for v in rows[name]]) for name in linkage.axes], axis=0)
        some = {name: np.asarray(rows[name], dtype=object)[there] for name in linkage.axes}
        sides = [
            Axis(name, tuple(dict.fromkeys(some[name].tolist())), "arm" if place < arms else "covariate")
            for place, name in enumerate(linkage.axes)
        ]
        table = tabulate(linkage.name, some, sides, {m: s[there] for m, s in values.items()}, [linkage.axes[:1]])
        if suppress:
            hidden = np.asarray((table.people > 0) & (table.people < K))
            moments = tuple(
                Moments(part.metric, np.where(hidden, 0, part.counts), np.where(hidden, 0, part.sums), {})
                for part in table.moments
            )
            table = AttackedTable(table.name, table.axes, np.where(hidden, 0, table.people), hidden, moments)
        tables.append(table)
    return tables


# ── attacking ──────────────────────────────────────────────────────────────────────────────────


def broken(releases: Sequence[Any], known: Mapping[str, Any]) -> bool:
    """Tell whether the attacker learns anything, knowing everybody's arms and covariates."""
    from kanab.inspection.attack.background import place_people  # noqa: PLC0415
    from kanab.inspection.attack.run import play_attacker  # noqa: PLC0415

    if not releases:
        return False
    return play_attacker(list(releases), place_people(known, list(releases)), K, exact=True).broken


def attacked(files: Sequence[dict[str, Any]], known: Mapping[str, Any]) -> bool:
    """Tell whether something is learnt from files."""
    from kanab.inspection.attack.published import published_from_dict  # noqa: PLC0415

    return broken([published_from_dict(file, f"release {i}") for i, file in enumerate(files, 1)], known)


def main() -> None:
    """Print a table of attacks × publications."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--read", type=Path)
    chosen = parser.parse_args()
    if chosen.write:
        chosen.write.mkdir(parents=True, exist_ok=True)
    else:
        print(f"{'rounds of ' + str(chosen.rounds) + ' that were broken':<34} dashboard  suppression  Kanab")
    for scenario in (*SCENARIOS, None):
        name = "scan statistics" if scenario is None else scenario.name
        counts = [0, 0, 0]
        for round_ in range(chosen.rounds):
            rng = np.random.default_rng([round_, len(name)])
            if scenario is None:
                everybody, parts = scanned(rng), []
            else:
                everybody, parts = scenario.published(rng)
            file = None if not (chosen.write or chosen.read) else f"{name.replace('/', ' ')} {round_}.json"
            if chosen.read:
                files = json.loads((chosen.read / str(file)).read_text())
            else:
                files = scan_file(everybody) if scenario is None else released(scenario, parts)
            if chosen.write:
                (chosen.write / str(file)).write_text(json.dumps(files))
                continue
            names = TESTS if scenario is None else [axis for link in scenario.plan.linkages for axis in link.axes]
            known = {axis: np.asarray(everybody[axis], dtype=object).tolist() for axis in dict.fromkeys(names)}
            counts[2] += attacked(files, known)
            if scenario is not None and not scenario.plan.ratios:
                counts[0] += broken(dashboard(scenario, parts, suppress=False), known)
                counts[1] += broken(dashboard(scenario, parts, suppress=True), known)
        if not chosen.write:
            plain = ["–", "–"] if scenario is None or scenario.plan.ratios else [str(counts[0]), str(counts[1])]
            print(f"{name:<34} {plain[0]:>9}  {plain[1]:>11}  {counts[2]:>5}", flush=True)


if __name__ == "__main__":
    main()
