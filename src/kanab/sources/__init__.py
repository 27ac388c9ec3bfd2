"""Data in, tallies out."""
