"""Figures: forests of intervals, plots over two axes and heat maps, as values that draw themselves as SVG.

`Figure.to_html` is a piece of a page, whose style sheet turns its colours dark, `Figure.to_svg` a file on white.
"""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from kanab.atomicfile import write_whole
from kanab.errors import AnalysisError, meant
from kanab.report import drawing as svg
from kanab.report.colours import INK, LINE, MUTED, PAGE, TRACK
from kanab.report.digits import scaled
from kanab.report.drawing import LETTER, WIDTH, ChartAxis, Point, Shape

_ABOVE, _BELOW, _RIGHT, _EDGE = 30.0, 46.0, 7.0, 4.0
"""The room for the title above a plot, for numbers and title below it, at its right, and around one without either."""

_ROW, _TRACK = 50.0, 22.0
"""The height of a row of a forest, a line of text above its interval; and of the track of that interval."""

_MAP, _WIDEST, _NAME = 640.0, 40.0, 16
"""The side of a large heat map, the side of a square in a small one, the letters of a name that are shown."""

_AROUND, _BETWEEN, _LINE, _LETTERS = 12.0, 20.0, 20.0, 58
"""Of a figure on white: the margin, the room between pictures, the height of a line, and its letters."""


@dataclass(frozen=True)
class _Frame:
    x: ChartAxis
    y: ChartAxis
    left: float
    top: float
    wide: float
    high: float

    def at(self, point: Point) -> Point:
        return self.left + self.x.part(point[0]) * self.wide, self.top + (1 - self.y.part(point[1])) * self.high

    def path(self, points: Iterable[Point]) -> str:
        return "M" + "L".join(f"{x:g} {y:g}" for x, y in map(self.at, points))


@dataclass(frozen=True)
class Line:
    """A line through points."""

    points: Sequence[Point]
    colour: str
    wide: float = 3.0
    dashes: str = ""

    def _svg(self, frame: _Frame) -> str:
        ends = "" if self.dashes else "round"
        return svg.element(
            "path", d=frame.path(self.points), fill="none", stroke=self.colour, stroke_width=self.wide,
            stroke_dasharray=self.dashes, stroke_linejoin=ends, stroke_linecap=ends,
        )  # fmt: skip


@dataclass(frozen=True)
class Area:
    """What a line around points encloses: a band, a histogram."""

    points: Sequence[Point]
    colour: str
    opacity: float = 0.16

    def _svg(self, frame: _Frame) -> str:
        return svg.element("path", d=f"{frame.path(self.points)}z", fill=self.colour, fill_opacity=self.opacity)


@dataclass(frozen=True)
class Dots:
    """Marks of one kind at points."""

    points: Sequence[Point]
    colour: str
    size: float = 5.4
    shape: Shape = "dot"

    def _svg(self, frame: _Frame) -> str:
        places = [frame.at(point) for point in self.points]
        if self.shape != "dot":
            return "".join(svg.glyph(self.shape, x, y, self.size, self.colour) for x, y in places)
        drawn = "".join(f"M{x:g} {y:g}h0" for x, y in places)  # hundreds of dots are one path, of round ends
        return svg.element("path", d=drawn, stroke=self.colour, stroke_width=2 * self.size, stroke_linecap="round")


@dataclass(frozen=True)
class Label:
    """Lines of words to the right of a point, below or above it; where there is no room, on its other side."""

    at: Point
    lines: Sequence[str]
    below: bool = True
    colour: str = INK
    bold: bool = False

    def _svg(self, frame: _Frame) -> str:
        x, y = frame.at(self.at)
        fits = x + 10 + max(map(len, self.lines)) * LETTER * 1.05 <= WIDTH
        first = y + 18 if self.below == fits else y - 10 - 17 * (len(self.lines) - 1)
        at, anchor = (x + 10, "") if fits else (x - 10, "end")
        return "".join(
            svg.text(at, first + 17 * place, line, colour=self.colour, anchor=anchor, bold=self.bold)
            for place, line in enumerate(self.lines)
        )


