"""Statistics of events: odds ratios over strata.

Others import the functions from ``kanab.stats``.
"""
