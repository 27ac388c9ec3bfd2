"""The collector's HTTP side."""
