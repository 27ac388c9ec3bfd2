"""Bad examples of sums that a number weighs: one person is far off in it, or only some people's add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.examples.making import BOUGHT, SPEND, BadExample, arm_axis, draw_spend, tabulate
from kanab.inspection.attack.examples.metrics import products_by_arm
from kanab.inspection.attack.published import AttackedRelease, Axis
from kanab.tally.metric import Metric

_BEFORE = Metric("spend_before", 100, (0.0, 20_000.0))
_PREDICTED = Metric("predicted", 10**12, (0.0, 1.0))


def outlier_in_number(name: str) -> BadExample:
    """Make a table with spend and what people spent before, and the products that a regression needs."""
    rng = np.random.default_rng(55)
    total, tiers = 3_000, (1, 2, 3)
    people = {"variant": rng.choice(["A", "B"], total), "tier": rng.choice(tiers, total)}
    before, spend = draw_spend(rng, total, 0.6), draw_spend(rng, total, 0.3)
    before[1_234], spend[1_234] = 1_950_000, 47_315
    values = {_BEFORE: before, SPEND: spend}
    table = tabulate("variant/tier", people, [arm_axis("variant", "AB"), Axis("tier", tiers)], values, [("variant",)])
    crosses = (products_by_arm(table, people["variant"], values),)
    release = AttackedRelease("spend, adjusted for spend_before", (replace(table, crosses=crosses),))
    known = place_people({**people, "spend_before": before / 100}, [release])
    story = "Spend by tier, and for a regression on what people spent before, the sum of the products of both by arm."
    return BadExample(name, story, (release,), {**people, "spend_before": before, "spend": spend}, known)


def numbers_add_up(name: str) -> BadExample:
    """Make a table of who bought, and the sum of a prediction with twelve digits over those who did."""
    rng = np.random.default_rng(56)
    people = {"variant": np.repeat(["A", "B"], 40)}
    bought = np.concatenate([rng.permutation(np.repeat([1, 0], [10, 30])) for _ in range(2)])
    predicted = rng.choice([3 * 10**11, 7 * 10**11], 80) + rng.integers(0, 10**11, 80)
    values = {_PREDICTED: predicted, BOUGHT: bought}
    table = tabulate("variant", people, [arm_axis("variant", "AB")], values, [("variant",)])
    crosses = (products_by_arm(table, people["variant"], values),)
    release = AttackedRelease("bought, adjusted for a prediction", (replace(table, crosses=crosses),))
    known = place_people({**people, "predicted": predicted / 10**12}, [release])
    story = "Who bought, by arm, and for a regression on a model's prediction, the sum of the predictions of buyers."
    return BadExample(name, story, (release,), {**people, "predicted": predicted, "bought": bought}, known)
