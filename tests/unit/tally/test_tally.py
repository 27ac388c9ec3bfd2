from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from kanab import KanabError, Metric, Tally, count_columns
from kanab.datasets import eighteen
from kanab.errors import LevelError, TallyError
from kanab.tally import Factor
from kanab.tally.moments import Cross, Moments

ROWS = {
    "arm": ["A", "A", "A", "B", "B", "B", "C", "C"],
    "tier": [1, 2, 2, 1, 3, 3, 2, 3],
    "plan": ["x", "y", "y", "x", "x", "y", "y", "x"],
    "spend": [1, 2, 4, 3, 5, 6, 7, 8],
    "visits": [2, 1, 1, 4, 3, 2, 5, 1],
}


def count(rows: dict[str, list[Any]] = ROWS, **choices: Any) -> Tally:
    given = {"arm": "arm", "covariates": ["tier"], "metrics": ["spend"], **choices}
    return count_columns(rows, **given)


# ── what is in it ──────────────────────────────────────────────────────────────────────────────


def test_a_tally_knows_its_factors_and_metrics() -> None:
    tally = count(covariates=["tier", "plan"], metrics=["spend", "visits"])
    assert tally.axes == ("arm", "tier", "plan")
    assert tally.shape == (3, 3, 2)
    assert tally.shape_of(("plan", "arm")) == (2, 3)
    assert [one.name for one in tally.arms] == ["arm"]
    assert [one.name for one in tally.covariates] == ["tier", "plan"]
    assert tally.metrics == (Metric("spend"), Metric("visits"))
    assert tally.total == 8
    assert tally.people_by() == {"A": 3, "B": 3, "C": 2}
    assert tally.people_by("tier") == {1: 2, 2: 3, 3: 3}


def test_people_sums_and_squares_are_those_of_the_rows() -> None:
    tally = count(squares="class")
    assert tally.people.tolist() == [[1, 2, 0], [1, 0, 2], [0, 1, 1]]
    assert tally.moments_of().sums.tolist() == [[1, 6, 0], [3, 0, 11], [0, 7, 8]]
    assert tally.squares().tolist() == [21, 70, 113]
    assert tally.squares(by=["tier"]).tolist() == [10, 69, 125]
    assert tally.squares("spend", ["tier", "arm"]).tolist() == [[1, 20, 0], [9, 0, 61], [0, 49, 64]]
    assert count(squares="arm").squares(by=["tier"]) is None


def test_arm_means_the_only_experiment() -> None:
    rows = {"variant": ["A", "B"], "tier": [1, 2]}
    tally = count_columns(rows, arm="variant", covariates=["tier"])
    assert tally.factor("arm") is tally.factor("variant")
    pair = count_columns(rows, arm=["variant", "tier"])
    with pytest.raises(LevelError, match=r"experiments.*variant, tier"):
        pair.factor("arm")


def test_an_unknown_metric_is_answered_with_the_known_ones() -> None:
    with pytest.raises(LevelError, match=r"unknown metric. This tally has: spend\."):
        count().moments_of("clicks")
    with pytest.raises(LevelError, match=r"several metrics, and none named. This tally has: spend, visits\."):
        count(metrics=["spend", "visits"]).moments_of()
    with pytest.raises(LevelError, match=r"none\."):
        count(metrics=[]).moments_of()


def test_cross_products_are_found_by_pair_and_margin() -> None:
    tally = count(metrics=["spend", "visits"], products=[("spend", "visits")])
    assert tally.cross("spend", "visits").products.tolist() == [2 + 2 + 4, 12 + 15 + 12, 35 + 8]
    for pair in (("visits", "spend"), ("spend", "clicks")):
        with pytest.raises(LevelError, match=r"no cross-products of '\w+' and '\w+' were kept. Declare the pair"):
            tally.cross(*pair)


def test_the_numbers_of_a_tally_cannot_be_changed() -> None:
    tally = count()
    for cells in (tally.people, tally.moments_of().sums, tally.squares()):
        with pytest.raises(ValueError, match="read-only"):
            cells[0] = 99
    with pytest.raises(AttributeError):
        tally.people = tally.people  # type: ignore[misc]
    with pytest.raises(TypeError):
        hash(tally)
    squares = tally.moments_of().squares
    with pytest.raises(TypeError):
        squares[("tier",)] = squares[("arm",)]  # type: ignore[index]


