"""The rule for groups that no table shows: what is left of classes without those inside them passes the audit, too.

The leverage rule holds for them already: every such group has at least k people. But a region without its
countries may be twenty people of whom one bought, and subtracting gives the purchase to the cent. So remainders
are audited like published classes, and where one fails, the metric is withheld in the later of the tables that
tell it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations

import numpy as np

from kanab.counted import LARGE_SUM, Counted, LargestValues, SignatureValues
from kanab.privacy.audit import Broken, audit_table
from kanab.privacy.shown import Place, ShownTable
from kanab.privacy.subtraction.remainders import (
    Numbers,
    Partition,
    Remainders,
    find_remainders,
    partitions_of,
)
from kanab.tally.cells import Cells
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.moments import By, Moments
from kanab.tally.tally import Tally

_AXIS = "remainder"


def withhold_nested_classes(counted: Counted, shown: Sequence[ShownTable]) -> dict[Place, str]:
    """Return the tables and metrics to withhold, so that what differences of classes show passes the audit."""
    if counted.signatures is None:
        return {}
    withheld: dict[Place, str] = {}
    judged: dict[object, list[Broken]] = {}
    left = {metric.name for metric in counted.plan.counted_metrics}
    while left:  # what is told in two ways is withheld twice
        again: dict[Place, str] = {}
        for tables, metrics in _told_alike(shown, left, withheld).items():
            partitions = list(_partitions(shown, tables, metrics))
            for remainders in find_remainders(partitions, counted.signatures.people):
                for broken in _audit(counted, shown, remainders, metrics, withheld | again, judged=judged):
                    place = _gives_way(shown, remainders, broken.metric)
                    if place is not None:
                        again[place] = _sentence(shown, remainders, place, broken)
        withheld |= again
        left = {metric for _, metric in again}
    return withheld


def _told_alike(
    shown: Sequence[ShownTable], metrics: set[str], withheld: Mapping[Place, str]
) -> dict[tuple[int, ...], set[str]]:
    """Return the metrics that the same tables show; one that leaves people out stands by itself."""
    told: dict[tuple[int, ...], set[str]] = {}
    for name in sorted(metrics):
        parts = {place: table.tally for place, table in enumerate(shown) if _shows(table, name, withheld)}
        alone = any(tally.moments_of(name).metric.missing == "exclude" for tally in parts.values())
        tables = tuple(parts)
        if alone:
            told[*tables, -len(told) - 1] = {name}  # a key of its own
        else:
            told.setdefault(tables, set()).add(name)
    return told


def _shows(table: ShownTable, metric: str, withheld: Mapping[Place, str]) -> bool:
    """Return whether a table, whose overlap with others is known, still shows a metric."""
    gone = not table.fixed and any((name, metric) in withheld for name in (table.name, *table.tally.experiment_names))
    return metric in table.tally.metric_names and table.knows(metric) and not gone


def _gives_way(shown: Sequence[ShownTable], remainders: Remainders, metric: str) -> Place | None:
    """Return the last of the tables that is not released already; arm totals only where nothing else can give way."""
    tables = [shown[number] for number in sorted(remainders.tables) if not shown[number].fixed]
    ordered = [table for table in tables if table.only_arms] + [table for table in tables if not table.only_arms]
    return (ordered[-1].name, metric) if ordered else None


def _sentence(shown: Sequence[ShownTable], remainders: Remainders, place: Place, broken: Broken) -> str:
    name, metric = place
    others = dict.fromkeys(shown[number].name for number in sorted(remainders.tables) if shown[number].name != name)
    where = "altogether" if any(table.name == name and table.only_arms for table in shown) else f"in {name}"
    beside = " and ".join(others) or "what was released before"
    return (
        f"{metric} is withheld {where}: beside {beside} it shows, by subtraction, classes that no table has, and "
        f"{broken.meaning}"
    )


# ── groups of which sums are known ─────────────────────────────────────────────────────────────


def _partitions(shown: Sequence[ShownTable], tables: Sequence[int], metrics: set[str]) -> Iterator[Partition]:
    """Yield the classes of tables, and those of their marginals that may tell more.

    Levels without arms, and totals, are compared where people are in several experiments, or squares are known of them.
    """
    places = [place for place in tables if place >= 0]
    several = len({shown[place].tally.experiment_names for place in places}) > 1
    for place in places:
        tally = shown[place].tally
        leaving_out = [metric.name for metric in tally.metrics if metric.missing == "exclude"]
        column = next((1 + number for number, name in enumerate(leaving_out) if name in metrics), 0)
        marginals = _marginals(tally, several=several)
        yield from partitions_of(place, shown[place].columns[column], tally.axes, marginals, tally.moments)


def _marginals(tally: Tally, *, several: bool) -> list[By]:
    axes = tally.axes
    if several:
        return [by for length in range(len(axes), -1, -1) for by in combinations(axes, length)]
    arms = [axes[:1]] if len(axes) > 1 else []  # they are the arm totals, of which a table leaves nothing
    squared = [by for by in combinations(axes, 1) if by[0] not in tally.experiment_names]
    return [axes, *arms, *(by for by in squared if any(by in part.squares for part in tally.moments))]


# ── their audit ────────────────────────────────────────────────────────────────────────────────


def _audit(
    counted: Counted,
    shown: Sequence[ShownTable],
    remainders: Remainders,
    metrics: set[str],
    withheld: Mapping[Place, str],
    *,
    judged: dict[object, list[Broken]],
) -> list[Broken]:
    """Apply every rule for a class to the remainders, for the metrics that all of their tables still show.

    The same people are left over in many ways: what has been ``judged`` with the same numbers is not judged again.
    """
    tables = [shown[number] for number in remainders.tables]
    if all(table.fixed for table in tables):
        return []
    told: list[tuple[Metric, Numbers, LargestValues | None]] = []
    alone = any(m.missing == "exclude" for table in tables for m in table.tally.metrics if m.name in metrics)
    for metric in {m.name: m for table in tables for m in table.tally.metrics}.values():
        same = metric.name in metrics if alone else metric.missing != "exclude"
        still = same and all(_shows(table, metric.name, withheld) for table in tables)
        numbers = remainders.numbers(metric.name) if still else None
        if numbers is not None:
            small = _small_sums(metric, numbers, counted.ranges.get(metric.name))
            told.append((metric, numbers, _largest(counted, remainders, metric, numbers) if small else None))
    if not told:
        return []
    key = tuple(
        (metric, _plain(*numbers), () if values is None else _plain(values.largest, values.second, values.total))
        for metric, numbers, values in told
    )
    if key not in judged:
        judged[key] = _judge(counted, told)
    return list({rule.metric: rule for rule in reversed(judged[key]) if rule.metric in metrics}.values())


def _plain(*cells: Cells | None) -> tuple[object, ...]:
    """Return numbers as what can be compared and looked up."""
    return tuple(None if each is None else tuple(each.tolist()) for each in cells)


def _judge(counted: Counted, told: Sequence[tuple[Metric, Numbers, LargestValues | None]]) -> list[Broken]:
    """Apply every rule for a class to groups, of which these numbers are known."""
    parts = []
    for metric, numbers, _ in told:
        squares: dict[By, Cells] = {} if numbers.squares is None or metric.binary else {(_AXIS,): numbers.squares}
        parts.append(Moments(metric, numbers.counts, numbers.sums, squares))
    people = np.max([part.counts for part in parts], axis=0)
    tally = Tally((Factor(_AXIS, tuple(range(len(people))), "arm"),), people, tuple(parts))
    largest = {metric.name: values for metric, _, values in told if values is not None}
    plans = counted.plan.metrics_by_name
    report = audit_table(_AXIS, tally, plans, k=counted.plan.k, ranges=counted.ranges, largest=largest)
    return list(report.broken)


def _small_sums(metric: Metric, numbers: Numbers, observed: tuple[int, int] | None) -> bool:
    """Return whether one or two people may make up a sum."""
    bounds = metric.grid_bounds or observed
    if metric.binary or bounds is None:
        return False
    limit = LARGE_SUM * max(abs(end) for end in bounds)
    return bool(np.any((numbers.counts > 0) & (np.abs(numbers.sums) < limit)))


def _largest(counted: Counted, remainders: Remainders, metric: Metric, numbers: Numbers) -> LargestValues | None:
    """Return the largest values of remainders, and at most how large the second ones are; None where nobody knows.

    The second may stand beside the largest in one signature, of which only the sum is known.
    """
    values = [each.values for each in (again.signatures for again in (counted, *counted.earlier)) if each is not None]
    known = [each[metric.name] for each in values if metric.name in each]
    if not known:
        return _at_bounds(metric, numbers) if counted.spans_experiments else None
    both = reduce(_greater, known)
    group, rows = remainders.members()
    order = np.lexsort((-both.largest[rows], group))
    group, rows = group[order], rows[order]
    starts = np.searchsorted(group, np.arange(len(remainders.groups) + 1))
    first, size = starts[:-1], len(rows)
    top, beside = both.largest[rows], np.minimum(both.largest, both.total - both.largest)[rows]
    following = np.where(first + 1 < starts[1:], top[np.minimum(first + 1, size - 1)], 0)
    second = np.maximum(following, beside[first])
    total = np.bincount(group, both.total[rows], len(remainders.groups))
    return LargestValues(*(np.rint(cells).astype(np.int64).astype(object) for cells in (top[first], second, total)))


def _greater(first: SignatureValues, second: SignatureValues) -> SignatureValues:
    """Return what is known of people by either of two plans; where both know, they agree."""
    return SignatureValues(np.maximum(first.largest, second.largest), np.maximum(first.total, second.total))


def _at_bounds(metric: Metric, numbers: Numbers) -> LargestValues:
    """Return the worst that bounds allow, where nothing else is known."""
    limit = max(abs(end) for end in metric.grid_bounds or (0, 0))
    sums = np.abs(numbers.sums)
    return LargestValues(np.minimum(sums, limit), np.minimum(sums, limit), sums)
