"""kanab power: two of people, effect and power give the third, from numbers or from a release."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from tests.approved import assert_approved
from tests.unit.cli.program import Program, transcript

import kanab as kb
from kanab.analysis.metric_shapes import shapes_of
from kanab.cli.main import cli
from kanab.datasets import shop_rows
from kanab.errors import AnalysisError, KanabError
from kanab.plan.file import parse_plan
from kanab.planning.power import solve_power
from kanab.planning.spread import spread_of_means, spread_of_rows

RATE = ("--rate", "0.1")


def said(*words: str) -> str:
    result = CliRunner().invoke(cli, ["power", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def data(*words: str) -> dict[str, Any]:
    return json.loads(said(*words, "--json"))


def problem(*words: str) -> KanabError:
    with pytest.raises(KanabError) as found:
        said(*words)
    return found.value


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = shop_rows(8_000)
    found = kb.count(
        rows,
        arm="variant",
        metrics=[kb.Mean("spend", bounds=(0, 500), resolution=0.01), "bought"],
        adjust=["tier"],
        segments=["tier"],
    )
    path = tmp_path_factory.mktemp("power") / "shop.json"
    kb.write_release(kb.release(found), path)
    return path


ANSWERS = """
--rate 10% --effect 10% --curve
--rate 0.05 --people 20000 --power 0.8
--rate 0.5 --people 40 --power 80% --curve
--rate 0.1 --effect 0.01 --alternative greater
--sd A=20,B=25 --shares A=9,B=1 --effect 1
--sd 20 --effect 1 --shares A=1,B=1,C=1
--sd 20 --effect 1 --shares A=1,B=1,C=1 --correction bonferroni
--sd 20 --effect 1 --shares A=1,B=1,C=1 --correction bonferroni --tests 6
--sd 20 --effect 1 --shares A=1,B=1,C=1 --correction dunnett --control B
--sd 30 --mean 12 --people 20000 --effect 0.6 --shares A=9,B=1
--sd 15.6 --mean 4 --shares A=9,B=1 --effect 0.365 --relative
--sd 15.6 --mean 4 --shares A=9,B=1 --effect 0.365 --relative --multiplies
--sd 15.6 --mean 4 --shares A=9,B=1 --people 9973
--sd 15.6 --mean 4 --shares A=9,B=1 --people 9973 --effect 1.46
--rate 0.05 --effect 0 --margin non-inferiority=0.02 --relative
--rate 0.1 --effect 0 --margin non-inferiority=5%
--sd 20 --effect 0 --people 20000 --margin equivalence=-0.5:1
--sd 20 --effect 0 --people 20000 --margin superiority=1 --better lower
"""


def test_two_of_people_effect_and_power_give_the_third(program: Program) -> None:
    assert_approved("cli/power.txt", transcript(program, "power", ANSWERS))


MISTAKES = """
--rate 0.1 --people 9 --effect 1 --power 0.8
--rate 0.1
--people 900
--rate 0.1 --sd 20 --people 900
--rate 0.1 --mean 3 --people 900
--rate 0.1 --multiplies --people 900
--rate 0.1 --adjust t --people 900
--sd 20 --multiplies --people 900
--sd x --people 900
--sd 1e200 --people 900
--sd A=1 --people 900
--sd 20 --relative --effect 1
--sd 20 --effect much
--sd 20 --people 1
--sd 20 --people 900 --power nan
--sd 20 --people 900 --confidence 2
--sd 20 --people 900 --shares A
--sd 20 --people 900 --control Z
--sd 20 --people 900 --margin x=1
--sd 20 --people 900 --margin superiority=-1
--sd 20 --people 900 --better lower
--release none.json --people 900
--release shop.json --people 900
--release shop.json --people 900 --metric clicks
--release shop.json --people 900 --experiment banner
--release shop.json --people 900 --metric spend --adjust age
--release shop.json --people 900 --metric bought --multiplies
visits.csv --effect 5%
visits.csv --metric spend
visits.csv --metric spend --effect much
visits.csv --metric spend --effect 5% --control A
visits.csv --metric spend --effect 5% --rate 10%
visits.csv --metric bought --effect 5% --where "bought = 1"
--release shop.json --metric spend --effect 5% --bounds spend=0:500
"""


def test_bad_input_is_a_fact_and_a_remedy(
    file: Path, rows_file: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(rows_file).parent)
    Path("shop.json").write_bytes(file.read_bytes())
    assert_approved("cli/power_mistakes.txt", transcript(program, "power", MISTAKES))


def shaped(means: kb.stats.ArmMeans, file: Path) -> kb.stats.ArmMeans:
    """The means with what the release knows of their metric's shape."""
    released = kb.read_release(file)
    return replace(means, shape=shapes_of(released, "variant", released.tables)[means.metric])


