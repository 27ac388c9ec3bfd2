"""Make levels of too many values: the commonest ones, or bins of a number.

Both are decided on the people of all arms together, before any metric is looked at, and alike in
every source: by whole counts, and by sums on a grid of whole steps.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kanab.errors import LevelError, SourceError, flag, listed, meant
from kanab.plan.declared import bin_labels
from kanab.plan.model import MOST_LEVELS, CovariatePlan, ExperimentPlan, Plan
from kanab.tally.cell_arrays import DROPPED
from kanab.tally.factor import OTHER, Factor, Level, label, numeric_scores, sorted_levels


class Placed(NamedTuple):
    """A factor, and for each level of a column its place among the factor's levels, or ``DROPPED``."""

    factor: Factor
    into: tuple[int, ...]


def place_arms(levels: Sequence[Level], plan: ExperimentPlan) -> Placed:
    """Return the arms as declared, in that order; people of other arms or of none are not in the experiment."""
    arms = plan.arms
    if arms is None:
        arms = sorted_levels({level for level in levels if level is not None})
        if len(arms) < 2:
            raise SourceError(
                f"column {plan.name!r} holds {'a single arm' if arms else 'no arm'}",
                "An experiment needs two arms or more. Check the column and the filter.",
            )
    return Placed(Factor(plan.name, arms, "arm"), tuple(find_levels(levels, arms)))


def place_levels(column: Sequence[Level], plan: CovariatePlan) -> Placed:
    """Return the levels as declared, or as they are in the column; the missing one, where anyone has it, comes last.

    A declared level "other" takes every level that is not declared; without it such a level
    raises `SourceError`.
    """
    known = plan.levels if plan.levels is not None else sorted_levels({level for level in column if level is not None})
    levels = (*known, *([None] if None in column or not known else []))
    into = find_levels(column, levels)
    if DROPPED in into:
        if OTHER not in levels:
            raise SourceError(
                f"covariate {plan.name!r} holds a level that is not declared",
                f"Declare it, or declare 'other' to take such levels. Declared levels: {listed(known)}.",
            )
        into = [levels.index(OTHER) if place == DROPPED else place for place in into]
    return Placed(Factor(plan.name, levels, "covariate", numeric_scores(levels)), tuple(into))


def find_levels(levels: Iterable[Level], declared: Sequence[Level]) -> list[int]:
    """Return where each level stands among the declared ones, or ``DROPPED``.

    Plan files and flags write arms as texts, so 0 is found under "0" and true under "true".
    """
    exactly = {(isinstance(level, bool), level): place for place, level in enumerate(declared)}
    in_text = {_text(level): place for place, level in reversed([*enumerate(declared)]) if level is not None}
    return [
        exactly.get((isinstance(level, bool), level), DROPPED if level is None else in_text.get(_text(level), DROPPED))
        for level in levels
    ]


def named_level(name: Level, factor: Factor, shown: Sequence[Level]) -> Level:
    """Return the level of a factor that a plan or a flag names; raise `LevelError` where there is none."""
    (place,) = find_levels([name], factor.levels)
    if place == DROPPED:
        hint = f"{meant(name, map(label, shown))}It has: {listed(map(label, shown))}." if shown else "Check its name."
        raise LevelError(f"unknown arm of {factor.name!r}", hint)
    return factor.levels[place]


def _text(level: Level) -> str:
    return str(level).lower() if isinstance(level, bool) else str(level)


_DIGITS = 3


