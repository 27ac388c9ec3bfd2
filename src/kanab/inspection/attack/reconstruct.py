"""Solve the design of published sums: what rules 2 and 3 bound, somebody who knows the classes tries to compute."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from kanab.counted import SignatureNumbers
from kanab.counting.signature_groups import values_of
from kanab.inspection.attack.findings import Finding, in_people
from kanab.inspection.attack.known_people import Background, Floats, MetricDesign
from kanab.inspection.attack.published import OUT
from kanab.privacy.exposure import LEAST_CONTRIBUTORS, MOST_DOMINANCE, excess, is_harmless, within
from kanab.privacy.leverage import explain
from kanab.privacy.numbers.design import NumberDesign
from kanab.tally.tally import in_units

LEVERAGE = "leverage"
LEAST_SQUARES = "least squares"
CONTRIBUTORS = "contributors"
SEVERAL_METRICS = "several metrics"

MOST_COLUMNS = 2_000
"""Of a dense matrix; with more of them two metrics together are not tried."""

_NEAR = 1e-6


# ── rule 2 ─────────────────────────────────────────────────────────────────────────────────────


def find_leverage(background: Background, k: int) -> list[Finding]:
    """Find combinations of published sums, weighted ones among them, that rest on fewer than k people."""
    findings = []
    for design in background.designs:
        everybody = design.classes.leverages[design.classes.of_everybody]
        numbers = _with_numbers(design)
        h = everybody if numbers is None else np.maximum(everybody, numbers)
        exposed = int((h > (1 + _NEAR) / k).sum())
        if exposed:
            findings.append(_rests_on(design, h, exposed, by_numbers=h.max() > everybody.max() * (1 + _NEAR)))
    return findings


def _rests_on(design: MetricDesign, h: Floats, exposed: int, *, by_numbers: bool) -> Finding:
    metric, worst = design.metric, int(np.argmax(h))
    size = 1 / float(h[worst])
    names = " and ".join(dict.fromkeys(added.column.number for added in design.weighted))
    learnt = (
        f"the sums of {metric.name}{f', weighted by {names},' if by_numbers else ''} can be combined so that the "
        f"result rests on {size:.3g} {'person' if size < 1.005 else 'people'} only "
        f"({design.name(int(design.classes.of_everybody[worst]))})"
    )
    learnt += f"; so exposed {'is' if exposed == 1 else 'are'} {in_people(exposed)}"
    return Finding(LEVERAGE, design.title, metric.name, max(1, int(size + _NEAR)), learnt)


def _with_numbers(design: MetricDesign) -> Floats | None:
    """Return everybody's leverage where known numbers weigh sums, too; None where none does."""
    steps = {added.column.number: added.steps for added in design.weighted}
    if not steps:
        return None
    x = np.column_stack([*steps.values()])
    numbers = SignatureNumbers(tuple(steps), x, x, x, x[:, :, None] * x[:, None, :])
    cells = design.classes.cells[design.classes.of_everybody]
    weighing = NumberDesign.of(cells, np.ones(len(cells), dtype=np.int64), numbers,
                               [added.column for added in design.weighted])  # fmt: skip
    chosen = [False] * len(design.weighted)
    h: Floats | None = None
    for place in range(len(chosen)):  # columns that do not follow from classes and from columns before them
        trial = [*chosen[:place], True, *chosen[place + 1 :]]
        more = weighing.leverages(trial)
        h, chosen = (h, chosen) if more is None else (more, trial)
    return h


def find_by_least_squares(background: Background, k: int) -> list[Finding]:
    """Find the values that the published sums determine, whatever else is true."""
    findings: list[Finding] = []
    for design in background.designs:
        if not design.too_large:
            totals, determined = design.solved
            for signature in np.flatnonzero(determined & (design.people < k)).tolist():
                total = round(float(totals[signature]))
                findings.append(total_finding(LEAST_SQUARES, design, signature, total))
    return findings


def total_finding(attack: str, design: MetricDesign, signature: int, total: int) -> Finding:
    """Return what was learnt of the people of one signature."""
    people, metric = int(design.people[signature]), design.metric
    has, between = ("has", "") if people == 1 else ("have", " between them")
    learnt = f"{design.name(signature)} {has} {metric.name} = {in_units(total, metric.scale)}{between}"
    return Finding(attack, design.title, metric.name, people, learnt)


# ── rule 3 ─────────────────────────────────────────────────────────────────────────────────────


def find_contributors(background: Background, _k: int) -> list[Finding]:
    """Find combinations of an amount's sums that rest on one or two people who have any, or mostly on one."""
    findings = []
    for design in background.designs:
        values, metric = design.values, design.metric
        low = (metric.grid_bounds or (-1, 0))[0]
        if values is None or (is_harmless(values, metric.scale, low) and not design.sensitive):
            continue
        who = design.classes.who
        beyond = excess([*design.classes.cells.T], [column[who] for column in design.squared], values)
        if within(beyond):
            continue
        worst, there = int(np.argmax(beyond)), np.flatnonzero(values.off)
        shown = explain(design.classes.cells[there], values.off[there], np.empty((len(there), 0)))
        size = float(shown.sizes[np.searchsorted(there, worst)])
        few = size < LEAST_CONTRIBUTORS * (1 - _NEAR)
        rests = f"rests on {size:.3g} of those who have any" if few else "is mostly one person's"
        learnt = f"the sums of {metric.name} can be combined so that the result {rests} ({design.name(worst)})"
        findings.append(Finding(CONTRIBUTORS, design.title, metric.name, max(1, int(size + _NEAR)) if few else 1,
                                learnt))  # fmt: skip
    return findings


def several_metrics(background: Background) -> list[str]:
    """Say of which two metrics the sums together can be combined so that the result is mostly one person's.

    Where y = c·z for nearly everybody, y − c·z is a sum over the few for whom it is not: the share of one person i in
    the squares of any combination of both metrics' sums is that of the row (a_i y_i, a_i z_i) in its design.
    """
    sentences = []
    for first, second in combinations(background.designs, 2):
        if first.tables == second.tables and first.metric.name != second.metric.name:
            share, person = max(_shares(first, second), default=(0.0, 0))
            if sum(len(added) for added in (*first.sums, *second.sums)) > MOST_COLUMNS:
                sentences.append(f"{first.metric.name} and {second.metric.name} have too many classes to be combined.")
            elif share > MOST_DOMINANCE:
                sentences.append(
                    f"Sums of {first.metric.name} and {second.metric.name} together can be combined so that "
                    f"{100 * share:.0f} % of the result, in squares, is person {person + 1}'s."
                )
    return sentences


def _shares(first: MetricDesign, second: MetricDesign) -> Iterator[tuple[float, int]]:
    """Yield the largest share of one person in any combination of two metrics' sums, with the person."""
    cells = np.column_stack([design.classes.cells[design.classes.of_everybody] for design in (first, second)])
    columns = [column == cell for column in cells.T for cell in np.unique(column[column != OUT])]
    steps = [first.steps, second.steps]
    if len(columns) > MOST_COLUMNS or steps[0] is None or steps[1] is None:
        return
    marks = np.unique(np.column_stack(columns), axis=1).astype(np.float64)
    signed = [np.where(each.has, each.steps - values_of(each).commonest, 0) for each in steps if each is not None]
    rows = np.column_stack([marks * (y / (np.abs(y).max() or 1))[:, None] for y in signed])
    inverse = np.linalg.pinv(rows.T @ rows, rcond=1e-10, hermitian=True)
    h = np.einsum("ij,jk,ik->i", rows, inverse, rows)
    yield float(h.max()), int(h.argmax())
