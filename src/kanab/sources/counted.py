"""Moved to kanab.counted."""

from kanab.counted import Counted, Signatures

__all__ = ["Counted", "Signatures"]
