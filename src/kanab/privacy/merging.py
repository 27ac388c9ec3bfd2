"""Merging small levels: one map for all arms, chosen on pooled counts and planned shares, never on y.

A map per arm, or one chosen on the arms' realised counts, would bias the effect. Dropping a class
would leave its squares in its arm's total: a wrong error and a leak by subtraction. So levels are
merged, never dropped.

The map is published with the table. Names of levels that nobody declared and that few people have
do not leave with it: a rare value can be a name.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from kanab.tally.factor import OTHER, Factor, Level, as_level, label
from kanab.tally.tally import Tally

RARER = "rarer ones"
"""Stands for levels that nobody declared and that too few people have to be named."""

SAFETY_FACTOR = 1.5
"""A level stays if its pooled people × the smallest planned share reach this many times k."""


@dataclass(frozen=True)
class LevelMap:
    """The new level of each level of a covariate; ``scores`` of merged numeric levels are pooled means.

    Levels too rare to be named: texts go to "other" (``rest``), numbers go by the ``cuts`` between
    the groups.
    """

    covariate: str
    groups: tuple[tuple[Level, tuple[Level, ...]], ...]
    scores: Mapping[Level, float]
    cuts: tuple[float, ...] | None = None
    rest: bool = False

    @property
    def merged(self) -> dict[Level, tuple[Level, ...]]:
        """The new levels that stand for several old ones."""
        return {new: olds for new, olds in self.groups if olds != (new,)}

    @property
    def merged_labels(self) -> dict[str, list[str]]:
        """The merged levels and the levels behind them as texts; some may be too rare to be named."""
        labels = {}
        for new, olds in self.merged.items():
            holds_rare = (self.rest and new == OTHER) or (self.cuts is not None and new not in olds)
            labels[label(new)] = [*map(label, olds), *([RARER] if holds_rare else [])]
        return labels

    def apply(self, tally: Tally) -> Tally:
        """Merge the levels of a tally."""
        mapping = {old: self.target(old) for old in tally.factor(self.covariate).levels}
        return tally.coarsen(self.covariate, mapping, self.scores)

    @cached_property
    def _targets(self) -> dict[tuple[Level, bool], Level]:
        """The new level of each named one; True is not the number 1."""
        return {(old, isinstance(old, bool)): new for new, olds in self.groups for old in olds}

    def target(self, level: Level) -> Level:
        """Return where one level goes; one that the map does not know stays."""
        key = (level, isinstance(level, bool))
        if key in self._targets:
            return self._targets[key]
        if self.cuts is not None and isinstance(level, (int, float)):
            return self.groups[bisect_right(self.cuts, level)][0]
        return OTHER if self.rest else level


def merge_levels(tally: Tally, covariate: str, needed: float) -> LevelMap:
    """Merge until every level has ``needed`` pooled people (or only one level is left)."""
    factor = tally.factor(covariate)
    people = tally.people_by(covariate)
    groups = _ordered(factor, people, needed) if factor.scores else _unordered(factor, people, needed)
    return _map(factor, people, groups)


def regroup(tally: Tally, earlier: LevelMap) -> LevelMap:
    """Merge levels into the groups of an earlier batch, with the scores of these people."""
    factor = tally.factor(earlier.covariate)
    groups: dict[Level, list[Level]] = {new: [] for new, _ in earlier.groups}
    for level in factor.levels:
        groups.setdefault(earlier.target(level), []).append(level)
    filled = [olds for olds in groups.values() if olds]
    if factor.scores:  # a bin that nobody was in before has its neighbours all the same
        filled.sort(key=lambda olds: min(factor.levels.index(old) for old in olds))
    return _map(factor, tally.people_by(earlier.covariate), filled)


def merge_smallest(tally: Tally, levels: LevelMap) -> LevelMap:
    """Merge one level more: the smallest of the pooled ones, into a neighbour or "other"."""
    people = tally.people_by(levels.covariate)
    sizes = [sum(people[old] for old in olds) for _, olds in levels.groups]
    return merge_level(tally, levels, sizes.index(min(sizes)), sizes)


def merge_level(tally: Tally, levels: LevelMap, place: int, sizes: Sequence[int]) -> LevelMap:
    """Merge one level, by its place among the groups, into the smaller neighbour, "other", or the smallest one."""
    factor = tally.factor(levels.covariate)
    groups = [list(olds) for _, olds in levels.groups]
    if factor.scores:
        near = [i for i in (place - 1, place + 1) if 0 <= i < len(groups)]
        partner = min(near, key=lambda i: sizes[i])
    else:  # into "other", if there is one: two levels of that name would be one all the same
        rest = [i for i in range(len(groups)) if i != place]
        partner = min([i for i in rest if _name(factor, groups[i]) == OTHER] or rest, key=lambda i: sizes[i])
    first, second = sorted((place, partner))
    joined = groups[first] + groups[second]
    others = [olds for i, olds in enumerate(groups) if i not in (first, second)]
    others.insert(first, joined)
    return _map(factor, tally.people_by(levels.covariate), others)


def without_means(levels: LevelMap, tally: Tally) -> LevelMap:
    """Score merged levels halfway between the first and the last: a mean would tell how many people are in each.

    >>> from kanab.counting.levels import Bins
    >>> import numpy as np
    >>> arms = Factor("arm", ("A", "B"), "arm")
    >>> bins, _ = Bins("latency", (0.0, 50.0, 100.0)).outcome([1, 2, 3], missing=False)
    >>> table = Tally((arms, bins), np.array([[40, 1, 9], [40, 2, 8]], dtype=object))
    >>> without_means(merge_levels(table, "latency", 20), table).scores
    {'50 – 100 … ≥ 100': 2.5}
    """
    factor = tally.factor(levels.covariate)
    score = dict(zip(factor.levels, factor.scores or [0.0] * len(factor.levels), strict=True))
    halfway = {}
    for new in levels.scores:
        known = [place for old in dict(levels.groups)[new] if (place := score[old]) is not None]
        halfway[new] = (min(known) + max(known)) / 2
    return replace(levels, scores=halfway)


def without_rare_names(levels: LevelMap, tally: Tally, k: int) -> LevelMap:
    """Remove the names of levels that fewer than k people have."""
    factor = tally.factor(levels.covariate)
    people = tally.people_by(levels.covariate)
    rare = {level for level, n in people.items() if n < k and level is not None}
    if not rare:
        return levels
    if not factor.scores:
        named = tuple((new, tuple(old for old in olds if old not in rare)) for new, olds in levels.groups)
        return LevelMap(levels.covariate, named, levels.scores, rest=True)
    cuts, spans = _cuts([olds for _, olds in levels.groups], rare)
    names = {
        new: f"{span} or missing" if None in olds and len(olds) > 1 else span
        for (new, olds), span in zip(levels.groups, spans, strict=False)
        if rare & set(olds)
    }
    named = tuple((names.get(new, new), tuple(old for old in olds if old not in rare)) for new, olds in levels.groups)
    scores = {names.get(new, new): score for new, score in levels.scores.items()}
    return LevelMap(levels.covariate, named, scores, cuts=cuts)


def _cuts(groups: Sequence[Sequence[Level]], rare: Collection[Level]) -> tuple[tuple[float, ...], list[str]]:
    """Return numbers between neighbouring groups, and what lies between them in words."""
    numbers = [sorted(old for old in olds if isinstance(old, (int, float))) for olds in groups]
    ends = [(group[0], group[-1]) for group in numbers if group]
    cuts = tuple(_cut(low, high, rare) for (_, low), (high, _) in pairwise(ends))
    texts = [label(as_level(cut, "cut")) for cut in cuts]
    if not texts:
        return cuts, ["any number"]
    return cuts, [f"< {texts[0]}", *(f"{low} – {high}" for low, high in pairwise(texts)), f"≥ {texts[-1]}"]


def _cut(low: float, high: float, rare: Collection[Level]) -> float:
    """Return a number above one and not above the other; halfway would give away one that is not named."""
    halfway = (low + high) / 2
    if high in rare:
        return _roundest(low, high)
    return halfway if low < halfway and low not in rare else float(high)


def _roundest(low: float, high: float) -> float:
    """Return the first multiple of the largest possible power of ten above one number and not above the other."""
    start = Fraction(str(low))
    for power in range(16, -16, -1):
        step = Fraction(10) ** power
        multiple = float((start // step + 1) * step)
        if low < multiple <= high:
            return multiple
    return float(high)


def _ordered(factor: Factor, people: Mapping[Level, int], needed: float) -> list[list[Level]]:
    """Cut greedily from left to right; what is left over joins the last group."""
    scored = [level for level in factor.levels if level is not None]
    groups: list[list[Level]] = [[]]
    for level in scored:
        groups[-1].append(level)
        if sum(people[old] for old in groups[-1]) >= needed:
            groups.append([])
    last = groups.pop()
    if last and groups:
        groups[-1].extend(last)
    elif last:
        groups.append(last)
    if None in people:
        if people[None] >= needed or not groups:
            groups.append([None])
        else:
            max(groups, key=lambda olds: sum(people[old] for old in olds)).append(None)
    return groups


def _unordered(factor: Factor, people: Mapping[Level, int], needed: float) -> list[list[Level]]:
    """Merge small levels into "other"; if that is small too, the next smallest joins it."""
    large = [level for level in factor.levels if people[level] >= needed and level != OTHER]
    other = [level for level in factor.levels if people[level] < needed or level == OTHER]
    while other and large and sum(people[level] for level in other) < needed:
        smallest = min(large, key=lambda level: people[level])
        large.remove(smallest)
        other.append(smallest)
    groups = [[level] for level in large]
    return [*groups, sorted(other, key=factor.levels.index)] if other else groups


def _map(factor: Factor, people: Mapping[Level, int], groups: Sequence[Sequence[Level]]) -> LevelMap:
    named = tuple((_name(factor, olds), tuple(olds)) for olds in groups)
    scores: dict[Level, float] = {}
    if factor.scores:
        score = dict(zip(factor.levels, factor.scores, strict=True))
        for new, olds in named:
            weighed = [(score[old], people[old]) for old in olds]
            known = [(x, n) for x, n in weighed if x is not None]
            total = sum(n for _, n in known)
            if len(olds) > 1 and known:
                scores[new] = sum(x * n for x, n in known) / total if total else known[0][0]
    return LevelMap(factor.name, named, scores)


def _name(factor: Factor, olds: Sequence[Level]) -> Level:
    """Name a group: a single level keeps its name; numbers become a range, texts "other"."""
    if len(olds) == 1:
        return olds[0]
    if not factor.scores:
        return OTHER
    scored = [label(old) for old in olds if old is not None]
    span = scored[0] if len(scored) == 1 else f"{scored[0]} … {scored[-1]}"
    return f"{span} or missing" if None in olds else span
