"""Options of an analysis: control, confidence, correction, looks, pooled arms, contrasts, margins, priors."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, Literal, get_args

from kanab.arguments import check_arguments
from kanab.choices import OPTIMAL_AT, Alternative, Correction
from kanab.description import AnyCorrection, Role
from kanab.errors import AnalysisError, LevelError, listed, meant
from kanab.fields import WrongValueError, described
from kanab.plan.declared import ControlChoice
from kanab.plan.model import DecisionRule
from kanab.stats.effect import Effect
from kanab.stats.margins import Better, Margin
from kanab.stats.posteriors import Prior
from kanab.stats.sequential import Look, any_time_f_p, any_time_look, planned_f_p, planned_look
from kanab.stats.spending import Spending, check_spending
from kanab.tally.factor import Factor, Level, as_level, label

ROLES: tuple[Role, ...] = get_args(Role)

Weights = dict[Level, float]
"""A contrast: what each arm's mean is multiplied by."""


@check_arguments()
@dataclass(frozen=True)
class Looks:
    """How an effect is read that is looked at more than once.

    "spending": so many looks, or so many people (``planned``), were fixed beforehand; ``last`` ends
    the design here, and so does the first look at which the planned people are there. Which look it is must be
    known: ``earlier`` are the people counted up to each earlier look, empty at the first one; or Kanab keeps them in
    a ``file``; or batches were added, each of which is a look unless one of the two is given. "always-valid":
    any moment may be the last, an end need not be known, and intervals are narrowest at ``optimal_at`` people. Where
    neither looks nor people are given, the people of the decision are ``planned``. ``anew`` says that
    noise is drawn again for every planned look, as `planned_look` explains; an analysis knows it of its release.
    """

    method: Literal["spending", "always-valid"]
    looks: int | None = None
    planned: int | None = None
    spending: Spending = "obrien-fleming"
    optimal_at: int = OPTIMAL_AT
    last: bool = False
    earlier: Sequence[int] | None = None
    file: str | PathLike[str] | None = None
    anew: bool = False

    def __post_init__(self) -> None:
        if self.method not in ("spending", "always-valid"):
            raise AnalysisError("unknown method of several looks", "Use 'spending' (planned looks) or 'always-valid'.")
        check_spending(self.spending)
        if self.earlier is not None:
            object.__setattr__(self, "earlier", tuple(self.earlier))
        if self.file is not None and (self.method == "always-valid" or self.earlier is not None):
            rival = "a method for any time" if self.method == "always-valid" else "earlier looks (--looks-at)"
            raise AnalysisError(
                f"a looks file and {rival} contradict each other", "Leave one out: the file is for planned looks."
            )

    def at(self, effect: Effect, people: int, nonmodal: float = math.inf, worth: float | None = None) -> Look:
        """Return the effect as it may be read at this look; raise `AnalysisError` for a look that cannot be."""
        if self.method == "always-valid":
            return any_time_look(
                effect, people, optimal_at=self.optimal_at, nonmodal=nonmodal, planned=self.planned,
                last=self.last, worth=worth,
            )  # fmt: skip
        seen = [*(self.earlier or ()), people]
        return planned_look(
            effect, seen, looks=self.looks, planned=self.planned, spending=self.spending, last=self.is_last(seen),
            anew=self.anew, worth=worth,
        )  # fmt: skip

    def p_of_f(self, p: float, df: float, people: int, confidence: float) -> float:
        """Return the p over all looks of an F test that has this p now; raise `AnalysisError` as ``at`` does."""
        if self.method == "always-valid":
            return any_time_f_p(p, df, people, confidence=confidence, optimal_at=self.optimal_at)
        seen = [*(self.earlier or ()), people]
        return planned_f_p(
            p, seen, looks=self.looks, planned=self.planned, spending=self.spending, last=self.is_last(seen)
        )

    def is_last(self, people: Sequence[int]) -> bool:
        """Return whether the latest of these looks is the last: by word, or because the planned people are there."""
        return self.last or self.reached_by(people)

    def reached_by(self, people: Sequence[int]) -> bool:
        """Return whether the latest of these looks is the first at which the planned people are there."""
        return self.planned is not None and people[-1] >= self.planned > max((0, *people[:-1]))


@dataclass(frozen=True)
class ResolvedOptions:
    """The options in the arms and metrics of one release, checked.

    ``margins`` and ``priors`` are by metric; ``lower`` are the metrics where less is better. ``roles`` are empty where
    nobody named any; ``limits`` are margins of non-inferiority, and ``rule`` is what it takes to ship.
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
    roles: Mapping[str, Role] = field(default_factory=dict)
    limits: Mapping[str, Margin] = field(default_factory=dict)
    rule: DecisionRule = field(default_factory=DecisionRule)
    control_chosen: ControlChoice = "named"

    def better(self, metric: str) -> Better:
        """Return the good direction of a metric."""
        return "lower" if metric in self.lower else "higher"

    @property
    def stepwise(self) -> Correction:
        """The correction of p-values by themselves: Holm's stands in for Dunnett's."""
        return "holm" if self.correction == "dunnett" else self.correction

    def alternative_for(self, metric: str) -> Alternative:
        """Return the sides of a metric's test: harm to a guardrail is looked for whatever was hoped for."""
        return "two-sided" if self.roles.get(metric) == "guardrail" else self.alternative

    def __post_init__(self) -> None:
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
    """Return the arm of this name, as itself or as it is written: "1" is the number 1 where no text is called so."""
    try:
        return arms.levels[arms.index(name)]
    except LevelError:
        levels = [level for level in arms.levels if isinstance(name, str) and label(level) == name.strip()]
        if len(levels) != 1:
            raise
        return levels[0]


