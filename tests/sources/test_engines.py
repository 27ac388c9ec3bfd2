"""The same digits from every engine and from NumPy."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.described import as_values

import kanab as kb
from kanab.counted import Counted, Signatures, SignatureValues
from kanab.counting.engine.people import Units
from kanab.counting.engine.sql import count_table
from kanab.counting.in_memory import count_rows
from kanab.description import Covariate, Mean, Ratio
from kanab.errors import GridError, KanabError, SourceError
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan, make_plan
from kanab.tally.metric import DOUBLE_LIMIT, Missing

from .conftest import ALL_ENGINES, Loader


@pytest.fixture(params=ALL_ENGINES)
def engine(request: pytest.FixtureRequest) -> Loader:
    """Each engine in turn, not only the three that every other test is about."""
    return request.getfixturevalue(f"{request.param}_loader")


def shop(people: int = 600, seed: int = 7) -> pa.Table:
    """People of a shop: nulls, true/false, negative amounts, ties on the grid, large means."""
    rng = np.random.default_rng(seed)

    def some(values: Any, share: float = 0.1) -> pa.Array:
        return pa.array(list(values), mask=rng.random(people) < share)

    spend = np.round(rng.gamma(1.2, 20, people), 2)
    return pa.table(
        {
            "variant": some(rng.choice(["A", "B", "C"], people), 0.03),
            "banner": some(rng.choice([0, 1], people), 0.3),
            "vip": some(rng.random(people) < 0.4),
            "tier": some(rng.integers(1, 4, people)),
            "device": some(rng.choice(["phone", "desktop", "tv"], people, p=[0.6, 0.3, 0.1])),
            "prior": some(np.round(rng.exponential(50, people), 1)),
            "spend": some(spend),
            "balance": some(np.round(rng.normal(-5, 80, people), 2)),
            "ties": pa.array(rng.integers(-40, 40, people) / 8),
            "orders": some(rng.poisson(1.3, people)),
            "bought": pa.array(spend > 15),
            "huge": pa.array(1e9 + rng.normal(0, 1, people)),
            "rating": some(rng.integers(1, 6, people), 0.5),
        }
    )


SHOP = shop()


def assert_same(found: Counted, expected: Counted, *, sampled: bool = False) -> None:
    """Check all digits; where a sample ``sampled`` fewer people, it may see another commonest value, or no relation."""
    assert list(found.tallies) == list(expected.tallies)
    for name, tally in expected.tallies.items():
        assert found.tallies[name].factors == tally.factors
        assert found.tallies[name] == tally, name
    assert found.signatures.tables == expected.signatures.tables
    assert found.signatures.cells.tolist() == expected.signatures.cells.tolist()
    assert found.signatures.people.tolist() == expected.signatures.people.tolist()
    assert found.signatures.metrics == expected.signatures.metrics
    assert (found.signatures.present is None) == (expected.signatures.present is None)
    if expected.signatures.present is not None:
        assert found.signatures.present.tolist() == expected.signatures.present.tolist()
    assert (found.clamped, found.missing) == (expected.clamped, expected.missing)
    assert (found.outside, found.excluded) == (expected.outside, expected.excluded)
    assert found.bounds_declared == expected.bounds_declared
    assert found.ranges == expected.ranges
    assert_same_values(found.signatures, expected.signatures, sampled=sampled)
    assert_same_shapes(found, expected, sampled=sampled)


def counted_alike(engine: Loader, rows: Any, plan: Plan) -> Counted:
    """Count rows in an engine, and check that all digits are those of the same rows in memory."""
    counted = count_table(engine.load(rows), plan)
    assert_same(counted, count_rows(rows, plan))
    return counted


def assert_same_shapes(found: Counted, expected: Counted, *, sampled: bool = False) -> None:
    """Check skewness and who is unusual: engines take the commonest value of a sample, of all experiments together."""
    several = sampled or len(expected.shapes) > 1 or sum(table.total for table in expected.tallies.values()) < 100
    for experiment, own in found.shapes.items():
        shapes = expected.shapes[experiment]
        assert several or {*shapes} - {*own} <= {"huge", "tall"}  # lie far from 0, for doubles
        for name, shape in own.items():
            assert shape.skewness == pytest.approx(shapes[name].skewness, rel=1e-6, abs=1e-6)
            assert shape.people == shapes[name].people
            assert several or shape.unusual == shapes[name].unusual


def assert_same_values(found: Signatures, expected: Signatures, *, sampled: bool = False) -> None:
    """Check what the rules for amounts know of every signature: in engines the second largest may be overstated."""
    assert found.values.keys() == expected.values.keys()
    for name, values in expected.values.items():
        same = found.values[name]
        if sampled and same.commonest != values.commonest:
            continue
        assert same.commonest == values.commonest, name
        for word in ("off", "largest"):
            assert getattr(same, word).tolist() == getattr(values, word).tolist(), (name, word)
        rounded = values.squares.max(initial=0) >= DOUBLE_LIMIT  # in memory; engines add whole numbers
        np.testing.assert_allclose(same.squares, values.squares, rtol=1e-12 if rounded else 0, err_msg=name)
        assert_bounds(same, values)
    assert {name: has.tolist() for name, has in found.cut.items()} == {
        name: has.tolist() for name, has in expected.cut.items()
    }
    assert sampled or [*found.left] == [*expected.left]
    for relation in found.left.keys() & expected.left.keys():
        same, values = found.left[relation], expected.left[relation]
        assert same.off.tolist() == values.off.tolist(), relation
        for word in ("squares", "largest"):
            np.testing.assert_allclose(getattr(same, word), getattr(values, word), rtol=1e-9, err_msg=str(relation))
        assert_bounds(same, values)
    assert (found.numbers is None) == (expected.numbers is None)
    if found.numbers is not None and expected.numbers is not None:
        assert found.numbers.names == expected.numbers.names
        for word in ("low", "high", "sums", "products"):
            ours, theirs = (getattr(numbers, word) for numbers in (found.numbers, expected.numbers))
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, err_msg=word)


def assert_bounds(found: SignatureValues, expected: SignatureValues) -> None:
    """Check that the second largest is at most what an engine says, and that this is at most the largest."""
    assert (found.second >= expected.second * (1 - 1e-9)).all()
    assert (found.second <= found.largest).all()
    few = expected.off <= 2  # then it is known, but for the rounding of fourth powers
    excess = found.second[few] - expected.second[few]
    assert (excess <= 1e-2 * expected.largest[few]).all()


DECLARED = Plan(
    (
        MetricPlan("spend", (0, 60), 0.01, missing="zero"),
        MetricPlan("balance", (-100, 100), 0.5),
        MetricPlan("ties", (-5, 5), 0.5),
        MetricPlan("orders", (0, 4), 1),
        MetricPlan("bought", binary=True),
        MetricPlan("huge", (1e9 - 10, 1e9 + 10)),
        MetricPlan("rating", (1, 5), 1, missing="exclude"),
    ),
    (
        ExperimentPlan(
            "variant", (("A", 1), ("B", 1)), adjust=("tier",), segments=("device", "vip"), interactions=("banner",)
        ),
        ExperimentPlan("banner", adjust=("device",)),
    ),
)


def test_a_declared_plan_of_two_experiments_and_a_pair(engine: Loader) -> None:
    counted = counted_alike(engine, SHOP, DECLARED)
    assert list(counted.tallies) == ["variant/tier", "variant/device", "variant/vip", "variant/banner", "banner/device"]
    assert counted.clamped["spend"] > 0
    assert counted.bounds_declared


def test_amounts_know_their_commonest_value_and_small_counts_are_not_asked_about(engine: Loader) -> None:
    table = SHOP.append_column("fee", pa.array([9.99, 9.99, 4.5, 9.99, 0.0, 9.99] * 100))
    cents = [Mean("balance", bounds=(-400, 400), resolution=0.01), Mean("fee", bounds=(0, 20), resolution=0.01)]
    plan = make_plan("variant", [*cents, "orders", "bought"], adjust=["tier"])
    counted = counted_alike(engine, table, plan)
    commonest = {name: values.commonest for name, values in counted.signatures.values.items()}
    assert commonest == {"balance": 0, "fee": 999}
    paid = [fee for fee, arm in zip(table["fee"].to_pylist(), table["variant"].to_pylist(), strict=True) if arm]
    assert counted.signatures.values["fee"].off.sum() == len(paid) - paid.count(9.99)


@pytest.mark.parametrize("missing", ["zero", "exclude"])
def test_who_lacks_a_value_that_counts_as_zero_is_off_another_commonest_value(engine: Loader, missing: Missing) -> None:
    fee = pa.array([5.0, 5.0, None, 5.0, 7.25, None] * 20)
    table = pa.table({"variant": ["A", "B"] * 60, "fee": fee})
    plan = make_plan("variant", [Mean("fee", bounds=(0, 9), resolution=0.25, missing=missing)])
    counted = counted_alike(engine, table, plan)
    values = counted.signatures.values["fee"]
    off, squares = values.off.sum(), values.squares.sum()
    assert (values.commonest, off, squares) == (
        (20, 20, 81 * 20) if missing == "exclude" else (20, 60, 81 * 20 + 400 * 40)
    )


def test_a_sensitive_yes_or_no_is_asked_about_like_an_amount(duckdb_loader: Loader) -> None:
    metrics = (MetricPlan("bought", binary=True, sensitive="yes"), MetricPlan("vip", binary=True))
    plan = Plan(metrics, (ExperimentPlan("variant", adjust=("tier",)),))
    counted = counted_alike(duckdb_loader, SHOP, plan)
    assert [*counted.signatures.values] == ["bought"]


def test_what_relations_leave_is_the_same_from_every_engine(engine: Loader) -> None:
    rng = np.random.default_rng(17)
    gross = np.where(rng.random(600) < 0.5, np.round(rng.gamma(2, 20, 600), 2), 0.0)
    ordered = gross > 0
    paid = np.where(ordered, 9.99, 0.0)
    paid[[3, 40]] = 12.5, 25.0
    returned = rng.random(600) < 0.05
    table = pa.table({
        "variant": pa.array(rng.choice(["A", "B"], 600)),
        "tier": pa.array(rng.integers(1, 4, 600)),
        "gross": pa.array(gross, mask=rng.random(600) < 0.1),
        "net": pa.array(np.where(returned, np.round(gross / 2, 2), gross)),
        "ordered": pa.array(ordered),
        "paid": pa.array(paid),
    })  # fmt: skip
    plan = make_plan("variant", ["gross", "net", "ordered", "paid", Ratio("gross", "ordered")], adjust=["tier"])
    counted, expected = count_table(engine.load(table), plan), count_rows(table, plan)
    assert_same(counted, expected)
    found = {relation.target: relation.weights for relation in counted.signatures.left}
    assert found == {"gross": (("net", 1.0),), "paid": (("ordered", 9.99),)}
    assert [*counted.signatures.cut] == ["ordered"]


def test_a_metric_of_an_earlier_plan_is_compared_with_those_of_this_one(engine: Loader) -> None:
    rng = np.random.default_rng(18)
    gross = np.where(rng.random(300) < 0.5, rng.integers(1, 90, 300), 0)
    net = np.where(rng.random(300) < 0.03, 0, gross)
    arms, tiers = rng.choice(["A", "B"], 300), rng.integers(1, 4, 300)
    table = pa.table({"variant": pa.array(arms), "tier": pa.array(tiers), "gross": gross, "net": net})
    earlier, plan = (
        make_plan("variant", [Mean(name, bounds=(0, 99), resolution=1)], adjust=["tier"]) for name in ("gross", "net")
    )
    counted = kb.count(engine.load(table), plan=plan, earlier=[earlier])
    assert_same(counted, kb.count(table, plan=plan, earlier=[earlier]))
    ((relation, values),) = counted.signatures.left.items()
    assert (relation.metrics, values.off.sum()) == ({"gross", "net"}, (gross != net).sum())
    assert counted.earlier[0].signatures.values == counted.earlier[0].signatures.left == {}
    assert counted.tallies["variant/tier"].metric_names == ("net",)


def test_an_engine_that_nobody_knows_is_counted_with_care(
    duckdb_loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kanab.counting.engine.dialects._ENGINES", ())
    for plan in (DECLARED, make_plan("variant", ["spend", "huge"], adjust=["tier"])):
        counted_alike(duckdb_loader, SHOP, plan)


def test_without_bounds_the_grid_comes_from_the_data(engine: Loader) -> None:
    plan = make_plan(
        "variant",
        ["spend", "balance", "ties", "orders", "bought", "huge", Mean("rating", missing="exclude")],
        adjust=["tier"],
        segments=["device", "vip"],
    )
    counted = counted_alike(engine, SHOP, plan)
    assert {metric.name: metric.scale for metric in counted.tallies["variant/tier"].metrics} == {
        "spend": 100, "balance": 100, "ties": 1000, "orders": 1, "bought": 1, "huge": 2**21, "rating": 1,
    }  # fmt: skip
    assert not counted.bounds_declared


def test_products_of_a_ratio_and_squares_by_class(engine: Loader) -> None:
    plan = Plan(
        (
            MetricPlan("balance", (-400, 400), 0.01),
            MetricPlan("rating", (1, 5), 1, missing="exclude"),
            MetricPlan("each", ratio=("balance", "rating")),
            MetricPlan("orders", (0, 40), 1, squares="class"),
        ),
        (ExperimentPlan("variant", adjust=("tier",), interactions=("banner",)), ExperimentPlan("banner")),
    )
    counted_alike(engine, SHOP, plan)


def test_arms_may_be_numbers_or_true_and_false_and_are_declared_as_texts(engine: Loader) -> None:
    for arm, shares in (("banner", {"0": 9, "1": 1}), ("vip", {"false": 1, "true": 1}), ("tier", {1.0: 1, "3": 1})):
        plan = make_plan(arm, ["spend"], adjust=["device"], arms=shares)
        counted_alike(engine, SHOP, plan)


def test_nobody_in_a_declared_arm_is_an_error(engine: Loader) -> None:
    for shares in ({"X": 1, "Y": 1}, {1: 1, 2: 1}):
        with pytest.raises(SourceError, match="nobody is in an arm of the plan"):
            count_table(engine.load(SHOP), make_plan("variant", ["spend"], arms=shares))


# ── covariates ─────────────────────────────────────────────────────────────────────────────────


def test_the_commonest_levels_stay_and_the_rest_is_other(engine: Loader) -> None:
    data = {
        "variant": ["A", "B"] * 30,
        "country": (["no"] * 8 + ["se"] * 6 + ["dk"] * 6 + ["fi"] * 5 + ["is", "fo"] + [None] * 3) * 2,
        "code": ([10] * 8 + [20] * 6 + [0] * 6 + [40] * 5 + [1, 2] + [None] * 3) * 2,
        "vip": [True, None, False] * 20,
        "spend": [float(number % 7) for number in range(60)],
    }
    tops = {"country": 2, "code": 3, "vip": 2}
    plan = make_plan("variant", ["spend"], adjust=[Covariate(name, top=top) for name, top in tops.items()])
    counted = counted_alike(engine, data, plan)
    assert counted.tallies["variant/country"].factor("country").levels == ("dk", "no", "other", None)
    assert counted.tallies["variant/code"].factor("code").levels == (0, 10, 20, "other", None)
    assert counted.tallies["variant/vip"].factor("vip").levels == (False, True, None)  # nothing is other


@pytest.mark.parametrize("bins", [5, (10.0, 30.5, 400.0)])
def test_a_number_in_bins_is_scored_by_exact_means(engine: Loader, bins: Any) -> None:
    plan = make_plan("variant", ["spend"], adjust=[Covariate("prior", bins=bins)], segments=[Covariate("tier", bins=2)])
    counted = counted_alike(engine, SHOP, plan)
    assert counted.tallies["variant/prior"].factor("prior").kind == "numeric"


def test_declared_levels_keep_their_order_and_other_takes_the_rest(engine: Loader) -> None:
    declared = {"device": ("phone", "other"), "tier": (1, 2, 3, 4), "vip": (True, False)}
    plan = Plan(
        (MetricPlan("spend", (0, 500), 0.01),),
        (ExperimentPlan("variant", adjust=("tier",), segments=("device", "vip")),),
        tuple(CovariatePlan(name, levels) for name, levels in declared.items()),
    )
    counted = counted_alike(engine, SHOP, plan)
    assert counted.tallies["variant/device"].factor("device").levels == ("phone", "other", None)
    assert counted.tallies["variant/tier"].factor("tier").levels == (1, 2, 3, 4, None)


def test_true_and_false_can_be_cut_into_bins_too(engine: Loader) -> None:
    plan = make_plan("variant", ["spend"], adjust=[Covariate("vip", bins=(0.5,))])
    counted = counted_alike(engine, SHOP, plan)
    assert counted.tallies["variant/vip"].factor("vip").levels == ("< 0.5", "≥ 0.5", None)


def test_people_are_counted_without_any_metric(engine: Loader) -> None:
    plan = make_plan("variant", [], adjust=["tier"])
    counted_alike(engine, SHOP, plan)


# ── numbers ────────────────────────────────────────────────────────────────────────────────────


def test_nan_is_missing_like_null(engine: Loader) -> None:
    data = pa.table(
        {
            "variant": ["A", "B"] * 4,
            "size": pa.array([1.5, float("nan"), None, 2.5] * 2),
            "spend": pa.array([1.25, None, float("nan"), 4.0, 0.0, float("nan"), 2.0, -3.5]),
        }
    )
    plan = make_plan("variant", ["spend"], adjust=["size"])
    counted = counted_alike(engine, data, plan)
    assert counted.missing == {"spend": 3}
    assert counted.tallies["variant/size"].factor("size").levels == (1.5, 2.5, None)


def test_decimal_columns_are_numbers(engine: Loader) -> None:
    money = pa.array([Decimal("0.29"), None, Decimal("-12.50"), Decimal("1.005")], pa.decimal128(12, 3))
    sizes = pa.array([Decimal("1.50"), Decimal(2), None, Decimal(2)], pa.decimal128(6, 2))
    data = pa.table({"variant": ["A", "B"] * 2, "size": sizes, "spend": money})
    floats = data.to_pydict()
    for name in ("size", "spend"):
        floats[name] = [None if value is None else float(value) for value in floats[name]]
    plan = make_plan("variant", ["spend"], adjust=["size"])
    counted = count_table(engine.load(data), plan)
    assert counted.tallies["variant/size"].factor("size").levels == (1.5, 2, None)
    assert_same(counted, count_rows(floats, plan))


def test_sums_and_squares_far_beyond_64_bits_are_exact(engine: Loader) -> None:
    rng = np.random.default_rng(3)
    people = 4_000
    data = {
        "variant": ["A", "B"] * (people // 2),
        "wide": rng.integers(-(2**52) + 1, 2**52, people).tolist(),
        "tall": rng.integers(2**52 - 2**20, 2**52, people).tolist(),
    }
    bounds = {"wide": (-(2.0**52) + 1, 2.0**52 - 1), "tall": (0.0, 2.0**52 - 1)}
    for metrics in (["wide", "tall"], [Mean(name, bounds=ends, resolution=1) for name, ends in bounds.items()]):
        plan = make_plan("variant", metrics)
        counted = count_table(engine.load(data), plan)
        assert_same(counted, count_rows(data, plan))
        part = counted.tallies["variant"].moments_of("tall")
        assert sum(part.sums.tolist()) == sum(data["tall"]) > 2**63
        assert sum(part.squares[("variant",)].tolist()) == sum(value**2 for value in data["tall"]) > 2**113


def test_a_value_beyond_the_grid_is_an_error_never_another_value(engine: Loader) -> None:
    for values in ([1.0, 2.0, 3.0, 2.0**52], [1.0, 2.0, 3.0, -(2.0**60)], [1.0, 2.0, 3.0, 1e300], [1, 2, 3, 2**62]):
        with pytest.raises(GridError, match="too large for its grid"):
            count_table(engine.load({"variant": list("ABAB"), "y": values}), make_plan("variant", ["y"]))


@pytest.mark.parametrize("bounds", [None, {"y": (0, 5)}])
def test_infinite_values_are_refused_with_and_without_bounds(engine: Loader, bounds: Any) -> None:
    if engine.name == "mysql":
        pytest.skip("MySQL stores no infinite numbers")
    data = {"variant": ["A", "B"] * 3, "y": [1.0, 2.0, 3.0, 4.0, 5.5, float("inf")]}
    with pytest.raises(SourceError, match="metric 'y' holds infinite values"):
        count_table(engine.load(data), make_plan("variant", **as_values("make_plan", metrics=["y"], bounds=bounds)))


def test_who_is_in_no_experiment_cannot_spoil_the_count(engine: Loader) -> None:
    data = {
        "variant": ["A", "B", None, "debug"] * 3,
        "device": ["phone", "tv", "?", "!"] * 3,
        "y": [1.5, 2.0, 1e308 if engine.name == "mysql" else float("inf"), 1e300] * 3,
    }
    plan = make_plan("variant", ["y"], adjust=["device"], arms={"A": 1, "B": 1})
    counted = counted_alike(engine, data, plan)
    assert counted.outside == 6


def test_missing_values_that_cannot_mean_zero_are_refused(duckdb_loader: Loader) -> None:
    plan = make_plan("variant", [Mean("rating", bounds=(1, 5), resolution=1, missing="zero")])
    with pytest.raises(GridError, match="would count as 0, outside its bounds"):
        count_table(duckdb_loader.load(SHOP), plan)


def test_people_without_a_value_are_left_out_where_no_rule_is_declared(engine: Loader) -> None:
    rules = {"spend": "exclude", "ties": "zero", "rating": "exclude"}  # nobody lacks ties
    plan = make_plan("variant", [*rules], adjust=["tier"])
    counted = counted_alike(engine, SHOP, plan)
    assert {metric.name: metric.missing for metric in counted.tallies["variant/tier"].metrics} == rules


def test_bounds_so_wide_that_values_collapse_are_refused(engine: Loader) -> None:
    table = engine.load(SHOP)
    with pytest.raises(GridError, match=r"the bounds of 'spend' are so wide .*--resolution spend=0.01"):
        count_table(table, make_plan("variant", [Mean("spend", bounds=(0, 1e10))]))
    count_table(table, make_plan("variant", [Mean("orders", bounds=(0, 1e10))]))


def test_values_on_and_beyond_the_bounds(engine: Loader) -> None:
    data = {"variant": ["A", "B"] * 4, "y": [0.0, -0.004, -0.006, 5.004, 5.005, 4.995, 5.0, 1e300]}
    plan = make_plan("variant", [Mean("y", bounds=(0, 5), resolution=0.01)])
    counted = counted_alike(engine, data, plan)
    assert counted.clamped == {"y": 3}


# ── columns that are never missing ─────────────────────────────────────────────────────────────


def required(table: pa.Table) -> pa.Table:
    """The same rows in columns that are declared NOT NULL."""
    return table.cast(pa.schema([field.with_nullable(False) for field in table.schema]))


def test_columns_that_are_declared_not_null_are_counted_like_others(engine: Loader) -> None:
    people = SHOP.select(["variant", "device", "vip", "tier", "spend", "orders"]).drop_null()
    metrics = ["spend", Mean("orders", bounds=(0, 3), resolution=1)]
    plan = make_plan("variant", metrics, adjust=["tier"], segments=["device", "vip"], arms={"A": 1, "B": 1})
    counted = count_table(engine.load(required(people)), plan)
    assert counted.clamped["orders"] > 0
    assert counted.outside > 0
    assert_same(counted, count_rows(people, plan))


def test_rows_of_people_are_added_up_from_columns_that_are_declared_not_null(engine: Loader) -> None:
    rows = pa.table({
        "person": [1, 1, 2, 3, 3, 4, 4], "variant": ["A", "A", "B", "A", "B", "B", "B"],
        "tier": [1, 1, 2, 1, 1, 2, 2], "orders": [2, 3, 4, 1, 1, 0, 7],
    })  # fmt: skip
    plan = make_plan("variant", [Mean("orders", bounds=(0, 9), resolution=1)], adjust=["tier"])
    counted = count_table(engine.load(required(rows)), plan, Units(unit="person"))
    people = {"variant": ["A", "B", "B"], "tier": [1, 2, 2], "orders": [5, 4, 7]}
    assert counted.tallies == count_rows(people, plan).tallies
    assert counted.excluded == 1


# ── numbers that are too large ─────────────────────────────────────────────────────────────────


def assert_right_or_refused(count: Callable[[], Counted], sums: list[int], secret: int) -> None:
    """Check that a count is right, or an error that says nothing of the data; never another number."""
    try:
        counted = count()
    except KanabError as problem:
        assert str(secret) not in str(problem)
    else:
        assert counted.tallies["variant"].moments_of("y").sums.tolist() == sums
        assert counted.clamped == {"y": 1}


LITTLE = make_plan("variant", [Mean("y", bounds=(0, 9), resolution=1)])


def test_a_persons_rows_that_add_up_beyond_64_bits_do_not_wrap_around(engine: Loader) -> None:
    rows = {"who": [1, 1, 1, 1, 2], "variant": ["A"] * 4 + ["B"], "y": [2**62] * 4 + [5]}  # 2^64 is 0 in 64 bits
    assert_right_or_refused(lambda: count_table(engine.load(rows), LITTLE, Units(unit="who")), [9, 5], 2**62)


def test_an_unsigned_number_beyond_63_bits_is_never_a_negative_one(engine: Loader) -> None:
    if engine.name in ("postgres", "pyspark", "sqlite"):
        return  # they have no such numbers
    table = pa.table({"variant": ["A", "B"] * 2, "y": pa.array([1, 2, 3, 2**63 + 5], pa.uint64())})
    assert_right_or_refused(lambda: count_table(engine.load(table), LITTLE), [4, 11], 2**63 + 5)
