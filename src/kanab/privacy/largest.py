"""The largest values of merged classes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted, Heights
from kanab.privacy.overlap import Shown, places
from kanab.tally.cells import Cells, zeros


def heights_of(counted: Counted, shown: Shown) -> Mapping[str, Heights]:
    """Heights of a table as it is published, for the metrics where they were looked up."""
    own = counted.heights.get(shown.linkage, {})
    if not own:
        return {}
    tally = counted.tallies[shown.linkage]
    into = places(tally, shown.levels, totals=shown.totals)
    table = tally.keep() if shown.totals else tally if shown.levels is None else shown.levels.apply(tally)
    return {metric: _merged(heights, into, table.shape) for metric, heights in own.items()}


def _merged(heights: Heights, into: NDArray[np.int64], shape: tuple[int, ...]) -> Heights:
    """The two largest of the classes that become one; their totals add."""
    largest, second, total = (zeros(shape) for _ in range(3))
    tops, seconds, totals = (cells.ravel() for cells in (largest, second, total))
    for place, top, next_, added in zip(into, *_flat(heights), strict=True):
        tops[place], seconds[place] = sorted((tops[place], seconds[place], top, next_), reverse=True)[:2]
        totals[place] += added
    return Heights(largest, second, total)


def _flat(heights: Heights) -> tuple[Cells, Cells, Cells]:
    return heights.largest.ravel(), heights.second.ravel(), heights.total.ravel()
