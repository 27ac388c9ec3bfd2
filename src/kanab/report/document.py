"""A document as values: sections of sentences, alerts, verdicts, tables, figures and folds, for every surface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from kanab.report.figure import Figure
from kanab.report.words import Verdict
from kanab.tabular import Table


@dataclass(frozen=True)
class Alert:
    """A sentence in a box of its own, so that nobody overlooks it: a check that is fine or not, a caution."""

    sentence: str
    kind: Literal["fine", "caution", "alarm"]


@dataclass(frozen=True)
class Fold:
    """Parts that a page shows on request; a terminal leaves them out."""

    summary: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Section:
    """A heading, and its parts in reading order; figures are for pages alone.

    ``name`` is its anchor where it becomes HTML, ``note`` what stands beside the heading, ``key`` how figures are read.
    """

    heading: str
    parts: tuple[Part, ...]
    name: str = ""
    note: str = ""
    key: str = ""


Printed = str | Table | Alert | Verdict
Part = Printed | Fold | Figure | Section


def printed_sections(sections: Iterable[Section]) -> Iterator[tuple[str, list[Printed]]]:
    """Yield headings with the parts that are shown without being asked for; inner sections come by themselves."""
    for section in sections:
        parts = [part for part in section.parts if isinstance(part, Printed)]
        if parts:
            yield f"{section.heading} ({section.note})" if section.note else section.heading, parts
        yield from printed_sections(part for part in section.parts if isinstance(part, Section))


def sentence_of(part: str | Alert | Verdict) -> str:
    """Return a part that is no table as a sentence."""
    return part if isinstance(part, str) else part.sentence
