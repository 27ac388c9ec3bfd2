import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.described import as_values

import kanab as kb
from kanab import KanabError
from kanab.counted import Counted
from kanab.counting.in_memory import count_rows
from kanab.counting.levels import find_levels, named_level
from kanab.description import Covariate, Mean
from kanab.errors import GridError, LevelError, SourceError
from kanab.plan.model import MOST_LEVELS, CovariatePlan, ExperimentPlan, MetricPlan, Plan, make_plan

AB = (("A", 1), ("B", 1))
ONOFF = (("off", 9), ("on", 1))

ROWS: dict[str, list[Any]] = {
    "checkout": ["A", "B", "A", "B", "A", "B", None, "C"],
    "banner": ["on", "off", None, "on", "off", None, "on", None],
    "tier": [1, 2, 3, 1, None, 2, 3, 1],
    "device": ["phone", "tv", "phone", None, "desk", "tv", "phone", "desk"],
    "spend": [1.25, 0.0, 3.5, None, 2.0, 700.0, 4.0, 5.0],
    "bought": [1, 0, 1, 0, 1, 1, 1, 1],
}
PLAN = Plan(
    (MetricPlan("spend", (0, 500), 0.01, missing="zero"), MetricPlan("bought", binary=True)),
    (
        ExperimentPlan("checkout", AB, adjust=("tier",), segments=("device",)),
        ExperimentPlan("banner", ONOFF, interactions=("checkout",)),
    ),
    (CovariatePlan("tier", (1, 2, 3)), CovariatePlan("device", ("desk", "other", "phone"))),
)


def reassembled(counted: Counted) -> dict[str, list[int]]:
    """People per class of every table, added up from the signatures."""
    tables = {}
    for j, name in enumerate(counted.signatures.tables):
        people = [0] * counted.tallies[name].people.size
        for cell, n in zip(counted.signatures.cells[:, j].tolist(), counted.signatures.people.tolist(), strict=True):
            if cell >= 0:
                people[cell] += n
        tables[name] = people
    return tables


# ── the tables ─────────────────────────────────────────────────────────────────────────────────


def test_tables_hold_these_people_and_sums() -> None:
    counted = count_rows(ROWS, PLAN)
    assert (counted.clamped, counted.missing) == ({"spend": 1, "bought": 0}, {"spend": 1, "bought": 0})
    assert {name: tally.total for name, tally in counted.tallies.items()} == {
        "checkout/tier": 6, "checkout/device": 6, "banner": 5, "banner/checkout": 4,
    }  # fmt: skip
    assert counted.tallies["checkout/device"].people_by("device") == {"phone": 2, "desk": 1, "other": 2, None: 1}
    tally = counted.tallies["checkout/tier"]
    assert tally.factor("tier").levels == (1, 2, 3, None)
    assert tally.factor("tier").scores == (1, 2, 3, None)
    assert tally.people.tolist() == [[1, 0, 1, 1], [1, 2, 0, 0]]
    assert tally.moments_of("spend").sums.tolist() == [[125, 0, 350, 200], [0, 50_000, 0, 0]]
    assert tally.moments_of("bought").sums.tolist() == [[1, 0, 1, 1], [0, 1, 0, 0]]


@pytest.mark.parametrize(
    ("table", "margins"),
    [("checkout/tier", {("checkout",)}), ("checkout/device", {("checkout",), ("device",)}), ("banner", {("banner",)})],
)
def test_squares_are_kept_as_coarsely_as_the_analysis_allows(table: str, margins: set[tuple[str, ...]]) -> None:
    assert set(count_rows(ROWS, PLAN).tallies[table].moments_of("spend").squares) == margins


def test_squares_per_class_are_kept_only_for_the_metric_that_asks() -> None:
    plan = Plan(
        (MetricPlan("spend", (0, 500), 0.01, squares="class"), MetricPlan("tier", (0, 9), 1)),
        (ExperimentPlan("checkout", AB, segments=("device",)),),
    )
    tally = count_rows(ROWS, plan).tallies["checkout/device"]
    assert set(tally.moments_of("spend").squares) == {("checkout", "device")}
    assert set(tally.moments_of("tier").squares) == {("checkout",), ("device",)}


