"""Reading and subtracting: classes below k, and what changed between two tables of the same people."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isqrt

import numpy as np

from kanab.inspection.attack.findings import Finding, in_people
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, alike
from kanab.tally.metric import Metric
from kanab.tally.moments import Cross, Moments
from kanab.tally.tally import in_units

SMALL = "small classes"
DIFFERENCES = "differences"

_Place = tuple[int, ...]


def find_small_classes(releases: Sequence[AttackedRelease], k: int) -> list[Finding]:
    """Find fewer than k people in a class, who have or lack a value there, or in a cell of two 0/1 metrics."""
    findings = []
    for release in releases:
        for table in release.tables:
            title = f"{release.name}, {table.name}"
            for place in table.places():
                n = int(table.people[place])
                where = table.words(place)
                if 0 < n < k:
                    findings.append(Finding(SMALL, title, "", n, f"{where} holds {in_people(n)}"))
                for part in table.moments:
                    have = int(part.counts[place])
                    name = part.metric.name
                    if 0 < have < k and have < n:
                        findings.append(Finding(SMALL, title, name, have, f"{in_people(have)} of {where} have {name}"))
                    if 0 < n - have < k and have > 0:
                        learnt = f"{in_people(n - have)} of {where} have no {name}"
                        findings.append(Finding(SMALL, title, name, n - have, learnt))
            for cross in table.crosses:
                findings += _small_cells(table, cross, title, k)
    return findings


def _small_cells(table: AttackedTable, cross: Cross, title: str, k: int) -> Iterator[Finding]:
    """Yield small cells of the table of two 0/1 metrics that their products make, arm by arm."""
    parts = [table.part(name) for name in cross.pair]
    if not all(part is not None and part.metric.binary for part in parts):
        return
    n, (y, z), both = cross.counts, cross.sums, cross.products
    a, b = cross.pair
    cells = {f"{a} and {b}": both, f"{a} and no {b}": y - both, f"{b} and no {a}": z - both,
             f"neither {a} nor {b}": n - y - z + both}  # fmt: skip
    for has, people in cells.items():
        for place in np.ndindex(people.shape):
            there = int(people[place])
            if 0 < there < k:
                verb = "has" if there == 1 else "have"
                learnt = f"{in_people(there)} of {table.words(place, cross.by)} {verb} {has}"
                yield Finding(SMALL, title, f"{a}, {b}", there, learnt)


def find_differences(releases: Sequence[AttackedRelease], k: int) -> list[Finding]:
    """Find what subtracting a table from another says, where the people of one are among those of the other."""
    findings: list[Finding] = []
    for before, after, first, second in _comparable(releases):
        names = tuple(name for name in first.names if name in second.names)
        comparison = _TableComparison(*alike(first, second, names), _title(before, after, first, second), k)
        for place in comparison.before.places():
            if not comparison.after.hidden[place]:
                findings += comparison.at(place)
    return findings


def _comparable(
    releases: Sequence[AttackedRelease],
) -> Iterator[tuple[AttackedRelease, AttackedRelease, AttackedTable, AttackedTable]]:
    """Yield tables of which the people of one are among those of the other: within releases, then between them."""
    tables = [(place, table) for place, release in enumerate(releases) for table in release.tables]
    of_experiments: dict[frozenset[str], list[int]] = {}
    for number, (_, table) in enumerate(tables):
        of_experiments.setdefault(table.experiments, []).append(number)
    nested = _nested(of_experiments)
    pairs: list[tuple[bool, int, int, int, int]] = []
    for first, (before, table) in enumerate(tables):
        for experiments in nested[table.experiments]:
            others = of_experiments[experiments]
            for second in others[bisect_right(others, first) :]:
                after, other = tables[second]
                apart = before != after and releases[before].apart(releases[after])
                if not apart and not {*table.names}.isdisjoint(other.names):
                    pairs.append((before != after, before, after, first, second))
    for _, before, after, first, second in sorted(pairs):
        yield releases[before], releases[after], tables[first][1], tables[second][1]


def _nested(known: Collection[frozenset[str]]) -> dict[frozenset[str], set[frozenset[str]]]:
    """Return for every set of experiments those that lie inside it, and those that it lies inside."""
    nested: dict[frozenset[str], set[frozenset[str]]] = {experiments: set() for experiments in known}
    for experiments in known:
        for length in range(len(experiments) + 1):
            for part in map(frozenset, combinations(experiments, length)):
                if part in nested:
                    nested[experiments].add(part)
                    nested[part].add(experiments)
    return nested


def _title(before: AttackedRelease, after: AttackedRelease, first: AttackedTable, second: AttackedTable) -> str:
    if before is after:
        return f"{before.name}, {first.name} − {second.name}"
    if first.name == second.name:
        return f"{before.name} → {after.name}, {first.name}"
    return f"{before.name}, {first.name} → {after.name}, {second.name}"


@dataclass(frozen=True)
class _TableComparison:
    """Two tables of the same classes."""

    before: AttackedTable
    after: AttackedTable
    title: str
    k: int

    def at(self, place: _Place) -> Iterator[Finding]:
        """Yield what the difference in one class says."""
        moved = int(self.after.people[place] - self.before.people[place])
        where = self.before.words(place)
        pairs = [(part, other) for part in self.before.moments if (other := _same(part, self.after)) is not None]
        if 0 < abs(moved) < self.k:
            values = [self._values(a, b, place) for a, b in pairs]
            learnt = [f"{where} differs by {in_people(abs(moved))}", *(text for text in values if text)]
            names = ", ".join(a.metric.name for a, _ in pairs)
            yield Finding(DIFFERENCES, self.title, names, abs(moved), "; ".join(learnt))
            return
        for a, b in pairs:
            joined = int(b.counts[place] - a.counts[place])
            name = a.metric.name
            if a.metric.missing == "exclude" and 0 < abs(joined) < self.k:
                learnt = [f"in {where} the people who have {name} differ by {in_people(abs(joined))}"]
                learnt += [self._values(a, b, place)]
                yield Finding(DIFFERENCES, self.title, name, abs(joined), "; ".join(learnt))
            elif moved == 0 and joined == 0:
                yield from self._changed(a, b, place)

    def _values(self, a: Moments, b: Moments, place: _Place) -> str:
        """Say what the people who joined (or left) have between them."""
        count = int(b.counts[place] - a.counts[place])
        total = int(b.sums[place] - a.sums[place])
        squares = self._squares(a, b, place)
        if count < 0:
            count, total, squares = -count, -total, None if squares is None else -squares
        name, scale = a.metric.name, a.metric.scale
        if count == 0:
            return ""
        if count == 1 and _allowed(a.metric, total):
            return f"that person's {name} is {in_units(total, scale)}"
        if count == 2 and squares is not None and 2 * squares >= total**2:
            root = isqrt(2 * squares - total**2)
            low, high = (total - root) // 2, (total + root) // 2
            if low**2 + high**2 == squares:
                return f"their {name} is {in_units(low, scale)} and {in_units(high, scale)}"
        return f"their {name} adds up to {in_units(total, scale)}"

    def _changed(self, a: Moments, b: Moments, place: _Place) -> Iterator[Finding]:
        """Yield what a sum that moved without anybody joining gives away."""
        moved = int(b.sums[place] - a.sums[place])
        if moved == 0:
            return
        people, learnt = 1, ""
        name, scale = a.metric.name, a.metric.scale
        squares = self._squares(a, b, place)
        if a.metric.binary:
            people = abs(moved)
            learnt = f"{people} {'more' if moved > 0 else 'fewer'} of them have {name}" if people < self.k else ""
        elif squares is None:
            change = in_units(moved, scale)
            learnt = f"{name} moved by {change}: if one person's value changed, it changed by that much"
        else:
            old, rest = divmod(squares - moved**2, 2 * moved)
            if not rest and _allowed(a.metric, old) and _allowed(a.metric, old + moved):
                learnt = f"one person's {name} went from {in_units(old, scale)} to {in_units(old + moved, scale)}"
        if learnt:  # else no single person can have moved both sums, and how many did is not known
            where = self.before.words(place)
            yield Finding(DIFFERENCES, self.title, name, people, f"nobody joined or left {where}, and {learnt}")

    def _squares(self, a: Moments, b: Moments, place: _Place) -> int | None:
        """Return how much the squares of one class moved: those of a marginal in which nothing else did."""
        at = dict(zip(self.before.names, place, strict=True))
        for by in a.squares.keys() & b.squares.keys():
            block = tuple(slice(at[name], at[name] + 1) if name in by else slice(None) for name in self.before.names)
            moved = (a.counts != b.counts) | (a.sums != b.sums)
            if int(moved[block].sum()) == int(bool(moved[place])):
                cell = tuple(at[name] for name in by)
                return int(b.squares[by][cell] - a.squares[by][cell])
        return None


def _same(part: Moments, other: AttackedTable) -> Moments | None:
    """Return the numbers of the same metric in another table, if they are on the same grid."""
    numbers = other.part(part.metric.name)
    return numbers if numbers is not None and numbers.metric.scale == part.metric.scale else None


def _allowed(metric: Metric, value: int) -> bool:
    bounds = metric.grid_bounds
    return bounds is None or bounds[0] <= value <= bounds[1]
