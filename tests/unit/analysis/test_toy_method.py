"""A new method is one file: from there every surface shows it. How many files the real ones occupy."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from click.testing import CliRunner
from tests.shop import shop_rows

import kanab as kb
from kanab.analysis import methods
from kanab.analysis.effect_rows import typed
from kanab.analysis.methods.base import Data, Facts, Findings, Method
from kanab.cli.main import cli
from kanab.report.document import Part
from kanab.report.figure import Bar, Figure, Forest, ForestRow
from kanab.tabular import Table


@dataclass(frozen=True)
class ToyRow:
    """So many more per thousand people."""

    metric: str
    arm: str
    per_thousand: float


class Toy(Method):
    """Say an effect per thousand people."""

    name = "toy"
    heading = "Per thousand people"
    tables = ("toy",)
    draws = True

    def read(self, facts: Facts) -> Findings:
        """Return a row for every effect that carries a verdict."""
        effects = [row.effect for row in facts.effects if row.carries_verdict]
        return Findings({"toy": [ToyRow(each.metric, str(each.arm), 1000 * each.estimate) for each in effects]})

    def parts(self, data: Data) -> Sequence[Part]:
        """Return a sentence, and the table."""
        rows = typed(data["toy"], ToyRow)
        cells = tuple((row.metric, row.arm, f"{row.per_thousand:.1f}") for row in rows)
        return "A toy said this.", Table(("toy of", "arm", "per thousand"), cells)

    def figures(self, data: Data) -> Mapping[str, Figure]:
        """Return a bar for every metric."""
        rows = typed(data["toy"], ToyRow)
        bars = {row.metric: ForestRow(row.arm, "", [Bar(0.0, row.per_thousand, None, "#123456")]) for row in rows}
        return {metric: Figure(f"Toy of {metric}", "", [Forest([row], "per thousand")]) for metric, row in bars.items()}

    def how(self, data: Data) -> Sequence[str]:  # noqa: ARG002
        """Return how it was computed."""
        return ["Toys are effects times 1,000."]


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(methods, "METHODS", (*methods.METHODS, Toy()))
    pa.csv.write_csv(pa.table(shop_rows(effect=0.1)), tmp_path / "rows.csv")
    return tmp_path / "rows.csv"


def test_a_method_in_one_file_is_on_every_surface(rows: Path) -> None:
    found = kb.readout(str(rows), arm="variant", metrics=["bought"])
    (row,) = found.to_dict()["toy"]
    assert row["per_thousand"] == pytest.approx(1000 * found.effects[0].effect.estimate)
    assert found.results["toy"].tables["toy"] == [ToyRow("bought", "B", row["per_thousand"])]
    assert found.to_pandas("toy")["per_thousand"].tolist() == [row["per_thousand"]]
    for text in (str(found), found.to_markdown(), found._repr_html_(), found.to_html(), str(found["bought"])):
        assert "Per thousand people" in text
        assert "A toy said this." in text
        assert f"{row['per_thousand']:.1f}" in text
        assert "Toys are effects times 1,000." in text
    assert found.chart("toy").title == "Toy of bought"
    assert "Toy of bought" in found.to_html()


def test_the_command_shows_it_too(rows: Path) -> None:
    command = ["analyze", str(rows), "--arm", "variant", "--metric", "bought"]
    page = rows.with_suffix(".html")
    text = CliRunner().invoke(cli, [*command, "--html", str(page)]).output
    assert "── Per thousand people" in text
    assert "A toy said this." in page.read_text()
    (row,) = json.loads(CliRunner().invoke(cli, [*command, "--json"]).output)["toy"]
    assert (row["metric"], row["arm"]) == ("bought", "B")
