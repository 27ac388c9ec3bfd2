"""Numbers with a long tail: without bounds they are clamped where their extremes would keep them from helping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import kanab as kb
from kanab.cli.main import cli


def shop(people: int = 3_000, sigma: float = 1.5, seed: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    before = rng.lognormal(2, sigma, people).round(2)
    return {
        "variant": rng.choice(["A", "B"], people),
        "before": before,
        "spend": (np.minimum(before, 60) * 0.8 + rng.gamma(1, 6, people)).round(2),
    }


def adjusted(answer: kb.Readout) -> list[dict[str, Any]]:
    return [row for row in answer.to_dict()["effects"] if row["covariates"] == ["before"]]


def test_a_long_tail_is_clamped_and_the_readout_says_where() -> None:
    rows = shop()
    answer = kb.readout(rows, arm="variant", metrics=["spend"], adjust=["before"])
    (row,) = adjusted(answer)
    plain = next(row for row in answer.to_dict()["effects"] if not row["covariates"])
    width = [high - low for low, high in (row["interval"], plain["interval"])]
    assert width[0] < 0.8 * width[1]
    (note,) = [note for note in answer.notes if "before is clamped to" in note]
    high = float(note.split("before is clamped to 0 … ")[1].split(" ")[0])
    assert high == pytest.approx(np.quantile(rows["before"], 0.99), rel=0.005)
    assert not any("withheld" in note for note in answer.notes)


def test_what_leaves_as_it_is_is_not_clamped() -> None:
    answer = kb.readout(shop(sigma=0.4), arm="variant", metrics=["spend"], adjust=["before"])
    assert adjusted(answer)
    assert any("nothing was clamped" in note for note in answer.notes)


def test_declared_bounds_are_left_alone_and_their_products_withheld() -> None:
    answer = kb.readout(
        shop(), arm="variant", metrics=["spend"], adjust=["before"], bounds={"before": (0, 5_000), "spend": (0, 100)}
    )
    assert adjusted(answer) == []
    assert any("declare tighter bounds" in note for note in answer.notes)


@pytest.mark.slow
def test_a_file_gives_the_same_digits_and_such_a_release_is_not_saved(tmp_path: Path) -> None:
    rows, file = shop(), tmp_path / "rows.csv"
    pd.DataFrame(rows).to_csv(file, index=False)
    flags = ["--arm", "variant", "--metric", "spend", "--adjust", "before"]
    shown = json.loads(CliRunner().invoke(cli, ["analyze", str(file), *flags, "--json"]).output)
    answer = kb.readout(rows, arm="variant", metrics=["spend"], adjust=["before"])
    assert [row for row in shown["effects"] if row["covariates"]] == adjusted(answer)
    refused = CliRunner().invoke(
        cli, ["release", str(file), *flags, "--output", str(tmp_path / "r.json"), "--no-ledger"]
    )
    assert refused.exit_code
    assert "bounds were taken from the data" in str(refused.exception)


def test_rows_that_are_added_up_to_people_first_are_not_clamped() -> None:
    rows = shop(600)
    twice = {name: np.concatenate([values, values]) for name, values in rows.items()}
    twice["user"] = np.tile(np.arange(600), 2)
    answer = kb.readout(twice, arm="variant", metrics=["spend"], adjust=["before"], unit="user")
    assert any("declare tighter bounds" in note for note in answer.notes)


def test_in_small_experiments_k_people_lie_beyond_the_bound_that_is_told() -> None:
    rows = shop(400)
    answer = kb.readout(rows, arm="variant", metrics=["spend"], adjust=["before"])
    (note,) = [note for note in answer.notes if "before is clamped to" in note]
    high = float(note.split("before is clamped to 0 … ")[1].split(" ")[0])
    assert 10 <= (rows["before"] >= high * 0.99).sum() <= 14


def bound_notes(**bounds: tuple[float, float]) -> list[str]:
    answer = kb.readout(shop(), arm="variant", metrics=["spend"], adjust=["before"], bounds=bounds)
    return [note for note in answer.notes if "taken from the data" in note or "clamped" in note]


def test_declared_bounds_of_a_number_are_not_said_to_come_from_the_data() -> None:
    assert bound_notes(before=(0, 60)) == [
        "Bounds of spend were taken from the data, and nobody is beyond them; this can be read here but not saved.",
        "At least 210 people were clamped to the bounds of before (in steps of 10).",
    ]


def test_only_numbers_without_declared_bounds_are_said_to_be_clamped_by_the_data() -> None:
    said = bound_notes(spend=(0, 60))
    assert said[0].startswith("Bounds of before were taken from the data, before is clamped to 0 … ")
    assert [note.split("bounds of ")[1].split()[0] for note in said[1:]] == ["spend", "before"]


def test_a_number_is_not_clamped_where_that_would_not_help() -> None:
    rng = np.random.default_rng(1)
    rows = shop(3_000, sigma=0.4)
    # Few people lack a waiting time, and one of them stands out by a value that clamping leaves as it is.
    rows["wait"] = np.where(np.arange(3_000) < 40, np.nan, rng.gamma(2, 3, 3_000).round(1))
    rows["before"][:40] = np.where(np.arange(40) == 5, 12, 3) + np.arange(40) % 2 / 100
    answer = kb.readout(rows, arm="variant", metrics=["spend", "wait"], adjust=["before"])
    assert {row["metric"] for row in adjusted(answer)} == {"spend"}
    assert any("nothing was clamped" in note for note in answer.notes)
    assert any("products of before and wait are withheld" in note for note in answer.notes)