def test_a_skewed_metric_of_a_release_takes_more_people_for_a_fall_in_a_small_arm(file: Path, tmp_path: Path) -> None:
    released = kb.read_release(file)
    assert released.receipt.shapes["variant"]["spend"][0] > 2
    symmetric = {"variant": {"spend": (0.0, 1.0)}}
    people = []
    for name, shapes in (("symmetric", symmetric), ("known", released.receipt.shapes)):
        path = tmp_path / f"{name}.json"
        kb.write_release(replace(released, receipt=replace(released.receipt, shapes=shapes)), path)
        words = ("--release", str(path), "--metric", "spend", "--shares", "A=99,B=1", "--power", "0.8")
        people.append([data(*words, "--effect", effect)["people"] for effect in ("2", "-2")])
    (up, down), (up_known, down_known) = people
    assert up == down == up_known  # a small arm that has large values is not surer than it looks
    assert down_known > 1.1 * down


def test_a_release_gives_the_variances_that_were_found(file: Path) -> None:
    table = kb.read_release(file).tables["variant/tier"]
    words = ("--release", str(file), "--metric", "spend", "--people", "40000", "--power", "0.8")
    even = {"A": 1, "B": 1}
    plain = spread_of_means(shaped(kb.stats.plain_means(table, "spend"), file), shares=even)
    adjusted = spread_of_means(shaped(kb.stats.adjusted_means(table, "spend"), file), shares=even)
    assert data(*words, "--shares", "A=1,B=1")["effect"] == solve_power(plain, people=40_000, power=0.8).effect
    found = data(*words, "--shares", "A=1,B=1", "--adjust", "tier", "--experiment", "variant")
    assert found["effect"] == solve_power(adjusted, people=40_000, power=0.8).effect
    assert found["notes"] == [
        "How spend varies is as it was found in variant, adjusted for tier.", "Arms are compared with A."
    ]  # fmt: skip
    assert (found["control"], found["control_chosen"]) == ("A", "word")
    assert data(*words)["arms"] != found["arms"]  # no shares were planned, so the realised ones


def test_the_control_of_a_release_is_known_by_its_name_or_has_to_be_named(tmp_path: Path) -> None:
    for arms in (("blue", "green"), ("Mens E-Mail", "No E-Mail")):
        rows = {
            "variant": np.repeat(arms, 2_000),
            "bought": np.r_[np.arange(2_000) < 400, np.arange(2_000) < 40].astype(int),
        }
        kb.write_release(kb.release(kb.count(rows, arm="variant", metrics=["bought"])), tmp_path / f"{arms[0]}.json")
    words = ("--people", "4000", "--power", "0.8")
    rare = data("--release", str(tmp_path / "Mens E-Mail.json"), *words)
    assert (rare["control"], rare["control_chosen"], rare["mean"]) == ("No E-Mail", "word", 0.02)
    found = problem("--release", str(tmp_path / "blue.json"), *words)
    assert (found.fact, found.remedy) == (
        "which arm is the control?",
        'Name it: --control blue (control="blue"). Arms: blue, green.',
    )
    named = data("--release", str(tmp_path / "blue.json"), *words, "--control", "green")
    assert (named["control"], named["control_chosen"], named["mean"]) == ("green", "named", 0.02)


