"""The leverage rule: numbers that can be worked out by hand, and what happens at its limits."""

import math
from typing import Any

import numpy as np
import pytest

from kanab.errors import PrivacyError
from kanab.privacy import exact_rank
from kanab.privacy import leverage as module
from kanab.privacy.leverage import Leverage, holds, leverage, leverages

MILLIONS = 10_000_000


def spread(signatures: int, tables: int, levels: int, seed: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, levels, (signatures, tables)), rng.integers(1, 30, signatures)


def one_moved(moved: int, among: int, tables: int = 0) -> tuple[Any, Any]:
    """A covariate of 20 levels, beside others, and once more after some people have moved."""
    rng = np.random.default_rng(2)
    cells = rng.integers(0, 20, (1_000, 1 + tables))
    cells = np.column_stack([cells, cells[:, 0]])
    other = cells[0].copy()
    other[-1] = (other[0] + 1) % 20
    return np.vstack([cells, other]), np.append(np.full(1_000, among // 1_000), moved)


# ── one table, and tables that hang together ───────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("among", [MILLIONS, 100 * MILLIONS])
@pytest.mark.parametrize("tables", [0, 1, 6, 20])
@pytest.mark.parametrize("moved", [1, 9, 25])
def test_a_few_who_moved_among_millions_are_seen(moved: int, tables: int, among: int) -> None:
    cells, people = one_moved(moved, among, tables)
    found = leverage(cells, people)
    assert found.effective_k == pytest.approx(moved, rel=1e-4)
    assert found.worst == 1_000
    assert holds(found, 10) == (moved == 25)


# ── who is in no table ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("cells", "people"),
    [
        (np.empty((0, 2), dtype=np.int64), np.empty(0, dtype=np.int64)),
        (np.empty((3, 0), dtype=np.int64), np.array([1, 2, 3])),
        (np.array([[-1, -1], [-1, -1]]), np.array([5, 6])),
        (np.array([[0, 1], [2, 1]]), np.array([0, 0])),
    ],
)
def test_where_nobody_is_published_effective_k_is_infinite(cells: Any, people: Any) -> None:
    assert leverage(cells, people) == Leverage(math.inf, -1)
    assert not leverages(cells, people).any()
    assert holds(leverage(cells, people), 10)


# ── how it is computed ─────────────────────────────────────────────────────────────────────────


def test_many_small_groups_of_classes_are_computed_apart() -> None:
    fine = np.arange(1_200)
    people = np.tile([10, 20, 30], 400)
    h = leverages(np.column_stack([fine, fine // 3]), people)
    assert h == pytest.approx(1 / people, rel=1e-12)


def test_too_many_classes_together_are_refused_without_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUDGET", 12)
    cells, people = spread(40, 3, 4)
    assert leverage(cells, people).effective_k > 1
    with pytest.raises(PrivacyError) as refused:
        leverage(np.column_stack([cells, np.arange(40) // 2]), people)
    assert str(refused.value) == (
        "the tables have too many classes together to check that nobody can be singled out. "
        "Use fewer covariates, fewer bins or a smaller top."
    )


@pytest.mark.parametrize(
    ("cells", "people"),
    [
        (np.array([0, 1]), np.array([1, 1])),
        (np.array([[0], [1]]), np.array([1, 1, 1])),
        (np.array([[0], [1]]), np.array([1, -1])),
        (np.array([[0], [1]]), np.array([2**52, 2**52])),
    ],
)
def test_damaged_signatures_are_refused(cells: Any, people: Any) -> None:
    with pytest.raises(PrivacyError, match="the signatures are damaged"):
        leverage(cells, people)


# ── in doubt, less ─────────────────────────────────────────────────────────────────────────────


def test_without_a_proof_people_hide_among_those_of_their_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, people = spread(30, 3, 4)
    monkeypatch.setattr(exact_rank, "inverse_of", lambda *_: None)
    assert leverages(cells, people).tolist() == (1 / people).tolist()
    assert leverage(cells, people).effective_k == people.min()


@pytest.mark.parametrize(("doubtful", "deducted"), [(1.0, True), (1e-7, False)])
def test_a_large_bound_on_the_error_is_deducted_and_a_huge_one_ends_the_trust(
    monkeypatch: pytest.MonkeyPatch, doubtful: float, deducted: bool
) -> None:
    cells, people = one_moved(25, 10**12)
    monkeypatch.setattr(module, "DOUBTFUL", doubtful)
    cells = np.vstack([cells, cells[-1:]])
    people = np.append(people, 3)
    found = leverage(cells, people)  # 28 moved, of whom 3 stand in a row of their own
    if deducted:
        assert found.effective_k < 28 * (1 - module.SLACK)
        assert found.effective_k == pytest.approx(28, rel=1e-3)
    else:
        assert found == Leverage(3.0, 1_001)


def test_the_budget_is_of_the_work_which_grows_with_the_cube_of_classes_that_hang_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PACK", 1)
    monkeypatch.setattr(module, "BUDGET", 13)
    side = np.array([[0, 0], [0, 1], [1, 1], [1, 2], [2, 2], [2, 3], [3, 3], [3, 4], [4, 4]])  # ten classes
    cells = np.vstack([side, side + 5])
    assert leverage(cells, np.full(18, 20)).effective_k > 1  # 2 · 10³ < 13³, though 2 · 10² > 13²
    with pytest.raises(PrivacyError, match="too many classes"):
        leverage(np.vstack([cells, side + 10]), np.full(27, 20))
