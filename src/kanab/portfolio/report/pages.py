"""Combined effects and portfolios as reports in one file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from kanab.portfolio.report.portfolio_pictures import combined_figure, shrinkage_figure
from kanab.portfolio.report.words import (
    combined_heading,
    combined_sections,
    combined_title,
    portfolio_sections,
    portfolio_title,
)
from kanab.report.document import Section
from kanab.report.figure import Figure
from kanab.report.page import Page, PageSection, bullets, header_html, marked, table_html
from kanab.report.text import mapped, printable
from kanab.tabular import Table

Data = Mapping[str, Any]

_FOREST_KEY = (
    "Squares, the effect in each release, larger with more weight; lines, intervals. The diamond is all of them "
    "together; a broken line is where the effect of one more release would lie."
)
_SHRINKAGE_KEY = (
    "Grey ring, the effect as it was seen; dot below it, after shrinkage, blue where it is clearly better and orange "
    "where clearly worse; lines, intervals. The broken mark is the mean that all are drawn to."
)
_STYLE = "\n.said+.key{margin-top:1rem}\n"


def combined_report(data: Data) -> str:
    """Return combined effects as one HTML file, without script or outside request."""
    clean = mapped(data, printable)
    pictures = {
        f"effect-{place}": _picture(_FOREST_KEY, combined_figure(clean, effect))
        for place, effect in enumerate(clean["effects"])
    }
    heading = ", ".join(dict.fromkeys(combined_heading(effect) for effect in clean["effects"]))
    header = header_html("Several releases", heading, marked(combined_title(clean)))
    return Page(
        heading, header, _sections(combined_sections(clean), pictures), "from counts and sums", _STYLE
    ).to_html()


def portfolio_report(data: Data) -> str:
    """Return a portfolio as one HTML file, without script or outside request."""
    clean = mapped(data, printable)
    pictures = {"effects": _picture(_SHRINKAGE_KEY, shrinkage_figure(clean))}
    heading = f"All experiments on {clean['metric']}"
    header = header_html("Portfolio", heading, marked(portfolio_title(clean)))
    return Page(
        heading, header, _sections(portfolio_sections(clean), pictures), "from counts and sums", _STYLE
    ).to_html()


def _picture(key: str, figure: Figure) -> str:
    return f'<p class="key">{escape(key)}</p><figure>{figure.to_html()}</figure>'


def _sections(sections: Iterable[Section], pictures: Mapping[str, str]) -> tuple[PageSection, ...]:
    pages = []
    for section in sections:
        sentences = [part for part in section.parts if isinstance(part, str)]
        tables = [part for part in section.parts if isinstance(part, Table)]
        shown = "".join(table_html(table, section.heading, kind="cards wide") for table in tables)
        body = bullets(sentences) + pictures.get(section.name, "") + shown
        pages.append(PageSection(section.name, section.heading, body))
    return tuple(pages)
