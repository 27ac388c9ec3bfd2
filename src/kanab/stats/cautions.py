"""Cautions: what the numbers of an analysis do not say by themselves, as codes and sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError, flag, listed
from kanab.stats.distributions import chi2_tail
from kanab.stats.gram import arm_squares
from kanab.stats.noise_variance import squares_noise
from kanab.stats.score import FEWEST_EXPECTED
from kanab.stats.srm import alarm_limit, independence, people_noise
from kanab.tabular import p_value
from kanab.tally.factor import Level, label
from kanab.tally.moments import Moments
from kanab.tally.noise import twice_centre
from kanab.tally.tally import Tally

Code = Literal[
    "shares-changed", "clamped", "nothing-varies", "few-carry-the-mean", "few-events",
    "looked-early", "assigned-jointly", "rows-not-people", "design-ended",
    "weak-assignment", "few-clusters", "too-noisy", "small-arm", "forged-messages",
]  # fmt: skip

CHANGED_SHARES_ALARM = 0.001
"""Below this p shares are said to have changed: the check is made often."""

FEWEST_CARRIERS = 20
"""An arm's mean should rest on at least so many people, weighed by how far their values are from a bound."""

SURE = 2.0
"""So many standard deviations of the noise are taken off before anything is said of people."""


@dataclass(frozen=True)
class Caution:
    """A code for programs, a sentence for people, and the metric that it is about, if it is about one."""

    code: Code
    sentence: str
    metric: str | None = None

    def __str__(self) -> str:
        return self.sentence


@check_arguments()
def changed_shares(batches: Sequence[Tally], experiment: str = "arm") -> list[Caution]:
    """Warn if the arms' shares changed between batches: adding them then mixes arms with time (Simpson).

    Raises `AnalysisError` where the batches have different arms.
    """
    if len(batches) < 2:
        return []
    levels = [batch.factor(experiment).levels for batch in batches]
    if any(set(arms) != set(levels[0]) for arms in levels):
        raise AnalysisError("the batches have different arms", "Compare batches of one experiment.")
    people = [batch.people_by(batch.factor(experiment).name) for batch in batches]
    table = np.array([[n[arm] for arm in levels[0]] for n in people], dtype=np.float64)
    held = table.sum(axis=1) > 0
    table = table[held]
    if len(table) < 2:
        return []
    noise = [people_noise(batch, batch.factor(experiment).name) for batch in batches]
    variances = np.array([np.zeros(table.shape[1]) if part is None else part for part in noise])
    exact = all(part is None for part in noise)
    chi2, df, _ = independence(table, None if exact else np.diag(variances[held].ravel()))
    p = chi2_tail(chi2, df)
    sentence = (
        f"The arms' shares changed between batches (p = {p_value(p)}; {alarm_limit(CHANGED_SHARES_ALARM)}): whatever "
        "else differs between them is taken for an effect. Add only batches of equal shares, or adjust for the batch."
    )
    return [Caution("shares-changed", sentence)] if p < CHANGED_SHARES_ALARM else []


@check_arguments()
def clamped_values(clamped: Mapping[str, int], people: int) -> list[Caution]:
    """Warn of metrics whose values were cut to the bounds: the effect is then one on cut values.

    ``clamped`` are people per metric, already floored to a multiple of k.
    """
    return [
        Caution(
            "clamped",
            f"At least {_floored(100 * n / people)} % of people had values of {metric} beyond its bounds: its effect "
            "is that on values cut to the bounds.",
            metric,
        )
        for metric, n in clamped.items()
        if n > 0 and people > 0
    ]