Mark = Line | Area | Dots | Label


@dataclass(frozen=True)
class Plot:
    """Marks over two axes, with a text at the right above them; without any words a picture for a line of text."""

    x: ChartAxis
    y: ChartAxis
    marks: Sequence[Mark]
    high: float = 150.0
    wide: float = WIDTH
    text: str = ""

    @property
    def _bare(self) -> bool:
        return not (self.x.ticks or self.x.title or self.y.ticks or self.y.title or self.text)

    @property
    def _gutter(self) -> float:
        return _EDGE if self._bare else max((len(label) for _, label in self.y.ticks), default=0) * LETTER + 10

    def _svg(self, top: float, left: float) -> tuple[list[str], float]:
        above, right = (_EDGE, _EDGE) if self._bare else (_ABOVE, _RIGHT)
        frame = _Frame(self.x, self.y, left, top + above, self.wide - right - left, self.high)
        end, parts = frame.top + self.high, []
        if self.y.title:
            parts.append(svg.text(0, frame.top - 16, svg.cut(self.y.title, svg.letters_beside(self.text))))
        if self.text:
            parts.append(svg.text(self.wide, frame.top - 16, self.text, colour=INK, anchor="end"))
        for value, label in self.y.ticks:
            _, y = frame.at((self.x.least, value))
            parts.append(svg.element("path", d=f"M{left:g} {y:g}h{frame.wide:g}", stroke=TRACK))
            parts.append(svg.element("path", d=f"M{left - 4:g} {y:g}h4", stroke=MUTED))
            parts.append(svg.text(left - 8, y + 4.5, label, size=13, anchor="end"))
        parts += svg.level_axis(self.x, end, left, frame.wide)
        parts += [mark._svg(frame) for mark in self.marks]
        below = _EDGE if self._bare else _BELOW if self.x.title else _BELOW / 2
        return parts, end + below


@dataclass(frozen=True)
class Bar:
    """An interval and its estimate, so far ``down`` from the middle of its row; an end that is None is open."""

    low: float | None
    at: float | None
    high: float | None
    colour: str
    shape: Shape = "dot"
    size: float = 5.4
    wide: float = 3.0
    dashes: str = ""
    down: float = 0.0

    @property
    def ends(self) -> tuple[float | None, float | None, float | None]:
        """All values that are drawn."""
        return self.low, self.at, self.high

    def _svg(self, axis: ChartAxis, y: float) -> list[str]:
        low = 0.0 if self.low is None else axis.part(self.low) * WIDTH
        high = float(WIDTH) if self.high is None else axis.part(self.high) * WIDTH
        middle = 0.0 if self.at is None else axis.part(self.at) * WIDTH
        if self.shape == "diamond":  # from end to end
            drawn = f"M{low:g} {y:g}L{middle:g} {y - 8:g}L{high:g} {y:g}L{middle:g} {y + 8:g}z"
            return [svg.element("path", d=drawn, fill=self.colour)]
        look = {"stroke_dasharray": self.dashes, "stroke_linecap": "" if self.dashes else "round"}
        line = f"M{low:g} {y:g}H{high:g}"
        parts = [svg.element("path", d=line, stroke=self.colour, stroke_width=self.wide, **look)]
        arrows = ((self.low, f"M0 {y:g}l8 -5v10z"), (self.high, f"M{WIDTH} {y:g}l-8 -5v10z"))
        parts += [svg.element("path", d=arrow, fill=self.colour) for end, arrow in arrows if end is None]
        return parts if self.at is None else [*parts, svg.glyph(self.shape, middle, y, self.size, self.colour)]


