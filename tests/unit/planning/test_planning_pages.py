"""The page of a forecast: what is drawn of a plan, and what is left out."""

from __future__ import annotations

from typing import Any

import kanab as kb
from kanab.plan.file import parse_plan
from kanab.planning import spread_of_amounts
from kanab.planning.planning_pictures import effect_by_days
from kanab.report.colours import QUIET, UP
from kanab.report.figure import Dots, Line

PLAN = parse_plan(
    'metrics.bought = { kind = "binary" }\nmetrics.spend = { bounds = [0, 500] }\n'
    "experiments.variant = { arms = { A = 1, B = 1 } }\n"
)
SPREADS = {
    ("variant", "bought"): {"": kb.planning.spread_of_rate(0.1)},
    ("variant", "spend"): {
        "": spread_of_amounts(30), "tier": spread_of_amounts(30, r2=0.2), "age": spread_of_amounts(30, r2=0.5),
    },
}  # fmt: skip


def forecast(days: float) -> dict[str, Any]:
    found = kb.planning.forecast_plan(PLAN, per_day=100, days=days, baseline=kb.planning.Baseline(spreads=SPREADS))
    return found.to_dict() | {"days": days}


def drawn(metric: str) -> Any:
    return effect_by_days(forecast(20), {days: forecast(days) for days in (5, 10, 20, 40)}, "variant", metric)


def test_a_rate_is_drawn_in_percent_of_its_mean() -> None:
    chart = drawn("bought")
    expected = [
        100 * kb.planning.solve_power(kb.planning.spread_of_rate(0.1), people=100 * days, power=0.8).relative
        for days in (5, 10, 20, 40)
    ]
    line, dots = chart.panels[0].marks
    assert line == Line([*zip((5, 10, 20, 40), expected, strict=True)], QUIET)
    assert dots == Dots([(20, expected[2])], QUIET)
    assert chart.title == "The smallest change of bought, % of the mean in variant, by days"


def test_of_several_adjustments_the_best_one_is_drawn_beside_plain() -> None:
    plain, _, adjusted, _ = drawn("spend").panels[0].marks
    assert (plain.colour, adjusted.colour) == (QUIET, UP)
    best = kb.planning.solve_power(spread_of_amounts(30, r2=0.5), people=2_000, power=0.8).effect
    assert adjusted.points[2] == (20, best)


def test_what_cannot_be_seen_on_several_days_is_not_drawn() -> None:
    assert effect_by_days(forecast(20), {20: forecast(20)}, "variant", "bought") is None
