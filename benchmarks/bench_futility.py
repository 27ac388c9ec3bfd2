"""How often is it said that the rest of a plan can hardly change the answer, and what does stopping then cost?

Experiments as Brownian motion, without an effect and with the one that they are planned for: four planned looks
(O'Brien-Fleming), and ten looks at any time with an end. Said below a chance of 5 %: conditional power of the planned
effect (CP), predictive power (PP), and for comparison the power if the present trend went on, which is no rule of
Kanab's. Boundaries and chances are the functions that ``planned_look`` and ``any_time_look`` call, and are first
compared with these looks themselves. ``python benchmarks/bench_futility.py [experiments]``.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from kanab import count_columns
from kanab.datasets import shop_rows
from kanab.stats import difference_in_means
from kanab.stats.effect import Effect
from kanab.stats.sequential import (
    FOUND_BEFORE,
    FUTILE,
    AnyTimeLook,
    PlannedLook,
    any_time_look,
    chance_of_finding,
    mixture_z,
    planned_look,
)
from kanab.stats.spending import boundaries

EXPERIMENTS = 20_000
POWER = 0.8
PEOPLE = 20_000
COMPARED = 20
ANY_EFFECT = difference_in_means(count_columns(shop_rows(4_000), arm="variant", metrics=["spend"]))

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """Looks at these fractions of the plan, their boundaries, and how often findings come before the end."""

    name: str
    fractions: tuple[float, ...]
    boundary: tuple[float, ...]
    before: float = 1.0

    def look(self, effect: Effect, at: int, worth: float | None) -> PlannedLook | AnyTimeLook:
        """Return the look itself."""
        people = [round(PEOPLE * fraction) for fraction in self.fractions[: at + 1]]
        if self.name == "any time":
            return any_time_look(effect, people[-1], optimal_at=PEOPLE, planned=PEOPLE, worth=worth)
        return planned_look(effect, people, looks=len(self.fractions), worth=worth)

    def chance(self, z: float, at: int, worth: float | None) -> float:
        """Return the chance of a finding in the rest of the plan."""
        chance = chance_of_finding(z, self.fractions[at], self.boundary[-1], 2, worth)
        return min(1.0, self.before * chance)


def designs() -> tuple[Design, Design]:
    four, ten = (tuple(float(look) / looks for look in range(1, looks + 1)) for looks in (4, 10))
    mixture = mixture_z(np.array(ten), 0.05, 2).tolist()
    planned = tuple(look.z for look in boundaries(four))
    return Design("planned", four, planned), Design("any time", ten, tuple(mixture), FOUND_BEFORE)


def paths(seed: int, mean: float, fractions: tuple[float, ...], runs: int) -> Floats:
    """Return the z at every look of experiments whose z at the end has this mean."""
    steps = np.diff((0.0, *fractions))
    moves = np.random.default_rng(seed).normal(size=(runs, len(fractions))) * np.sqrt(steps) + mean * steps
    return np.asarray(moves.cumsum(axis=1) / np.sqrt(fractions))


def planned_mean(design: Design) -> float:
    """Return the mean of z at the end with which a finding has the chance ``POWER``."""

    def missing(mean: float) -> float:
        z = paths(9, mean, design.fractions, 200_000)
        return float((np.abs(z) >= design.boundary).any(axis=1).mean()) - POWER

    return float(optimize.brentq(missing, 1.0, 6.0, xtol=1e-3))


def compare(design: Design, z: Floats, mean: float) -> None:
    """Check that looks at effects say the same as their boundaries and chances."""
    for path in z[:COMPARED]:
        for at, value in enumerate(path.tolist()):
            error = 1 / math.sqrt(design.fractions[at])
            p = 2 * float(special.ndtr(-abs(value)))
            effect = replace(ANY_EFFECT, estimate=value * error, se=error, se_population=error, t=value, p=p)
            for worth in (mean, None):
                look = design.look(effect, at, worth)
                assert (look.verdict == "may stop") == (abs(value) >= design.boundary[at])
                if look.chance is not None:
                    assert math.isclose(look.chance, design.chance(value, at, worth), rel_tol=1e-9)


def gives_up(design: Design, value: float, at: int, rule: str, mean: float) -> bool:
    """Return whether a rule says that the rest can hardly change the answer."""
    trend = abs(value) / math.sqrt(design.fractions[at])
    return design.chance(value, at, {"CP": mean, "PP": None, "trend": trend}[rule]) < FUTILE


def outcome(design: Design, path: list[float], rule: str, mean: float) -> tuple[bool, bool, bool]:
    """Return whether giving up is said before a finding, whether there is one, and one before that is said."""
    said = False
    for at, value in enumerate(path):
        if abs(value) >= design.boundary[at]:
            return said, True, not said
        last = at + 1 == len(path)
        said = said or (not last and gives_up(design, value, at, rule, mean))
    return said, False, False


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else EXPERIMENTS
    print(f"{runs:,} experiments each; said below {FUTILE:.0%}")
    print(f"{'looks':<10}{'effect':<9}{'rule':<7}{'said':>7}{'findings':>10}{'if one stops then':>20}")
    for design in designs():
        planned = planned_mean(design)
        for name, mean in (("none", 0.0), ("half", planned / 2), ("planned", planned)):
            z = paths(1, mean, design.fractions, runs)
            compare(design, z, planned)
            for rule in ("CP", "PP", "trend"):
                results = [outcome(design, path, rule, planned) for path in z.tolist()]
                said, findings, before = np.mean(results, axis=0)
                print(f"{design.name:<10}{name:<9}{rule:<7}{said:>7.3f}{findings:>10.3f}{before:>20.3f}", flush=True)


if __name__ == "__main__":
    main()
