"""Published figures through the commands that a person would type."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import stats

from kanab.cli.main import cli


def answer(file: Path, *arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["analyze", str(file), *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


@pytest.mark.slow
def test_hillstrom_spend_and_visits_by_womens(shared: Path) -> None:
    data = answer(
        shared / "hillstrom_email.csv.gz", "--arm", "segment", "--metric", "visit,spend",
        "--segment", "womens", "--control", "No E-Mail",
    )  # fmt: skip
    spend = next(row for row in data["effects"] if row["metric"] == "spend" and row["arm"] == "Mens E-Mail")
    assert (round(spend["estimate"], 4), round(spend["se"], 4)) == (0.7698, 0.1452)
    pooled = next(row for row in data["segments"] if row["metric"] == "visit" and row["variance"] == "pooled")
    assert round(pooled["F"], 4) == 45.5251
    assert pooled["df"] == [2, 63994]


@pytest.mark.slow
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


@pytest.mark.slow
def test_cookie_cats_retention_and_its_sample_ratio(shared: Path) -> None:
    data = answer(shared / "cookie_cats.csv.gz", "--arm", "version", "--metric", "retention_7")
    assert data["sample_ratio"]["p"] == pytest.approx(0.0086, abs=5e-5)
    row = data["effects"][0]
    assert (row["control"], row["arm"]) == ("gate_30", "gate_40")
    assert row["p"] == pytest.approx(0.0016, abs=5e-5)
    assert [round(100 * end, 2) for end in row["interval"]] == [-1.33, -0.31]
    assert (data["control_chosen"], data["decision"]) == ("unknown", None)


@pytest.mark.slow
def test_hillstroms_arms_compared_in_every_way_agree_with_scipy_on_the_rows(shared: Path) -> None:
    file = shared / "hillstrom_email.csv.gz"
    flags = ("--arm", "segment", "--metric", "spend", "--control", "No E-Mail")
    data = answer(
        file, *flags, "--correction", "dunnett", "--contrast", "Mens E-Mail - Womens E-Mail",
        "--superiority", "spend=0.25", "--prior", "0,0.5",
    )  # fmt: skip
    people = pd.read_csv(file)
    none, mens, womens = (
        people.loc[people["segment"] == arm, "spend"] for arm in ("No E-Mail", "Mens E-Mail", "Womens E-Mail")
    )
    welch = stats.f_oneway(none, mens, womens, equal_var=False)
    (row,) = data["omnibus"]
    assert (row["F"], row["p"]) == pytest.approx((welch.statistic, welch.pvalue), rel=1e-8)
    (pair,) = data["contrasts"]
    t = stats.ttest_ind(mens, womens, equal_var=False)
    assert (pair["arm"], pair["control"]) == ("Mens E-Mail", "Womens E-Mail")
    assert (pair["t"], pair["p_usual"], pair["df"]) == pytest.approx((t.statistic, t.pvalue, t.df), rel=1e-8)
    found = {one["arm"]: one for one in data["effects"]}
    base, one, two = (arm.var(ddof=1) / len(arm) for arm in (none, mens, womens))
    rho = base / np.sqrt((base + one) * (base + two))
    for row in found.values():
        joint = stats.multivariate_t(shape=[[1, rho], [rho, 1]], df=round(row["df"]), seed=1)
        reach = np.full(2, abs(row["t"]))
        assert row["p_adjusted"] == pytest.approx(1 - joint.cdf(reach, lower_limit=-reach), abs=1e-4)
        assert row["p"] < row["p_adjusted"] < 2 * row["p"]
    shifted = stats.ttest_ind(womens - 0.25, none, equal_var=False, alternative="greater")
    claim = {one["arm"]: one for one in data["margins"]}["Womens E-Mail"]
    assert claim["t"] == pytest.approx(shifted.statistic, rel=1e-8)
    assert shifted.pvalue <= claim["p"] < 1.01 * shifted.pvalue  # arms of nearly one size are hardly misled
    assert [one["arm"] for one in data["bayes"][0]["arms"]] == ["Mens E-Mail", "Womens E-Mail", "No E-Mail"]
    pooled = answer(file, *flags, "--pool", "any=Mens E-Mail+Womens E-Mail")["effects"][0]
    both = stats.ttest_ind(pd.concat([mens, womens]), none, equal_var=False)
    assert (pooled["t"], pooled["p_usual"]) == pytest.approx((both.statistic, both.pvalue), rel=1e-8)
