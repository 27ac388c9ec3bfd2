"""Scans on a terminal: of pairs of experiments, and of effects by segment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanab.report.text import PROSE_WIDTH, folded, printable, ruled, wrapped
from kanab.scan.report.tables import sections
from kanab.scan.report.words import expectation, outcome, scanned
from kanab.tabular import Table

Data = Mapping[str, Any]


def pairs_text(data: Data, *, width: int | None = None) -> str:
    """The scan of all pairs: what was scanned, what rings, what was missed, what may be published.

    At most ``width`` columns wide where names allow it; without a width tables are as wide as they need.
    """
    return _text(data, width)


def segments_text(data: Data, *, width: int | None = None) -> str:
    """The scan of effects by segment, in the same order as ``pairs_text``."""
    return _text(data, width)


def _text(data: Data, width: int | None) -> str:
    prose = PROSE_WIDTH if width is None else max(20, min(width, PROSE_WIDTH))
    lines = []
    for sentence in (f"{scanned(data)}.", expectation(data), outcome(data)):
        lines += wrapped(printable(sentence), prose)
    for section in sections(data):
        lines += ["", ruled(printable(section.heading), prose)]
        for before, part in zip((None, *section.parts), section.parts, strict=False):
            if isinstance(part, Table):
                shown = "\n\n".join(str(table) for table in folded(_clean(part), width)).splitlines()
                lines += shown if before is None else ["", *shown]
            else:
                lines += [""] if isinstance(before, Table) else []
                lines += wrapped(printable(part), prose)
    return "\n".join(lines)


def _clean(table: Table) -> Table:
    """The same table without control characters: a name cannot move the cursor."""
    rows = tuple(tuple(printable(cell) for cell in row) for row in table.rows)
    return Table(tuple(printable(cell) for cell in table.header), rows, table.title)
