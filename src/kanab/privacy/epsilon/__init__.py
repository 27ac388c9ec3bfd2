"""Releases with ε: noise of known scale on every number, and an account of it. Others import `release_with_noise`."""
