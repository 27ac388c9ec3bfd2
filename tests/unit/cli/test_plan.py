"""kanab plan: what a plan will give, from the file, from flags, and from an earlier release."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.approved import assert_approved
from tests.unit.cli.program import Program, transcript

import kanab as kb
from kanab.cli.main import cli
from kanab.datasets import shop_rows
from kanab.plan.file import read_plan
from kanab.planning.forecast import Baseline, baseline_from_release, forecast_plan
from kanab.planning.power import solve_power
from kanab.planning.spread import spread_of_amounts

SHOP = """
[metrics]
bought = { kind = "binary" }
spend = { bounds = [0, 500], resolution = 0.01 }
[covariates]
tier = [1, 2, 3, 4, 5]
[experiments.variant]
arms = { A = 1, B = 1 }
adjust = ["tier"]
"""
TRAFFIC = ("--per-day", "60", "--days", "28")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kanab.toml"
    path.write_text(SHOP, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    plan = folder / "kanab.toml"
    plan.write_text(SHOP, encoding="utf-8")
    path = folder / "earlier.json"
    kb.write_release(kb.release(kb.count(shop_rows(8_000), read_plan(plan))), path)
    return path


def said(*words: str | Path) -> str:
    result = CliRunner().invoke(cli, ["plan", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def data(*words: str | Path) -> dict[str, Any]:
    return json.loads(said(*words, "--json"))


def effects(found: dict[str, Any]) -> dict[tuple[str, str | None], float]:
    return {(one["metric"], one["adjusted_for"]): one["effect"] for one in found["effects"]}


def test_the_slowest_table_is_said_first(file: Path, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    Path("open.toml").write_text(SHOP.replace("tier = [1, 2, 3, 4, 5]", "tier = {}"), "utf-8")
    city = SHOP.replace('"tier"]', '"tier", "city"]').replace("[cov", "[covariates.city]\ntop = 20\n[cov")
    Path("city.toml").write_text(city, "utf-8")
    known = " --per-day 60 --days 28 --rate bought=0.1 --sd spend=30"
    said = transcript(program, "plan", f"kanab.toml\nkanab.toml{known}\ncity.toml{known}\nopen.toml")
    assert_approved("cli/plan.txt", said)


def test_json_is_the_forecast_itself(file: Path) -> None:
    baseline = Baseline(rates={"bought": 0.1}, sds={"spend": 30}, means={"spend": 12})
    expected = forecast_plan(read_plan(file), per_day=60, days=28, baseline=baseline).to_dict()
    flags = ("--rate", "bought=0.1", "--sd", "spend=30", "--mean", "spend=12")
    assert data(file, *TRAFFIC, *flags) == json.loads(json.dumps(expected))
    assert data(file, "--per-day", "variant=60", "--days", "28", *flags) == json.loads(json.dumps(expected))


def test_a_release_gives_levels_and_variances(file: Path, earlier: Path) -> None:
    baseline = baseline_from_release(kb.read_release(earlier))
    expected = forecast_plan(read_plan(file), per_day=60, days=28, baseline=baseline).to_dict()
    found = data(file, *TRAFFIC, "--release", earlier)
    assert found == json.loads(json.dumps(expected))
    assert set(effects(found)) == {("bought", None), ("bought", "tier"), ("spend", None), ("spend", "tier")}
    assert found["linkages"][0]["people"] > data(file)["linkages"][0]["people"]  # the rarest tier decides


def test_a_flag_stands_above_the_release(file: Path, earlier: Path) -> None:
    found = effects(data(file, *TRAFFIC, "--release", earlier, "--sd", "spend=30"))
    assert found["spend", None] == solve_power(spread_of_amounts(30), people=1_680, power=0.8).effect
    assert ("spend", "tier") not in found
    assert ("bought", "tier") in found


def test_a_release_of_another_name_or_other_arms_lends_its_spread(file: Path, earlier: Path) -> None:
    noise = baseline_from_release(kb.read_release(earlier)).spreads["variant", "spend"][""]
    sd = float(np.sqrt(noise.shares @ noise.variances))
    file.write_text(SHOP.replace("variant", "checkout"), "utf-8")
    found = effects(data(file, *TRAFFIC, "--release", earlier))
    assert set(found) == {("bought", None), ("spend", None)}
    assert found["spend", None] == solve_power(spread_of_amounts(sd), people=1_680, power=0.8).effect
    file.write_text(SHOP.replace("B = 1", "B = 1, C = 1"), "utf-8")
    three = effects(data(file, *TRAFFIC, "--release", earlier))
    even = {"A": 1, "B": 1, "C": 1}
    assert three["spend", None] == solve_power(spread_of_amounts(sd, shares=even), people=1_680, power=0.8).effect


def test_a_release_is_read_at_this_plans_shares(file: Path, earlier: Path) -> None:
    even = effects(data(file, *TRAFFIC, "--release", earlier))
    file.write_text(SHOP.replace("A = 1", "A = 9"), "utf-8")
    uneven = effects(data(file, *TRAFFIC, "--release", earlier))
    assert uneven["spend", "tier"] > 1.5 * even["spend", "tier"]


MISTAKES = """
--rate clicks=0.1
--rate bought
--rate bought=x
--rate bought=1.5
--sd spend=-3
--sd spend=nan
--sd bought=1 --rate bought=0.1
--mean spend=3
--per-day many
--per-day -1
--per-day banner=3
--days 0
--power 1
--epsilon x
--confidence 2
--release none.json
--release kanab.toml
"""


def test_bad_flags_are_a_fact_and_a_remedy(file: Path, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    said = transcript(program, "plan", "none.toml") + transcript(program, "plan kanab.toml", MISTAKES)
    assert_approved("cli/plan_mistakes.txt", said)


@pytest.mark.slow
def test_the_page_has_tables_notes_and_a_curve_for_every_metric(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    words = (file, *TRAFFIC, "--rate", "bought=0.1", "--sd", "spend=30")
    text = said(*words, "--html", page)
    assert text == f"{said(*words)}\nPage: {page}\n"
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") == 2
    for part in ("<h1>kanab.toml</h1>", "variant/tier", "5 of 5", "The smallest change of spend in variant, by days"):
        assert part in html
    assert "<script" not in html
    assert json.loads(said(*words, "--json", "--html", page)) == data(*words)


def test_a_page_without_days_has_no_pictures(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    said(file, "--html", page)
    assert "<svg" not in page.read_text(encoding="utf-8")
