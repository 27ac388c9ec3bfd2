"""Assignment checks: arms against arms, and arms against being in the other experiment."""

import numpy as np
import pytest
from scipy import stats

from kanab.scan.stats.assignment import check_assignment, independence_p
from kanab.scan.stats.cells import TableBlock

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
    assert found.p[0].tolist() == pytest.approx([1.0, entry, 1.0], rel=1e-12)
    assert found.combined[0] == pytest.approx(3 * entry, rel=1e-12)
    assert found.worst[0] == 1


def test_without_the_experiments_own_tables_only_the_arms_are_checked():
    people = rng.integers(50, 60, (4, 2, 3))
    found = check_assignment(block(people))
    assert np.isnan(found.p[:, 1:]).all()
    assert found.combined.tolist() == found.p[:, 0].tolist()


def test_an_own_table_that_lacks_people_is_not_compared():
    found = check_assignment(block(np.array([[[50, 50], [50, 50]]]), (np.array([[90, 200]]), np.array([[200, 200]]))))
    assert np.isnan(found.p[0, 1])
    assert not np.isnan(found.p[0, 2])


def test_everybody_in_both_leaves_nothing_to_check_about_entry():
    found = check_assignment(block(np.array([[[50, 50], [50, 50]]]), (np.array([[100, 100]]), np.array([[100, 100]]))))
    assert np.isnan(found.p[0, 1:]).all()


def test_nobody_in_both_has_no_p():
    found = check_assignment(block(np.zeros((1, 2, 2), dtype=np.int64)))
    assert np.isnan(found.combined).all()


@pytest.mark.parametrize(("people", "shares"), [(300, (0.1, 0.1)), (1000, (0.1, 0.1)), (2000, (0.05, 0.05))])
def test_g_keeps_its_tail_where_classes_expect_few_people(people, shares):
    size = 400_000
    first = rng.binomial(people, shares[0], size)
    both, other = rng.binomial(first, shares[1]), rng.binomial(people - first, shares[1])
    tables = np.stack([[both, first - both], [other, people - first - other]]).transpose(2, 0, 1).astype(float)
    p = independence_p(tables)
    for level in (1e-3, 1e-4):
        assert np.mean(p < level) <= level * (1.5 + 3 / np.sqrt(level * size))
