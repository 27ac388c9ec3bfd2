"""Attacks on releases, as an outsider would run them. Others call `attack`."""
