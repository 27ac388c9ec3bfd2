"""Three hundred visits of real pages, left without a goodbye: the sums are the driver's, to the last digit."""

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.browser.browser_tab import Tab
from tests.browser.shop_site import Site

import kanab as kb

VISITS, PEOPLE = 160, 70
METRICS = ("bought", "minutes", "revenue", "orders", "rating")
VISIT = """async ([url, steps]) => {
  const { init } = await import("/kanab.js");
  const kanab = await init({ url });
  for (const [verb, ...rest] of steps) kanab[verb](...rest);
  return [kanab.variant("checkout"), kanab.variant("banner")];
}"""
LEFT = """async (urls) => {
  const { init } = await import("/kanab.js");
  await Promise.all(urls.map(async (url) => (await init({ url })).flush()));
  const keys = urls.map((url) => "kanab/1 " + new URL(url, location));
  const units = keys.flatMap((key) => Object.values(JSON.parse(localStorage[key]).units));
  const most = { rating: 5, minutes: 600, revenue: 500, orders: 50, bought: 1 };
  const cut = ([name, total]) => [name, Math.min(total, most[name])];
  const sorted = (totals) => JSON.stringify(Object.entries(totals).map(cut).sort());
  return units.filter((unit) => unit.post || sorted(unit.sent) !== sorted(unit.totals));
}"""


class Visitor:
    """What one person is and did, as the driver knows it."""

    def __init__(self, rng: random.Random, number: int) -> None:
        self.rng, self.url, self.visits = rng, f"/p/{number}/", 0
        self.levels = {"tier": rng.choice([1, 2, 3, None]), "device": rng.choice(["phone", "desktop", "watch"])}
        self.joins = rng.choice([(), ("checkout",), ("banner",), ("checkout", "banner"), ("checkout", "banner")])
        self.arms: set[tuple[str, str]] = set()
        self.totals: dict[str, float] = {}

    def steps(self) -> list[list[Any]]:
        """What this visit does; the first one enrolls, in the middle of what else happens."""
        rng = self.rng
        steps: list[list[Any]] = (
            [] if self.visits else [["track", "minutes", 7], *(self._enroll(one) for one in self.joins)]
        )
        self.visits += 1
        for _ in range(rng.randrange(4)):
            metric = rng.choice(METRICS)
            amount = {"bought": 1, "orders": 1, "rating": rng.randint(1, 5)}.get(
                metric, round(rng.expovariate(0.02), 2)
            )
            steps.append(["track", metric, amount])
            old = self.totals.get(metric, 0)
            self.totals[metric] = 1 if metric == "bought" else old + amount
        return steps

    def _enroll(self, experiment: str) -> list[Any]:
        return ["enroll", experiment, self.levels]

    def row(self) -> dict[str, Any]:
        ((checkout, banner),) = self.arms
        device = "other" if self.levels["device"] == "watch" else self.levels["device"]
        known: dict[str, Any] = {name: self.totals.get(name, math.nan if name == "rating" else 0) for name in METRICS}
        arms = {"checkout": checkout if "checkout" in self.joins else None}
        arms["banner"] = banner if "banner" in self.joins else None
        return known | arms | {"tier": self.levels["tier"], "device": device}


def test_sums_of_many_visits_equal_the_truth_to_the_last_digit(site: Site, someone: Callable[..., Tab]) -> None:
    rng, tab = random.Random(8), someone()
    people = [Visitor(rng, number) for number in range(PEOPLE)]
    for person in [*people, *rng.choices(people, k=VISITS - PEOPLE)]:
        # Leaving the last page at once: what it has not sent yet is sent now, or on a later page.
        tab.page.goto(site.url, wait_until="commit")
        person.arms.add(tuple(tab.page.evaluate(VISIT, [person.url, person.steps()])))
    sent_on_the_way = len(site.posts)
    tab.page.goto(site.url)
    assert tab.page.evaluate(LEFT, [person.url for person in people]) == []
    rows = [person.row() for person in people if person.joins]
    assert site.tallies() == dict(
        kb.count({name: [row[name] for row in rows] for name in rows[0]}, plan=site.plan).tallies
    )
    assert {post.status for post in site.posts} == {204}
    assert sent_on_the_way > 0.5 * len(site.posts)
    arms = Counter(next(iter(person.arms)) for person in people)
    assert min(arms.values()) >= 8  # 70 people in four combinations of arms
    assert tab.heard == []
