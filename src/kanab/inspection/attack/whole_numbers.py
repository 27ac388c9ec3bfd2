"""Solving in whole numbers: values that only fit because they come in steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kanab.inspection.attack.background import Background, Equations
from kanab.inspection.attack.findings import Finding
from kanab.inspection.attack.published import OUT
from kanab.privacy.pinned_totals import Work
from kanab.privacy.whole_numbers import SignatureTotals, alike, whole_steps
from kanab.tally.describe import in_units

WHOLE_NUMBERS = "whole numbers"

_WORK = Work(certain=16.0)  # a little more than the gate does


@dataclass(frozen=True)
class WholeFindings:
    """What follows in whole numbers; ``unsettled`` says that some of it was too much work."""

    findings: tuple[Finding, ...] = ()
    unsettled: bool = False


def find_whole_numbers(background: Background, k: int) -> WholeFindings:
    """Find fewer than k people, alike in all tables, to whom sums, bounds and whole numbers leave one total only.

    What a published class says of all its people is nothing new, and who is in one of fewer than k is found as such.
    """
    findings: list[Finding] = []
    unsettled = False
    for equations in background.equations:
        parts = [background.tables[number].part(equations.metric.name) for number in equations.tables]
        moments = [part for part in parts if part is not None]
        steps = whole_steps(moments)
        if steps is None or len(moments) < 2:
            continue
        columns = [_shown(equations, number) for number in equations.tables]
        cells, people = alike(columns, background.people)
        unknowns = SignatureTotals.of(cells, people, moments, steps)
        solved = unknowns.solve(people < k, _WORK)
        unsettled |= bool(solved.unsettled.any())
        for place in np.flatnonzero(unknowns.wanted(people < k) & solved.pinned).tolist():
            total = int(solved.totals[place]) * steps.size + steps.low * int(people[place])
            first = int(np.flatnonzero((np.stack(columns, axis=1) == cells[place]).all(axis=1))[0])
            findings.append(_finding(equations, first, int(people[place]), total))
    return WholeFindings(tuple(findings), unsettled)


def _shown(equations: Equations, number: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return everybody's class in a table, but for classes that are blacked out."""
    column = equations.background.cells[:, number]
    hidden = equations.background.tables[number].hidden.ravel()
    return np.where((column != OUT) & ~hidden[column], column, OUT)


def _finding(equations: Equations, signature: int, people: int, total: int) -> Finding:
    metric, first = equations.metric, int(equations.background.who[signature]) + 1
    if people == 1:
        learnt = f"person {first} has {metric.name} = {in_units(total, metric.scale)}"
    else:
        who = f"the {people} people who are like person {first} in every table"
        learnt = f"{who} have {metric.name} = {in_units(total, metric.scale)} between them"
    return Finding(WHOLE_NUMBERS, equations.title, metric.name, people, learnt)
