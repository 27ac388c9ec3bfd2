"""How is an analysis read? Choices beyond what was counted: looks, margins, pooled arms, contrasts, priors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from kanab.errors import AnalysisError, LevelError, listed
from kanab.stats.bayes import Prior
from kanab.stats.distributions import Alternative
from kanab.stats.effect import Effect
from kanab.stats.margins import Margin
from kanab.stats.multiplicity import Correction
from kanab.stats.sequential import TUNED_AT, AnyTimeLook, PlannedLook, any_time_look, planned_look
from kanab.stats.spending import Spending
from kanab.tally.factor import Factor, Level, as_level, label

AnyCorrection = Correction | Literal["dunnett"]
"""A correction of p-values by themselves, or the one that knows that all arms share the control."""

CORRECTIONS: tuple[str, ...] = (*get_args(Correction), "dunnett")

Weights = dict[Level, float]
"""A contrast: what each arm's mean is multiplied by."""


@dataclass(frozen=True)
class Looks:
    """How an effect that is looked at more than once is read.

    "spending": so many looks, or so many people (``planned``), were fixed beforehand; ``last`` ends
    the design here. "always": every moment may be the last; intervals are narrowest at ``tuned_at``
    people. ``earlier`` are the people counted up to each earlier look; batches that were added are
    looks unless it is given.
    """

    method: Literal["spending", "always"]
    looks: int | None = None
    planned: int | None = None
    spending: Spending = "obrien-fleming"
    tuned_at: int = TUNED_AT
    last: bool = False
    earlier: tuple[int, ...] = ()

    def at(self, effect: Effect, people: int) -> PlannedLook | AnyTimeLook:
        """The effect as it may be read at this look."""
        if self.method == "always":
            return any_time_look(effect, people, tuned_at=self.tuned_at)
        if self.looks is None and self.planned is None:
            raise AnalysisError(
                "how many looks are planned is not said", "Give looks=… or planned=… (--looks 5, --planned 100000)."
            )
        seen = [*self.earlier, people]
        return planned_look(
            effect, seen, looks=self.looks, planned=self.planned, spending=self.spending, last=self.last
        )


@dataclass(frozen=True)
class Choices:
    """How an analysis is read: who is the control, how sure, which side, and what else was asked.

    ``margins`` and ``priors`` are by metric; ``lower`` are the metrics where less is better.
    """

    control: Level = None
    confidence: float = 0.95
    alternative: Alternative = "two-sided"
    correction: AnyCorrection = "holm"
    looks: Looks | None = None
    contrasts: tuple[Weights, ...] = ()
    margins: Mapping[str, tuple[Margin, ...]] = field(default_factory=dict)
    priors: Mapping[str, Prior] = field(default_factory=dict)
    lower: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.correction not in CORRECTIONS:
            raise AnalysisError("unknown correction", f"Use one of: {', '.join(CORRECTIONS)}.")
        if self.looks is not None and self.correction == "dunnett":
            raise AnalysisError("Dunnett's correction is for one look", "Use Holm's for several looks.")
        if self.margins and not self.confidence > 0.5:
            raise AnalysisError("a claim needs a confidence above 0.5", "For example 0.95.")
        if self.looks is not None and self.margins:
            raise AnalysisError(
                "margins are tested at one look",
                "Leave out the margin: a claim is shown once the interval over all looks lies inside it.",
            )


def named_arm(arms: Factor, name: Any) -> Level:
    """The arm of this name, as itself or as it is written: "1" is the number 1 where no text is called so.

    >>> named_arm(Factor("variant", (0, 1), "arm"), "1")
    1
    """
    try:
        return arms.levels[arms.index(name)]
    except LevelError:
        found = [level for level in arms.levels if isinstance(name, str) and label(level) == name.strip()]
        if len(found) != 1:
            raise
        return found[0]


