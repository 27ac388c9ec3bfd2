"""Rows of plain data as CSV and as an Excel workbook; a text in them is never a formula."""

import csv
import io
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

Row = Mapping[str, Any]

_FORMULA = re.compile(r"(?!-\d+(\.\d+)?$)[=+@\t\r-]")
"""How a text begins that a spreadsheet would compute when it opens a CSV file."""

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SPREADSHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"


def csv_text(rows: Sequence[Row]) -> str:
    """Return rows that have the same columns as CSV; names come from data, and none may become a formula."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for line in _lines(rows):
        writer.writerow(f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell for cell in line)
    return written.getvalue()


def _lines(rows: Sequence[Row]) -> list[list[Any]]:
    """Return the names of columns, then the cells of each row."""
    return [[*rows[0]], *([*row.values()] for row in rows)] if rows else []


def workbook(tables: Mapping[str, Sequence[Row]]) -> bytes:
    """Return tables as an Excel workbook: numbers stay numbers."""
    files = {"_rels/.rels": _relations({"officeDocument": "xl/workbook.xml"})}
    sheets, targets, kinds = "", {}, f'<Override PartName="/xl/workbook.xml" ContentType="{_KIND}.sheet.main+xml"/>'
    for number, (name, rows) in enumerate(tables.items(), 1):
        part = f"worksheets/sheet{number}.xml"
        sheets += f'<sheet name="{escape(name[:31])}" sheetId="{number}" r:id="r{number}"/>'
        kinds += f'<Override PartName="/xl/{part}" ContentType="{_KIND}.worksheet+xml"/>'
        targets[f"worksheet{number}"] = part
        lines = "".join(f"<row>{''.join(map(_cell, line))}</row>" for line in _lines(rows))
        files[f"xl/{part}"] = f'<worksheet xmlns="{_SPREADSHEET}"><sheetData>{lines}</sheetData></worksheet>'
    files["xl/workbook.xml"] = (
        f'<workbook xmlns="{_SPREADSHEET}" xmlns:r="{_RELATIONS}"><sheets>{sheets}</sheets></workbook>'
    )
    files["xl/_rels/workbook.xml.rels"] = _relations(targets)
    files["[Content_Types].xml"] = (
        f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="xml" ContentType="application/xml"/>'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f"{kinds}</Types>"
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return packed.getvalue()


def _relations(targets: Mapping[str, str]) -> str:
    inner = "".join(
        f'<Relationship Id="r{number}" Type="{_RELATIONS}/{kind.rstrip("0123456789")}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets.items(), 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}/relationships">{inner}</Relationships>'


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "<c/>"
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float):
        return f"<c><v>{value!r}</v></c>"
    text = escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", str(value)))
    return f'<c t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
