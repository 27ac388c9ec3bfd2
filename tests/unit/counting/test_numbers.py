"""Numbers that an experiment is adjusted for as they are: which columns are some, and what is counted of them."""

import numpy as np
import pytest
from tests.described import as_values

import kanab as kb
from kanab.counting.signature_groups import Membership, NumbersInGroups, make_signatures
from kanab.plan.file import parse_plan
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
from kanab.plan.periods import Span


def shop(people=400, seed=1):
    rng = np.random.default_rng(seed)
    before = np.round(rng.gamma(1.5, 20, people), 2)
    return {
        "variant": rng.choice(["A", "B"], people),
        "tier": rng.integers(1, 4, people),
        "before": before,
        "visits": rng.poisson(3, people),
        "spend": np.round(before * 0.5 + rng.gamma(1, 5, people), 2),
    }


def test_a_number_stands_in_the_tables_with_its_products_and_squares_by_arm():
    rows = shop()
    table = kb.count(rows, arm="variant", metrics=["spend"], adjust=["tier", "before"]).tallies["variant/tier"]
    assert table.metric_names == ("spend", "before")
    assert [cross.pair for cross in table.crosses] == [("before", "spend")]
    cross = table.crosses[0]
    for place, arm in enumerate("AB"):
        own = rows["variant"] == arm
        x, y = (np.round(rows[name][own] * 100).astype(int).tolist() for name in ("before", "spend"))
        assert cross.products[place] == sum(a * b for a, b in zip(x, y, strict=True))
        assert cross.squares[0][place] == sum(a * a for a in x)
        assert table.moments_of("before").squares["variant",][place] == sum(a * a for a in x)


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ({"adjust": ["before"]}, True),
        ({"adjust": ["tier"]}, False),
        ({"adjust": ["tier"], "numbers": ["tier"]}, True),
        ({"adjust": ["tier"], "bounds": {"tier": (0, 5)}}, True),
        ({"adjust": ["before"], "bins": {"before": 3}}, False),
        ({"adjust": ["before"], "bins": {"before": 3}, "score": ["before"]}, False),
    ],
)
def test_fractions_and_what_is_said_so_are_numbers_all_else_is_levels(said, number):
    plan = kb.count(shop(), **as_values("count", arm="variant", metrics=["spend"], **said)).plan
    assert plan.numbers == (tuple(said["adjust"]) if number else ())
    assert plan.experiment().adjust == (() if number else tuple(said["adjust"]))


def test_a_segment_is_never_a_number():
    rows = shop() | {"half": np.arange(400) % 3 / 2}
    plan = kb.count(rows, arm="variant", metrics=["spend"], adjust=["half"], segments=["half"]).plan
    assert plan.experiment().segments == plan.experiment().adjust == ("half",)


def test_a_missing_number_counts_as_zero():
    rows = shop()
    gone = np.arange(400) % 9 == 0
    table, same = (
        kb.count(rows | {"before": np.where(gone, empty, rows["before"])}, arm="variant", metrics=["spend"],
                 adjust=["before"]).tallies["variant"]
        for empty in (np.nan, 0.0)
    )  # fmt: skip
    assert table == same


def test_numbers_are_only_in_tables_of_experiments_that_are_adjusted_for_them():
    rows = shop() | {"banner": np.arange(400) % 2}
    plan = Plan(
        (MetricPlan("spend"), MetricPlan("before"), MetricPlan("visits")),
        (ExperimentPlan("variant", numbers=("before", "visits"), interactions=("banner",)), ExperimentPlan("banner")),
    )
    tallies = kb.count(rows, plan).tallies
    assert {name: table.metric_names for name, table in tallies.items()} == {
        "variant": ("spend", "before", "visits"),
        "variant/banner": ("spend",),
        "banner": ("spend",),
    }
    assert [cross.pair for cross in tallies["variant"].crosses] == [
        ("before", "spend"), ("visits", "spend"), ("before", "visits"),
    ]  # fmt: skip
    assert not tallies["banner"].crosses


def test_signatures_know_the_smallest_and_largest_numbers_their_sums_and_products():
    rows = shop()
    signatures = kb.count(
        rows, arm="variant", metrics=["spend"], adjust=["tier", "before", kb.Number("visits")]
    ).signatures
    assert signatures.numbers.names == ("before", "visits")
    x = np.stack([np.round(rows["before"] * 100), rows["visits"]], axis=1)
    for place, (cell,) in enumerate(signatures.cells):
        own = x[((rows["variant"] == "B") * 3 + rows["tier"] - 1) == cell]
        assert len(own) == signatures.people[place]
        assert signatures.numbers.low[place].tolist() == own.min(axis=0).tolist()
        assert signatures.numbers.high[place].tolist() == own.max(axis=0).tolist()
        assert signatures.numbers.sums[place].tolist() == own.sum(axis=0).tolist()
        assert signatures.numbers.products[place].tolist() == (own.T @ own).tolist()


def test_groups_of_people_add_up_and_people_outside_the_plan_have_zero():
    groups = NumbersInGroups(("x",), np.array([[1.0], [2.0]]), np.array([[5.0], [3.0]]), np.array([[9.0], [5.0]]),
                             np.array([[[40.0]], [[13.0]]]))  # fmt: skip
    cells = {"v": np.array([0, 0])}
    plan = Membership(cells, {"v": 1}, {}, {}, groups)
    (added,) = make_signatures([plan], np.array([4, 2]))
    assert added.numbers.low.tolist() == [[1]]
    assert added.numbers.high.tolist() == [[5]]
    assert added.numbers.sums.tolist() == [[14]]
    assert added.numbers.products.tolist() == [[[53]]]
    (wider,) = make_signatures([plan.among(np.array([True, False, True]))], np.array([4, 1, 2]))
    assert wider.cells.tolist() == [[-1], [0]]
    assert wider.numbers.sums.tolist() == [[0], [14]]
    assert wider.numbers.products.tolist() == [[[0]], [[53]]]


def test_batches_with_numbers_add_up_to_counting_everybody_together():
    plan = parse_plan(
        """
        [cohorts]
        [covariates]
        tier = [1, 2, 3]
        [metrics]
        spend = { bounds = [0, 300], resolution = 0.01, missing = "zero" }
        before = { bounds = [0, 150], resolution = 0.01 }
        [experiments.variant]
        arms = { A = 1, B = 1 }
        adjust = ["tier", "before"]
        """
    )
    rows = shop(2_000) | {"day": np.where(np.arange(2_000) % 2, "2026-11-03", "2026-11-10")}
    weeks = [Span("day", "7d", "2026-W44", "2026-W45"), Span("day", "7d", "2026-W45", "2026-W46")]
    first, second, whole = (
        kb.count(rows, plan, rows=kb.Rows(span=week)).tallies["variant/tier"] for week in (*weeks, None)
    )
    assert first + second == whole
    assert [cross.pair for cross in whole.crosses] == [("before", "spend")]
