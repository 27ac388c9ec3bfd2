"""The strongest attacker: somebody who knows everybody but one person, their values, and how noise was drawn.

Of exact numbers the last person is what is left when all others are subtracted. Of numbers with noise only evidence is
left: the logarithm of how much likelier they are with a person than without, Σ (x r − x² / 2) / v over all statistics,
of which the person moves one by x, r is what is left of it, and v the variance of its noise. Over the noise it has the
variance μ² = Σ x² / v; no way to guess whether the person was counted is right more often than Φ(μ / 2).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kanab.inspection.attack.findings import Attempt, Finding, in_people
from kanab.inspection.attack.known_people import KnownPeople, marginal_places, places_of_people
from kanab.inspection.attack.published import OUT, AttackedRelease, AttackedTable, StatedNoise
from kanab.privacy.epsilon.rho import epsilon_of, rho_per_person
from kanab.privacy.epsilon.split import Statistic
from kanab.tally.cell_arrays import Cells
from kanab.tally.metric import Metric
from kanab.tally.noise import AddedNoise, twice_centre

ALL_BUT_ONE = "all but one"
DOES_ALL_BUT_ONE = "Subtracts everybody who is known, with their values: is one person left?"
ANOTHERS = "The people who are known are not those of the tables: what is left without them is more than noise."
CERTAIN = 0.95
"""Whoever guesses right so often has learnt it."""

RARE = 1e-6
"""What happens less often than this is not taken for chance."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def right_at_most(epsilon: float, delta: float) -> float:
    """Return how often a guess whether somebody was counted is right, at most, by ε and δ alone."""
    return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))


def right_by_noise(evidence: float) -> float:
    """Return how often the best guess is right where the evidence about a person has the variance ``evidence``."""
    return 0.5 * (1 + math.erf(math.sqrt(evidence) / 2 / math.sqrt(2)))


def attack_all_but_one(releases: Sequence[AttackedRelease], k: int, known: KnownPeople | None) -> Attempt:
    """Subtract the people who are known from every release, with noise or without."""
    findings: list[Finding] = []
    says: list[str] = []
    noisy = [(release, release.noise) for release in releases if release.noise is not None]
    figures = _figures(noisy) if noisy else {}
    if noisy:
        if figures["right"] >= CERTAIN:
            names = ", ".join(release.name for release, _ in noisy)
            findings.append(Finding(ALL_BUT_ONE, names, "", 1, "whether one person was counted can be told"))
        says.append(
            "Knowing everybody else, the best guess whether one person was counted is right "
            f"{_percent(figures['right'])} of the time at most; a coin is right half of the time. "
            f"ε = {figures['epsilon']:.3g} promises at most {_percent(figures['promised'])}."
        )
    if known is not None:
        findings += [finding for release in releases if release.noise is None for finding in _left(release, k, known)]
        for release, noise in noisy:
            more, sentence = _weighed(release, noise, known)
            findings += more
            says += [f"{release.name}: {sentence}" if len(noisy) > 1 else sentence]
    return Attempt(ALL_BUT_ONE, DOES_ALL_BUT_ONE, tuple(findings), says=tuple(says), figures=figures)


def promised(noisy: Iterable[tuple[AttackedRelease, StatedNoise]]) -> tuple[float, float]:
    """Return the ε and δ that releases promise one person together."""
    noises = [noise for _, noise in noisy]
    delta = max(noise.delta for noise in noises)
    if len(noises) == 1:
        return noises[0].epsilon, delta
    return epsilon_of(rho_per_person([noise.spent for noise in noises]), delta), delta


def _figures(noisy: Sequence[tuple[AttackedRelease, StatedNoise]]) -> dict[str, float]:
    """Return how often the best guess about the person who stands out most is right, by the noise and by ε."""
    epsilon, delta = promised(noisy)
    evidence = 2 * rho_per_person([noise.published for _, noise in noisy])  # of whoever moves everything the most
    return {
        "epsilon": epsilon, "delta": delta,
        "right": right_by_noise(evidence), "promised": right_at_most(epsilon, delta),
    }  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


