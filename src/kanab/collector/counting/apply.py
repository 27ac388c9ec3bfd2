"""Applies old>new: one person's transition becomes counters, the only place where messages turn into numbers.

A running total that moves from old to new adds new − old to the sum and new² − old² to the squares.
Adding the square of the difference instead would shrink the variance (the paper's §3.1).
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from kanab.collector.counting.counters import CONTRIBUTORS, JOINT, Counters
from kanab.collector.counting.layout import RATIO_PARTS, MetricBins, TableLayout
from kanab.collector.protocol.encoding import encode, spell
from kanab.tally.factor import Level

ENROLLED = -1
"""The number of an enrollment among the measures; metrics are numbered from 0, and ratios after them."""

Steps = int | tuple[int, int]
"""A running total in steps of its grid; for a ratio, the totals of both parts."""

Transition = tuple[Steps | None, Steps | None]
"""From which total a measure moved (None: from no value at all) and to which (None for an enrollment)."""

Transitions = Mapping[int, Transition]
"""The transitions of one post, by the number of the measure; how often it moved in between does not matter."""


class MetricKeys(NamedTuple):
    """The names of the counters that one metric of one class adds to: people only where values may be missing."""

    people: str | None
    total: str
    squares: tuple[str, ...]
    contributors: str | None


class RatioKeys(NamedTuple):
    """The names of a ratio's counters, at each experiment of the linkage; only products where all else is known."""

    has_no_gaps: bool
    by_arm: tuple[tuple[str, ...], ...]


class BinKeys(NamedTuple):
    """The names of the counters of an arm's people in the bins of a metric, and what places somebody in one."""

    bins: MetricBins
    names: tuple[str, ...]


_T = TypeVar("_T")


class _Keys(dict[int, _T]):
    """Names of counters by the number of a measure, made when they are first asked for."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[int], _T]) -> None:
        self._make = make

    def __missing__(self, measure: int) -> _T:
        self[measure] = keys = self._make(measure)
        return keys


class ClassCounters:
    """One class of one linkage, with the names of all its counters."""

    __slots__ = (
        "arms", "bins", "contributing", "layout", "levels", "metrics", "people", "ratios", "signature_head",
        "signature_part",
    )  # fmt: skip

    def __init__(self, layout: TableLayout, levels: Sequence[Level]) -> None:
        self.layout = layout
        self.levels = tuple(levels)
        self.arms = dict(zip(layout.linkage.experiments, levels, strict=False))
        self.people = layout.class_key(levels, "n")
        self.contributing = layout.contributing_key if layout.amounts else None
        self.metrics = _Keys(partial(_metric_keys, layout, self.levels))
        self.ratios = _Keys(partial(_ratio_keys, layout, self.levels))
        self.bins = tuple(BinKeys(bins, bins.names[spell(levels[0])]) for bins in layout.bins)
        arm, last = (encode(spell(level)) for level in (levels[0], levels[-1]))
        self.signature_head = f"{encode(layout.factors[0].name)}{JOINT}{arm}"
        self.signature_part = layout.factors[-1].name, f":{last}"


def increment(target: ClassCounters, transitions: Transitions) -> Counters:
    """Return what one person's transitions add to the counters of one class."""
    counters: Counters = {}
    known, metrics = counters.get, target.metrics
    for measure, (old, new) in transitions.items():
        if type(new) is int:
            count, total, squares, contributors = metrics[measure]
            if old is None:
                old = 0  # noqa: PLW2901 - a first value moves from nothing
                if count is not None:
                    counters[count] = known(count, 0) + 1
            counters[total] = known(total, 0) + new - old  # type: ignore[operator]
            if contributors is not None and (not old) is not (not new):
                counters[contributors] = known(contributors, 0) + (1 if new else -1)
            for square in squares:
                counters[square] = known(square, 0) + new * new - old * old  # type: ignore[operator]
        elif new is None:
            counters[target.people] = known(target.people, 0) + 1
            if target.contributing is not None:
                counters[target.contributing] = known(target.contributing, 0) + 1
        else:
            _add_ratio(counters, target.ratios[measure], old, new)  # type: ignore[arg-type]
    if target.bins:
        _move_between_bins(counters, target.bins, transitions)
    return counters


def _move_between_bins(counters: Counters, keys: Sequence[BinKeys], transitions: Transitions) -> None:
    """Take a person out of the bin of the old total and into that of the new one; an enrollment begins in a bin."""
    for bins, names in keys:
        old, new = transitions.get(bins.measure, (None, None))
        moves = [(bins.start, 1)] if ENROLLED in transitions else []
        if new is not None:
            moves += [(bins.start if old is None else bisect_right(bins.edges, old), -1)]
            moves += [(bisect_right(bins.edges, new), 1)]
        for place, people in moves:
            counters[names[place]] = counters.get(names[place], 0) + people


def _add_ratio(counters: Counters, keys: RatioKeys, old: tuple[int, int] | None, new: tuple[int, int]) -> None:
    y, z = new
    u, v = old or (0, 0)
    parts = (int(old is None), y - u, z - v, y * y - u * u, z * z - v * v, y * z - u * v)
    deltas = parts[-1:] if keys.has_no_gaps else parts
    for names in keys.by_arm:
        for key, value in zip(names, deltas, strict=True):
            counters[key] = counters.get(key, 0) + value


def _metric_keys(layout: TableLayout, levels: Sequence[Level], measure: int) -> MetricKeys:
    metric = layout.metrics[measure]
    word = encode(metric.name)
    return MetricKeys(
        layout.class_key(levels, word, "n") if metric.missing == "exclude" else None,
        layout.class_key(levels, word, "s"),
        tuple(
            layout.marginal_key(by, layout.marginal_of(by, levels), word, "q") for by in layout.marginals[metric.name]
        ),
        None if metric.binary else layout.class_key(levels, word) + CONTRIBUTORS,
    )


def _ratio_keys(layout: TableLayout, levels: Sequence[Level], measure: int) -> RatioKeys:
    ratio = layout.ratios[measure - len(layout.metrics)]
    parts = RATIO_PARTS[-1:] if ratio.has_no_gaps else RATIO_PARTS
    return RatioKeys(
        ratio.has_no_gaps,
        tuple(
            tuple(layout.marginal_key((arm,), (level,), ratio.name, part) for part in parts)
            for arm, level in zip(layout.linkage.experiments, levels, strict=False)
        ),
    )
