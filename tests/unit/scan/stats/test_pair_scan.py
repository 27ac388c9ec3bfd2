"""All pairs of some experiments: rows, verdicts, families, and what is refused."""

import json

import numpy as np
import pytest
from tests.benchmarks import load_benchmark

from kanab import Metric, Tally, count_columns
from kanab.errors import AnalysisError, LevelError, PlanError
from kanab.scan.stats import outcomes
from kanab.scan.stats.scan_kinds import scan_pairs
from kanab.scan.stats.scan_verdicts import Rules
from kanab.tally import Factor
from kanab.tally.moments import Moments

bench = load_benchmark("bench_scan_tests")
SPEND, BOUGHT = Metric("spend", 100, (0, 100)), Metric("bought", 1, (0, 1))


def crowd(names="abcd", people=4_000, seed=3, effect=0.0, **changes):
    """Coin flips; the first two experiments interfere by ``effect``."""
    rng = np.random.default_rng(seed)
    codes = {name: rng.integers(0, 2, people) for name in names} | changes
    both = (codes[names[0]] == 1) & (codes[names[1]] == 1)
    spend = np.rint(np.clip(rng.normal(50, 10, people) + effect * both, 0, 100) * 100).astype(np.int64)
    bought = (rng.random(people) < 0.3 + effect / 50 * both).astype(np.int64)
    return bench.count_pairs(codes, {SPEND: spend, BOUGHT: bought}, dict.fromkeys(codes, (0, 1)))


def row(scan, a, b, metric="spend"):
    return next(one for one in scan if (one.a, one.b, one.metric) == (a, b, metric))


# ── rows ───────────────────────────────────────────────────────────────────────────────────────


def test_there_is_a_row_for_every_pair_and_metric():
    scan = scan_pairs(crowd())
    assert len(scan) == len(scan.rows) == 12
    assert [(one.a, one.b, one.metric) for one in scan][:3] == [
        ("a", "b", "spend"), ("a", "b", "bought"), ("a", "c", "spend"),
    ]  # fmt: skip
    assert scan.pairs[-1] == ("c", "d")
    assert {one.variance for one in scan if one.metric == "spend"} == {"two_marginals"}
    assert {one.variance for one in scan if one.metric == "bought"} == {"by_class"}


def test_plain_data_is_ready_for_json():
    scan = scan_pairs(crowd(effect=5))
    data = scan.summary()
    assert json.loads(json.dumps(data)) == data
    first = scan.rows[0].to_dict()
    assert json.loads(json.dumps(first)) == first
    wanted = "a b metric F df p F_robust df_robust p_robust p_adjusted assignment_p verdict".split()
    assert first.keys() >= set(wanted)
    assert list(first)[:3] == ["a", "b", "metric"]
    assert (first["verdict"], first["df"][0]) == ("interference", 1.0)
    assert (data["family"], data["correction"], data["alpha"], data["k"]) == ("metric", "holm", 0.05, 10)
    assert data["tests"] == {"spend": 6, "bought": 6}


def test_what_needs_attention_comes_first():
    scan = scan_pairs(crowd(effect=5))
    assert [(one.a, one.b, one.verdict) for one in scan.flagged] == [("a", "b", "interference")] * 2
    assert scan.flagged[0].p_adjusted <= scan.flagged[1].p_adjusted
    assert scan.verdicts() == {"interference": 2, "nothing found": 10}


# ── families ───────────────────────────────────────────────────────────────────────────────────


def test_a_family_is_all_pairs_of_a_metric_or_everything():
    pairs = crowd(effect=1.5)
    small = scan_pairs(pairs)
    large = scan_pairs(pairs, Rules(family="all"))
    assert (small.families, large.families) == ({"spend": 6, "bought": 6}, {"all": 12})
    p = min(one.p_robust for one in small)
    assert min(one.p_adjusted for one in small) == pytest.approx(6 * p)
    assert min(one.p_adjusted for one in large) == pytest.approx(12 * p)
    assert all(a.could_miss < b.could_miss for a, b in zip(small, large, strict=True))


