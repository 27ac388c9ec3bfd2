"""Additive fits of many tables at once."""

import numpy as np
import pytest

from kanab.scan.stats.double_double import Twofold
from kanab.scan.stats.fit import Additive, freedom, interaction

rng = np.random.default_rng(2)


def tables(shape, count=20, empty=0.0):
    n = rng.integers(2, 50, (count, *shape)).astype(float)
    n[rng.random(n.shape) < empty] = 0.0
    means = np.where(n > 0, rng.normal(0, 1, n.shape), 0.0)
    return n, means


def twofold(values):
    return Twofold(values, np.zeros_like(values))


def by_lstsq(n, means):
    """Residuals, extra sum of squares, leverage-free shares and rank of one table, by the full design."""
    places = np.argwhere(n > 0)
    root = np.sqrt(n[tuple(places.T)])
    design = np.concatenate([np.eye(n.shape[axis])[places[:, axis]] for axis in (0, 1)], axis=1)
    u, s, _ = np.linalg.svd(root[:, None] * design, full_matrices=False)
    basis = u[:, s > 1e-9]
    m = np.eye(len(places)) - basis @ basis.T
    rest = m @ (root * means[tuple(places.T)])
    return rest / root, float(rest @ rest), m, places


@pytest.mark.parametrize("shape", [(2, 2), (2, 5), (3, 3), (8, 2), (4, 7)])
@pytest.mark.parametrize("empty", [0.0, 0.3])
def test_residuals_extra_squares_and_leverages_are_those_of_the_full_design(shape, empty):
    n, means = tables(shape, empty=empty)
    found, q = interaction(twofold(means), n), freedom(n > 0)
    for at in range(len(n)):
        if not n[at].any():
            continue
        rest, extra, m, places = by_lstsq(n[at], means[at])
        inside = tuple(places.T)
        assert q[at] == round(np.trace(m))
        assert found.residuals[at][inside] == pytest.approx(rest, abs=1e-12)
        assert found.extra[at] == pytest.approx(extra, rel=1e-10, abs=1e-12)
        assert found.free[at][inside] == pytest.approx(np.diag(m), abs=1e-12)


def test_shares_within_rows_are_those_of_the_full_design():
    n, means = tables((3, 4), empty=0.2)
    found = Additive(n).shared()
    for at in range(len(n)):
        _, _, m, places = by_lstsq(n[at], means[at])
        for row in range(3):
            own = places[:, 0] == row
            assert found[at, row] == pytest.approx(np.sum(m[np.ix_(own, own)] ** 2), abs=1e-12)


def test_an_additive_table_leaves_exactly_nothing():
    rows, columns = rng.integers(-(10**9), 10**9, (2, 30, 3))
    means = (rows[:, :, None] + columns[:, None, :]).astype(float)
    n = rng.integers(1, 1000, means.shape).astype(float)
    for shape in ((slice(None), slice(2), slice(2)), (slice(None),) * 3):
        assert not interaction(twofold(means[shape]), n[shape]).extra.any()


def test_two_by_two_with_an_empty_class_has_no_interaction():
    n = np.array([[[5.0, 0.0], [5.0, 5.0]]])
    assert freedom(n > 0).tolist() == [0]
    assert interaction(twofold(np.ones_like(n)), n).extra.tolist() == [0.0]


@pytest.mark.parametrize(
    ("filled", "q"),
    [
        ([[1, 1], [1, 1]], 1),
        ([[1, 1, 0], [1, 1, 0], [0, 0, 1]], 1),
        ([[1, 1, 0], [0, 1, 1], [1, 0, 1]], 1),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], 0),
        ([[1, 1, 1], [1, 1, 1], [0, 0, 0]], 2),
        ([[0, 0], [0, 0]], 0),
    ],
)
def test_degrees_of_freedom_count_connected_parts(filled, q):
    assert freedom(np.array([filled], dtype=bool)).tolist() == [q]
