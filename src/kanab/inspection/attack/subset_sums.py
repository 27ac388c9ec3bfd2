"""An attacker who knows a number of everybody, to the last digit, and its sum over those who have a 0/1 metric.

Groups of half as many people are listed with their sums; two of them that add up to what is published are the people
who have it, where no other two do.
"""

from __future__ import annotations

from itertools import chain, combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from kanab.inspection.attack.background import Background, Ints
from kanab.inspection.attack.findings import Finding
from kanab.inspection.attack.weights import weighted_sums

SUBSETS = "subset sums"

MOST_GROUPS = 2_000_000
"""Of half the people who have the metric; with more of them it is not tried."""


def find_subset_sums(background: Background, _k: int) -> list[Finding]:
    """Find the only people whose known numbers add up to a published sum."""
    findings = []
    for equations in background.equations if len(background.signatures) else ():
        if not equations.metric.binary:
            continue
        steps, sums = weighted_sums(equations)
        for added in sums:
            number, people = added.column.number, np.flatnonzero(added.column.rows)
            x = steps[number][people].astype(np.int64)
            lacking = 2 * added.plain > len(people)
            few, total = (len(people) - added.plain, int(x.sum()) - added.total) if lacking else (
                added.plain, added.total)  # fmt: skip
            group = only_group(x, few, total)
            if group is not None:
                names = ", ".join(str(people[place] + 1) for place in group)
                learnt = (
                    f"persons {names} are all of their arm who {'lack' if lacking else 'have'} {equations.metric.name}:"
                    f" no others' {number} add up to the sum"
                )
                findings.append(Finding(SUBSETS, equations.title, equations.metric.name, 1, learnt))
    return findings


def only_group(x: Ints, few: int, total: int) -> tuple[int, ...] | None:
    """Return the places of the only so many entries that add up to a total; None where there are several.

    >>> only_group(np.array([3, 50, 900, 12, 77]), 2, 912)
    (2, 3)
    """
    halves = few // 2, few - few // 2
    many = comb(len(x), few) > 1 + int(x.max(initial=0)) * max(1, few)  # by chance several would fit
    if few < 1 or many or comb(len(x), halves[1]) > MOST_GROUPS:
        return None
    first, second = (_groups(len(x), size) for size in halves)
    left, right = (x[group].sum(axis=1) for group in (first, second))
    order = np.argsort(right)
    begin, end = (np.searchsorted(right[order], total - left, side) for side in ("left", "right"))
    fits: set[tuple[int, ...]] = set()
    for place in np.flatnonzero(begin < end).tolist():
        for other in order[begin[place] : end[place]].tolist():
            both = {*first[place].tolist(), *second[other].tolist()}
            if len(both) == few:
                fits.add(tuple(sorted(both)))
                if len(fits) > 1:
                    return None
    return fits.pop() if fits else None


def _groups(people: int, size: int) -> NDArray[np.int64]:
    """List all groups of so many people, a row each."""
    flat = chain.from_iterable(combinations(range(people), size))
    return np.fromiter(flat, dtype=np.int64, count=comb(people, size) * size).reshape(comb(people, size), size)