def read_pool(arms: Factor, pool: Mapping[Any, Sequence[Any]] | None) -> dict[Level, list[Level]]:
    """Which arms are taken as one, under which name: ``{"any letter": ["B", "C"]}``."""
    found: dict[Level, list[Level]] = {}
    for new, olds in (pool or {}).items():
        if isinstance(olds, str) or len(set(olds)) < 2:
            raise AnalysisError("a pool joins at least two arms", "For example pool={'any': ['B', 'C']} (any=B+C).")
        found[as_level(new, arms.name)] = [named_arm(arms, old) for old in olds]
    pooled = [old for olds in found.values() for old in olds]
    if len(set(pooled)) < len(pooled):
        raise AnalysisError("an arm is in two pools", "Every arm goes into one pool at most.")
    if any(new in arms.levels and new not in pooled for new in found):
        raise AnalysisError("a pool has the name of another arm", "Give it a name of its own.")
    return found


def read_contrast(arms: Factor, given: str | Mapping[Any, float]) -> Weights:
    """``"B - C"``, or weights: ``"B=0.5,C=0.5,A=-1"`` or ``{"B": 0.5, "C": 0.5, "A": -1}``.

    Names may hold hyphens: the cut is where both sides are arms.

    >>> mail = Factor("mail", ("No E-Mail", "Mens E-Mail", "Womens E-Mail"), "arm")
    >>> read_contrast(mail, "Mens E-Mail - Womens E-Mail")
    {'Mens E-Mail': 1.0, 'Womens E-Mail': -1.0}
    """
    if isinstance(given, Mapping):
        return {named_arm(arms, arm): weight for arm, weight in given.items()}
    hint = f"Write 'B - C', or weights such as B=0.5,C=0.5,A=-1. Arms: {listed(arms.labels)}."
    if "=" in given:
        parts = [part.rpartition("=") for part in given.split(",") if part.strip()]
        try:
            return {named_arm(arms, name.strip()): float(weight) for name, _, weight in parts}
        except (ValueError, LevelError):
            raise AnalysisError("a contrast cannot be read", hint) from None
    known = {label(level): level for level in arms.levels}
    cuts = [(given[:at].strip(), given[at + 1 :].strip()) for at, sign in enumerate(given) if sign in "-−"]
    found = [(known[left], known[right]) for left, right in cuts if left in known and right in known and left != right]
    if len(found) != 1:
        raise AnalysisError("a contrast cannot be read", hint)
    return {found[0][0]: 1.0, found[0][1]: -1.0}


def read_margins(
    margins: Mapping[str, Margin | Sequence[Margin]] | None, metrics: Iterable[str], lower: Iterable[str]
) -> dict[str, tuple[Margin, ...]]:
    """The margins of every metric; where less is better, they lie on the other side."""
    _check_metrics(margins or {}, metrics, "a margin")
    less = set(lower)
    found = {}
    for metric, given in (margins or {}).items():
        own = tuple(_several(given))
        if not own or not all(isinstance(one, Margin) for one in own):
            raise AnalysisError(
                "a margin is something else than a Margin", "For example margins={'spend': Margin('superiority', 1)}."
            )
        found[metric] = tuple(replace(one, better="lower") if metric in less else one for one in own)
    return found


def read_priors(prior: Prior | Mapping[str, Prior] | None, metrics: Iterable[str]) -> dict[str, Prior]:
    """What was believed about each metric: one prior for all, or by name."""
    names = list(metrics)
    found = dict.fromkeys(names, prior) if isinstance(prior, Prior) else dict(prior or {})
    _check_metrics(found, names, "a prior")
    if not all(isinstance(one, Prior) for one in found.values()):
        raise AnalysisError("a prior is something else than a Prior", "For example prior=Prior(0, 0.01).")
    return {metric: one for metric, one in found.items() if one is not None}


def read_lower(lower: Sequence[str], metrics: Iterable[str], margins: Mapping[str, Any] | None) -> frozenset[str]:
    """Where is less better? What is said, and where the margins say so."""
    named = [lower] if isinstance(lower, str) else list(lower)
    _check_metrics(named, metrics, "lower_is_better")
    by_margin = [
        metric
        for metric, given in (margins or {}).items()
        if any(isinstance(one, Margin) and one.better == "lower" for one in _several(given))
    ]
    return frozenset([*named, *by_margin])


def _several(given: Any) -> Iterable[Any]:
    return given if isinstance(given, (list, tuple)) else (given,)


def _check_metrics(named: Iterable[str], metrics: Iterable[str], what: str) -> None:
    known = list(metrics)
    if any(name not in known for name in named):
        raise AnalysisError(f"{what} names an unknown metric", f"Metrics: {listed(known)}.")
