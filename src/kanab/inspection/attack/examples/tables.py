"""Bad examples of tables: small classes, growing data, suppression, squares by class, all pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.choices import DEFAULT_K
from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.examples.making import (
    BOUGHT,
    ORDERS,
    SPEND,
    BadExample,
    Ints,
    arm_axis,
    draw_spend,
    tabulate,
)
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, Axis
from kanab.privacy.merging import LevelMap
from kanab.tally.metric import Metric
from kanab.tally.moments import By, Moments


def daily_dashboard(name: str) -> BadExample:
    """Make sixteen days of one growing table; on the last nobody joins, and one person buys again."""
    rng = np.random.default_rng(15)
    newcomers = [1_500, *rng.integers(95, 125, 14).tolist(), 0]
    total = sum(newcomers)
    regions = [f"region {i}" for i in range(1, 10)]
    shares = np.array([24, 18, 15, 12, 10, 8, 6, 4, 3]) / 100
    people = {"variant": rng.choice(["A", "B"], total), "region": rng.choice(regions, total, p=shares)}
    spend = draw_spend(rng, total, 0.12)
    axes = arm_axis("variant", "AB"), Axis("region", tuple(regions))
    releases = []
    for day, here in enumerate(np.cumsum(newcomers).tolist(), 1):
        if day == len(newcomers):
            spend = spend + np.where(np.arange(total) == np.argmax(spend > 0), 2_350, 0)
        releases.append(_first_people(f"day {day}", here, people, spend, axes=axes, squares=[("variant",)]))
    story = (
        "A dashboard publishes the table of variant × region every morning. Each morning every class holds "
        f"at least {DEFAULT_K} people."
    )
    return BadExample(name, story, tuple(releases), {**people, "spend": spend})


def two_cuts(name: str) -> BadExample:
    """Make one table of the first 1,000 people, and one of the first 1,003."""
    rng = np.random.default_rng(3)
    people = {"variant": rng.choice(["A", "B"], 1_003), "tier": rng.choice([1, 2, 3], 1_003)}
    spend = np.where(np.arange(1_003) < 1_000, draw_spend(rng, 1_003, 0.12), rng.integers(1_000, 9_000, 1_003))
    axes = arm_axis("variant", "AB"), Axis("tier", (1, 2, 3))
    squares = [("variant",), ("tier",)]
    releases = tuple(
        _first_people(f"the first {cut:,} people", cut, people, spend, axes=axes, squares=squares)
        for cut in (1_000, 1_003)
    )
    story = "The same table is released twice, with two filters on the rows. Every class holds more than 100 people."
    return BadExample(name, story, releases, {**people, "spend": spend})


def suppressed(name: str) -> BadExample:
    """Make a table with small classes blacked out, others to protect them, and linked tables that give totals."""
    rng = np.random.default_rng(22)
    towns = [f"town {i}" for i in range(1, 9)]
    sizes = np.array([22, 20, 18, 14, 11, 5, 4.5, 4]) / 98.5
    total = 700
    people = {"variant": rng.choice(["A", "B", "C"], total), "town": rng.choice(towns, total, p=sizes)}
    spend = draw_spend(rng, total, 0.2)
    values = {BOUGHT: (spend > 0).astype(np.int64), SPEND: spend}
    axes = arm_axis("variant", "ABC"), Axis("town", tuple(towns))
    counties = LevelMap(
        "town", (("north", ("town 1", "town 6")), ("east", ("town 2", "town 7")), ("south", ("town 3", "town 8")),
                 ("west", ("town 4", "town 5"))), {},
    )  # fmt: skip
    full = tabulate("variant/town", people, axes, values, [])
    linked = tabulate("variant/county", people, axes, values, [])
    county = Axis("town", tuple(new for new, _ in counties.groups), "covariate", counties)
    into = [county.place(town) for town in towns]
    tables = (_blacked_out(full, DEFAULT_K), linked.folded(county, into), full.by(("town",)), full.by(("variant",)))
    story = (
        f"Classes of fewer than {DEFAULT_K} people are blacked out, and in their rows a second class with them, "
        "so that the totals do not give them away. A linked table gives the same by county."
    )
    return BadExample(name, story, (AttackedRelease("towns", tables),), {**people, "spend": spend})


def _blacked_out(table: AttackedTable, k: int) -> AttackedTable:
    """Black out small classes, and the smallest other class of a town where one would be alone."""
    hidden = np.asarray((table.people > 0) & (table.people < k))
    for town in range(hidden.shape[1]):
        if hidden[:, town].sum() == 1:
            others = [(int(table.people[arm, town]), arm) for arm in range(hidden.shape[0]) if not hidden[arm, town]]
            hidden[min(others)[1], town] = True
    people = np.where(hidden, 0, table.people)
    moments = tuple(Moments(part.metric, people, np.where(hidden, 0, part.sums), {}) for part in table.moments)
    return AttackedTable(table.name, table.axes, people, hidden, moments)


def class_squares(name: str) -> BadExample:
    """Make squares in every class, as some analyses would like to have them."""
    rng = np.random.default_rng(6)
    total, shops = 280, [f"shop {i}" for i in range(1, 9)]
    people = {"variant": rng.choice(["A", "B"], total), "shop": rng.choice(shops, total)}
    orders = rng.poisson(0.3, total)
    spend = np.where(orders > 0, rng.integers(500, 2_000, total) * orders, 0)
    spend[rng.integers(0, total, 3)] = 38_000
    axes = arm_axis("variant", "AB"), Axis("shop", tuple(shops))
    table = tabulate("variant/shop", people, axes, {ORDERS: orders, SPEND: spend}, [("variant", "shop")])
    story = f"Every class holds at least {DEFAULT_K} people, and its sum and its sum of squares are published."
    return BadExample(name, story, (AttackedRelease("shops", (table,)),), {**people, "orders": orders, "spend": spend})


def paper(name: str) -> BadExample:
    """Make the table of the paper's attack: three people, a sum and a sum of squares."""
    minutes = Metric("minutes", 100, (0.0, 100.0))
    people: dict[str, Any] = {"treatment": ["A"] * 9 + ["B"] * 9, "tier": [1, 2, 3] * 6}
    values = [217, 205, 82, 0, 219, 135, 0, 197, 89, 84, 22, 269, 29, 67, 214, 30, 82, 241]
    axes = arm_axis("treatment", "AB"), Axis("tier", (1, 2, 3))
    table = tabulate("treatment/tier", people, axes, {minutes: np.array(values)}, [("treatment", "tier")])
    story = "Classes of three people with their sums and squares, 2.17 and 4.7089 in the first, as in the paper."
    return BadExample(name, story, (AttackedRelease("paper", (table,), k=3),), {**people, "minutes": np.array(values)})


