"""Tables of earlier releases, as the rules over all tables look at them."""

from __future__ import annotations

from dataclasses import dataclass

from kanab.privacy.numbers.design import Weighted
from kanab.privacy.overlap import Column
from kanab.tally.tally import Tally

Place = tuple[str, str]
"""A table (or an experiment, for its arm totals and every table of it) and a metric."""


@dataclass(frozen=True, eq=False)
class ShownTable:
    """A table that was released before: it counts, and can no longer give way.

    ``columns`` are the classes of every signature in it, as flat indices into its people, and then those of who has a
    value of each metric that some people lack. ``weighted`` are its products with numbers.
    """

    tally: Tally
    columns: tuple[Column, ...]
    weighted: tuple[Weighted, ...] = ()
