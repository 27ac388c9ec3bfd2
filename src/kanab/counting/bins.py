"""Levels out of too many values: the commonest ones, or bins of a number.

Both are decided on the people of all arms together, before any metric is looked at, and alike in
every source: by whole counts, and by sums on a grid of whole steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kanab.counting.levels import OTHER
from kanab.errors import SourceError
from kanab.plan.model import CovariatePlan
from kanab.tally.factor import Factor, Level, as_level, label, sorted_levels

MOST_LEVELS = 1_000
"""A covariate of more levels is refused: it is nearly a name."""

_DIGITS = 3


@dataclass(frozen=True)
class Bins:
    """A number cut at its edges: below the first, between two, from the last one on.

    >>> Bins("age", (12.5, 30.0)).labels
    ('< 12.5', '12.5 – 30', '≥ 30')
    """

    name: str
    edges: tuple[float, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """One text per bin, in order."""
        texts = [label(as_level(edge, self.name)) for edge in self.edges]
        if not texts:
            return ("any",)
        return (f"< {texts[0]}", *(f"{low} – {high}" for low, high in pairwise(texts)), f"≥ {texts[-1]}")

    def place(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """The bin of every number: how many edges are not above it."""
        return np.searchsorted(np.asarray(self.edges, dtype=np.float64), values, side="right").astype(np.intp)

    def factor(self, people: Sequence[int], sums: Sequence[int], scale: int, *, missing: bool) -> Factor:
        """The covariate with a level per bin that holds people, each scored by its exact mean.

        ``sums`` are of the covariate's grid values, all arms together, ``scale`` steps per unit.

        >>> Bins("age", (30.0,)).factor([2, 0], [41, 0], 1, missing=True)
        Factor(name='age', levels=('< 30', None), role='covariate', scores=(20.5, None))
        """
        kept = [place for place, count in enumerate(people) if count]
        levels: list[Level] = [self.labels[place] for place in kept]
        scores: list[float | None] = [float(Fraction(sums[place], people[place] * scale)) for place in kept]
        if missing or not kept:
            levels, scores = [*levels, None], [*scores, None]
        return Factor(self.name, tuple(levels), "covariate", tuple(scores) if kept else None)


def quantile_shares(bins: int) -> tuple[float, ...]:
    """The shares of people below the inner edges of so many equal bins.

    >>> quantile_shares(4)
    (0.25, 0.5, 0.75)
    """
    return tuple(place / bins for place in range(1, bins))


def quantile_bins(name: str, quantiles: Sequence[float], low: float, high: float) -> Bins:
    """Bins at quantiles, rounded to three significant digits; equal edges are one.

    Where the values are close together and far from 0, such as years, the digits are counted on
    their range instead. Rounding also hides the last bit, in which engines interpolate differently.

    >>> quantile_bins("spend", [12.3456, 12.3412, 250.4], 0, 900).edges
    (12.3, 250.0)
    >>> quantile_bins("year", [2003.75, 2011.5], 1999, 2024).edges
    (2003.8, 2011.5)
    """
    return Bins(name, tuple(sorted({_rounded(value, high - low) for value in quantiles})))


def _rounded(value: float, span: float) -> float:
    exact = Decimal(f"{value:.12g}")
    if not exact:
        return 0.0
    magnitudes = [exact.adjusted()] + ([Decimal(f"{span:.12g}").adjusted()] if span > 0 else [])
    step = Decimal(1).scaleb(min(magnitudes) - _DIGITS + 1)
    return float((exact / step).quantize(Decimal(1), rounding=ROUND_HALF_EVEN) * step)


def declared_bins(plan: CovariatePlan) -> Bins | None:
    """Bins at the edges that a plan gives, if it does."""
    return Bins(plan.name, plan.bins) if isinstance(plan.bins, tuple) else None


def common_levels(counts: Mapping[Level, int], top: int) -> tuple[Level, ...]:
    """The commonest levels in sorted order; equally common ones are taken in sorted order.

    The missing level is none of them: it always stays.

    >>> common_levels({"de": 5, "fr": 9, "at": 5, None: 7}, top=2)
    ('at', 'fr')
    """
    order = sorted_levels(level for level in counts if level is not None)
    kept = sorted(order, key=lambda level: -counts[level])[:top]
    return sorted_levels(kept)


def declare_levels(name: str, kept: Sequence[Level], *, rest: bool) -> CovariatePlan:
    """A covariate that declares the kept levels, and "other" for the rest if there is one.

    >>> declare_levels("country", ("at", "fr"), rest=True).levels
    ('at', 'fr', 'other')
    """
    levels = tuple(level for level in kept if level != OTHER)
    return CovariatePlan(name, (*levels, OTHER) if rest or len(levels) < len(kept) else levels)


def check_levels(name: str, found: int) -> None:
    """Refuse a covariate with more levels than the budget, with the number and the remedy."""
    if found > MOST_LEVELS:
        raise SourceError(
            f"{name!r} has {found:,} levels; the limit is {MOST_LEVELS:,}",
            f"Cut a number into bins (--bin {name}=5), or keep the most frequent levels (--top {name}=20).",
        )
