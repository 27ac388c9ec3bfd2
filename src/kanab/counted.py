"""What ``count`` returns: one tally per linkage, and how the tables overlap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kanab.plan import Plan
from kanab.tally import Tally


@dataclass(frozen=True, eq=False)
class Signatures:
    """Which class of every table people are in together: what the leverage rule needs.

    ``cells[i, j]`` is the class of signature i in table j, as a flat index into that tally's
    people, or −1 for people who are not in the table. Kept in memory by the curator, never
    written out.
    """

    tables: tuple[str, ...]
    cells: NDArray[np.int64]
    people: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Counted:
    """A source, counted by a plan. The curator's own until it is released.

    ``bounds_declared`` is False where a metric's grid was taken from the data. ``clamped`` and
    ``missing`` are people per metric, ``excluded`` people seen in two arms, ``outside`` people
    whose arm is missing or not in the plan.
    """

    plan: Plan
    tallies: Mapping[str, Tally]
    signatures: Signatures
    bounds_declared: bool = True
    clamped: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    excluded: int = 0
    outside: int = 0
    where: str = ""

    def __repr__(self) -> str:
        lines = [f"  {name}: {tally!r}" for name, tally in self.tallies.items()]
        return "\n".join(["Counted, not yet released:", *lines])
