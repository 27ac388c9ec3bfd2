"""A bad example of a collector: tables of one experiment whose overlap nobody knew when they were published."""

from __future__ import annotations

import numpy as np

from kanab.choices import DEFAULT_K
from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.examples.making import SPEND, BadExample, arm_axis, draw_spend, tabulate
from kanab.inspection.attack.published import AttackedRelease, Axis


def blind_seal(name: str) -> BadExample:
    """Make the tables of device, system and browser of 1,000 people; systems nearly follow from devices."""
    rng = np.random.default_rng(8)
    total = 1_000
    device = rng.choice(["phone", "desktop"], total, p=[0.6, 0.4])
    system = np.where(
        device == "phone", rng.choice(["iOS", "Android"], total), rng.choice(["Windows", "macOS"], total, p=[0.7, 0.3])
    )
    system[np.flatnonzero(device == "desktop")[0]] = "Android"  # the only person with such a desktop
    apple = np.isin(system, ["iOS", "macOS"])
    browser = np.where(apple, "Safari", rng.choice(["Chrome", "other"], total, p=[0.8, 0.2]))
    people = {"variant": rng.choice(["A", "B"], total), "device": device, "system": system, "browser": browser}
    spend = draw_spend(rng, total, 0.9)
    axes = (
        Axis("device", ("phone", "desktop")),
        Axis("system", ("iOS", "Android", "Windows", "macOS")),
        Axis("browser", ("Safari", "Chrome", "other")),
    )
    tables = tuple(
        tabulate(f"variant/{axis.name}", people, (arm_axis("variant", "AB"), axis), {SPEND: spend}, [("variant",)])
        for axis in axes
    )
    releases = (AttackedRelease("batch", tables),)
    story = (
        "A collector publishes one table each of device, system and browser, without knowing how they overlap. "
        f"Every class holds at least {DEFAULT_K} people."
    )
    return BadExample(name, story, releases, {**people, "spend": spend}, place_people(people, releases))