def test_numbers_that_a_release_was_adjusted_for_save_people_and_are_no_metrics(tmp_path: Path) -> None:
    rows = shop_rows(8_000)
    before = np.random.default_rng(1).gamma(2, 5, 8_000).round(2)
    rows |= {"before": before, "spend": np.round(np.minimum(rows["spend"], 30) + 2 * before, 2)}
    counted = kb.count(
        rows,
        arm="variant",
        metrics=[kb.Mean("spend", bounds=(0, 150), resolution=0.01)],
        adjust=[kb.Number("before", bounds=(0, 40), resolution=0.01), "device", "tier"],
    )
    released = kb.release(counted)
    path = tmp_path / "shop.json"
    kb.write_release(released, path)
    words = ("--release", str(path), "--effect", "0.5", "--power", "0.8")
    plain, number, all_of_them = (
        data(*words, *more) for more in ((), ("--adjust", "before"), ("--adjust", "tier,before,device"))
    )
    assert all_of_them["people"] < number["people"] < 0.7 * plain["people"]
    effect = kb.analyze(released).effects[-1].effect
    assert effect.covariates == ("before", "device", "tier")
    means = kb.stats.additive_means([released.tables["variant/tier"]], "spend", [], numbers=["before"])
    assert number["people"] == solve_power(spread_of_means(means), effect=0.5, power=0.8).people
    assert "adjusted for before" in number["notes"][0]
    assert "measured before the experiment" in problem(*words, "--metric", "before").fact
    assert "numbers: before" in problem(*words, "--adjust", "age").remedy


def test_a_released_rate_is_planned_with_the_variance_of_its_new_rate(file: Path) -> None:
    means = shaped(kb.stats.adjusted_means(kb.read_release(file).tables["variant/tier"], "bought"), file)
    words = ("--release", str(file), "--metric", "bought", "--adjust", "tier", "--people", "2000", "--power", "0.8")
    assert data(*words)["effect"] == solve_power(spread_of_means(means, rate=True), people=2_000, power=0.8).effect
    assert data(*words)["effect"] > 1.04 * solve_power(spread_of_means(means), people=2_000, power=0.8).effect


def test_a_ratio_from_a_release_needs_its_products(file: Path) -> None:
    words = ("--release", str(file), "--people", "40000", "--power", "0.8", "--metric", "spend/bought")
    assert isinstance(problem(*words), AnalysisError)
    assert isinstance(problem(*words, "--adjust", "tier"), AnalysisError)


def test_a_released_amount_may_be_multiplied_and_a_rate_may_not(file: Path) -> None:
    words = ("--release", str(file), "--people", "40000", "--power", "0.8", "--multiplies")
    means = shaped(kb.stats.plain_means(kb.read_release(file).tables["variant/tier"], "spend"), file)
    noise = spread_of_means(means, grows=True)
    assert data(*words, "--metric", "spend")["effect"] == solve_power(noise, people=40_000, power=0.8).effect


