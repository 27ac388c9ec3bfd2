"""Products with numbers that experiments are adjusted for: published as far as nobody can be told by their weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from kanab.counted import Counted
from kanab.errors import PrivacyError, flag, listed
from kanab.privacy.class_rules import ways_out
from kanab.privacy.exposure import LEAST_CONTRIBUTORS
from kanab.privacy.joint_rules import arm_columns
from kanab.privacy.leverage import Leverage, holds
from kanab.privacy.numbers.design import Weighted, Weights, weighted_sums
from kanab.privacy.overlap import Column, linkage_of, signatures_of
from kanab.tally.tally import Tally

_TIGHTER = "declare tighter bounds ({flag}), values beyond are clamped"
_FEW = "few people have so extreme values of {number}"
GAPS = (
    f"products of {{number}} and {{metric}} are withheld in {{experiment}}: {_FEW}, among those who have or lack a "
    "value of {metric}, that sums weighted by it could be solved for theirs; {ways}"
)
EXPOSED = (
    f"products of {{number}} are withheld in {{experiment}}: {_FEW}, beside {{others}}, that sums weighted by it could "
    f"be solved for theirs; {_TIGHTER}, adjust for fewer numbers, or leave it out if it nearly follows from {{others}}"
)
UNCHECKED = (
    "products of {number} are withheld in {experiment}: the tables have too many classes to check that nobody can be "
    "told by them; use fewer covariates, fewer bins or a smaller top"
)
UNKNOWN = (
    "products of {number} are withheld in {experiment}: it is not known how its values spread over the classes; "
    "count from rows or by an engine, not by a collector"
)
APART = (
    "products of {number} are withheld in {experiment}: it was not counted how it goes together with {others}, whose "
    "products were released before; adjust for both"
)

BUYERS = (
    "products of {number} and {metric} are withheld in {experiment}: so few people of an arm have some of {metric} "
    "that sums weighted by numbers could be solved for what each has; wait for more people, or adjust for fewer numbers"
)

_EVERYBODY = ""
"""Stands for all metrics that everybody has a value of."""


@dataclass(frozen=True)
class WeighedNumbers:
    """The products that are withheld, by experiment and what they are of, with the reason; and what is published."""

    withheld: Mapping[tuple[str, frozenset[str]], str] = field(default_factory=dict)
    weights: Weights = field(default_factory=Weights)
    result: Leverage | None = None


def weigh_numbers(
    counted: Counted, tables: Mapping[str, Tally], classes: Sequence[Column], fixed: Weights
) -> WeighedNumbers:
    """Add numbers in the order of their names; withhold the products of those that would expose somebody."""
    signatures = counted.signatures
    known = None if signatures is None or signatures.within else signatures.numbers
    weighing = counted.plan.numbers if known is None else known.names
    published = [
        (number, experiment)
        for number, experiment in sorted(product(weighing, counted.plan.experiment_names))
        if any(number in cross.pair for table in _of(tables, experiment).values() for cross in table.crosses)
    ]
    if not published:
        return WeighedNumbers(weights=fixed)
    if signatures is None or known is None:
        return WeighedNumbers(
            {(e, frozenset({x})): UNKNOWN.format(number=x, experiment=e) for x, e in published}, fixed
        )
    before = [column for column in fixed.columns if column.number not in known.names]
    cells, people, k = np.stack(classes, axis=1), signatures.people, counted.plan.k
    weights, result, withheld = fixed, None, {}
    for number, experiment in published:
        few = _few_have(counted, tables, experiment, number)
        for metric in few:
            why = BUYERS.format(number=number, metric=metric, experiment=experiment)
            withheld[experiment, frozenset({number, metric})] = why
        own = _columns(counted, _of(tables, experiment), number, few)
        inside = np.any([column.rows for columns in own.values() for column in columns], axis=0) & (people > 0)
        apart = sorted({column.number for column in before if (column.rows & inside).any()})
        levels = [each.plan.factors_in_use for each in (counted, *counted.earlier)]
        beside = sorted({column.number for column in weights.columns}.union(*levels) - {number})
        # All at once; if not, then first what everybody has a value of: a metric that some lack costs no other one.
        for metrics in [[*own], *([metric] for metric in sorted(own) if len(own) > 1)]:
            columns = [column for metric in metrics for column in own[metric]]
            more = weights.with_columns(columns)
            try:
                trial = more.leverage(cells, people)
                if holds(trial, k):
                    weights, result = more, trial
                    if len(metrics) == len(own):
                        break
                    continue
                why, others = (APART, apart) if apart else (EXPOSED, beside)
            except PrivacyError:
                why, others = UNCHECKED, []
            if metrics == [_EVERYBODY] or why == UNCHECKED or apart:
                withheld[experiment, frozenset({number})] = why.format(
                    number=number, experiment=experiment, others=listed(others or ["the arms"]),
                    flag=flag("--bounds", f"{number}=LOW:HIGH"),
                )  # fmt: skip
                break
            if len(metrics) == 1:
                withheld[experiment, frozenset({number, *metrics})] = GAPS.format(
                    number=number, metric=metrics[0], experiment=experiment, ways=ways_out(metrics[0])
                )
    return WeighedNumbers(withheld, weights, result)


def _few_have(counted: Counted, tables: Mapping[str, Tally], experiment: str, number: str) -> list[str]:
    """Return the amounts of which somebody could solve the few people of an arm who have some of it.

    Their sum and those weighted by numbers are as many equations about them: for each there have to be as many people
    off the commonest value as have to be behind one sum.
    """
    signatures = signatures_of(counted)
    pairs = {frozenset(cross.pair) for table in _of(tables, experiment).values() for cross in table.crosses}
    arms = arm_columns(counted)[experiment]
    few = []
    for metric, values in signatures.values.items():
        sums = 1 + sum(metric in pair and bool(pair & {*counted.plan.numbers}) for pair in pairs)
        off = np.bincount(arms[arms >= 0], values.off[arms >= 0])
        if {number, metric} in pairs and np.any((off > 0) & (off < LEAST_CONTRIBUTORS * sums)):
            few.append(metric)
    return few


def _columns(
    counted: Counted, tables: Mapping[str, Tally], number: str, withheld: Sequence[str]
) -> dict[str, list[Weighted]]:
    """Return the columns of a number's products, by the metric that some people have no value of."""
    signatures = signatures_of(counted)
    present = signatures.present
    gaps = {name for m, name in enumerate(signatures.metrics) if present is not None and not present[:, m].all()}
    columns: dict[str, list[Weighted]] = {}
    for name, table in tables.items():
        linkage = linkage_of(name, counted.plan)[0]
        for cross in table.crosses:
            if number in cross.pair and not {*cross.pair} & {*withheld}:
                (other,) = {*cross.pair} - {number}
                part = columns.setdefault(other if other in gaps else _EVERYBODY, [])
                part += [column for column in weighted_sums(counted, linkage, [cross]) if column.number == number]
    return columns


def _of(tables: Mapping[str, Tally], experiment: str) -> dict[str, Tally]:
    return {name: table for name, table in tables.items() if table.experiment_names == (experiment,)}
