"""Products with numbers that experiments are adjusted for: published as far as nobody can be told by their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kanab.counted import Counted
from kanab.errors import PrivacyError, listed
from kanab.plan.model import Plan
from kanab.privacy.leverage import Leverage, holds
from kanab.privacy.numbers.design import FOLLOWING, Ints, Weighted, unexplained
from kanab.privacy.numbers.weights import Weights, weighted_sums
from kanab.privacy.overlap import Column, linkage_of
from kanab.privacy.shown import Place
from kanab.tally.tally import Tally

_TIGHTER = "declare tighter bounds (--bounds {number}=LOW:HIGH), values beyond are clamped"
EXTREME = (
    "products of {number} are withheld in {experiment}: few people have so extreme values of it that sums weighted by "
    f"it could be solved for theirs; {_TIGHTER}"
)
TOGETHER = (
    "products of {number} are withheld in {experiment}: together with those of {others}, few people have so unusual "
    f"values that sums weighted by them could be solved for theirs; adjust for fewer numbers, or {_TIGHTER}"
)
FOLLOWS = (
    "products of {number} are withheld in {experiment}: {number} follows from {others}, but perhaps for a few people, "
    "who could be told by it; leave it out, it adds next to nothing"
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


@dataclass(frozen=True)
class WeighedNumbers:
    """The products of which numbers are withheld, by experiment and number with the reason; and what is published."""

    withheld: Mapping[Place, str] = field(default_factory=dict)
    weights: Weights = field(default_factory=Weights)
    result: Leverage | None = None


def weigh_numbers(
    counted: Counted, tables: Mapping[str, Tally], classes: Sequence[Column], fixed: Weights
) -> WeighedNumbers:
    """Add numbers one by one, in the order of their names; withhold the products of those that would expose somebody.

    ``classes`` are the columns of everything that is published, ``fixed`` the weights of what was released before.
    """
    planned = [(number, experiment.name) for experiment in counted.plan.experiments for number in experiment.numbers]
    published = [
        (number, experiment)
        for number, experiment in sorted(planned)
        if any(number in cross.pair for table in _of(tables, experiment).values() for cross in table.crosses)
    ]
    if not published:
        return WeighedNumbers(weights=fixed)
    signatures = counted.signatures
    if signatures is None or signatures.within or signatures.numbers is None:
        return WeighedNumbers({(e, x): UNKNOWN.format(number=x, experiment=e) for x, e in published}, fixed)
    before = {column.number for column in fixed.columns} - {*signatures.numbers.names}
    cells, weights, result, withheld = np.stack(classes, axis=1), fixed, None, {}
    for number, experiment in published:
        own = [
            column
            for name, table in _of(tables, experiment).items()
            for column in weighted_sums(
                counted, linkage_of(name, counted.plan)[0], [c for c in table.crosses if number in c.pair]
            )
            if column.number == number
        ]
        more = weights.with_columns(own)
        try:
            trial = more.leverage(cells, signatures.people)
            if holds(trial, counted.plan.k):
                weights, result = more, trial
                continue
            why, others = APART, sorted(before)
            if not before:
                why, others = _reason(weights, own, cells, signatures.people, counted.plan.k)
                plans = [each.plan for each in (counted, *counted.earlier)]
                others = others or sorted({name for plan in plans for name in plan.factors_in_use}) or ["others"]
        except PrivacyError:
            why, others = UNCHECKED, []
        withheld[experiment, number] = why.format(number=number, experiment=experiment, others=listed(others))
    return WeighedNumbers(withheld, weights, result)


def _reason(weights: Weights, own: Sequence[Weighted], cells: Ints, people: Ints, k: int) -> tuple[str, list[str]]:
    """Say why a number may not join, and beside which others; none where that are the classes."""
    assert weights.numbers is not None, "callers check this"
    others = sorted({column.number for column in weights.columns} - {column.number for column in own})
    if unexplained(cells, people, weights.numbers, own) < FOLLOWING:
        return FOLLOWS, []
    if unexplained(cells, people, weights.numbers, own, weights.columns) < FOLLOWING:
        return FOLLOWS, others
    alone = Weights(weights.numbers, tuple(own)).leverage(cells, people)
    return (TOGETHER if holds(alone, k) else EXTREME), others


def extreme_numbers(plan: Plan, left_out: Mapping[str, str]) -> list[str]:
    """Return the numbers without declared bounds whose products are withheld for their extreme values."""
    return [
        number
        for number in plan.numbers
        if not plan.metrics_by_name[number].declared
        and any(
            left_out.get(f"{name}: products of {number}", "").endswith(_TIGHTER.format(number=number))
            for name in plan.experiment_names
        )
    ]


def _of(tables: Mapping[str, Tally], experiment: str) -> dict[str, Tally]:
    return {name: table for name, table in tables.items() if table.experiment_names == (experiment,)}
