"""Charts for notebooks: the pictures of a report as one SVG on white, each under its title."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import unescape
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from kanab.atomicfile import write_whole
from kanab.choices import INTERNAL
from kanab.errors import AnalysisError
from kanab.report.axes import text
from kanab.report.palette import INK
from kanab.report.pictures import report_pictures
from kanab.report.words import is_internal

Data = Mapping[str, Any]
Pictures = Mapping[str, Sequence[str]]
"""SVG pictures by the metric that they are about."""

ReadoutChart = Literal["effects", "segments", "received", "quantiles", "windows"]
"""What a readout can draw."""

_KINDS = ("effects", "segments", "received", "quantiles", "windows")

_AROUND, _BETWEEN, _LINE = 12.0, 24.0, 20.0
_LETTERS = 58
_NUMBERS = re.compile(r'width="([\d.]+)" height="([\d.]+)"')
_TITLE = re.compile(r'aria-label="([^"]*)"')


@dataclass(frozen=True, repr=False)
class Chart:
    """Pictures under each other, as one SVG: a notebook shows it, `save` writes it. ``style`` is what they need of CSS.

    It is white, so that its dark letters can be read in a dark notebook, too. What is ``internal`` says so below.
    """

    pictures: tuple[str, ...]
    style: str = ""
    internal: bool = False

    def __repr__(self) -> str:
        return f"Chart({'; '.join(_title(picture) for picture in self.pictures)})"

    def to_svg(self) -> str:
        """Return everything as one SVG, without script or outside request."""
        parts, y, wide = [], _AROUND, 0.0
        for picture in self.pictures:
            for line in textwrap.wrap(_title(picture), _LETTERS):
                parts.append(text(_AROUND, y + 14, line, size=14, colour=INK, bold=True))
                y += _LINE
            size = _NUMBERS.search(picture)
            assert size is not None
            parts.append(picture.replace("<svg ", f'<svg x="{_AROUND:g}" y="{y + 6:g}" ', 1))
            wide = max(wide, float(size[1]))
            y += 6 + float(size[2]) + _BETWEEN
        for line in textwrap.wrap(INTERNAL, _LETTERS) if self.internal else ():
            parts.append(text(_AROUND, y, line, size=12, colour=INK, bold=True))
            y += _LINE
        wide, high = wide + 2 * _AROUND, y - _BETWEEN + _AROUND
        size_of_all = f'width="{wide:g}" height="{high:g}" viewBox="0 0 {wide:g} {high:g}"'
        style = f"<style>{self.style}</style>" if self.style else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" {size_of_all}>{style}'
            f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>'
        )

    _repr_svg_ = to_svg

    def save(self, path: str | PathLike[str]) -> None:
        """Write the chart into an .svg file. Raises `AnalysisError` for any other kind of file."""
        if Path(path).suffix.lower() != ".svg":
            raise AnalysisError("a chart is saved as SVG", "Give the file a name that ends in .svg.")
        write_whole(path, self.to_svg())


def _title(picture: str) -> str:
    """Return a picture's title: the name that screen readers read."""
    named = _TITLE.search(picture)
    assert named is not None
    return unescape(named[1]).replace(" %", "\u00a0%")


def readout_chart(data: Data, what: str, metric: str | None) -> Chart:
    """Return a chart of a readout from its plain data; see `chosen_chart`."""
    kinds = {kind: partial(_of_kind, data, kind) for kind in _KINDS}
    return chosen_chart(kinds, what, metric, internal=is_internal(data))


def _of_kind(data: Data, kind: str) -> Pictures:
    of_kind = f"{'forest' if kind == 'effects' else kind}: "  # as report_pictures calls them
    pictures = report_pictures(data).items()
    return {name.removeprefix(of_kind): [picture] for name, picture in pictures if name.startswith(of_kind)}


def chosen_chart(
    kinds: Mapping[str, Callable[[], Pictures]],
    what: str,
    metric: str | None = None,
    *,
    style: str = "",
    internal: bool = False,
) -> Chart:
    """Return the chart of one kind: of one metric, or of all under each other.

    Raises `AnalysisError` for a kind that there is not, and where there is nothing of it to draw, with what there is.
    """
    if not isinstance(what, str) or what not in kinds:
        raise AnalysisError("there is no chart of that name", f"Use one of: {', '.join(kinds)}.")
    drawn = {name: pictures for name, pictures in kinds[what]().items() if pictures}
    if not drawn:
        others = [name for name in kinds if name != what and any(kinds[name]().values())]
        hint = (
            f"There is something to draw of: {', '.join(others)}." if others else "Nothing else can be drawn, either."
        )
        raise AnalysisError(f"there is nothing to draw of {what}", hint)
    if metric is not None and metric not in drawn:
        raise AnalysisError(f"there is no chart of {what} for this metric", f"Name one of: {', '.join(drawn)}.")
    chosen = drawn if metric is None else {metric: drawn[metric]}
    return Chart(tuple(picture for pictures in chosen.values() for picture in pictures), style, internal)
