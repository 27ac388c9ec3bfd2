"""Factors, whose levels make up the classes: the arms of an experiment, and the levels of a covariate."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

from kanab.arguments import check_arguments
from kanab.errors import LevelError, TallyError, listed, meant

Level = str | int | float | bool | None
Role = Literal["arm", "covariate"]

OTHER = "other"
"""The level that stands for all that are not named: a declared level of this name takes those that are not declared."""
EVERYBODY = "(everybody)"
"""The arm column, and its one arm, of rows that have none: baseline data to plan with."""


@check_arguments(skip=("name", "levels", "scores"))
@dataclass(frozen=True, eq=False)
class Factor:
    """One side of the table: an experiment's arms (role "arm") or a covariate's levels.

    A covariate with ``scores`` is numeric: a regression uses the scores, unless the formula says
    ``C(name)``. The missing level ``None`` has no score. Without scores it is categorical.

    >>> Factor("tier", (1, 2, 3), "covariate", (1.0, 2.0, 3.0)).kind
    'numeric'
    """

    name: str
    levels: tuple[Level, ...]
    role: Role = "covariate"
    scores: tuple[float | None, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise TallyError("an arm column or covariate needs a name", "Give it a non-empty text.")
        if self.role not in ("arm", "covariate"):
            raise TallyError(f"unknown role of {self.name!r}", "Use 'arm' or 'covariate'.")
        if isinstance(self.levels, (str, bytes)) or not isinstance(self.levels, Iterable):
            raise TallyError(f"the levels of {self.name!r} must be a list", "Name every level once.")
        levels = tuple(as_level(level, self.name) for level in self.levels)
        object.__setattr__(self, "levels", levels)
        if not levels:
            raise TallyError(f"{self.name!r} has no levels", "Count at least one person.")
        if self.role == "arm" and None in levels:
            raise TallyError(f"{self.name!r} has a missing arm", "Leave out people who are not in the experiment.")
        if len(set(levels)) != len(levels):
            raise TallyError(f"{self.name!r} has the same level twice", "Name every level once.")
        if self.scores is not None:
            self._check_scores()

    def _check_scores(self) -> None:
        values = tuple(self.scores) if isinstance(self.scores, (tuple, list)) else ()
        scores = tuple(as_score(value) for value in values)
        wrong = any(value is not None and score is None for value, score in zip(values, scores, strict=True))
        unscored = [level for level, score in zip(self.levels, scores, strict=False) if score is None]
        fits = len(scores) == len(self.levels) and unscored in ([], [None])
        if self.role == "arm" or wrong or not fits or not all(s is None or math.isfinite(s) for s in scores):
            raise TallyError(
                f"the scores of {self.name!r} must be one finite number per level",
                "Arms have no scores; only the missing level goes without.",
            )
        object.__setattr__(self, "scores", scores)

    @property
    def kind(self) -> str:
        """One of "arm", "numeric" and "categorical"."""
        if self.role == "arm":
            return "arm"
        return "categorical" if self.scores is None else "numeric"

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        truths = tuple(isinstance(level, bool) for level in self.levels)  # True is not the number 1
        return self.name, self.role, self.levels, truths, self.scores

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Factor) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def index(self, level: Any) -> int:
        """Return the position of a level. Raises `LevelError`, which lists the levels, where it is unknown."""
        wanted = as_level(level, self.name)
        position = self._places.get((wanted, isinstance(wanted, bool)))
        if position is not None:
            return position
        word = "arm" if self.role == "arm" else "level"
        raise LevelError(
            f"unknown {word} of {self.name!r}", f"{meant(level, self.labels)}It has: {listed(self.labels)}."
        )

    def positions(self, levels: Iterable[Level]) -> list[int]:
        """Return the positions of levels that it is known to have."""
        return [self._places[level, isinstance(level, bool)] for level in levels]

    @cached_property
    def _places(self) -> dict[tuple[Level, bool], int]:
        """The position of each level; True is not the number 1."""
        return {(level, isinstance(level, bool)): position for position, level in enumerate(self.levels)}

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The levels as texts; the missing level is called "missing"."""
        return tuple(label(level) for level in self.levels)

    @cached_property
    def control_by_name(self) -> Level:
        """The arm whose name says that it is the control, such as "old" or "No E-Mail"; None where no name does."""
        place = place_of_control(self.labels)
        return None if place is None else self.levels[place]

    @property
    def control(self) -> Level:
        """The arm whose name says that it is the control; else the first, and `kanab.plan` knows more."""
        return self.levels[0] if self.control_by_name is None else self.control_by_name

    def join(self, other: Factor) -> Factor:
        """Return the factor with the levels of both: as they are if equal, else in sorted order.

        Raises `TallyError` where names, roles, kinds or scores do not fit.
        """
        if (self.name, self.role) != (other.name, other.role):
            raise TallyError(
                f"tallies of {self.name!r} and {other.name!r} cannot be added",
                "Add tallies of the same arms and covariates, in the same order.",
            )
        if _truths(self.levels) != _truths(other.levels) and {*self.levels} & {*other.levels}:
            raise TallyError(
                f"{self.name!r} has numbers in one tally and true/false in the other",
                "Count both with the same kind of levels.",
            )
        if self == other:
            return self
        parts = [each for each in (self, other) if each.levels != (None,)] or [other]  # where nobody's level is known
        if len(parts) == 1 and None in parts[0].levels:
            return parts[0]
        if len({each.scores is None for each in parts}) > 1:
            raise TallyError(
                f"{self.name!r} is numeric in one tally and categorical in the other",
                "Count both with the same kind of levels.",
            )
        levels = sorted_levels({*self.levels, *other.levels})
        if parts[0].scores is None:
            return Factor(self.name, levels, self.role)
        mine, theirs = (dict(zip(each.levels, each.scores or (), strict=True)) for each in (parts[0], parts[-1]))
        if any(mine[level] != theirs[level] for level in mine.keys() & theirs.keys()):
            raise TallyError(
                f"a level of {self.name!r} has different scores in the two tallies",
                "Coarsen both with one map and the same scores.",
            )
        known = mine | theirs
        return Factor(self.name, levels, self.role, tuple(known.get(level) for level in levels))


