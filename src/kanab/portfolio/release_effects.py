"""Effects of several releases, one by one: what is combined, shrunk and added up is in a release already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kanab.analysis.api import analyze
from kanab.description import Reading
from kanab.errors import AnalysisError, PrivacyError, listed
from kanab.plan.declared import ControlChoice
from kanab.privacy.release import Release, refuse_own_rows
from kanab.stats.margins import Better
from kanab.tally.factor import Level, label

Releases = Mapping[str, Release] | Sequence[Release]
"""Releases with their names, or without: they are then called by cohort, or by number."""


@dataclass(frozen=True)
class ReleasedEffect:
    """An arm against the control on one metric, by its best estimate: the adjusted one where there is one.

    ``source`` is the release that it is from.
    """

    source: str
    experiment: str
    metric: str
    control: str
    arm: str
    people: int
    estimate: float
    se: float
    interval: tuple[float, float]
    p: float
    better: Better
    share: bool
    control_chosen: ControlChoice


def named_releases(releases: Releases, *, by_batch: bool = False) -> dict[str, Release]:
    """Return releases by name; with ``by_batch`` a sum of batches becomes its batches.

    Raises `PrivacyError` for anything but releases.
    """
    given = releases.values() if isinstance(releases, Mapping) else releases
    for each in given if isinstance(given, Iterable) else ():
        refuse_own_rows(each)
    if isinstance(releases, Mapping):
        named = {str(name): released for name, released in releases.items()}
    elif isinstance(releases, Sequence) and all(isinstance(released, Release) for released in releases):
        parts = [part for released in releases for part in (by_batch and released.parts) or (released,)]
        named = {_name(place, released): released for place, released in enumerate(parts, start=1)}
    else:
        named = {}
    if not named or not all(isinstance(released, Release) for released in named.values()):
        raise PrivacyError("only releases can be read together", "Call release() on what count() returned.")
    return named


def _name(place: int, released: Release) -> str:
    batch = released.receipt.batch
    return f"release {place}" if batch is None else f"{place}: through {batch.through}"


def released_effects(
    source: str,
    released: Release,
    experiment: str | None,
    *,
    control: Level = None,
    confidence: float = 0.95,
) -> list[ReleasedEffect]:
    """Return the effects of one experiment of a release that can be tested; raises what `analyze` raises."""
    answer = analyze(released, experiment, Reading(control=control, confidence=confidence, correction="none"))
    people = sum(answer.arms.values())
    shares = {row.effect.metric for row in answer.effects if row.effect.rates is not None}
    effects = []
    for row in answer.effects:
        effect = row.effect
        if row.carries_verdict and effect.interval is not None and effect.p is not None and effect.se_population > 0:
            names = (source, answer.experiment, effect.metric, label(effect.control), label(effect.arm))
            numbers = (people, effect.estimate, effect.se_population, effect.interval, effect.p)
            share = effect.metric in shares
            effects.append(ReleasedEffect(*names, *numbers, row.better, share, answer.control_chosen))
    return effects


def unknown_controls(effects: Iterable[ReleasedEffect]) -> list[str]:
    """Return of which experiments nothing tells the control, one sentence each."""
    unknown = [effect for effect in effects if effect.control_chosen == "unknown"]
    pairs = dict.fromkeys((effect.experiment, effect.control) for effect in unknown)
    return [f"Which arm of {name} is the control? Its effects are against {control}." for name, control in pairs]


def chosen_metric(effects: Sequence[ReleasedEffect], metric: str | None) -> str:
    """Return the metric that is read: the one that is named, or the only one; raises `AnalysisError`."""
    known = list(dict.fromkeys(effect.metric for effect in effects))
    if metric is None and len(known) == 1:
        return known[0]
    if metric in known:
        return str(metric)
    fact = "several metrics, and none named" if metric is None else "no release has an effect on this metric"
    raise AnalysisError(fact, f"Name one of: {listed(known)}." if known else "Release experiments with two arms.")
