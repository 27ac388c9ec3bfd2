"""The way of the data as a picture: one box per step, those of the curator on one side of the gate."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any

from kanab.report.palette import DOWN, INK, MUTED, QUIET, TRACK, UP

Step = Mapping[str, Any]

SIDES = {"visitor": "with the visitor", "curator": "stays with the curator", "outside": "leaves"}
TITLE = "The way of the data"
_LINE = 18
"""The height of a line of words."""


@dataclass(frozen=True)
class _StepBox:
    """One step at its place, with its words broken into lines."""

    step: Step
    x: float
    y: float
    width: float
    height: float
    says: tuple[str, ...]

    @property
    def colour(self) -> str:
        """Personal data are orange, what leaves is blue, the gate between them is grey."""
        return {"personal data": DOWN, "released": UP}.get(self.step["kind"], QUIET)

    def svg(self) -> str:
        """Return the box, a bar in its colour, and its words."""
        shape = f'<rect x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" height="{self.height:g}"'
        bar = f'<rect x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" height="4" fill="{self.colour}"/>'
        words = [_text(self.x + 10, self.y + 27, self.step["step"], INK, ' font-weight="600"')]
        words += [
            _text(self.x + 10, self.y + 27 + _LINE * place, line, MUTED)
            for place, line in enumerate(self.says, start=1)
        ]
        return f'{shape} rx="3" fill="{TRACK}"/>{bar}{"".join(words)}'


def flow_svg(steps: Sequence[Step]) -> str:
    """Return two drawings of the same steps, across and down the page; the style sheet shows the one that fits."""
    return _across(steps) + _down(steps)


def flow_words(steps: Sequence[Step]) -> str:
    """Return the same in sentences, for screen readers.

    >>> flow_words([{"step": "Rows", "says": "personal data", "side": "curator", "kind": "personal data"}])
    'Stays with the curator: Rows (personal data).'
    """
    sentences = []
    for side, group in groupby(steps, key=lambda step: step["side"]):
        words = ", then ".join(f"{step['step']} ({step['says']})" for step in group)
        sentences.append(f"{SIDES[side].capitalize()}: {words}.")
    return " ".join(sentences)


def _across(steps: Sequence[Step]) -> str:
    """Draw the steps for a screen or a sheet of paper: 920 wide, arrows from left to right."""
    gap, wide = 24.0, 920.0
    width = (wide - gap * (len(steps) - 1)) / len(steps)
    wrapped = [tuple(textwrap.wrap(step["says"], 17)) for step in steps]
    height = 42.0 + _LINE * max(map(len, wrapped))
    boxes = [
        _StepBox(step, place * (width + gap), 34, width, height, lines)
        for place, (step, lines) in enumerate(zip(steps, wrapped, strict=True))
    ]
    middle = 34 + height / 2
    arrows = [_arrow(box.x + width + 4, middle, box.x + width + gap - 4, middle) for box in boxes[:-1]]
    sides = [
        _text(group[0].x, 14, SIDES[side], INK)
        + f'<rect x="{group[0].x:g}" y="22" width="{group[-1].x + width - group[0].x:g}" height="2" '
        f'fill="{group[0].colour}"/>'
        for side, group in _by_side(boxes)
    ]
    return _drawing("across", (wide, 34 + height + 2), [*sides, *arrows, *(box.svg() for box in boxes)], steps)


def _down(steps: Sequence[Step]) -> str:
    """Draw the steps for a phone: 340 wide, arrows downwards."""
    gap, top, width = 26.0, 0.0, 340.0
    parts, boxes = [], []
    for side, group in groupby(steps, key=lambda step: str(step["side"])):
        parts.append(_text(0, top + 14, SIDES[side], INK))
        top += 24
        for step in group:
            lines = tuple(textwrap.wrap(step["says"], 46))
            boxes.append(_StepBox(step, 0, top, width, 42.0 + _LINE * len(lines), lines))
            top += boxes[-1].height + gap
    for box in boxes[:-1]:
        below = box.y + box.height
        parts.append(_arrow(width / 2, below + 4, width / 2, below + gap - 4))
    return _drawing("down", (width, top - gap + 2), [*parts, *(box.svg() for box in boxes)], steps)


def _by_side(boxes: Sequence[_StepBox]) -> list[tuple[str, list[_StepBox]]]:
    return [(side, list(group)) for side, group in groupby(boxes, key=lambda box: str(box.step["side"]))]


def _drawing(kind: str, size: tuple[float, float], parts: Sequence[str], steps: Sequence[Step]) -> str:
    width, height = size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" role="img" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-size="13" aria-labelledby="flow-{kind} flow-{kind}-words">'
        f'<title id="flow-{kind}">{TITLE}</title><desc id="flow-{kind}-words">{escape(flow_words(steps))}</desc>'
        f"{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, words: str, colour: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}"{more}>{escape(words)}</text>'


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """Draw a line with a head, to the right or downwards."""
    across = to_y == y
    head = ((-6, -4), (-6, 4)) if across else ((-4, -6), (4, -6))
    corners = " ".join(f"{to_x + dx:g},{to_y + dy:g}" for dx, dy in ((0, 0), *head))
    line = f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{MUTED}" stroke-width="1.5"/>'
    return f'{line}<polygon points="{corners}" fill="{MUTED}"/>'
