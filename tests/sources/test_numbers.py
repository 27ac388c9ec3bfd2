"""Numbers that are adjusted for as they are: the same digits from every engine."""

import pyarrow as pa
import pytest

import kanab as kb
from kanab.counted import Counted
from kanab.counting.dispatch import SourceOptions, count_source
from kanab.description import Mean, Number
from kanab.errors import SourceError
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan, make_plan

from .conftest import Loader
from .test_engines import assert_same, shop

SHOP = shop()
TWO = Plan(
    (
        MetricPlan("spend", (0, 60), 0.01, missing="zero"),
        MetricPlan("rating", (1, 5), 1, missing="exclude"),
        MetricPlan("bought", binary=True),
        MetricPlan("prior", (0, 90), 0.1),
        MetricPlan("balance", (-50, 50), 0.01),
        MetricPlan("orders"),
        MetricPlan("per_order", ratio=("spend", "rating")),
    ),
    (
        ExperimentPlan(
            "variant", None, None, ("tier",), ("device",), ("banner",), numbers=("prior", "orders", "balance")
        ),
        ExperimentPlan("banner", numbers=("prior",)),
    ),
    (CovariatePlan("tier"),),
)
HUGE = make_plan("variant", ["spend", "ties"], adjust=["huge", "balance", "device"])


def assert_same_numbers(counted: Counted, expected: Counted) -> None:
    assert_same(counted, expected)
    assert counted.signatures.numbers.names == expected.plan.weights


@pytest.mark.parametrize("plan", [TWO, HUGE], ids=["declared, two experiments", "open grids, large means"])
def test_numbers_and_their_products_have_the_same_digits_everywhere(engine: Loader, plan: Plan) -> None:
    counted = kb.count(engine.load(SHOP), plan)
    assert_same_numbers(counted, kb.count(SHOP, plan))
    assert len(counted.plan.numbers) == (3 if plan is TWO else 2)
    if plan is TWO:  # segments need squares by level of what they compare, and of nothing else
        table = counted.tallies["variant/device"]
        by = {part.metric.name: {*part.squares} for part in table.moments}
        assert by["spend"] == {("variant",), ("device",)}
        assert by["prior"] == by["orders"] == by["balance"] == {("variant",)}


def test_counted_beside_an_older_plan_that_has_the_number_as_a_metric(duckdb_loader: Loader) -> None:
    old = make_plan("variant", ["prior", "spend"], adjust=["tier"])
    new = make_plan("variant", ["spend"], adjust=[Number("prior"), "tier"])
    expected = kb.count(SHOP, new, earlier=[old])
    counted = kb.count(duckdb_loader.load(SHOP), new, earlier=[old])
    assert_same_numbers(counted, expected)
    assert_same(counted.earlier[0], expected.earlier[0])
    assert counted.earlier[0].signatures.numbers is None
    assert counted.tallies == kb.count(SHOP, new).tallies


def test_squares_of_numbers_by_level_stay_out_beside_older_plans_and_in_releases(duckdb_loader: Loader) -> None:
    spend, prior = Mean("spend", bounds=(0, 60)), (0, 90)
    plan = make_plan("variant", [spend], adjust=[Number("prior", bounds=prior)], segments=["device"])
    older = make_plan("variant", [spend, Mean("prior", bounds=prior)], segments=["device"])
    for source in (SHOP, duckdb_loader.load(SHOP)):
        counted = kb.count(source, plan, earlier=[older])
        for tables in (counted.tallies, kb.release(kb.count(source, plan)).tables):
            assert {*tables["variant/device"].moments_of("prior").squares} == {("variant",)}
        before = counted.earlier[0].tallies["variant/device"]
        assert {*before.moments_of("prior").squares} == {("variant",), ("device",)}


def test_a_number_of_people_with_several_rows_is_taken_like_a_covariate(duckdb_loader: Loader) -> None:
    once = {
        "who": list(range(400)), "variant": ["A", "B"] * 200, "before": [i % 37 / 4 for i in range(400)],
        "spend": [i % 11 / 2 for i in range(400)],
    }  # fmt: skip
    twice = {name: [*values, *values] for name, values in once.items()}
    twice["spend"] = [*once["spend"], *([0.0] * 400)]
    plan = make_plan("variant", ["spend"], adjust=["before"])
    expected = kb.count(once, plan)
    assert_same_numbers(kb.count(duckdb_loader.load(twice), plan, rows=kb.Rows(unit="who")), expected)
    exposures = pa.table({name: once[name] for name in ("who", "variant", "before")} | {"time": ["2026-11-01"] * 400})
    events = duckdb_loader.load({"who": once["who"], "spend": once["spend"], "time": ["2026-11-02"] * 400})
    rows = SourceOptions(unit="who", events=events, window="7d")
    assert_same_numbers(count_source(duckdb_loader.load(exposures), plan, rows), expected)
    changing = twice | {"before": [*once["before"], *([1.5] * 400)]}
    with pytest.raises(SourceError, match="covariate 'before' changes among the rows of a person"):
        kb.count(duckdb_loader.load(changing), plan, rows=kb.Rows(unit="who"))
    with pytest.raises(SourceError, match="aggregate names a number that is adjusted for"):
        kb.count(duckdb_loader.load(twice), plan, rows=kb.Rows(unit="who", aggregate={"before": "sum"}))


def test_what_a_column_holds_decides_alike_in_files_and_frames(duckdb_loader: Loader) -> None:
    rows = {
        "arm": ["A", "B"] * 50, "y": list(range(100)), "whole": [float(i % 3) for i in range(100)],
        "half": [i % 3 / 2 for i in range(100)], "gaps": [None if i % 5 == 0 else float(i % 2) for i in range(100)],
    }  # fmt: skip
    plan = make_plan("arm", ["y"], adjust=["whole", "half", "gaps"])
    for source in (rows, pa.table(rows), duckdb_loader.load(rows)):
        counted = kb.count(source, plan).plan
        assert (counted.numbers, counted.experiment().adjust) == (("half",), ("gaps", "whole"))
        assert [covariate.name for covariate in counted.covariates] == ["gaps", "whole"]


def test_squares_of_an_outcome_by_class_give_the_same_products(duckdb_loader: Loader) -> None:
    metrics = (MetricPlan("spend", (0, 60), 0.01, missing="zero", squares="class"), MetricPlan("orders", (0, 9), 1))
    plan = Plan(metrics, (ExperimentPlan("variant", adjust=("tier",), numbers=("orders",)),))
    assert_same_numbers(kb.count(duckdb_loader.load(SHOP), plan), kb.count(SHOP, plan))
