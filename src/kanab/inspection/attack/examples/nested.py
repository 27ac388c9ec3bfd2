"""Bad examples of subtraction: levels inside levels, and experiments inside experiments."""

from __future__ import annotations

import numpy as np

from kanab.choices import DEFAULT_K
from kanab.inspection.attack.examples.making import BOUGHT, SPEND, BadExample, arm_axis, draw_spend, tabulate
from kanab.inspection.attack.published import AttackedRelease, Axis

_COUNTRIES = {
    "north": ("Norway", "Sweden"), "south": ("Spain", "Italy"), "west": ("Ireland", "France"),
}  # fmt: skip


def nested_levels(name: str) -> BadExample:
    """Make tables by region and by country; countries with few people are one level, wherever they are."""
    rng = np.random.default_rng(43)
    total = 1_200
    region = rng.choice([*_COUNTRIES], total)
    country = np.array([rng.choice([*_COUNTRIES[home], "other"], p=[0.45, 0.42, 0.13]) for home in region])
    variant = rng.choice(["A", "B"], total)
    spend = draw_spend(rng, total, 0.05)
    people = {"variant": variant, "region": region, "country": country}
    values = {BOUGHT: (spend > 0).astype(np.int64), SPEND: spend}
    arms = arm_axis("variant", "AB")
    regions = Axis("region", tuple(_COUNTRIES))
    countries = Axis("country", (*(each for inside in _COUNTRIES.values() for each in inside), "other"))
    tables = (
        tabulate("variant/region", people, (arms, regions), values, [("variant",)]),
        tabulate("variant/country", people, (arms, countries), values, [("variant",)]),
        tabulate("variant/region/country", people, (arms, regions, countries), {}, []),
    )
    story = (
        "Spend by region and by country, and people by both. Countries with few people are one level. Every class, "
        f"and every region without its countries, holds at least {DEFAULT_K} people."
    )
    release = AttackedRelease("places", tables, contributors={"spend": "bought"})
    return BadExample(name, story, (release,), {**people, "spend": spend})


def two_experiments(name: str) -> BadExample:
    """Make two site-wide experiments; one person came in only one of them."""
    rng = np.random.default_rng(6)
    total = 800
    tier = rng.choice([1, 2, 3], total)
    people = {"layout": rng.choice(["A", "B"], total), "price": rng.choice(["A", "B"], total), "tier": tier}
    spend = draw_spend(rng, total, 0.3)
    spend[-1] = 7_346
    values = {BOUGHT: (spend > 0).astype(np.int64), SPEND: spend}
    tables = []
    for experiment, here in (("layout", total), ("price", total - 1)):
        rows = {key: column[:here] for key, column in people.items()}
        axes = arm_axis(experiment, "AB"), Axis("tier", (1, 2, 3))
        own = {metric: steps[:here] for metric, steps in values.items()}
        tables.append(tabulate(f"{experiment}/tier", rows, axes, own, [(experiment,)]))
    story = (
        "Two experiments with everybody in both, but for one person whose second enrollment was lost. Every class "
        "holds more than 100 people."
    )
    return BadExample(name, story, (AttackedRelease("sealed", tuple(tables)),), {**people, "spend": spend})
