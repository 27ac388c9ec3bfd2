"""Counts and sums per class, exactly, in integers. Others import `Tally`, `Metric` and `Factor`."""

from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.tally import Tally

__all__ = ["Factor", "Metric", "Tally"]
