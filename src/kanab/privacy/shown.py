"""Tables as they would be published: what the rules over all of them look at, and withhold metrics from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kanab.counted import Counted, Derived, DerivedCells
from kanab.privacy.numbers.design import Weighted
from kanab.privacy.overlap import Column
from kanab.tally.tally import Tally


@dataclass(frozen=True, eq=False)
class ShownTable:
    """A table with the metrics that may be shown of it so far; arm totals stand under the experiment's name.

    ``columns`` are the classes of every signature in it, as flat indices into its people, and then those of who
    has a value of each metric that some people lack; empty where nobody knows how the tables overlap. ``fixed``
    tables were released before: they count, and can no longer give way. ``derived`` is what follows from pairs of
    metrics in the same classes; None where there were no rows to derive it from. ``weighted`` are the products of an
    earlier table with numbers.
    """

    name: str
    tally: Tally
    columns: tuple[Column, ...] = ()
    fixed: bool = False
    derived: Mapping[Derived, DerivedCells] | None = None
    weighted: tuple[Weighted, ...] = ()

    def knows(self, metric: str) -> bool:
        """Return whether it is known who has a value of a metric; a collector does not know it where some lack one."""
        lacking = [part.metric.name for part in self.tally.moments if part.metric.missing == "exclude"]
        return bool(self.columns) and (metric not in lacking or len(self.columns) == 1 + len(lacking))

    @property
    def only_arms(self) -> bool:
        """Whether it holds nothing but the arms of one experiment."""
        return len(self.tally.axes) == 1


Place = tuple[str, str]
"""A table (or an experiment, for its arm totals and every table of it) and a metric."""

ValueRule = Callable[[Counted, Sequence[ShownTable]], Mapping[Place, str]]
"""A rule over all tables: the metrics to withhold from tables that are not fixed, each with the reason.

Withholding never breaks another rule, so that rules can be applied one after the other.
"""
