"""Made-up visitors, who come through the Python client and the real route; and the truth about them, kept here only.

The new checkout sells better on phones; the banner does nothing by itself, but spoils the new checkout; the new
search changes nothing.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from kanab.client import Client


class DemoClock:
    """A clock that stands where it is put and never goes back; once it has caught up, it is the real one.

    >>> clock = DemoClock(datetime(2026, 10, 5, tzinfo=UTC))
    >>> clock.move_to(datetime(2026, 10, 7, 12, tzinfo=UTC))
    >>> clock().isoformat()
    '2026-10-07T12:00:00+00:00'
    """

    def __init__(self, start: datetime) -> None:
        self._now: datetime | None = start

    def __call__(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.now(UTC) if self._now is None else self._now

    def move_to(self, moment: datetime) -> None:
        """Let time pass, at most up to now."""
        if self._now is not None and moment > self._now:
            self._now = min(moment, datetime.now(UTC))

    def catch_up(self) -> None:
        """Be the real clock from now on."""
        self._now = None


def monday(now: datetime, weeks_ago: int) -> datetime:
    """Return the beginning of a week, so many weeks ago.

    >>> monday(datetime(2026, 11, 15, 17, tzinfo=UTC), 1).isoformat()
    '2026-11-02T00:00:00+00:00'
    """
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=now.weekday(), weeks=weeks_ago)


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


PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = ["--no-sandbox", "--disable-blink-features=AutomationControlled"]
"""The client leaves automated browsers out; these are visitors."""


def visit_in_browser(address: str, visits: int) -> int:
    """Visit the shop in a browser; return how many came: 0 where there is neither playwright nor a browser."""
    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if program is None:
        return 0
    try:
        from playwright.sync_api import Error, sync_playwright  # noqa: PLC0415 - for development
    except ImportError:
        return 0
    came = 0
    with suppress(Error), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        pages = [browser.new_context().new_page() for _ in range(visits)]
        for page in pages:
            page.goto(f"{address}/shop")
            page.wait_for_selector("#checkout button")
        _act(pages, lambda page: page.click("#stay"))
        _act(pages[1::2], _buy)  # every other one
        for page in pages:
            page.context.close()  # the last post goes out on leaving
            came += 1
        browser.close()
    return came


def _act(pages: Sequence[Any], act: Callable[[Any], None]) -> None:
    """Let all of them do something, and wait until what it changes is counted."""
    with ExitStack() as answers:
        for page in pages:
            answers.enter_context(page.expect_response("**/v1/t"))
            act(page)


def _buy(page: Any) -> None:
    """Buy, in one arm by way of the basket."""
    while not page.inner_text("#thanks"):
        page.click("#checkout button")
