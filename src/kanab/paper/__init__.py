"""The paper's numbers, recomputed: as printed, from six classes, and from eighteen rows; import ``compare``."""
