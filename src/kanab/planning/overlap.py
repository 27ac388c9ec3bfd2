"""Forecasts effective k: among how many people everybody will hide when all tables of an experiment are used together.

People are drawn with independent covariates at the planned shares and go through the gate itself, so that the forecast
says what it will merge or leave out, tables of two covariates included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low

import numpy as np

from kanab.counted import Counted, floor_to_k
from kanab.counting.signatures import Membership, make_signatures
from kanab.errors import PrivacyError, listed
from kanab.plan.model import Linkage, Plan
from kanab.plan.pairs import pairs_of
from kanab.privacy.gate import make_release
from kanab.privacy.leverage import SLACK, leverage
from kanab.privacy.release import Release
from kanab.tally.cells import zeros
from kanab.tally.factor import Factor, Level, numeric_scores
from kanab.tally.tally import Tally

DRAWS, FEW_CLASSES, MOST_CLASSES = 20, 200, 400
"""Populations that are drawn; a quarter of them where the tables have more than a few classes, and beyond the most
without tables of two covariates, so that the forecast takes seconds."""

MOST_DRAWN = 200_000
"""People of a drawn population: with more of them nothing is merged that is not merged with so many."""

Shares = Mapping[Level, float]


@dataclass(frozen=True)
class OverlapForecast:
    """The forecast of one experiment with several covariates, for the ``people`` who are sealed together.

    ``unmerged`` is the effective k of all tables as planned, ``effective_k`` that of what the gate leaves of
    them, each the lowest of the drawn populations, floored to a multiple of k; None where nothing is left or too
    many classes would have to be checked. ``levels_kept`` are levels per covariate, as in the middle one of the
    populations; ``left_out`` are the tables that most of them lose, ``crossed`` those of two covariates that most of
    them have, of so many ``pairs``; None where pairs are too many to be forecast.
    """

    experiment: str
    people: int
    unmerged: int | None
    effective_k: int | None
    levels: Mapping[str, int]
    levels_kept: Mapping[str, int]
    left_out: tuple[str, ...]
    crossed: tuple[str, ...]
    pairs: int | None

    def sentence(self, k: int) -> str:
        """Say what will happen to the tables of the experiment, if anything will."""
        merged = [
            f"{name} with {kept} of {self.levels[name]} levels"
            for name, kept in self.levels_kept.items()
            if kept < self.levels[name]
        ]
        parts = [listed(merged)] if merged else []
        parts += [f"no table of {listed(self.left_out)}"] if self.left_out else []
        if not parts:
            return ""
        why = ""
        if self.unmerged is not None and self.unmerged < k:
            why = f"as planned, all tables together would single out fewer than k = {k} people; "
        return f"{self.experiment}, {self.people:,} people: {why}expect {', and '.join(parts)}."


def forecast_overlap(
    plan: Plan, experiment: str, arms: Shares, levels: Mapping[str, Shares], people: int
) -> OverlapForecast:
    """Forecast one experiment: ``arms`` and ``levels`` are shares that add up to one, the latter by covariate."""
    alone = replace(plan.experiment(experiment), interactions=(), exclude_with=(), joint_shares={}, control=None)
    alone_plan = replace(plan, experiments=(alone,), metrics=(), cohorts=None)
    pairs = [pair for pair in pairs_of(alone) if pair.name not in alone_plan.linkage_names]
    classes = len(arms) * (
        sum(map(len, levels.values())) + sum(len(levels[pair.first]) * len(levels[pair.second]) for pair in pairs)
    )
    draws = DRAWS if classes <= FEW_CLASSES else DRAWS // 4
    too_many = classes > MOST_CLASSES
    if too_many:
        alone_plan = replace(alone_plan, experiments=(replace(alone, adjust=(), segments=alone.covariates),))
        pairs = []
    rng = np.random.default_rng(1)
    unmerged: list[int | None] = []
    made: list[Release | None] = []
    for _ in range(draws):
        counted = _drawn(alone_plan, arms, levels, min(people, MOST_DRAWN), rng)
        unmerged.append(_unmerged(counted))
        made.append(_released(counted))
    lowest = [None if batch is None else batch.receipt.effective_k for batch in made]
    kept = {
        name: median_low([_levels_kept(batch, link) for batch in made])
        for name, link in ((linkage.covariate or "", linkage) for linkage in alone_plan.linkages)
    }
    names = [*alone_plan.linkage_names, *(pair.name for pair in pairs)]
    there = Counter(name for batch in made if batch is not None for name in batch.tables)
    return OverlapForecast(
        experiment,
        people,
        _lowest(unmerged, plan.k),
        _lowest(lowest, plan.k),
        {name: len(shares) for name, shares in levels.items()},
        {name: size for name, size in kept.items() if size},
        tuple(name for name in names if 2 * there[name] <= draws),
        tuple(pair.name for pair in pairs if 2 * there[pair.name] > draws),
        None if too_many else len(pairs),
    )


def _drawn(plan: Plan, arms: Shares, levels: Mapping[str, Shares], people: int, rng: np.random.Generator) -> Counted:
    """Draw people with independent covariates, and count them."""
    experiment = plan.experiments[0].name
    arm = rng.choice(len(arms), people, p=list(arms.values()))
    cells, sizes, tallies = {}, {}, {}
    for linkage in plan.linkages:
        shares = levels[linkage.covariate or ""]
        cells[linkage.name] = arm * len(shares) + rng.choice(len(shares), people, p=list(shares.values()))
        sizes[linkage.name] = len(arms) * len(shares)
        factors = (
            Factor(experiment, tuple(arms), "arm"),
            Factor(linkage.covariate or "", tuple(shares), "covariate", numeric_scores(tuple(shares))),
        )
        counts = zeros((len(arms), len(shares)))
        counts[...] = (
            np.bincount(cells[linkage.name], minlength=sizes[linkage.name]).astype(object).reshape(counts.shape)
        )
        tallies[linkage.name] = Tally(factors, counts)
    return Counted(replace(plan, budget=None), tallies, make_signatures([Membership(cells, sizes, {})])[0])


def _unmerged(counted: Counted) -> int | None:
    """Return the effective k of all tables as planned; None where they have too many classes to check."""
    assert counted.signatures is not None
    try:
        return int(leverage(counted.signatures.cells, counted.signatures.people).effective_k * (1 + SLACK))
    except PrivacyError:
        return None


def _released(counted: Counted) -> Release | None:
    try:
        return make_release(counted, override="a forecast")
    except PrivacyError:
        return None


def _levels_kept(batch: Release | None, linkage: Linkage) -> int:
    """Return how many levels of a covariate a population has left; 0 where its table is left out."""
    if batch is None or linkage.name not in batch.tables:
        return 0
    return len(batch.tables[linkage.name].covariates[0].levels)


def _lowest(sizes: Sequence[int | None], k: int) -> int | None:
    known = [size for size in sizes if size is not None]
    return floor_to_k(min(known), k) if len(known) == len(sizes) else None
