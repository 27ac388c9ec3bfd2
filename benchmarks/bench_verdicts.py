"""How often is a verdict wrong in the hard cases: rare events, skewed amounts, small arms, several looks?

{50/50, 10/90} × {rate 1 %, rate 10 %, log-normal amounts, spend with 90 % zeros} × {200, 2,000, 50,000 people}, for six
ways to read an effect. *Before* is the t test that each rests on, taken at its word: Welch's, Fieller's, with Ding's
variance, of linearised ratios, at Pocock's boundaries, at any time. *After* is the verdict of a readout.

Size: how often there is a verdict where there is no effect. With 30 % more in B: how often the verdict goes the wrong
way, how often the interval holds the truth (over looks: all intervals), and how often the verdict is right (power).

People are drawn and added up with NumPy; everything after the sums is done by Kanab's own functions, wherever a test
statistic is large enough for a verdict or a miss to be possible.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

import kanab as kb
from kanab.analysis.compare import AnalyzedTables, effect_rows, metric_means, with_off_commonest
from kanab.analysis.options import Reading, ResolvedOptions
from kanab.plan.model import ExperimentPlan
from kanab.stats.sequential import mixture_z
from kanab.stats.spending import spent_by, z_boundaries
from kanab.tally.moments import Cross, Moments
from kanab.tally.tally import Tally

Floats = NDArray[np.float64]
Interval = tuple[float, float]

ALPHA = 0.05
LIFT = 0.3
PLANNED_LOOKS, ALL_LOOKS = 5, 50
POSSIBLE = 1.5
"""Where no statistic is beyond this, nothing rings and no interval misses."""

MOST = 1e7
"""Beyond all amounts: what a source without declared bounds says of its values."""

LEVELS, WEIGHTS = np.array([0.5, 0.3, 0.2]), np.array([0.5, 1.0, 2.25])
"""Shares of the covariate's levels, and what rates and amounts are multiplied with there: 1 in the mean."""

FIGURES = {
    "size": "Verdicts where there is no effect",
    "wrong": "Verdicts in the wrong direction, 30 % more in B",
    "coverage": "Intervals that hold the truth, 30 % more in B",
    "power": "Verdicts in the right direction, 30 % more in B",
}
READINGS = ("plain", "relative", "adjusted", "ratio", "Pocock × 5", "any time × 50")
PEOPLE = (200, 2_000, 50_000)


@dataclass(frozen=True)
class World:
    """How one metric comes about: a rate, of which those who have it may pay log-normal amounts."""

    name: str
    rate: float
    deviation: float | None = None

    @property
    def binary(self) -> bool:
        return self.deviation is None

    @property
    def scale(self) -> int:
        return 1 if self.binary else 10

    @property
    def metric(self) -> kb.Metric:
        return kb.Metric("y", 1, (0.0, 1.0)) if self.binary else kb.Metric("y", self.scale)

    @property
    def mean(self) -> float:
        return self.rate * (1.0 if self.deviation is None else math.exp(self.deviation**2 / 2))

    def values(self, rng: np.random.Generator, times: Floats) -> Floats:
        """Whole steps of the metric's grid; ``times`` is what everybody's rate or amount is multiplied with."""
        if self.deviation is None:
            return (rng.random(times.shape) < self.rate * times).astype(np.float64)
        steps = np.zeros(times.shape)
        pays = rng.random(times.shape) < self.rate
        paid = np.exp(self.deviation * rng.standard_normal(int(pays.sum())))
        steps[pays] = np.rint(self.scale * paid * times[pays])
        return steps


WORLDS = (
    World("rate 1 %", 0.01),
    World("rate 10 %", 0.1),
    World("log-normal", 1.0, 2.0),
    World("spend, 90 % zeros", 0.1, 1.5),
)


