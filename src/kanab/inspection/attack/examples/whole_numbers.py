"""A bad example that only whole numbers break: rates that differ a lot, in tables that share a few people."""

from __future__ import annotations

from typing import Any

import numpy as np

from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.examples.making import BOUGHT, BadExample, arm_axis, tabulate
from kanab.inspection.attack.published import AttackedRelease, Axis


def whole_numbers(name: str) -> BadExample:
    """Make three tables of 300 people whose rates run from hardly anybody to nearly all."""
    rng = np.random.default_rng(76)
    total, levels = 300, {"tier": 4, "device": 3, "region": 4}
    known: dict[str, Any] = {"variant": rng.choice(["A", "B"], total)}
    logit = np.zeros(total)
    for covariate, size in levels.items():
        known[covariate] = rng.integers(1, size + 1, total)
        logit = logit + rng.normal(0, 2, size)[known[covariate] - 1]
    bought = (rng.random(total) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    tables = tuple(
        tabulate(
            f"variant/{covariate}",
            known,
            [arm_axis("variant", "AB"), Axis(covariate, tuple(range(1, size + 1)))],
            {BOUGHT: bought},
            [],
        )
        for covariate, size in levels.items()
    )
    story = (
        "Three tables of 300 people. No combination of sums rests on fewer than ten of them; but a value is 0 or 1, "
        "and in some classes nearly all bought. The attacker knows everybody's classes, and solves in whole numbers."
    )
    releases = (AttackedRelease("shop", tables),)
    return BadExample(name, story, releases, {**known, "bought": bought}, place_people(known, releases), exact=True)