# ── exact numbers ──────────────────────────────────────────────────────────────────────────────


def _left(release: AttackedRelease, k: int, known: KnownPeople) -> list[Finding]:
    """Return who is left of exact tables once all others are subtracted: fewer than k people, with their values."""
    findings = []
    for table in release.tables:
        if not set(table.names) <= known.levels.keys() or table.hidden.any():
            continue
        places = places_of_people(table, known.levels)
        inside = places != OUT
        people = table.people.ravel() - np.bincount(places[inside], minlength=table.people.size)
        if (people < 0).any() or not 0 < people.sum() < k:
            continue
        for cell in np.flatnonzero(people).tolist():
            words = table.words(tuple(int(i) for i in np.unravel_index(cell, table.people.shape)))
            values = "".join(f", {text}" for text in _values_left(table, known, places, cell))
            who = "the person" if people[cell] == 1 else in_people(int(people[cell]))
            verb = "is" if people[cell] == 1 else "are"
            learnt = f"{who} whom nobody named {verb} in {words}{values}"
            findings.append(Finding(ALL_BUT_ONE, f"{release.name}, {table.name}", "", int(people[cell]), learnt))
    return findings


def _values_left(table: AttackedTable, known: KnownPeople, places: Ints, cell: int) -> Iterator[str]:
    """Yield what people who are left of a class have between them, of metrics whose values are known of the others."""
    for part in table.moments:
        name, metric = part.metric.name, part.metric
        if name in known.values:
            values = known.values[name][places == cell]
            steps = int(metric.to_grid(values[~np.isnan(values)]).sum())
            yield f"{name} = {(int(part.sums.ravel()[cell]) - steps) / metric.scale:.10g}"


# ── numbers with noise ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class _Remainder:
    """What is left of one statistic without the people who are known, its noise, and what each of them moves."""

    left: Floats
    variances: Floats
    places: Ints
    moved: Floats

    def evidence(self) -> tuple[Floats, Floats]:
        """Return, for one more person like each who is known, the log likelihood ratio and μ²."""
        inside = self.places != OUT
        place, x = np.where(inside, self.places, 0), np.where(inside, self.moved, 0.0)
        v = self.variances[place]
        return (x * self.left[place] - x**2 / 2) / v, x**2 / v


def _weighed(release: AttackedRelease, noise: StatedNoise, known: KnownPeople) -> tuple[list[Finding], str]:
    """Return whether noise is smaller than it is said to be, and what can be said of one more person."""
    from scipy.special import chdtr, chdtrc  # noqa: PLC0415 - `import kanab` stays light

    if release.cohorts:
        return [], "Nobody knows who is in which cohort, so that nothing can be subtracted."
    parts = [part for table in release.tables for part in _remainders(table, noise, known)]
    if not parts:
        return [], "Arms and levels of the people who are known do not make up any of the tables."
    left = np.concatenate([part.left / np.sqrt(part.variances) for part in parts])
    size = float((left**2).sum())
    if chdtrc(len(left), size) < RARE:
        return [], ANOTHERS
    if chdtr(len(left), size) < RARE:
        share = math.sqrt(size / len(left))
        learnt = f"noise is smaller than the file says: {share:.2g} times as large, over {len(left):,} numbers"
        return [Finding(ALL_BUT_ONE, release.name, "", 1, learnt)], "What ε promises does not hold."
    ratios, squares = (sum(each) for each in zip(*(part.evidence() for part in parts), strict=True))
    assert isinstance(ratios, np.ndarray)
    assert isinstance(squares, np.ndarray)
    likeliest, most = int(np.argmax(ratios)), int(np.argmax(squares))
    times, right = math.exp(ratios[likeliest]), right_by_noise(float(squares[most]))
    return [], (
        f"Here, one more person like person {likeliest + 1:,} would be likeliest: {times:.3g} times as likely to have "
        f"been counted as not; ε = {noise.epsilon:g} allows {math.exp(noise.epsilon):.3g} times. Person {most + 1:,} "
        f"stands out most: the best guess is right {_percent(right)} of the time."
    )