@dataclass(frozen=True)
class Estimates:
    """Estimates with the errors that the t tests of old give them: arrays of one shape."""

    estimate: Floats
    se: Floats
    df: Floats

    def t(self, truth: float = 0.0) -> Floats:
        """Return t against a value; 0 where nothing varies, so that nothing can be tested."""
        with np.errstate(all="ignore"):
            return np.where(self.se > 0, (self.estimate - truth) / self.se, 0.0)

    def p(self, truth: float = 0.0) -> Floats:
        return np.asarray(2 * special.stdtr(self.df, -np.abs(self.t(truth))))


def difference(means: Floats, variances: Floats, people: Floats, times: float) -> Estimates:
    """Return the second arm's mean minus so many times the first's (axis 1), with the df of Welch's difference."""
    (a, b), (va, vb), (na, nb) = (np.moveaxis(part, 1, 0) for part in (means, variances, people))
    with np.errstate(all="ignore"):
        df = (va + vb) ** 2 / (va**2 / (na - 1) + vb**2 / (nb - 1))
    return Estimates(b - times * a, np.sqrt(vb + times**2 * va), np.where(np.isfinite(df), df, 1.0))


def score_z(n: Floats, s: Floats, rate: Floats, lift: float) -> Floats:
    """Return |z| of a difference of rates from its truth, with the variance that the truth has."""
    (a, b), (na, nb) = (np.moveaxis(part, 1, 0) for part in (s / n, n))
    high = rate * (1 + lift)
    variance = rate * (1 - rate) / na + high * (1 - high) / nb
    with np.errstate(all="ignore"):
        return np.where(variance > 0, np.abs(b - a - rate * lift) / np.sqrt(variance), 0.0)


def z_of_p(p: Floats) -> Floats:
    return np.asarray(-special.ndtri(p / 2))


def first(verdicts: Floats) -> Floats:
    """Return the first verdict of every study, 0 where there is none."""
    place = np.argmax(verdicts != 0, axis=1)
    return np.asarray(verdicts[np.arange(len(verdicts)), place])


class Count:
    """Verdicts (1, −1 or 0) and whether intervals hold the truth, over all studies."""

    def __init__(self) -> None:
        self.verdicts: dict[float, list[Floats]] = {0.0: [], LIFT: []}
        self.covers: list[Floats] = []

    def add(self, lift: float, verdicts: Any, covers: Any) -> None:
        """Add studies; those without an interval are in no coverage."""
        self.verdicts[lift].append(np.asarray(verdicts, dtype=np.float64))
        if lift:
            self.covers.append(np.asarray(covers, dtype=np.float64))

    @property
    def figures(self) -> dict[str, float]:
        null, lifted = (np.concatenate(self.verdicts[lift]) for lift in (0.0, LIFT))
        covers = np.concatenate(self.covers)
        return {
            "size": float(np.mean(null != 0)),
            "wrong": float(np.mean(lifted < 0)),
            "coverage": float(np.mean(covers[~np.isnan(covers)])) if not np.isnan(covers).all() else math.nan,
            "power": float(np.mean(lifted > 0)),
        }


@dataclass(frozen=True)
class BeforeAfter:
    """Counts of one reading."""

    before: Count
    after: Count


Counts = dict[str, BeforeAfter]
EVERYTHING = (-math.inf, math.inf)


# ── what Kanab says ────────────────────────────────────────────────────────────────────────────

ARMS = kb.tally.Factor("arm", ("A", "B"), "arm")
COVARIATE = kb.tally.Factor("c", ("1", "2", "3"), "covariate")
PLAIN, ADJUSTED = ExperimentPlan("arm"), ExperimentPlan("arm", adjust=("c",))


@dataclass(frozen=True)
class Said:
    """The verdict of a readout (1, −1 or 0) and its intervals; by itself, that nothing can be said."""

    verdict: int = 0
    interval: Interval | None = EVERYTHING
    relative: Interval | None = EVERYTHING


