"""Counts and sums per class, exactly, in integers. Others import `Tally`, `Metric` and `Factor`."""