@check_arguments()
def metric_cautions(tally: Tally, metric: str | None = None, ends: tuple[float, float] | None = None) -> list[Caution]:
    """Warn if nothing varies in an arm, or its mean rests on few people.

    ``ends`` lie below and above all values of a metric that declares no bounds; without them nothing is known
    of these people. Of a 0/1 metric, which the score test takes care of, warn only if events are few, or nobody's
    values differ. Where numbers carry noise, warn only if `SURE` of its deviations could be all that there is.
    """
    table = tally.keep()
    name = table.moments_of(metric).metric.name
    if table.noise is not None:
        return _noisy_cautions(table, name)
    if table.moments_of(metric).metric.binary:
        return _rate_cautions(table, name)
    arms = _arms(table, metric, ends)
    still = [arm.level for arm in arms if arm.variance <= 0]
    if still:
        sentence = f"Nothing varies in {name} in {_named(still)}: errors come from the other arms alone."
        if len(still) == len(arms):
            sentence = f"Nothing varies in {name} in {_named(still)}: its effects are not testable."
        return [Caution("nothing-varies", sentence, name)]
    few = [arm.level for arm in arms if arm.carriers is not None and arm.carriers < FEWEST_CARRIERS]
    if few:
        sentence = (
            f"The mean of {name} in {_named(few)} rests on very few people: p-values and intervals are rough. Wait "
            "for more people, or declare lower bounds."
        )
        return [Caution("few-carry-the-mean", sentence, name)]
    return []


def _rate_cautions(table: Tally, name: str) -> list[Caution]:
    """Warn if nobody or everybody has the event, or fewer than the exact test's limit are expected in an arm."""
    part = table.moments_of(name)
    people, events = int(part.counts.sum()), int(part.sums.sum())
    if not 0 < events < people:
        who = f"Everybody has {name}, in every arm" if events else f"Nobody has {name} yet, in any arm"
        sentence = f"{who}: there is nothing to compare. The intervals say how large an effect could still be."
        return [Caution("nothing-varies", sentence, name)] if people else []
    rare = min(events, people - events)
    counts = zip(table.experiment.levels, part.counts.tolist(), strict=True)
    few = [arm for arm, n in counts if 0 < n * rare < FEWEST_EXPECTED * people]
    if not few:
        return []
    have = "have" if rare == events else "do not have"
    sentence = (
        f"So few people {have} {name} that fewer than {FEWEST_EXPECTED:g} are expected in {_named(few)} if arms are "
        "alike: a clear effect needs Fisher's exact test to agree, and the plain effect decides, not an adjusted one. "
        "Wait for more people."
    )
    return [Caution("few-events", sentence, name)]


def _noisy_cautions(table: Tally, name: str) -> list[Caution]:
    """Warn if noise leaves so little of an arm's mean that few people could have made it."""
    few = [arm.level for arm in _arms(table, name, None) if (arm.carriers or 0.0) < FEWEST_CARRIERS]
    if not few:
        return []
    sentence = (
        f"The noise of this release hides whether more than a few people make the mean of {name} in {_named(few)}: "
        "intervals reckon with the noise, but may be rough. Wait for more people, or spend more ε."
    )
    return [Caution("too-noisy", sentence, name)]


@check_arguments()
def count_nonmodal(
    tally: Tally, metric: str | None = None, ends: tuple[float, float] | None = None
) -> dict[Level, float]:
    """Return how many people of each arm have another value than the commonest one, at least.

    Of a 0/1 metric these are events, or people without, whichever are fewer. Of amounts it is taken that the commonest
    value is a bound (most have 0, and nobody less): (Σd)²/Σd² is never more than the people who are off it.
    ``ends`` take the place of bounds that were not declared; without them the number is infinite. With noise it is what
    is left beyond `SURE` of its deviations.
    """
    arms = _arms(tally.keep(), metric, ends)
    return {arm.level: math.inf if arm.carriers is None else arm.carriers for arm in arms}


@check_arguments()
def looked_early(looks: int, sequential: bool) -> list[Caution]:
    """Warn if results were looked at several times without a method that allows it."""
    if looks < 2 or sequential:
        return []
    sentence = (
        "Results were looked at more than once, and p-values hold for one look only: false alarms are more frequent "
        "than they say. Plan the looks, or use intervals that hold at any time."
    )
    return [Caution("looked-early", sentence)]


def design_ended(look: int, when: str) -> Caution:
    """Warn that people who came after the last planned look are not in the answer."""
    return Caution(
        "design-ended",
        f"The design ended with look {look} ({when}); people who came later are not in this answer.",
    )


def forged_messages(metric: str) -> Caution:
    """Warn that messages to a collector moved sums of a metric to what nobody could have sent."""
    sentence = (
        f"Some messages about {metric} were forged or lost, which may have moved its effect. Find out who sent them "
        "before you act on it."
    )
    return Caution("forged-messages", sentence, metric)