def _remainders(table: AttackedTable, noise: StatedNoise, known: KnownPeople) -> Iterator[_Remainder]:
    """Yield every statistic that was measured in a table, of metrics whose values are known."""
    if table.name not in noise.scales or not set(table.names) <= known.levels.keys():
        return
    added = noise.tables[table.name]
    everybody = places_of_people(table, known.levels)
    steps = {
        part.metric.name: _about_middle(part.metric, known.values[part.metric.name])
        for part in table.moments
        if part.metric.name in known.values
    }
    for statistic in noise.scales[table.name]:
        if not set(statistic.metrics) <= steps.keys():
            continue
        moved = _moved(statistic, [steps[name] for name in statistic.metrics], len(everybody))
        places = marginal_places(table, everybody, statistic.by)
        inside = places != OUT
        published, variances = _published(table, statistic), _variances(statistic, added)
        counted = np.bincount(places[inside], weights=moved[inside], minlength=len(published))
        yield _Remainder(published - counted, variances, places, moved)


def _about_middle(metric: Metric, values: Floats) -> Floats:
    """Return values about the middle of their bounds, in grid steps; NaN stays where nobody counts it."""
    there = ~np.isnan(values)
    about = np.full(len(values), np.nan)
    about[there] = metric.to_grid(values[there]) - twice_centre(metric) / 2
    if metric.missing == "zero":
        about[~there] = metric.to_grid(np.zeros(1))[0] - twice_centre(metric) / 2
    return about


def _moved(statistic: Statistic, about: Sequence[Floats], people: int) -> Floats:
    """Return by how much everybody moves a statistic."""
    if statistic.kind == "people":
        return np.ones(people)
    if statistic.kind == "counts":
        return (~np.isnan(about[0])).astype(np.float64)
    moved = about[0] ** 2 if statistic.kind == "squares" else math.prod(about[1:], start=about[0])
    return np.nan_to_num(moved)


def _published(table: AttackedTable, statistic: Statistic) -> Floats:
    """Return what a file says of a statistic, about the middle of bounds; whole numbers until the end."""
    by = statistic.by
    if statistic.kind == "people":
        return _floats(table.by(by).people)
    parts = {part.metric.name: part for part in table.by(by).moments}
    part = parts[statistic.metrics[0]]
    n, s, g = part.counts, part.sums, twice_centre(part.metric)
    if statistic.kind == "counts":
        return _floats(n)
    if statistic.kind == "sums":
        return _floats(2 * s - g * n) / 2
    if statistic.kind == "squares":
        own = table.part(statistic.metrics[0])
        assert own is not None
        return _floats(4 * own.squares[by] - 4 * g * s + g**2 * n) / 4
    cross = next(cross for cross in table.crosses if set(cross.pair) == set(statistic.metrics) and cross.by == by)
    other = parts[statistic.metrics[1]]
    h = twice_centre(other.metric)
    return _floats(4 * cross.products - 2 * h * s - 2 * g * other.sums + g * h * n) / 4


def _floats(cells: Cells) -> Floats:
    return np.asarray(cells.ravel().astype(np.float64))


def _variances(statistic: Statistic, added: AddedNoise) -> Floats:
    """Return the variances of the noise in a statistic."""
    if statistic.kind == "people":
        cells = added.people
    elif statistic.kind == "products":
        cells = added.products[(statistic.metrics[0], statistic.metrics[1]), statistic.by]
    elif statistic.kind == "counts":
        cells = added.counts_of(statistic.metrics[0])
    else:
        metric = added.metrics[statistic.metrics[0]]
        cells = metric.squares[statistic.by] if statistic.kind == "squares" else metric.sums
    return _floats(cells)
