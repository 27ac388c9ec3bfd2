"""People against effect and power: what is drawn, where the answer is, and what is left out."""

from typing import Any

import kanab as kb
from kanab.cli.power import power, solved
from kanab.plan.file import parse_plan
from kanab.planning import spread_of_amounts
from kanab.planning.planning_pictures import effect_by_days, effect_curve, power_of_effect
from kanab.planning.power import solve_power
from kanab.planning.spread import spread_of_rate
from kanab.report.colours import MUTED, QUIET, UP
from kanab.report.figure import Dots, Figure, Label, Line, Plot

FINE = (0.25, 0.5, 1, 2, 4)


def asked(**given: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The answer and its points, with every option that is not given at its default."""
    usual = power.make_context("power", []).params
    given |= {"effect": str(given["effect"])} if "effect" in given else {}
    answer = solved(usual | given)
    return answer.to_dict(), answer.around(FINE, at_power=given.get("power") or 0.8)


def plot_of(figure: Figure | None) -> Plot:
    assert figure is not None
    (panel,) = figure.panels
    assert isinstance(panel, Plot)
    return panel


def line_of(figure: Figure | None) -> tuple[Line, Dots]:
    *_, line, dots = plot_of(figure).marks
    assert isinstance(line, Line)
    assert isinstance(dots, Dots)
    return line, dots


def test_rates_are_drawn_in_points_and_the_answer_is_a_dot() -> None:
    data, points = asked(rate=0.1, effect=0.01, power=0.8)
    drawn = effect_curve(data, points)
    line, dots = line_of(drawn)
    assert [people for people, _ in line.points] == [7374, 14749, 29498, 58996, 117992]
    noise = spread_of_rate(0.1)
    assert [y for _, y in line.points] == [
        100 * solve_power(noise, people=row["people"], power=0.8).effect for row in points
    ]
    assert dots.points == [line.points[2]]
    label = plot_of(drawn).marks[0]
    assert isinstance(label, Label)
    assert label.lines == ("29,498 people", "1.00 points")
    assert drawn is not None
    assert drawn.title == "The smallest change with power 80 %, percentage points"


def test_power_runs_from_0_to_1_with_a_line_at_what_was_asked() -> None:
    data, points = asked(sd="20", effect=1.0, power=0.9)
    drawn = power_of_effect(data, points)
    panel, (line, _) = plot_of(drawn), line_of(drawn)
    assert (panel.y.least, panel.y.most) == (0, 1)
    across = [(line.points[0][0], 0.9), (line.points[-1][0], 0.9)]
    assert panel.marks[0] == Line(across, MUTED, wide=1, dashes="4 4")
    assert panel.marks[1] == Label(across[0], ["asked: 90 %"], below=False, colour=MUTED)
    assert round(line.points[2][1], 4) == 0.9


def test_what_so_few_people_cannot_reach_is_not_drawn() -> None:
    data, points = asked(rate=0.5, people=40, power=0.8)
    assert [people for people, _ in line_of(effect_curve(data, points))[0].points] == [20, 40, 80, 160]
    none = [row | {"effect": None, "power": None} for row in points]
    assert effect_curve(data, none) is None
    assert power_of_effect(data, none) is None


def test_a_margin_has_its_own_words_and_a_solvers_zero_is_zero() -> None:
    data, points = asked(rate=0.05, effect=0.0, power=0.8, margin="non-inferiority=0.02", relative=True)
    assert line_of(effect_curve(data, points))[1].points == [(1_174_688, 0.0)]
    data, points = asked(sd="20", effect=0.0, power=0.8, margin="equivalence=1")
    drawn = effect_curve(data, points)
    assert drawn is not None
    assert drawn.title == "The largest change with power 80 %"


def test_people_are_marked_at_round_numbers_however_wide_the_range() -> None:
    data, points = asked(rate=0.1, effect=0.01, power=0.8)
    assert plot_of(effect_curve(data, points)).x.ticks == [
        (10_000, "10k"), (20_000, "20k"), (50_000, "50k"), (100_000, "100k"),
    ]  # fmt: skip
    wide = [row | {"people": 10 ** (2 + 2 * place)} for place, row in enumerate(points)]
    ticks = plot_of(effect_curve(data, wide)).x.ticks
    assert [tick for tick, _ in ticks] == [10**place for place in range(2, 11)]
    assert ticks[-1][1] == "10bn"
    near = [row | {"people": 11 + place} for place, row in enumerate(points)]
    assert plot_of(effect_curve(data, near)).x.ticks == [(11, "11"), (15, "15")]


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
