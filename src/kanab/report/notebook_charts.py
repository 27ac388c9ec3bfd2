"""Charts for notebooks: one Altair chart of what somebody asks a result to draw, on white, with its title."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from kanab.errors import AnalysisError
from kanab.report import charts
from kanab.report.palette import INK
from kanab.report.words import metrics_of

Data = Mapping[str, Any]
Spec = dict[str, Any]
Drawn = Mapping[str, Spec | None]
"""Charts by the metric that they are about; None for a metric that has none."""

ReadoutChart = Literal["effects", "segments", "received", "quantiles", "windows"]
"""What a readout can draw."""

_LETTERS = 58
_OF_THE_WHOLE = ("$schema", "config", "background", "padding", "autosize", "usermeta")


def readout_chart(data: Data, what: str, metric: str | None) -> Any:
    """Return a chart of a readout from its plain data; see `chosen_chart`."""
    return chosen_chart({name: partial(draw, data) for name, draw in _READOUT.items()}, what, metric)


def chosen_chart(kinds: Mapping[str, Callable[[], Drawn]], what: str, metric: str | None = None) -> Any:
    """Return the chart of one kind: of one metric, or of all under each other.

    Raises `AnalysisError` for a kind that there is not, and where there is nothing of it to draw, with what there is.
    """
    charts.altair()
    if not isinstance(what, str) or what not in kinds:
        raise AnalysisError("there is no chart of that name", f"Use one of: {', '.join(kinds)}.")
    drawn = {name: spec for name, spec in kinds[what]().items() if spec is not None}
    if not drawn:
        others = [name for name in kinds if name != what and any(spec is not None for spec in kinds[name]().values())]
        hint = (
            f"There is something to draw of: {', '.join(others)}." if others else "Nothing else can be drawn, either."
        )
        raise AnalysisError(f"there is nothing to draw of {what}", hint)
    if metric is not None and metric not in drawn:
        raise AnalysisError(f"there is no chart of {what} for this metric", f"Name one of: {', '.join(drawn)}.")
    return as_chart([*drawn.values()] if metric is None else [drawn[metric]])


def as_chart(specs: Sequence[Spec]) -> Any:
    """Return charts under each other as one of Altair's, on white: its letters are dark, notebooks may be, too."""
    parts = [_titled(spec) for spec in specs]
    whole = {name: value for name, value in specs[0].items() if name in _OF_THE_WHOLE and name != "$schema"}
    whole |= {"background": "white", "padding": 12}
    if len(parts) == 1:
        return charts.altair().Chart.from_dict(parts[0] | whole)
    inner = [{name: value for name, value in part.items() if name not in _OF_THE_WHOLE} for part in parts]
    whole.pop("autosize", None)
    return charts.altair().Chart.from_dict({"vconcat": inner, "spacing": 36} | whole)


def _titled(spec: Spec) -> Spec:
    """Return a chart with its title above it, in lines that are no wider than the picture."""
    lines = textwrap.wrap(spec["usermeta"]["title"].replace(" %", "\u00a0%"), _LETTERS)
    title = {"text": lines, "anchor": "start", "color": INK, "fontSize": 14, "offset": 12}
    return {name: value for name, value in spec.items() if name != "$schema"} | {"title": title}


def _each(draw: Callable[[Data, str], Spec | None]) -> Callable[[Data], Drawn]:
    return lambda data: {metric: draw(data, metric) for metric in _named(data)}


def _named(data: Data) -> Iterator[str]:
    """Yield every metric of which something may be drawn, once."""
    others = (row["metric"] for row in data["distributions"])
    yield from dict.fromkeys((*metrics_of(data), *others))


_READOUT: Mapping[str, Callable[[Data], Drawn]] = {
    "effects": _each(charts.forest_chart),
    "segments": _each(charts.segment_chart),
    "received": _each(charts.received_chart),
    "quantiles": _each(charts.distribution_chart),
    "windows": charts.window_charts,
}