def said(plan: ExperimentPlan, tables: dict[str, Tally], metric: str = "y", looks: kb.Looks | None = None) -> Said:
    """Return what the row that carries the verdict says."""
    ratios = [("y", "z")] if metric == "y/z" else []
    means = metric_means(AnalyzedTables(plan, tables, {}), ratios, Reading(), [])
    if looks is not None and looks.method == "always":
        means = with_off_commonest(means, tables, {"y": (0.0, MOST)})
    rows = effect_rows([of for of in means if of.means.metric == metric], ResolvedOptions("A", looks=looks))
    for row in rows:
        if row.carries_verdict:
            return Said({"up": 1, "down": -1}.get(row.verdict, 0), row.safe, row.relative_safe)
    return Said()


@lru_cache(maxsize=100_000)
def said_of_arms(world: World, sums: tuple[tuple[float, ...], ...], looks: kb.Looks | None = None) -> Said:
    """Return what is said of people, sums and squares by arm."""
    n, s, q = (np.array([int(value) for value in part], dtype=object) for part in sums)
    moments = Moments(world.metric, n, s, {} if world.binary else {("arm",): q})
    return said(PLAIN, {"arm": Tally((ARMS,), n, (moments,))}, looks=looks)


def holds(interval: Interval | None, truth: float) -> float:
    """Return whether the truth is inside; not a number where there is no interval."""
    return math.nan if interval is None else float(interval[0] <= truth <= interval[1])


# ── one table that grows ───────────────────────────────────────────────────────────────────────


