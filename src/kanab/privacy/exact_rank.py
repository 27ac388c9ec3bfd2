"""Classes that are combinations of others: found by floating point, proved by whole numbers.

``XᵀWX`` counts the people that each two classes share. Floating point proposes classes that span
all others; that they do is then proved, or None is returned.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

import numpy as np
import scipy
from numpy.typing import NDArray

from kanab.tally.metric import DOUBLE_LIMIT

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NIL = (1e-8, 1e-12)
"""Which share of a class, unexplained by others, may be none at all: the second where the first is disproved."""

LARGEST_MULTIPLE = 1_000_000
PRIMES = (8_388_593, 8_388_587, 8_388_581, 8_388_571)  # just below 2²³
STEP = 128  # so many products of residues, each below 2⁴⁴, add up without rounding
FEW = 64  # up to so many classes threads, which dpotri starts for any number, cost more than they bring
ENTRIES = 4_000_000  # numbers in a temporary matrix


@dataclass(frozen=True, eq=False)
class Inverse:
    """The lower triangle of the inverse of XᵀWX; ``error`` bounds the relative error of leverages that it gives."""

    basis: Ints
    matrix: Floats
    error: float


def inverse_of(gram: Floats, tables: int) -> Inverse | None:
    """Return classes that provably span all others, and their inverse; None if there is no proof."""
    scale = 1 / np.sqrt(np.diag(gram))
    for nil in NIL:
        pivots, rank = scipy.linalg.lapack.dpstrf(_scaled(gram, scale), tol=nil, lower=1, overwrite_a=1)[1:3]
        basis, dropped = (np.sort(part).astype(np.int64) - 1 for part in (pivots[:rank], pivots[rank:]))
        root, failed = scipy.linalg.lapack.dpotrf(_scaled(gram, scale, basis), lower=1, clean=1, overwrite_a=1)
        if failed:
            continue
        left = _unproved(gram, basis, dropped, root, scale[basis, None])
        if len(left) and not _nothing_left(gram, basis, left):
            continue
        return _unscaled(root, basis, scale, tables)
    return None


def inverse_on_basis(gram: Floats, tables: int) -> Inverse | None:
    """Return the inverse for classes that are known to be independent; None where rounding does not allow it."""
    scale = 1 / np.sqrt(np.diag(gram))
    basis = np.arange(len(gram))
    root, failed = scipy.linalg.lapack.dpotrf(_scaled(gram, scale), lower=1, clean=1, overwrite_a=1)
    return None if failed else _unscaled(root, basis, scale, tables)


def _unscaled(root: Floats, basis: Ints, scale: Floats, tables: int) -> Inverse:
    """Return the inverse in its own units, from the factor in scaled ones."""
    matrix = _inverted(root)
    # Factor and inverse are those of a matrix that is off by less than 4 rank × 2⁻⁵³ in scaled units (ten
    # times what was ever seen). Relative to h that is at most tables × norm of the inverse times as much.
    norm = np.sqrt(2 * np.vdot(matrix.T, matrix.T) - np.vdot(np.diag(matrix), np.diag(matrix)))
    matrix *= scale[basis, None]
    matrix *= scale[basis]
    return Inverse(basis, matrix, float(4 * tables * len(basis) * norm / DOUBLE_LIMIT))


def _scaled(gram: Floats, scale: Floats, basis: Ints | None = None) -> Floats:
    """Return a copy with ones on the diagonal, in Fortran's order; it is symmetric, so that rows may be columns."""
    copy = gram.copy() if basis is None else gram[np.ix_(basis, basis)]
    scale = scale if basis is None else scale[basis]
    copy *= scale
    copy *= scale[:, None]
    return copy.T


def _inverted(root: Floats) -> Floats:
    """Return the lower triangle of the inverse, from the factor."""
    if len(root) > FEW:
        inverse, _ = scipy.linalg.lapack.dpotri(root, lower=1, overwrite_c=1)
        return np.asarray(inverse)
    inverse, _ = scipy.linalg.lapack.dtrtri(root, lower=1)
    return np.tril(inverse.T @ inverse)