def test_numbers_of_any_type_and_size_become_python_integers_of_their_own() -> None:
    given = np.array([2**200, np.int64(3), np.uint8(4), 5.0, np.float64(1e20)], dtype=object)
    people = Tally((Factor("arm", tuple("ABCDE"), "arm"),), given).people
    given[0] = 9
    assert people.tolist() == [2**200, 3, 4, 5, 10**20]
    assert {type(value) for value in people.tolist()} == {int}


def test_squares_are_kept_at_some_marginals_as_far_as_they_are_known() -> None:
    axes, by_class, by_margin = ("arm", "tier"), count(squares="class").moments_of(), count().moments_of()
    for known, wanted in ((by_class, [("arm",)]), (by_margin, [("arm",), axes])):
        assert {by: c.tolist() for by, c in known.with_squares_at(wanted, axes).squares.items()} == {
            ("arm",): [21, 70, 113]
        }
    binary = count({**ROWS, "spend": [0, 1] * 4}, metrics={"spend": Metric("spend", 1, (0, 1))}).moments_of()
    assert binary.with_squares_at([("arm",)], axes).squares == {}
    assert binary.squares_by(("arm",), axes).tolist() == [1, 2, 1]  # those of 0 and 1 are its sums


def test_what_is_no_tally_is_refused() -> None:
    arm = Factor("arm", ("A",), "arm")
    part = Moments(Metric("spend"), [1], [1], {})
    tally = count(metrics=["spend", "visits"], products=[("spend", "visits")])
    for given, fact in (
        (((arm, Factor("arm", ("x",))), [[1]]), "the same arm column or covariate is named twice. Give every name"),
        (((arm,), [1], (part, part)), "the same metric is named twice. Give every name once"),
        ((tally.factors, tally.people, tally.moments, tally.crosses * 2), "the same pair of metrics is crossed twice"),
        (((Factor("tier", (1, 2)),), [1, 2]), "a tally needs arms. Name the column that holds the arm"),
    ):
        with pytest.raises(TallyError, match=fact):
            Tally(*given)


# ── adding and subtracting ─────────────────────────────────────────────────────────────────────


def test_adding_aligns_levels_that_only_one_has_seen() -> None:
    one = count({"arm": ["B", "B"], "tier": [2, 3], "spend": [5, 2]})
    two = count({"arm": ["A"], "tier": [1], "spend": [7]})
    both = one + two
    assert both.factor("arm").levels == ("A", "B")
    assert both.factor("tier").scores == (1.0, 2.0, 3.0)
    assert both.people.tolist() == [[1, 0, 0], [0, 1, 1]]
    assert both.squares(by=["tier"]).tolist() == [49, 25, 4]


def test_adding_refines_cross_products_too() -> None:
    choices: dict[str, Any] = {"metrics": ["spend", "visits"], "products": [("spend", "visits")]}
    coarse = count(**choices)
    fine = count(**choices, resolution={"spend": 0.5, "visits": 0.25})
    assert coarse + fine == fine + fine
    assert (coarse + fine).cross("spend", "visits").products.tolist() == [2 * 8 * value for value in (8, 39, 43)]


def test_adding_a_0_1_metric_to_its_finer_version_keeps_its_squares() -> None:
    rows = {"arm": ["A", "A", "B"], "tier": [1, 2, 2], "paid": [0, 1, 1]}
    whole = count(rows, metrics={"paid": Metric("paid", 1, (0, 1))})
    halves = count({**rows, "paid": [0.5, 1, 0]}, metrics={"paid": Metric("paid", 2, (0, 1))})
    both = whole + halves
    assert both.moments_of().metric == Metric("paid", 2, (0, 1))
    assert both.squares().tolist() == [4 + 1 + 4, 4]


def test_bounds_between_the_steps_of_the_coarser_grid_cannot_be_refined() -> None:
    rows = {"arm": ["A", "B"], "tier": [1, 1], "spend": [2.5, 1.0]}
    coarse, fine = (count(rows, metrics={"spend": Metric("spend", scale, (0, 2.5))}) for scale in (1, 2))
    with pytest.raises(TallyError, match="the bounds of 'spend' fall between the steps of the coarser grid"):
        coarse + fine


BOUNDED = {"spend": Metric("spend", 1, (0, 9))}


