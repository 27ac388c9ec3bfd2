"""Look at the first people of an engine that runs in this process: one small query, and NumPy for all that they show.

They decide on grids and forms that everybody is checked against, and on commonest values and relations of metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.counting.engine.dialects import fetch_arrow
from kanab.counting.engine.group_keys import Key, Kind, as_plain
from kanab.counting.engine.metrics import as_number
from kanab.counting.grids import Profile, profile_values


@dataclass(frozen=True, eq=False)
class FirstPeople:
    """The first people of a source: their values, NaN where there is none, and their keys as Arrow columns."""

    values: Mapping[str, NDArray[np.float64]]
    keys: Mapping[str, Any]

    def __len__(self) -> int:
        return len(next(iter((*self.values.values(), *self.keys.values()))))

    def levels(self, key: str) -> int:
        """Return how many levels a key has."""
        return len(self.keys[key].drop_null().unique())


def fetch_first(people: Any, columns: Mapping[str, Kind], keys: Sequence[Key], most: int) -> FirstPeople:
    """Fetch the first people.

    Arrow's own way to NumPy would load pandas.
    """
    wanted = {
        f"y{place}": as_number(people[name], kind, careful=False).cast("float64").fill_null(math.nan)
        for place, (name, kind) in enumerate(columns.items())
    }
    wanted |= {key.column: as_plain(people[key.name], key.kind) for key in keys}
    table = fetch_arrow(people.limit(most).select(**wanted))
    arrays = {name: table.column(f"y{place}").combine_chunks() for place, name in enumerate(columns)}
    values = {name: np.from_dlpack(array).astype(np.float64, copy=False) for name, array in arrays.items()}
    return FirstPeople(values, {key.name: table.column(key.column) for key in keys})


def profile_of(values: NDArray[np.float64], kind: Kind, *, grid: bool) -> Profile:
    """Return range and gaps of values, and their grid where it is looked up and they are no integers."""
    known = values[~np.isnan(values)]
    gaps = len(known) < len(values)
    if not len(known):
        return Profile(gaps=gaps)
    if grid and kind == "number":
        return replace(profile_values(known), gaps=gaps)
    return Profile(float(known.min()), float(known.max()), gaps=gaps)
