"""What merging, withholding and leaving out cost, so that nobody lowers k blindly.

Everything is computed from what is published. How much merging really cost is a statistic of classes with too few
people, so it stays unsaid; said is what it costs if merged levels differ as much as those that were kept.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kanab.errors import listed
from kanab.plan.model import ExperimentPlan
from kanab.plan.paired_covariates import pairs_of
from kanab.privacy.merging import LevelMap
from kanab.privacy.release import Tables
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

Floats = NDArray[np.float64]

LEAST_SHARE = 0.01
"""An interval that is less wider than this share is not spoken of by itself."""

MOST_SHARE = 0.5
"""Beyond this share the figure is no more than a guess: it is said to be more."""

_IF = "if merged levels differ as much as the others do"


def costs_of(release: Tables) -> list[str]:
    """Say what merging, withholding and leaving out cost in every experiment of a release."""
    sentences = []
    for experiment in release.plan.experiments:
        name = f"{experiment.name}: " if len(release.plan.experiments) > 1 else ""  # the others name theirs
        sentences += [f"{name}{sentence}" for sentence in merging_costs(release, experiment)]
        sentences += _lost_answers(release, experiment)
    return sentences


def experiment_costs(release: Tables, experiment: ExperimentPlan) -> list[str]:
    """Say what merging, withholding and leaving out cost in one experiment."""
    return [*merging_costs(release, experiment), *_lost_answers(release, experiment)]


def _lost_answers(release: Tables, experiment: ExperimentPlan) -> list[str]:
    return [*_without_tables(release, experiment), *_without_metrics(release, experiment)]


# ── merging ────────────────────────────────────────────────────────────────────────────────────


def merging_costs(release: Tables, experiment: ExperimentPlan) -> list[str]:
    """Say how much wider adjusted intervals of an experiment are than without merging."""
    wider = {}
    covariates = () if release.receipt.noise is not None else experiment.adjust  # by noise, the levels kept differ, too
    for covariate in sorted(set(covariates)):
        name = f"{experiment.name}/{covariate}"
        levels, table = release.receipt.maps.get(name), release.tables.get(name)
        if levels is not None and levels.merged and table is not None:
            for part in [each for each in table.moments if each.metric.name not in experiment.numbers]:
                wider[covariate, part.metric.name] = wider_by(table, levels, part)
    known = {place: share for place, share in wider.items() if share is not None}
    large = {place: share for place, share in known.items() if share >= LEAST_SHARE}
    sentences = []
    for (covariate, metric), share in large.items():
        how_wide = f"more than {MOST_SHARE * 100:g} %" if share > MOST_SHARE else f"about {share * 100:.0f} %"
        sentences.append(
            f"the interval of {metric} adjusted for {covariate} is {how_wide} wider than without merging, "
            f"as if {_fewer(share)} fewer people had come, {_IF}"
        )
    cheap = [each for each in dict.fromkeys(c for c, _ in known) if not any(c == each for c, _ in large)]
    if cheap:
        sentences.append(
            f"merging levels of {listed(cheap)} makes adjusted intervals less than {LEAST_SHARE * 100:g} % wider, "
            f"{_IF}: a smaller k would gain next to nothing"
        )
    return sentences


def _fewer(share: float) -> str:
    """Return how many people fewer make an interval wider by a share: its square is that of their number.

    >>> _fewer(0.12), _fewer(2)
    ('20 %', 'more than 56 %')
    """
    lost = 1 - 1 / (1 + min(share, MOST_SHARE)) ** 2
    return f"{'more than ' if share > MOST_SHARE else ''}{lost * 100:.0f} %"


def wider_by(table: Tally, levels: LevelMap, part: Moments) -> float | None:
    """Return how much wider an adjusted interval is because levels are merged, as a share; None where nothing tells.

    The variance between merged levels would be explained without merging. It is taken to be that between the levels
    that were kept, arm by arm, less what chance puts there; for ordered ones, that of their trend over so many steps.
    """
    squares = part.squares_by((table.axes[0],), table.axes)
    n, s = part.counts.astype(float), part.sums.astype(float)
    if squares is None or len(table.axes) > 2:
        return None
    means = np.divide(s, n, out=np.zeros_like(s), where=n > 0)
    within = float(squares.astype(float).sum() - (s * means).sum())
    freedom = n.sum() - np.count_nonzero(n)
    if within <= 0 or freedom <= 0:
        return None
    noise = within / freedom
    factor = table.factor(levels.covariate)
    olds = [max(len(dict(levels.groups).get(level, ())), 2 if level in levels.merged else 1) for level in factor.levels]
    sizes = np.array(olds, dtype=float)
    if factor.scores:
        present = np.array([level is not None for level in factor.levels])
        places = np.cumsum(sizes) - sizes / 2
        lost = _trend(n[:, present], means[:, present], places[present], noise) * (sizes**2 - 1) / 12
    else:
        kept = sizes == 1
        chosen = kept if np.count_nonzero(kept) > 1 else np.ones_like(kept)
        if len(sizes) < 2:
            return None
        lost = _spread(n[:, chosen], means[:, chosen], noise) * (1 - 1 / sizes)
    share = float((n * lost).sum()) / within
    return math.inf if share >= 1 else 1 / math.sqrt(1 - share) - 1


def _spread(n: Floats, means: Floats, noise: float) -> float:
    """Return the variance between levels, arm by arm, without what chance puts there (method of moments)."""
    total = np.maximum(n.sum(axis=1, keepdims=True), 1)
    between = float((n * (means - (n * means).sum(axis=1, keepdims=True) / total) ** 2).sum())
    steps = float((np.count_nonzero(n, axis=1) - 1).clip(0).sum())
    room = float((n.sum(axis=1) - (n**2 / total).sum(axis=1)).sum())
    return max(0.0, (between - steps * noise) / room) if room > 0 else 0.0


def _trend(n: Floats, means: Floats, places: Floats, noise: float) -> float:
    """Return the square of the slope of a metric over the places of ordered levels, without what chance puts there."""
    total = np.maximum(n.sum(axis=1, keepdims=True), 1)
    x = places - (n * places).sum(axis=1, keepdims=True) / total
    y = means - (n * means).sum(axis=1, keepdims=True) / total
    room = float((n * x**2).sum())
    return max(0.0, (float((n * x * y).sum()) / room) ** 2 - noise / room) if room > 0 else 0.0


# ── what can no longer be answered ─────────────────────────────────────────────────────────────


def _without_tables(release: Tables, experiment: ExperimentPlan) -> Iterator[str]:
    own, name = release.tables_of(experiment.name), experiment.name
    if not own:
        yield f"there is no result of {name}"
        return
    gone = [each for each in sorted(set(experiment.adjust)) if f"{name}/{each}" not in own]
    if gone:
        yield f"effects of {name} are not adjusted for {listed(gone)}"
    segments = [each for each in sorted(set(experiment.segments)) if f"{name}/{each}" not in own]
    if segments:
        yield f"{name} has no segments by {listed(segments)}"
    apart = [
        f"{pair.first} and {pair.second}"
        for pair in pairs_of(experiment)
        if pair.name in release.receipt.left_out and not {pair.first, pair.second} & {*gone}
    ]
    if apart:
        yield f"effects of {name} are not adjusted for {'; '.join(apart)} together"
    for other in experiment.interactions:
        if not {f"{name}/{other}", f"{other}/{name}"} & release.tables.keys():
            yield f"whether {name} and {other} interfere is not told"


def _without_metrics(release: Tables, experiment: ExperimentPlan) -> Iterator[str]:
    own, name = release.tables_of(experiment.name), experiment.name
    if not own:
        return
    with_totals = [own[name]] if release.receipt.noise is not None and name in own else own.values()
    totals = {metric for table in with_totals for metric in table.metric_names}
    for metric in [each.name for each in release.plan.counted_metrics if each.name not in release.plan.numbers]:
        if metric not in totals:
            yield f"{name} has no effect on {metric}"
            continue
        lost = []
        for words, covariates in (("adjusted for", experiment.adjust), ("told by segments of", experiment.segments)):
            without = [
                each
                for each in sorted(set(covariates))
                if f"{name}/{each}" in own and metric not in own[f"{name}/{each}"].metric_names
            ]
            if without:
                lost.append(f"not {words} {listed(without)}")
        if lost:
            yield f"the effect of {name} on {metric} is {' and '.join(lost)}; the plain one stays"
    for ratio in release.plan.ratios:
        crossed = any(set(cross.pair) == {*ratio} for table in own.values() for cross in table.crosses)
        if {*ratio} <= {*totals} and not crossed:
            yield f"{name} has no effect on {'/'.join(ratio)}"
