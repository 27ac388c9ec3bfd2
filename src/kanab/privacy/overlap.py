"""Tables as they are published: the classes of every signature in them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted, Signatures
from kanab.plan.model import Plan
from kanab.privacy.merging import LevelMap
from kanab.privacy.numbers.design import Weighted
from kanab.tally.tally import Tally

Column = NDArray[np.int64]
"""The class of every signature in one table; −1 for people who are not in it."""


@dataclass(frozen=True)
class ReleasedTable:
    """A table as published: its linkage, its map, its metrics, and whether only arms are (``totals``)."""

    linkage: str
    levels: LevelMap | None = None
    metrics: tuple[str, ...] = ()
    totals: bool = False

    def apply(self, tally: Tally) -> Tally:
        """Merge levels of a tally, or collapse it to its arms, as the table has them."""
        merged = tally if self.levels is None else self.levels.apply(tally)
        return merged.keep() if self.totals else merged


def column(counted: Counted, published: ReleasedTable) -> Column:
    """Return the classes of one table."""
    signatures = signatures_of(counted)
    classes = signatures.cells[:, signatures.tables.index(published.linkage)]
    into = _merged_places(counted.tallies[published.linkage], published)
    merged: Column = np.where(classes < 0, -1, into[classes])
    return merged


def value_columns(counted: Counted, published: ReleasedTable) -> dict[str, Column]:
    """Return the classes of those who have a value, for each published metric that leaves others out."""
    signatures = signatures_of(counted)
    if signatures.present is None:
        return {}
    classes = column(counted, published)
    return {
        metric: np.where(signatures.present[:, signatures.metrics.index(metric)], classes, -1)
        for metric in published.metrics
        if metric in signatures.metrics
    }


def columns(counted: Counted, published: ReleasedTable) -> tuple[Column, ...]:
    """Return everything that one published table says about who is in which class."""
    return (column(counted, published), *value_columns(counted, published).values())


def signatures_of(counted: Counted) -> Signatures:
    """Return the signatures of what was counted, which must be known."""
    assert counted.signatures is not None, "callers check this"
    return counted.signatures


def _merged_places(tally: Tally, published: ReleasedTable) -> NDArray[np.int64]:
    """Return where each class of a tally goes in its published table, as flat indices."""
    axes, levels = [], published.levels
    for factor in tally.factors:
        if factor.role == "covariate" and published.totals:
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
    """Return the linkage behind a published table, and whether it shows only the arms of it."""
    if name in plan.linkage_names:
        return name, False
    return plan.linkages_of(name)[0].name, True


# ── what was released before ───────────────────────────────────────────────────────────────────

Place = tuple[str, str]
"""A table (or an experiment, for its arm totals and every table of it) and a metric."""


@dataclass(frozen=True, eq=False)
class ShownTable:
    """A table that was released before: it counts, and can no longer give way.

    ``columns`` are the classes of every signature in it, as flat indices into its people, and then those of who has a
    value of each metric that some people lack. ``weighted`` are its products with numbers, ``cut`` those with 0/1
    metrics: the two metrics, and the arms of those who have one of them.
    """

    tally: Tally
    columns: tuple[Column, ...]
    weighted: tuple[Weighted, ...] = ()
    cut: tuple[tuple[frozenset[str], Column], ...] = ()
