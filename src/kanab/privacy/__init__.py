"""What may leave, and what may not. Knows nothing of statistics; an auditor can read this folder alone."""

from kanab.privacy.release import Receipt

__all__ = ["Receipt"]
