"""What a scan says about one test, in one of a few words, and the rules by which it says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kanab.arguments import check_arguments
from kanab.choices import Correction
from kanab.description import DEFAULT_K
from kanab.errors import AnalysisError
from kanab.scan.stats.table_blocks import Flags
from kanab.stats.gram import Floats
from kanab.stats.multiplicity import corrected_array
from kanab.stats.srm import SAMPLE_RATIO_ALARM

Verdict = Literal[
    "interference",
    "differs",
    "watch",
    "assignment broken",
    "nothing found",
    "clear within tolerance",
    "not testable",
]
"""Pairs of experiments show "interference", an effect "differs" between levels; the others are shared."""

Family = Literal["metric", "all"]

ORDER: tuple[Verdict, ...] = get_args(Verdict)
"""From what needs attention to what does not."""

ALPHA = 0.05
"""The rate of false alarms, unless another one is chosen."""

PAIR_CORRECTION: Correction = "holm"
"""The chance of even one false alarm among all pairs is bounded."""

ALARMS = ("interference", "differs", "watch")

FEW_COULD = "a few people could have caused it"
WITHIN = "it is there, but smaller than the tolerance"
ALMOST = "within the tolerance, unless a few people hide something"


@check_arguments()
@dataclass(frozen=True)
class Rules:
    """How a scan judges: the smallest class, the family of a correction, what counts as negligible.

    ``family`` "metric" corrects over all tests of one metric, "all" over everything. ``tolerance`` is in units of the
    metrics. Where rows are not people (``rows_repeat``), nothing is said of how people were assigned.
    Raises `AnalysisError` where one of these makes no sense.
    """

    k: int = DEFAULT_K
    family: Family = "metric"
    correction: Correction = PAIR_CORRECTION
    alpha: float = ALPHA
    tolerance: Mapping[str, float] = field(default_factory=dict)
    rows_repeat: bool = False

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

    def without(self, metrics: Collection[str]) -> Rules:
        """Return the same rules where some metrics are left out."""
        return replace(self, tolerance={name: size for name, size in self.tolerance.items() if name not in metrics})

    def families(self, metric: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the number of each test's family, from the number of its metric."""
        return metric if self.family == "metric" else np.zeros_like(metric)


def correct_families(p: Floats, families: NDArray[np.intp], correction: Correction) -> Floats:
    """Return p-values adjusted family by family; not a number stays out."""
    adjusted = np.full(len(p), np.nan)
    for family in np.unique(families):
        inside = np.flatnonzero((families == family) & ~np.isnan(p))
        if len(inside):
            adjusted[inside] = corrected_array(p[inside], correction)
    return adjusted


def interval_levels(adjusted: Floats, families: NDArray[np.intp], rules: Rules) -> Floats:
    """Return the level of each test's interval, so that all of a family hold together.

    Bonferroni's (Šidák's) for corrections of the family-wise rate; with a false-discovery rate the
    share of wrong intervals is bounded, by m₁α/m for each of m₁ alarms and m₀α/m for the others.
    """
    levels = np.full(len(adjusted), rules.alpha)
    for family in np.unique(families):
        inside = (families == family) & ~np.isnan(adjusted)
        tests = int(inside.sum())
        if rules.correction in ("bonferroni", "holm"):
            levels[inside] = rules.alpha / max(1, tests)
        elif rules.correction == "sidak":
            levels[inside] = -np.expm1(np.log1p(-rules.alpha) / max(1, tests))
        elif rules.correction in ("bh", "by"):
            alarm = inside & (adjusted < rules.alpha)
            harmonic = float(np.sum(1 / np.arange(1, tests + 1))) if rules.correction == "by" else 1.0
            for side in (alarm, inside & ~alarm):
                levels[side] = rules.alpha * side.sum() / max(1, tests) / harmonic
    return levels


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
    """Return the verdict of every test, and a remark where it needs one."""
    with np.errstate(invalid="ignore"):
        alarmed = evidence.p_adjusted < alpha
        holds = evidence.p_guarded < alpha
        inside = evidence.could_miss_guarded <= evidence.tolerance
        nearly = (evidence.could_miss <= evidence.tolerance) & ~inside
        broken = evidence.assignment < SAMPLE_RATIO_ALARM
    cases: list[tuple[Flags, Verdict, str]] = [
        (evidence.untested, "not testable", ""),
        (broken, "assignment broken", ""),
        (inside & alarmed, "clear within tolerance", WITHIN),
        (inside, "clear within tolerance", ""),
        (alarmed & holds, alarm, ""),
        (alarmed, "watch", FEW_COULD),
        (nearly, "nothing found", ALMOST),
    ]
    verdicts = np.full(len(alarmed), "nothing found", dtype=object)
    notes = np.full(len(alarmed), "", dtype=object)
    for condition, verdict, note in reversed(cases):
        verdicts[condition], notes[condition] = verdict, note
    return verdicts, notes
