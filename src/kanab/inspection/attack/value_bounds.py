"""Reading a class closely: what people, sum and squares say about the largest and the smallest value."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kanab.counted import MOST_STEPS
from kanab.errors import TallyError
from kanab.inspection.attack.findings import Finding, in_people
from kanab.inspection.attack.published import AttackedRelease, AttackedTable
from kanab.inspection.attack.reconstruct import CONTRIBUTORS
from kanab.privacy.audit import class_squares, edges, extremes_on_grid, known_bounds
from kanab.privacy.exposure import LEAST_CONTRIBUTORS
from kanab.tally.cell_arrays import Cells
from kanab.tally.metric import Metric
from kanab.tally.moments import Moments, check_moments
from kanab.tally.tally import in_units

CLOSED_FORMS = "closed forms"

_Ends = tuple[Cells, Cells]


def find_exposed_values(releases: Sequence[AttackedRelease], k: int) -> tuple[list[Finding], list[Finding]]:
    """Find extremes that the numbers of one class give away; and those that numbers of a marginal do.

    An extreme counts as found if less than a quarter of its distance from the mean is left to guess,
    if it is not simply the bound, and if fewer than k people can have it. Only squares by class break a promise.
    """
    by_class: dict[tuple[str, str], Finding] = {}
    others: dict[tuple[str, str], Finding] = {}
    for release in releases:
        for table in release.tables:
            for view in _views(table):
                for part in view.moments:
                    promised = table.names in part.squares and len(table.names) > 1 and view is table
                    for finding in _extremes(view, part, f"{release.name}, {table.name}", k):
                        if finding.people < k:
                            (by_class if promised else others)[finding.table, finding.learnt] = finding
    return list(by_class.values()), list(others.values())


def find_few_contributors(releases: Sequence[AttackedRelease]) -> list[Finding]:
    """Find classes in which one or two people have the whole sum, and another metric says how many they are."""
    findings: dict[tuple[str, str], Finding] = {}
    for release in releases:
        for table in release.tables:
            for part in table.moments:
                for finding in _contributors(table, part, release.contributors.get(part.metric.name), release):
                    findings[finding.table, finding.learnt] = finding
    return list(findings.values())


def _views(table: AttackedTable) -> Iterator[AttackedTable]:
    """Yield the table, and each marginal at which squares are known by themselves."""
    yield table
    for by in dict.fromkeys(by for part in table.moments for by in part.squares if by != table.names):
        yield table.by(by)


def _extremes(table: AttackedTable, part: Moments, title: str, k: int) -> Iterator[Finding]:
    if part.metric.binary or not part.squares or table.hidden.any() or not _possible(table, part):
        return
    bounds = known_bounds(part, table.names)
    low, high = edges(*bounds)
    least, most = class_squares(part, table.names, *bounds)
    people = np.maximum(part.counts, 2)  # smaller classes are not looked at
    bottom, top = extremes_on_grid(people, part.sums, (least, most), *bounds)
    # an extreme at its bound, or everyone within a step of one, is no more than a 0/1 metric says
    largest = _narrow(part, top) & (top[0] < high) & (top[1] > low + 1)
    smallest = (
        _narrow(replace(part, sums=-part.sums), (-bottom[1], -bottom[0])) & (bottom[1] > low) & (bottom[0] < high - 1)
    )
    for place in table.places():
        group = int(part.counts[place]), int(part.sums[place]), int(most[place])
        where = table.words(place)
        if largest[place]:
            interval = int(top[0][place]), int(top[1][place])
            yield _extreme_finding(where, part.metric, interval, reachers(*group, interval[0], k), title)
        if smallest[place]:
            interval = int(bottom[0][place]), int(bottom[1][place])
            n, s, q = group
            yield _extreme_finding(where, part.metric, interval, -reachers(n, -s, q, -interval[1], k), title)


def _possible(table: AttackedTable, part: Moments) -> bool:
    """Tell whether anybody could have these numbers: a damaged file is nothing to reason from."""
    try:
        check_moments(part, table.people, table.names)
    except TallyError:
        return False
    return True


def _narrow(part: Moments, ends: _Ends) -> NDArray[np.bool_]:
    """Tell where less than a quarter of the outer end's distance from the mean is left to guess."""
    low, high = ends
    narrow = 4 * part.counts * (high - low) < part.counts * high - part.sums
    return np.asarray((part.counts > 1) & narrow, dtype=bool)


def reachers(n: int, s: int, q: int, value: int, k: int) -> int:
    """Count the people, up to k, who can be at or above a value, with this count, sum and squares."""
    for several in range(2, min(n, k) + 1):
        rest, left = n - several, s - several * value
        # the least squares: all alike, or as many at the value and the rest alike below it
        squares = _least(n, s) if left >= rest * value else several * value**2 + _least(rest, left)
        if squares > q or (left < 0 and not rest):
            return several - 1
    return min(n, k)


def _least(n: int, s: int) -> int:
    mean, over = divmod(s, n) if n else (0, 0)
    return n * mean**2 + over * (2 * mean + 1)


def _extreme_finding(where: str, metric: Metric, interval: tuple[int, int], people: int, title: str) -> Finding:
    """Return the finding of an extreme that few people can have; ``people`` is negative for the smallest."""
    word = "largest" if people > 0 else "smallest"
    low, high = (in_units(end, metric.scale) for end in interval)
    who = "one person has" if abs(people) == 1 else f"at most {abs(people)} people have"
    learnt = f"the {word} {metric.name} of {where} lies in [{low}, {high}], and {who} it"
    return Finding(CLOSED_FORMS, title, metric.name, abs(people), learnt)


def _contributors(table: AttackedTable, part: Moments, of: str | None, release: AttackedRelease) -> Iterator[Finding]:
    buyers, name = None if of is None else table.part(of), part.metric.name
    if buyers is None or not buyers.metric.binary:
        return
    for place in table.places():
        few, total = int(buyers.sums[place]), int(part.sums[place])
        if 0 < few < LEAST_CONTRIBUTORS and (name in release.sensitive or not is_count(part.metric, total, few)):
            learnt = few_have(table.words(place), part.metric, total, few)
            yield Finding(CONTRIBUTORS, f"{release.name}, {table.name}", name, few, learnt)


def is_count(metric: Metric, total: int, people: int) -> bool:
    """Tell whether a sum of a few people is of 0/1 values, or of whole numbers of a few steps: no amount."""
    return total == people * metric.scale or (metric.scale == 1 and 0 <= total <= MOST_STEPS * people)


def few_have(where: str, metric: Metric, total: int, people: int) -> str:
    """Say that one or two people have a sum."""
    who = "alone has" if people == 1 else "have between them"
    return f"{in_people(people)} of {where} {who} {metric.name} = {in_units(total, metric.scale)}"