def growing(
    world: World, sizes: tuple[int, int], lift: float, studies: int, rng: np.random.Generator
) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Draw studies; give n, Σy and Σy², each by study, arm and look."""
    chunk = max(1, 4_000_000 // sum(sizes))
    ends = [np.maximum(2, np.arange(1, ALL_LOOKS + 1) * n // ALL_LOOKS) for n in sizes]
    for start in range(0, studies, chunk):
        many = min(chunk, studies - start)
        arms = []
        for size, end, times in zip(sizes, ends, (1.0, 1.0 + lift), strict=True):
            y = world.values(rng, np.full((many, size), times))
            arms.append([np.tile(end, (many, 1)), *(np.cumsum(part, axis=1)[:, end - 1] for part in (y, y * y))])
        n, s, q = (np.stack(part, axis=1).astype(np.float64) for part in zip(*arms, strict=True))
        yield n, s, q


def read_looks(world: World, sums: tuple[Floats, Floats, Floats], lift: float, counts: Counts) -> None:
    """Read the last look by itself, five planned looks, and fifty at any time."""
    n, s, q = sums
    truth, people = world.mean * lift, n[0].sum(axis=0).astype(int)
    mean = s / n / world.scale
    variance = np.maximum(0.0, q / world.scale**2 - n * mean**2) / n / (n - 1)
    old = difference(mean, variance, n, 1.0)
    of_ratio = difference(mean, variance, n, 1.0 + lift)
    rings, misses = np.abs(old.t()), np.abs(old.t(truth))
    if world.binary:
        rings = np.maximum(rings, score_z(n, s, np.sum(s, axis=1) / np.sum(n, axis=1), 0.0))
        misses = np.maximum(misses, score_z(n, s, np.full(rings.shape, world.rate), lift))

    def ask(study: int, look: int, looks: kb.Looks | None = None) -> Said:
        return said_of_arms(world, tuple(tuple(part[study, :, look]) for part in sums), looks)

    last = slice(ALL_LOOKS - 1, ALL_LOOKS)
    far = np.maximum(misses, np.abs(of_ratio.t()))[:, last].max(axis=1)
    answers = [
        ask(study, ALL_LOOKS - 1) if max(rings[study, -1], far[study]) > POSSIBLE else Said() for study in range(len(n))
    ]
    direction = np.sign(old.estimate) * (old.p() < ALPHA)
    counts["plain"].before.add(lift, direction[:, -1], old.p(truth)[:, -1] > ALPHA)
    counts["plain"].after.add(lift, [a.verdict for a in answers], [holds(a.interval, truth) for a in answers])
    counts["relative"].before.add(lift, direction[:, -1], of_ratio.p()[:, -1] > ALPHA)
    counts["relative"].after.add(
        lift, [a.verdict * (holds(a.relative, 0.0) == 0) for a in answers], [holds(a.relative, lift) for a in answers]
    )
    planned = np.arange(1, PLANNED_LOOKS + 1) * ALL_LOOKS // PLANNED_LOOKS - 1
    spent = tuple(spent_by(share / PLANNED_LOOKS, ALPHA, 2, "pocock") for share in range(1, PLANNED_LOOKS + 1))
    pocock = np.array(z_boundaries(tuple(people[planned].astype(float)), spent, 2))
    designs = [
        kb.Looks("spending", looks=PLANNED_LOOKS, spending="pocock", earlier=tuple(people[planned[:place]].tolist()))
        for place in range(PLANNED_LOOKS)
    ]
    always = kb.Looks("always", tuned_at=int(people[-1]))
    for name, looks, boundary, reads in (
        ("Pocock × 5", planned, pocock, designs),
        ("any time × 50", np.arange(ALL_LOOKS), mixture_z(people / people[-1], ALPHA, 2), [always] * ALL_LOOKS),
    ):
        clear = np.sign(old.estimate[:, looks]) * (z_of_p(old.p()[:, looks]) >= boundary)
        counts[name].before.add(lift, first(clear), np.all(z_of_p(old.p(truth)[:, looks]) < boundary, axis=1))
        possible = boundary.min() - 0.9
        verdicts, covers = np.zeros(len(n)), np.ones(len(n))
        for study in range(len(n)):
            for look, read in zip(looks, reads, strict=True):
                ringing, missing = not verdicts[study] and rings[study, look] > possible, misses[study, look] > possible
                if ringing or (missing and lift):
                    answer = ask(study, look, read)
                    verdicts[study] = verdicts[study] or answer.verdict
                    covers[study] *= holds(answer.interval, truth) != 0
        counts[name].after.add(lift, verdicts, covers)


# ── a covariate, and a second metric ───────────────────────────────────────────────────────────


def crossed(
    world: World, sizes: tuple[int, int], lift: float, studies: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Draw studies; give n, Σy, Σy², Σz, Σz² and Σyz, by study, arm and level."""
    chunk = max(1, 4_000_000 // sum(sizes))
    arm = np.repeat([0, 1], sizes)
    for start in range(0, studies, chunk):
        many = min(chunk, studies - start)
        level = rng.choice(3, (many, len(arm)), p=LEVELS)
        y = world.values(rng, WEIGHTS[level] * (1 + lift * arm))
        z = 1.0 + rng.poisson(1.0, y.shape)
        cell = ((np.arange(many)[:, None] * 2 + arm) * 3 + level).ravel()
        parts = (np.ones(y.shape), y, y * y, z, z * z, y * z)
        sums = np.stack([np.bincount(cell, part.ravel(), many * 6).reshape(many, 2, 3) for part in parts])
        yield sums.swapaxes(0, 1)


def read_crossed(world: World, sums: Floats, lift: float, counts: Counts) -> None:
    """Read the effect adjusted for the covariate, and the effect on a ratio."""
    truth = world.mean * lift
    n, s, q, z, zz, yz = (sums[:, place] for place in range(6))
    people, everyone = n.sum(axis=2), n.sum(axis=(1, 2))
    with np.errstate(all="ignore"):
        means = s / n / world.scale
        share = n.sum(axis=1) / everyone[:, None]
        within = np.maximum(0.0, q.sum(axis=2) / world.scale**2 - (n * means**2).sum(axis=2))
        change = means[:, 1] - means[:, 0]
        drawn = np.sum(share * (change - np.sum(share * change, axis=1)[:, None]) ** 2, axis=1) / (everyone - 1)
        adjusted = difference(np.sum(share[:, None] * means, axis=2), within / people / (people - 3), people - 2, 1.0)
        ratio = s.sum(axis=2) / z.sum(axis=2) / world.scale
        level = z.sum(axis=2) / people
        squares = q.sum(axis=2) / world.scale**2 - 2 * ratio * yz.sum(axis=2) / world.scale + ratio**2 * zz.sum(axis=2)
        of_ratio = difference(ratio, np.maximum(0.0, squares) / level**2 / people / (people - 1), people, 1.0)
        adjusted = Estimates(adjusted.estimate, np.sqrt(adjusted.se**2 + drawn), adjusted.df)
    for name, old, value in (("adjusted", adjusted, truth), ("ratio", of_ratio, truth / 2)):
        usable = np.isfinite(old.estimate)
        direction = np.where(usable, np.sign(old.estimate) * (old.p() < ALPHA), 0.0)
        counts[name].before.add(lift, direction, np.where(usable, old.p(value) > ALPHA, math.nan))
        answers = []
        for study in range(len(sums)):
            largest = max(abs(old.t()[study]), abs(old.t(value)[study])) if usable[study] else math.inf
            answers.append(_ask(world, sums[study], name) if largest > POSSIBLE - 0.3 else Said())
        counts[name].after.add(lift, [a.verdict for a in answers], [holds(a.interval, value) for a in answers])


def _ask(world: World, sums: Floats, name: str) -> Said:
    n, s, q, z, zz, yz = (part.astype(np.int64).astype(object) for part in sums)
    squares = {} if world.binary else {("arm",): q.sum(axis=1)}
    if name == "adjusted":
        crossed_table = Tally((ARMS, COVARIATE), n, (Moments(world.metric, n, s, squares),))
        return said(ADJUSTED, {"arm": crossed_table.keep(), "arm/c": crossed_table})
    n, s, q, z, zz, yz = (part.sum(axis=1) for part in (n, s, q, z, zz, yz))
    moments = Moments(world.metric, n, s, squares), Moments(kb.Metric("z"), n, z, {("arm",): zz})
    cross = Cross(("y", "z"), ("arm",), n, (s, z), (q, zz), yz)
    return said(PLAIN, {"arm": Tally((ARMS,), n, moments, (cross,))}, "y/z")


# ── tables ─────────────────────────────────────────────────────────────────────────────────────


def calibrated(case: tuple[World, bool, int], studies: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Return every figure of one world, split and size, before and after, by reading."""
    world, uneven, people = case
    small = people // 10 if uneven else people // 2
    sizes = people - small, small
    rng = np.random.default_rng([6, WORLDS.index(world), uneven, people])
    counts = {name: BeforeAfter(Count(), Count()) for name in READINGS}
    for lift in (0.0, LIFT):
        for sums in growing(world, sizes, lift, studies, rng):
            read_looks(world, sums, lift, counts)
        for cells in crossed(world, sizes, lift, studies, rng):
            read_crossed(world, cells, lift, counts)
    return {
        name: {figure: (before, both.after.figures[figure]) for figure, before in both.before.figures.items()}
        for name, both in counts.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2_000, help="studies a case, without and with an effect")
    parser.add_argument("--most", type=int, default=max(PEOPLE), help="leave out cases with more people")
    options = parser.parse_args()
    start = perf_counter()
    cases = [case for case in product(WORLDS, (False, True), PEOPLE) if case[2] <= options.most]
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(calibrated, cases, [options.studies] * len(cases)))
    print(f"{options.studies:,} studies a case; standard error of .05: {math.sqrt(0.0475 / options.studies):.4f}")
    for figure, title in FIGURES.items():
        print(f"\n{title}\n\n| metric | split | people | {' | '.join(READINGS)} |")
        print("|---" * (3 + len(READINGS)) + "|")
        for (world, uneven, people), result in zip(cases, results, strict=True):
            cells = " | ".join(" → ".join(map(shown, result[name][figure])) for name in READINGS)
            print(f"| {world.name} | {'10/90' if uneven else '50/50'} | {people:,} | {cells} |")
    print(f"\n{perf_counter() - start:.0f} s")


def shown(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:.3f}".removeprefix("0")


if __name__ == "__main__":
    main()
