"""A dry run: what a release would give beside the rows, why they differ, and which flag would keep it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.described import as_values, count_of

import kanab as kb
from kanab.analysis.dry_run import NOTHING_WRITTEN, try_release, with_keeping_flags
from kanab.choices import INTERNAL
from kanab.cli.main import cli
from kanab.counted import Counted
from kanab.errors import PlanError
from kanab.privacy.gate import make_release
from kanab.privacy.ledger import read_ledger
from kanab.privacy.release import Release


def shop(n: int = 3_000, seed: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    country = rng.choice(["DE", "FR", "IT", "MT"], n, p=[0.5, 0.3, 0.17, 0.03])
    return {
        "variant": rng.choice(["A", "B"], n),
        "country": country,
        "tier": rng.choice(["basic", "gold"], n),
        "spend": np.round(rng.gamma(2, 20, n), 2),
    }


WHY = "spend is withheld in variant/country: too few people of a class have any"


def strict_release(counted: Counted, k: int | None = None, **choices: Any) -> Release:
    """Release without spend in a table of more than three countries, whatever the rules of the day are."""
    made = make_release(counted, k, **choices)
    table = made.tables.get("variant/country")
    if table is None or len(table.covariates[0].levels) <= 3:
        return made
    tables = made.tables | {"variant/country": table.select_metrics([]), "variant": table.keep()}
    return replace(made, tables=tables, receipt=replace(made.receipt, left_out={"variant/country: spend": WHY}))


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kanab.analysis.dry_run.make_release", strict_release)


CHOICES: dict[str, Any] = {"arm": "variant", "metrics": ["spend"], "bounds": {"spend": (0, 500)}}


def write(folder: Path, rows: dict[str, Any] | None = None) -> str:
    columns = shop() if rows is None else rows
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    (folder / "rows.csv").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "rows.csv")


FLAGS = ("--arm", "variant", "--metric", "spend", "--bounds", "spend=0:500")


def done(*words: str) -> str:
    result = CliRunner().invoke(cli, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_release_that_keeps_everything_differs_in_nothing() -> None:
    run = try_release(count_of(shop(), **CHOICES, adjust=["tier"]))
    assert run.differences() == []
    assert run.to_dict()["leaves"] == [{"table": "variant/tier", "levels": "2", "metrics": "spend"}]
    assert run.stays_out == {}


def test_the_widest_bounds_that_keep_an_arm_total_are_found_by_trying() -> None:
    rows = shop()
    rows["spend"][7] = 9_000.0
    counts = 0

    def run(plan: kb.Plan) -> Any:
        nonlocal counts
        counts += 1
        return try_release(kb.count(rows, plan))

    def plan(high: float, *adjust: str) -> kb.Plan:
        return kb.make_plan(
            "variant", **as_values("make_plan", metrics=["spend"], adjust=adjust, bounds={"spend": (0, high)})
        )

    first = run(plan(10_000, "country"))
    assert [*first.stays_out] == ["variant: spend"]
    assert with_keeping_flags(first, run).keeping == {"variant: spend": "--bounds spend=0:2500"}
    assert counts == 3
    assert "spend" in run(plan(2_500)).released.totals("variant").metric_names
    assert "variant: spend" in run(plan(5_000)).stays_out


def test_everybody_is_counted_again_only_so_often() -> None:
    rows = shop() | {f"m{place}": np.where(np.arange(3_000) == place, 9.0, 0.0) for place in range(8)}
    names = [f"m{place}" for place in range(8)]
    counted: list[kb.Plan] = []

    def run(plan: kb.Plan) -> Any:
        counted.append(plan)
        return try_release(kb.count(rows, plan))

    first = run(
        kb.make_plan(
            "variant",
            **as_values(
                "make_plan", metrics=names, bounds=dict.fromkeys(names, (0, 50)), resolution=dict.fromkeys(names, 0.5)
            ),
        )
    )
    assert len(first.stays_out) == 8
    assert with_keeping_flags(first, run).keeping.keys() == {"variant: m0", "variant: m1", "variant: m2", "variant: m3"}
    assert len(counted) == 1 + 24


def test_a_refusal_is_an_answer_of_a_dry_run() -> None:
    rows = shop()
    rows["variant"] = np.where(np.arange(3_000) < 4, "C", rows["variant"])
    run = try_release(count_of(rows, **CHOICES))
    assert run.released is None
    assert run.refused.startswith("an arm of variant holds fewer than k = 10 people.")
    assert run.differences() == [f"a release would be refused: {run.refused}"]
    assert "A release would be refused: an arm of variant" in str(run)
    assert run.to_dict()["leaves"] == []


def test_bounds_that_a_file_needs_are_named() -> None:
    run = try_release(kb.count(shop(), arm="variant", metrics=["spend"]))
    assert run.undeclared == (
        "bounds of spend were taken from the data: a file needs declared ones (--bounds spend=LOW:HIGH)"
    )
    assert run.undeclared in run.differences()


@pytest.mark.usefixtures("strict")
def test_a_dry_run_writes_nothing_and_notes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = write(tmp_path)
    text = done("release", source, *FLAGS, "--covariate", "country", "--dry-run")
    assert text.startswith(f"{NOTHING_WRITTEN}\n{INTERNAL}\n")
    assert "- Stays out: spend is withheld in variant/country" in text
    assert "--top country=2 keeps it." in text
    assert "- Cost: " in text
    assert {path.name for path in tmp_path.iterdir()} == {"rows.csv"}
    data = json.loads(done("release", source, *FLAGS, "--covariate", "country", "--dry-run", "--json"))
    assert data["scope"] == "own-rows"
    assert data["stays_out"] == [{"what": "variant/country: spend", "why": WHY, "keeps_it": "--top country=2"}]


def test_a_dry_run_asks_the_ledger_that_is_there_and_leaves_it_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write(tmp_path)
    done("release", source, *FLAGS, "--covariate", "tier", "-o", "first.json", "--new-ledger")
    before = Path("kanab.ledger").read_bytes()
    text = done("release", source, *FLAGS, "--covariate", "tier", "--where", "spend > 0", "--dry-run")
    assert "A release would be refused" in text
    assert Path("kanab.ledger").read_bytes() == before
    assert len(read_ledger("kanab.ledger").entries) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--dry-run", "-o", "out.json"), "--dry-run writes nothing, and --output is about what is written"),
        (("--dry-run", "--new-ledger"), "--dry-run writes nothing, and --new-ledger is about what is written"),
        ((), "the file to write is not named"),
        (("-o", "out.json", "--json", "--new-ledger"), "--json is about --dry-run"),
    ],
)
def test_what_a_dry_run_does_not_go_with_is_said(words: tuple[str, ...], told: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["release", write(tmp_path), *FLAGS, *words])
    assert isinstance(result.exception, PlanError)
    assert told in str(result.exception)
    assert {path.name for path in tmp_path.iterdir()} == {"rows.csv"}


@pytest.mark.usefixtures("strict")
def test_as_released_prints_both_and_a_line_for_every_difference(tmp_path: Path) -> None:
    source = write(tmp_path)
    text = done("analyze", source, *FLAGS, "--adjust", "country", "--as-released")
    own, _, released = text.partition("── What a release would give (nothing was released) ")
    assert "↳ adjusted" in own
    assert "- Spend is withheld in variant/country" in released
    assert own.count("Internal: computed on personal data") == 1
    data = json.loads(done("analyze", source, *FLAGS, "--adjust", "country", "--as-released", "--json"))
    methods = [row["method"] for row in data["effects"]]
    assert methods == ["difference", "adjusted"]
    assert data["as_released"]["scope"] == "own-rows"
    assert [row["method"] for row in data["as_released"]["effects"]["variant"]] == ["difference"]
    assert any("spend is withheld in variant/country" in line for line in data["as_released"]["differences"])
    same = done("analyze", source, *FLAGS, "--adjust", "tier", "--as-released")
    assert same.rstrip().endswith("The tables are the same.")


def test_as_released_is_about_rows(tmp_path: Path) -> None:
    done("release", write(tmp_path), *FLAGS, "-o", str(tmp_path / "out.json"), "--new-ledger")
    result = CliRunner().invoke(cli, ["analyze", str(tmp_path / "out.json"), "--as-released"])
    assert "--as-released is about rows, and this is released" in str(result.exception)