def test_so_many_small_p_values_are_expected():
    scan = scan_pairs(crowd(names="abcdefghijklmnop", seed=2))
    assert (scan.tested, scan.expected) == (240, pytest.approx(12))
    assert scan.observed == sum(one.p_robust < 0.05 for one in scan)
    assert scan_pairs(crowd(), Rules(alpha=0.1)).expected == pytest.approx(1.2)


def test_quantiles_are_sorted_p_values_beside_even_steps_and_of_many_all_the_small_ones():
    scan = scan_pairs(crowd())
    expected, observed = scan.quantiles("spend")
    assert expected.tolist() == pytest.approx([(at + 0.5) / 6 for at in range(6)])
    assert observed.tolist() == sorted(one.p_robust for one in scan if one.metric == "spend")
    scan = scan_pairs(crowd(names="abcdefghijklmnopqrst"))
    _, some = scan.quantiles("spend", most=20)
    _, everything = scan.quantiles("spend")
    assert 20 <= len(some) < len(everything) == 190
    assert some[:3].tolist() == everything[:3].tolist()
    assert some[-1] == everything[-1]


# ── verdicts ───────────────────────────────────────────────────────────────────────────────────


def test_an_interaction_inside_the_tolerance_is_clear():
    pairs = crowd()
    found = scan_pairs(pairs)
    wide = {"spend": 1.2 * max(one.could_miss for one in found if one.metric == "spend")}
    assert {one.verdict for one in found} == {"nothing found"}
    assert {one.verdict for one in scan_pairs(pairs, Rules(tolerance=wide)) if one.metric == "spend"} == {
        "clear within tolerance"
    }
    narrow = {"spend": 0.5 * min(one.could_miss for one in found if one.metric == "spend")}
    assert {one.verdict for one in scan_pairs(pairs, Rules(tolerance=narrow))} == {"nothing found"}


def test_copied_arms_are_broken_assignment():
    rng = np.random.default_rng(3)
    first = rng.integers(0, 2, 4_000)
    second = np.where(rng.random(4_000) < 0.2, 1 - first, first)
    scan = scan_pairs(crowd(a=first, b=second, effect=5))
    found = row(scan, "a", "b")
    assert found.verdict == "assignment broken"
    assert found.note == "the arms of a and b are not independent"
    assert found.assignment_p < 1e-100
    assert row(scan, "a", "c").verdict == "nothing found"


TOGETHER = ((0, 0, 0.4), (0, 1, 0.1), (1, 0, 0.1), (1, 1, 0.4))


def drawn_together(people=4_000):
    """Arms of a and b drawn together: alike in four of five people."""
    rng = np.random.default_rng(3)
    first = rng.integers(0, 2, people)
    return crowd(a=first, b=np.where(rng.random(people) < 0.2, 1 - first, first), people=people)


@pytest.mark.parametrize("pair", [("a", "b"), ("b", "a")])
def test_arms_that_were_planned_together_are_no_broken_assignment(pair):
    scan = scan_pairs(drawn_together(), joint_shares={pair: TOGETHER})
    assert row(scan, "a", "b").verdict == "nothing found"
    assert {key: sorted(shares) for key, shares in scan.joint_shares.items()} == {("a", "b"): [*TOGETHER]}


def test_joint_shares_of_others_or_that_do_not_add_up_are_refused():
    with pytest.raises(PlanError, match=r"joint shares name a pair that is not scanned\. Scanned: a, b, c, d\."):
        scan_pairs(drawn_together(), joint_shares={("a", "z"): TOGETHER})
    with pytest.raises(PlanError, match=r"the joint plan of a and b must add up to 1\. Give a share for every pair"):
        scan_pairs(drawn_together(), joint_shares={("a", "b"): (*TOGETHER[:3], (1, 1, 0.3))})


def test_mutually_exclusive_experiments_are_not_testable():
    rng = np.random.default_rng(4)
    side = rng.random(4_000) < 0.5
    arms = rng.integers(0, 2, 4_000)
    scan = scan_pairs(crowd(a=np.where(side, arms, -1), b=np.where(side, -1, arms)))
    found = row(scan, "a", "b")
    assert (found.verdict, found.note) == ("not testable", "nobody is in both experiments")
    assert (found.F, found.p, found.assignment_p, found.p_adjusted) == (None,) * 4
    assert row(scan, "a", "c").verdict == "nothing found"


