"""At a seal nobody or at least three people of every class have some of an amount."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.counted import Counted
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.gate import release
from kanab.tally.cell_arrays import marginal

COUNTRIES = ("DE", "FR", "AT", "IT", "MT")
ARMS = (("A", 1.0), ("B", 1.0))


def counted(buyers: dict[str, int], *, people: int = 200, covariates: tuple[str, ...] = ("country",)) -> Counted:
    """People by country and arm, of whom so many of arm B, and half of A, have some spend."""
    rows: dict[str, list[Any]] = {"arm": [], "country": [], "device": [], "spend": []}
    rng = np.random.default_rng(3)
    for country in COUNTRIES:
        for arm in "AB":
            some = buyers.get(country, people // 2) if arm == "B" else people // 2
            rows["arm"] += [arm] * people
            rows["country"] += [country] * people
            rows["device"] += [*rng.choice(["phone", "other"], people)]
            rows["spend"] += [*np.round(rng.gamma(2, 20, some) + 1, 2), *[0.0] * (people - some)]
    plan = Plan(
        (MetricPlan("spend", (0, 500), 0.01),),
        (ExperimentPlan("arm", ARMS, adjust=covariates),),
        (CovariatePlan("country", COUNTRIES), CovariatePlan("device", ("phone", "other"))),
    )
    made = kb.count(rows, plan)
    spend = np.array(rows["spend"]) > 0
    contributors = {}
    for name, tally in made.tallies.items():
        cells = np.zeros(tally.people.shape, dtype=object)
        for place in np.flatnonzero(spend):
            cells[tuple(factor.levels.index(rows[factor.name][place]) for factor in tally.factors)] += 1
        contributors[name] = {"spend": cells}
    return replace(made, signatures=None, contributors=contributors)


def levels(made: kb.Release, name: str = "arm/country") -> list[Any]:
    return [*made.tables[name].covariates[0].levels]


@pytest.mark.parametrize("few", [1, 2])
def test_a_level_of_which_one_or_two_people_of_an_arm_have_some_is_merged_further(few: int) -> None:
    made = release(counted({"MT": few}))
    assert levels(made) == ["other", "FR", "AT", "IT"]
    assert made.receipt.maps["arm/country"].merged == {"other": ("DE", "MT")}
    assert made.tables["arm/country"].metric_names == ("spend",)


@pytest.mark.parametrize("few", [0, 3])
def test_nobody_and_three_people_are_enough(few: int) -> None:
    made = release(counted({"MT": few}))
    assert levels(made) == [*COUNTRIES]


def test_an_amount_that_would_cost_more_than_half_of_the_levels_leaves_the_table_and_keeps_its_arms() -> None:
    made = release(counted({"DE": 60, "FR": 1, "AT": 1, "IT": 1, "MT": 1}))
    assert levels(made) == [*COUNTRIES]
    assert made.tables["arm/country"].metric_names == ()
    assert made.receipt.left_out["arm/country: spend"] == (
        "spend is withheld in arm/country: too few people of a class have some of it"
    )
    assert made.totals("arm").metric_names == ("spend",)


def test_an_amount_of_one_or_two_people_of_an_arm_is_withheld_altogether() -> None:
    made = release(counted(dict.fromkeys(COUNTRIES, 0) | {"DE": 2}, covariates=("country", "device")))
    assert (
        made.receipt.left_out["arm: spend"] == "spend is withheld altogether: too few people of an arm have some of it"
    )
    assert all(table.metric_names == () for table in made.tables.values())
    assert made.totals("arm").total == 2000


def test_a_number_below_zero_that_somebody_forged_is_too_few() -> None:
    of = counted({"MT": 0})
    cells = of.contributors["arm/country"]["spend"].copy()
    cells[1, -1] = -1
    made = release(replace(of, contributors={"arm/country": {"spend": cells}}))
    assert "MT" not in levels(made)


def test_a_table_of_which_nobody_counted_contributors_is_not_asked() -> None:
    made = release(replace(counted({"MT": 1}), contributors={}))
    assert levels(made) == [*COUNTRIES]


def test_whole_numbers_of_a_few_steps_are_not_asked_unless_they_are_sensitive() -> None:
    of = counted({"MT": 1})
    for most, sensitive, kept in ((20, "no", 5), (21, "no", 4), (20, "yes", 4)):
        orders = MetricPlan("spend", (0, most), 1, sensitive=sensitive)  # type: ignore[arg-type]
        tally = of.tallies["arm/country"]
        part = replace(
            tally.moments[0], metric=orders.metric(), sums=of.contributors["arm/country"]["spend"],
            squares={by: fold(of, by) for by in tally.moments[0].squares},
        )  # fmt: skip
        tallies = {"arm/country": replace(tally, moments=(part,))}
        made = release(replace(of, plan=replace(of.plan, metrics=(orders,)), tallies=tallies))
        assert len(levels(made)) == kept


def fold(of: Counted, by: tuple[str, ...]) -> Any:
    """Squares of people who have 1 or 0."""
    tally = of.tallies["arm/country"]
    return marginal(of.contributors["arm/country"]["spend"], tally.axes, by)


def test_a_primary_metric_leaves_a_table_only_where_two_levels_are_left() -> None:
    of = counted({"DE": 60, "FR": 1, "AT": 1, "IT": 1, "MT": 1})
    experiment = replace(of.plan.experiments[0], primary=("spend",))
    made = release(replace(of, plan=replace(of.plan, experiments=(experiment,))))
    assert made.tables["arm/country"].metric_names == ("spend",)
    assert len(levels(made)) == 2
