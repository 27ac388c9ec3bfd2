"""What methods say and draw where no approved readout does."""

from collections.abc import Callable
from typing import Any

import pytest

from kanab.analysis.methods.bayes import Bayes
from kanab.analysis.methods.claims import Claims
from kanab.analysis.methods.omnibus import Omnibus
from kanab.analysis.methods.quantiles import Distribution, distribution_figure
from kanab.analysis.methods.segments import Segments
from kanab.analysis.methods.windows import Windows
from kanab.report.colours import ARMS, MUTED, QUIET, UP
from kanab.report.figure import Area, Dots, Figure, Forest, ForestRow, Line, Plot
from kanab.report.pictures import effect_figure
from kanab.tabular import Table

Readout = dict[str, Any]
Maker = Callable[..., Readout]


def claim(**changes: Any) -> Readout:
    return {
        "metric": "spend", "control": "A", "arm": "B", "method": "difference", "covariates": [],
        "claim": "non-inferiority", "better": "higher", "limits": [-0.1, None], "relative": False, "estimate": 0.5,
        "interval": [0.336, None], "confidence": 0.95, "t": 6.0, "p": 1e-9, "p_adjusted": None, "shown": True,
    } | changes  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said", "shown"),
    [
        ({}, "Non-inferiority of B on spend is shown: the effect lies above −0.1 (interval at least 0.34; p", "yes"),
        (
            {"claim": "equivalence", "relative": True, "limits": [-0.02, 0.03], "interval": [-0.005, 0.025]}
            | {"estimate": 0.01},
            "Equivalence of B on spend is shown: the effect lies between −2 and +3 % (interval −0.5 to 2.5 %;",
            "yes",
        ),
        (
            {"limits": [None, 0.5], "better": "lower", "interval": [None, 0.3], "p_adjusted": 0.06, "shown": False},
            "is not shown: that the effect lies below +0.5 is not certain (interval at most 0.30; p = 1.00e-09, corr",
            "no",
        ),
        (
            {"t": None, "p": None, "interval": None, "shown": False},
            "Non-inferiority of B on spend cannot be tested: nothing varies.",
            "–",
        ),
    ],
)
def test_a_claim_is_shown_or_not_and_never_refuted(small: Maker, changes: Readout, said: str, shown: str) -> None:
    sentence, _, table = Claims().parts(small(margins=[claim(**changes)]))
    assert said in str(sentence)
    assert isinstance(table, Table)
    assert table.rows[0][-1] == shown


@pytest.mark.parametrize(
    ("prior", "more", "said"),
    [
        ({"mean": 0.0, "sd": 0.5}, {}, "0 ± 0.5 (one standard deviation)."),
        ({"mean": 0.0, "sd": None}, {"better": "lower"}, "none; less is better."),
        ({"mean": 0.01, "sd": 0.02, "relative": True}, {}, "1 ± 2 % of the mean of A (one standard deviation)."),
    ],
)
def test_a_prior_is_said_and_nothing_is_quite_certain(small: Maker, prior: Any, more: Any, said: str) -> None:
    effect = {"arm": "B", "control": "A", "mean": 0.48, "sd": 0.098, "interval": [0.288, 0.672], "positive": 1.0}
    arms = [{"arm": "B", "mean": 0.48, "best": 0.9999995, "loss": 2.5e-8}]
    row = {"metric": "spend", "method": "difference", "covariates": [], "better": "higher", "prior": prior}
    sentence, table = Bayes().parts(small(bayes=[row | {"effects": [effect], "arms": arms} | more]))
    assert sentence == f"Prior for the effect on spend: {said}"
    assert isinstance(table, Table)
    assert table.rows[0] == ("B", "+0.48", "0.29 to 0.67", "> 99.9 %", "> 99.9 %", "2.5e-08")


def test_all_arms_at_once_are_said_by_the_method_that_carries_the_verdict(small: Maker, effect: Maker) -> None:
    plain = {"metric": "spend", "method": "difference", "covariates": [], "F": 4.321, "df": [2, 1996.4], "p": 0.0134}
    adjusted = plain | {"method": "adjusted", "covariates": ["tier"], "p": 0.4}
    effects = [effect(carries_verdict=False), effect(method="adjusted", covariates=["tier"])]
    data = small(*effects, arms={"A": 500, "B": 500, "C": 500}, omnibus=[plain, adjusted])
    assert Omnibus().beside(data, "spend") == [
        "All 3 arms at once: no sign that any of them differ (Welch's F(2, 1,996) = 4.32, p = 0.400, "
        "adjusted for tier)."
    ]
    assert Omnibus().beside(data | {"omnibus": [plain | {"F": None, "df": None, "p": None}]}, "spend") == ()


def rows_of(figure: Figure | None) -> list[ForestRow]:
    """The rows of the first panel, which have one interval each."""
    assert figure is not None
    assert isinstance(figure.panels[0], Forest)
    return list(figure.panels[0].rows)


def axis_of(figure: Figure) -> str:
    assert isinstance(figure.panels[0], Forest)
    return figure.panels[0].axis