def bar_of(
    estimate: float | None, interval: Sequence[float | None] | None, colour: str, *, share: bool = False, **look: Any
) -> Bar:
    """Return an interval, that of a share in percent; without one, the estimate alone."""
    low, high = interval or (estimate, estimate)
    return Bar(scaled(low, share), scaled(estimate, share), scaled(high, share), colour, **look)


@dataclass(frozen=True)
class ForestRow:
    """A row of a forest: its name, its numbers as text, and one interval or several."""

    label: str
    text: str
    bars: Sequence[Bar]
    bold: bool = False


@dataclass(frozen=True)
class Forest:
    """Rows over one axis; ``upright`` are values with a mark in every row: no difference, then broken ones."""

    rows: Sequence[ForestRow]
    axis: str
    upright: Sequence[float] = (0.0,)
    wide = WIDTH
    _gutter = 0.0

    def _svg(self, top: float, left: float) -> tuple[list[str], float]:
        ends = [end for row in self.rows for bar in row.bars for end in bar.ends]
        axis, parts, y = svg.axis_around([*self.upright, *ends], self.axis), [], top + 2
        for row in self.rows:
            parts.append(svg.element("rect", y=y + 24, width=WIDTH, height=_TRACK, rx=4, fill=TRACK))
            for place, value in enumerate(self.upright):
                mark = f"M{axis.part(value) * WIDTH:g} {y + 24:g}v{_TRACK:g}"
                dashes = "3 2" if place else ""
                parts.append(svg.element("path", d=mark, stroke=MUTED, stroke_width=1.5, stroke_dasharray=dashes))
            name = svg.cut(row.label, svg.letters_beside(row.text))
            parts.append(svg.text(0, y + 16, name, colour=INK, bold=row.bold))
            parts.append(svg.text(WIDTH, y + 16, row.text, colour=INK, anchor="end"))
            for bar in row.bars:
                parts += bar._svg(axis, y + 35 + bar.down)
            y += _ROW
        return [*parts, *svg.level_axis(axis, y, left, WIDTH)], y + _BELOW


@dataclass(frozen=True)
class Paint:
    """How something is marked, in a heat map and in a legend: a colour and a shape; a square fills its cell."""

    colour: str
    shape: Shape = "dot"
    opacity: float = 1.0


@dataclass(frozen=True)
class Cell:
    """A pair of names by their places: how it is marked, with words to hover, and the anchor that it leads to."""

    a: int
    b: int
    paint: Paint
    words: str = ""
    link: str = ""


