"""The effect by time since the first exposure, where a metric has several windows: does it fade, or grow?"""

from collections.abc import Mapping, Sequence

from kanab.analysis.methods.base import Data, Method
from kanab.plan.metric_windows import metric_window, windows_by_column
from kanab.report.colours import MUTED
from kanab.report.digits import Digits, Row, figures_of, is_share, percent
from kanab.report.document import Part
from kanab.report.drawing import axis_around, numbered_axis
from kanab.report.figure import Area, Figure, Line, Mark, Plot
from kanab.report.pictures import bar_of_row, level_words
from kanab.report.words import headlines, metrics_of
from kanab.tabular import Table, p_value


class Windows(Method):
    """Show the effects that carry verdicts in the order of time; it computes nothing of its own."""

    name = "windows"
    heading = "How does the effect change with time?"
    draws = True

    def parts(self, data: Data) -> Sequence[Part]:
        """Return a table of effects in the order of time for every column that has several windows."""
        parts: list[Part] = []
        for column, rows in window_rows(data).items():
            parts += [
                f"{column} by days since the first exposure: an effect that fades may be novelty, one that grows "
                "learning. Each window is compared by itself.",
                _table(data, rows),
            ]
        return parts

    def figures(self, data: Data) -> Mapping[str, Figure]:
        """Return the effects by days of every column that has several windows."""
        return {column: _figure(data, column, rows) for column, rows in window_rows(data).items()}


def window_rows(data: Data) -> dict[str, list[Row]]:
    """Return the effects that carry verdicts, by column, where it has several windows; each with its days."""
    rows: dict[str, list[Row]] = {}
    for column, names in windows_by_column(metrics_of(data)).items():
        for name in names:
            window = metric_window(name)
            assert window is not None
            rows.setdefault(column, []).extend({**row, "days": window.days} for row in headlines(data, name))
    return rows


def _table(data: Data, rows: Sequence[Row]) -> Table:
    share = is_share(data, rows[0]["metric"])
    figures = figures_of(rows, share=share)
    cells = [
        (
            _spoken_days(row),
            row["arm"],
            figures.bare(row["estimate"], signed=True),
            figures.between(row["interval"]),
            p_value(row["p_adjusted"]),
        )
        for row in rows
    ]
    effect = f"effect{' (points)' if share else ''}"
    return Table(("days", "arm", effect, f"{percent(data['confidence'])} interval", "p, corrected"), tuple(cells))


def _spoken_days(row: Row) -> str:
    start, end = row["days"]
    return f"{start:g} to {end:g}"


def _figure(data: Data, column: str, effects: Sequence[Row]) -> Figure:
    share = is_share(data, effects[0]["metric"])
    figures = figures_of(effects, share=share)
    panels = []
    for arm in dict.fromkeys(row["arm"] for row in effects):
        rows = [row for row in effects if row["arm"] == arm]
        panels.append(_panel(rows, figures, f"effect of {arm}{', percentage points' if share else ''}"))
    texts = "; ".join(
        f"{row['arm']}, days {_spoken_days(row)}: {figures.bare(row['estimate'], signed=True)}" for row in effects
    )
    title = f"Effects on {column} by days since the first exposure"
    return Figure(title, f"{level_words(data)}{texts}.", panels)


def _panel(rows: Sequence[Row], figures: Digits, title: str) -> Plot:
    bars = [bar_of_row(row, figures) for row in rows]
    y = axis_around([end for bar in bars for end in bar.ends], title)
    days = [day for row in rows for day in row["days"]]
    x = numbered_axis(min(days), max(days), "days since the first exposure")
    marks: list[Mark] = [Line([(x.least, 0.0), (x.most, 0.0)], MUTED, wide=1)]
    for row, bar in zip(rows, bars, strict=True):
        if bar.at is not None:
            start, end = row["days"]
            low, high = y.least if bar.low is None else bar.low, y.most if bar.high is None else bar.high
            marks.append(Area([(start, low), (start, high), (end, high), (end, low)], bar.colour, opacity=0.2))
            marks.append(Line([(start, bar.at), (end, bar.at)], bar.colour))
    return Plot(x, y, marks, high=165)