def rows_not_people(column: str) -> Caution:
    """Warn that a column that looks like a person's id repeats, but every row was counted as a person."""
    sentence = (
        f"Rows are not people: {column} looks like a person's id and repeats, and every row was counted as a person. "
        f"Standard errors and p-values are then too small. Count people ({flag('--unit', column)})."
    )
    return Caution("rows-not-people", sentence)


def small_arms(arms: Mapping[Level, int], k: int, units: str = "people") -> list[Caution]:
    """Warn of arms with fewer than k people or clusters, which nobody but the holder of the rows is shown."""
    small = [arm for arm, people in arms.items() if people < k]
    if not small:
        return []
    rest = [arm for arm in arms if arm not in small]
    without = f", or count only the others ({flag('--arms', ','.join(map(label, rest)))})" if len(rest) > 1 else ""
    sentence = (
        f"Fewer than k = {k} {units} are in {_named(small)}: effects are rough, and no class of a covariate can "
        f"have k {units} in every arm, so that nothing is adjusted for. A release would be refused. Wait for more "
        f"{units}{without}."
    )
    return [Caution("small-arm", sentence)]


def assigned_jointly(experiment: str, others: Sequence[str]) -> Caution:
    """Warn that people were assigned to several experiments together: a plain effect then holds part of the others'."""
    sentence = (
        f"{experiment} was assigned together with {listed(others)}, in joint shares that are not independent: its "
        "effects hold part of the other's. Compare its arms within the arms of the other (kanab scan)."
    )
    return Caution("assigned-jointly", sentence)


@dataclass(frozen=True)
class _Arm:
    """One arm: its variance, and how many people carry its mean."""

    level: Level
    variance: float
    carriers: float | None


def _arms(table: Tally, metric: str | None, ends: tuple[float, float] | None) -> list[_Arm]:
    part = table.moments_of(metric)
    squares = arm_squares(table, metric)
    bounds = part.metric.grid_bounds
    if bounds is None and ends is not None:
        bounds = math.floor(ends[0] * part.metric.scale), math.ceil(ends[1] * part.metric.scale)
    arms = []
    for place, level in enumerate(table.experiment.levels):
        n, s, q = (int(cells[place]) for cells in (part.counts, part.sums, squares))
        if n <= 0:
            continue
        spread = q * n - s * s  # n² times the variance, in whole steps
        carriers = None if bounds is None else min(_carriers((n, s, q), end) for end in bounds)
        if table.noise is not None and bounds is not None:
            carriers = min(_sure_carriers(table, part, place, q, end) for end in bounds)
        arms.append(_Arm(level, spread / n**2, carriers))
    return arms


def _carriers(sums: tuple[int, int, int], end: int) -> float:
    """Return (Σ d)²/Σ d², d being the distance from a bound: n if all are alike, 1 if one person has it all."""
    n, s, q = sums
    away, squares = s - n * end, q - 2 * end * s + n * end**2
    return away**2 / squares if squares else 0.0


def _sure_carriers(table: Tally, part: Moments, place: int, squares: int, end: int) -> float:
    """Return the same where sums carry noise: the least that it leaves, within `SURE` of its deviations."""
    assert table.noise is not None
    n, s = int(part.counts[place]), int(part.sums[place])
    own = table.noise.metrics[part.metric.name]
    people, sums = float(table.noise.counts_of(part.metric.name)[place]), float(own.sums[place])
    off = twice_centre(part.metric) / 2 - end
    away = max(0.0, abs(s - n * end) - SURE * math.sqrt(sums + off**2 * people))
    if part.metric.binary:
        return away
    about = squares - 2 * end * s + n * end**2
    noise = squares_noise(table, part.metric.name)[place] + 4 * off**2 * sums + off**4 * people
    most = max(0.0, about) + SURE * math.sqrt(noise)
    return away**2 / most


def _floored(share: float) -> str:
    """Format a share to two digits, never more than it is."""
    unit = 10.0 ** (math.floor(math.log10(share)) - 1)
    return f"{math.floor(share / unit + 1e-9) * unit:.2g}"


def _named(arms: Sequence[Level]) -> str:
    return f"arm {label(arms[0])}" if len(arms) == 1 else f"arms {listed(map(label, arms))}"
