"""Which published classes every signature is in: the input of the leverage rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted, Signatures
from kanab.plan.model import Plan
from kanab.privacy.merging import LevelMap
from kanab.tally.tally import Tally

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


def column(counted: Counted, shown: Shown) -> Column:
    """The classes of one table."""
    known = _known(counted)
    own = known.cells[:, known.tables.index(shown.linkage)]
    into = places(counted.tallies[shown.linkage], shown.levels, totals=shown.totals)
    found: Column = np.where(own < 0, -1, into[own])
    return found


def value_columns(counted: Counted, shown: Shown) -> dict[str, Column]:
    """The classes of those who have a value, for each shown metric that leaves others out."""
    known = _known(counted)
    if known.present is None:
        return {}
    own = column(counted, shown)
    return {
        metric: np.where(known.present[:, known.metrics.index(metric)], own, -1)
        for metric in shown.metrics
        if metric in known.metrics
    }


def columns(counted: Counted, shown: Shown) -> tuple[Column, ...]:
    """Everything that one published table says about who is where."""
    return (column(counted, shown), *value_columns(counted, shown).values())


def _known(counted: Counted) -> Signatures:
    assert counted.signatures is not None, "who calls this has looked"
    return counted.signatures


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
    if name in plan.linkage_names:
        return name, False
    return plan.linkages_of(name)[0].name, True
