"""What may be said of a cohort that is still open: people in steps of k, days to its seal, the interval to expect then.

People are what the collector shows anyway, less what was sealed; the interval is computed from sealed batches alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kanab.dashboard.next_seal import CollectionStatus
from kanab.dashboard.results import ExperimentReadout
from kanab.dashboard.sparkline import main_effect
from kanab.report.figures import figures_of, is_share


@dataclass(frozen=True)
class OpenCohort:
    """The open cohort of one experiment: people per arm are floored to multiples of k, and none with ε.

    ``width`` is that of the main effect's interval now, ``width_then`` after the next seal, if that brings as many
    people as those before it did on average.
    """

    cohort: str | None
    days: int | None
    people: Mapping[str, int]
    metric: str = ""
    arm: str = ""
    width: float | None = None
    width_then: float | None = None
    share: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, ready for JSON."""
        return {
            "cohort": self.cohort, "days_to_seal": self.days, "people": dict(self.people),
            "metric": self.metric or None, "arm": self.arm or None,
            "interval_width": self.width, "expected_interval_width": self.width_then,
        }  # fmt: skip

    @property
    def seal_words(self) -> str:
        """When the next seal is, in days."""
        if self.days is None:
            return ""
        return "in less than a day" if self.days < 1 else f"in {self.days} {'day' if self.days == 1 else 'days'}"

    @property
    def width_words(self) -> str:
        """The width of the interval now and then; empty before the first seal."""
        if self.width is None or self.width_then is None:
            return ""
        row = {"estimate": 0.0, "interval": [-self.width_then / 2, self.width_then / 2]}
        figures = figures_of([row], share=self.share)
        return f"{figures.bare(self.width)} wide now, about {figures.change(self.width_then)} wide then"


def open_cohort(name: str, readout: ExperimentReadout | None, collection: CollectionStatus | None) -> OpenCohort | None:
    """Return the open cohort of an experiment; None where it is not collected."""
    if collection is None or not collection.runs(name):
        return None
    sealed = {} if readout is None or readout.readout is None else readout.data["arms"]
    people = _open_people(name, sealed, collection)
    days = None
    if collection.next_seal is not None and collection.now is not None:
        days = max(math.floor((collection.next_seal - collection.now) / timedelta(days=1)), 0)
    row = main_effect(readout.data) if readout is not None and readout.readout is not None else None
    if row is None or readout is None or collection.next_seal is None or _over(row):
        return OpenCohort(collection.cohort, days, people)
    low, high = row["interval"] or (None, None)
    if low is None or high is None:
        return OpenCohort(collection.cohort, days, people)
    seals = len(readout.bundle.releases)
    return OpenCohort(
        collection.cohort, days, people, row["metric"], row["arm"], high - low,
        (high - low) * math.sqrt(seals / (seals + 1)), is_share(readout.data, row["metric"]),
    )  # fmt: skip


def _open_people(name: str, sealed: Mapping[str, int], collection: CollectionStatus) -> dict[str, int]:
    """Return people per arm in open cohorts, from two numbers that are shown: all, in steps of k, and sealed ones."""
    if collection.live is None or collection.plan.budget is not None:
        return {}
    k = collection.plan.k
    people = collection.live.people.get(name) or {}
    return {arm: max(count - sealed.get(arm, 0), 0) // k * k for arm, count in people.items()}


def _over(row: Mapping[str, Any]) -> bool:
    """Return whether the last planned look was taken, so that no later seal changes the interval."""
    look = row["sequential"]
    return bool(look and look["looks"] and look["look"] >= look["looks"])