def test_the_forest_draws_the_numbers_of_the_readout_and_shares_in_points(hillstrom: Readout) -> None:
    rows = rows_of(effect_figure(hillstrom, "spend"))
    effects = [row for row in hillstrom["effects"] if row["metric"] == "spend"]
    assert {(bar.low, bar.at, bar.high) for row in rows for bar in row.bars} == {
        (row["interval"][0], row["estimate"], row["interval"][1]) for row in effects
    }
    figure = effect_figure(hillstrom, "visit")
    assert figure is not None
    assert rows_of(figure)[0].bars[0].at == pytest.approx(7.658956)
    assert axis_of(figure) == "effect on visit, percentage points"
    assert figure.description.startswith("95 % intervals. Mens E-Mail +7.66 (7.00 to 8.32); ↳ adjusted for recency")


def test_an_open_end_is_said_and_what_cannot_be_tested_is_a_grey_dot(
    small: Maker, effect: Maker, untestable: Readout
) -> None:
    (row,) = rows_of(effect_figure(small(effect(interval=[0.3, None]), alternative="greater"), "spend"))
    assert (row.bars[0].high, row.text) == (None, "+0.50 (at least 0.30)")
    (row,) = rows_of(effect_figure(small(effect(**untestable)), "spend"))
    assert (row.bars[0].low, row.bars[0].high, row.bars[0].colour) == (0.5, 0.5, QUIET)
    assert row.text == "+0.5000, not testable"
    assert effect_figure(small(effect(**untestable, estimate=None)), "spend") is None


def test_levels_are_drawn_the_exploratory_ones_grey_and_of_very_many_the_clearest(hillstrom: Readout) -> None:
    levels = [row for row in hillstrom["segment_effects"] if row["covariate"] == "womens"]
    figures = Segments().figures(hillstrom | {"segment_effects": levels})
    level, row = levels[3], rows_of(figures["visit"])[3]
    assert row.label == "womens = 1, Womens E-Mail"
    assert (row.bars[0].at, row.bars[0].low) == (100 * level["estimate"], 100 * level["interval_adjusted"][0])
    assert (row.bars[0].colour, row.bold, row.text) == (UP, True, "+7.31 (6.16 to 8.46)")
    assert {(row.bars[0].colour, row.bold) for row in rows_of(figures["spend"])} == {(QUIET, False)}
    assert "effect on spend by womens, exploratory" in axis_of(figures["spend"])
    thin = level | {"level": "thin", "p": None, "p_adjusted": 0.0, "interval_adjusted": None}
    many = [level | {"level": str(place), "p_adjusted": 1 / (place + 1)} for place in range(40)]
    figure = Segments().figures(hillstrom | {"segment_effects": [thin, *many]})["visit"]
    assert rows_of(figure)[0].text.endswith(", not testable")
    assert rows_of(figure)[1].label == "womens = 17, Womens E-Mail"
    assert len(rows_of(figure)) == 24
    assert "the 24 clearest of 41" in axis_of(figure)


def test_bars_are_as_high_as_people_are_dense_and_shares_add_up() -> None:
    read = Distribution("time", [0, 10, 20, 40], {"A": [0, 50, 25, 25, 0], "B": [0] * 5})
    figure = distribution_figure(read, [], "A")
    assert {arm: paint.colour for arm, paint in figure.legend.items()} == {"A": ARMS[0], "B": ARMS[1]}
    crowd, shares = figure.panels
    assert isinstance(crowd, Plot)
    assert isinstance(shares, Plot)
    outline = [(0, 0.0), (0, 0.05), (10, 0.05), (10, 0.025), (20, 0.025), (20, 0.0125), (40, 0.0125), (40, 0.0)]
    assert crowd.marks[:2] == [Area(outline, QUIET), Line(outline, QUIET, wide=1.5)]
    assert shares.marks[0] == Line([(0, 0.0), (10, 0.5), (20, 0.75), (40, 1.0)], QUIET, wide=2.5)
    assert not any(isinstance(mark, Dots) for mark in shares.marks)
    assert distribution_figure(Distribution("time", [0, 10], {}), [], "A").legend.keys() == {"A"}


def test_windows_are_lines_across_their_days_and_open_ends_reach_the_edge(small: Maker, effect: Maker) -> None:
    first = effect(metric="spend@0d..7d", estimate=1.0, interval=[0.5, None])
    later = effect(metric="spend@7d..14d", estimate=None, interval=None, p=None)
    (panel,) = Windows().figures(small(first, later))["spend"].panels
    assert isinstance(panel, Plot)
    assert (panel.x.least, panel.x.most, panel.y.title) == (0, 14, "effect of B")
    zero, band, line = panel.marks
    assert zero == Line([(0, 0.0), (14, 0.0)], MUTED, wide=1)
    assert isinstance(band, Area)
    assert [y for _, y in band.points] == [0.5, panel.y.most, panel.y.most, 0.5]
    assert line == Line([(0, 1.0), (7, 1.0)], UP)
