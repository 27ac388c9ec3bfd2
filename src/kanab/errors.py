"""The errors of the library: all are `KanabError`, and what they are for stands at each.

Every error says what is wrong, where, and what to do. None contains a count, a sum or a value
from the data: error texts reach logs and clients.
"""

from __future__ import annotations

import difflib
import importlib.util
import shlex
from collections.abc import Iterable


def closest(name: object, known: Iterable[object], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the names that are spelt most like one, at most so many."""
    return difflib.get_close_matches(str(name), [*map(str, known)], n=most, cutoff=cutoff)


def meant(name: object, known: Iterable[object]) -> str:
    """Return which of several names was meant, as a question with a space after it; nothing where none is near."""
    near = closest(name, known)
    return f"Did you mean {near[0]!r}? " if near else ""


class KanabError(Exception):
    """A fact, a place and a remedy.

    >>> print(KanabError("squares are missing", "Count again with squares='class'.", at="$.squares"))
    squares are missing - at $.squares. Count again with squares='class'.
    """

    def __init__(self, fact: str, remedy: str = "", *, at: str = "") -> None:
        self.fact = fact
        self.remedy = remedy
        self.at = at
        place = f" - at {at}" if at else ""
        end = "" if f"{fact}{place}".endswith("?") else "."
        super().__init__(f"{fact}{place}{end} {remedy}".rstrip())


class TallyError(KanabError):
    """A tally that no group of people could have produced, or two that cannot be added."""


class GridError(KanabError):
    """A value, bound or resolution that does not fit a metric's grid."""


class LevelError(KanabError):
    """An arm, covariate, level or metric that the tally does not have."""


class SourceError(KanabError):
    """A column, file or table that cannot be counted."""


class MissingExtraError(SourceError):
    """An optional package that is not installed."""

    def __init__(self, doing: str, extra: str) -> None:
        super().__init__(f"{doing} needs an extra", f"Run: pip install 'kanab[{extra}]'")


def need_extra(doing: str, extra: str, *packages: str) -> None:
    """Raise `MissingExtraError` where a package of an extra is not installed."""
    if any(importlib.util.find_spec(package) is None for package in packages):
        raise MissingExtraError(doing, extra)


class NobodyError(SourceError):
    """A source without anybody in an arm of the plan."""

    def __init__(self, hint: str = "Check the arm column and the declared arms.") -> None:
        super().__init__("nobody is in an arm of the plan", hint)


class NothingSealedError(SourceError):
    """A ledger or a collector that holds no release yet."""


class QueryError(SourceError):
    """A query that its engine refused or could not finish."""

    def __init__(self, problem: Exception) -> None:
        super().__init__(
            f"the engine could not finish the query ({type(problem).__name__})",
            "Check the filter, your rights on the table, and the connection; --show-sql prints the query.",
        )


class PlanError(KanabError):
    """A plan that contradicts itself or cannot be read."""


class PrivacyError(KanabError):
    """A release that would break a rule. It never says by how much."""


class LedgerError(PrivacyError):
    """A ledger that was changed, is something else, or is in use."""


class MessageError(KanabError):
    """A message that the plan does not allow, or that cannot be read. It never repeats the message.

    ``reason`` is one word of a closed list, which is counted; ``status`` is the HTTP status of the answer.
    """

    def __init__(
        self, fact: str, remedy: str = "", *, at: str = "", reason: str = "malformed", status: int = 400
    ) -> None:
        super().__init__(fact, remedy, at=at)
        self.reason = reason
        self.status = status


class StoreError(KanabError):
    """A collector's store that cannot be used, or that belongs to something else. Nothing acknowledged is lost."""


class StoreAwayError(StoreError):
    """A store that cannot be reached now, and may come back."""


class ReplacedError(StoreError):
    """A file of a store that was deleted, moved or replaced while it was in use."""


class MissingLogError(StoreError):
    """A log of a store that was deleted while it was in use."""


class DeliveryError(KanabError):
    """A message about results that was not handed over.

    ``of_message`` says that the receiver refused this one message, so that others may pass; ``wait`` is how many
    seconds it asked to be left alone.
    """

    def __init__(self, fact: str, remedy: str = "", *, of_message: bool = False, wait: float = 0.0) -> None:
        super().__init__(fact, remedy)
        self.of_message, self.wait = of_message, wait


class FormulaError(KanabError):
    """A formula that cannot be read."""


class DesignError(KanabError):
    """A model that these classes cannot identify."""


class AnalysisError(KanabError):
    """A question that this tally cannot answer."""


class ArgumentError(KanabError, TypeError):
    """A function called with a name that it does not have, or with the wrong kind of thing. Also a TypeError."""


def flag(name: str, value: str) -> str:
    """Write a flag as it is typed: what a shell would take apart stands in quotes."""
    return f"{name} {shlex.quote(value)}"


def listed(names: Iterable[object], *, most: int = 12) -> str:
    """List the available choices, and only so many of them."""
    texts = [str(name) for name in names]
    if len(texts) <= most:
        return ", ".join(texts)
    return ", ".join([*texts[:most], f"… ({len(texts)} in all)"])
