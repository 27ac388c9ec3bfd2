"""Merging sparse levels: one map for all arms, chosen on pooled counts and planned shares, never on y.

A map per arm, or one chosen on the arms' realised counts, would bias the effect. Dropping a class
would leave its squares in its arm's total: a wrong error and a leak by subtraction. So levels are
merged, never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kanab.factor import Factor, Level, label
from kanab.tally import Tally

OTHER = "other"
MARGIN = 1.5
"""A level stays if its pooled people × the smallest planned share reach this many times k."""


@dataclass(frozen=True)
class LevelMap:
    """Where each level of a covariate goes; ``scores`` of merged numeric levels are pooled means."""

    covariate: str
    groups: tuple[tuple[Level, tuple[Level, ...]], ...]
    scores: Mapping[Level, float]

    @property
    def merged(self) -> dict[Level, tuple[Level, ...]]:
        """The new levels that stand for several old ones."""
        return {new: olds for new, olds in self.groups if olds != (new,)}

    def apply(self, tally: Tally) -> Tally:
        """The tally with its levels merged."""
        mapping = {old: new for new, olds in self.groups for old in olds}
        return tally.coarsen(self.covariate, mapping, self.scores)


def merge_levels(tally: Tally, covariate: str, needed: float) -> LevelMap:
    """Merge until every level has ``needed`` pooled people (or only one level is left)."""
    factor = tally.factor(covariate)
    people = tally.people_by(covariate)
    groups = _ordered(factor, people, needed) if factor.scores else _unordered(factor, people, needed)
    return _map(factor, people, groups)


def merge_sparsest(tally: Tally, levels: LevelMap) -> LevelMap:
    """Merge one level more: the next sparsest of the pooled ones, into its like."""
    factor = tally.factor(levels.covariate)
    people = tally.people_by(levels.covariate)
    groups = [list(olds) for _, olds in levels.groups]
    sizes = [sum(people[old] for old in olds) for olds in groups]
    sparsest = min(range(len(groups)), key=lambda i: sizes[i])
    if factor.scores:
        near = [i for i in (sparsest - 1, sparsest + 1) if 0 <= i < len(groups)]
        partner = min(near, key=lambda i: sizes[i])
    else:
        partner = min((i for i in range(len(groups)) if i != sparsest), key=lambda i: sizes[i])
    first, second = sorted((sparsest, partner))
    joined = groups[first] + groups[second]
    rest = [olds for i, olds in enumerate(groups) if i not in (first, second)]
    rest.insert(first, joined)
    return _map(factor, people, rest)


def _ordered(factor: Factor, people: Mapping[Level, int], needed: float) -> list[list[Level]]:
    """Greedy cuts from left to right; what is left over joins the last group."""
    scored = [level for level in factor.levels if level is not None]
    groups: list[list[Level]] = [[]]
    for level in scored:
        groups[-1].append(level)
        if sum(people[one] for one in groups[-1]) >= needed:
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
            max(groups, key=lambda olds: sum(people[one] for one in olds)).append(None)
    return groups


def _unordered(factor: Factor, people: Mapping[Level, int], needed: float) -> list[list[Level]]:
    """Sparse levels become "other"; if that is sparse too, the next sparsest joins it."""
    kept = [level for level in factor.levels if people[level] >= needed and level != OTHER]
    other = [level for level in factor.levels if level not in kept]
    while other and kept and sum(people[level] for level in other) < needed:
        sparsest = min(kept, key=lambda level: people[level])
        kept.remove(sparsest)
        other.append(sparsest)
    groups = [[level] for level in kept]
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
    """A single level keeps its name; numbers become a range, texts "other"."""
    if len(olds) == 1:
        return olds[0]
    if not factor.scores:
        return OTHER
    scored = [label(old) for old in olds if old is not None]
    span = scored[0] if len(scored) == 1 else f"{scored[0]} … {scored[-1]}"
    return f"{span} or missing" if None in olds else span
