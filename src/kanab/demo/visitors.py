"""Made-up visitors, who come through the Python client and the real route; and the truth about them, kept here only.

The new checkout sells better on phones; the banner does nothing by itself, but spoils the new checkout; the new
search changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
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
looks = 6
primary = ["bought"]
guardrails = ["minutes"]

[experiments.banner]
arms = { off = 1, on = 1 }
interactions = ["checkout"]
looks = 6
primary = ["bought"]

[experiments.search]
arms = { old = 1, new = 1 }
looks = 6
primary = ["bought"]
"""

EXPERIMENTS = ("checkout", "banner", "search")
RETURNING = 0.15
"""The share of visitors who come back a day later."""

TOGETHER = timedelta(hours=6)
"""Posts of so long are under way at once: the clock must not go on by more than a post lives."""

COLUMNS = (*EXPERIMENTS, "tier", "device", "bought", "minutes")


@dataclass
class Truth:
    """Everybody's final row and week: what a driver of the demonstration knows, and a collector never does."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    weeks: list[datetime] = field(default_factory=list)

    def add(self, row: tuple[Any, ...], week: datetime) -> None:
        """Add somebody who came in a week."""
        self.rows.append(row)
        self.weeks.append(week)

    def stay(self, place: int, minutes: float) -> None:
        """Add the minutes of somebody who came back."""
        *known, before = self.rows[place]
        self.rows[place] = (*known, min(round(before + minutes, 1), 120.0))

    def columns(self, before: datetime | None = None) -> dict[str, list[Any]]:
        """Return the rows as columns, perhaps only of those who came before a week."""
        chosen = [row for row, week in zip(self.rows, self.weeks, strict=True) if before is None or week < before]
        return {name: [row[place] for row in chosen] for place, name in enumerate(COLUMNS)}


@dataclass(frozen=True)
class Visitor:
    """What a visitor is and would do, whatever they see."""

    tier: int
    device: str
    minutes: float
    mood: float
    """They buy where the chance of it is above this."""
    again: float | None
    """How many minutes they stay when they come back; None where they do not."""


@dataclass(frozen=True)
class _ReturnVisit:
    """When somebody comes back, with which state, and for how long."""

    moment: datetime
    state: bytes
    row: int
    minutes: float


def visit_for_a_week(client: Client, clock: DemoClock, week: datetime, people: int, truth: Truth) -> None:
    """Let people come in the course of a week; some return a day later, and are still the same person."""
    returning: deque[_ReturnVisit] = deque()
    delivered = week
    for place, visitor in enumerate(_visitors(people, seed=len(truth.rows))):
        moment = week + timedelta(days=7 * place / people)
        if moment - delivered >= TOGETHER:
            delivered = moment
            _deliver(client)
        while returning and returning[0].moment <= moment:
            _return(client, clock, returning.popleft(), truth)
        clock.move_to(moment)
        state = _visit(client, visitor, week, truth)
        if visitor.again is not None:
            returning.append(_ReturnVisit(moment + timedelta(days=1), state, len(truth.rows) - 1, visitor.again))
    _deliver(client)
    for visit in returning:
        _return(client, clock, visit, truth)
    _deliver(client)


def _visitors(people: int, seed: int) -> Iterator[Visitor]:
    rng = np.random.default_rng(seed)
    tiers, phones = rng.choice([1, 2, 3], people, p=[0.5, 0.3, 0.2]), rng.random(people) < 0.6
    minutes, moods = rng.gamma(2.0, 3.0, people) + 0.5 * tiers, rng.random(people)
    returns, more = rng.random(people) < RETURNING, rng.gamma(1.0, 2.0, people)
    for place in range(people):
        yield Visitor(
            int(tiers[place]), "phone" if phones[place] else "desktop", round(float(minutes[place]), 1),
            float(moods[place]), round(float(more[place]), 1) if returns[place] else None,
        )  # fmt: skip


def _visit(client: Client, visitor: Visitor, week: datetime, truth: Truth) -> bytes:
    person = client.person()
    checkout, banner, _ = arms = [person.variant(name) for name in EXPERIMENTS]
    person.enroll("checkout", {"tier": visitor.tier, "device": visitor.device})
    person.enroll("banner")
    person.enroll("search")
    person.track("minutes", visitor.minutes)
    chance = 0.15 + 0.05 * visitor.tier + (0.18 if checkout == "B" and visitor.device == "phone" else 0.0)
    chance -= 0.10 if checkout == "B" and banner == "on" else 0.0
    bought = visitor.mood < chance
    if bought:
        person.track("bought")
    truth.add((*arms, visitor.tier, visitor.device, int(bought), min(visitor.minutes, 120.0)), week)
    return person.save()


def _return(client: Client, clock: DemoClock, visit: _ReturnVisit, truth: Truth) -> None:
    clock.move_to(visit.moment)
    person = client.person(visit.state)
    person.track("minutes", visit.minutes)
    person.save()
    truth.stay(visit.row, visit.minutes)


def _deliver(client: Client) -> None:
    if not client.flush(60.0):
        raise TimeoutError("the collector of the demonstration does not answer")