@pytest.mark.parametrize(
    ("all_of_them", "stranger", "fact"),
    [
        ({}, {"arm": ["A"], "tier": [3], "spend": [4]}, "negative count"),
        ({"metrics": {"spend": Metric("spend")}}, {"arm": ["A"], "tier": [1], "spend": [2]}, "without values"),
        ({}, {"arm": ["A"], "tier": [2], "spend": [9]}, "below Σ S²/n"),
        ({"metrics": BOUNDED}, {"arm": ["A"], "tier": [2], "spend": [7]}, "lies outside what its bounds and counts"),
    ],
)
def test_people_who_were_never_added_cannot_be_subtracted(
    all_of_them: dict[str, Any], stranger: dict[str, list[Any]], fact: str
) -> None:
    with pytest.raises(TallyError, match=fact):
        count(**all_of_them) - count(stranger, **all_of_them)


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "another covariate": ({"covariates": ["plan"]}, "tallies of 'tier' and 'plan' cannot be added"),
    "more covariates": ({"covariates": ["tier", "plan"]}, "the two tallies have different covariates or metrics"),
    "more metrics": ({"metrics": ["spend", "visits"]}, "the two tallies have different covariates or metrics"),
    "another metric": ({"metrics": ["visits"]}, "the two tallies have different covariates or metrics"),
    "another grid": ({"metrics": {"spend": Metric("spend", 3)}}, "the grids of 'spend' do not fit into each other"),
    "other bounds": ({"bounds": {"spend": (0, 9)}}, "'spend' has other bounds or another rule for missing values"),
    "another rule": ({"missing": {"spend": "exclude"}}, "'spend' has other bounds or another rule for missing values"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_tallies_of_different_kinds_are_not_added(case: str) -> None:
    choices, fact = OTHERS[case]
    mine = count(metrics={"spend": Metric("spend", 2)}) if case == "another grid" else count()
    with pytest.raises(KanabError) as caught:
        mine + count(**choices)
    assert caught.value.fact.startswith(fact)
    assert caught.value.remedy
    with pytest.raises(KanabError):
        count(**choices) - mine


def test_a_batch_whose_covariate_is_missing_for_everyone_can_be_added() -> None:
    nobody_knows = {**ROWS, "tier": [None] * 8}
    both = {name: [*ROWS[name], *nobody_knows[name]] for name in ROWS}
    assert count() + count(nobody_knows) == count(both)


def test_arms_of_numbers_and_of_true_or_false_are_different_tallies() -> None:
    assert count_columns({"on": [0, 1]}, arm="on") != count_columns({"on": [False, True]}, arm="on")


@pytest.mark.parametrize("other", [1, "tally", None, {}])
def test_only_tallies_are_added(other: Any) -> None:
    with pytest.raises(TypeError):
        count() + other
    with pytest.raises(TypeError):
        other + count()
    with pytest.raises(TypeError):
        count() - other
    assert count() != other


def test_a_pair_that_only_one_crossed_is_dropped() -> None:
    crossed = count(metrics=["spend", "visits"], products=[("spend", "visits")])
    assert (crossed + count(metrics=["spend", "visits"])).crosses == ()


# ── coarsen, collapse, select, pool ────────────────────────────────────────────────────────────


def test_a_merged_level_is_scored_by_the_mean_of_its_people() -> None:
    assert count().coarsen("tier", {2: "2+", 3: "2+"}).factor("tier").scores == (1.0, 2.5)
    assert count().coarsen("tier", {1: "low", 2: "low"}).factor("tier").scores == (1.6, 3.0)
    assert count().empty().coarsen("tier", {1: "low", 2: "low"}).factor("tier").scores == (1.5, 3.0)  # the plain mean
    assert count().coarsen("tier", {2: "2+", 3: "2+"}, {"2+": 10, 1: 5}).factor("tier").scores == (5.0, 10.0)
    renamed = count().coarsen("tier", {1: "one"}).factor("tier")
    assert (renamed.levels, renamed.scores) == (("one", 2, 3), (1.0, 2.0, 3.0))
    coarse = count(covariates=["plan"]).coarsen("plan", {"x": "any", "y": "any"})
    assert (coarse.factor("plan").levels, coarse.factor("plan").scores) == (("any",), None)
    assert count().coarsen("tier", {}) == count()


def test_the_missing_level_joins_scored_ones_only_with_a_score() -> None:
    tally = count({**ROWS, "tier": [1, 2, 2, 1, None, 3, 2, 3]})
    with pytest.raises(LevelError, match=r"the missing level of 'tier' has no score and cannot join scored ones. Give"):
        tally.coarsen("tier", {None: "1 or missing", 1: "1 or missing"})
    joined = tally.coarsen("tier", {None: "1 or missing", 1: "1 or missing"}, {"1 or missing": 1})
    assert joined.factor("tier").scores == (1.0, 2.0, 3.0)
    assert joined.people_by("tier") == {"1 or missing": 3, 2: 3, 3: 2}


@pytest.mark.parametrize("scores", [{"2+": "much"}, {"2+": None}, {"2+": float("nan")}, {"2+": [1]}], ids=repr)
def test_unknown_levels_and_scores_that_are_no_numbers_are_refused(scores: Any) -> None:
    with pytest.raises(LevelError, match=r"unknown level of 'tier'. It has: 1, 2, 3\.") as caught:
        count().coarsen("tier", {918273645: 1})
    assert "918273645" not in str(caught.value)
    with pytest.raises(KanabError):
        count().coarsen("tier", {2: "2+", 3: "2+"}, scores)


def test_cross_products_per_arm_outlive_a_covariate_and_another_experiment() -> None:
    choices: dict[str, Any] = {"metrics": ["spend", "visits"], "products": [("spend", "visits")], "squares": "arm"}
    alone = count(**choices, covariates=[])
    assert count(**choices).collapse("tier") == alone
    pair = count(arm=["arm", "plan"], **choices, covariates=[])
    assert [cross.by for cross in pair.crosses] == [("arm",), ("plan",)]
    assert pair.collapse("plan") == alone


def test_the_only_experiment_cannot_be_collapsed() -> None:
    for name in ("arm", "variant"):
        tally = count_columns({"variant": ["A", "B"], "tier": [1, 2]}, arm="variant", covariates=["tier"])
        with pytest.raises(TallyError, match=r"the only experiment of a tally cannot be collapsed. Name a covariate"):
            tally.collapse(name)


def test_keep_names_the_covariates_that_stay() -> None:
    tally = count(covariates=["tier", "plan"])
    assert tally.keep("tier") == tally.collapse("plan")
    assert tally.keep().axes == ("arm",)
    assert tally.keep() is tally.keep()  # a readout asks for every metric
    assert tally.keep("plan", "tier") == tally
    with pytest.raises(LevelError, match="unknown arm column or covariate"):
        tally.keep("device")


def test_selecting_metrics_is_counting_only_those() -> None:
    tally = count(metrics=["spend", "visits"], products=[("spend", "visits")])
    assert tally.select_metrics(["visits"]) == count(metrics=["visits"])
    assert tally.select_metrics(["visits", "spend"]) == tally
    assert tally.select_metrics([]) == count(metrics=[])
    with pytest.raises(LevelError, match=r"unknown metric. This tally has: spend, visits\."):
        tally.select_metrics(["clicks"])


def test_selecting_arms_keeps_their_people_in_the_given_order() -> None:
    chosen = count().select_arms(["C", "A"])
    assert chosen.factor("arm").levels == ("C", "A")
    assert chosen.people.tolist() == [[0, 1, 1], [1, 2, 0]]
    assert chosen.squares().tolist() == [113, 21]
    assert chosen.squares(by=["tier"]) is None  # it mixes in the people of B
    tally = count(metrics=["spend", "visits"], products=[("spend", "visits")], squares="class")
    chosen = tally.select_arms(["A", "B"])
    assert chosen.squares("spend", ["tier"]).tolist() == [10, 20, 61]
    assert chosen.cross("spend", "visits").products.tolist() == [8, 39]


def test_selecting_arms_of_a_pair_drops_products_of_the_other_experiment() -> None:
    pair = count(arm=["arm", "plan"], covariates=[], metrics=["spend", "visits"], products=[("spend", "visits")])
    chosen = pair.select_arms(["x"], "plan")
    assert [cross.by for cross in chosen.crosses] == [("plan",)]
    assert chosen.squares("spend", ["arm"]) is None
    assert chosen.squares("spend", ["plan"]).tolist() == [1 + 9 + 25 + 64]


@pytest.mark.parametrize(
    ("choose", "fact"),
    [
        (lambda: count().select_arms(["A", "D"]), r"unknown arm of 'arm'. It has: A, B, C\."),
        (lambda: count().select_arms(["A", "A"]), "the same level twice"),
        (lambda: count().select_arms([]), "has no levels"),
        (lambda: count().select_arms([1], "tier"), "'tier' is a covariate, not an experiment. Name the arm column"),
        (lambda: count().pool_arms({"x": [1, 2]}, "tier"), "'tier' is a covariate, not an experiment"),
    ],
)
def test_known_arms_are_selected_and_pooled_each_once(choose: Any, fact: str) -> None:
    with pytest.raises(KanabError, match=fact):
        choose()


# ── looks ──────────────────────────────────────────────────────────────────────────────────────

DISTINCT = count_columns(
    {"arm": ["A"] * 7919 + ["B"] * 6101, "spend": [3.0] * 7919 + [5.0] * 6101}, arm="arm", metrics=["spend"]
)


def test_repr_shows_shape_and_levels_but_no_numbers() -> None:
    assert repr(DISTINCT) == "Tally of arm (A, B): spend in steps of 1, squares by arm"
    for number in (7919, 6101, 14020, 3 * 7919, 5 * 6101, 9 * 7919, 25 * 6101):
        assert str(number) not in repr(DISTINCT)
        assert str(number) not in DISTINCT._repr_html_()


def test_repr_names_the_kind_of_every_metric() -> None:
    rows = {"arm": ["A", "B"], "paid": [0, 1], "spend": [1.5, 2]}
    assert repr(count_columns(rows, arm="arm")) == "Tally of arm (A, B): no metrics"
    both = count_columns(rows, arm="arm", metrics=["paid", "spend"], resolution={"spend": 0.5})
    assert repr(both) == "Tally of arm (A, B): paid is 0/1; spend in steps of 0.5, squares by arm"
    bare = Tally(both.factors, both.people, (Moments(Metric("n"), [1, 1], [2, 2], {}),))
    assert repr(bare) == "Tally of arm (A, B): n in steps of 1, squares by nothing"


def test_html_is_escaped() -> None:
    rows = {"<arm>": ["<script>alert(1)</script>", "a&b"], "<m>": [2, 3]}
    html = count_columns(rows, arm="<arm>", metrics=["<m>"])._repr_html_()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;, a&amp;b" in html
    assert "<script" not in html
    assert "<arm>" not in html
    assert "<m>" not in html


def test_show_prints_classes_with_people_and_every_margin_of_squares(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"arm": ["A", "A", "B"], "tier": [1, 1, 2], "spend": [0.5, 1.5, None]}
    count_columns(
        rows, arm="arm", covariates=["tier"], metrics=["spend"], resolution={"spend": 0.5}, missing={"spend": "exclude"}
    ).show()
    assert capsys.readouterr().out == (
        "arm  tier  people  with spend  Σ spend\n"
        "───  ────  ──────  ──────────  ───────\n"
        "A       1       2           2        2\n"
        "B       2       1           0        0\n"
        "\n"
        "arm  Σ spend²\n"
        "───  ────────\n"
        "A         2.5\n"
        "B           0\n"
        "\n"
        "tier  Σ spend²\n"
        "────  ────────\n"
        "   1       2.5\n"
        "   2         0\n"
        "\n"
    )


# ── wrong types ────────────────────────────────────────────────────────────────────────────────


def test_tables_of_the_wrong_shape_or_type_are_refused() -> None:
    arm = Factor("arm", ("A", "B"), "arm")
    good = [1, 2]
    ragged = [np.zeros((2, 2)), np.zeros((2, 3))]
    shapes = ([1], [1, 2, 3], [[1, 2]], [[1], [2]], 5, None, "ab", ragged)
    kinds = ("918273645", 1.5, float("nan"), float("inf"), True, np.bool_(True), None, Decimal(1), [918273645])
    for people in (*shapes, *([1, value] for value in kinds)):
        with pytest.raises(TallyError, match="people must") as caught:
            Tally((arm,), people)
        assert "918273645" not in str(caught.value)
    for name, part in {
        "counts": Moments(Metric("y"), [1], good, {}),
        "sums": Moments(Metric("y"), good, ["918273645", 1], {}),
        "squares": Moments(Metric("y"), good, good, {("arm",): [1, 2, 3]}),
    }.items():
        with pytest.raises(TallyError, match=f"{name} of 'y' must"):
            Tally((arm,), good, (part,))
    with pytest.raises(LevelError, match="unknown arm column or covariate"):
        Tally((arm,), good, (Moments(Metric("y"), good, good, {("tier",): [1]}),))
    cross = Cross(("y", "z"), ("arm",), [1], (good, good), (good, good), good)
    with pytest.raises(TallyError, match="cross-products of 'y' and 'z' must have one number per class"):
        Tally((arm,), good, (), (cross,))


def test_categories_have_no_scores_and_the_same_people_and_sums() -> None:
    numeric = eighteen()
    categories = numeric.as_categories(["tier", "elsewhere"])
    assert categories.factor("tier").scores is None
    assert categories.factor("tier").levels == numeric.factor("tier").levels
    assert np.array_equal(categories.people, numeric.people)
    assert np.array_equal(categories.moments[0].sums, numeric.moments[0].sums)
    assert numeric.as_categories([]) is numeric  # nothing is counted and checked again
