"""Recode instead of withhold: what rule 3 merges, what leaves a table, and what it closes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.counted import Counted
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.gate import release
from kanab.privacy.release import Release
from kanab.tally.cell_arrays import marginal

SPEND = MetricPlan("spend", bounds=(0, 1_000), resolution=0.01)


def shop(people: int = 6_000, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    bought = rng.random(people) < 0.2
    return {
        "arm": np.array(["A", "B"])[np.arange(people) % 2],
        "country": rng.choice(["DE", "FR", "IT", "NL", "AT", "MT"], people, p=[0.4, 0.25, 0.15, 0.12, 0.06, 0.02]),
        "device": rng.choice(["phone", "desktop"], people),
        "bought": bought.astype(int),
        "spend": np.where(bought, np.round(rng.lognormal(3.2, 0.6, people), 2), 0.0),
    }


def released(
    rows: dict[str, Any],
    metrics: list[MetricPlan],
    adjust: tuple[str, ...] = ("country",),
    **experiment: Any,
) -> Release:
    covariates = tuple(CovariatePlan(name) for name in adjust)
    plan = Plan(tuple(metrics), (ExperimentPlan("arm", adjust=adjust, **experiment),), covariates)
    return kb.release(kb.count(rows, plan))


def levels(made: Release, covariate: str) -> list[Any]:
    return list(made.tables[f"arm/{covariate}"].factor(covariate).levels)


# ── merging ────────────────────────────────────────────────────────────────────────────────────


def one_small_country(buyers: int) -> dict[str, Any]:
    """A shop in whose smallest country so many people of each arm bought something."""
    rows = shop()
    malta = np.flatnonzero(rows["country"] == "MT")
    rows["spend"][malta] = 0.0
    for arm in ("A", "B"):
        rows["spend"][malta[rows["arm"][malta] == arm][:buyers]] = 25.0
    return rows


def test_a_country_with_two_buyers_is_merged_and_costs_no_other_country_its_spend() -> None:
    made = released(one_small_country(2), [SPEND])
    assert "spend" in made.tables["arm/country"].metric_names
    assert "MT" not in levels(made, "country")
    assert {"DE", "FR", "IT", "NL"} <= {*levels(made, "country")}
    assert made.receipt.left_out == {}


def test_a_country_with_enough_buyers_or_with_none_stays() -> None:
    for buyers in (0, 12):
        assert "MT" in levels(released(one_small_country(buyers), [SPEND]), "country")


def few_buyers() -> dict[str, Any]:
    """Twelve countries, in nearly all of which hardly anybody buys."""
    rows = shop()
    rng = np.random.default_rng(2)
    rows["country"] = rng.choice([f"c{place:02}" for place in range(12)], 6_000)
    rows["spend"] = np.where(rows["country"] == "c00", rows["spend"], 0.0)
    rows["spend"][rng.choice(np.flatnonzero(rows["country"] != "c00"), 24, replace=False)] = 30.0
    rows["pages"] = np.round(rng.gamma(4.0, 30.0, 6_000))
    return rows


PAGES = MetricPlan("pages", bounds=(0, 2_000), resolution=1)


def test_a_secondary_metric_leaves_a_table_rather_than_half_of_its_levels() -> None:
    made = released(few_buyers(), [SPEND, PAGES], primary=("pages",))
    assert len(levels(made, "country")) == 12
    assert made.tables["arm/country"].metric_names == ("pages",)
    assert made.receipt.left_out["arm/country: spend"].endswith(
        "keep fewer levels of country (--top country=…), or wait for more people"
    )
    assert "spend" in made.totals("arm").metric_names
    assert not any(sign.isdigit() for why in made.receipt.left_out.values() for sign in why)


def test_a_primary_metric_merges_the_levels_it_needs() -> None:
    made = released(few_buyers(), [SPEND, PAGES], primary=("spend",))
    assert made.tables["arm/country"].metric_names == ("spend", "pages")
    assert 2 <= len(levels(made, "country")) < 6


def test_the_effect_has_no_part_in_what_is_merged() -> None:
    rows = one_small_country(2)
    more = dict(rows) | {"spend": np.where(rows["arm"] == "B", np.round(rows["spend"] * 1.7, 2), rows["spend"])}
    assert levels(released(rows, [SPEND]), "country") == levels(released(more, [SPEND]), "country")


# ── arm totals ─────────────────────────────────────────────────────────────────────────────────


def test_one_buyer_who_is_most_of_an_arm_takes_the_metric_out_and_a_bound_brings_it_back() -> None:
    rows = shop()
    rows["spend"][5] = 9_000.0
    wide = MetricPlan("spend", bounds=(0, 10_000), resolution=0.01)
    made = released(rows, [wide, MetricPlan("bought", binary=True)])
    assert made.totals("arm").metric_names == ("bought",)
    assert "(--bounds spend=0:5000)" in made.receipt.left_out["arm: spend"]
    assert "spend" in released(rows, [MetricPlan("spend", bounds=(0, 500), resolution=0.01)]).totals("arm").metric_names


# ── products ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "ordered",
    [
        MetricPlan("ordered", bounds=(0, 10), resolution=1),
        MetricPlan("ordered", bounds=(0, 1)),
        MetricPlan("ordered", binary=True),
    ],
    ids=["0:10", "0:1", "binary"],
)
def test_revenue_of_the_one_person_without_an_order_is_told_by_no_product(ordered: MetricPlan) -> None:
    rows = shop()
    rows["ordered"] = rows["bought"].copy()
    lone = int(np.flatnonzero(rows["spend"] > 0)[0])
    rows["ordered"][lone], rows["spend"][lone] = 0, 173.46
    ratio = MetricPlan("spend/ordered", ratio=("spend", "ordered"))
    made = released(rows, [SPEND, ordered, ratio], adjust=())
    assert not any(table.crosses for table in made.tables.values()), made.receipt.left_out
    rows["spend"][lone] = 0.0
    assert released(rows, [SPEND, ordered, ratio], adjust=()).tables["arm"].crosses


@pytest.mark.parametrize("opened", [MetricPlan("opened", binary=True), MetricPlan("opened", bounds=(0, 10))])
def test_what_one_person_who_did_not_receive_it_spent_is_told_by_no_product(opened: MetricPlan) -> None:
    rows = shop()
    rng = np.random.default_rng(4)
    rows["opened"] = ((rows["arm"] == "B") & (rng.random(6_000) < 0.6)).astype(int)
    apart = (rows["arm"] == "B") & (rows["opened"] == 0)
    rows["spend"][apart] = 0.0
    rows["spend"][int(np.flatnonzero(apart)[0])] = 173.46
    made = released(rows, [SPEND, opened], adjust=(), received="opened")
    assert not any(table.crosses for table in made.tables.values())


def test_cells_of_two_0_1_metrics_hold_nobody_or_k_people() -> None:
    rng = np.random.default_rng(5)
    for seed in range(12):
        rows = shop(400, seed)
        rows["returned"] = (rng.random(400) < 0.06).astype(int)
        parts = [MetricPlan("returned", bounds=(0, 5)), MetricPlan("bought", bounds=(0, 5))]
        made = released(rows, [*parts, MetricPlan("returned/bought", ratio=("returned", "bought"))], adjust=())
        for table in made.tables.values():
            for cross in table.crosses:
                scale = {metric.name: metric.scale for metric in table.metrics}
                y, z = (added // scale[name] for added, name in zip(cross.sums, cross.pair, strict=True))
                both = cross.products // (scale[cross.pair[0]] * scale[cross.pair[1]])
                for cell in (both, y - both, z - both, cross.counts - y - z + both):
                    assert np.all((cell == 0) | (cell >= 10))


# ── relations ──────────────────────────────────────────────────────────────────────────────────


def returns(rows: dict[str, Any], people: list[int]) -> np.ndarray:
    net = rows["spend"].copy()
    net[people] = 0.0
    return net


NET = MetricPlan("net", bounds=(0, 1_000), resolution=0.01)


def test_net_leaves_where_one_person_of_an_arm_returned_something() -> None:
    rows = shop()
    rows["net"] = returns(rows, [int(np.flatnonzero(rows["spend"] > 0)[0])])
    made = released(rows, [SPEND, NET])
    assert made.totals("arm").metric_names == ("spend",)
    why = made.receipt.left_out["arm: net"]
    assert "for most people it follows from spend" in why
    assert why.endswith("of an arm; leave out spend to have it")
    assert released(rows, [NET]).totals("arm").metric_names == ("net",)


def test_the_metric_of_lesser_role_gives_way() -> None:
    rows = shop()
    rows["net"] = returns(rows, [int(np.flatnonzero(rows["spend"] > 0)[0])])
    assert released(rows, [SPEND, NET], primary=("net",)).totals("arm").metric_names == ("net",)


def test_net_stays_beside_gross_where_many_people_returned_something() -> None:
    rows = shop()
    buyers = np.flatnonzero(rows["spend"] > 0)
    rows["net"] = returns(rows, [*buyers[::3]])
    made = released(rows, [SPEND, NET], adjust=("device",))
    assert made.tables["arm/device"].metric_names == ("spend", "net")


@pytest.mark.parametrize("kind", ["vat", "a total of two", "9.99 each"])
def test_a_lone_deviation_from_a_relation_is_not_told(kind: str) -> None:
    rows = shop()
    buyers = np.flatnonzero(rows["spend"] > 0)
    rng = np.random.default_rng(7)
    if kind == "vat":
        rows["net"] = np.round(rows["spend"] / 1.19, 2)
        metrics = [SPEND, NET]
    elif kind == "a total of two":
        rows["food"] = np.where(rows["spend"] > 0, np.round(rng.gamma(2.0, 9.0, 6_000), 2), 0.0)
        rows["net"] = np.round(rows["spend"] + rows["food"], 2)
        metrics = [SPEND, MetricPlan("food", bounds=(0, 1_000), resolution=0.01), NET]
    else:
        rows["orders"] = np.where(rows["spend"] > 0, 1 + rng.poisson(0.4, 6_000), 0)
        rows["net"] = np.round(9.99 * rows["orders"], 2)
        metrics = [MetricPlan("orders", bounds=(0, 20), resolution=1), NET]
    assert "net" in released(rows, metrics, adjust=("device",)).totals("arm").metric_names
    rows["net"][buyers[3]] += 55.5
    assert "net" not in released(rows, metrics, adjust=("device",)).totals("arm").metric_names


# ── several tables, ledgers, experiments ───────────────────────────────────────────────────────


def test_lone_buyers_are_not_told_by_three_tables_of_which_one_is_the_exclusive_or_of_two(tmp_path: Any) -> None:
    rng = np.random.default_rng(8)
    rows = {
        "arm": np.array(["A", "B"])[np.arange(800) % 2],
        "left": rng.choice(["l", "r"], 800),
        "top": rng.choice(["t", "b"], 800),
    }
    rows["mixed"] = np.where((rows["left"] == "l") ^ (rows["top"] == "t"), "yes", "no")
    spend = np.where(rng.random(800) < 0.4, np.round(rng.gamma(2.0, 20.0, 800), 2), 0.0)
    corner = (rows["arm"] == "B") & (rows["left"] == "l") & (rows["top"] == "t")
    spend[corner] = 0.0
    spend[int(np.flatnonzero(corner)[0])] = 61.37
    rows["spend"] = spend
    made = released(rows, [SPEND], adjust=("left", "top", "mixed"))
    shown = [name for name, table in made.tables.items() if "spend" in table.metric_names and len(table.axes) > 1]
    assert len(shown) < 3


def test_a_second_release_may_not_complete_what_the_first_one_left_open(tmp_path: Any) -> None:
    rng = np.random.default_rng(9)
    rows = shop()
    moved = rows["device"].copy()
    buyer = int(np.flatnonzero((rows["spend"] > 0) & (rows["device"] == "phone"))[0])
    quiet = np.flatnonzero((rows["spend"] == 0) & (rows["device"] == "phone"))
    moved[buyer] = "desktop"
    moved[rng.choice(quiet, 400, replace=False)] = "desktop"
    rows["screen"] = moved
    path = tmp_path / "a.ledger"

    def into(adjust: str, earlier: Any) -> Release:
        plan = Plan((SPEND,), (ExperimentPlan("arm", adjust=(adjust,)),), (CovariatePlan(adjust),))
        return kb.release(kb.count(rows, plan, earlier=earlier), ledger=path, new_ledger=not path.exists())

    assert "spend" in into("device", ()).tables["arm/device"].metric_names
    second = into("screen", kb.read_ledger(path).plans)
    assert "spend" not in getattr(second.tables.get("arm/screen"), "metric_names", ())


VOTE = MetricPlan("vote", bounds=(-1, 1), resolution=1)


def votes() -> Any:
    """Return what counts 3,000 votes of 0 or 1, by level; three people are at −1."""
    rng = np.random.default_rng(10)
    vote = (rng.random(3_000) < 0.3).astype(int)
    vote[[3, 500, 2_001]] = -1
    rows = {"arm": np.arange(3_000) % 2, "level": rng.choice([*"abcdef"], 3_000), "vote": vote}
    plan = Plan((VOTE,), (ExperimentPlan("arm", segments=("level",)),), (CovariatePlan("level"),))
    return lambda metric=VOTE, earlier=(): kb.count(rows, replace(plan, metrics=(metric,)), earlier=earlier)


@pytest.mark.parametrize(
    "metric",
    [VOTE, replace(VOTE, bounds=(-100, 100)), replace(VOTE, resolution=0.01), MetricPlan("vote")],
    ids=["-1:1", "wider", "finer", "undeclared"],
)
def test_who_is_at_minus_1_is_told_by_no_squares_by_level(metric: MetricPlan) -> None:
    part = kb.release(votes()(metric)).tables["arm/level"].moments_of("vote")
    assert [*part.squares] == [("arm",)]
    assert part.sums.shape == (2, 6)


def test_an_amount_that_may_be_below_0_keeps_its_squares_by_level() -> None:
    rng = np.random.default_rng(12)
    rows = shop()
    rows["net"] = rows["spend"] - np.where(rng.random(6_000) < 0.1, np.round(rng.gamma(2.0, 9.0, 6_000), 2), 0.0)
    net = MetricPlan("net", bounds=(-500, 1_000), resolution=0.01)
    plan = Plan((net,), (ExperimentPlan("arm", segments=("device",)),), (CovariatePlan("device"),))
    assert ("device",) in kb.release(kb.count(rows, plan)).tables["arm/device"].moments_of("net").squares


def test_a_ledger_of_before_with_squares_by_level_takes_another_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, path = votes(), tmp_path / "votes.ledger"
    with monkeypatch.context() as before:
        before.setattr("kanab.privacy.gate.squares_by_arm", lambda counted: counted)
        old = kb.release(count(), ledger=path, new_ledger=True)
    assert ("level",) in old.tables["arm/level"].moments_of("vote").squares
    made = kb.release(count(earlier=kb.read_ledger(path).plans), ledger=path)
    assert [*made.tables["arm/level"].moments_of("vote").squares] == [("arm",)]


# ── what stays as it was ───────────────────────────────────────────────────────────────────────


def test_ordinary_metrics_lose_nothing() -> None:
    rows = shop(20_000)
    rng = np.random.default_rng(11)
    rows["latency"] = np.round(rng.lognormal(5, 0.5, 20_000))
    rows["orders"] = np.where(rows["bought"] == 1, 1 + rng.poisson(0.3, 20_000), 0)
    latency = MetricPlan("latency", bounds=(0, 10_000), resolution=1)
    orders = MetricPlan("orders", bounds=(0, 50), resolution=1)
    made = released(rows, [MetricPlan("bought", binary=True), orders, SPEND, latency], adjust=("country", "device"))
    assert all(made.tables[f"arm/{name}"].metric_names == ("bought", "orders", "spend", "latency")
               for name in ("country", "device"))  # fmt: skip
    assert made.receipt.effective_k is not None
    assert made.receipt.effective_k >= 10


# ── a collector: nobody or three people of a class have some of an amount ────────────────────────

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


def levels_of(made: kb.Release, name: str = "arm/country") -> list[Any]:
    return [*made.tables[name].covariates[0].levels]


@pytest.mark.parametrize("few", [1, 2])
def test_a_level_of_which_one_or_two_people_of_an_arm_have_some_is_merged_further(few: int) -> None:
    made = release(counted({"MT": few}))
    assert levels_of(made) == ["other", "FR", "AT", "IT"]
    assert made.receipt.maps["arm/country"].merged == {"other": ("DE", "MT")}
    assert made.tables["arm/country"].metric_names == ("spend",)


@pytest.mark.parametrize("few", [0, 3])
def test_nobody_and_three_people_are_enough(few: int) -> None:
    made = release(counted({"MT": few}))
    assert levels_of(made) == [*COUNTRIES]


def test_an_amount_that_would_cost_more_than_half_of_the_levels_leaves_the_table_and_keeps_its_arms() -> None:
    made = release(counted({"DE": 60, "FR": 1, "AT": 1, "IT": 1, "MT": 1}))
    assert levels_of(made) == [*COUNTRIES]
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
    assert "MT" not in levels_of(made)


def test_a_table_of_which_nobody_counted_contributors_is_not_asked() -> None:
    made = release(replace(counted({"MT": 1}), contributors={}))
    assert levels_of(made) == [*COUNTRIES]


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
        assert len(levels_of(made)) == kept


def fold(of: Counted, by: tuple[str, ...]) -> Any:
    """Squares of people who have 1 or 0."""
    tally = of.tallies["arm/country"]
    return marginal(of.contributors["arm/country"]["spend"], tally.axes, by)


def test_a_primary_metric_leaves_a_table_only_where_two_levels_are_left() -> None:
    of = counted({"DE": 60, "FR": 1, "AT": 1, "IT": 1, "MT": 1})
    experiment = replace(of.plan.experiments[0], primary=("spend",))
    made = release(replace(of, plan=replace(of.plan, experiments=(experiment,))))
    assert made.tables["arm/country"].metric_names == ("spend",)
    assert len(levels_of(made)) == 2
