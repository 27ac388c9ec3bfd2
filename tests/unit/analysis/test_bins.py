"""Bins of a covariate: adjusted for as categories, or by one slope on request; whatever the order of typing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from click.testing import CliRunner
from tests.described import count_of, readout_of

import kanab as kb
from kanab.cli.main import cli
from kanab.errors import PlanError, SourceError
from kanab.plan.file import plan_from_dict, plan_to_dict

N = 2_400


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    """Spend is highest in the middle of life: no slope sees that."""
    rng = np.random.default_rng(4)
    age, visits = rng.integers(18, 78, N), rng.integers(0, 40, N)
    arm = rng.choice(["A", "B"], N)
    spend = 40 - 0.03 * (age - 48.0) ** 2 + 0.3 * visits + rng.normal(0, 4, N) + 0.5 * (arm == "B")
    return pd.DataFrame(
        {"arm": arm, "age": age, "visits": visits, "city": rng.choice(["x", "y"], N), "spend": spend.round(2)}
    )


def adjusted(people: Any, **choices: Any) -> kb.stats.Effect:
    answer = readout_of(people, arm="arm", metrics=["spend"], resolution={"spend": 0.01}, **choices)
    return next(row.effect for row in answer.effects if row.effect.method == "adjusted")


def on_rows(people: pd.DataFrame, formula: str) -> tuple[float, float]:
    """Fit every arm alone; return the difference of the predictions at everybody's mean, and its standard error."""
    columns = smf.ols(formula, people).data
    at_mean = pd.Series(columns.exog.mean(axis=0), columns.xnames)
    means, variances = {}, []
    for arm, rows in people.groupby("arm"):
        fit = smf.ols(formula, rows).fit()
        means[arm] = float(fit.params @ at_mean[fit.params.index])
        variances.append(float(at_mean @ fit.cov_params() @ at_mean))
    return means["B"] - means["A"], float(np.sqrt(sum(variances)))


def binned(values: pd.Series, edges: list[float]) -> pd.Series:
    return pd.Series(np.searchsorted(edges, values, side="right"), values.index)


def test_several_bins_are_categories_together_but_for_those_with_scores(people: pd.DataFrame) -> None:
    bins = {"age": [30, 48, 60], "visits": [10, 25]}
    places = {name: binned(people[name], edges) for name, edges in bins.items()}
    rows = people.assign(**places)
    effect = adjusted(people, adjust=["age", "visits"], bins=bins)
    assert (effect.estimate, effect.se) == pytest.approx(on_rows(rows, "spend ~ C(age) + C(visits)"), rel=1e-9)
    rows["visits"] = people.visits.groupby(places["visits"]).transform("mean")
    effect = adjusted(people, adjust=["age", "visits"], bins=bins, score=["visits"])
    assert (effect.estimate, effect.se) == pytest.approx(on_rows(rows, "spend ~ C(age) + visits"), rel=1e-9)


def test_numbers_without_bins_have_a_slope_as_before(people: pd.DataFrame) -> None:
    tens = people.assign(age=people.age // 20)
    effect = adjusted(tens, adjust=["age"])
    assert (effect.estimate, effect.se) == pytest.approx(on_rows(tens, "spend ~ age"), rel=1e-9)
    assert effect == adjusted(tens, adjust=["age"], score=["age"])


@pytest.mark.slow
def test_fewer_bins_than_asked_for_are_said(people: pd.DataFrame, tmp_path: Path) -> None:
    few = people.assign(visits=np.where(people.visits < 20, 0, people.visits))
    sentence = "visits: 3 bins instead of 5, because many people share a value."
    choices: dict[str, Any] = {"arm": "arm", "metrics": ["spend"], "covariates": ["visits"]}
    assert sentence in readout_of(few, **choices, bins={"visits": 5}).notes
    assert not [note for note in readout_of(people, **choices, bins={"visits": 5}).notes if "bins" in note]
    few.to_csv(tmp_path / "few.csv", index=False)
    flags = ["--arm", "arm", "--metric", "spend", "--bounds", "spend=-100:100", "--covariate", "visits"]
    files = [str(tmp_path / "few.csv"), "-o", str(tmp_path / "few.json")]
    written = CliRunner().invoke(cli, ["release", *files, *flags, "--bin", "visits=5", "--no-ledger"])
    assert f"- {sentence}\n" in written.output
    shown = CliRunner().invoke(cli, ["analyze", str(tmp_path / "few.json")])
    assert sentence in " ".join(shown.output.split())


def test_bins_merged_for_k_are_not_called_shared_values(people: pd.DataFrame) -> None:
    bins = {"visits": 5}
    answer = readout_of(people, arm="arm", metrics=["spend"], covariates=["visits"], bins=bins, k=300)
    assert not [note for note in answer.notes if "instead of" in note]
    assert answer.receipt.maps["arm/visits"].merged


def test_texts_have_no_slope(people: pd.DataFrame) -> None:
    with pytest.raises(SourceError, match="'city' has no slope: it holds something other than numbers") as problem:
        kb.count(people, arm="arm", metrics=["spend"], adjust=[kb.Covariate("city", score=True)])
    assert "--score" in problem.value.remedy


def test_the_commonest_levels_have_no_slope(people: pd.DataFrame) -> None:
    with pytest.raises(PlanError, match=r"covariates\.age\.score is for numbers"):
        kb.count(people, arm="arm", metrics=["spend"], adjust=[kb.Covariate("age", top=5, score=True)])


@pytest.mark.parametrize("form", [{"bins": 5}, {"bins": [20, 60]}, {"levels": [1, 2, 3]}])
def test_a_score_travels_with_its_plan(form: dict[str, Any]) -> None:
    data = plan_to_dict(kb.make_plan("arm", ["spend"], adjust=["age"])) | {
        "covariates": {"age": form | {"score": True}}
    }
    plan = plan_from_dict(data)
    assert plan.covariate("age").score
    assert plan_to_dict(plan)["covariates"] == data["covariates"]
    assert plan_from_dict(plan_to_dict(plan)) == plan


def test_a_power_calculation_takes_bins_as_the_analysis_does(people: pd.DataFrame) -> None:
    choices: dict[str, Any] = {"arm": "arm", "metrics": ["spend"], "adjust": ["age"], "bins": {"age": 4}}
    deviations = []
    for score in ([], ["age"]):
        released = kb.release(count_of(people, **choices, score=score))
        noise = kb.planning.baseline_from_release(released).spreads["arm", "spend"]["age"]
        deviations.append(noise.variances[0])
    assert deviations[1] > 1.3 * deviations[0]


def test_batches_may_be_read_anew_but_not_cut_anew() -> None:
    from kanab.privacy.batches import continues  # noqa: PLC0415 - what a ledger asks

    plan = kb.make_plan("arm", ["spend"], adjust=[kb.Covariate("age", bins=[20, 60])])
    (age,) = plan.covariates
    assert continues(replace(plan, covariates=(replace(age, score=True),)), plan)
    assert not continues(replace(plan, covariates=(replace(age, bins=(20, 50)),)), plan)