def test_a_ratio_is_not_counted_but_its_products_are_kept_per_arm() -> None:
    metrics = (
        MetricPlan("spend", (0, 500), 0.01, missing="exclude"),
        MetricPlan("bought", binary=True),
        MetricPlan("basket", ratio=("spend", "bought")),
    )
    plan = Plan(metrics, PLAN.experiments, PLAN.covariates)
    for name, tally in count_rows(ROWS, plan).tallies.items():
        assert [metric.name for metric in tally.metrics] == ["spend", "bought"]
        assert {cross.by for cross in tally.crosses} == {(factor.name,) for factor in tally.arms}
        if name == "checkout/tier":
            cross = tally.cross("spend", "bought")
            assert cross.counts.tolist() == [3, 2]
            assert cross.products.tolist() == [675, 50_000]


def test_two_ratios_of_one_pair_keep_its_products_once() -> None:
    ratios = (MetricPlan("r", ratio=("spend", "bought")), MetricPlan("s", ratio=("spend", "bought")))
    plan = Plan((*PLAN.metrics, *ratios), (ExperimentPlan("banner", ONOFF),))
    assert len(count_rows(ROWS, plan).tallies["banner"].crosses) == 1


# ── who is in ──────────────────────────────────────────────────────────────────────────────────


def test_declared_arms_and_levels_are_there_with_nobody_in_them_and_in_their_order() -> None:
    experiment = ExperimentPlan("checkout", (("D", 1), ("B", 1), ("A", 1)), adjust=("device",))
    plan = Plan((), (experiment,), (CovariatePlan("device", ("watch", "tv", "phone", "desk")),))
    tally = count_rows(ROWS, plan).tallies["checkout/device"]
    assert tally.people_by() == {"D": 0, "B": 3, "A": 3}
    assert tally.people_by("device") == {"watch": 0, "tv": 2, "phone": 2, "desk": 1, None: 1}


def test_people_without_a_declared_arm_are_in_no_experiment() -> None:
    counted = count_rows(ROWS, PLAN)
    assert counted.outside == 1  # the last one: arm C, no banner
    assert count_rows(ROWS, make_plan("checkout", [], arms=dict(AB))).outside == 2
    counted = count_rows(ROWS, make_plan("checkout", []))
    assert (counted.outside, counted.tallies["checkout"].people_by()) == (1, {"A": 3, "B": 3, "C": 1})


@pytest.mark.parametrize("bins", [None, 3, [30]])
def test_a_covariate_that_nobody_has_is_one_missing_level(bins: Any) -> None:
    plan = make_plan("arm", [], adjust=[Covariate("age", bins=bins)])
    tally = count_rows({"arm": ["A", "B"], "age": [None, None]}, plan).tallies["arm/age"]
    assert tally.factor("age").levels == (None,)


def test_levels_are_found_exactly_first_and_in_text_second() -> None:
    assert find_levels([1, True], ("1", 1)) == [1, -1]
    assert find_levels(["1"], (1, "1")) == [1]
    assert find_levels([1], ("1",)) == [0]
    assert find_levels([None], ("a", None)) == [1]
    assert find_levels([None], ("None",)) == find_levels(["None"], (None,)) == [-1]


def test_a_named_arm_is_given_in_the_tables_own_spelling() -> None:
    factor = count_rows({"v": [0, 1]}, make_plan("v", [])).tallies["v"].factor("v")
    assert named_level("0", factor, factor.levels) == 0
    with pytest.raises(LevelError, match=r"unknown arm of 'v'\. It has: 0, 1\."):
        named_level("2", factor, factor.levels)


# ── metrics ────────────────────────────────────────────────────────────────────────────────────


def test_a_grid_that_nobody_declared_gives_the_results_of_the_rows_to_a_millionth_of_a_millionth() -> None:
    rng = np.random.default_rng(5)
    arm = np.repeat(["A", "B"], 1000)
    for values in (rng.lognormal(0, 2, 2000), 100 + rng.normal(0, 1, 2000), rng.random(2000) - 0.5):
        tally = count_rows({"arm": arm, "y": values}, make_plan("arm", ["y"])).tallies["arm"]
        part = tally.moments_of("y")
        for place, name in enumerate("AB"):
            exact = [Fraction(value) for value in values[arm == name].tolist()]
            mean, square = sum(exact) / 1000, sum(value * value for value in exact) / 1000
            se = math.sqrt((square - mean**2) / 999)
            counted = Fraction(part.sums.item(place), 1000 * part.metric.scale)
            assert abs(counted - mean) < 1e-12 * se
            variance = Fraction(tally.squares("y").item(place), 1000 * part.metric.scale**2) - counted**2
            assert float(variance) == pytest.approx(float(square - mean**2), rel=1e-12)


