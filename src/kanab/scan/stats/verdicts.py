"""What a scan says about one test, in one of six words, and the rules by which it says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kanab.errors import AnalysisError, LevelError, listed
from kanab.scan.stats.cells import Flags
from kanab.stats.gram import Floats
from kanab.stats.multiplicity import Correction, corrected_array
from kanab.tally.metric import Metric

Verdict = Literal[
    "interference", "differs", "watch", "assignment broken", "nothing found", "clear within tolerance", "not testable"
]
"""Pairs of experiments show "interference", an effect "differs" between levels; the others are shared."""

Family = Literal["metric", "all"]

ORDER: tuple[Verdict, ...] = get_args(Verdict)
"""From what needs attention to what does not."""

ALARMS = ("interference", "differs", "watch")

CARRIED = "a few people could have made it"
WITHIN = "it is there, but smaller than the tolerance"
ALMOST = "within the tolerance, unless a few people hide something"


@dataclass(frozen=True)
class Rules:
    """How a scan judges: the smallest class, the family of a correction, what counts as negligible.

    ``family`` "metric" corrects over all tests of one metric, "all" over everything. ``tolerance``
    and ``bounds`` are in units of the metrics; ``bounds`` are for metrics that declare none.
    """

    k: int
    family: Family
    correction: Correction
    alpha: float = 0.05
    tolerance: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if type(self.k) is not int or self.k < 1:
            raise AnalysisError("k must be a whole number of people", "For example k=10.")
        if self.family not in get_args(Family):
            raise AnalysisError("unknown family of tests", f"Use one of: {', '.join(get_args(Family))}.")
        if self.correction not in get_args(Correction):
            raise AnalysisError("unknown correction", f"Use one of: {', '.join(get_args(Correction))}.")
        if not (isinstance(self.alpha, Real) and 0 < self.alpha < 1):
            raise AnalysisError("alpha must lie between 0 and 1", "For example 0.05.")
        if not all(isinstance(limit, Real) and limit > 0 for limit in self.tolerance.values()):
            raise AnalysisError("a tolerance must be a positive number", "Give it in units of the metric.")

    def check_names(self, metrics: Mapping[str, Metric]) -> None:
        """Refuse a tolerance or bounds for a metric that is not tested."""
        if not {*self.tolerance, *self.bounds} <= metrics.keys():
            raise LevelError("a tolerance or bounds name an unknown metric", f"Tested are: {listed(metrics)}.")

    def families(self, metric: NDArray[np.intp]) -> NDArray[np.intp]:
        """The number of each test's family, from the number of its metric."""
        return metric if self.family == "metric" else np.zeros_like(metric)


def corrected(p: Floats, families: NDArray[np.intp], correction: Correction) -> Floats:
    """Adjusted p-values, family by family; not a number stays out."""
    found = np.full(len(p), np.nan)
    for family in np.unique(families):
        inside = np.flatnonzero((families == family) & ~np.isnan(p))
        if len(inside):
            found[inside] = corrected_array(p[inside], correction)
    return found


def levels(adjusted: Floats, families: NDArray[np.intp], rules: Rules) -> Floats:
    """At which level is each test's interval, so that all of a family hold together?

    Bonferroni's (Šidák's) for corrections of the family-wise rate; with a false-discovery rate the
    share of wrong intervals is bounded, by m₁α/m for each of m₁ alarms and m₀α/m for the others.
    """
    found = np.full(len(adjusted), rules.alpha)
    for family in np.unique(families):
        inside = (families == family) & ~np.isnan(adjusted)
        tests = int(inside.sum())
        if rules.correction in ("bonferroni", "holm", "hochberg"):
            found[inside] = rules.alpha / max(1, tests)
        elif rules.correction == "sidak":
            found[inside] = -np.expm1(np.log1p(-rules.alpha) / max(1, tests))
        elif rules.correction in ("bh", "by"):
            alarm = inside & (adjusted < rules.alpha)
            harmonic = float(np.sum(1 / np.arange(1, tests + 1))) if rules.correction == "by" else 1.0
            for side in (alarm, inside & ~alarm):
                found[side] = rules.alpha * side.sum() / max(1, tests) / harmonic
    return found


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a verdict rests on, per test; not a number where there is nothing."""

    p_adjusted: Floats
    p_guarded: Floats
    could_miss: Floats
    could_miss_guarded: Floats
    assignment: Floats
    tolerance: Floats
    untested: Flags


def decide(
    evidence: Evidence, alpha: float, alarm: Literal["interference", "differs"]
) -> tuple[NDArray[np.object_], NDArray[np.object_]]:
    """The verdict of every test, and a remark where it needs one."""
    with np.errstate(invalid="ignore"):
        rings = evidence.p_adjusted < alpha
        holds = evidence.p_guarded < alpha
        inside = evidence.could_miss_guarded <= evidence.tolerance
        nearly = (evidence.could_miss <= evidence.tolerance) & ~inside
        broken = evidence.assignment < alpha
    cases: list[tuple[Flags, Verdict, str]] = [
        (evidence.untested, "not testable", ""),
        (broken, "assignment broken", ""),
        (inside & rings, "clear within tolerance", WITHIN),
        (inside, "clear within tolerance", ""),
        (rings & holds, alarm, ""),
        (rings, "watch", CARRIED),
        (nearly, "nothing found", ALMOST),
    ]
    verdicts = np.full(len(rings), "nothing found", dtype=object)
    notes = np.full(len(rings), "", dtype=object)
    for condition, verdict, note in reversed(cases):
        verdicts[condition], notes[condition] = verdict, note
    return verdicts, notes
