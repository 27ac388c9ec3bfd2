"""A planned experiment as one page: the answer, two curves, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kanab.choices import INTERNAL
from kanab.planning.report.power_words import (
    answer,
    basis_sentences,
    chance,
    change,
    curve_table,
    how_tested,
    otherwise,
)
from kanab.report.digits import bind_numbers, percent
from kanab.report.figure import Figure
from kanab.report.html_page import Page, PageSection, card_table, filled, header_html
from kanab.report.words import is_internal

Data = Mapping[str, Any]

PLAN_STYLE = """
.pair>figure+figure{margin-top:0}
"""
"""What pages about plans add to the style sheet of all reports."""

_QUESTIONS = {"people": "How many people?", "effect": "How small an effect?", "power": "How sure?"}


def power_report(data: Data, *, figures: Sequence[Figure]) -> str:
    """Return the page in one file without script or outside request; ``figures`` are those of ``power_figures``."""
    question = _QUESTIONS[data["solved"]]
    said = " ".join([*otherwise(data), how_tested(data)])
    header = header_html("Plan of an experiment", question, _escaped(answer(data)), _escaped(said))
    sections = filled(
        PageSection("curve", "With fewer or more people", _curves(data, figures)),
        PageSection("arms", "People per arm", _arms(data)),
        PageSection("basis", "What this rests on", _listed(basis_sentences(data))),
    )
    internal = INTERNAL if is_internal(data) else ""
    made = "from counts and sums" if internal else "from numbers alone"
    return Page(f"{question} {answer(data)}", header, sections, made, PLAN_STYLE, internal=internal).to_html()


def _curves(data: Data, figures: Sequence[Figure]) -> str:
    """Return both pictures side by side, then a few of their points as a table."""
    level = chance(data["curve"][0]["at_power"])
    key = (
        f"What is found with power {level}, and how likely a change of {change(data)} is to be found. "
        "The axis of people is logarithmic: equal steps multiply their number."
    )
    drawn = "".join(f"<figure>{figure.to_html()}</figure>" for figure in figures)
    drawn = f'<div class="pair">{drawn}</div>' if len(figures) > 1 else drawn
    table = curve_table(data)
    rows = [[f"{row[0]} people", *(escape(cell.replace("> ", "≥ ")) for cell in row[1:])] for row in table.rows]
    numbers = card_table("The curves in numbers", ("", *table.header[1:]), rows, "cards wide")
    return f'<p class="key">{_escaped(key)}</p>{drawn}{numbers}'


def _arms(data: Data) -> str:
    if not data["arms"]:
        return ""
    whole = sum(data["arms"].values())
    rows = [
        [escape(f"{arm}, the control" if arm == data["control"] else arm), f"{n:,}", percent(n / whole, 1)]
        for arm, n in data["arms"].items()
    ]
    return card_table("People per arm", ("arm", "people", "share"), rows, "cards few")


def _listed(sentences: list[str]) -> str:
    return f'<ul class="said">{"".join(f"<li>{_escaped(sentence)}</li>" for sentence in sentences)}</ul>'


def _escaped(sentence: str) -> str:
    return escape(bind_numbers(sentence))
