"""What an auditor says of a rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One rule, and whether it holds; ``holds`` is None where it could not be evaluated."""

    rule: str
    holds: bool | None
    says: str
    remedy: str = ""
    classes: int = 0
