"""Attacks on releases, as an outsider would run them; others use `run`, `examples`, `published`, `background`."""
