"""One line per metric and arm, within 80 columns, whatever names are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kanab.report.brief import brief_text

Readout = dict[str, Any]
Maker = Callable[..., Readout]


def test_every_metric_and_arm_has_one_line_with_its_interval(hillstrom: Readout) -> None:
    title, decision, header, _, *lines = brief_text(hillstrom).splitlines()
    assert title.startswith(f"{hillstrom['experiment']}: ")
    assert decision == "No decision: name a primary metric, for example --primary visit."
    assert header.split() == ["metric", "arm", "effect", "interval", "relative", "p", "(Holm)", "verdict"]
    assert len(lines) == 4
    assert lines[0].split() == "visit (points) Mens E-Mail +7.68 7.02 to 8.34 +72.4 % 2.92e-113 better".split()
    assert max(map(len, lines)) <= 80


def test_long_names_leave_room_for_the_numbers(small: Maker, effect: Maker) -> None:
    name = "revenue per visitor of the second week"
    text = brief_text(small(effect(metric=name, arm="the arm with the longest name of all")))
    assert max(map(len, text.splitlines())) <= 80
    assert "revenue per v" in text
    assert "+0.50  0.30 to 0.70    +5.0 %" in text


def test_standard_errors_are_there_where_they_fit(small: Maker, effect: Maker) -> None:
    header, _, line = brief_text(small(effect())).splitlines()[-3:]
    place = header.index("effect") + len("effect")
    assert header[place:].split()[0] == "SE"
    assert line[place:].split()[0] == "0.10"


def test_an_alarm_of_the_sample_ratio_is_not_left_out(small: Maker) -> None:
    data = small()
    data["sample_ratio"] |= {"p": 1e-9, "alarm": True}
    assert "ALARM" in brief_text(data).upper()


def test_what_cannot_be_tested_is_said(small: Maker, effect: Maker, untestable: Readout) -> None:
    assert brief_text(small(effect(**untestable))).endswith("not testable")
