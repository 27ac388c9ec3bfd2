"""One line per metric and arm, within 80 columns, whatever names are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kanab.report.brief import brief_text

Readout = dict[str, Any]
Maker = Callable[..., Readout]


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


def test_what_cannot_be_tested_is_said(small: Maker, effect: Maker, untestable: Readout) -> None:
    assert brief_text(small(effect(**untestable))).endswith("not testable")