@pytest.mark.parametrize("where", [None, "1 = 1"])
def test_bounds_so_wide_that_values_collapse_are_refused_with_the_resolution_to_declare(where: str | None) -> None:
    rng = np.random.default_rng(5)
    prices = {"arm": ["A", "B"] * 500, "price": np.round(rng.gamma(2, 10, 1000), 2), "items": rng.poisson(3, 1000)}
    wide = (0, 1e10)
    with pytest.raises(GridError) as refused:
        kb.count(prices, arm="arm", metrics=[kb.Mean("price", bounds=wide)], rows=kb.Rows(where=where))
    assert str(refused.value) == (
        "the bounds of 'price' are so wide that its values would be rounded to steps of 1. "
        "Declare its resolution (--resolution price=0.01, at the finest 1e-05), or narrower bounds."
    )
    for choices in (
        {"metrics": ["price"], "bounds": {"price": wide}, "resolution": {"price": 0.01}},
        {"metrics": ["price"], "bounds": {"price": (0, 1e6)}},
        {"metrics": ["items"], "bounds": {"items": wide}},  # whole numbers lie on the steps
    ):
        (metric,) = kb.count(prices, **as_values("count", arm="arm", where=where, **choices)).tallies["arm"].metrics
        assert metric.bounds is not None


@pytest.mark.parametrize("where", [None, "1 = 1"])
def test_a_price_that_is_the_same_for_everybody_is_no_fault_of_its_bounds(where: str | None) -> None:
    prices = {"arm": ["A", "B"] * 500, "price": [9.99] * 1000}
    counted = kb.count(prices, arm="arm", metrics=[kb.Mean("price", bounds=(0, 100))], rows=kb.Rows(where=where))
    assert counted.tallies["arm"].moments_of("price").counts.tolist() == [500, 500]
    with pytest.raises(GridError, match="rounded to steps of 1"):
        kb.count(prices, arm="arm", metrics=[kb.Mean("price", bounds=(0, 1e10))], rows=kb.Rows(where=where))


def test_bounds_are_declared_only_if_those_of_every_metric_are() -> None:
    assert count_rows(ROWS, PLAN).bounds_declared
    assert count_rows(ROWS, make_plan("banner", ["bought"])).bounds_declared
    assert not count_rows(ROWS, make_plan("banner", ["bought", "spend"])).bounds_declared
    assert count_rows(ROWS, make_plan("banner", ["bought", Mean("spend", bounds=(0, 9))])).bounds_declared


# ── bins and the most frequent levels ──────────────────────────────────────────────────────────

AGES = {"arm": ["A", "B"] * 4, "age": [18, 20, 30, 31, 40, 41, None, 64.5], "y": [1, 2, 3, 4, 5, 6, 7, 8]}


def ages(bins: Any) -> Any:
    return count_rows(AGES, make_plan("arm", ["y"], adjust=[Covariate("age", bins=bins)])).tallies["arm/age"]


def test_given_edges_cut_a_number_and_each_bin_is_scored_by_its_mean() -> None:
    tally = ages([30, 40.5])
    assert tally.factor("age").levels == ("< 30", "30 – 40.5", "≥ 40.5", None)
    assert tally.factor("age").scores == (19.0, 101 / 3, 52.75, None)
    assert tally.people.tolist() == [[1, 2, 0, 1], [1, 1, 2, 0]]
    assert tally.moments_of("y").sums.tolist() == [[1, 8, 0, 7], [2, 4, 14, 0]]
    assert ages([0, 30, 35, 36]).factor("age").levels == ("0 – 30", "30 – 35", "≥ 36", None)  # nobody is 35


