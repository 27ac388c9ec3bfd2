"""Place the arms and levels of a column among the declared ones.

Works on the few distinct levels of a column, never on its rows, so every engine can share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kanab.errors import LevelError, SourceError, listed, meant
from kanab.plan.model import CovariatePlan, ExperimentPlan
from kanab.tally.cell_arrays import DROPPED
from kanab.tally.factor import OTHER, Factor, Level, label, numeric_scores, sorted_levels


class Placed(NamedTuple):
    """A factor, and for each level of a column its place among the factor's levels, or ``DROPPED``."""

    factor: Factor
    into: tuple[int, ...]


def place_arms(levels: Sequence[Level], plan: ExperimentPlan) -> Placed:
    """Return the arms as declared, in that order; people of other arms or of none are not in the experiment.

    Raises `SourceError` where no arms are declared and the column holds fewer than two.

    >>> place_arms(["B", "A", "C", None], ExperimentPlan("variant", (("A", 1), ("B", 1)))).into
    (1, 0, -1, -1)
    """
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

    >>> placed = place_levels(["tv", None, "phone"], CovariatePlan("device", ("phone", "other")))
    >>> placed.factor.levels, placed.into
    (('phone', 'other', None), (1, 2, 0))
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

    >>> find_levels([0, "1", True, None], ["0", 1, "true"])
    [0, 1, 2, -1]
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