@dataclass(frozen=True)
class HeatMap:
    """A square for every pair of names, on both sides of the diagonal, so that a row is all of one name."""

    names: Sequence[str]
    cells: Sequence[Cell]

    @property
    def _side(self) -> float:
        return min(_WIDEST, _MAP / len(self.names))

    @property
    def _gutter(self) -> float:
        return 12 + 8.5 * (max(len(_middle_cut(name)) for name in self.names) + 1 + len(str(len(self.names))))

    @property
    def wide(self) -> float:
        """The width of the picture."""
        return self._gutter + self._side * len(self.names) + 14

    def _svg(self, top: float, left: float) -> tuple[list[str], float]:
        count, squares = len(self.names), dict[Paint, list[tuple[int, int]]]()
        for cell in self.cells:
            if cell.paint.shape == "square":
                squares.setdefault(cell.paint, []).extend([(cell.a, cell.b), (cell.b, cell.a)])
        squares[Paint(LINE, "square")] = [(at, at) for at in range(count)]
        ground = [svg.element("rect", width=count, height=count, fill=TRACK)]
        for paint, places in squares.items():
            ground.append(svg.element("path", d=_squares(places), fill=paint.colour, fill_opacity=paint.opacity))
        lines = "".join(f"M0 {at}H{count}M{at} 0V{count}" for at in range(1, count) if self._fits(at, 12))
        ground.append(svg.element("path", d=lines, stroke=PAGE, stroke_width=f"{1 / self._side:g}"))
        above = [self._mark(cell) for cell in self.cells if cell.paint.shape != "square"] + self._labels()
        drawn = svg.element("g", "".join(ground), transform=f"scale({self._side:g})") + "".join(above)
        end = top + 24 + self._side * count
        return [svg.element("g", drawn, transform=f"translate({left:g} {top + 24:g})")], end + 4

    def _mark(self, cell: Cell) -> str:
        side, drawn = self._side, [svg.element("title", escape(cell.words))]
        edge = "" if cell.paint.shape == "cross" else PAGE
        for down, across in ((cell.a, cell.b), (cell.b, cell.a)):
            x, y, size = (across + 0.5) * side, (down + 0.5) * side, max(side * 0.24, 3.5)
            drawn.append(svg.glyph(cell.paint.shape, x, y, size, cell.paint.colour, edge=edge))
        group = svg.element("g", "".join(drawn))
        return svg.element("a", group, href=f"#{cell.link}") if cell.link else group

    def _labels(self) -> list[str]:
        labels = []
        for number, name in enumerate(self.names, 1):
            middle = (number - 0.5) * self._side
            if number == 1 or self._fits(number, 15):
                labels.append(svg.text(-8, middle + 4.5, f"{_middle_cut(name)} {number}", anchor="end"))
            if number == 1 or self._fits(number, 26):
                labels.append(svg.text(middle, -8, str(number), anchor="middle"))
        return labels

    def _fits(self, number: int, room: float) -> bool:
        """Return whether a number is one of those that have so much room each: all, every fifth, every tenth …"""
        return number % next((step for step in (1, 5, 10, 50, 100) if step * self._side >= room), 1000) == 0


def _squares(places: Iterable[tuple[int, int]]) -> str:
    """Return the path of squares of side 1; neighbours in a row become one piece."""
    runs: list[list[int]] = []
    for down, across in sorted(places):
        if runs and runs[-1][0] == down and runs[-1][1] + runs[-1][2] == across:
            runs[-1][2] += 1
        else:
            runs.append([down, across, 1])
    return "".join(f"M{across} {down}h{wide}v1H{across}z" for down, across, wide in runs)


def _middle_cut(name: str) -> str:
    """Cut the middle out of a long name: many names differ only at their end."""
    return name if len(name) <= _NAME else f"{name[: _NAME // 2]}…{name[1 - _NAME // 2 :]}"