def test_bins_of_equal_size_are_cut_at_the_quantiles_of_everybody() -> None:
    tally = ages(2)
    assert tally.factor("age").levels == ("< 31", "≥ 31", None)  # the median of seven
    assert tally.people_by("age") == {"< 31": 3, "≥ 31": 4, None: 1}


def test_bins_look_only_at_people_in_the_experiment() -> None:
    rows = {"arm": ["A", "B", None], "age": [1, 3, 1000]}
    tally = count_rows(rows, make_plan("arm", [], adjust=[Covariate("age", bins=2)])).tallies["arm/age"]
    assert tally.factor("age").scores == (1.0, 3.0)


# ── refusals ───────────────────────────────────────────────────────────────────────────────────

SECRET = "s3cr3t"
MANY = {"arm": ["A", "B"] * 3000, "city": [f"{SECRET}{i}" for i in range(6000)], "y": [918273645.25] * 6000}
CROSSED = make_plan("arm", [], adjust=["city"])
XY = Plan((), (ExperimentPlan("arm", AB, adjust=("city",)),), (CovariatePlan("city", ("x", "y")),))
REFUSED: list[tuple[Any, Plan, str]] = [
    (
        MANY | {"arm": list(range(120)) * 50, "city": [*range(1000)] * 6},
        CROSSED,
        "arm/city would have more than 100,000",
    ),
    (MANY, CROSSED, r"'city' has more than 1,000 levels\. Adjust for a number as it is \(--number city\), cut it into"),
    (MANY, make_plan("city", []), "arm column 'city' has more than 1,000 arms"),
    (
        MANY,
        make_plan("arm", [], adjust=[Covariate("city", bins=5)]),
        r"'city' cannot be cut into bins: .*--top city=20",
    ),
    ({"arm": [SECRET] * 3}, make_plan("arm", []), "column 'arm' holds a single arm"),
    ({"arm": [None] * 3}, make_plan("arm", []), "column 'arm' holds no arm"),
    ({"arm": [SECRET, "y"]}, make_plan("arm", [], arms={"A": 1, "B": 1}), "nobody is in an arm of the plan"),
    ({"arm": ["A", "B"], "y": ["1", SECRET]}, make_plan("arm", ["y"]), "metric 'y' holds something other than numbers"),
    (
        {"arm": ["A", "B"], "y": [0.0, 9.18e17]},
        make_plan("arm", ["y"]),
        "values of 'y' are infinite or too large",
    ),
    ({"arm": ["A", "B"], "city": [SECRET, "x"]}, XY, "'city' holds a level that is not declared.* levels: x, y"),
]


@pytest.mark.parametrize(("rows", "plan", "message"), REFUSED)
def test_what_cannot_be_counted_is_refused_without_naming_a_value(rows: Any, plan: Plan, message: str) -> None:
    with pytest.raises(KanabError, match=message) as refused:
        count_rows(rows, plan)
    assert SECRET not in str(refused.value)
    assert "9.18" not in str(refused.value)


def test_as_many_levels_as_the_budget_allows_are_counted() -> None:
    rows = {"arm": ["A", "B"] * MOST_LEVELS, "city": [city for city in range(MOST_LEVELS) for _ in "AB"]}
    assert count_rows(rows, CROSSED).tallies["arm/city"].people.size == 2 * MOST_LEVELS


# ── signatures ─────────────────────────────────────────────────────────────────────────────────


def test_signatures_of_many_tables_outgrow_no_integer() -> None:
    names = [f"c{i}" for i in range(40)]
    rows: dict[str, Any] = {"arm": ["A", "B", "A", "B"]} | {name: [0, i, 2 * i, 1] for i, name in enumerate(names)}
    counted = count_rows(rows, make_plan("arm", [], adjust=names))
    assert counted.signatures.people.tolist() == [1, 1, 1, 1]
    assert reassembled(counted) == {name: tally.people.ravel().tolist() for name, tally in counted.tallies.items()}


