"""Metrics of a part of the time after the first exposure: equal to rows by hand, and the effect over time."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.described import readout_of

import kanab as kb
from kanab.errors import PlanError, SourceError
from kanab.report.figure import Line, Plot

PEOPLE = 2_000
START = pd.Timestamp("2026-03-01")


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Exposures, and events over four weeks after them; B spends more in the first week only."""
    rng = np.random.default_rng(2)
    user, arm = np.arange(PEOPLE), rng.choice(["A", "B"], PEOPLE)
    first = START + pd.to_timedelta(rng.integers(0, 604_800, PEOPLE), unit="s")
    who = np.repeat(user, rng.poisson(6, PEOPLE))
    after = rng.integers(0, 28 * 86_400, len(who))
    more = 1 + 0.3 * ((arm[who] == "B") & (after < 604_800))
    spend = np.round(rng.gamma(2, 5, len(who)) * more, 2)
    exposures = pd.DataFrame({"user": user, "variant": arm, "time": first})
    events = {"user": who, "time": first[who] + pd.to_timedelta(after, unit="s"), "spend": spend, "visit": 1}
    return exposures, pd.DataFrame(events)


EXPOSURES, EVENTS = tables()
CHOICES: dict[str, Any] = {"arm": "variant", "unit": "user", "events": EVENTS, "window": "28d"}


def by_hand(low: float, high: float, value: str, how: str) -> float:
    """Return the difference of means by pandas."""
    joined = EVENTS.merge(EXPOSURES, on="user", suffixes=("", "_first"))
    days = (joined["time"] - joined["time_first"]).dt.total_seconds() / 86_400
    inside = joined[(days >= low) & (days < high)]
    person = inside.groupby("user")[value].agg(how).reindex(EXPOSURES["user"]).fillna(0)
    arm = EXPOSURES["variant"].to_numpy()
    return float(person[arm == "B"].mean() - person[arm == "A"].mean())


@pytest.mark.slow
def test_metrics_of_several_windows_are_those_of_the_rows_in_them() -> None:
    metrics = ["spend", "spend@0d..7d", "spend@7d..14d", "visit@7d..14d"]
    answer = readout_of(EXPOSURES, metrics=metrics, aggregate={"visit": "max"}, **CHOICES)
    shown = {row.effect.metric: row.effect.estimate for row in answer.effects}
    expected = {
        "spend": by_hand(0, 28, "spend", "sum"),
        "spend@0d..7d": by_hand(0, 7, "spend", "sum"),
        "spend@7d..14d": by_hand(7, 14, "spend", "sum"),
        "visit@7d..14d": by_hand(7, 14, "visit", "max"),  # retention in the second week
    }
    assert shown == pytest.approx(expected, rel=1e-9)
    again = readout_of(EXPOSURES, metrics=metrics, aggregate={"visit@7d..14d": "max"}, **CHOICES)
    assert again.effects == answer.effects


@pytest.mark.slow
def test_the_effect_over_time_has_a_section_and_a_picture() -> None:
    metrics = [f"spend@{7 * week}d..{7 * week + 7}d" for week in range(4)]
    answer = readout_of(EXPOSURES, metrics=metrics, **CHOICES)
    (panel,) = answer.chart("windows", metric="spend").panels
    assert isinstance(panel, Plot)
    lines = [mark for mark in panel.marks if isinstance(mark, Line)][1:]
    weeks = [(0, 7), (7, 14), (14, 21), (21, 28)]
    assert [line.points for line in lines] == [
        [(start, row.effect.estimate), (end, row.effect.estimate)]
        for (start, end), row in zip(weeks, answer.effects, strict=True)
    ]
    assert lines[0].colour != lines[1].colour  # the first week is clearly better
    alone = readout_of(EXPOSURES, metrics=metrics[:1], **CHOICES)
    assert "How does the effect change with time?" in str(answer)
    assert "How does the effect change with time?" not in str(alone)


def test_what_cannot_be_counted_says_why() -> None:
    with pytest.raises(SourceError, match=r"'spend@21d\.\.30d' ends after the window in which events count"):
        readout_of(EXPOSURES, metrics=["spend@21d..30d"], **CHOICES)
    with pytest.raises(SourceError, match="there is no column 'spent'"):
        readout_of(EXPOSURES, metrics=["spent@0d..7d"], **CHOICES)
    with pytest.raises(PlanError, match="is empty"):
        readout_of(EXPOSURES, metrics=["spend@7d..7d"], **CHOICES)
    with pytest.raises(SourceError, match="aggregate names a metric that is not counted"):
        readout_of(EXPOSURES, metrics=["spend@0d..7d"], aggregate={"visit": "max"}, **CHOICES)


def test_a_column_of_such_a_name_counts_as_it_is() -> None:
    events = EVENTS.assign(**{"spend@7d..14d": 1})
    answer = readout_of(EXPOSURES, metrics=["spend@7d..14d"], **CHOICES | {"events": events})
    assert answer.effects[0].effect.estimate == pytest.approx(by_hand(0, 28, "visit", "sum"), rel=1e-9)


def test_a_window_without_events_says_what_is_missing() -> None:
    rows = {"variant": ["A", "B"] * 50, "spend": [1.5, 2.5] * 50}
    with pytest.raises(SourceError, match=r"'spend@7d..14d' is a part of the time .* no events are named\. .*--events"):
        kb.readout(rows, arm="variant", metrics=["spend@7d..14d"])
