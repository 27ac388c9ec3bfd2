"""What may leave, and what may not: the rules, releases and ledgers. Others import `release`, `Release`, `Ledger`.

It knows nothing of statistics; an auditor can read this folder alone.
"""

from kanab.privacy.release import Receipt

__all__ = ["Receipt"]
