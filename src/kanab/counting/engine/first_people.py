"""Look at the first people of an engine that runs in this process: one small query, and NumPy for all that they show.

They decide on grids and forms that everybody is checked against, and nearly always show that values differ enough.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.counting.columns import MetricSteps, measure
from kanab.counting.engine.dialects import fetch_arrow
from kanab.counting.engine.group_keys import Key, Kind, as_plain
from kanab.counting.engine.metrics import as_number
from kanab.counting.grids import Profile, profile_values
from kanab.tally.cells import DROPPED
from kanab.tally.metric import Metric

FIRST_PEOPLE = 32_000
"""So many people are fetched where there are several tables, whose rule for rare values asks how values differ."""


@dataclass(frozen=True, eq=False)
class FirstPeople:
    """The first people of a source: their values, NaN where there is none, and their keys as Arrow columns.

    ``everybody``: there are no others.
    """

    values: Mapping[str, NDArray[np.float64]]
    keys: Mapping[str, Any]
    everybody: bool

    def few(self, people: int) -> FirstPeople:
        """Return the first of them."""
        return FirstPeople(
            {name: values[:people] for name, values in self.values.items()},
            {name: column.slice(0, people) for name, column in self.keys.items()},
            self.everybody and len(self) <= people,
        )

    def __len__(self) -> int:
        return len(next(iter((*self.values.values(), *self.keys.values()))))

    def levels(self, key: str) -> int:
        """Return how many levels a key has."""
        return len(self.keys[key].drop_null().unique())

    def arms(self, key: str, into: Mapping[str | None, int]) -> NDArray[np.intp]:
        """Return everybody's arm, given where each text goes."""
        encoded = self.keys[key].combine_chunks().dictionary_encode()
        texts = [*encoded.dictionary.to_pylist(), None]  # the last one is that of people in none
        spots = np.array([DROPPED if text is None else into.get(text, DROPPED) for text in texts], dtype=np.intp)
        return np.asarray(spots[np.from_dlpack(encoded.indices.fill_null(-1))])

    def steps(self, metric: Metric, people: NDArray[np.bool_]) -> MetricSteps:
        """Return a metric's grid steps of some of them: those whom it is about, for others may lack a value."""
        values = self.values[metric.name][people]
        gone = np.isnan(values)
        return measure(metric, np.where(gone, 0.0, values), gone)


def fetch_first(
    people: Any, columns: Mapping[str, Kind], keys: Sequence[Key], arms: Container[str], most: int
) -> FirstPeople:
    """Fetch the first people; arms as the texts that the statement has for them.

    Arrow's own way to NumPy would load pandas.
    """
    wanted = {
        f"y{place}": as_number(people[name], kind, careful=False).cast("float64").fill_null(math.nan)
        for place, (name, kind) in enumerate(columns.items())
    }
    for key in keys:
        plain = as_plain(people[key.name], key.kind)
        wanted[key.column] = plain.cast("string") if key.name in arms else plain
    table = fetch_arrow(people.limit(most).select(**wanted))
    arrays = {name: table.column(f"y{place}").combine_chunks() for place, name in enumerate(columns)}
    values = {name: np.from_dlpack(array).astype(np.float64, copy=False) for name, array in arrays.items()}
    return FirstPeople(values, {key.name: table.column(key.column) for key in keys}, len(table) < most)


def profile_of(values: NDArray[np.float64], kind: Kind, *, grid: bool) -> Profile:
    """Return range and gaps of values, and their grid where it is looked up and they are no integers."""
    known = values[~np.isnan(values)]
    gaps = len(known) < len(values)
    if not len(known):
        return Profile(gaps=gaps)
    if grid and kind == "number":
        return replace(profile_values(known), gaps=gaps)
    return Profile(float(known.min()), float(known.max()), gaps=gaps)
