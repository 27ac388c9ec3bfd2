"""Scans as values that print themselves: pairs of experiments, and effects by segment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kanab.analysis.readout import frame
from kanab.scan.report.html import scan_report
from kanab.scan.report.text import pairs_text, segments_text
from kanab.scan.stats.effects import PairEffects
from kanab.scan.stats.pairs import PairScan
from kanab.scan.stats.segments import SegmentScan
from kanab.tally.factor import label

_ROUNDED = ("F", "p", "F_robust", "p_robust", "p_adjusted", "assignment_p")


@dataclass(frozen=True)
class Shown:
    """A flagged pair whose table may be shown."""

    a: str
    b: str
    effects: PairEffects


@dataclass(frozen=True, eq=False, repr=False)
class PairReadout:
    """Every pair of experiments, tested together. ``to_dict`` is documented and stable.

    ``open_metrics`` are within the budget: their tables could all be published. Of the others only
    F and p are shown, to three digits, and the tables of a few flagged pairs.
    """

    scan: PairScan
    shown: tuple[Shown, ...]
    people: int
    k: int
    open_metrics: frozenset[str]
    notes: tuple[str, ...] = ()
    chained: bool = False

    def __str__(self) -> str:
        return pairs_text(self.to_dict())

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """The scan as plain data, ready for JSON."""
        rows = [self._row(row.to_dict()) for row in self.scan.rows]
        return {
            "pairs": rows,
            **self.scan.summary(),
            "experiments": list(self.scan.experiments),
            "metrics": [metric.name for metric in self.scan.metrics],
            "shares": [metric.name for metric in self.scan.metrics if metric.binary],
            "people": self.people,
            "enrollment_checked": self.scan.enrollment_checked,
            "verdicts": dict(self.scan.verdicts()),
            "effects": [_effects(one.effects) for one in self.shown],
            "quantiles": {metric.name: self._quantiles(metric.name) for metric in self.scan.metrics},
            "privacy": {
                "k": self.k,
                "shows": {
                    metric.name: "tables" if metric.name in self.open_metrics else "statistics"
                    for metric in self.scan.metrics
                },
                "chained": self.chained,
            },
            "notes": list(self.notes),
        }

    def to_pandas(self) -> Any:
        """One row per pair and metric as a pandas DataFrame."""
        return frame("pandas", [_plain(row) for row in self.to_dict()["pairs"]])

    def to_polars(self) -> Any:
        """One row per pair and metric as a polars DataFrame."""
        return frame("polars", [_plain(row) for row in self.to_dict()["pairs"]])

    def to_report(self) -> str:
        """The scan as one self-contained HTML page."""
        return scan_report(pairs=self.to_dict())

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Over the budget numbers are given to three digits, and what could be missed to two."""
        if row["metric"] in self.open_metrics:
            return row
        rounded = {name: _digits(row[name], 3) for name in _ROUNDED}
        return row | rounded | {"could_miss": _digits(row["could_miss"], 2)}

    def _quantiles(self, metric: str) -> dict[str, list[float | None]]:
        found = self.scan.quantiles(metric)
        digits = 12 if metric in self.open_metrics else 3
        return {
            "expected": [_digits(value, 6) for value in found.expected.tolist()],
            "observed": [_digits(value, digits) for value in found.observed.tolist()],
        }


@dataclass(frozen=True, eq=False, repr=False)
class SegmentReadout:
    """Every experiment by every covariate, tested together. ``to_dict`` is documented and stable."""

    scan: SegmentScan
    k: int
    notes: tuple[str, ...] = ()
    chained: bool = False

    def __str__(self) -> str:
        return segments_text(self.to_dict())

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """The scan as plain data, ready for JSON."""
        rows = [row.to_dict() for row in self.scan.rows]
        for row in rows:
            for one in row["follow_ups"]:
                one |= {name: label(one[name]) for name in ("level", "arm", "control")}
        return {
            "segments": rows,
            **self.scan.summary(),
            "metrics": [metric.name for metric in self.scan.metrics],
            "shares": [metric.name for metric in self.scan.metrics if metric.binary],
            "verdicts": dict(self.scan.verdicts()),
            "privacy": {"k": self.k, "chained": self.chained},
            "notes": list(self.notes),
        }

    def to_pandas(self) -> Any:
        """One row per experiment, covariate and metric as a pandas DataFrame."""
        return frame("pandas", [_plain(row) for row in self.to_dict()["segments"]])

    def to_polars(self) -> Any:
        """One row per experiment, covariate and metric as a polars DataFrame."""
        return frame("polars", [_plain(row) for row in self.to_dict()["segments"]])

    def to_report(self) -> str:
        """The scan as one self-contained HTML page."""
        return scan_report(segments=self.to_dict())


def _effects(found: PairEffects) -> dict[str, Any]:
    return {
        "a": found.experiments[0],
        "b": found.experiments[1],
        "metric": found.metric,
        "arms": [[label(arm) for arm in arms] for arms in found.arms],
        "means": [list(row) for row in found.means],
        "effects": [
            {
                "experiment": one.experiment,
                "arm": label(one.arm),
                "control": label(one.control),
                "within": one.within,
                "level": label(one.level),
                "effect": one.effect,
                "se": one.se,
                "interval": [one.low, one.high],
            }
            for one in found.effects
        ],
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Degrees of freedom as two columns; follow-ups are a table of their own."""
    flat = {name: value for name, value in row.items() if name not in ("df", "df_robust", "follow_ups")}
    for name in ("df", "df_robust"):
        flat[f"{name}_numerator"], flat[f"{name}_denominator"] = row[name] or (None, None)
    return flat


def _digits(value: float | None, digits: int) -> float | None:
    """A number to so many significant digits."""
    if value is None or value == 0 or not math.isfinite(value):
        return value
    return float(f"{value:.{digits - 1}e}")
