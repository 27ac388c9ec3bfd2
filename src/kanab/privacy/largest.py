"""The largest values of merged classes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted, LargestValues
from kanab.privacy.overlap import Shown, places
from kanab.tally.cells import Cells, zeros


def largest_of(counted: Counted, shown: Shown) -> Mapping[str, LargestValues]:
    """Return the largest values of a table as it is published, for the metrics where they were looked up."""
    own = counted.largest.get(shown.linkage, {})
    if not own:
        return {}
    tally = counted.tallies[shown.linkage]
    into = places(tally, shown.levels, totals=shown.totals)
    table = tally.keep() if shown.totals else tally if shown.levels is None else shown.levels.apply(tally)
    return {metric: _merged(values, into, table.shape) for metric, values in own.items()}


def _merged(values: LargestValues, into: NDArray[np.int64], shape: tuple[int, ...]) -> LargestValues:
    """The two largest of the classes that become one; their totals add."""
    largest, second, total = (zeros(shape) for _ in range(3))
    tops, seconds, totals = (cells.ravel() for cells in (largest, second, total))
    for place, top, next_, added in zip(into, *_flat(values), strict=True):
        tops[place], seconds[place] = sorted((tops[place], seconds[place], top, next_), reverse=True)[:2]
        totals[place] += added
    return LargestValues(largest, second, total)


def _flat(values: LargestValues) -> tuple[Cells, Cells, Cells]:
    return values.largest.ravel(), values.second.ravel(), values.total.ravel()