def as_level(value: Any, name: str) -> Level:
    """Return a level in its one spelling: 1.0 is 1, NaN is missing, NumPy scalars become Python's.

    Raises `LevelError` where it is neither text, a finite number, true/false nor missing.
    """
    if value is None or isinstance(value, (str, bool)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, np.bool_):
        return bool(value)
    dated = isinstance(value, np.generic) and value.dtype.kind in "mM"
    if isinstance(value, (Integral, np.integer)) and not dated:
        return int(value)
    number = as_score(value) if isinstance(value, (Real, np.floating)) and not dated else None
    if number is not None:
        if math.isnan(number):
            return None
        if math.isfinite(number):
            return int(number) if number.is_integer() else number
    raise LevelError(
        f"a level of {name!r} is neither text, a finite number, true/false nor missing",
        "Turn dates and other types into text first.",
    )


def merged_scores(
    factor: Factor, targets: Sequence[tuple[Level, int]], levels: Sequence[Level], chosen: Mapping[Any, float] | None
) -> tuple[float | None, ...] | None:
    """Return the scores after merging: as chosen, else the mean over people of what was merged.

    ``targets`` are, for every level of the factor, the level it goes to and how many people it has.
    Raises `LevelError` where a chosen score is not a finite number.
    """
    if factor.scores is None:
        return None
    known = {as_level(level, factor.name): as_score(score) for level, score in (chosen or {}).items()}
    if not all(score is not None and math.isfinite(score) for score in known.values()):
        raise LevelError(f"a score of {factor.name!r} is not a finite number", "Give one number per level.")
    scores: list[float | None] = []
    merged: dict[Level, list[tuple[float | None, int]]] = {}
    for score, (new, people) in zip(factor.scores, targets, strict=True):
        merged.setdefault(new, []).append((score, people))
    for level in levels:
        parts = merged.get(level, [])
        if level in known:
            scores.append(known[level])
        else:
            scores.append(parts[0][0] if len(parts) == 1 else _pooled(parts, factor.name))
    return tuple(scores)


def _pooled(parts: Sequence[tuple[float | None, int]], name: str) -> float:
    scored = [(score, people) for score, people in parts if score is not None]
    if len(scored) < len(parts):
        raise LevelError(
            f"the missing level of {name!r} has no score and cannot join scored ones", "Give the merged level a score."
        )
    total = sum(people for _, people in scored)
    if not total:
        return sum(score for score, _ in scored) / len(scored)
    return sum(score * people for score, people in scored) / total


def sorted_levels(levels: Iterable[Level]) -> tuple[Level, ...]:
    """Sort levels that nobody declared: numbers first, then texts, the missing level last."""

    def key(level: Level) -> tuple[int, float, str]:
        if level is None:
            return (2, 0, "")
        return (1, 0, level) if isinstance(level, str) else (0, level, "")

    return tuple(sorted(levels, key=key))


def as_score(value: Any) -> float | None:
    """Return a number as a double, and None for anything that is no number or too large for a double."""
    try:
        return None if value is None or isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _truths(levels: Iterable[Level]) -> bool:
    return any(isinstance(level, bool) for level in levels)


def label(level: Level) -> str:
    """Return a level as text."""
    return "missing" if level is None else str(level)


def numeric_scores(levels: Sequence[Level]) -> tuple[float | None, ...] | None:
    """Return numeric levels as their own scores; None for a covariate with texts or true/false."""
    scored = [level for level in levels if level is not None]
    if not scored or any(isinstance(level, bool) or as_score(level) is None for level in scored):
        return None
    return tuple(as_score(level) for level in levels)


# ── what a control is called ────────────────────────────────────────────────────────────────────

_WORDS = """
control controls ctrl ctl controlgroup baseline base old original orig holdout placebo sham off false 0 zero no none
null without default standard std regular usual statusquo current existing before previous untreated unexposed
reference ref a kontrolle kontrollgruppe alte altes bisher bisherig ohne kein keine contrôle témoin ancien ancienne
actuel actuelle controllo vecchio vecchia attuale senza controlo controle antiguo antigua viejo vieja antigo antiga
atual kontroll kontrol kontrolli kontrola kontrolna kontrolní stary stará gammal gammel oud oude vanha régi eski
контроль контрольная старый старая старое 对照 对照组 對照組 対照 対照群 コントロール 대조군
"""


def place_of_control(arms: Sequence[str]) -> int | None:
    """Return the place of the only arm whose name is a control's; None where no name says so, or several do.

    The whole name counts, or its first or last word, but no word of two meanings (alt, sin, sans). Of several, one
    that is just "control" is it.
    """
    words = [_words(arm) for arm in arms]
    known = {*_words(_WORDS)}
    exact = [place for place, parts in enumerate(words) if parts == ["control"]]
    named = [place for place, parts in enumerate(words) if known & {*parts[:1], *parts[-1:], "".join(parts)}]
    matching = exact or named
    return matching[0] if len(matching) == 1 else None


def _words(name: str) -> list[str]:
    """Return the words of a name, in lower case and without accents; "oldPage" has two, "2.0" is one."""
    signs = unicodedata.normalize("NFKD", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name))
    return re.findall(
        r"[^\W_]+(?:\.\d+)*", "".join(sign for sign in signs if not unicodedata.combining(sign)).casefold()
    )
