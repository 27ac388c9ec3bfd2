"""Is every test's size and every interval's coverage what it says? All methods, on the same drawn people.

Four worlds (normal values, unequal variances, a rate of 1 %, skewed amounts) at 50/50 and with 10 % in B, or with
10 % in each of three arms. Everybody has three covariates and a second metric. People are drawn and added up with
NumPy; everything after the sums is done by Kanab's own functions, one tally at a time. These are the tests by
themselves: plain rates by the score test, all else by t; what a readout makes of them is in bench_verdicts.py.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from time import process_time
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import kanab as kb
from kanab.stats.arms import many_to_one, omnibus
from kanab.stats.effect import Effect
from kanab.stats.margins import Margin, against_margin
from kanab.stats.multiplicity import simultaneous_intervals
from kanab.stats.relative import relative_delta
from kanab.stats.sequential import any_time_look, planned_look
from kanab.tally.moments import Cross, Moments
from kanab.tally.tally import Tally

Floats = NDArray[np.float64]
Hits = dict[str, list[bool]]

SHAPE = (4, 2, 2)  # levels of the three covariates
WEIGHTS = np.einsum("i,j,k->ijk", [0.4, 0.8, 1.2, 1.6], [0.8, 1.2], [0.9, 1.1]).ravel()  # their mean is 1
SCORES = (WEIGHTS - 1) / WEIGHTS.std()
LOOKS = 5
CHUNK = 100
ALPHA = 0.05


@dataclass(frozen=True)
class World:
    """How one metric comes about; ``spread`` of B is so many times that of A."""

    name: str
    kind: Literal["number", "rate", "amount"]
    people: int
    mean: float
    spread: float = 1.0

    @property
    def metric(self) -> kb.Metric:
        if self.kind == "rate":
            return kb.Metric("y", 1, (0.0, 1.0))
        return kb.Metric("y", 1_000 if self.kind == "number" else 100)

    @property
    def deviation(self) -> float:
        """Of one person of the control: 2, or a fifth who pay log-normal amounts."""
        return math.sqrt(0.2 * (self.mean / 0.2) ** 2 * (1 + 1.5**2) - self.mean**2) if self.kind == "amount" else 2.0

    def noise(self, shares: dict[str, float]) -> kb.planning.Spread:
        if self.kind == "rate":
            return kb.planning.spread_of_rate(self.mean, shares=shares)
        deviations = {"A": self.deviation, "B": self.deviation * self.spread}
        return kb.planning.spread_of_amounts(deviations, mean=self.mean, shares=shares, grows=self.kind == "amount")

    def values(self, rng: np.random.Generator, cell: NDArray[np.int64], lift: Floats, spread: Floats) -> Floats:
        """Whole steps of the metric's grid; ``lift`` is each person's change of the mean."""
        if self.kind == "rate":
            return (rng.random(cell.shape) < (self.mean + lift) * WEIGHTS[cell]).astype(np.float64)
        if self.kind == "number":
            own = 0.6 * SCORES[cell] + 0.8 * rng.standard_normal(cell.shape)
            return np.rint(1_000 * (self.mean + lift + 2 * spread * own))
        pays = rng.random(cell.shape) < 0.2 * WEIGHTS[cell]
        variance = math.log1p(1.5**2)
        paid = np.exp(math.sqrt(variance) * rng.standard_normal(int(pays.sum())) - variance / 2)
        found = np.zeros(cell.shape)
        found[pays] = np.rint(100 * paid * (self.mean + lift[pays]) / 0.2)
        return found


WORLDS = (
    World("normal", "number", 2_000, 5.0),
    World("B varies 3x", "number", 2_000, 5.0, 3.0),
    World("rate 1 %", "rate", 20_000, 0.01),
    World("amounts", "amount", 10_000, 4.0),
)


def drawn(
    world: World, shares: tuple[float, ...], effect: float, runs: int, rng: np.random.Generator, *, both: bool = False
) -> Iterator[Floats]:
    """Per study n, Σy, Σy² (and Σz, Σz², Σyz, if both metrics are wanted) by look, arm and covariates."""
    cells = LOOKS * len(shares) * len(WEIGHTS)
    look = np.arange(world.people) * LOOKS // world.people
    for start in range(0, runs, CHUNK):
        many = min(CHUNK, runs - start)
        shape = (many, world.people)
        arm = np.searchsorted(np.cumsum(shares)[:-1], rng.random(shape), side="right")
        cell = rng.integers(0, len(WEIGHTS), shape)
        in_b = arm == 1
        y = world.values(rng, cell, effect * in_b, np.where(in_b, world.spread, 1.0))
        code = (np.arange(many)[:, None] * cells + (look * len(shares) + arm) * len(WEIGHTS) + cell).ravel()
        parts = [np.ones(code.size), y.ravel(), (y * y).ravel()]
        if both:
            z = 1.0 + rng.poisson(WEIGHTS[cell])
            parts += [z.ravel(), (z * z).ravel(), (y * z).ravel()]
        sums = np.stack([np.bincount(code, part, many * cells) for part in parts])
        yield from np.moveaxis(sums.reshape(len(parts), many, LOOKS, len(shares), *SHAPE), 1, 0)


def tables(world: World, study: Floats, keep: tuple[int, ...], *, ratio: bool = False) -> Tally:
    """One tally of arms and some of the covariates, with squares per class."""
    names = [f"c{place}" for place in keep]
    factors = [kb.tally.Factor("arm", tuple("ABCD"[: study.shape[1]]), "arm")]
    factors += [
        kb.tally.Factor(name, tuple(range(SHAPE[place])), "covariate", tuple(map(float, range(SHAPE[place]))))
        for name, place in zip(names, keep, strict=True)
    ]
    gone = tuple(2 + place for place in range(3) if place not in keep)
    cells = [part.astype(np.int64).astype(object) for part in study.sum(axis=gone)]
    n, y, yy, *rest = cells
    axes = ("arm", *names)
    moments = [Moments(world.metric, n, y, {} if world.kind == "rate" else {axes: yy})]
    if not ratio:
        return Tally(tuple(factors), n, tuple(moments))
    z, zz, yz = rest
    moments.append(Moments(kb.Metric("z"), n, z, {axes: zz}))
    arms = [part.reshape(len(part), -1).sum(axis=1) for part in (n, y, z, yy, zz, yz)]
    cross = Cross(("y", "z"), ("arm",), arms[0], (arms[1], arms[2]), (arms[3], arms[4]), arms[5])
    return Tally(tuple(factors), n, tuple(moments), (cross,))


def note(hits: Hits, name: str, effect: Effect, truth: float) -> None:
    """Does it ring, and does the interval hold the truth? What nothing varies in is in neither."""
    if effect.p is not None and effect.interval is not None:
        hits[f"size: {name}"].append(effect.p < ALPHA)
        hits[f"coverage: {name}"].append(effect.interval[0] <= truth <= effect.interval[1])


def cheap(world: World, study: Floats, truth: float, hits: Hits) -> None:
    """What needs sums per arm only."""
    means = kb.stats.plain_means(tables(world, study, ()))
    effect = kb.stats.against_control(means)
    note(hits, "plain", effect, truth)
    if not effect.testable:
        return
    for name, of in (("relative, Fieller", kb.stats.relative_effect), ("relative, delta", relative_delta)):
        found = of(means, effect).interval
        hits[f"coverage: {name}"].append(found is not None and found[0] <= truth / world.mean <= found[1])
    if truth:
        at_the_edge = {
            "superiority at its margin": Margin("superiority", truth),
            "non-inferiority at its margin": Margin("non-inferiority", truth, "lower"),
            "equivalence at its margin": Margin("equivalence", truth),
        }
        for name, margin in at_the_edge.items():
            hits[f"size: {name}"].append(against_margin(effect, margin).p < ALPHA)


def costly(world: World, study: Floats, truth: float, hits: Hits) -> None:
    """What needs covariates or products."""
    one = tables(world, study, (0,), ratio=True)
    note(hits, "adjusted (Lin, Ding)", kb.stats.adjusted_effect(one, "y", variance="paper"), truth)
    note(hits, "adjusted, exact variance", kb.stats.adjusted_effect(one, "y", variance="exact"), truth)
    note(hits, "ratio", kb.stats.against_control(kb.stats.ratio_means(one, "y", "z")), truth / 2)
    note(hits, "ratio, adjusted", kb.stats.against_control(kb.stats.adjusted_ratio_means(one, "y", "z")), truth / 2)
    pairs = [tables(world, study, pair) for pair in combinations(range(3), 2)]
    note(hits, "additive, three covariates", kb.stats.against_control(kb.stats.additive_means(pairs)), truth)
    for name, fitted in (
        ("one variance (OLS)", kb.stats.fit(one, "arm + c0", "y")),
        ("HC0", kb.stats.fit(one, "arm + c0", "y", errors="HC0")),
        ("HC3", kb.stats.fit(one, "arm + c0", "y", errors="HC3")),
    ):
        low, high = fitted.intervals[1]
        hits[f"size: {name}"].append(bool(fitted.p[1] < ALPHA))
        hits[f"coverage: {name}"].append(bool(low <= truth <= high))


def looked(world: World, study: Floats, truth: float, nominal: dict[str, list[float]], hits: Hits) -> None:
    """Five looks: does any ring, and do all intervals hold?"""
    so_far = study.cumsum(axis=1)
    effects = [kb.stats.difference_in_means(tables(world, so_far[:, look], ())) for look in range(LOOKS)]
    if not all(effect.testable for effect in effects):
        return
    for name, levels in nominal.items():
        pairs = list(zip(effects, levels, strict=True))
        hits[f"size: {name}, five looks"].append(any(effect.p <= level for effect, level in pairs))
        hits[f"coverage: {name}, five looks"].append(all(_holds(effect, truth, level) for effect, level in pairs))


def _holds(effect: Effect, truth: float, alpha: float) -> bool:
    low, high = effect.interval_at(alpha)
    return bool(low <= truth <= high)


def nominal_levels(world: World) -> dict[str, list[float]]:
    """Below which p each look may stop: it depends on people alone."""
    people = [world.people * (look + 1) // LOOKS for look in range(LOOKS)]
    rows = {"arm": ["A", "B"] * 4, "y": [1, 2, 3, 4, 5, 6, 7, 9]}
    any_effect = kb.stats.difference_in_means(kb.count_columns(rows, arm="arm", metrics=["y"]))
    found = {
        kind: [
            planned_look(any_effect, people[: look + 1], looks=LOOKS, spending=kind).nominal for look in range(LOOKS)
        ]
        for kind in ("obrien-fleming", "pocock")
    }
    return found | {
        "every p": [ALPHA] * LOOKS,
        "always": [any_time_look(any_effect, n, optimal_at=world.people).nominal for n in people],
    }


def family(world: World, study: Floats, hits: Hits) -> None:
    """Four arms without any effect: does any ring, and do all intervals hold together?"""
    means = kb.stats.plain_means(tables(world, study, ()))
    if np.any(means.sample <= 0):
        return
    hits["size: omnibus, four arms"].append(omnibus(means).p < ALPHA)
    effects = [kb.stats.against_control(means, arm) for arm in "BCD"]
    least = min(effect.p for effect in effects)
    rings = 3 * least < ALPHA
    if rings != (least < ALPHA):  # else it is certain: Dunnett's p lies between a single one and Bonferroni's
        rings = any(row.p_adjusted < ALPHA for row in many_to_one(means))
    hits["size: Dunnett, any of three"].append(rings)
    hits["coverage: Dunnett, all of three"].append(not rings)  # its intervals agree with its p
    for name, method in (("Bonferroni", "bonferroni"), ("Holm", "holm"), ("Benjamini-Hochberg", "bh")):
        rows = simultaneous_intervals(effects, method)
        hits[f"size: {name}, any of three"].append(any(row.p_adjusted < ALPHA for row in rows))
        if name == "Bonferroni":
            hits[f"coverage: {name}, all of three"].append(all(row.interval[0] <= 0 <= row.interval[1] for row in rows))


def calibrated(world: World, uneven: bool, runs: int, rng: np.random.Generator) -> dict[str, tuple[float, int]]:
    """Every share that was counted, and over how many studies."""
    shares = (0.9, 0.1) if uneven else (0.5, 0.5)
    effect = kb.planning.solve_power(
        world.noise(dict(zip("AB", shares, strict=True))), people=world.people, power=0.8
    ).effect
    nominal = nominal_levels(world)
    still: Hits = defaultdict(list)
    moved: Hits = defaultdict(list)
    for truth, hits in ((0.0, still), (effect, moved)):
        for study in drawn(world, shares, truth, runs, rng, both=True):
            whole = study.sum(axis=1)
            cheap(world, whole, truth, hits)
            costly(world, whole, truth, hits)
            looked(world, study, truth, nominal, hits)
        for study in drawn(world, shares, truth, runs, rng):
            cheap(world, study.sum(axis=1), truth, hits)
    for study in drawn(world, (0.7, 0.1, 0.1, 0.1) if uneven else (0.25,) * 4, 0.0, runs, rng):
        family(world, study.sum(axis=1), still)
    found = {name: _share(values) for name, values in still.items() if name.startswith("size")}
    found |= {name: _share(values) for name, values in still.items() if "all of three" in name}
    found |= {name: _share(values) for name, values in moved.items() if name.startswith("coverage") or "margin" in name}
    return found | {"power, planned .80: plain": _share(moved["size: plain"])}


def _share(values: list[Any]) -> tuple[float, int]:
    return float(np.mean(values)), len(values)


def printed(found: dict[str, dict[str, tuple[float, int]]], what: str) -> None:
    """One table, a line per method, a column per world and split."""
    print()
    for place, title in ((0, "metric"), (1, "split")):
        words = [name.rpartition(" ")[2 * place] for name in found]
        print(f"{f'{what}, {title}':<34}" + "".join(f"{word:>13}" for word in words))
    rows = dict.fromkeys(row for column in found.values() for row in column if row.startswith(what))
    for row in rows:
        cells = [f"{column[row][0]:>13.3f}" if row in column else f"{'-':>13}" for column in found.values()]
        print(f"{row.partition(': ')[2]:<34}" + "".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    runs = parser.parse_args().runs
    start = process_time()
    print(
        f"{runs:,} studies a case, {2 * runs:,} for plain, relative and margins; "
        f"standard error {math.sqrt(0.0475 / runs):.4f}"
    )
    rng = np.random.default_rng(6)
    found = {}
    for world in WORLDS:
        for uneven in (False, True):
            found[f"{world.name} {'10/90' if uneven else '50/50'}"] = calibrated(world, uneven, runs, rng)
    for what in ("size", "coverage", "power, planned .80"):
        printed(found, what)
    print(f"\n{process_time() - start:.0f} s of processor time")


if __name__ == "__main__":
    main()
