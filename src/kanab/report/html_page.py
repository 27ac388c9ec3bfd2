"""One self-contained page: its head and policy, its sections, and tables that become cards on a phone."""

import base64
import hashlib
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from os import PathLike

from kanab.arguments import check_arguments
from kanab.atomicfile import write_whole
from kanab.dataframes import Frames, Name
from kanab.report.colours import NOTEBOOK_ALARM
from kanab.report.digits import bind_numbers
from kanab.report.document import Alert, Fold, Part, Section, printed_sections, sentence_of
from kanab.report.figure import Figure
from kanab.report.style import STYLE
from kanab.report.text import sections_text
from kanab.report.words import MARKS, Verdict, tone
from kanab.tabular import Table

_FEW_COLUMNS = 6
"""So many columns fit into a card of a phone side by side."""

_HEADING = "font-weight:600;margin:1em 0 .3em"
_ALARM = f"border-left:6px solid {NOTEBOOK_ALARM};padding-left:.7em"
_INTERNAL_STYLE = ".internal{border:2px solid var(--alarm);padding:.5rem .9rem;font-weight:600}"
_EXPONENT = re.compile(r"[\d.]+e-\d+")
_MARK = (
    '<text x="50%" y="50%" text-anchor="middle" dominant-baseline="middle" font-size="40" fill="#888" '
    'fill-opacity="0.2" aria-hidden="true">INTERNAL</text>'
)
"""What stands across a picture that is cut out of such a page."""


@dataclass(frozen=True)
class PageSection:
    """One section of a page: its anchor, its heading as text, and its body as HTML."""

    name: str
    heading: str
    body: str

    def to_html(self) -> str:
        """Return the section as HTML."""
        return (
            f'<section aria-labelledby="{self.name}">\n<h2 id="{self.name}">{escape(self.heading)}</h2>\n'
            f"{self.body}\n</section>\n"
        )

    __html__ = to_html  # a template shows the section without escaping it again


@dataclass(frozen=True)
class Page:
    """A report in one file, without script or outside request.

    ``header`` is HTML; ``made`` says from what, in the footer; ``style`` is what the page adds to the style sheet of
    all reports. What is ``internal`` says why at its top, and that it is in every picture.
    """

    title: str
    header: str
    sections: tuple[PageSection, ...]
    made: str
    style: str = ""
    internal: str = ""

    @property
    def sheet(self) -> str:
        """The whole style sheet."""
        return STYLE + self.style + (_INTERNAL_STYLE if self.internal else "")

    @property
    def style_source(self) -> str:
        """The style sheet as a content security policy names it: by its hash."""
        return f"'sha256-{base64.b64encode(hashlib.sha256(self.sheet.encode()).digest()).decode()}'"

    def to_html(self) -> str:
        """Return the document; its policy allows its style sheet and nothing else."""
        policy = f"default-src 'none'; style-src {self.style_source}; base-uri 'none'; form-action 'none'"
        body = self.header + "".join(section.to_html() for section in self.sections)
        if self.internal:
            body = f'<p class="internal" role="note">{escape(self.internal)}</p>\n' + body.replace(
                "</svg>", f"{_MARK}</svg>"
            )
        title = f"Internal: {self.title}" if self.internal else self.title
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            '<meta name="generator" content="Kanab">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
            f"<title>{escape(title)}</title>\n<style>{self.sheet}</style>\n</head>\n"
            f"<body>\n<main>\n{body}<footer>Made with Kanab {self.made}. This file loads nothing from "
            "elsewhere.</footer>\n</main>\n</body>\n</html>\n"
        )


# ── documents ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Report:
    """A whole output: texts above and as its heading, what leads into it, and its sections."""

    kicker: str
    heading: str
    lead: Sequence[str | Alert]
    sections: Sequence[Section]
    style: str = ""
    internal: str = ""

    def to_text(self) -> str:
        """Return the document for a terminal."""
        return sections_text(map(sentence_of, self.lead), self.sections, None)

    def to_html(self) -> str:
        """Return the document as one page."""
        header = header_html(self.kicker, self.heading, *(marked(part) for part in self.lead if isinstance(part, str)))
        header += "".join(_alert(part) for part in self.lead if isinstance(part, Alert))
        sections = page_sections(self.sections)
        return Page(self.heading, header, sections, "from counts and sums", self.style, self.internal).to_html()


class Printed(Frames[Name]):
    """A value that prints itself: on a terminal, and as a page."""

    @abstractmethod
    def _report(self) -> Report:
        """Return the whole output."""

    def __str__(self) -> str:
        return self._report().to_text()

    __repr__ = __str__

    @check_arguments()
    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """Return one self-contained HTML page with pictures; with a path, also write it there."""
        page = self._report().to_html()
        if path is not None:
            write_whole(path, page)
        return page


def page_sections(sections: Iterable[Section]) -> tuple[PageSection, ...]:
    """Return the sections of a document as those of a page."""
    return tuple(PageSection(section.name, section.heading, section_html(section)) for section in sections)


def section_html(section: Section) -> str:
    """Return the body of a section: its figures beside its first sentences, then the other parts in their order."""
    drawn = "".join(f"<figure>{part.to_html()}</figure>" for part in section.parts if isinstance(part, Figure))
    parts = [part for part in section.parts if not isinstance(part, Figure)]
    said = list(takewhile(lambda part: isinstance(part, str | Verdict), parts))
    pieces = [f'<p class="key">{escape(section.key)}</p>'] if section.key else []
    if drawn and not said:
        pieces.append(drawn)
    elif drawn or any(isinstance(part, Verdict) for part in said):
        beside = f"<div>{drawn}</div>" if drawn else ""
        pieces.append(f'<div class="pair{"" if drawn else " words"}">{_said(said)}{beside}</div>')
        parts = parts[len(said) :]
    return "\n".join([*pieces, *_pieces(parts, section.heading)])


