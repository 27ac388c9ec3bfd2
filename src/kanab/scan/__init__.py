"""All pairs of concurrent experiments, and all experiments by segment, in one pass."""
