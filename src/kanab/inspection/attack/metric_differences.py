"""Subtract metrics from metrics: where nearly everybody has y = c·z, what is left of two sums is one person's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np

from kanab.inspection.attack.background import Background
from kanab.inspection.attack.findings import Finding, in_people
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, alike
from kanab.tally.cells import Cells
from kanab.tally.describe import in_units
from kanab.tally.metric import GRID_LIMIT, Metric
from kanab.tally.moments import Cross, Moments

METRIC_DIFFERENCES = "metric differences"
PRODUCTS = "products"

LARGE, SEVERAL = 100, 3
"""Sums of so many steps, in so many classes, do not agree by chance."""

_Place = tuple[int, ...]


def find_metric_differences(releases: Sequence[AttackedRelease], k: int) -> list[Finding]:
    """Find classes in which one metric differs from a multiple of another, where in most others it does not.

    The multiple is 1, or the commonest ratio of the two over all classes. An amount that stands alone in a class of
    every table links them: the same to the last digit, it is the same person's.
    """
    findings: list[Finding] = []
    for release, tables in _with_earlier(releases):
        for first, second in _pairs(tables):
            for times in _multiples(tables, first, second):
                subtracted = Subtracted(first, second, times)
                alone = subtracted.alone(tables)
                findings += [_finding(release.name, subtracted, *each) for each in alone]
    return [finding for finding in findings if finding.people < k]


def _finding(release: str, subtracted: Subtracted, amount: Fraction, classes: Sequence[str], proof: str) -> Finding:
    value = in_units(amount.numerator, amount.denominator)
    learnt = f"{subtracted.title} is {value} in {classes[0]} and 0 in most other classes: one person's, if one differs"
    if proof:
        learnt = f"{subtracted.title} is {value} in {classes[0]}, which is one person's by the squares: {proof}"
    if len(classes) > 1:
        learnt += f"; it is the same in {'; '.join(classes[1:])}, so that these are one person's"
    return Finding(METRIC_DIFFERENCES, release, subtracted.title, 1, learnt)


@dataclass(frozen=True)
class Subtracted:
    """One metric less a multiple of another."""

    first: Metric
    second: Metric
    times: Fraction

    @property
    def title(self) -> str:
        """What it is called: ``gross − net``, ``paid − 9.99 × ordered``."""
        times = "" if self.times == 1 else f"{in_units(self.times.numerator, self.times.denominator)} × "
        return f"{self.first.name} − {times}{self.second.name}"

    def alone(self, tables: Sequence[AttackedTable]) -> Iterator[tuple[Fraction, list[str], str]]:
        """Yield amounts that one person seems to have, the classes that they stand alone in, and what squares prove.

        Where squares do not tell, the amount must stand alone in every table: several people would hardly be
        together in all of them.
        """
        holding = [table for table in tables if table.part(self.first.name) and table.part(self.second.name)]
        alone: dict[tuple[Fraction, str], list[tuple[str, str | None]]] = {}
        for table in holding:
            left = self.left(table)
            for place, amount in left.items():
                if amount and 2 * sum(map(bool, left.values())) <= len(left):
                    words = table.words(place)
                    alone.setdefault((amount, words.split(", ", 1)[0]), []).append(
                        (words, self._proof(table, left, place))
                    )
        for (amount, _), classes in alone.items():
            proofs = [proof for _, proof in classes]
            proof = next((proof for proof in proofs if proof), "")
            if proof or (None not in proofs and len(classes) == len(holding) and self._no_chance(holding)):
                yield amount, [words for words, _ in classes], proof

    def _no_chance(self, tables: Sequence[AttackedTable]) -> bool:
        """Tell whether sums that are large, in several classes, agree: small ones do by chance."""
        agreeing = 0
        for table in tables:
            part = table.part(self.first.name)
            if part is not None:
                places = [place for place, amount in self.left(table).items() if not amount]
                agreeing += sum(abs(int(part.sums[place])) >= LARGE for place in places)
        return agreeing >= SEVERAL

    def left(self, table: AttackedTable) -> dict[_Place, Fraction]:
        """Return what is left in every class where there is something."""
        y, z = table.part(self.first.name), table.part(self.second.name)
        if y is None or z is None:
            return {}
        return {
            place: Fraction(int(y.sums[place]), self.first.scale)
            - self.times * Fraction(int(z.sums[place]), self.second.scale)
            for place in table.places()
            if y.sums[place] or z.sums[place]
        }

    def _proof(self, table: AttackedTable, left: Mapping[_Place, Fraction], place: _Place) -> str | None:
        """Return what the squares of an arm prove; nothing where they do not tell, None where they disprove it.

        If one person has z, and y = c·z + d, while all others have y = c·z, then Σ y² − c² Σ z² = 2c·z·d + d².
        """
        by = tuple(axis.name for axis in table.axes if axis.role == "arm")[:1]
        y, z = table.part(self.first.name), table.part(self.second.name)
        axis = table.names.index(by[0]) if by else 0
        there = [other for other, amount in left.items() if amount and other[axis] == place[axis]]
        if y is None or z is None or not by:
            return ""
        yy, zz = y.squares_by(by, table.names), z.squares_by(by, table.names)
        if yy is None or zz is None or len(there) > 1:
            return ""
        amount, arm = left[place], place[axis]
        squares = Fraction(int(yy[arm]), self.first.scale**2) - self.times**2 * Fraction(
            int(zz[arm]), self.second.scale**2
        )
        value = (squares - amount**2) / (2 * self.times * amount) * self.second.scale
        total = self.times * value / self.second.scale + amount
        if value.denominator != 1 or not (
            _within(value / self.second.scale, self.second) and _within(total, self.first)
        ):
            return None
        shown = in_units(total.numerator, total.denominator), in_units(int(value), self.second.scale)
        return f"{self.first.name} = {shown[0]}, {self.second.name} = {shown[1]}"


def _within(value: Fraction, metric: Metric) -> bool:
    return metric.bounds is None or metric.bounds[0] <= value <= metric.bounds[1]


def _with_earlier(
    releases: Sequence[AttackedRelease],
) -> Iterator[tuple[AttackedRelease, list[AttackedTable]]]:
    """Yield every release with its tables, joined by the metrics of the same classes in those before it."""
    earlier: dict[frozenset[str], list[tuple[AttackedRelease, AttackedTable]]] = {}
    for release in releases:
        yield release, [_joined(release, table, earlier.get(frozenset(table.names), ())) for table in release.tables]
        for table in release.tables:
            earlier.setdefault(frozenset(table.names), []).append((release, table))


def _joined(
    release: AttackedRelease, table: AttackedTable, earlier: Iterable[tuple[AttackedRelease, AttackedTable]]
) -> AttackedTable:
    """Return a table with what earlier ones by the same axes have of further metrics, where their people agree."""
    for before, old in earlier:
        more = [part.metric.name for part in old.moments if table.part(part.metric.name) is None]
        if more and not before.apart(release):
            left, right = alike(table, old, table.names)
            if np.array_equal(left.people, right.people):
                parts = tuple(part for part in right.moments if part.metric.name in more)
                table = replace(left, moments=(*left.moments, *parts), hidden=left.hidden | right.hidden)
    return table


def _pairs(tables: Sequence[AttackedTable]) -> Iterator[tuple[Metric, Metric]]:
    """Yield pairs of metrics that stand in one table: two amounts, or an amount and a 0/1 metric."""
    pairs = dict.fromkeys(pair for table in tables for pair in combinations([part.metric for part in table.moments], 2))
    for first, second in pairs:
        if first.binary and second.binary:
            continue
        yield (second, first) if first.binary else (first, second)


def _multiples(tables: Sequence[AttackedTable], first: Metric, second: Metric) -> list[Fraction]:
    """Return 1 for two amounts, and the ratio of the two sums that most classes share."""
    ratios: Counter[Fraction] = Counter()
    for table in tables:
        y, z = table.part(first.name), table.part(second.name)
        if y is not None and z is not None:
            sums = [(int(y.sums[place]), int(z.sums[place])) for place in table.places()]
            ratios.update(Fraction(a * second.scale, b * first.scale) for a, b in sums if a and b)
    multiples = [] if second.binary else [Fraction(1)]
    if ratios:
        ratio, times = ratios.most_common(1)[0]
        if times > 1 and 2 * times >= ratios.total() and ratio not in multiples:
            multiples.append(ratio)
    return multiples


def with_differences(background: Background) -> Background:
    """Return what is known, with the differences of metrics as metrics of their own."""
    tables = list(background.tables)
    pairs = dict.fromkeys(pair for table in tables for pair in combinations([part.metric for part in table.moments], 2))
    for first, second in pairs:
        chosen = (second, first) if first.binary else (first, second)
        multiples = [Fraction(1)] if chosen[0].binary else _multiples(tables, *chosen)
        for times in multiples:
            metric = _difference_metric(*chosen, times)
            if metric is not None:
                tables = _with_difference(tables, *chosen, times, metric)
    return replace(background, tables=tuple(tables))


def _difference_metric(first: Metric, second: Metric, times: Fraction) -> Metric | None:
    """Return the metric of a difference on the grid that holds it; None where there is none."""
    scale = math.lcm(first.scale, second.scale * times.denominator)
    bounds = None
    if first.bounds is not None and second.bounds is not None:
        ends = [float(times) * end for end in second.bounds]
        bounds = (first.bounds[0] - max(ends), first.bounds[1] - min(ends))
    largest = 1.0 if bounds is None else max(map(abs, bounds))
    if scale * largest >= GRID_LIMIT:
        return None
    return Metric(Subtracted(first, second, times).title, scale, bounds)


def _with_difference(
    tables: Sequence[AttackedTable], first: Metric, second: Metric, times: Fraction, metric: Metric
) -> list[AttackedTable]:
    """Return tables with a difference as one more metric, of one sign if all its sums are."""
    each = metric.scale // first.scale, metric.scale * times.numerator // (second.scale * times.denominator)
    sums: dict[int, Cells] = {}
    for number, table in enumerate(tables):
        y, z = table.part(first.name), table.part(second.name)
        if y is not None and z is not None and np.array_equal(y.counts, z.counts):
            sums[number] = y.sums * each[0] - z.sums * each[1]
    if metric.bounds is not None:
        low, high = metric.bounds
        low = max(low, 0.0) if all(bool(np.all(cells >= 0)) for cells in sums.values()) else low
        high = min(high, 0.0) if all(bool(np.all(cells <= 0)) for cells in sums.values()) else high
        metric = replace(metric, bounds=(low, high) if low < high else None)
    return [
        replace(table, moments=(*table.moments, Moments(metric, table.people, sums[number], {})))
        if number in sums
        else table
        for number, table in enumerate(tables)
    ]


# ── products ───────────────────────────────────────────────────────────────────────────────────


def find_by_products(releases: Sequence[AttackedRelease], k: int) -> list[Finding]:
    """Find what products with a 0/1 metric say about its two sides in an arm: they cut the arm by it."""
    findings: list[Finding] = []
    for release in releases:
        for table in release.tables:
            for cross in table.crosses:
                parts = [table.part(name) for name in cross.pair]
                if parts[0] is not None and parts[1] is not None:
                    cut = _ProductCut(f"{release.name}, {table.name}", table, cross, (parts[0].metric, parts[1].metric))
                    findings += [finding for finding in cut.findings(k) if finding.people < k]
    return list(dict.fromkeys(findings))


@dataclass(frozen=True, eq=False)
class _ProductCut:
    """Products of two metrics, at least one of them 0/1, by arm."""

    title: str
    table: AttackedTable
    cross: Cross
    metrics: tuple[Metric, Metric]

    def findings(self, k: int) -> Iterator[Finding]:
        first, second = self.metrics
        if first.binary and second.binary:
            yield from self._both(k)
        elif first.binary or second.binary:
            yield from self._sides(0 if second.binary else 1)

    def _both(self, k: int) -> Iterator[Finding]:
        """Yield small cells of the table of two 0/1 metrics."""
        n, (y, z), both = self.cross.counts, self.cross.sums, self.cross.products
        a, b = (metric.name for metric in self.metrics)
        cells = {f"{a} and {b}": both, f"{a} and no {b}": y - both, f"{b} and no {a}": z - both,
                 f"neither {a} nor {b}": n - y - z + both}  # fmt: skip
        for has, people in cells.items():
            for place in np.ndindex(people.shape):
                if 0 < people[place] < k:
                    there = int(people[place])
                    learnt = f"{in_people(there)} of {self._words(place)} {'has' if there == 1 else 'have'} {has}"
                    yield Finding(PRODUCTS, self.title, f"{a}, {b}", there, learnt)

    def _sides(self, amount: int) -> Iterator[Finding]:
        """Yield what people on one side of a 0/1 metric have between them, where it is so little that one may have it.

        It is, if the side is small, or if it is no more than somebody of the other side has on average, or if
        there is nothing in most other arms.
        """
        metric, other = self.metrics[amount], self.metrics[1 - amount].name
        having, total = self.cross.sums[1 - amount], self.cross.sums[amount]
        inside, outside = self.cross.products, total - self.cross.products
        lacking = self.cross.counts - having
        sides: list[tuple[str, Cells, Cells, Cells, Cells]] = [
            (f"with {other}", having, inside, lacking, outside),
            (f"without {other}", lacking, outside, having, inside),
        ]
        for word, people, added, others, beside in sides:
            nothing = 2 * int(np.count_nonzero(added)) <= added.size
            for place in np.ndindex(added.shape):
                n, sum_of, m, rest = (int(cells[place]) for cells in (people, added, others, beside))
                if sum_of and rest and (n == 1 or nothing or abs(sum_of) * m <= abs(rest)):
                    learnt = (
                        f"the {metric.name} of people {word} in {self._words(place)} is "
                        f"{in_units(sum_of, metric.scale)}: one person's, if one has any"
                    )
                    yield Finding(PRODUCTS, self.title, metric.name, 1, learnt)

    def _words(self, place: _Place) -> str:
        return self.table.words(place, self.cross.by)
