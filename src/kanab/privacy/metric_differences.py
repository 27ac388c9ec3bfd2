"""Metrics are subtracted from metrics: gross less net, or paid less 9.99 × orders, is one person's where one differs.

So what is left of one metric after the same, or the commonest multiple, of another is audited as if it were
published: in every class nobody or enough people differ, none of them makes up nearly all of the difference, and there
are more of them than numbers about them. Otherwise one of the two metrics is withheld, the later one of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np

from kanab.counted import Counted, Derived, DerivedCells
from kanab.plan.model import Plan
from kanab.privacy.audit import LEAST_CONTRIBUTORS, audit_table, dominated
from kanab.privacy.budget import enough_unusual
from kanab.privacy.shown import Place, ShownTable
from kanab.tally.cells import Cells
from kanab.tally.describe import in_units
from kanab.tally.metric import GRID_LIMIT, Metric
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

TOO_FEW = (
    f"{{first}} differs from {{second}} for fewer than {LEAST_CONTRIBUTORS} people of {{where}}, "
    "whose amounts would be told"
)
DOMINATED = "{first} differs from {second} in {where} nearly only by what one or two people have"
CLOSE = "{first} differs from {second} by amounts that can be inferred closely"
TOO_MANY_NUMBERS = "{first} differs from {second} for too few people for so many tables"
PERHAPS = "{first} differs from {second} in few places only, perhaps by one person's amount"


def withhold_metric_differences(counted: Counted, shown: Sequence[ShownTable]) -> dict[Place, str]:
    """Return the metrics to withhold because others are too close to them: arms first, then classes, then all tables.

    Where rows were not at hand, it is not known for how many people two metrics differ; then only what stands out in
    the sums themselves gives way.
    """
    rule = _Differences(counted.plan, shown)
    for table in (*filter(_only_arms, shown), *(table for table in shown if not table.only_arms)):
        if not table.fixed:
            rule.audit(table)
    rule.count_numbers()
    return rule.withheld


def _only_arms(table: ShownTable) -> bool:
    return table.only_arms


class _Differences:
    """The pairs of metrics in tables, and what was withheld because of them."""

    def __init__(self, plan: Plan, shown: Sequence[ShownTable]) -> None:
        self.plan = plan
        self.shown = shown
        self.withheld: dict[Place, str] = {}
        self.order = [metric.name for metric in plan.counted_metrics]

    def audit(self, table: ShownTable) -> None:
        """Withhold metrics of one table until no difference in it is about too few people."""
        if table.derived is None:
            for derived in _amounts(table.tally):
                if self._readable(table, derived) and _stands_out(table.tally, derived):
                    self._withhold(table, derived, PERHAPS)
            return
        for derived, cells in table.derived.items():
            if derived.side is None and self._readable(table, derived):
                why = _broken(table.tally, derived, cells, self.plan)
                if why:
                    self._withhold(table, derived, why)

    def count_numbers(self) -> None:
        """Withhold metrics by class where fewer people of an arm differ than its numbers could tell apart."""
        crossed: dict[str, list[ShownTable]] = {}
        for table in (table for table in self.shown if not table.only_arms):
            for name in table.tally.axes:
                crossed.setdefault(name, []).append(table)
        for arms in (table for table in self.shown if table.only_arms and not table.fixed):
            experiment = arms.tally.axes[0]
            tables = crossed.get(experiment, [])
            for derived, cells in (arms.derived or {}).items():
                if derived.side is None and self._readable(arms, derived):
                    self._count(derived, cells.people, experiment, tables)

    def _count(self, derived: Derived, people: Cells, experiment: str, tables: Sequence[ShownTable]) -> None:
        numbers, crossed = np.ones(len(people), dtype=np.int64), 0
        for table in sorted(tables, key=lambda table: not table.fixed):
            if not self._readable(table, derived):
                continue
            classes = np.count_nonzero(np.moveaxis(table.tally.people, table.tally.axes.index(experiment), 0)
                                       .reshape(len(people), -1), axis=1)  # fmt: skip
            more = numbers + np.maximum(classes - 1, 0)
            few = any(
                off and not enough_unusual(off, number) for off, number in zip(people, more.tolist(), strict=True)
            )
            if crossed and few and not table.fixed:
                self._withhold(table, derived, TOO_MANY_NUMBERS)
            else:
                numbers, crossed = more, crossed + 1

    def _readable(self, table: ShownTable, derived: Derived) -> bool:
        """Return whether both metrics can be read in the classes of a table, at least one of them there."""
        pair = derived.first, derived.second
        here = [self._stays(table, metric) for metric in pair]
        before = [metric in self._before(table) for metric in pair]
        return any(here) and all(known or old for known, old in zip(here, before, strict=True))

    def _stays(self, table: ShownTable, metric: str) -> bool:
        places = {(name, metric) for name in (table.name, *table.tally.experiment_names)}
        return metric in table.tally.metric_names and (table.fixed or not places & self.withheld.keys())

    def _before(self, table: ShownTable) -> set[str]:
        """Return the metrics that earlier releases have of the same classes, or finer ones."""
        axes = set(table.tally.axes)
        return {
            name
            for old in self.shown
            if old.fixed and axes <= set(old.tally.axes) and set(old.tally.experiment_names) <= axes
            for name in old.tally.metric_names
        }

    def _withhold(self, table: ShownTable, derived: Derived, why: str) -> None:
        pair = derived.first, derived.second
        here = [metric for metric in pair if self._stays(table, metric)]
        old = self._before(table)
        metric = max([name for name in here if name not in old] or here, key=lambda name: self._rank(name, table))
        where = "altogether" if table.only_arms else f"in {table.name}"
        told = why.format(
            first=derived.first,
            second=_times(derived, table.tally) + derived.second,
            where="an arm" if table.only_arms else "a class",
        )
        self.withheld[table.name, metric] = f"{metric} is withheld {where}: {told}"

    def _rank(self, metric: str, table: ShownTable) -> tuple[bool, int]:
        """Return who gives way: no primary metric where another can, and else the later one of the plan."""
        names = [name for name in table.tally.experiment_names if name in self.plan.experiment_names]
        primary = any(metric in self.plan.experiment(name).primary for name in names)
        return not primary, self.order.index(metric) if metric in self.order else -1


def _times(derived: Derived, tally: Tally) -> str:
    """Return by how much the second metric is multiplied, in words; nothing where it is taken as it is."""
    scales = {metric.name: metric.scale for metric in tally.metrics}
    if derived.first not in scales or derived.second not in scales:
        return ""
    ratio = Fraction(derived.weights[1] * scales[derived.second], derived.weights[0] * scales[derived.first])
    return "" if ratio == 1 else f"{in_units(ratio.numerator, ratio.denominator)} × "


def _broken(tally: Tally, derived: Derived, cells: DerivedCells, plan: Plan) -> str:
    """Return the rule that a difference breaks in a table; nothing if it breaks none.

    Two 0/1 metrics differ by 0 or 1, about which there is nothing to infer but for whom.
    """
    metrics = {metric.name: metric for metric in tally.metrics}
    if all(name in metrics and metrics[name].binary for name in (derived.first, derived.second)):
        return ""
    if bool(np.any((cells.people > 0) & (cells.people < LEAST_CONTRIBUTORS))):
        return TOO_FEW
    if cells.largest is not None and bool(dominated(cells.largest).any()):
        return DOMINATED
    return CLOSE if _close(tally, derived, plan) else ""


def _close(tally: Tally, derived: Derived, plan: Plan) -> bool:
    """Return whether squares of a difference, which published products tell, say too much about its extremes.

    Net is less than gross, and a reader guesses so. What was spent before and what was spent then is either way.
    """
    either_way = (derived.first in plan.numbers) != (derived.second in plan.numbers)
    a, b = derived.weights
    for cross in tally.crosses:
        if set(cross.pair) == {derived.first, derived.second} and len(cross.by) == 1:
            order = 1 if cross.pair[0] == derived.first else -1
            (y, z), (yy, zz) = cross.sums[::order], cross.squares[::order]
            sums, squares = a * y - b * z, a**2 * yy - 2 * a * b * cross.products + b**2 * zz
            if not squares.any():
                continue
            left = Moments(Metric("left"), cross.counts, sums, {cross.by: squares})
            if max(map(abs, sums.tolist())) < GRID_LIMIT and _too_narrow(tally, cross.by, left, either_way):
                return True
    return False


def _too_narrow(tally: Tally, by: tuple[str, ...], left: Moments, either_way: bool) -> bool:
    arms = Tally((tally.factor(by[0]),), left.counts, (left,))
    ranges = {left.metric.name: (-GRID_LIMIT, GRID_LIMIT)} if either_way else None
    broken = {each.rule for each in audit_table("difference", arms, {}, ranges=ranges).broken}
    return bool(broken & {"interval", "homogeneous"})


# ── by the sums alone ──────────────────────────────────────────────────────────────────────────


def _amounts(tally: Tally) -> Iterator[Derived]:
    """Yield the plain differences of amounts: without rows nobody knows common ratios."""
    for first, second in combinations([metric for metric in tally.metrics if not metric.binary], 2):
        yield Derived(first.name, second.name, (second.scale, first.scale))


def _stands_out(tally: Tally, derived: Derived) -> bool:
    """Return whether two sums are alike in at least half of the classes where there is something, and not in all."""
    first, second = (tally.moments_of(name).sums for name in (derived.first, derived.second))
    differing = int(np.count_nonzero(derived.weights[0] * first - derived.weights[1] * second))
    return 0 < 2 * differing <= int(np.count_nonzero((first != 0) | (second != 0)))
