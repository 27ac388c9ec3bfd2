"""Which published classes every signature is in: the input of the leverage rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted
from kanab.plan import Plan
from kanab.privacy.levels import LevelMap
from kanab.tally import Tally

Column = NDArray[np.int64]
"""The class of every signature in one table; −1 for people who are not in it."""


@dataclass(frozen=True)
class Shown:
    """A table as it is published: the linkage that it comes from, its map, and its metrics.

    ``totals`` says that only the arms are shown.
    """

    linkage: str
    levels: LevelMap | None = None
    metrics: tuple[str, ...] = ()
    totals: bool = False


def columns(counted: Counted, shown: Sequence[Shown]) -> Iterator[Column]:
    """A column per table, and one per metric that leaves people without a value out of it."""
    known = counted.signatures
    if known is None:
        return
    for one in shown:
        own = known.cells[:, known.tables.index(one.linkage)]
        into = places(counted.tallies[one.linkage], one.levels, totals=one.totals)
        column = np.where(own < 0, -1, into[own])
        yield column
        for metric in one.metrics:
            if metric in known.metrics and known.present is not None:
                yield np.where(known.present[:, known.metrics.index(metric)], column, -1)


def places(tally: Tally, levels: LevelMap | None, *, totals: bool = False) -> NDArray[np.int64]:
    """Where each class of a tally goes, as flat indices, when levels are merged or only arms are shown."""
    axes = []
    for factor in tally.factors:
        if factor.role == "covariate" and totals:
            axes.append(np.zeros(len(factor.levels), dtype=np.int64))
        elif levels is not None and factor.name == levels.covariate:
            targets = [levels.target(level) for level in factor.levels]
            order = list(dict.fromkeys(targets))
            axes.append(np.array([order.index(target) for target in targets], dtype=np.int64))
        else:
            axes.append(np.arange(len(factor.levels), dtype=np.int64))
    flat = np.zeros((), dtype=np.int64)
    for into in axes:
        flat = flat[..., None] * (int(into.max()) + 1) + into
    return flat.ravel()


def linkage_of(name: str, plan: Plan) -> tuple[str, bool]:
    """The linkage behind a published table, and whether it shows only the arms of it."""
    if any(link.name == name for link in plan.linkages):
        return name, False
    return next(link.name for link in plan.linkages if link.experiments == (name,)), True
