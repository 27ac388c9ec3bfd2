"""Solving a scan's statistics for people: F alone says how large an interaction is, and not its sign.

For a 0/1 metric F of two arms by two is (a·y)² over nearly the same variance everywhere, and whoever knows the arms
knows a. So every F is an equation |a·y| = b: phase retrieval. Approximate message passing solves it, from F to
three, two or even one digit, where there are about 1.7 times as many F as people. What fits is proved by computing
every F again. F does not change where 0 and 1 change places for everybody, so of the two answers the rarer ones are
taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kanab.inspection.attack.background import MOST_ENTRIES, Background, Floats, Ints, KnownScan
from kanab.inspection.attack.findings import Finding

SCANS = "scan statistics"

LEAST_PER_PERSON = 1.2
"""With fewer F per person than this nothing is tried."""

RATES = (0.5, 0.35, 0.2, 0.1, 0.04)
"""Shares of ones that are tried."""

STARTS, ROUNDS = 6, 120
"""Starts with each of them, and rounds at most."""

PROVED = 0.98
"""So many of the F must come out as printed; a few may be on the edge of rounding."""

_HELD_BACK = 0.5  # of every step, so that message passing does not swing


def find_from_statistics(background: Background, k: int) -> list[Finding]:
    """Find everybody's value of 0/1 metrics whose F a scan shows for many pairs."""
    findings: list[Finding] = []
    for scan in background.scans:
        values = solve_statistics(scan) if k > 1 else None
        if values is not None:
            findings += [
                Finding(SCANS, scan.title, scan.metric, 1, f"person {person + 1} has {scan.metric} = {value}")
                for person, value in zip(scan.who.tolist(), values.tolist(), strict=True)
            ]
    return findings


def solve_statistics(scan: KnownScan) -> Ints | None:
    """Return everybody's 0 or 1 if some values give every F that the scan shows; else None."""
    people, tests = scan.sides.shape[0], len(scan.f)
    if tests < LEAST_PER_PERSON * people or tests * people > MOST_ENTRIES // 2 or not people:
        return None
    contrasts = _Contrasts(scan)
    rng = np.random.default_rng(0)
    for _ in range(STARTS):
        for rate in RATES:
            values = contrasts.pass_messages(rate, rng)
            if contrasts.fits(values):
                return values if 2 * int(values.sum()) <= people else 1 - values
    return None


@dataclass(frozen=True, eq=False)
class _Contrasts:
    """The contrast of every test as a row of weights of people, each of length one."""

    scan: KnownScan

    @cached_property
    def cells(self) -> Ints:
        """The class of every person in every test, of four; 4 for people who are not in it."""
        first, second = (self.scan.sides[:, places] for places in self.scan.tests.T)
        return np.where((first < 0) | (second < 0), 4, 2 * first + second)

    @cached_property
    def counts(self) -> Floats:
        """People by test and class."""
        return self._by_class(np.ones(len(self.cells)))

    def _by_class(self, values: Floats) -> Floats:
        return np.stack([values @ (self.cells == place) for place in range(4)], axis=1)

    @cached_property
    def weights(self) -> Floats:
        """One row per test, one column per person."""
        signs = np.array([1.0, -1.0, -1.0, 1.0, 0.0])
        counts = np.column_stack([self.counts, np.ones(len(self.counts))])
        rows = signs[self.cells.T] / np.take_along_axis(counts, self.cells.T, axis=1)
        return np.asarray(rows / np.sqrt((1 / self.counts).sum(axis=1, keepdims=True)))

    @cached_property
    def strongest(self) -> Floats:
        """The direction in which large F point most: where to start."""
        large = np.minimum(self.scan.f, 9.0) - 1
        _, vectors = np.linalg.eigh(self.weights.T @ (self.weights * large[:, None]))
        return np.asarray(vectors[:, -1])

    def pass_messages(self, rate: float, rng: np.random.Generator) -> Ints:
        """Return 0/1 values found by approximate message passing from a start near the strongest direction."""
        spread = np.sqrt(rate * (1 - rate))
        sizes = np.sqrt(self.scan.f) * spread
        noise = (sizes * self.scan.error / 2) ** 2 + 1e-6
        size = self.weights.shape[1]
        x = np.sqrt(size) * rng.choice([-1, 1]) * self.strongest + 0.3 * rng.normal(size=size)
        x, variance = np.clip(spread * x, -rate, 1 - rate), np.full(size, spread**2 / 2)
        pulls, squares = np.zeros(len(sizes)), self.weights**2
        for _ in range(ROUNDS):
            about = squares @ variance
            expected = self.weights @ x - about * pulls
            wide = about + noise
            signed = np.tanh(np.clip(expected * sizes / wide, -50, 50))
            pulls += _HELD_BACK * ((sizes * signed - expected) / wide - pulls)
            slopes = (1 - sizes**2 * (1 - signed**2) / wide) / wide
            width = 1 / np.maximum(np.abs(squares.T @ slopes), 1e-9)
            near = x + width * (self.weights.T @ pulls)
            chance = 1 / (1 + np.exp(-np.clip((near - 0.5 + rate) / width + np.log(rate / (1 - rate)), -40, 40)))
            moved = chance - rate
            done = np.abs(moved - x).max() < 1e-3
            x = x + _HELD_BACK * (moved - x)
            variance = variance + _HELD_BACK * (chance * (1 - chance) - variance) + 1e-9
            if done:
                break
        return np.asarray(x > 0.5 - rate, dtype=np.int64)

    def fits(self, values: Ints) -> bool:
        """Tell whether these values give the F that the scan shows, to the digits that it has."""
        sums, n = self._by_class(values.astype(np.float64)), self.counts
        with np.errstate(invalid="ignore", divide="ignore"):
            contrast = (sums / n) @ np.array([1.0, -1.0, -1.0, 1.0])
            rest = (sums * (n - sums) / n).sum(axis=1) / (n.sum(axis=1) - 4)
            computed = contrast**2 / (1 / n).sum(axis=1) / rest
            off = np.abs(computed - self.scan.f) / np.maximum(self.scan.f, 1e-12)
        return bool(np.mean(off <= self.scan.error) >= PROVED)