@pytest.mark.parametrize(
    ("overlap", "reason"), [(5, "fewer than k = 10 people are in both"), (30, "a class holds fewer")]
)
def test_little_overlap_is_not_testable_and_no_count_is_told(overlap, reason):
    rng = np.random.default_rng(4)
    arms = rng.integers(0, 2, 4_000)
    second = np.full(4_000, -1)
    second[:overlap] = rng.integers(0, 2, overlap)
    scan = scan_pairs(crowd(a=arms, b=second))
    found = row(scan, "a", "b")
    assert found.verdict == "not testable"
    assert found.note.startswith(reason)
    assert not any(char.isdigit() for char in found.note.replace("k = 10", ""))
    numbers = (found.F, found.df, found.p, found.F_robust, found.df_robust, found.p_robust, found.assignment_p)
    assert numbers == (None,) * 7
    assert scan.families["spend"] == 3  # of six: all three pairs with b have small classes


def test_a_metric_that_few_people_have_is_not_testable_while_the_others_are():
    rng = np.random.default_rng(5)
    codes = {name: rng.integers(0, 2, 2_000) for name in "ab"}
    values = {Metric("rating", 1, (0, 5), "exclude"): rng.integers(0, 6, 2_000), BOUGHT: rng.integers(0, 2, 2_000)}
    scan = scan_pairs(bench.count_pairs(codes, values, missing={"rating": np.arange(2_000) > 30}))
    assert [one.verdict for one in scan] == ["not testable", "nothing found"]
    assert scan.rows[0].assignment_p == scan.rows[1].assignment_p is not None


def test_a_few_heavy_people_are_something_to_watch():
    rng = np.random.default_rng(7)
    codes = {name: (rng.random(10_000) < 0.1).astype(int) for name in "ab"}
    spend = np.rint(rng.exponential(1, 10_000) * 100).astype(np.int64)
    both = np.flatnonzero((codes["a"] == 1) & (codes["b"] == 1))
    spend[both[:4]] += 1500
    scan = scan_pairs(bench.count_pairs(codes, {Metric("spend", 100): spend}))
    assert scan.rows[0].p < 0.0001
    assert scan.rows[0].p_adjusted < 0.01
    assert (scan.rows[0].verdict, scan.rows[0].note) == ("watch", "a few people could have caused it")


def test_declared_bounds_make_an_alarm_sure():
    rng = np.random.default_rng(8)
    codes = {name: rng.integers(0, 2, 2_000) for name in "ab"}
    y = np.rint((rng.uniform(-1, 1, 2_000) + 0.2 * codes["a"] * codes["b"]) * 1000).astype(np.int64)
    for bounds, verdict in ((None, "watch"), ((-1.0, 1.2), "interference")):
        scan = scan_pairs(bench.count_pairs(codes, {Metric("y", 1000, bounds): y}), Rules(alpha=0.02))
        assert scan.rows[0].verdict == verdict


# ── stored tables ──────────────────────────────────────────────────────────────────────────────


def stored(squares="marginals"):
    rng = np.random.default_rng(9)
    rows = {name: rng.integers(0, 2, 800) for name in "abc"} | {"y": rng.integers(0, 9, 800)}
    return {
        (a, b): count_columns(rows, arm=[a, b], metrics={"y": Metric("y")}, squares=squares)
        for a, b in (("a", "b"), ("a", "c"), ("b", "c"))
    }


def test_with_the_experiments_own_tables_being_in_the_other_is_checked_against_the_arm():
    rng = np.random.default_rng(9)
    rows = {name: rng.integers(0, 2, 800) for name in "ab"} | {"y": rng.integers(0, 9, 800)}
    enrolled = (rows["a"] == 0) | (rng.random(800) < 0.5)  # arm 1 of a lets half of its people into b
    both = {name: column[enrolled] for name, column in rows.items()}
    pair = count_columns(both, arm=["a", "b"], metrics={"y": Metric("y")})
    alone = {name: count_columns(rows, arm=[name], metrics={"y": Metric("y")}) for name in "ab"}
    scan = scan_pairs({("a", "b"): pair}, alone=alone)
    assert scan.enrollment_checked
    assert scan.rows[0].note == "being in b depends on the arm of a"


