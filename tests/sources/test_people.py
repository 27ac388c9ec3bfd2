"""Several rows per person, exposures and events, and filters: the same people in every engine."""

from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from ibis.backends.duckdb import Backend

import kanab as kb
from kanab.counting.connect import opened_table
from kanab.counting.engine.people import Events, Units
from kanab.counting.engine.sql import count_table, show_sql
from kanab.counting.in_memory import count_rows
from kanab.description import Mean
from kanab.errors import SourceError
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan, make_plan

from .conftest import Loader
from .test_engines import SHOP, assert_same


def visits(people: int = 120, seed: int = 11) -> dict[str, list[Any]]:
    """Several visits per person; two people see both arms, one has no name."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[Any]] = defaultdict(list)
    for person in range(people):
        arm, vip, tier = "AB"[person % 2], bool(rng.random() < 0.5), int(rng.integers(1, 4))
        for visit in range(int(rng.integers(1, 5))):
            both = person in (6, 7) and visit == 0
            rows["user_id"].append(person if person != 9 else None)
            rows["variant"].append("BA"[person % 2] if both else arm)
            rows["vip"].append(vip)
            rows["tier"].append(None if visit == 1 else tier)
            rows["spend"].append(None if rng.random() < 0.2 else round(float(rng.gamma(1, 9)), 2))
            rows["share"].append(float(rng.random()))
            rows["bought"].append(bool(rng.random() < 0.3))
            rows["pages"].append(int(rng.integers(0, 9)))
    for person in (6, 7):  # make sure that both arms are there
        rows["user_id"].append(person)
        rows["variant"].append("AB"[person % 2])
        last = {"vip": True, "tier": 1, "spend": 1.0, "share": 0.5, "bought": False, "pages": 1}
        for name, value in last.items():
            rows[name].append(value)
    return dict(rows)


VISITS = visits()


def by_person(rows: dict[str, list[Any]], how: dict[str, str]) -> dict[str, list[Any]]:
    """The same with loops: grid steps are summed as whole numbers."""
    people: dict[Any, list[int]] = defaultdict(list)
    for place, person in enumerate(rows["user_id"]):
        if person is not None:
            people[person].append(place)
    found: dict[str, list[Any]] = defaultdict(list)
    for places in people.values():
        arms = {rows["variant"][place] for place in places}
        found["variant"].append(arms.pop() if len(arms) == 1 else None)
        for name in ("vip", "tier"):
            found[name].append(
                min((rows[name][place] for place in places if rows[name][place] is not None), default=None)
            )
        for name, (word, scale) in ((name, word.split()) for name, word in how.items()):
            values = [float(rows[name][place]) for place in places if rows[name][place] is not None]
            steps = sum(int(np.floor(value * int(scale) + 0.5)) for value in values)
            if not values:
                found[name].append(None)
            elif word == "max":
                found[name].append(max(values))
            else:
                found[name].append(steps / (len(values) if word == "mean" else 1) / int(scale))
    return dict(found)


def test_rows_of_a_person_are_added_up_first(engine: Loader) -> None:
    plan = make_plan("variant", ["spend", "share", "bought", "pages"], adjust=["tier"], segments=["vip"])
    people = by_person(VISITS, {"spend": "sum 100", "share": "sum 2199023255552", "bought": "max 1", "pages": "sum 1"})
    counted = count_table(engine.load(VISITS), plan, Units(unit="user_id"))
    expected = count_rows(people, plan)
    assert counted.excluded == 2
    assert counted.outside == 0
    assert expected.outside == 2
    assert counted.tallies == expected.tallies


def test_largest_and_mean_values_can_be_asked_for(engine: Loader) -> None:
    metrics = [Mean("spend", bounds=(0, 100), resolution=0.01), Mean("share", bounds=(0, 1), missing="exclude")]
    metrics.append(Mean("pages", bounds=(0, 50), resolution=0.1))
    plan = make_plan("variant", metrics, adjust=["tier"], arms={"A": 1, "B": 1})
    people = by_person(VISITS, {"spend": "max 100", "share": "mean 2147483648", "pages": "mean 10"})
    how = {"spend": "max", "share": "mean", "pages": "mean"}
    counted = count_table(engine.load(VISITS), plan, Units(unit="user_id", aggregate=how))
    assert counted.tallies == count_rows(people, plan).tallies


def test_an_infinite_row_is_not_hidden_by_its_sum_or_its_bounds(engine: Loader) -> None:
    data = {"user_id": [1, 1, 2, 3, 4], "variant": list("AABAB"), "y": [1.0, float("inf"), 2.0, 3.0, 4.0]}
    for metric in (Mean("y"), Mean("y", bounds=(0, 5))):
        with pytest.raises(SourceError, match="infinite"):
            count_table(engine.load(data), make_plan("variant", [metric]), Units(unit="user_id"))


def test_what_happened_within_the_window_after_the_first_exposure(engine: Loader) -> None:
    start = datetime(2026, 3, 1, 12)
    exposures = {
        "user_id": ["a", "a", "b", "c", "d", "d", "e", None],
        "variant": ["A", "A", "B", "A", "A", "B", None, "B"],
        "tier": [1, 1, 2, 2, 1, 1, 1, 1],
        "time": [start + timedelta(days=day) for day in (0, 3, 0, 1, 0, 1, 0, 0)],
    }
    events = {
        "user_id": ["a", "a", "a", "a", "b", "b", "d", "x", "c"],
        "time": [
            start - timedelta(seconds=1),  # before
            start,  # at the first moment: counts
            start + timedelta(days=13, hours=23),
            start + timedelta(days=14),  # after the last moment
            start + timedelta(days=2),
            start + timedelta(days=5),
            start,  # seen in two arms
            start,  # never exposed
            start,  # before the exposure
        ],
        "spend": [100.0, 1.25, 2.5, 100.0, 7.0, 0.5, 9.0, 9.0, 50.0],
    }
    plan = make_plan("variant", ["spend"], adjust=["tier"])
    loaded = Events(engine.load(events), window="14d")
    counted = count_table(engine.load(exposures), plan, Units(unit="user_id", events=loaded))
    people = {"variant": ["A", "B", "A"], "tier": [1, 2, 2], "spend": [3.75, 7.5, None]}
    assert counted.tallies == count_rows(people, plan).tallies
    assert (counted.excluded, counted.outside, counted.missing) == (1, 0, {"spend": 1})


def test_dates_and_texts_are_points_in_time_too(engine: Loader) -> None:
    exposures = {
        "user_id": [1, 2, 3, 4],
        "variant": list("ABAB"),
        "day": ["2026-03-01", "2026-03-01", "2026-03-02", "2026-03-04"],
    }
    days = pa.array([datetime(2026, 3, day).date() for day in (1, 2, 3, 4)])
    events = pa.table({"user_id": [1, 2, 3, 4], "date": days, "spend": [1, 2, 4, 8]})
    loaded = Events(engine.load(events), window="1d", time="date", exposure_time="day")
    counted = count_table(engine.load(exposures), make_plan("variant", ["spend"]), Units(unit="user_id", events=loaded))
    assert counted.tallies["variant"].moments_of("spend").sums.tolist() == [1, 8]


def test_a_filter_is_applied_to_the_rows_and_recorded(engine: Loader) -> None:
    plan = make_plan("variant", [Mean("spend", bounds=(0, 60))], adjust=["tier"])
    counted = count_table(engine.load(SHOP), plan, Units(where="device = 'phone' AND spend >= 5"))
    frame = SHOP.to_pandas()
    assert_same(counted, count_rows(frame[(frame.device == "phone") & (frame.spend >= 5)], plan))
    assert counted.where == "device = 'phone' AND spend >= 5"


@pytest.mark.parametrize("where", ["device =", "1 = 1; DROP TABLE x", "device = 'phone' GROUP BY 1"])
def test_a_filter_that_is_no_condition_is_refused(engine: Loader, where: str) -> None:
    with pytest.raises(SourceError, match="the filter is not a condition"):
        count_table(engine.load(SHOP), make_plan("variant", ["spend"]), Units(where=where))


def test_a_filter_that_names_no_column_says_so(engine: Loader) -> None:
    with pytest.raises(SourceError, match=r"names a column 'devise', which is not there\. Did you mean device"):
        count_table(engine.load(SHOP), make_plan("variant", ["spend"]), Units(where="devise = 'phone'"))


def test_a_column_called_like_a_word_of_sql_can_be_filtered_by(engine: Loader) -> None:
    rows = {"variant": ["A", "B"] * 30, "spend": [1, 2] * 30, "order": [1] * 30 + [2] * 30, "user": [5] * 60}
    counted = count_table(engine.load(rows), make_plan("variant", ["spend"]), Units(where="order = 1 AND user = 5"))
    assert counted.tallies["variant"].total == 30


def test_the_statement_can_be_shown(engine: Loader) -> None:
    plan = make_plan("variant", [Mean("spend", bounds=(0, 500), resolution=0.01)], adjust=["tier"])
    text = show_sql(engine.load(SHOP), plan, Units(where="tier > 1"))
    assert "* 100.0" in text
    assert text.count("GROUP BY") == 2  # signatures, and all tables in one pass over them


@pytest.mark.parametrize("window", ["14", "two weeks", "-1d", "1y"])
def test_a_window_is_a_length_of_time(duckdb_loader: Loader, window: str) -> None:
    table = duckdb_loader.load({"user_id": [1], "variant": ["A"], "time": [datetime(2026, 1, 1)], "spend": [1.0]})
    with pytest.raises(SourceError, match="the window is not a length of time"):
        count_table(table, make_plan("variant", ["spend"]), Units(unit="user_id", events=Events(table, window)))


def test_mistakes_in_how_people_are_made(duckdb_loader: Loader) -> None:
    table = duckdb_loader.load(VISITS)
    plan = make_plan("variant", ["spend"])
    in_pages, seen = Events(table, time="pages", exposure_time="pages"), Events(table, time="at", exposure_time="at")
    mistakes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"unit": "user"}, r"there is no column 'user'. Did you mean user_id"),
        ({"aggregate": "sum"}, "the column of the person is not named"),
        ({"first_by": "at"}, "the column of the person is not named"),
        ({"unit": "user_id", "aggregate": "median"}, "Use sum, max or mean"),
        ({"unit": "user_id", "aggregate": {"pages": "sum"}}, "aggregate names a metric that is not counted"),
        ({"unit": "user_id", "events": in_pages}, "column 'pages' holds no points in time"),
        ({"unit": "user_id", "first_by": "share"}, "column 'share' holds no points in time"),
        ({"unit": "user_id", "first_by": "at", "events": seen}, "those of the first exposure already"),
    )
    for choices, fact in mistakes:
        with pytest.raises(SourceError, match=fact):
            count_table(table, plan, Units(**choices))
    two = Plan((MetricPlan("spend"),), (ExperimentPlan("variant"), ExperimentPlan("vip")))
    with pytest.raises(SourceError, match=r"count one experiment at a time"):
        count_table(table, two, Units(unit="user_id", events=Events(table)))


# ── covariates that change, and 0/1 ────────────────────────────────────────────────────────────


def changing(people: int = 400, seed: int = 3) -> dict[str, list[Any]]:
    """Three visits each. The treatment does nothing to y, but moves tier after the first visit, with y."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[Any]] = defaultdict(list)
    for person in range(people):
        arm, tier = "AB"[person % 2], int(rng.integers(1, 4))
        for visit in range(3):
            y = float(rng.integers(0, 9))
            rows["user_id"].append(person)
            rows["variant"].append(arm)
            rows["tier"].append(tier if visit == 1 else int(y > 4) + (arm == "B"))
            rows["at"].append(datetime(2026, 9, 1) + timedelta(days=(1, 0, 2)[visit], minutes=person))
            rows["y"].append(y)
            rows["bought"].append(int(rng.random() < 0.3))
            rows["one"].append(1)
    return dict(rows)


