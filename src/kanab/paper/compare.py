"""The paper's numbers side by side: as printed, from classes, from rows."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from kanab.paper.classes import from_classes
from kanab.paper.printed import WORDS, Printed, printed
from kanab.paper.rows import from_rows
from kanab.tabular import Table

TOLERANCE = 1e-12
"""Classes and rows may differ by this much, relatively, and no more."""

_TABLE_1_ROUNDING = 5e-9
"""Table 1 is printed to nine decimals; the paper computed with more."""


@dataclass(frozen=True)
class Line:
    """One number of the paper: printed, from classes, from rows."""

    printed: Printed
    classes: float
    rows: float

    @property
    def difference(self) -> float:
        """Classes against rows, relative; zero for two numbers that are both nothing."""
        size = max(abs(self.classes), abs(self.rows))
        return 0.0 if size < TOLERANCE else abs(self.classes - self.rows) / size

    @property
    def as_printed(self) -> bool:
        """Whether the computed number rounds to the printed one."""
        exponent = Decimal(self.printed.digits).as_tuple().exponent
        half = 0.5 * 10.0 ** (exponent if isinstance(exponent, int) else 0)
        return abs(self.classes - float(self.printed.digits)) <= half * (1 + 1e-9) + _TABLE_1_ROUNDING

    @property
    def holds(self) -> bool:
        """Whether classes and rows are equal, and the paper is either right or known to be wrong."""
        return self.difference <= TOLERANCE and self.as_printed != bool(self.printed.misprint)

    @property
    def verdict(self) -> str:
        """The line's last column."""
        if not self.holds:
            return "DIFFERS"
        return f"misprint: {self.printed.misprint}" if self.printed.misprint else "agrees"


def compare() -> tuple[Line, ...]:
    """Return every number of the paper, in its order.

    >>> all(line.holds for line in compare())
    True
    """
    classes, rows = from_classes(), from_rows()
    return tuple(Line(number, classes[number.key], rows[number.key]) for number in printed())


def to_text(lines: tuple[Line, ...]) -> str:
    """Return the comparison as tables, one per section, and a last line that sums it up."""
    parts = []
    for section in dict.fromkeys(line.printed.section for line in lines):
        rows = tuple(
            (line.printed.name, line.printed.digits, _short(line.classes), _short(line.rows), line.verdict)
            for line in lines
            if line.printed.section == section
        )
        parts.append(str(Table(("number", "paper", "classes", "rows", ""), rows, section)))
    misprints = sum(bool(line.printed.misprint) for line in lines)
    largest = max(line.difference for line in lines)
    parts.append("\n".join(["Slips in the paper's words:", *(f"- {words}" for words in WORDS)]))
    parts.append(
        f"{len(lines)} numbers: {len(lines) - misprints} as printed, {misprints} misprints of the paper.\n"
        f"Largest relative difference between six classes and eighteen rows: {largest:.1e}."
    )
    return "\n\n".join(parts)


def _short(value: float) -> str:
    return "0" if abs(value) < TOLERANCE else f"{value:.12g}"


def to_dict(lines: tuple[Line, ...]) -> dict[str, Any]:
    """Return the comparison as plain data, numbers in full precision."""
    return {
        "agree": all(line.holds for line in lines),
        "largest_difference": max(line.difference for line in lines),
        "lines": [
            {
                "section": line.printed.section,
                "name": line.printed.name,
                "printed": line.printed.digits,
                "classes": line.classes,
                "rows": line.rows,
                "difference": line.difference,
                "verdict": line.verdict,
            }
            for line in lines
        ],
    }
