"""A tally in words and as tables: its shape for anybody, its counts for the curator."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kanab.errors import listed
from kanab.tabular import Table
from kanab.tally.moments import Moments
from kanab.tally.plain import Parts


def describe_shape(parts: Parts) -> str:
    """Name factors with their levels and metrics with their grids; no counts."""
    sides = " × ".join(f"{factor.name} ({listed(factor.labels)})" for factor in parts.factors)
    metrics = "; ".join(f"{part.metric.name} {_describe_metric(part)}" for part in parts.moments)
    return f"{sides}: {metrics or 'no metrics'}"


def shape_table(parts: Parts) -> Table:
    """Return the shape as a table, for notebooks."""
    factors = tuple((factor.name, factor.kind, listed(factor.labels)) for factor in parts.factors)
    metrics = tuple((part.metric.name, "metric", _describe_metric(part)) for part in parts.moments)
    return Table(("name", "kind", "levels"), factors + metrics, "Tally: shape and levels; .show() prints counts")


def _describe_metric(part: Moments) -> str:
    if part.metric.binary:
        return "is 0/1"
    marginals = ", ".join(" × ".join(by) for by in part.squares) or "nothing"
    return f"in steps of {part.metric.resolution:g}, squares by {marginals}"


def class_table(parts: Parts) -> Table:
    """Return every class that holds somebody, with its people and sums."""
    header = [*(factor.name for factor in parts.factors), "people"]
    for part in parts.moments:
        name = part.metric.name
        header += [f"with {name}", f"Σ {name}"] if part.metric.missing == "exclude" else [f"Σ {name}"]
    rows = []
    for place in np.ndindex(*parts.people.shape):
        if parts.people[place]:
            row = [factor.labels[i] for factor, i in zip(parts.factors, place, strict=True)]
            row.append(str(parts.people[place]))
            for part in parts.moments:
                row += [str(part.counts[place])] if part.metric.missing == "exclude" else []
                row.append(in_units(part.sums.item(place), part.metric.scale))
            rows.append(tuple(row))
    return Table(tuple(header), tuple(rows))


def square_tables(parts: Parts) -> Iterator[Table]:
    """Yield the squares of every metric, one table for each marginal."""
    factors = {factor.name: factor for factor in parts.factors}
    for part in parts.moments:
        for by, cells in part.squares.items():
            rows = tuple(
                (
                    *(factors[name].labels[i] for name, i in zip(by, place, strict=True)),
                    in_units(cells.item(place), part.metric.scale**2),
                )
                for place in np.ndindex(*cells.shape)
            )
            yield Table((*by, f"Σ {part.metric.name}²"), rows)


def in_units(steps: int, scale: int) -> str:
    """Format a whole number of steps in units, to 15 significant digits.

    >>> in_units(2170849320, 10**9)
    '2.17084932'
    """
    return f"{steps / scale:.15g}"
