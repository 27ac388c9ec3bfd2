"""Sections on a terminal and as Markdown."""

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kanab.report.digits import bind_numbers
from kanab.report.document import Section, printed_sections, sentence_of
from kanab.tabular import Table

PROSE_WIDTH = 100
"""Sentences wrap here, unless a narrower width is asked for."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MARKUP = re.compile(r"[\\`*\[\]<>&~]|(?<![^\W_])_|_(?![^\W_])|^(?=[#+-])")


def sections_text(sentences: Iterable[str], sections: Iterable[Section], width: int | None) -> str:
    """Return sentences, then sections under their headings, for a terminal of so many columns."""
    prose = PROSE_WIDTH if width is None else max(20, min(width, PROSE_WIDTH))
    lines = [line for sentence in sentences for line in wrapped(sentence, prose)]
    for heading, parts in printed_sections(sections):
        lines += ["", f"── {heading} ".ljust(prose, "─")]
        for before, part in zip((None, *parts), parts, strict=False):
            if before is not None and (isinstance(part, Table) or isinstance(before, Table)):
                lines.append("")
            if isinstance(part, Table):
                lines += "\n\n".join(str(table) for table in folded(part, width)).splitlines()
            else:
                lines += wrapped(sentence_of(part), prose)
    return "\n".join(lines)


def wrapped(sentence: str, width: int) -> list[str]:
    """Return a sentence in lines; "p = 0.04" and "7.7 points" are not broken."""
    lines = textwrap.wrap(bind_numbers(sentence), width, subsequent_indent="  ", break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def sections_markdown(sections: Iterable[Section]) -> list[str]:
    """Return the lines of sections under their headings in Markdown."""
    lines = []
    for heading, parts in printed_sections(sections):
        lines += ["", f"## {heading}", ""]
        for before, part in zip((None, *parts), parts, strict=False):
            if isinstance(part, Table):
                lines += ["", part.to_markdown()] if before is not None else [part.to_markdown()]
            else:
                lines += [""] * isinstance(before, Table) + [f"- {sentence_of(part)}"]
    return lines


def unmarked(text: str) -> str:
    """Return the text as Markdown that shows it as it is."""
    return _MARKUP.sub(lambda match: f"\\{match.group()}", printable(text))


def printable(text: str) -> str:
    """Return the text with control characters as pictures of themselves: a name cannot move the cursor."""
    return _CONTROL.sub(lambda match: chr(0x2400 + ord(match.group())) if ord(match.group()) < 32 else "�", text)


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return the same plain data with every text changed, names of arms among them."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key): mapped(item, change) for key, item in value.items()}
    return [mapped(item, change) for item in value] if isinstance(value, list | tuple) else value


def folded(table: Table, width: int | None) -> list[Table]:
    """Return the table cut into several, each within the width and each starting with the first column."""
    sizes = [max(len(row[i]) for row in (table.header, *table.rows)) for i in range(len(table.header))]
    if width is None or sum(sizes) + 2 * (len(sizes) - 1) <= width:
        return [table]
    groups = _grouped(table.header, sizes, width)
    for narrower in range(width - 1, 0, -1):  # as even as possible: no table of one leftover column
        if len(tried := _grouped(table.header, sizes, narrower)) > len(groups):
            break
        groups = tried
    return [_columns(table, [0, *group]) for group in groups]


def _grouped(header: Sequence[str], sizes: Sequence[int], width: int) -> list[list[int]]:
    """Return the columns in groups that fit side by side."""
    groups: list[list[int]] = [[]]
    for columns in _inseparable(header):
        used = sizes[0] + sum(2 + sizes[i] for i in (*groups[-1], *columns))
        if groups[-1] and used > width:
            groups.append([])
        groups[-1] += columns
    return groups


def _inseparable(header: Sequence[str]) -> list[list[int]]:
    """Return the columns that must not be parted: a heading that occurs twice is only clear beside its neighbour."""
    groups: list[list[int]] = []
    for column in range(1, len(header)):
        if groups and header.count(header[column]) > 1:
            groups[-1].append(column)
        else:
            groups.append([column])
    return groups


def _columns(table: Table, chosen: Sequence[int]) -> Table:
    rows = tuple(tuple(row[i] for i in chosen) for row in table.rows)
    return Table(tuple(table.header[i] for i in chosen), rows, table.title)
