"""Assignment checks: arms against arms, and arms against being in the other experiment."""

import numpy as np
import pytest
from scipy import stats

from kanab.scan.stats.assignment import CHECKS, check_assignment, combine_checks, independence_p, planned_p
from kanab.scan.stats.table_blocks import TableBlock

rng = np.random.default_rng(3)


def block(people, arms=(None, None)):
    return TableBlock(np.arange(len(people)), people, (), arms)


@pytest.mark.parametrize("shape", [(2, 2), (2, 5), (4, 3)])
def test_g_is_the_likelihood_ratio_with_williams_correction(shape):
    tables = rng.integers(5, 60, (10, *shape))
    found = independence_p(tables.astype(float))
    for table, p in zip(tables, found, strict=True):
        g, _, df, _ = stats.chi2_contingency(table, correction=False, lambda_="log-likelihood")
        n, rows, columns = table.sum(), table.sum(axis=1), table.sum(axis=0)
        williams = 1 + (n * np.sum(1 / rows) - 1) * (n * np.sum(1 / columns) - 1) / (6 * n * df)
        assert p == pytest.approx(stats.chi2.sf(g / williams, df), rel=1e-9)


def test_empty_rows_and_columns_do_not_count():
    full = np.array([[30.0, 20.0], [10.0, 40.0]])
    padded = np.zeros((1, 3, 4))
    padded[0, :2, 1:3] = full
    assert independence_p(padded)[0] == pytest.approx(independence_p(full[None])[0], rel=1e-12)


def test_one_row_has_nothing_to_check():
    assert np.isnan(independence_p(np.array([[[5.0, 5.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]))).all()


def test_the_three_checks_are_combined_by_the_smallest_times_three():
    people = np.array([[[100, 100], [100, 100]]])
    found = check_assignment(block(people, (np.array([[300, 240]]), np.array([[250, 250]]))))
    entry = independence_p(np.array([[[200.0, 100.0], [200.0, 40.0]]]))[0]
    assert found[0, :3].tolist() == pytest.approx([1.0, entry, 1.0], rel=1e-12)
    combined, worst = combine_checks(found)
    assert (combined[0], worst[0]) == (pytest.approx(3 * entry, rel=1e-12), 1)


@pytest.mark.parametrize(
    ("people", "arms", "unknown"),
    [
        ([[50, 50], [50, 50]], ([[90, 200]], [[200, 200]]), [1, 3]),  # an own table that lacks people
        ([[50, 50], [50, 50]], ([[100, 100]], [[100, 100]]), [1, 2, 3]),  # everybody in both
        ([[0, 0], [0, 0]], None, [0, 1, 2, 3]),  # nobody in both
    ],
)
def test_what_is_not_known_or_the_same_for_all_is_not_checked(people, arms, unknown):
    own = (None, None) if arms is None else tuple(map(np.array, arms))
    found = check_assignment(block(np.array([people]), own))
    assert np.flatnonzero(np.isnan(found[0])).tolist() == unknown
    assert np.isnan(combine_checks(found)[0][0]) == (len(unknown) == 4)


@pytest.mark.slow
@pytest.mark.parametrize(("people", "shares"), [(300, (0.1, 0.1)), (1000, (0.1, 0.1)), (2000, (0.05, 0.05))])
def test_g_keeps_its_tail_where_classes_expect_few_people(people, shares):
    size = 400_000
    first = rng.binomial(people, shares[0], size)
    both, other = rng.binomial(first, shares[1]), rng.binomial(people - first, shares[1])
    tables = np.stack([[both, first - both], [other, people - first - other]]).transpose(2, 0, 1).astype(float)
    p = independence_p(tables)
    for level in (1e-3, 1e-4):
        assert np.mean(p < level) <= level * (1.5 + 3 / np.sqrt(level * size))


def test_planned_joint_shares_are_tested_by_the_likelihood_ratio_over_all_cells():
    shares = np.array([[0.4, 0.2, 0.1], [0.1, 0.1, 0.1]])
    for people in rng.multinomial(500, shares.ravel(), 10).reshape(10, 2, 3).astype(float):
        g, _ = stats.power_divergence(people.ravel(), 500 * shares.ravel(), lambda_="log-likelihood")
        williams = 1 + (np.sum(1 / shares) - 1) / (6 * 500 * 5)
        assert planned_p(people, shares) == pytest.approx(stats.chi2.sf(g / williams, 5), rel=1e-9)


def test_somebody_where_nobody_was_planned_breaks_the_plan():
    shares = np.array([[0.5, 0.0], [0.25, 0.25]])
    assert planned_p(np.array([[500.0, 1.0], [250.0, 250.0]]), shares) == 0
    assert planned_p(np.array([[500.0, 0.0], [250.0, 250.0]]), shares) == 1
    assert np.isnan(planned_p(np.zeros((2, 2)), shares))
    assert np.isnan(planned_p(np.array([[9.0, 0.0], [0.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])))


def test_a_planned_table_is_checked_against_its_plan_and_nothing_else():
    people = np.array([[[400, 200], [200, 200]], [[400, 200], [200, 200]]])
    arms = np.array([[600, 900], [600, 900]])
    found = check_assignment(block(people, (arms, arms)), {1: np.array([[0.4, 0.2], [0.2, 0.2]])})
    combined = combine_checks(found)[0]
    assert combined[0] < 1e-6
    assert combined[1] == found[1, 3] == pytest.approx(1.0)
    assert np.isnan(found[1, :3]).all()
    assert np.isnan(found[0, 3])
    _, worst = combine_checks(check_assignment(block(people[:1]), {0: np.array([[0.25, 0.25], [0.25, 0.25]])}))
    assert CHECKS[worst[0]].format("a", "b") == "people are not in the joint shares that were planned for a and b"
