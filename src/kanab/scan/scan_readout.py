"""Scans as values that print themselves: pairs of experiments, and effects by segment."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kanab.arguments import check_arguments
from kanab.choices import OWN_ROWS
from kanab.dataframes import Name, Row, Tables
from kanab.plan.joint_shares import are_independent
from kanab.report.figure import Figure
from kanab.report.html_page import Printed, Report
from kanab.scan.report.scan_page import PairChart, pair_figure, scan_report
from kanab.scan.stats.outcomes import Outcome
from kanab.scan.stats.scan_kinds import PairEffects, PairScan, SegmentScan
from kanab.tally.factor import label

PairRows = Literal[
    "pairs", "effects", "means", "joint_shares", "quantiles", "verdicts", "metrics", "notes", "experiments",
]  # fmt: skip
SegmentRows = Literal["segments", "follow_ups", "verdicts", "metrics", "notes"]


class _ScanReadout(Printed[Name]):
    """What both scans can become."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the scan as plain data, ready for JSON."""

    def _report(self) -> Report:
        return scan_report(self.to_dict())


@dataclass(frozen=True, eq=False, repr=False)
class PairReadout(_ScanReadout[PairRows]):
    """Every pair of experiments, tested together. ``to_dict`` is documented and stable.

    ``own_rows`` says that it is internal.
    """

    scan: PairScan
    effects: tuple[PairEffects, ...]
    people: int
    k: int
    notes: tuple[str, ...] = ()
    chained: bool = False
    own_rows: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the scan as plain data, ready for JSON."""
        return _scope(own_rows=self.own_rows) | {
            "pairs": [row.to_dict() for row in self.scan.rows_of(self.scan.listed_lines)],
            **self.scan.summary(),
            "experiments": list(self.scan.experiments),
            "metrics": [metric.name for metric in self.scan.metrics],
            "shares": [metric.name for metric in self.scan.metrics if metric.binary],
            "people": self.people,
            "enrollment_checked": self.scan.enrollment_checked,
            "joint_shares": [
                {
                    "a": first,
                    "b": second,
                    "shares": [[label(a), label(b), share] for a, b, share in shares],
                    "independent": are_independent(shares),
                }
                for (first, second), shares in self.scan.joint_shares.items()
            ],
            "verdicts": dict(self.scan.verdicts()),
            "effects": [_effects_to_dict(pair) for pair in self.effects],
            "quantiles": {metric.name: self._quantiles(metric.name) for metric in self.scan.metrics},
            "privacy": {"k": self.k, "chained": self.chained},
            "notes": list(self.notes),
        }

    @check_arguments(skip=("what",))
    def chart(self, what: PairChart = "map", *, metric: str | None = None) -> Figure:
        """Return a chart of all pairs ("map"), p-values against chance ("p_values") or flagged pairs ("effects").

        Raises `AnalysisError` where there is nothing to draw.
        """
        return pair_figure(self.to_dict(), what, metric)

    def _tables(self) -> Tables:
        data = self.to_dict()
        return {
            "pairs": [_flat(row.to_dict()) for row in self.scan.rows],
            "effects": [
                _beside(pair, "a", "b", "metric") | effect for pair in data["effects"] for effect in pair["effects"]
            ],
            "means": [row for pair in data["effects"] for row in _means(pair)],
            "joint_shares": [
                _beside(pair, "a", "b", "independent") | {"arm_a": a, "arm_b": b, "share": share}
                for pair in data["joint_shares"]
                for a, b, share in pair["shares"]
            ],
            "quantiles": [
                {"metric": metric, "expected": expected, "observed": observed}
                for metric, both in data["quantiles"].items()
                for expected, observed in zip(both["expected"], both["observed"], strict=True)
            ],
            **_common_tables(data),
            "experiments": [{"experiment": name} for name in data["experiments"]],
        }

    def _quantiles(self, metric: str) -> dict[str, list[float | None]]:
        expected, observed = self.scan.quantiles(metric)
        return {
            "expected": [_digits(value, 6) for value in expected.tolist()],
            "observed": [_digits(value, 12) for value in observed.tolist()],
        }


@dataclass(frozen=True, eq=False, repr=False)
class SegmentReadout(_ScanReadout[SegmentRows]):
    """Every experiment by every covariate, tested together. ``to_dict`` is documented and stable."""

    scan: SegmentScan
    k: int
    notes: tuple[str, ...] = ()
    chained: bool = False
    own_rows: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the scan as plain data, ready for JSON."""
        rows = _segments_to_dict(self.scan.rows_of(self.scan.listed_lines))
        return _scope(own_rows=self.own_rows) | {
            "segments": rows,
            **self.scan.summary(),
            "metrics": [metric.name for metric in self.scan.metrics],
            "shares": [metric.name for metric in self.scan.metrics if metric.binary],
            "verdicts": dict(self.scan.verdicts()),
            "privacy": {"k": self.k, "chained": self.chained},
            "notes": list(self.notes),
        }

    def _tables(self) -> Tables:
        data = self.to_dict()
        names, rows = ("experiment", "covariate", "metric"), _segments_to_dict(self.scan.rows)
        return {
            "segments": [_flat(row) for row in rows],
            "follow_ups": [_beside(row, *names) | each for row in rows for each in row["follow_ups"]],
            **_common_tables(data),
        }


def _segments_to_dict(tests: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return tests of segments as plain data, with levels and arms of follow-ups as texts."""
    rows = [test.to_dict() for test in tests]
    for row in rows:
        for follow_up in row["follow_ups"]:
            follow_up |= {name: label(follow_up[name]) for name in ("level", "arm", "control")}
    return rows


def _beside(row: Row, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _common_tables(data: Row) -> dict[str, list[Row]]:
    """Return the tables that both scans have: verdicts, metrics and notes."""
    return {
        "verdicts": [{"verdict": verdict, "tests": n} for verdict, n in data["verdicts"].items()],
        "metrics": [{"metric": name, "share": name in data["shares"]} for name in data["metrics"]],
        "notes": [{"sentence": sentence} for sentence in data["notes"]],
    }


def _scope(*, own_rows: bool) -> dict[str, Any]:
    return {"scope": OWN_ROWS} if own_rows else {}


def _means(pair: Row) -> list[Row]:
    """Return the mean of every class of a pair of experiments."""
    first, second = pair["arms"]
    return [
        _beside(pair, "a", "b", "metric") | {"arm_a": a, "arm_b": b, "mean": mean}
        for a, means in zip(first, pair["means"], strict=True)
        for b, mean in zip(second, means, strict=True)
    ]


def _effects_to_dict(pair: PairEffects) -> dict[str, Any]:
    return {
        "a": pair.experiments[0],
        "b": pair.experiments[1],
        "metric": pair.metric,
        "arms": [[label(arm) for arm in arms] for arms in pair.arms],
        "control_chosen": list(pair.chosen),
        "means": [list(row) for row in pair.means],
        "effects": [
            asdict(effect)
            | {name: label(getattr(effect, name)) for name in ("arm", "control", "level")}
            | {"interval": list(effect.interval)}
            for effect in pair.effects
        ],
    }


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return degrees of freedom as two columns; follow-ups are a table of their own."""
    flat = {name: value for name, value in row.items() if name not in ("df", "df_robust", "follow_ups")}
    for name in ("df", "df_robust"):
        flat[f"{name}_numerator"], flat[f"{name}_denominator"] = row[name] or (None, None)
    return flat


def _digits(value: float | None, digits: int) -> float | None:
    """Round to so many significant digits."""
    if value is None or value == 0 or not math.isfinite(value):
        return value
    return float(f"{value:.{digits - 1}e}")
