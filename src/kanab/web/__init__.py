"""HTTP: the collector's route, and what stands around it."""