# ── proof by coefficients ──────────────────────────────────────────────────────────────────────


def _unproved(gram: Floats, basis: Ints, dropped: Ints, root: Floats, scale: Floats) -> Ints:
    """Return the dropped classes for which no whole-number combination z of the basis is found.

    Such a combination is a proof: if XᵀWX z = 0 without any rounding, then zᵀXᵀWXz = 0, and Xz = 0.
    """
    step = max(1, ENTRIES // len(gram))
    left = [dropped[:0]]
    for start in range(0, len(dropped), step):
        part = dropped[start : start + step]
        weights = scipy.linalg.lapack.dpotrs(root, gram[np.ix_(basis, part)] * scale, lower=1)[0] * scale
        multiple = np.array([_multiple(column) for column in weights.T])
        z = np.zeros((len(gram), len(part)))
        z[basis] = np.rint(weights * multiple)
        z[part, np.arange(len(part))] = -multiple
        unsafe = np.abs(z).sum(axis=0) * gram.max() >= DOUBLE_LIMIT
        left.append(part[unsafe | (gram @ z).any(axis=0)])
    return np.concatenate(left)


def _multiple(weights: Floats) -> float:
    """Return a number that seems to make all of these whole."""
    multiple = 1.0
    while multiple < LARGEST_MULTIPLE:
        off = np.abs(weights * multiple - np.rint(weights * multiple))
        worst = int(off.argmax())
        more = Fraction(float(weights[worst] * multiple)).limit_denominator(1000).denominator
        if more == 1:
            break
        multiple *= more
    return multiple


# ── proof by primes ────────────────────────────────────────────────────────────────────────────


def _nothing_left(gram: Floats, basis: Ints, rest: Ints) -> bool:
    """Return whether the basis leaves nothing of the rest, modulo two primes.

    Whole numbers again, but of any size: many tables together have coefficients that cannot be
    guessed. What is not zero is a multiple of both primes only by chance, one in 10¹³. A prime that
    divides a pivot decides nothing, and the next one is tried.
    """
    results = (_left_modulo(gram, basis, rest, prime) for prime in PRIMES)
    return list(islice((left for left in results if left is not None), 2)) == [False, False]


def _left_modulo(gram: Floats, basis: Ints, rest: Ints, prime: int) -> bool | None:
    """Return whether something is left of the rest; None where the prime divides a pivot."""
    order = np.concatenate([basis, rest])
    a = _residues(gram[np.ix_(order, order)], prime)
    for start in range(0, len(basis), STEP):
        stop = min(start + STEP, len(basis))
        inverse = _inverse_modulo(a[start:stop, start:stop], prime)
        if inverse is None:
            return None
        right = _residues(inverse @ a[start:stop, stop:], prime)
        for top in range(stop, len(a), STEP):
            some = a[top : top + STEP]
            some[:, stop:] = _residues(some[:, stop:] - some[:, start:stop] @ right, prime)
    return bool(a[len(basis) :, len(basis) :].any())


def _inverse_modulo(a: Floats, prime: int) -> Floats | None:
    size = len(a)
    table = np.hstack([a, np.eye(size)])
    for row in range(size):
        pivot = int(table[row, row]) % prime
        if pivot == 0:
            return None
        table[row] = _residues(table[row] * pow(pivot, -1, prime), prime)
        others = table[:, row].copy()
        others[row] = 0
        table = _residues(table - np.outer(others, table[row]), prime)
    return table[:, size:]


def _residues(a: Floats, prime: int) -> Floats:
    """Reduce to what division by the prime leaves, between −prime/2 and prime/2; in place."""
    for some in np.array_split(a, 1 + a.size // ENTRIES):
        np.subtract(some, np.rint(some / prime) * prime, out=some)
    return a
