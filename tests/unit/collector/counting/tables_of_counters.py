"""Tables from counters, as a seal makes them, and back: what tests of messages compare with tables of rows."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from kanab.collector.counting.counters import CONTRIBUTORS, JOINT, Counters
from kanab.collector.counting.layout import RATIO_PARTS, RatioLayout, TableLayout, layouts
from kanab.collector.counting.tables import Levels, possible_tables
from kanab.collector.protocol.encoding import encode
from kanab.plan.model import Plan
from kanab.tally.cell_arrays import Cells
from kanab.tally.factor import Factor
from kanab.tally.moments import Cross, Moments
from kanab.tally.tally import Tally


def tables(plan: Plan, counters: Mapping[str, int]) -> dict[str, Tally]:
    """Return the tally of every linkage; fails unless the counters are possible, and hold nothing else."""
    made = possible_tables(plan, counters)
    assert {name: table.impossible for name, table in made.items() if table.impossible} == {}
    tallies = {name: table.tally for name, table in made.items()}
    of_tables = {name: n for name, n in counters.items() if n and JOINT not in name and not name.endswith(CONTRIBUTORS)}
    assert of_tables == counters_of(plan, tallies)
    return tallies


def counters_of(plan: Plan, tallies: Mapping[str, Tally]) -> Counters:
    """Return the counters, without zeros, of the tallies of a plan's linkages: what a seal reads."""
    counters: Counters = {}
    for layout in layouts(plan):
        tally = tallies[layout.linkage.name]
        counters |= {layout.class_key(levels, "n"): value for levels, value in _cells(tally.factors, tally.people)}
        for part in tally.moments:
            counters |= _metric_counters(layout, part, tally.factors)
        for ratio in layout.ratios:
            for arm in layout.arms:
                counters |= _ratio_counters(layout, ratio, arm, tally.cross(*ratio.pair, by=(arm.name,)))
    return {name: value for name, value in counters.items() if value}


def _metric_counters(layout: TableLayout, part: Moments, factors: Sequence[Factor]) -> Counters:
    word = encode(part.metric.name)
    counters = {layout.class_key(levels, word, "s"): value for levels, value in _cells(factors, part.sums)}
    if part.metric.missing == "exclude":
        counters |= {layout.class_key(levels, word, "n"): value for levels, value in _cells(factors, part.counts)}
    for by, cells in part.squares.items():
        named = _cells([factor for factor in factors if factor.name in by], cells)
        counters |= {layout.marginal_key(by, levels, word, "q"): value for levels, value in named}
    return counters


def _ratio_counters(layout: TableLayout, ratio: RatioLayout, arm: Factor, cross: Cross) -> Counters:
    cells = (cross.counts, *cross.sums, *cross.squares, cross.products)
    parts = [*zip(RATIO_PARTS, cells, strict=True)][-1 if ratio.has_no_gaps else 0 :]
    return {
        layout.marginal_key(cross.by, levels, ratio.name, name): value
        for name, numbers in parts
        for levels, value in _cells([arm], numbers)
    }


def _cells(factors: Sequence[Factor], cells: Cells) -> Iterator[tuple[Levels, int]]:
    """Yield every combination of levels with its number."""
    yield from zip(product(*(factor.levels for factor in factors)), cells.ravel().tolist(), strict=True)
