"""Bad examples of rare values: few people of one arm, many experiments by their arms alone, a price that most pay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.examples.making import BOUGHT, BadExample, Ints, arm_axis, tabulate
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, Axis
from kanab.tally.metric import Metric

PRICE = Metric("price", 100, (0.0, 50.0))
FEE = Metric("fee", 100, (0.0, 500.0))


def rare_in_one_arm(name: str) -> BadExample:
    """Make eight tables of a metric that many people of B have, and one person of A."""
    rng = np.random.default_rng(5)
    people = _crowd(rng, 2_000, 8)
    upgraded = ((people["variant"] == "B") & (rng.random(2_000) < 0.3)).astype(np.int64)
    upgraded[np.flatnonzero(people["variant"] == "A")[:1]] = 1
    story = (
        "Only B can upgrade, and hundreds do; support upgraded one person of A by hand. Eight tables of variant × a "
        "covariate. The attacker knows everybody's classes."
    )
    tables = _tables(people, {BOUGHT: upgraded})
    return _example(name, story, people, tables, {"bought": upgraded})


def arms_only(name: str) -> BadExample:
    """Make the arm totals of twenty-five experiments on a thousand people, of whom three bought."""
    rng = np.random.default_rng(26)
    people = {f"experiment {i + 1}": rng.choice(["A", "B"], 1_000) for i in range(25)}
    bought = np.zeros(1_000, dtype=np.int64)
    bought[rng.permutation(1_000)[:3]] = 1
    tables = [tabulate(own, people, [arm_axis(own, "AB")], {BOUGHT: bought}, []) for own in people]
    story = (
        "Twenty-five experiments publish nothing but the totals of their two arms, of hundreds of people each. Three "
        "people bought. The attacker knows everybody's arms."
    )
    return _example(name, story, people, tables, {"bought": bought})


def unusual_price(name: str) -> BadExample:
    """Make eight tables of a price that nearly everybody pays, and of whole fees but for one with odd cents."""
    rng = np.random.default_rng(10)
    people = _crowd(rng, 2_000, 8)
    price = np.full(2_000, 999)
    for arm in "AB":
        price[rng.choice(np.flatnonzero(people["variant"] == arm))] = 499
    fee = 100 * rng.integers(1, 400, 2_000)
    fee[rng.integers(2_000)] += 37
    story = (
        "All but one person of each arm pay 9.99, and all fees are whole but for one person's. Eight tables of variant "
        "× a covariate, every class with hundreds of people. The attacker knows everybody's classes."
    )
    return _example(name, story, people, _tables(people, {PRICE: price, FEE: fee}), {"price": price, "fee": fee})


def _crowd(rng: np.random.Generator, total: int, covariates: int) -> dict[str, Any]:
    levels = {f"covariate {i + 1}": rng.choice(["low", "middle", "high"], total) for i in range(covariates)}
    return {"variant": rng.choice(["A", "B"], total), **levels}


def _tables(people: dict[str, Any], values: dict[Metric, Ints]) -> list[AttackedTable]:
    """Cross the variant with every covariate."""
    return [
        tabulate(
            f"variant/{side}", people, [arm_axis("variant", "AB"), Axis(side, ("low", "middle", "high"))], values, []
        )
        for side in people
        if side != "variant"
    ]


def _example(
    name: str, story: str, people: dict[str, Any], tables: Sequence[AttackedTable], values: dict[str, Ints]
) -> BadExample:
    releases = (AttackedRelease(name, tuple(tables)),)
    return BadExample(name, story, releases, {**people, **values}, place_people(people, releases))