def test_who_has_a_value_splits_signatures_only_where_others_are_left_out() -> None:
    rows = {"arm": list("AABB"), "rating": [1, None, 2, 3], "spend": [None, 1, None, 2]}
    zeros = {"rating": "zero", "spend": "zero"}
    plain = count_rows(
        rows, make_plan("arm", **as_values("make_plan", metrics=["rating", "spend"], missing=zeros))
    ).signatures
    assert (plain.people.tolist(), plain.metrics, plain.present) == ([2, 2], (), None)
    split = count_rows(
        rows,
        make_plan("arm", **as_values("make_plan", metrics=["rating", "spend"], missing=zeros | {"rating": "exclude"})),
    ).signatures
    assert split.metrics == ("rating",)
    assert list(zip(split.cells[:, 0].tolist(), split.present[:, 0].tolist(), split.people.tolist(), strict=True)) == [
        (0, False, 1),
        (0, True, 1),
        (1, True, 2),
    ]


PEOPLE = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "C", None]),
        st.sampled_from(["off", "on", None]),
        st.sampled_from([1, 2, 3, None]),
        st.sampled_from(["phone", "desk", "tv", None]),
        st.none() | st.integers(-200, 80_000).map(lambda cents: cents / 100),
        st.sampled_from([0, 1]),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(PEOPLE)
def test_counting_is_what_a_loop_over_the_people_gives(people: list[tuple[Any, ...]]) -> None:
    inside = [person for person in people if person[0] in ("A", "B") or person[1] is not None]
    rows = {name: [person[i] for person in people] for i, name in enumerate(ROWS)}
    if not inside:
        with pytest.raises(SourceError):
            count_rows(rows, PLAN)
        return
    counted = count_rows(rows, PLAN)
    assert counted.outside == len(people) - len(inside)
    assert counted.missing["spend"] == sum(person[4] is None for person in inside)
    assert counted.clamped["spend"] == sum(person[4] is not None and not 0 <= person[4] <= 500 for person in inside)
    assert reassembled(counted) == {name: tally.people.ravel().tolist() for name, tally in counted.tallies.items()}
    cents = [0 if person[4] is None else round(min(max(person[4], 0), 500) * 100) for person in inside]
    for name, tally in counted.tallies.items():
        keys = [_class(person, name) for person in inside]
        for place in np.ndindex(*tally.shape):
            key = tuple(factor.levels[i] for factor, i in zip(tally.factors, place, strict=True))
            assert tally.people[place] == keys.count(key)
            assert tally.moments_of("spend").sums[place] == sum(y for y, k in zip(cents, keys, strict=True) if k == key)
        squares = tally.squares("spend", by=(tally.axes[0],))
        assert squares is not None
        wanted: Counter[Any] = Counter()
        for y, key in zip(cents, keys, strict=True):
            if key is not None:
                wanted[key[0]] += y * y
        assert squares.tolist() == [wanted[arm] for arm in tally.factors[0].levels]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(PEOPLE)
def test_people_who_have_a_value_add_up_to_the_counts_of_its_metric(people: list[tuple[Any, ...]]) -> None:
    rows = {name: [person[i] for person in people] for i, name in enumerate(ROWS)}
    metrics = (MetricPlan("spend", (0, 500), 0.01, missing="exclude"), MetricPlan("bought", missing="exclude"))
    plan = replace(PLAN, metrics=metrics)
    if all(person[0] not in ("A", "B") and person[1] is None for person in people):
        return
    counted = count_rows(rows, plan)
    signatures = counted.signatures
    assert signatures.metrics == ("spend", "bought")
    for j, name in enumerate(signatures.tables):
        for m, metric in enumerate(signatures.metrics):
            counts = [0] * counted.tallies[name].people.size
            for i, n in enumerate(signatures.people.tolist()):
                if signatures.present[i, m] and signatures.cells[i, j] >= 0:
                    counts[signatures.cells[i, j]] += n
            assert counts == counted.tallies[name].moments_of(metric).counts.ravel().tolist()


def _class(person: tuple[Any, ...], table: str) -> tuple[Any, ...] | None:
    """The class of a person in a table, worked out by hand."""
    checkout = person[0] if person[0] in ("A", "B") else None
    device = "other" if person[3] == "tv" else person[3]
    key = {
        "checkout/tier": (checkout, person[2]),
        "checkout/device": (checkout, device),
        "banner": (person[1],),
        "banner/checkout": (person[1], checkout),
    }[table]
    arms = key if table == "banner/checkout" else key[:1]
    return None if None in arms else key
