"""The parts of a report, taken out of its page, so that a dashboard shows the same words, tables and pictures."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from kanab.inspection.officer.page import SHEET as OFFICER
from kanab.planning.report.power_html import SHEET as POWER
from kanab.report.style import STYLE
from kanab.scan.report.html import SHEET as SCAN

SHEETS = {
    "report.css": STYLE,
    "scan.css": SCAN.removeprefix(STYLE),
    "officer.css": OFFICER.removeprefix(STYLE),
    "plan.css": POWER.removeprefix(STYLE),
}
"""The reports' own style sheets: each page takes the one that its parts were written for."""

MOST_ROWS = 100
"""So many tests of segments, and so many levels of them, are on a page; the plain data hold all."""

_SECTION = re.compile(r'<section aria-labelledby="([\w-]+)">\n<h2 id="[\w-]+">(.*?)</h2>\n(.*?)\n</section>', re.DOTALL)
_POLICY = re.compile(r"<style>(.*?)</style>", re.DOTALL)

Sections = dict[str, tuple[str, str]]


def sections_of(page: str) -> Sections:
    """The sections of a report by name: heading and body, both as HTML.

    >>> sections_of('<section aria-labelledby="notes">\\n<h2 id="notes">Notes</h2>\\n<p>One.</p>\\n</section>')
    {'notes': ('Notes', '<p>One.</p>')}
    """
    return {name: (heading, body) for name, heading, body in _SECTION.findall(page)}


def style_hash(page: str) -> str:
    """What a policy calls the one style sheet inside a report."""
    found = _POLICY.search(page)
    digest = hashlib.sha256((found.group(1) if found else "").encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def shortened(data: Mapping[str, Any]) -> dict[str, Any]:
    """A readout with no more tests of segments than a page can hold, the clearest ones first, and a note."""
    found = dict(data)
    tests = sorted(
        (row for row in data["segments"] if row["decides"]),
        key=lambda row: 2.0 if row["p_adjusted"] is None else row["p_adjusted"],
    )
    levels = sorted(data["follow_ups"], key=lambda row: 2.0 if row["p_adjusted"] is None else row["p_adjusted"])
    if len(tests) > MOST_ROWS:
        kept = {(row["metric"], row["covariate"]) for row in tests[:MOST_ROWS]}
        found["segments"] = [row for row in data["segments"] if (row["metric"], row["covariate"]) in kept]
    if len(levels) > MOST_ROWS:
        found["follow_ups"] = levels[:MOST_ROWS]
    if len(tests) > MOST_ROWS or len(levels) > MOST_ROWS:
        said = f"Only the {MOST_ROWS} clearest of many segments are shown; the plain data (/v1) hold all."
        found["notes"] = [*data["notes"], said]
    return found