CHANGING = changing()


def test_a_covariate_that_changes_within_a_person_is_refused_by_name_with_the_ways_out(engine: Loader) -> None:
    plan = make_plan("variant", ["y"], adjust=["tier"])
    with pytest.raises(
        SourceError, match=r"covariate 'tier' changes among the rows of a person.*--first-by TIMECOLUMN"
    ):
        count_table(engine.load(CHANGING), plan, Units(unit="user_id"))


def test_a_covariate_is_that_of_the_first_row_by_time(engine: Loader) -> None:
    plan = make_plan("variant", ["y"], segments=["tier"])
    counted = count_table(engine.load(CHANGING), plan, Units(unit="user_id", first_by="at"))
    people = range(400)
    first = {
        "variant": [CHANGING["variant"][3 * person] for person in people],
        "tier": [CHANGING["tier"][3 * person + 1] for person in people],
        "y": [sum(CHANGING["y"][3 * person : 3 * person + 3]) for person in people],
    }
    assert_same(counted, count_rows(first, plan))


def test_a_level_that_is_missing_in_some_rows_does_not_change(engine: Loader) -> None:
    rows = CHANGING | {"tier": [None if row % 3 == 2 else row // 3 % 2 for row in range(1200)]}
    counted = count_table(engine.load(rows), make_plan("variant", ["y"], adjust=["tier"]), Units(unit="user_id"))
    assert counted.tallies["variant/tier"].people_by("tier") == {0: 200, 1: 200}


def test_what_is_0_or_1_is_1_if_it_ever_was_and_what_is_always_1_is_added_up(engine: Loader) -> None:
    plan = make_plan("variant", ["bought", "one", "y"])
    tally = count_table(engine.load(CHANGING), plan, Units(unit="user_id")).tallies["variant"]
    ever = [max(CHANGING["bought"][3 * person : 3 * person + 3]) for person in range(400)]
    assert tally.moments_of("bought").metric.binary
    assert tally.moments_of("bought").sums.tolist() == [sum(ever[0::2]), sum(ever[1::2])]
    assert tally.moments_of("one").sums.tolist() == [600, 600]
    added = count_table(engine.load(CHANGING), plan, Units(unit="user_id", aggregate={"bought": "sum"})).tallies[
        "variant"
    ]
    assert added.moments_of("bought").sums.sum() == sum(CHANGING["bought"])


def test_duckdb_makes_people_once_and_keeps_nothing_of_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "shop.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.register("visits_in_memory", pa.table(VISITS))
        connection.execute("CREATE TABLE visits AS SELECT * FROM visits_in_memory")
    plan = make_plan("variant", ["spend", "pages"], adjust=["vip"])
    statements: list[str] = []
    ask = Backend.raw_sql
    monkeypatch.setattr(Backend, "raw_sql", lambda self, text: statements.append(str(text)) or ask(self, text))
    with opened_table(f"duckdb://{file}", table="visits") as table:  # which is opened to read only
        counted = count_table(table, plan, Units(unit="user_id", aggregate="sum"))
        made = [text for text in statements if '"visits"' in text and "GROUP BY" in text]
        assert len(made) == 1
        assert made[0].startswith("CREATE TEMP TABLE")
        left = table.get_backend().raw_sql("SELECT table_name FROM duckdb_tables()").fetchall()
        assert left == [("visits",)]
    how = {"spend": "sum 100", "pages": "sum 1"}
    assert counted.tallies == count_rows(by_person(VISITS, how), counted.plan).tallies


# ── clusters and windows ───────────────────────────────────────────────────────────────────────


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
    tally = count_table(engine.load(people), plan, Units(unit="user", events=beside)).tallies["variant"]
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
    tally = count_table(engine.load(people), plan, Units(unit="user", events=Events(engine.load(events), "7d")))
    assert tally.tallies["variant"].moments_of(name).sums.tolist() == [3, 0]