def _pieces(parts: Iterable[Part | None], name: str) -> Iterator[str]:
    """Yield parts as HTML; several sentences in a row are a list."""
    sentences: list[str] = []
    for part in (*parts, None):
        if isinstance(part, str):
            sentences.append(part)
            continue
        yield from [bullets(sentences)] if len(sentences) > 1 else [f"<p>{marked(each)}</p>" for each in sentences]
        sentences = []
        if isinstance(part, Table):
            few = len(part.header) <= _FEW_COLUMNS
            yield table_html(part, f"{name} {part.header[0]}", kind="cards few" if few else "cards wide")
        elif isinstance(part, Fold):
            inner = "\n".join(_pieces(part.parts, part.summary))
            yield f"<details><summary>{escape(part.summary)}</summary>\n{inner}</details>"
        elif isinstance(part, Alert):
            yield _alert(part)
        elif isinstance(part, Figure):
            yield f"<figure>{part.to_html()}</figure>"
        elif isinstance(part, Section):
            note = f'<p class="unit">{escape(part.note)}</p>' if part.note else ""
            name = f' id="{part.name}"' if part.name else ""
            yield f"<article{name}>\n<h3>{escape(part.heading)}</h3>{note}\n{section_html(part)}\n</article>"


def _said(parts: Sequence[Part]) -> str:
    """Return verdicts, each with its mark and its evidence on a line of its own, and sentences among them."""
    verdicts = [part for part in parts if isinstance(part, Verdict)]
    if not verdicts:
        return bullets(str(part) for part in parts)
    items = []
    for part in parts:
        if isinstance(part, Verdict):
            evidence = part.evidence.lstrip(",;: ")
            items.append(
                f'<li class="{tone(part.row)}"><span class="mark" aria-hidden="true">{MARKS[part.kind]}</span>'
                f'<span class="claim">{marked(part.claim)}</span> '
                f'<span class="evidence">{marked(evidence[:1].upper() + evidence[1:])}</span></li>'
            )
        else:
            items.append(f'<li class="unclear"><span class="evidence">{marked(str(part))}</span></li>')
    return f'<ul class="verdicts">{"".join(items)}</ul>'


def _alert(alert: Alert) -> str:
    if alert.kind == "caution":
        return f'<p class="call caution" role="note">{marked(alert.sentence)}</p>'
    verdict, _, rest = alert.sentence.removesuffix(".").partition(". ")
    alarm = ' alarm" role="alert' if alert.kind == "alarm" else ""
    return f'<p class="call{alarm}"><strong>{escape(verdict)}.</strong>{f" {marked(rest)}." if rest else ""}</p>'


def fragment_html(sections: Iterable[Section]) -> str:
    """Return sections for a notebook: no style sheet and no colours of their own, so they fit light and dark."""
    pieces = []
    for heading, parts in printed_sections(sections):
        pieces.append(f'<p role="heading" aria-level="4" style="{_HEADING}">{escape(heading)}</p>')
        for part in parts:
            if isinstance(part, Table):
                pieces.append(f'<div style="overflow-x:auto">{part.to_html()}</div>')
            else:
                style = _ALARM if isinstance(part, Alert) and part.kind == "alarm" else "margin:.2em 0"
                pieces.append(f'<p style="{style}">{escape(bind_numbers(sentence_of(part)))}</p>')
    return "".join(pieces)


# ── pieces of pages ────────────────────────────────────────────────────────────────────────────


def header_html(kicker: str, heading: str, *ledes: str) -> str:
    """Return the header of a page: texts above and as its heading, and HTML that leads into it."""
    paragraphs = "".join(f'<p class="lede">{lede}</p>\n' for lede in ledes)
    return f'<header>\n<p class="kicker">{kicker}</p>\n<h1>{escape(heading)}</h1>\n{paragraphs}</header>\n'


def table_html(table: Table, name: str, *, kind: str) -> str:
    """Return a table of texts whose rows become cards on a narrow screen; the first column names the row."""
    header = table.header
    classes = [' class="n"' if is_right else "" for is_right in table.right_aligned()]
    head = "".join(
        f'<th scope="col" role="columnheader"{side}>{escape(text)}</th>'
        for text, side in zip(header, classes, strict=True)
    )
    body = "".join(_row(header, classes, [_cell(text) for text in row]) for row in table.rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
        f'<table role="table" class="{kind}" aria-label="{escape(name)}">'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table></div>'
    )


def _cell(text: str) -> str:
    """Return a text of a table; what is broken (✕) stands out."""
    return f'<strong class="bad">{escape(text)}</strong>' if text.startswith("✕ ") else escape(text)


def _row(header: Sequence[str], classes: Sequence[str], row: Sequence[str]) -> str:
    (_, _, first), *rest = zip(header, classes, row, strict=True)
    sub = ' class="sub"' if first.startswith("↳") else ""
    cells = "".join(f'<td role="cell" data-label="{escape(label)}"{side}>{cell}</td>' for label, side, cell in rest)
    return f'<tr role="row"{sub}><th scope="row" role="rowheader">{first}</th>{cells}</tr>'


def bullets(sentences: Iterable[str]) -> str:
    """Return sentences as a list; nothing where there are none."""
    items = "".join(f"<li>{marked(sentence)}</li>" for sentence in sentences)
    return f'<ul class="said">{items}</ul>' if items else ""


def marked(sentence: str) -> str:
    """Return a sentence, escaped, whose numbers do not break at the end of a line."""
    return _EXPONENT.sub(r'<span class="whole">\g<0></span>', escape(bind_numbers(sentence)))