def test_without_the_experiments_own_tables_enrollment_is_not_checked():
    scan = scan_pairs(stored())
    assert not scan.enrollment_checked
    assert all(one.assignment_p is not None for one in scan)
    assert scan.experiments == ("a", "b", "c")


def test_a_table_may_be_named_the_other_way_round():
    tables = stored()
    turned = {(b, a): table for (a, b), table in tables.items()}
    assert [one.to_dict() for one in scan_pairs(turned)] == [one.to_dict() for one in scan_pairs(tables)]


def test_a_table_without_a_metric_or_without_squares_is_not_testable():
    tables = stored()
    part = tables["a", "b"].moments[0]
    tables["a", "b"] = tables["a", "b"].select_metrics([])
    bare = Moments(part.metric, tables["a", "c"].moments[0].counts, tables["a", "c"].moments[0].sums, {})
    tables["a", "c"] = Tally(tables["a", "c"].factors, tables["a", "c"].people, (bare,))
    scan = scan_pairs(tables)
    assert [(one.verdict, one.note) for one in scan] == [
        ("not testable", "the table does not hold this metric"),
        ("not testable", "no squares were kept"),
        ("nothing found", ""),
    ]
    assert scan.families == {"y": 1}


def test_tables_with_different_squares_are_scanned_together():
    tables = stored()
    tables["a", "b"] = stored("class")["a", "b"]
    assert [one.variance for one in scan_pairs(tables)] == ["by_class", "two_marginals", "two_marginals"]


# ── refusals ───────────────────────────────────────────────────────────────────────────────────


def test_one_experiment_has_no_pairs():
    pairs = bench.count_pairs({"a": np.array([0, 1] * 20)}, {BOUGHT: np.array([0, 1] * 20)})
    with pytest.raises(AnalysisError, match="needs two experiments"):
        scan_pairs(pairs)
    with pytest.raises(LevelError, match="no metric to test"):
        scan_pairs({})


def test_an_unknown_metric_is_refused_with_the_known_ones():
    assert scan_pairs(crowd(), metrics=["bought"]).families == {"bought": 6}
    with pytest.raises(LevelError, match="Counted metrics: spend, bought"):
        scan_pairs(crowd(), metrics=["spent"])
    with pytest.raises(LevelError, match="Tested metrics: spend, bought"):
        scan_pairs(crowd(), Rules(tolerance={"x": 1.0}))


def test_a_table_under_a_wrong_name_is_refused():
    with pytest.raises(LevelError, match="does not belong to its pair"):
        scan_pairs({("a", "x"): stored()["a", "b"]})
    single = Tally((Factor("a", (0, 1), "arm"),), np.array([20, 20], dtype=object))
    with pytest.raises(LevelError):
        scan_pairs({("a", "a"): single})


# ── many rows ──────────────────────────────────────────────────────────────────────────────────


def test_of_many_tests_the_most_urgent_are_listed_and_the_others_counted(monkeypatch):
    scan = scan_pairs(crowd(effect=5.0))
    assert scan.unlisted() is None
    monkeypatch.setattr(outcomes, "MOST_LISTED", 5)
    many = scan_pairs(crowd(effect=5.0))
    listed, rest = many.rows_of(many.listed_lines), many.unlisted()
    assert {(one.a, one.b, one.metric) for one in many.flagged} <= {(one.a, one.b, one.metric) for one in listed}
    assert len(listed) == 5
    assert (rest["tests"], rest["tables"]) == (7, 6)
    assert sum(group["tests"] for group in rest["groups"]) == 7
    quiet = [one.could_miss for one in many if one.metric == "spend" and one.verdict == "nothing found"]
    assert rest["could_miss"]["spend"] == [np.median(quiet), max(quiet)]
