"""How a tally looks: in words, as its shape, and, on purpose, with its counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kanab.errors import listed
from kanab.tabular import Table
from kanab.tally.moments import Moments
from kanab.tally.plain import Parts


def in_words(parts: Parts) -> str:
    """Factors with their levels, and metrics with their grids; no counts."""
    sides = " × ".join(f"{one.name} ({listed(one.labels)})" for one in parts.factors)
    metrics = "; ".join(f"{part.metric.name} {_kept(part)}" for part in parts.moments)
    return f"{sides}: {metrics or 'no metrics'}"


def shape_table(parts: Parts) -> Table:
    """The same as a table, for notebooks."""
    factors = tuple((one.name, one.kind, listed(one.labels)) for one in parts.factors)
    metrics = tuple((part.metric.name, "metric", _kept(part)) for part in parts.moments)
    return Table(("name", "kind", "levels"), factors + metrics, "Tally: shape and levels; .show() prints counts")


def _kept(part: Moments) -> str:
    if part.metric.binary:
        return "is 0/1"
    margins = ", ".join(" × ".join(by) for by in part.squares) or "nothing"
    return f"in steps of {part.metric.resolution:g}, squares by {margins}"


def class_table(parts: Parts) -> Table:
    """Every class that holds somebody, with its people and sums."""
    header = [*(one.name for one in parts.factors), "people"]
    for part in parts.moments:
        name = part.metric.name
        header += [f"with {name}", f"Σ {name}"] if part.metric.missing == "exclude" else [f"Σ {name}"]
    rows = []
    for place in np.ndindex(*parts.people.shape):
        if parts.people[place]:
            row = [one.labels[i] for one, i in zip(parts.factors, place, strict=True)]
            row.append(str(parts.people[place]))
            for part in parts.moments:
                row += [str(part.counts[place])] if part.metric.missing == "exclude" else []
                row.append(in_units(part.sums.item(place), part.metric.scale))
            rows.append(tuple(row))
    return Table(tuple(header), tuple(rows))


def square_tables(parts: Parts) -> Iterator[Table]:
    """The squares of every metric at each margin that was kept."""
    known = {one.name: one for one in parts.factors}
    for part in parts.moments:
        for by, cells in part.squares.items():
            rows = tuple(
                (
                    *(known[name].labels[i] for name, i in zip(by, place, strict=True)),
                    in_units(cells.item(place), part.metric.scale**2),
                )
                for place in np.ndindex(*cells.shape)
            )
            yield Table((*by, f"Σ {part.metric.name}²"), rows)


def in_units(steps: int, scale: int) -> str:
    """A whole number of steps in units, to 15 significant digits.

    >>> in_units(2170849320, 10**9)
    '2.17084932'
    """
    return f"{steps / scale:.15g}"
