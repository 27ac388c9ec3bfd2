"""Published figures through the commands that a person would type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kanab.cli.main import cli


def answer(file: Path, *arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["analyze", str(file), *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


def test_hillstrom_spend_and_visits_by_womens(shared: Path) -> None:
    data = answer(
        shared / "hillstrom_email.csv.gz", "--arm", "segment", "--metric", "visit,spend",
        "--segment", "womens", "--control", "No E-Mail",
    )  # fmt: skip
    spend = next(row for row in data["effects"] if row["metric"] == "spend" and row["arm"] == "Mens E-Mail")
    assert (round(spend["estimate"], 4), round(spend["se"], 4)) == (0.7698, 0.1452)
    pooled = next(row for row in data["heterogeneity"] if row["metric"] == "visit" and row["variance"] == "pooled")
    assert round(pooled["F"], 4) == 45.5251
    assert pooled["df"] == [2, 63994]


def test_gerber_green_larimer_with_its_planned_shares(shared: Path) -> None:
    shares = "No Postcard=5,Civic Duty=1,Hawthorne=1,Self=1,Neighbors=1"
    data = answer(
        shared / "ggl2008_social_pressure.csv.gz", "--arm", "treatment", "--metric", "primary_06",
        "--control", "No Postcard", "--shares", shares,
    )  # fmt: skip
    assert data["people"] == 344_084
    assert data["arms"]["No Postcard"] == 191_243
    assert data["sample_ratio"]["declared"] is True
    assert data["sample_ratio"]["p"] > 0.5
    effects = {row["arm"]: round(row["estimate"], 3) for row in data["effects"]}
    assert effects == {"Civic Duty": 0.018, "Hawthorne": 0.026, "Self": 0.049, "Neighbors": 0.081}


def test_cookie_cats_retention_and_its_sample_ratio(shared: Path) -> None:
    data = answer(shared / "cookie_cats.csv.gz", "--arm", "version", "--metric", "retention_7")
    assert data["sample_ratio"]["p"] == pytest.approx(0.0086, abs=5e-5)
    row = data["effects"][0]
    assert (row["control"], row["arm"]) == ("gate_30", "gate_40")
    assert row["p"] == pytest.approx(0.0016, abs=5e-5)
    assert [round(100 * end, 2) for end in row["interval"]] == [-1.33, -0.31]
    assert any("Control is gate_30" in note for note in data["notes"])
