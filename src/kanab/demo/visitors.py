"""Made-up visitors, who come through the Python client and the real route; and the truth about them, kept here only.

The new checkout sells better on phones; the banner does nothing by itself, but spoils the new checkout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from kanab.client import Client
from kanab.demo.clock import DemoClock

PLAN = """\
# The plan of the demonstration: everything that its shop may collect.
k = 10

[cohorts]
every = "7d"
window = "2d"
seal = "7d"

[covariates]
tier = [1, 2, 3]
device = ["phone", "desktop"]

[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 120], resolution = 0.1 }

[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
segments = ["device"]
looks = 4

[experiments.banner]
arms = { off = 1, on = 1 }
interactions = ["checkout"]
"""

COLUMNS = ("checkout", "banner", "tier", "device", "bought", "minutes")


@dataclass
class Truth:
    """Everybody's final row and week: what a driver of the demonstration knows, and a collector never does."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    weeks: list[datetime] = field(default_factory=list)
    posts: int = 0

    def columns(self, before: datetime | None = None) -> dict[str, list[Any]]:
        """Return the rows as columns, perhaps only of those who came before a week."""
        chosen = [row for row, week in zip(self.rows, self.weeks, strict=True) if before is None or week < before]
        return {name: [row[place] for row in chosen] for place, name in enumerate(COLUMNS)}


def visit_for_a_week(client: Client, clock: DemoClock, week: datetime, people: int, truth: Truth) -> None:
    """Let people come in the course of a week; some return a day later, and are still the same person."""
    rng = np.random.default_rng(len(truth.rows))
    returning: list[tuple[datetime, bytes, int]] = []
    for place in range(people):
        moment = week + timedelta(days=7 * place / people)
        while returning and returning[0][0] <= moment:
            _return(client, clock, returning.pop(0), truth, rng)
        clock.move_to(moment)
        state = _visit(client, week, truth, rng)
        if rng.random() < 0.2:
            returning.append((moment + timedelta(days=1), state, len(truth.rows) - 1))
    for visit in returning:
        _return(client, clock, visit, truth, rng)


def _visit(client: Client, week: datetime, truth: Truth, rng: np.random.Generator) -> bytes:
    tier, device = int(rng.choice([1, 2, 3], p=[0.5, 0.3, 0.2])), str(rng.choice(["phone", "desktop"], p=[0.6, 0.4]))
    person = client.person()
    arm, banner = person.variant("checkout"), person.variant("banner")
    person.enroll("checkout", {"tier": tier, "device": device})
    person.enroll("banner")
    minutes = round(float(rng.gamma(2.0, 3.0)) + 0.5 * tier, 1)
    person.track("minutes", minutes)
    chance = 0.15 + 0.05 * tier + (0.30 if arm == "B" and device == "phone" else 0.0)
    chance -= 0.12 if arm == "B" and banner == "on" else 0.0
    bought = bool(rng.random() < chance)
    if bought:
        person.track("bought")
    _deliver(person)
    truth.rows.append((arm, banner, tier, device, int(bought), min(minutes, 120.0)))
    truth.weeks.append(week)
    truth.posts += 1
    return person.save()


def _return(
    client: Client, clock: DemoClock, visit: tuple[datetime, bytes, int], truth: Truth, rng: np.random.Generator
) -> None:
    moment, state, row = visit
    clock.move_to(moment)
    person = client.person(state)
    more = round(float(rng.gamma(1.0, 2.0)), 1)
    person.track("minutes", more)
    _deliver(person)
    *known, minutes = truth.rows[row]
    truth.rows[row] = (*known, min(round(minutes + more, 1), 120.0))
    truth.posts += 1


def _deliver(person: Any) -> None:
    if not person.flush(30.0):
        raise TimeoutError("the collector of the demonstration does not answer")
