"""A document as values: sections of sentences and tables, rendered by terminal, notebook and page."""

from __future__ import annotations

from dataclasses import dataclass

from kanab.tabular import Table

Part = str | Table


@dataclass(frozen=True)
class Section:
    """A heading, and sentences and tables in reading order; ``name`` is its anchor where it becomes HTML."""

    heading: str
    parts: tuple[Part, ...]
    name: str = ""
