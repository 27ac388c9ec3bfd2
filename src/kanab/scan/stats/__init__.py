"""F tests and verdicts of many two-way tables at once; others use `pairs`, `segments`, `effects`, `verdicts`."""