def pair_scan(name: str) -> BadExample:
    """Make all pairs of thirty experiments on three hundred people."""
    rng = np.random.default_rng(30)
    total = 300
    spend = np.maximum(draw_spend(rng, total, 0.5), rng.integers(0, 300, total))
    story = "The tables of all 435 pairs of 30 experiments on 300 people. The attacker knows everybody's arms."
    return _pairs(name, story, _arms(rng, total, 30), {SPEND: spend})


def pair_scan_sparse(name: str) -> BadExample:
    """Make all pairs of twenty-five experiments on a thousand people, of whom few bought."""
    rng = np.random.default_rng(25)
    total = 1_000
    bought = (rng.random(total) < 0.02).astype(np.int64)
    story = (
        "The tables of all 300 pairs of 25 experiments on 1,000 people: fewer equations than people, but few "
        "people bought. The attacker knows everybody's arms."
    )
    return _pairs(name, story, _arms(rng, total, 25), {BOUGHT: bought})


def _first_people(
    name: str, many: int, people: Mapping[str, Any], spend: Ints, *, axes: Sequence[Axis], squares: Sequence[By]
) -> AttackedRelease:
    """Release the table of the people who came first."""
    rows = {key: column[:many] for key, column in people.items()}
    values = {BOUGHT: (spend > 0).astype(np.int64)[:many], SPEND: spend[:many]}
    return AttackedRelease(name, (tabulate("/".join(axis.name for axis in axes), rows, axes, values, squares),))


def _arms(rng: np.random.Generator, total: int, experiments: int) -> dict[str, NDArray[Any]]:
    return {f"experiment {i + 1}": rng.choice(["A", "B"], total) for i in range(experiments)}


def _pairs(name: str, story: str, arms: Mapping[str, NDArray[Any]], values: Mapping[Metric, Ints]) -> BadExample:
    tables = tuple(
        tabulate(
            f"{first}/{second}", arms, [arm_axis(first, "AB"), arm_axis(second, "AB")], values, [(first,), (second,)]
        )
        for first, second in combinations(arms, 2)
    )
    releases = (AttackedRelease("pairs", tables),)
    people = {**arms, **{metric.name: steps for metric, steps in values.items()}}
    return BadExample(name, story, releases, people, place_people(arms, releases))
