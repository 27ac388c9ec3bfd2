"""The leverage rule: numbers that can be worked out by hand, and what happens at its limits."""

import math
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from tests.property.test_leverage import solutions

from kanab.errors import PrivacyError
from kanab.privacy import exact_rank
from kanab.privacy import leverage as module
from kanab.privacy.exact_rank import inverse_of
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


# ── what floating point proposes, whole numbers prove or refuse ──────────────────────────────────


def indicators(cells: Any) -> Any:
    columns = [cells[:, table] == label for table in range(cells.shape[1]) for label in np.unique(cells[:, table])]
    return np.array(columns, dtype=float).T


def gram_of(x: Any, people: Any) -> Any:
    return x.T @ (x * np.asarray(people, dtype=float)[:, None])


def pairs(experiments: int, arms: int) -> Any:
    """The tables of all pairs of experiments, everyone in all of them. Its coefficients are fractions."""
    who = np.indices((arms,) * experiments).reshape(experiments, -1)
    return np.column_stack([who[a] * arms + who[b] for a, b in combinations(range(experiments), 2)])


def symmetric(matrix: Any) -> Any:
    return matrix + np.tril(matrix, -1).T


def near_copies(moved: int, among: int) -> Any:
    """Two classes that differ in the people who moved, and everyone."""
    x = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]])
    return gram_of(x, [among, moved, among])


def test_coefficients_that_nobody_guesses_are_proved_by_primes(monkeypatch: pytest.MonkeyPatch) -> None:
    gram = gram_of(indicators(pairs(4, 3)), np.arange(1, 82))
    by_fractions = inverse_of(gram, 6)
    assert by_fractions is not None
    assert len(by_fractions.basis) == 1 + 4 * 2 + 6 * 4
    asked: list[int] = []
    original = exact_rank._left_modulo

    def remember(*arguments: Any) -> bool | None:
        asked.append(arguments[-1])
        return original(*arguments)

    monkeypatch.setattr(exact_rank, "LARGEST_MULTIPLE", 0)
    monkeypatch.setattr(exact_rank, "_left_modulo", remember)
    monkeypatch.setattr(exact_rank, "STEP", 7)
    found = inverse_of(gram, 6)
    assert found is not None
    assert len(found.basis) == 33
    assert asked == list(exact_rank.PRIMES[:2])


def test_a_proposal_that_drops_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gram = near_copies(1, 1_000)
    monkeypatch.setattr(exact_rank, "NIL", (0.01,))
    assert inverse_of(gram, 2) is None
    monkeypatch.setattr(exact_rank, "NIL", (0.01, 1e-12))
    found = inverse_of(gram, 2)
    assert found is not None
    assert found.basis.tolist() == [0, 1, 2]


def test_a_factor_that_fails_is_no_inverse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_rank.scipy.linalg.lapack, "dpotrf", lambda a, **_: (a, 1))
    assert inverse_of(near_copies(1, 10), 2) is None


def test_a_prime_that_divides_a_class_says_nothing_and_the_next_one_is_asked() -> None:
    first, second, third, _ = exact_rank.PRIMES
    x = np.array([[1, 0, 1], [0, 1, 1]])
    basis, rest = np.array([0, 1]), np.array([2])
    gram = gram_of(x, [first, 2 * second])
    assert [exact_rank._left_modulo(gram, basis, rest, prime) for prime in (first, second, third)] == [
        None,
        None,
        False,
    ]
    assert exact_rank._nothing_left(gram, basis, rest)
    more = gram_of(np.vstack([x, [0, 0, 1]]), [first, 2 * second, 1])
    assert not exact_rank._nothing_left(more, basis, rest)


def test_too_few_primes_that_say_something_are_no_proof() -> None:
    first, second, third, _ = exact_rank.PRIMES
    gram = gram_of(np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1]]), [first, second, third])
    assert not exact_rank._nothing_left(gram, np.array([0, 1, 2]), np.array([3]))


def test_elimination_modulo_a_prime_is_right_over_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_rank, "STEP", 4)
    monkeypatch.setattr(exact_rank, "ENTRIES", 10)
    rng = np.random.default_rng(3)
    x = (rng.random((40, 11)) < 0.5).astype(float)
    dependent = np.column_stack([x, x[:, :1] + x[:, 1:2] - 3 * x[:, 5:6]])
    independent = dependent.copy()
    independent[17, -1] += 1
    people = rng.integers(1, 10**6, 40)
    for prime in exact_rank.PRIMES:
        assert exact_rank._left_modulo(gram_of(dependent, people), np.arange(11), np.array([11]), prime) is False
        assert exact_rank._left_modulo(gram_of(independent, people), np.arange(11), np.array([11]), prime) is True


def test_the_primes_are_primes_that_fit() -> None:
    for prime in exact_rank.PRIMES:
        assert all(prime % divisor for divisor in range(2, int(prime**0.5) + 1))
        assert exact_rank.STEP * (prime / 2) ** 2 < exact_rank.DOUBLE_LIMIT / 2


def test_the_bound_on_the_error_holds_where_much_is_lost() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        cells = rng.integers(0, 3, (12, 3))
        cells = np.column_stack([cells, cells[:, 0]])
        cells[rng.integers(12), 3] = 3
        x = indicators(cells)
        people = rng.integers(1, 30, 12) * np.where(rng.random(12) < 0.5, 10**8, 1)
        gram = gram_of(x, people)
        found = inverse_of(gram, 4)
        assert found is not None
        whole = [[Fraction(int(number)) for number in row] for row in gram[np.ix_(found.basis, found.basis)]]
        rights = [[int(number) for number in row[found.basis]] for row in x]
        for row, solved in zip(rights, solutions(whole, rights), strict=True):
            exact = sum((a * b for a, b in zip(row, solved, strict=True)), Fraction(0))
            kept = np.array(row, dtype=float)
            assert kept @ symmetric(found.matrix) @ kept == pytest.approx(float(exact), rel=found.error, abs=0)
