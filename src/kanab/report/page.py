"""One self-contained page: its head and policy, its sections, and tables that become cards on a phone."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from kanab.tabular import Table


def whole_page(title: str, parts: Sequence[str], style: str) -> str:
    """A whole document without script; its policy allows this style sheet and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<main>\n{''.join(part for part in parts if part)}\n</main>\n</body>\n</html>\n"
    )


def section(name: str, heading: str, body: str) -> str:
    """A part of the page under its heading; nothing where there is nothing to say.

    >>> section("notes", "Notes", "")
    ''
    """
    if not body:
        return ""
    return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{escape(heading)}</h2>\n{body}\n</section>\n'


def card_table(name: str, header: Sequence[str], rows: Sequence[Sequence[str]], kind: str) -> str:
    """A table whose rows become cards on a narrow screen; the first column names the row.

    ``header`` and ``name`` are texts, the cells are HTML. Numbers align right, words left.
    """
    right = Table(tuple(header), tuple(tuple(row) for row in rows)).right_aligned()
    classes = [' class="n"' if is_right else "" for is_right in (False, *right[1:])]
    head = "".join(
        f'<th scope="col" role="columnheader"{side}>{escape(text)}</th>'
        for text, side in zip(header, classes, strict=True)
    )
    body = "".join(_row(header, classes, row) for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">'
        f'<table role="table" class="{kind}" aria-label="{escape(name)}">'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table></div>'
    )


def _row(header: Sequence[str], classes: Sequence[str], row: Sequence[str]) -> str:
    first, *rest = zip(header, classes, row, strict=True)
    cells = "".join(f'<td role="cell" data-label="{escape(label)}"{side}>{cell}</td>' for label, side, cell in rest)
    return f'<tr role="row"><th scope="row" role="rowheader">{first[2]}</th>{cells}</tr>'
