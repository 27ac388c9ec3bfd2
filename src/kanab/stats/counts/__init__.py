"""Statistics of events and counts: logistic and Poisson regression, odds ratios over strata.

Others import the functions from ``kanab.stats``.
"""
