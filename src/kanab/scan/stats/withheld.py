"""Scans of which only some tests may be shown: what is left of the others are a few round numbers about all of them.

F and p of many tests give everybody away like tables do: to whoever knows the arms an F is an equation without its sign
(``kanab attack --example scan-statistics``). Even whether a test was flagged is one, where somebody chooses alpha. So
what is not shown is not kept: no number, no verdict that hangs on values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from kanab.counted import floor_to_k
from kanab.scan.stats.cells import Flags
from kanab.scan.stats.outcomes import Lines, Scan, WithheldTests
from kanab.scan.stats.segments import SegmentScan
from kanab.scan.stats.verdicts import ALARMS
from kanab.stats.gram import Floats

BARS, FEW_BARS = 10, 4
"""Of the histogram of p-values: few, so that it says little about any person; fewer of fewer tests than 20 k."""

_Scan = TypeVar("_Scan", bound=Scan[Any])


def withhold_tests(scan: _Scan, shown: Mapping[str, Collection[int]], k: int) -> _Scan:
    """Return the scan without the tests of some metrics, but for the lines that may be ``shown`` of each.

    An assignment that is broken, and a table that is too small, are still said: they hang on people alone.
    """
    names = _names(scan)
    hidden = np.isin(scan.metric_of, [names.index(name) for name in shown])
    hidden[[line for lines in shown.values() for line in lines]] = False
    withheld = {name: _summed_up(scan, scan.metric_of == names.index(name), hidden, k) for name in shown}
    lines = _without(scan, hidden, withheld)
    if isinstance(scan, SegmentScan):
        followed = {line: levels for line, levels in scan.followed.items() if not hidden[line]}
        return replace(scan, lines=lines, withheld=withheld, followed=followed)
    return replace(scan, lines=lines, withheld=withheld)


def _summed_up(scan: Scan[Any], mine: Flags, hidden: Flags, k: int) -> WithheldTests:
    """Return a metric's tests in steps of k."""
    lines = scan.lines
    p = lines.p_robust[mine & ~np.isnan(lines.p_adjusted)]
    flagged = int(np.sum(mine & hidden & np.isin(lines.verdict, ALARMS)))
    bars = np.histogram(p, BARS if len(p) >= 2 * BARS * k else FEW_BARS, (0.0, 1.0))[0].tolist()
    return WithheldTests(
        floor_to_k(len(p), k), floor_to_k(int(np.sum(p < scan.rules.alpha)), k), floor_to_k(flagged, k), flagged > 0,
        tuple(floor_to_k(bar, k) for bar in bars), _round_up(lines.could_miss[mine]),
    )  # fmt: skip


def _round_up(sizes: Floats) -> float | None:
    """Return the median of sizes, rounded up to a 1, 2 or 5.

    >>> _round_up(np.array([0.2, 0.31, 7.0, np.nan])), _round_up(np.array([np.nan]))
    (0.5, None)
    """
    known = sizes[np.isfinite(sizes) & (sizes > 0)]
    if not len(known):
        return None
    middle = float(np.median(known))
    power = 10.0 ** math.floor(math.log10(middle))
    return float(f"{next(step * power for step in (1, 2, 5, 10) if step * power >= middle * (1 - 1e-12)):.0e}")


def _without(scan: Scan[Any], hidden: Flags, withheld: Mapping[str, WithheldTests]) -> Lines:
    """Return the lines without the numbers of hidden ones; their verdicts say no more than people alone do."""
    lines = scan.lines
    columns = {column.name: np.array(getattr(lines, column.name)) for column in fields(Lines)}
    for values in columns.values():
        if values.dtype == np.float64:
            values[hidden] = np.nan
    more = {name for name, part in withheld.items() if part.more_flagged}
    quiet = ["not shown" if name in more else "nothing found" for name in _names(scan)]
    with np.errstate(invalid="ignore"):
        broken = (lines.assignment_adjusted < scan.rules.alpha) & ~lines.barred
    silent = hidden & ~lines.barred
    columns["verdict"][silent] = np.array(quiet, dtype=object)[scan.metric_of[silent]]
    columns["verdict"][silent & broken] = "assignment broken"
    columns["note"][silent] = ""
    columns["check"][hidden & ~broken] = 0
    return Lines(**columns)


def _names(scan: Scan[Any]) -> list[str]:
    return [metric.name for metric in scan.metrics]
