"""A table of short texts, printed the same way in a terminal, in HTML and in Markdown."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_STYLE = (
    "border-collapse:collapse;font-variant-numeric:tabular-nums",
    "padding:2px 10px;border-bottom:1px solid currentColor",
    "padding:2px 10px",
)
_WHOLE = 40
"""Columns of texts up to so many letters are not broken into lines; JupyterLab breaks every cell that is not told."""


@dataclass(frozen=True)
class Table:
    """A header and rows of texts. Columns whose cells all read as numbers align right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""

    def right_aligned(self) -> list[bool]:
        """Return, for each column, whether it holds nothing but numbers."""
        return [all(_numeric(row[i]) for row in self.rows) for i in range(len(self.header))]

    def __str__(self) -> str:
        rows = (self.header, *self.rows)
        widths = [max(len(row[i]) for row in rows) for i in range(len(self.header))]
        right = self.right_aligned()

        def line(row: Sequence[str]) -> str:
            padded = (
                text.rjust(width) if is_right else text.ljust(width)
                for text, width, is_right in zip(row, widths, right, strict=True)
            )
            return "  ".join(padded).rstrip()

        ruler = "  ".join("─" * width for width in widths)
        body = [line(self.header), ruler, *(line(row) for row in self.rows)]
        return "\n".join([self.title, *body] if self.title else body)

    def to_html(self) -> str:
        """Return an HTML table, everything escaped."""
        table, head, cell = _STYLE
        columns = zip(self.header, *self.rows, strict=True)
        wraps = ["normal" if max(map(len, texts)) > _WHOLE else "nowrap" for texts in columns]
        aligns = ["right" if is_right else "left" for is_right in self.right_aligned()]

        def row(tag: str, style: str, texts: Sequence[str]) -> str:
            cells = (
                f'<{tag} style="{style};white-space:{wrap};text-align:{align}">{escape(text)}</{tag}>'
                for text, wrap, align in zip(texts, wraps, aligns, strict=True)
            )
            return f"<tr>{''.join(cells)}</tr>"

        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        rows = "".join(row("td", cell, texts) for texts in self.rows)
        header = row("th", head, self.header)
        return f'<table style="{table}">{caption}<thead>{header}</thead><tbody>{rows}</tbody></table>'

    def to_markdown(self) -> str:
        """Return a Markdown table."""

        def line(texts: Sequence[str]) -> str:
            return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"

        rulers = ["---:" if is_right else "---" for is_right in self.right_aligned()]
        return "\n".join([line(self.header), line(rulers), *(line(row) for row in self.rows)])


def _numeric(text: str) -> bool:
    if text in ("", "–"):
        return True
    bare = text.replace(",", "").replace("−", "-")
    try:
        for part in bare.split(" to "):
            float(part.strip("<>=≥≤% "))
    except ValueError:
        return False
    return True


def number(value: float | None, digits: int = 4) -> str:
    """Format a number to so many significant digits, without an exponent where it stays readable."""
    if value is None or math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude < 1e-4 or magnitude >= 1e15:
        return f"{value:.{digits - 1}e}"
    if magnitude >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    decimals = max(0, digits - 1 - _exponent(magnitude))
    return f"{value:.{decimals}f}"


def _exponent(magnitude: float) -> int:
    return int(f"{magnitude:e}".split("e")[1])


def p_value(p: float | None) -> str:
    """Format a p-value to three digits, never as a bare 0."""
    if p is None or math.isnan(p):
        return "–"
    if p < 1e-300:
        return "< 1e-300"
    return f"{p:.3f}" if p >= 0.1 else number(p, 3)
