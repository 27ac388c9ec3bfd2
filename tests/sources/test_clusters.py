"""Clusters and windows: every engine counts what rows in memory give."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np

import kanab as kb
from kanab.counting.engine.people import Events
from kanab.counting.engine.sql import count_table
from kanab.description import Mean
from kanab.plan.model import make_plan

from .conftest import Loader


def test_every_engine_adds_up_the_same_clusters(engine: Loader) -> None:
    rng = np.random.default_rng(8)
    city, hour = np.repeat(np.arange(6), 100), np.tile(np.arange(100) // 10, 6)
    rows = {
        "city": [f"city {i}" if i != 3 else None for i in city.tolist()],
        "hour": hour.tolist(),
        "variant": ["AB"[(i + j) % 2] for i, j in zip(city.tolist(), hour.tolist(), strict=True)],
        "spend": np.round(rng.gamma(1, 9, 600), 2).tolist(),
    }
    plan = make_plan("variant", [Mean("spend", bounds=(0, 20), resolution=0.01), Mean("people", bounds=(0, 50))])
    counted = kb.count(engine.load(rows), plan, rows=kb.Rows(cluster=["city", "hour"]))
    tally = counted.tallies["variant"]
    for place, arm in enumerate("AB"):
        clusters: dict[tuple[str, int], list[float]] = {}
        for where, when, of, value in zip(*rows.values(), strict=True):
            if of == arm and where is not None:
                clusters.setdefault((where, when), []).append(min(value, 20))
        assert tally.people[place] == len(clusters)
        assert tally.moments_of("people").sums[place] == sum(map(len, clusters.values()))
        cents = [round(100 * sum(values)) for values in clusters.values()]
        assert tally.moments_of("spend").sums[place] == sum(cents)
        products = {cross.pair: cross for cross in tally.crosses}[("spend", "people")].products
        assert products[place] == sum(
            total * len(values) for total, values in zip(cents, clusters.values(), strict=True)
        )


def test_every_engine_counts_events_in_their_windows(engine: Loader) -> None:
    start = datetime(2026, 3, 1)
    people = {"user": list(range(60)), "variant": ["A", "B"] * 30}
    people["time"] = [start + timedelta(hours=i) for i in range(60)]
    events: dict[str, list] = {"user": [], "time": [], "spend": []}
    for person in range(60):
        for hours in range(0, 24 * 20, 31):
            events["user"].append(person)
            events["time"].append(people["time"][person] + timedelta(hours=hours))
            events["spend"].append((person * 7 + hours) % 13)
    names = ["spend", "spend@0d..7d", "spend@7d..14d"]
    plan = make_plan("variant", [Mean(name, bounds=(0, 500), resolution=1) for name in names])
    beside = Events(engine.load(events), "14d")
    tally = count_table(engine.load(people), plan, unit="user", events=beside).tallies["variant"]
    for name, low, high in (("spend", 0, 14), ("spend@0d..7d", 0, 7), ("spend@7d..14d", 7, 14)):
        for place in range(2):
            expected = sum(
                spend
                for person, at, spend in zip(*events.values(), strict=True)
                if person % 2 == place and timedelta(days=low) <= at - people["time"][person] < timedelta(days=high)
            )
            assert tally.moments_of(name).sums[place] == expected, name


def test_a_plan_of_one_window_reads_one_column(engine: Loader) -> None:
    name = "spend@0d..7d"
    people = {"user": [1, 2], "variant": ["A", "B"], "time": [datetime(2026, 3, 1)] * 2}
    events = {"user": [1, 2], "time": [datetime(2026, 3, 2), datetime(2026, 3, 9)], "spend": [3, 4]}
    plan = make_plan("variant", [Mean(name, bounds=(0, 9), resolution=1)])
    tally = count_table(engine.load(people), plan, unit="user", events=Events(engine.load(events), "7d"))
    assert tally.tallies["variant"].moments_of(name).sums.tolist() == [3, 0]
