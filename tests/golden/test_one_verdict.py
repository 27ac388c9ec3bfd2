"""One verdict, one picture: every surface is drawn from the same data and says the same about every row."""

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.dashboard.shop_releases import PLAN, FixedSource, ask, plain, release_weeks

from kanab.analysis.compare import verdict
from kanab.analysis.effect_rows import EffectRow
from kanab.dashboard.dashboard import Dashboard
from kanab.dashboard.experiment_list import summarize
from kanab.dashboard.releases import RawSource
from kanab.dashboard.results import ExperimentReadout, Results
from kanab.dashboard.timeline import timeline
from kanab.datasets import eighteen
from kanab.report.colours import DOWN, QUIET, UP
from kanab.report.figure import Dots, Forest, Plot
from kanab.report.pictures import effect_figure
from kanab.report.words import MARKS
from kanab.stats import difference_in_means, simultaneous_intervals

Shown = tuple[ExperimentReadout, Results]
COLOURS = {"up": UP, "down": DOWN}
KINDS = {
    "up": r"raises {metric} by", "down": r"lowers {metric} by", "watch": r"Watch: {metric} may",
    "hint": r"may \w+ {metric},", "unclear": r"No clear effect of B on {metric}",
}  # fmt: skip


@pytest.fixture(scope="module", params=["as sealed", "nearly"])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Three weekly batches, with an adjustment and roles; "nearly": p-values about α, so that a slip would show."""
    folder = tmp_path_factory.mktemp("one-verdict")
    checkout = replace(PLAN.experiments[0], interactions=(), looks=None, primary=("bought",), guardrails=("spend",))
    release_weeks(folder / "kanab.ledger", replace(PLAN, experiments=(checkout,)))
    entries = (folder / "kanab.ledger").read_bytes().split(b"\n")[1:-1]
    results = Results(FixedSource(RawSource("kanab.ledger", tuple(entries), ledger=True)))
    (readout,) = results.read().readouts()["checkout"]
    if request.param == "nearly":
        assert readout.readout is not None
        effects = list(readout.readout.effects)
        kinds = iter(["watch", "hint"])
        for place, row in enumerate(effects):
            if row.carries_verdict:
                effects[place] = replace(row, verdict=next(kinds))  # type: ignore[arg-type]
        readout = replace(readout, readout=replace(readout.readout, effects=tuple(effects)))
    return readout, results


def carried(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in data["effects"] if row["carries_verdict"]]


def test_text_markdown_notebook_and_report_say_what_the_row_says(shown: Shown) -> None:
    readout = shown[0].readout
    assert readout is not None
    surfaces = [str(readout), readout.to_markdown(), readout._repr_html_(), readout.to_html()]
    for row in carried(readout.to_dict()):
        for surface in surfaces:
            words = re.sub(r"<[^>]*>|\s+", " ", surface).replace("\N{NO-BREAK SPACE}", " ")
            said = {kind for kind, text in KINDS.items() if re.search(text.format(metric=row["metric"]), words)}
            assert said == {row["verdict"]}, surface[:200]


def test_only_the_row_that_carries_the_verdict_is_coloured(shown: Shown) -> None:
    data = shown[0].data
    for metric in ("bought", "spend"):
        figure = effect_figure(data, metric)
        assert figure is not None
        assert isinstance(figure.panels[0], Forest)
        drawn = {row.label: row.bars[0].colour for row in figure.panels[0].rows}
        (row,) = [row for row in carried(data) if row["metric"] == metric]
        assert drawn == {"B": QUIET, "↳ adjusted for tier": COLOURS.get(row["verdict"], QUIET)}
    page = shown[0].readout.to_html() if shown[0].readout else ""
    for row in carried(data):
        tone = {"up": "better", "down": "worse"}.get(row["verdict"], row["verdict"])
        assert f'<li class="{tone}"><span class="mark" aria-hidden="true">{MARKS[row["verdict"]]}</span>' in page


def test_the_list_and_the_history_have_the_verdict_of_the_row(shown: Shown) -> None:
    readout, results = shown
    line = summarize("checkout", readout, None)
    assert [(one.metric, one.kind) for one in line.results] == [
        (r["metric"], r["verdict"]) for r in carried(readout.data)
    ]
    points = results.read().history("checkout", readout.bundle)
    for metric in ("bought", "spend"):
        verdicts = [row["verdict"] for point in points for row in carried(point.data) if row["metric"] == metric]
        figure = timeline(points, metric, "B")
        assert figure is not None
        assert isinstance(figure.panels[0], Plot)
        colours = [mark.colour for mark in figure.panels[0].marks if isinstance(mark, Dots)]
        assert colours == [COLOURS.get(verdict, QUIET) for verdict in verdicts]


def test_pages_and_plain_data_of_the_dashboard_have_one_decision(shown: Shown) -> None:
    _, results = shown
    app = Dashboard(results.source, patience=60)
    line = plain(ask(app, "/v1/experiments"))["experiments"][0]
    detail = plain(ask(app, "/v1/experiments/checkout"))
    assert line["decision"] == detail["experiment"]["decision"] == detail["readout"]["decision"]
    assert line["decision"]["answer"] == "ship"
    for path in ("/", "/experiments/checkout", "/reports/checkout"):
        assert "ship B" in ask(app, path).body.decode()


def test_a_p_at_alpha_is_clear_nowhere() -> None:
    effect = difference_in_means(eighteen())
    at_alpha = replace(effect, p=1 - effect.confidence, p_usual=1 - effect.confidence)
    (alone,) = simultaneous_intervals([at_alpha], "bh")
    assert alone.interval is None
    row = EffectRow(at_alpha, None, None, simultaneous=alone, p_usual_adjusted=at_alpha.p_usual, role="guardrail")
    assert verdict(row, 1 - effect.confidence) == "unclear"
