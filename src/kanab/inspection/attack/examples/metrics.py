"""Bad examples of several metrics in one table: gross and net, revenue with and without an order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kanab.inspection.attack.examples.making import BOUGHT, BadExample, Ints, arm_axis, draw_spend, tabulate
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, Axis
from kanab.tally.cells import Cells
from kanab.tally.metric import Metric
from kanab.tally.moments import Cross

_GROSS, _NET = (Metric(name, 100, (0.0, 500.0)) for name in ("gross", "net"))
_REVENUE = Metric("revenue", 100, (0.0, 500.0))


def metric_differences(name: str) -> BadExample:
    """Make two tables of gross and net revenue: in each arm a person or two sent something back."""
    rng = np.random.default_rng(33)
    total, tiers, regions = 3_000, (1, 2, 3, 4), ("east", "north", "south", "west")
    people = {"variant": rng.choice(["A", "B"], total), "tier": rng.choice(tiers, total),
              "region": rng.choice(regions, total)}  # fmt: skip
    gross = draw_spend(rng, total, 0.3)
    back = rng.choice(np.flatnonzero(gross), 3, replace=False)
    net = gross.copy()
    net[back] -= np.array([1_799, gross[back[1]], 2_350])
    values = {_GROSS: gross, _NET: np.maximum(net, 0)}
    axes = [(arm_axis("variant", "AB"), Axis("tier", tiers)), (arm_axis("variant", "AB"), Axis("region", regions))]
    tables = tuple(tabulate(f"variant/{side[1].name}", people, side, values, [("variant",)]) for side in axes)
    story = "Two tables with the gross and the net revenue of every class, each of more than 300 people."
    return BadExample(name, story, (AttackedRelease("revenue", tables),), {**people, "gross": gross, "net": net})


def products(name: str) -> BadExample:
    """Make a table whose ratio revenue ÷ bought needs their products: one person has revenue and bought nothing."""
    rng = np.random.default_rng(44)
    total = 2_000
    people = {"variant": rng.choice(["A", "B"], total)}
    revenue = draw_spend(rng, total, 0.2)
    bought = (revenue > 0).astype(np.int64)
    revenue[np.flatnonzero((bought == 0) & (people["variant"] == "B"))[0]] = 17_346
    values = {_REVENUE: revenue, BOUGHT: bought}
    table = tabulate("variant", people, [arm_axis("variant", "AB")], values, [("variant",)])
    story = "Revenue per buyer: beside the sums of both metrics the sum of their products is published, by arm."
    release = AttackedRelease(
        "revenue per buyer", (replace(table, crosses=(products_by_arm(table, people["variant"], values),)),)
    )
    return BadExample(name, story, (release,), {**people, "revenue": revenue, "bought": bought})


def products_by_arm(table: AttackedTable, arms: Ints, values: dict[Metric, Ints]) -> Cross:
    """Return the products of two metrics by arm, the first axis of a table."""
    (first, y), (second, z) = values.items()

    def added(steps: Ints) -> Cells:
        return np.array([int(steps[arms == arm].sum()) for arm in table.axes[0].levels], dtype=object)

    return Cross((first.name, second.name), table.names[:1], added(np.ones_like(y)), (added(y), added(z)),
                 (added(y**2), added(z**2)), added(y * z))  # fmt: skip
