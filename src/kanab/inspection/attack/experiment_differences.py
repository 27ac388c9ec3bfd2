"""Subtracting experiments from experiments: two of the same people but for a few tell about those few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from kanab.inspection.attack.differencing import values_of_few
from kanab.inspection.attack.findings import Finding, in_people
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, alike
from kanab.privacy.subtraction.experiments import Shares, few_apart, may_be_inside
from kanab.tally.factor import Level, label
from kanab.tally.moments import By

EXPERIMENTS = "experiment differences"


def find_experiment_differences(releases: Sequence[AttackedRelease], k: int) -> list[Finding]:
    """Find what subtracting one experiment from another says about fewer than k people.

    Totals, and classes of a covariate that both have, summed over arms. Two experiments of other people have such
    differences by chance, which say nothing: so they are only looked at where one may lie inside the other.
    """
    findings: list[Finding] = []
    for release in releases:
        tables: dict[str, list[AttackedTable]] = {}
        for table in release.tables:
            if len(table.experiments) == 1 and len(table.axes) <= 2 and not table.hidden.any():
                tables.setdefault(next(iter(table.experiments)), []).append(table)
        for first, second in combinations(tables, 2):
            findings += _compared(release.name, (first, tables[first]), (second, tables[second]), k)
    return findings


def _compared(
    release: str, first: tuple[str, list[AttackedTable]], second: tuple[str, list[AttackedTable]], k: int
) -> Iterator[Finding]:
    (name, mine), (other, theirs) = first, second
    pairs = [
        (by, *alike(own_table, other_table, by))
        for own_table in mine
        for other_table in theirs
        for by in {(), _covariates(own_table)}
        if by == () or by == _covariates(other_table)
    ]
    shares = [_shares([(by, tables[side]) for by, *tables in pairs]) for side in (0, 1)]
    if not few_apart(shares[0], shares[1], k) and not may_be_inside(shares[0], shares[1], 1):
        return
    said = set()
    for _, before, after in pairs:
        for place in np.ndindex(*before.people.shape):
            moved = int(after.people[place] - before.people[place])
            if 0 < abs(moved) < k:
                where = before.words(place) or "everybody"
                learnt = [f"{where} differs by {in_people(abs(moved))}", *values_of_few(before, after, place)]
                finding = Finding(EXPERIMENTS, f"{release}, {name} − {other}", "", abs(moved), "; ".join(learnt))
                if finding.learnt not in said:
                    said.add(finding.learnt)
                    yield finding


def _covariates(table: AttackedTable) -> By:
    return tuple(axis.name for axis in table.axes if axis.role != "arm")


def _shares(tables: Sequence[tuple[By, AttackedTable]]) -> Shares:
    shares: dict[str, Mapping[Level, int]] = {}
    for by, table in tables:
        if by == ():
            shares[""] = {"": int(table.people[()])}
        else:
            levels = (label(level) for level in table.axes[0].levels)
            shares[by[0]] = dict(zip(levels, map(int, table.people.ravel()), strict=True))
    return shares
