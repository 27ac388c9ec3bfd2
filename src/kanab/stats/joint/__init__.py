"""Fits to several tables at once: their marginals, and the noise in them. Others import `kanab.stats.additive`."""
