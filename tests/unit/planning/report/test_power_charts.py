"""People against effect and power: what is drawn, where the answer is, and what is left out."""

from __future__ import annotations

from typing import Any

from kanab.cli.power import power, solve_flags
from kanab.planning.noise import noise_of_rate
from kanab.planning.power import solve_power
from kanab.planning.report.power_charts import effect_curve, power_of_effect

FINE = (0.25, 0.5, 1, 2, 4)


def asked(**given: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The answer and its points, with every option that is not given at its default."""
    usual = power.make_context("power", []).params
    data, curve = solve_flags(usual | given)
    return data, curve(FINE)


def values(spec: Any, layer: int = 0) -> list[dict[str, float]]:
    found: list[dict[str, float]] = spec["layer"][layer]["data"]["values"]
    return found


def test_rates_are_drawn_in_points_and_the_answer_is_a_dot() -> None:
    data, points = asked(rate=0.1, effect=0.01, power=0.8)
    drawn = effect_curve(data, points)
    assert [row["people"] for row in values(drawn)] == [7374, 14749, 29498, 58996, 117992]
    noise = noise_of_rate(0.1)
    assert [row["y"] for row in values(drawn)] == [
        100 * solve_power(noise, people=row["people"], power=0.8).effect for row in points
    ]
    assert values(drawn, 1) == [values(drawn)[2]]
    assert drawn is not None
    assert drawn["layer"][2]["mark"]["text"] == ["29,498 people", "1.00 points"]
    assert drawn["usermeta"]["title"] == "The smallest change with power 80 %, percentage points"


def test_power_runs_from_0_to_1_with_a_line_at_what_was_asked() -> None:
    data, points = asked(sd="20", effect=1.0, power=0.9)
    drawn = power_of_effect(data, points)
    assert drawn is not None
    assert drawn["layer"][0]["encoding"]["y"]["scale"]["domain"] == [0, 1]
    assert values(drawn, 3) == [{"y": 0.9}]
    assert drawn["layer"][4]["mark"]["text"] == "asked: 90 %"
    assert round(values(drawn)[2]["y"], 4) == 0.9


def test_what_so_few_people_cannot_reach_is_not_drawn() -> None:
    data, points = asked(rate=0.5, people=40, power=0.8)
    assert [row["people"] for row in values(effect_curve(data, points))] == [20, 40, 80, 160]
    none = [row | {"effect": None, "power": None} for row in points]
    assert effect_curve(data, none) is None
    assert power_of_effect(data, none) is None


def test_a_margin_has_its_own_words_and_a_solvers_zero_is_zero() -> None:
    data, points = asked(rate=0.05, effect=0.0, power=0.8, margin="non-inferiority=0.02", relative=True)
    assert values(effect_curve(data, points), 1) == [{"people": 1_174_688, "y": 0.0}]
    data, points = asked(sd="20", effect=0.0, power=0.8, margin="equivalence=1")
    drawn = effect_curve(data, points)
    assert drawn is not None
    assert drawn["usermeta"]["title"] == "The largest change with power 80 %"


def test_people_are_marked_at_round_numbers_however_wide_the_range() -> None:
    data, points = asked(rate=0.1, effect=0.01, power=0.8)
    drawn = effect_curve(data, points)
    assert drawn is not None
    assert drawn["layer"][0]["encoding"]["x"]["axis"]["values"] == [10_000, 20_000, 50_000, 100_000]
    wide = [row | {"people": 10 ** (2 + 2 * place)} for place, row in enumerate(points)]
    drawn = effect_curve(data, wide)
    assert drawn is not None
    ticks = drawn["layer"][0]["encoding"]["x"]["axis"]["values"]
    assert ticks == [10**place for place in range(2, 11)]
    near = [row | {"people": 11 + place} for place, row in enumerate(points)]
    drawn = effect_curve(data, near)
    assert drawn is not None
    assert drawn["layer"][0]["encoding"]["x"]["axis"]["values"] == [11, 15]
