"""One person's transition becomes a tally of one row: the only place where messages turn into numbers.

A running total that moves from old to new adds new − old to the sum and new² − old² to the squares.
Adding the square of the difference instead would shrink the variance (the paper's §3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kanab.collector.counting.counters import Counters
from kanab.collector.counting.layout import RATIO_PARTS, Layout, Ratio
from kanab.collector.protocol.encoding import encode
from kanab.tally.factor import Level

ENROLLED = -1
"""The number of an enrollment; metrics are numbered from 0, and ratios after them."""

Steps = int | tuple[int, int]
"""A running total in steps of its grid; for a ratio, of both parts."""

Ends = tuple[Steps | None, Steps | None]
"""From where something moved (None: from no value at all) and to where (None for an enrollment)."""

Moves = Mapping[int, Ends]
"""What moved in one post, by its number; how often in between does not matter."""


class Keys(NamedTuple):
    """The counters that one metric of one class touches: its own count where values may be missing."""

    own: str | None
    total: str
    squares: tuple[str, ...]


class RatioKeys(NamedTuple):
    """The counters of a ratio, at each experiment of the linkage; only products where all else is known."""

    whole: bool
    places: tuple[tuple[str, ...], ...]


class Place:
    """One class of one linkage, with the names of everything that is counted there."""

    __slots__ = ("arms", "layout", "levels", "metrics", "people", "ratios")

    def __init__(self, layout: Layout, levels: Sequence[Level]) -> None:
        self.layout = layout
        self.levels = tuple(levels)
        self.arms = dict(zip(layout.linkage.experiments, levels, strict=False))
        self.people = layout.class_key(levels, "n")
        self.metrics = tuple(_keys(layout, levels, metric.name) for metric in layout.metrics)
        self.ratios = tuple(_ratio_keys(layout, levels, ratio) for ratio in layout.ratios)


def increment(place: Place, moves: Moves) -> Counters:
    """What one person's moves add to the counters of one class.

    >>> from kanab.collector.counting.layout import layouts
    >>> from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
    >>> plan = Plan((MetricPlan("minutes", (0, 600), 1),), (ExperimentPlan("checkout", (("A", 1), ("B", 1))),))
    >>> place = Place(layouts(plan)[0], ("B",))
    >>> increment(place, {ENROLLED: (None, None), 0: (0, 4)})
    {'checkout|B|n': 1, 'checkout|B|minutes|s': 4, 'checkout|checkout=B|minutes|q': 16}
    >>> increment(place, {0: (4, 6)})                  # 36 − 16: the person's total is 6, not 2
    {'checkout|B|minutes|s': 2, 'checkout|checkout=B|minutes|q': 20}
    """
    found: Counters = {}
    known, metrics = found.get, place.metrics
    for what, (old, new) in moves.items():
        if type(new) is int:
            own, total, squares = metrics[what]
            if old is None:
                old = 0  # noqa: PLW2901 - a first value moves from nothing
                if own is not None:
                    found[own] = known(own, 0) + 1
            found[total] = known(total, 0) + new - old  # type: ignore[operator]
            for square in squares:
                found[square] = known(square, 0) + new * new - old * old  # type: ignore[operator]
        elif new is None:
            found[place.people] = known(place.people, 0) + 1
        else:
            _add_ratio(found, place.ratios[what - len(metrics)], old, new)  # type: ignore[arg-type]
    return found


def _add_ratio(found: Counters, keys: RatioKeys, old: tuple[int, int] | None, new: tuple[int, int]) -> None:
    y, z = new
    u, v = old or (0, 0)
    parts = (int(old is None), y - u, z - v, y * y - u * u, z * z - v * v, y * z - u * v)
    moved = parts[-1:] if keys.whole else parts
    for place in keys.places:
        for key, value in zip(place, moved, strict=True):
            found[key] = found.get(key, 0) + value


def _keys(layout: Layout, levels: Sequence[Level], name: str) -> Keys:
    metric = next(one for one in layout.metrics if one.name == name)
    word = encode(name)
    return Keys(
        layout.class_key(levels, word, "n") if metric.missing == "exclude" else None,
        layout.class_key(levels, word, "s"),
        tuple(layout.margin_key(by, layout.margin_of(by, levels), word, "q") for by in layout.margins[name]),
    )


def _ratio_keys(layout: Layout, levels: Sequence[Level], ratio: Ratio) -> RatioKeys:
    parts = RATIO_PARTS[-1:] if ratio.whole else RATIO_PARTS
    return RatioKeys(
        ratio.whole,
        tuple(
            tuple(layout.margin_key((arm,), (level,), ratio.name, part) for part in parts)
            for arm, level in zip(layout.linkage.experiments, levels, strict=False)
        ),
    )
