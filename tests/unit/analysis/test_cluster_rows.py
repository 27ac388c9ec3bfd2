"""Arms assigned to clusters: what a readout says, from every source, with k clusters in every class."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.described import count_of, readout_of

import kanab as kb
from kanab.errors import PrivacyError, SourceError


def shops(clusters: int = 60, seed: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 60, clusters)
    shop = np.repeat(np.arange(clusters), sizes)
    arm, level = rng.permutation(np.arange(clusters) % 2), rng.normal(0, 2, clusters)
    spend = np.clip(20 + level[shop] + 2 * arm[shop] + rng.normal(0, 6, len(shop)), 0, None)
    return {
        "shop": shop,
        "variant": np.where(arm[shop] == 1, "B", "A"),
        "region": np.where(np.arange(clusters) % 4 < 2, "north", "south")[shop],
        "tier": rng.integers(0, 2, len(shop)),
        "spend": np.round(spend, 2),
        "bought": (rng.random(len(shop)) < 0.3).astype(int),
    }


CHOICES: dict[str, Any] = {"arm": "variant", "metrics": ["spend", "bought"], "cluster": "shop"}


def robust(rows: dict[str, Any], metric: str) -> tuple[float, float]:
    """Return the effect of a regression on rows and its cluster-robust error, with the factor of few clusters."""
    means, variance = {}, 0.0
    for arm in "AB":
        inside = rows["variant"] == arm
        means[arm] = rows[metric][inside].mean()
        sums = np.bincount(rows["shop"][inside], rows[metric][inside] - means[arm])
        alike = inside.sum() ** 2 / np.sum(np.bincount(rows["shop"][inside]) ** 2)
        variance += np.sum(sums**2) / inside.sum() ** 2 * alike / (alike - 1)
    return means["B"] - means["A"], math.sqrt(variance)


@pytest.mark.slow
def test_effects_are_those_of_a_cluster_robust_regression_on_rows() -> None:
    rows = shops()
    answer = readout_of(rows, **CHOICES)
    assert [row.effect.metric for row in answer.effects] == ["spend", "bought"]
    for row in answer.effects:
        assert (row.effect.estimate, row.effect.se) == pytest.approx(robust(rows, row.effect.metric), rel=1e-10)
        assert row.effect.df is not None
        assert 20 <= row.effect.df <= 58
    data = answer.to_dict()
    people = {arm: int((rows["variant"] == arm).sum()) for arm in "AB"}
    assert data["clusters"] == {"by": ["shop"], "clusters": {"A": 30, "B": 30}, "people": people, "rates": ["bought"]}
    assert str(answer).startswith(f"variant: 60 clusters (shop) of {len(rows['shop']):,} people in 2 arms")
    assert "Arms were assigned by shop, so each shop counts once" in str(answer)
    assert "Arms were assigned by shop" in answer.to_html()


@pytest.mark.slow
def test_several_columns_make_the_clusters_of_a_switchback() -> None:
    rng = np.random.default_rng(5)
    city, hour = np.repeat(np.arange(4), 1_000), np.tile(np.arange(1_000) // 20, 4)
    arm = rng.integers(0, 2, (4, 50))[city, hour]
    rows = {"city": city, "hour": hour, "variant": np.where(arm == 1, "B", "A"), "late": rng.poisson(3, 4_000)}
    answer = kb.readout(rows, arm="variant", metrics=["late"], rows=kb.Rows(cluster=["city", "hour"]))
    assert answer.clusters is not None
    assert answer.clusters.by == ("city", "hour")
    assert sum(answer.clusters.clusters.values()) == 200
    alone = kb.readout(
        rows | {"both": city * 100 + hour}, arm="variant", metrics=["late"], rows=kb.Rows(cluster="both")
    )
    assert answer.effects[0].effect == alone.effects[0].effect


@pytest.mark.slow
def test_a_column_called_people_says_how_many_a_row_stands_for() -> None:
    rows = shops()
    frame = pd.DataFrame(rows)
    summed = frame.groupby(["shop", "variant"], as_index=False).agg(
        spend=("spend", "sum"), bought=("bought", "sum"), people=("spend", "size")
    )
    summed["spend"] = summed["spend"].round(2)
    small, large = (readout_of(summed, **CHOICES), readout_of(rows, **CHOICES))
    assert replace(small.clusters, rates=("bought",)) == large.clusters  # sums of rows do not tell who is 0 or 1
    assert small.effects[0].effect.estimate == pytest.approx(large.effects[0].effect.estimate, rel=1e-12)


@pytest.mark.slow
def test_a_covariate_of_clusters_is_adjusted_for_and_that_of_people_is_refused() -> None:
    rows = shops(80)
    answer = readout_of(rows, **CHOICES, adjust=["region"])
    methods = [(row.effect.metric, row.effect.method) for row in answer.effects]
    assert methods == [
        ("spend", "difference"), ("spend", "adjusted"), ("bought", "difference"), ("bought", "adjusted")
    ]  # fmt: skip
    with pytest.raises(SourceError, match="covariate 'tier' differs among the people of a cluster"):
        readout_of(rows, **CHOICES, adjust=["tier"])


@pytest.mark.slow
def test_fewer_than_k_clusters_in_an_arm_and_fewer_than_thirty_are_cautioned_about() -> None:
    few = readout_of(shops(18), **CHOICES)
    assert {caution.code for caution in few.cautions} >= {"small-arm", "few-clusters"}
    assert any("Fewer than k = 10 clusters are in arms A, B" in caution.sentence for caution in few.cautions)
    with pytest.raises(PrivacyError, match="an arm of variant holds fewer than k = 10 clusters"):
        kb.release(count_of(shops(18), **CHOICES))
    answer = readout_of(shops(24), **CHOICES)
    assert [caution.code for caution in answer.cautions if caution.code == "few-clusters"] == ["few-clusters"]
    assert not [caution for caution in readout_of(shops(), **CHOICES).cautions if caution.code == "few-clusters"]


@pytest.mark.slow
def test_clusters_with_people_of_two_arms_are_left_out_and_if_all_are_that_is_said() -> None:
    rows = shops()
    mixed = np.where(rows["shop"] < 12, np.where(np.arange(len(rows["shop"])) % 2 == 0, "A", "B"), rows["variant"])
    answer = readout_of(rows | {"variant": mixed}, **CHOICES)
    assert sum(answer.arms.values()) == 48
    assert any("were seen in two arms and are excluded" in note for note in answer.notes)
    everywhere = np.where(np.arange(len(rows["shop"])) % 2 == 0, "A", "B")
    with pytest.raises(SourceError, match="every value of shop has people of several arms"):
        readout_of(rows | {"variant": everywhere}, **CHOICES)


@pytest.mark.slow
def test_bounds_are_a_persons_and_a_ledger_keeps_to_its_clusters(tmp_path: Path) -> None:
    rows = shops()
    rows["spend"][:5] = 400.0
    plan = kb.make_plan(
        "variant",
        [kb.Mean("spend", bounds=(0, 50), resolution=0.01), kb.Mean("people", bounds=(0, 100))],
        arms={"A": 1, "B": 1},
    )
    ledger = tmp_path / "shops.ledger"
    first = kb.release(kb.count(rows, plan, rows=kb.Rows(cluster="shop")), ledger=ledger, new_ledger=True)
    clamped = rows | {"spend": np.minimum(rows["spend"], 50)}
    assert kb.analyze(first).effects[0].effect.estimate == pytest.approx(robust(clamped, "spend")[0], rel=1e-10)
    again = kb.count(rows, plan, earlier=[first.plan], rows=kb.Rows(cluster="shop"))
    assert kb.release(again, ledger=ledger).receipt.choices == {"assigned_by": "shop"}
    people = kb.count(rows, plan=kb.make_plan("variant", [kb.Mean("spend", bounds=(0, 50))], arms={"A": 1, "B": 1}))
    with pytest.raises(PrivacyError):
        kb.release(people, ledger=ledger)


def test_what_makes_people_of_rows_does_not_go_with_clusters() -> None:
    with pytest.raises(SourceError, match="rows, not people, are added up"):
        readout_of(shops(), **CHOICES, unit="tier")
    with pytest.raises(SourceError, match="there is no column 'shap'"):
        readout_of(shops(), **CHOICES | {"cluster": "shap"})


def test_a_withheld_number_of_people_is_not_shown() -> None:
    answer = readout_of(shops() | {"people": np.ones(len(shops()["shop"]))}, **CHOICES)
    assert answer.clusters is not None
    assert answer.clusters.people is not None
    plain = answer.to_dict() | {"clusters": answer.to_dict()["clusters"] | {"people": None}}
    from kanab.analysis.sections import readout_text  # noqa: PLC0415

    assert readout_text(plain).startswith("variant: 60 clusters (shop) in 2 arms")


@pytest.mark.slow
def test_rates_are_shown_in_percent_and_counts_are_not(tmp_path: Path) -> None:
    rows = shops()
    rows["orders"] = rows["bought"] * 2
    rate = rows["bought"][rows["variant"] == "A"].mean()
    answer = readout_of(rows, **CHOICES | {"metrics": ["bought", "orders"]})
    bounds = {"bought": (0, 1), "orders": (0, 9), "people": (0, 80)}
    choices = CHOICES | {"metrics": [*bounds], "bounds": bounds, "where": "tier >= 0"}
    kb.write_release(kb.release(count_of(rows, **choices)), tmp_path / "r.json")
    for each in (answer, readout_of(rows, **choices), kb.analyze(kb.read_release(tmp_path / "r.json"))):
        data = each.to_dict()
        assert data["clusters"]["rates"] == ["bought"]
        by_metric = {row["metric"]: row["mean_control"] for row in data["effects"]}
        assert by_metric["bought"] == pytest.approx(rate)
        shown = str(each).split("── bought")[1].split("── orders")[0]
        assert "means in %, effects in points" in shown
        assert f"{100 * rate:.1f}" in shown
        assert "means in %" not in str(each).split("── orders")[1]


@pytest.mark.slow
def test_what_a_filter_leaves_out_decides_nothing_about_rates() -> None:
    rows = shops()
    rows["bought"] = np.where(rows["tier"] == 1, 7, rows["bought"])
    for where, rates in ((None, []), ("tier = 0", ["bought"])):
        answer = kb.readout(rows, arm="variant", metrics=["bought"], rows=kb.Rows(cluster="shop", where=where))
        assert answer.to_dict()["clusters"]["rates"] == rates


@pytest.mark.slow
def test_bounds_are_a_persons_where_a_row_stands_for_several() -> None:
    rows = shops()
    summed = (
        pd.DataFrame(rows)
        .groupby(["shop", "variant"], as_index=False)
        .agg(bought=("bought", "sum"), people=("spend", "size"))
    )
    bounds = {"bought": (0, 1), "people": (0, 80)}
    choices = CHOICES | {"metrics": ["bought", "people"], "bounds": bounds}
    small, large = (readout_of(summed, **choices), readout_of(rows, **choices))
    assert small.to_dict()["effects"] == large.to_dict()["effects"]
    assert small.clusters == large.clusters


@pytest.mark.slow
@pytest.mark.parametrize("nobody", [0.0, 0.5, -1.0, None, math.nan])
def test_a_row_that_stands_for_nobody_is_refused_so_that_k_clusters_have_k_people(nobody: float | None) -> None:
    rows = {
        "shop": list(range(40)),
        "variant": ["A", "B"] * 20,
        "spend": [n % 7 + 1.5 if n < 12 else 0.0 for n in range(40)],
        "people": [3.0 if n < 12 else nobody for n in range(40)],
    }
    choices: dict[str, Any] = {"arm": "variant", "metrics": ["spend"], "cluster": "shop"}
    with pytest.raises(
        SourceError, match=r"fewer than one person, or parts of people, in 'people'\. Leave out such rows"
    ):
        readout_of(rows, **choices)
    with pytest.raises(PrivacyError, match="an arm of variant holds fewer than k = 10 clusters"):
        kb.release(count_of(rows, **choices, where="people >= 1"))