def read_pool(arms: Factor, pool: Mapping[Any, Sequence[Any]] | None) -> dict[Level, list[Level]]:
    """Return the arms that are taken as one, by the name of their pool: ``{"any letter": ["B", "C"]}``."""
    groups: dict[Level, list[Level]] = {}
    for new, olds in (pool or {}).items():
        if isinstance(olds, str) or len(set(olds)) < 2:
            raise AnalysisError("a pool joins at least two arms", "For example pool={'any': ['B', 'C']} (any=B+C).")
        groups[as_level(new, arms.name)] = [named_arm(arms, old) for old in olds]
    pooled = [old for olds in groups.values() for old in olds]
    if len(set(pooled)) < len(pooled):
        raise AnalysisError("an arm is in two pools", "Every arm goes into one pool at most.")
    if any(new in arms.levels and new not in pooled for new in groups):
        raise AnalysisError("a pool has the name of another arm", "Give it a name of its own.")
    return groups


def read_contrast(arms: Factor, contrast: str | Mapping[Any, float]) -> Weights:
    """Read ``"B - C"``, or weights: ``"B=0.5,C=0.5,A=-1"`` or ``{"B": 0.5, "C": 0.5, "A": -1}``.

    Names may hold hyphens: the cut is where both sides are arms.
    """
    if isinstance(contrast, Mapping):
        return {named_arm(arms, arm): weight for arm, weight in contrast.items()}
    hint = f"Write 'B - C', or weights such as B=0.5,C=0.5,A=-1. Arms: {listed(arms.labels)}."
    if not isinstance(contrast, str):
        raise AnalysisError("a contrast is neither a text nor weights by arm", hint)
    if "=" in contrast:
        parts = [part.rpartition("=") for part in contrast.split(",") if part.strip()]
        try:
            return {named_arm(arms, name.strip()): float(weight) for name, _, weight in parts}
        except (ValueError, LevelError):
            raise AnalysisError("a contrast cannot be read", hint) from None
    known = {label(level): level for level in arms.levels}
    cuts = [(contrast[:at].strip(), contrast[at + 1 :].strip()) for at, sign in enumerate(contrast) if sign in "-−"]
    sides = [(known[left], known[right]) for left, right in cuts if left in known and right in known and left != right]
    if len(sides) != 1:
        raise AnalysisError("a contrast cannot be read", hint)
    return {sides[0][0]: 1.0, sides[0][1]: -1.0}


def read_margins(
    margins: Mapping[str, Margin | Sequence[Margin]] | None, metrics: Sequence[str], lower: Collection[str]
) -> dict[str, tuple[Margin, ...]]:
    """Return the margins of every metric; where less is better, they lie on the other side."""
    _check_metrics(margins or {}, metrics, "a margin")
    by_metric = {}
    for metric, claims in (margins or {}).items():
        by_metric[metric] = tuple(
            replace(margin, better="lower") if metric in lower else margin for margin in _several(claims)
        )
    return by_metric


def read_priors(prior: Prior | Mapping[str, Prior] | None, metrics: Sequence[str]) -> dict[str, Prior]:
    """Return the prior of every metric: one for all, or by name."""
    priors = dict.fromkeys(metrics, prior) if isinstance(prior, Prior) else dict(prior or {})
    _check_metrics(priors, metrics, "a prior")
    return priors


def read_lower(lower: Sequence[str] | str, metrics: Sequence[str], margins: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the metrics where less is better: those that are named, and those whose margins say so."""
    named = _names(lower)
    _check_metrics(named, metrics, "lower_is_better")
    by_margin = [
        metric
        for metric, claims in (margins or {}).items()
        if any(margin.better == "lower" for margin in _several(claims))
    ]
    return frozenset([*named, *by_margin])


def read_roles(
    primary: Sequence[str] | str,
    guardrails: Sequence[str] | str,
    metrics: Sequence[str],
    planned: Sequence[str] = (),
    planned_guardrails: Sequence[str] = (),
) -> dict[str, Role]:
    """Return the role of every metric: as asked, else as planned; none where nobody named any.

    Where no metric is primary and only one is left that is not a guardrail, it is.
    """
    first, guards = _names(primary), _names(guardrails)
    _check_metrics(first, metrics, "primary")
    _check_metrics(guards, metrics, "guardrails")
    if set(first) & set(guards):
        raise AnalysisError("a metric is primary and a guardrail", "It has one role.")
    first = first or [name for name in planned if name in metrics and name not in guards]
    guards = guards or [name for name in planned_guardrails if name in metrics and name not in first]
    rest = [name for name in metrics if name not in guards]
    first = first or (rest if len(rest) == 1 else [])
    if not first and not guards:
        return {}
    return {name: "primary" if name in first else "guardrail" if name in guards else "secondary" for name in metrics}


def read_rule(rule: DecisionRule, switches: Mapping[str, Any] | None) -> DecisionRule:
    """Return the planned rule with the switches that were asked for."""
    for name, value in (switches or {}).items():
        try:
            described(DecisionRule)[name].setting.kind.read(value)
        except (KeyError, WrongValueError):
            raise AnalysisError(
                "a switch of the decision is not known",
                "Use primary='any' or 'all', guardrails='not-worse' or 'non-inferior', people=20000, worth='2%'.",
            ) from None
    return replace(rule, **dict(switches or {}))


def _names(names: Sequence[str] | str) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _several(claims: Any) -> Iterable[Any]:
    return claims if isinstance(claims, (list, tuple)) else (claims,)


def _check_metrics(named: Iterable[str], metrics: Sequence[str], word: str) -> None:
    for name in named:
        if name not in metrics:
            raise AnalysisError(f"{word} names an unknown metric", f"{meant(name, metrics)}Metrics: {listed(metrics)}.")