@dataclass(frozen=True)
class Bins:
    """A number cut at its edges: below the first, between two, from the last one on."""

    name: str
    edges: tuple[float, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """One text per bin, in order."""
        return bin_labels(self.edges)

    def place(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the bin of every number: how many edges are not above it."""
        return np.searchsorted(np.asarray(self.edges, dtype=np.float64), values, side="right").astype(np.intp)

    def factor(self, people: Sequence[int], sums: Sequence[int], scale: int, *, missing: bool) -> Factor:
        """Return the covariate with a level per bin that holds people, each scored by its exact mean.

        ``sums`` are of the covariate's grid values, all arms together, ``scale`` steps per unit.
        """
        filled = [place for place, count in enumerate(people) if count]
        means = {place: float(Fraction(sums[place], people[place] * scale)) for place in filled}
        return self._factor(means, missing=missing)

    def outcome(self, places: Iterable[int], *, missing: bool) -> tuple[Factor, dict[int, int]]:
        """Return the bins of a metric that hold people, and where each of them goes; missing ones come last.

        Scores are the numbers of the bins, for their order: a mean would be an answer about the metric.
        """
        filled = sorted(set(places))
        into = {place: position for position, place in enumerate(filled)}
        return self._factor({place: float(place) for place in filled}, missing=missing), into

    def _factor(self, scores: Mapping[int, float], *, missing: bool) -> Factor:
        """Return the bins that have scores as levels, and the missing level where somebody has it, or nobody a bin."""
        gone = (None,) if missing or not scores else ()
        levels = (*(self.labels[place] for place in scores), *gone)
        return Factor(self.name, levels, "covariate", (*scores.values(), *gone) if scores else None)


def quantile_shares(plan: CovariatePlan) -> tuple[float, ...]:
    """Return the shares of people below the inner edges of equal bins; none where a plan gives the edges."""
    return tuple(place / plan.bins for place in range(1, plan.bins)) if isinstance(plan.bins, int) else ()


def choose_bins(plan: CovariatePlan, quantiles: Sequence[float], low: float, high: float) -> Bins:
    """Return bins at the edges that a plan gives, or else at quantiles of values between low and high.

    Quantiles are rounded to three significant digits; equal edges are one. Where the values are close together and
    far from 0, such as years, the digits are counted on their range instead. Rounding also hides the last bit, in
    which engines interpolate differently.
    """
    if isinstance(plan.bins, tuple):
        return Bins(plan.name, plan.bins)
    return Bins(plan.name, tuple(sorted({rounded(value, high - low) for value in quantiles})))


def rounded(value: float, span: float) -> float:
    """Return a quantile with three significant digits, counted on the range where values are close together."""
    exact = Decimal(f"{value:.12g}")
    if not exact:
        return 0.0
    magnitudes = [exact.adjusted()] + ([Decimal(f"{span:.12g}").adjusted()] if span > 0 else [])
    step = Decimal(1).scaleb(min(magnitudes) - _DIGITS + 1)
    return float((exact / step).quantize(Decimal(1), rounding=ROUND_HALF_EVEN) * step)


def common_levels(counts: Mapping[Level, int], top: int) -> tuple[Level, ...]:
    """Return the commonest levels in sorted order; equally common ones are taken in sorted order.

    The missing level is none of them: it always stays.
    """
    order = sorted_levels(level for level in counts if level is not None)
    return sorted_levels(sorted(order, key=lambda level: -counts[level])[:top])


def declare_levels(name: str, common: Sequence[Level], *, rest: bool) -> CovariatePlan:
    """Return a covariate that declares its common levels, and "other" for the rest if there is one."""
    levels = tuple(level for level in common if level != OTHER)
    return CovariatePlan(name, (*levels, OTHER) if rest or len(levels) < len(common) else levels)


def check_levels(name: str, levels: int, plan: Plan) -> None:
    """Raise `SourceError` where a covariate has more levels than allowed."""
    if levels > MOST_LEVELS:
        bins, top = flag("--bin", f"{name}=5"), flag("--top", f"{name}=20")
        fewer = f"into bins ({bins}), or keep the most frequent levels ({top})."
        remedy = f"Adjust for a number as it is ({flag('--number', name)}), cut it {fewer}"
        if any(name in experiment.segments for experiment in plan.experiments):
            remedy = f"Cut a number {fewer}"
        raise SourceError(f"{name!r} has more than {MOST_LEVELS:,} levels", remedy)


def check_arms(name: str, arms: int) -> None:
    """Raise `SourceError` where an arm column has more arms than allowed: it holds something else."""
    if arms > MOST_LEVELS:
        raise SourceError(
            f"arm column {name!r} has more than {MOST_LEVELS:,} arms",
            "Name the column that holds the arm, not the person.",
        )


def not_numbers(name: str) -> SourceError:
    """Return the error of a covariate that cannot be cut into bins."""
    return SourceError(
        f"covariate {name!r} cannot be cut into bins: it holds something other than finite numbers",
        f"Keep its most frequent levels instead ({flag('--top', f'{name}=20')}); of dates take months, by a query "
        "(--sql).",
    )