@pytest.fixture(scope="module")
def ratio_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release whose plan keeps the products of spend and bought, under a name of their own."""
    plan = parse_plan(
        "covariates.tier = [1, 2, 3, 4, 5]\n"
        'metrics.bought = { kind = "binary" }\n'
        "metrics.spend = { bounds = [0, 500], resolution = 0.01 }\n"
        'metrics.basket = { ratio = ["spend", "bought"] }\n'
        'experiments.variant = { arms = { A = 1, B = 1 }, adjust = ["tier"] }\n'
    )
    path = tmp_path_factory.mktemp("ratio") / "shop.json"
    kb.write_release(kb.release(kb.count(shop_rows(8_000), plan)), path)
    return path


@pytest.mark.parametrize("name", ["basket", "spend/bought"])
def test_a_ratio_is_planned_from_the_products_of_a_release(ratio_file: Path, name: str) -> None:
    words = ("--release", str(ratio_file), "--people", "40000", "--power", "0.8", "--metric", name)
    table = kb.read_release(ratio_file).tables["variant/tier"]
    even = {"A": 1, "B": 1}
    plain = kb.planning.spread_of_means(shaped(kb.stats.ratio_means(table, "spend", "bought"), ratio_file), shares=even)
    means = shaped(kb.stats.adjusted_ratio_means(table, "spend", "bought"), ratio_file)
    adjusted = kb.planning.spread_of_means(means, shares=even)
    assert data(*words)["effect"] == solve_power(plain, people=40_000, power=0.8).effect
    assert data(*words, "--adjust", "tier")["effect"] == solve_power(adjusted, people=40_000, power=0.8).effect
    assert "How spend/bought varies is as it was found in variant." in said(*words)


def page(folder: Path, *words: str) -> str:
    file = folder / "page.html"
    assert said(*words, "--html", str(file)).endswith(f"\nPage: {file}\n")
    return file.read_text(encoding="utf-8")


def test_the_page_holds_the_answer_both_curves_and_their_numbers(tmp_path: Path) -> None:
    html = page(tmp_path, *RATE, "--effect", "0.01", "--power", "0.8")
    assert "<h1>How many people?</h1>" in html
    assert "29,498 people in all (14,749 per arm) find a change of 1 point in a rate of 10\u00a0% (+10\u00a0%)" in html
    assert html.count("<svg") == 2
    assert 'aria-label="The smallest change with power 80 %, percentage points"' in html
    assert 'aria-label="The power for a change of 1 point"' in html
    for number in ("7,374 people", "2.04", "+20.4 %", "50.8 %", "&gt; 99.9 %", "A, the control"):
        assert number in html
    assert "The arm&#x27;s variance follows from its rate; plain rates are planned for the score test." in html
    assert "<script" not in html


@pytest.fixture(scope="module")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("rows") / "visits.csv"
    pd.DataFrame(shop_rows(4_000)).to_csv(path, index=False)
    return str(path)


def test_a_file_is_planned_from_with_80_percent_power_by_default(rows_file: str) -> None:
    text = said(rows_file, "--metric", "spend", "--effect", "5%")
    assert text.startswith("132,764 people in all (66,382 per arm) find a change of 0.2551 in a mean of 5.102 (+5 %)")
    assert "95 % confidence; two-sided.\nHow spend varies is taken from everybody in these rows.\n" in text
    assert "Internal: computed on personal data you may already read." in text
    spend = shop_rows(4_000)["spend"]
    found = data(rows_file, "--metric", "spend", "--effect", "5%")
    assert (found["scope"], found["power"] > 0.8, found["mean"]) == ("own-rows", True, pytest.approx(spend.mean()))
    noise = spread_of_rows(rows_file, "spend")
    assert noise.variances == pytest.approx([np.var(spend, ddof=1)] * 2)
    assert (noise.own_rows, solve_power(noise, people=900, power=0.8).own_rows) == (True, True)


def test_rows_and_columns_of_arms_are_chosen_as_everywhere(rows_file: str) -> None:
    rows = shop_rows(4_000)
    in_control = rows["bought"][rows["variant"] == "A"].mean()
    assert data(rows_file, "--metric", "bought", "--effect", "5%", "--arm", "variant")["mean"] == in_control
    in_tier = rows["spend"][rows["tier"] == 1]
    noise = spread_of_rows(pd.DataFrame(rows), "spend", rows=kb.Rows(where="tier = 1"))
    assert noise.variances == pytest.approx([np.var(in_tier, ddof=1)] * 2)
    adjusted = spread_of_rows(rows, "spend", adjust=["prior_spend"])
    share = 1 - np.corrcoef(rows["spend"], rows["prior_spend"])[0, 1] ** 2
    assert adjusted.variances[0] == pytest.approx(share * np.var(rows["spend"], ddof=1), rel=1e-3)
    ratio = spread_of_rows(rows, kb.Ratio("spend", "bought"))
    assert ratio.mean == pytest.approx(rows["spend"].sum() / rows["bought"].sum())


def test_where_own_rows_are_gated_the_gate_answers(rows_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KANAB_OWN_ROWS", "gated")
    found = data(rows_file, "--metric", "spend", "--effect", "5%")
    assert ("scope" in found, found["people"]) == (False, 132_764)
    few = f"prior_spend >= {np.sort(shop_rows(4_000)['prior_spend'])[-5]}"
    refused = problem(rows_file, "--metric", "spend", "--effect", "5%", "--where", few)
    assert refused.fact == "an arm of (everybody) holds fewer than k = 10 people"


def test_an_undeclared_control_is_asked_for_without_the_names_of_few(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    pd.DataFrame({"page": ["red"] * 40 + ["blue"] * 40 + ["Ann"] * 3, "y": range(83)}).to_csv(path, index=False)
    found = problem(str(path), "--metric", "y", "--effect", "5%", "--arm", "page")
    assert str(found) == 'which arm is the control? Name it: --control blue (control="blue"). Arms: blue, red.'