@dataclass(frozen=True, repr=False)
class Figure:
    """Panels under each other, or several figures; a file of its own has the title above and the ``note`` below."""

    title: str
    description: str
    panels: Sequence[Forest | Plot | HeatMap] = ()
    legend: Mapping[str, Paint] = field(default_factory=dict)
    figures: Sequence[Figure] = ()
    note: str = ""

    def __repr__(self) -> str:
        return f"Figure({self.title})"

    @property
    def wide(self) -> float:
        """The width of the picture."""
        return max((panel.wide for panel in (*self.panels, *self.figures)), default=WIDTH)

    def to_html(self) -> str:
        """Return the figure as a piece of a page: SVG that the page's style sheet turns dark."""
        return "".join(figure._drawn()[0] for figure in self.figures or (self,))

    __html__ = to_html  # a template shows the figure without escaping it

    def to_svg(self) -> str:
        """Return the figure as a file, on white, so that its dark letters can be read in a dark notebook, too."""
        parts, y, wide = [], _AROUND, self.wide + 2 * _AROUND
        for figure in self.figures or (self,):
            for line in textwrap.wrap(figure.title.replace(" %", "\N{NO-BREAK SPACE}%"), _LETTERS):
                parts.append(svg.text(_AROUND, y + 14, line, colour=INK, bold=True))
                y += _LINE
            drawn, high = figure._drawn(x=_AROUND, y=y + 6)
            parts.append(drawn)
            y += 6 + high + _BETWEEN
        for line in textwrap.wrap(self.note, _LETTERS):
            parts.append(svg.text(_AROUND, y, line, size=12, colour=INK, bold=True))
            y += _LINE
        ground = svg.element("rect", width="100%", height="100%", fill=PAGE)
        return svg.document(wide, y, [ground, *parts])

    _repr_svg_ = to_svg

    def save(self, path: str | PathLike[str]) -> None:
        """Write the figure into an .svg file. Raises `AnalysisError` for any other kind of file."""
        if Path(path).suffix.lower() != ".svg":
            raise AnalysisError("a chart is saved as SVG", "Give the file a name that ends in .svg.")
        write_whole(path, self.to_svg())

    def _drawn(self, **place: float) -> tuple[str, float]:
        parts, top = self._legend()
        left = max((panel._gutter for panel in self.panels), default=0.0)
        for number, panel in enumerate(self.panels):
            drawn, top = panel._svg(top + (_BETWEEN if number else 0), left)
            parts += drawn
        name = f"chart-{hashlib.sha256(f'{self.title}{self.description}'.encode()).hexdigest()[:12]}"
        described = svg.element("desc", escape(self.description), id=name) if self.description else ""
        picture = svg.document(
            self.wide, top, [svg.element("title", escape(self.title)), described, *parts], role="img",
            aria_label=self.title, aria_describedby=name if described else "",
            class_="large" if self.wide > WIDTH else "", **place,
        )  # fmt: skip
        return picture, top

    def _legend(self) -> tuple[list[str], float]:
        """Draw names beside what they mean, in as many lines as they need; also return where these end."""
        parts, x, top = [], 0.0, 0.0
        for name, paint in self.legend.items():
            shown = svg.cut(name, int(WIDTH / LETTER) - 4)
            wide = 18 + len(shown) * LETTER + 14
            if x and x + wide > WIDTH + 14:
                x, top = 0.0, top + _LINE
            if paint.shape == "square":
                parts.append(svg.glyph("square", x + 6, top + 9, 6, TRACK))
            parts.append(svg.glyph(paint.shape, x + 6, top + 9, 6, paint.colour, opacity=paint.opacity))
            parts.append(svg.text(x + 18, top + 14, shown, colour=INK))
            x += wide
        return parts, top + _LINE if parts else 0.0


def forest_figure(title: str, panels: Sequence[Forest], before: str = "", after: str = "") -> Figure:
    """Return forests as a figure that says for screen readers what their rows say."""
    said = "; ".join(f"{row.label} {row.text}" for panel in panels for row in panel.rows)
    return Figure(title, f"{before}{said}{after}.", panels)


Drawn = Mapping[str, Sequence[Figure]]  # by the metric that they are about


def chosen_figure(
    kinds: Mapping[str, Callable[[], Drawn]], what: str, metric: str | None = None, *, note: str = ""
) -> Figure:
    """Return the figure of one kind: of one metric, or of all under each other."""
    if not isinstance(what, str) or what not in kinds:
        raise AnalysisError("there is no chart of that name", f"{meant(what, kinds)}Use one of: {', '.join(kinds)}.")
    drawn = {name: figures for name, figures in kinds[what]().items() if figures}
    if not drawn:
        others = [name for name in kinds if name != what and any(kinds[name]().values())]
        some = f"There is something to draw of: {', '.join(others)}."
        hint = some if others else "Nothing else can be drawn, either."
        raise AnalysisError(f"there is nothing to draw of {what}", hint)
    if metric is not None and metric not in drawn:
        hint = f"{meant(metric, drawn)}Name one of: {', '.join(drawn)}."
        raise AnalysisError(f"there is no chart of {what} for this metric", hint)
    chosen = drawn if metric is None else {metric: drawn[metric]}
    figures = [figure for of_metric in chosen.values() for figure in of_metric]
    if len(figures) == 1:
        return replace(figures[0], note=note)
    return Figure("; ".join(figure.title for figure in figures), "", figures=figures, note=note)
