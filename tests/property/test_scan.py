"""A scan gives what single tests give, and what exact arithmetic gives; and it rings as often as it says."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.benchmarks import load_benchmark

from kanab import Metric, Tally
from kanab.scan.stats.scan_kinds import scan_pairs
from kanab.scan.stats.scan_verdicts import Rules
from kanab.stats import pooled_f, robust_f
from kanab.tally.factor import Factor
from kanab.tally.moments import Moments

TOLERANCE = 1e-11


bench = load_benchmark("bench_scan_tests")


def near(value, rel=TOLERANCE):
    return pytest.approx(value, rel=rel, abs=0)


def table(people, shape, squares="marginals"):
    """The tally of a pair, from the values of every class."""
    factors = tuple(Factor(name, tuple(range(size)), "arm") for name, size in zip("ab", shape, strict=True))
    counts, sums, class_squares = (np.zeros(shape, dtype=object) for _ in range(3))
    for key, values in people.items():
        counts[key], sums[key] = len(values), sum(values)
        class_squares[key] = sum(value * value for value in values)
    kept = {
        "arm": {("a",): class_squares.sum(axis=1)},
        "marginals": {("a",): class_squares.sum(axis=1), ("b",): class_squares.sum(axis=0)},
        "class": {("a", "b"): class_squares},
    }[squares]
    return Tally(factors, counts, (Moments(Metric("y", 8), counts, sums, kept),))


@st.composite
def pair(draw):
    """Values by class: 2 to 8 arms each, some classes empty, means of any size, arms up to 100 deviations apart."""
    shape = draw(st.tuples(st.integers(2, 8), st.integers(2, 8)))
    seed = draw(st.integers(0, 2**32 - 1))
    mean, gap = draw(st.sampled_from([0, 10**3, 10**9, 10**12])), draw(st.sampled_from([0, 1, 10, 100]))
    empty = draw(st.sampled_from([0.0, 0.1, 0.4]))
    rng = np.random.default_rng(seed)
    rows, columns = (rng.integers(0, gap + 1, size) for size in shape)
    people = {}
    for a, b in product(range(shape[0]), range(shape[1])):
        n = 0 if rng.random() < empty else int(rng.integers(2, 9))
        values = np.rint(rng.normal(0, 8 * (1 + a % 2), n)).astype(int)
        people[a, b] = [int(value) + 8 * (mean + int(rows[a]) + int(columns[b])) for value in values]
    return shape, people


@pytest.mark.slow
@settings(max_examples=60)
@given(pair(), st.sampled_from(["arm", "marginals", "class"]))
def test_both_tests_are_those_of_one_table_by_itself(drawn, squares):
    shape, people = drawn
    tally = table(people, shape, squares)
    if not tally.total:
        return
    (row,) = scan_pairs({("a", "b"): tally}, Rules(k=1)).rows
    pooled, robust = pooled_f(tally), robust_f(tally)
    for found, expected in (((row.F, row.df, row.p), pooled), ((row.F_robust, row.df_robust, row.p_robust), robust)):
        if expected.F is None:
            assert found == (None, None, None)
            continue
        f, df, p = found
        assert (f, df) == (near(expected.F), near(expected.df))
        assert p == near(expected.p, rel=1e-9)  # d ln p / d ln F may be large
    assert row.variance == robust.variance
    if robust.F is None:
        assert (row.verdict, row.note) == ("not testable", robust.note)


def crowd(seed, experiments=6, people=1_500, most=4, enrolled=0.8):
    """Experiments of 2 to 4 arms, some people in only some of them, some without a value."""
    rng = np.random.default_rng(seed)
    codes, levels = {}, {}
    for at in range(experiments):
        arms = int(rng.integers(2, most + 1))
        drawn = rng.integers(0, arms, people)
        codes[f"t{at}"], levels[f"t{at}"] = np.where(rng.random(people) < enrolled, drawn, -1), tuple(range(arms))
    values = {
        Metric("spend", 1000, missing="exclude"): np.rint(rng.gamma(2, 1e6, people)).astype(np.int64) + 10**13,
        Metric("bought", 1, (0, 1)): (rng.random(people) < 0.4).astype(np.int64),
    }
    return bench.count_pairs(codes, values, levels, {"spend": rng.random(people) < 0.1})


@pytest.mark.parametrize("seed", range(4))
def test_stored_tables_give_the_same_rows(seed):
    pairs = crowd(seed)
    names = [factor.name for factor in pairs.experiments]
    stored = {(names[a], names[b]): pairs.tally(a, b) for a, b in combinations(range(len(names)), 2)}
    own = np.diagonal(pairs.people).astype(object)
    alone = {
        factor.name: Tally((factor,), own[pairs.slice_of(at)]) for at, factor in enumerate(pairs.experiments)
    }  # fmt: skip
    assert [row.to_dict() for row in scan_pairs(stored, alone=alone)] == [row.to_dict() for row in scan_pairs(pairs)]


SCANS = 40
SMALL = {world.name: replace(world, experiments=30, people=world.people // 2) for world in bench.WORLDS}
MOST = 0.05 + 3 * np.sqrt(0.05 * 0.95 / SCANS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal, 50/50", "0/1 at 10 %, 50/50"])
def test_where_nothing_interferes_one_raw_p_in_twenty_is_small_and_holm_rings_once_in_twenty_scans(name):
    found = bench.rates(SMALL[name], SCANS)
    assert found.raw == pytest.approx(0.05, abs=0.005)  # 17,400 tests
    assert found.any_alarm <= MOST
    assert found.broken <= MOST


@pytest.mark.slow
@pytest.mark.parametrize("name", ["0/1 at 20 %, 10/90", "Pareto, 10/90", "5 % buy, 10/90"])
def test_long_tails_and_small_classes_ring_too_often_but_only_to_watch(name):
    found = bench.rates(SMALL[name], SCANS)
    assert found.any_alarm > MOST
    assert found.interference <= 0.05
    assert found.broken <= MOST


@pytest.mark.parametrize("seed", range(3))
def test_an_experiment_that_steers_people_into_another_is_broken_assignment_not_interference(seed):
    """Arm 1 of the first lets the better half into the second: the arms among people in both are independent."""
    rng = np.random.default_rng(seed)
    people = 20_000
    codes = {f"t{at}": rng.integers(0, 2, people) for at in range(8)}
    strength = rng.normal(0, 1, people)
    codes["t1"] = np.where((codes["t0"] == 1) & (strength < 0), -1, codes["t1"])
    steps = np.rint((10 + strength + 0.5 * strength * (codes["t1"] == 1)) * 100).astype(np.int64)
    scan = scan_pairs(bench.count_pairs(codes, {Metric("y", 100): steps}))
    broken = [row for row in scan if row.verdict == "assignment broken"]
    assert [(row.a, row.b) for row in broken] == [("t0", "t1")]
    assert broken[0].note == "being in t1 depends on the arm of t0"
    assert broken[0].p_adjusted < 1e-10  # it would have passed for an interaction
    assert not scan.flagged
