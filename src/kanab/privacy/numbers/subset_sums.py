"""Sums of known numbers over people with an unusual value: they must fit many groups of people.

The sum of x·y of a 0/1 metric y is that of x over those who have it. Somebody who knows everybody's x to the cent can
search for the people whose x add up to it. That is no linear combination of sums, so leverage does not see it. What
protects is the number of groups: of n people, C(n, d) groups of d could have the metric, and the published sums must
tell apart far fewer than that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kanab.counted import Counted
from kanab.errors import flag
from kanab.privacy.budget import people_off
from kanab.privacy.shown import ShownTable
from kanab.tally.cells import marginal
from kanab.tally.metric import Metric
from kanab.tally.tally import Tally

SEARCHED = (
    "products of {number} and {metric} are withheld in {experiment}: so few people are off the commonest {metric} that "
    "those whose {number} add up to the sum could be searched for; count {number} in coarser steps ({flag}), "
    "or wait for more people"
)

MARGIN = 40
"""Binary digits that the sums leave open at least: 2 to the power of so many groups fit them."""


def bits_of_groups(people: int, unusual: int) -> float:
    """Return the binary digits that it takes to name one of all groups of so many people.

    >>> round(bits_of_groups(60, 10)), round(bits_of_groups(10_000, 120))
    (36, 933)
    """
    chosen = min(unusual, people // 2)
    ways = math.lgamma(people + 1) - math.lgamma(chosen + 1) - math.lgamma(people - chosen + 1)
    return ways / math.log(2)


def withhold_searchable(
    counted: Counted, tables: Mapping[str, Tally], earlier: Sequence[ShownTable]
) -> dict[tuple[str, frozenset[str]], str]:
    """Return the experiments and pairs whose products somebody could search for, with the reason.

    The products of a metric join one by one, in the order of the numbers' names; earlier releases come first.
    """
    withheld: dict[tuple[str, frozenset[str]], str] = {}
    for experiment in (each for each in counted.plan.experiments if each.numbers):
        name, numbers = experiment.name, {*experiment.numbers}
        own = [table for table in tables.values() if table.experiment_names == (name,)]
        before = [table.tally for table in earlier if name in table.tally.experiment_names]
        pairs = {frozenset(cross.pair) for table in own for cross in table.crosses}
        for metric in sorted({part for pair in pairs if pair & numbers for part in pair}):
            arms = _arms(counted, name, metric, own, before)
            for number in sorted(numbers):
                pair = frozenset((number, metric))
                if number == metric or pair not in pairs:
                    continue
                known = next(table.moments_of(number).metric for table in own if number in table.metric_names)
                after = {n: left - _bits_of_product(counted, known, n) for n, left in arms.items()}
                if min(after.values(), default=math.inf) >= MARGIN:
                    arms = after
                else:
                    withheld[name, pair] = SEARCHED.format(
                        number=number, metric=metric, experiment=name, flag=flag("--resolution", f"{number}=STEP")
                    )
    return withheld


def _arms(
    counted: Counted, experiment: str, metric: str, own: Sequence[Tally], before: Sequence[Tally]
) -> dict[int, float]:
    """Return by the people of each arm the digits of its groups that sums by class and earlier products leave open.

    An arm in which everybody is alike has no such group: its product is a multiple of the number's sum.
    """
    tables = [table for table in own if metric in table.metric_names]
    off = people_off(counted, metric, ShownTable(experiment, tables[0]), experiment)[:, 0]
    people = marginal(tables[0].moments_of(metric).counts, tables[0].axes, (experiment,))
    tables += [table for table in before if metric in table.metric_names]
    products = {
        cross.pair: table.moments_of(other).metric
        for table in before
        for cross in table.crosses
        for other in {*cross.pair} - {metric}
        if metric in cross.pair
    }
    arms: dict[int, float] = {}
    for level, n, d in zip(tables[0].factor(experiment).levels, map(int, people), map(int, off), strict=True):
        if not d:
            continue
        share = d / max(1, n)
        left = bits_of_groups(n, d) - sum(_bits_of_product(counted, known, n) for known in products.values())
        for table in tables:
            levels = table.factor(experiment).levels
            if level in levels:
                classes = table.people.take([levels.index(level)], axis=table.axes.index(experiment)).ravel().tolist()
                left -= sum(_bits_of_sum(size * share * (1 - share)) for size in classes[1:])
        arms[n] = min(left, arms.get(n, left))
    return arms


def _bits_of_sum(variance: float) -> float:
    """Return the digits that the sum of a class tells, on average: those of the spread that it has by chance."""
    return 0.5 * math.log2(1 + 2 * math.pi * math.e * variance)


def _bits_of_product(counted: Counted, number: Metric, people: int) -> float:
    """Return the digits that a sum of a number over some of so many people can have."""
    bounds = number.grid_bounds or counted.ranges.get(number.name)
    return math.inf if bounds is None else math.log2(1 + (bounds[1] - bounds[0]) * people)
