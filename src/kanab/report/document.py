"""A document as values: sections of sentences and tables, rendered by terminal, notebook and page."""

from __future__ import annotations

from dataclasses import dataclass

from kanab.tabular import Table


@dataclass(frozen=True)
class Fold:
    """Parts that a page shows on request; a terminal leaves them out."""

    summary: str
    parts: tuple[str | Table, ...]


Part = str | Table | Fold


@dataclass(frozen=True)
class Section:
    """A heading, and sentences and tables in reading order; ``name`` is its anchor where it becomes HTML."""

    heading: str
    parts: tuple[Part, ...]
    name: str = ""

    @property
    def printed(self) -> list[str | Table]:
        """The parts that are shown without being asked for."""
        return [part for part in self.parts if not isinstance(part, Fold)]
