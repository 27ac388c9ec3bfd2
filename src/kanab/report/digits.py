"""Numbers as texts, rounded by what is known about them: the half-width of their interval."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kanab.errors import listed
from kanab.tabular import number, p_value

Row = Mapping[str, Any]

MOST_DECIMALS = 6
"""Smaller steps than a millionth are written with an exponent."""

_UNBREAKABLE = re.compile(
    r"(?<=\bp) (?=[=<])|(?<=\bp [=<]) |(?<=\d) (?=%|points)|(?<=\d %) (?=interval)| (?=±)|(?<=[±≥≤]) "
)
_TINY = 1e-100


@dataclass(frozen=True)
class Digits:
    """How the numbers of one metric are written: as they are or in percent, to so many decimals."""

    share: bool = False
    decimals: int | None = None

    def bare(self, value: float | None, *, signed: bool = False) -> str:
        """Return the number without its unit."""
        return fixed(scaled(value, self.share), self.decimals, signed=signed)

    def mean(self, value: float | None) -> str:
        """Return a mean, with its percent sign where it is a share."""
        text = self.bare(value)
        return f"{text} %" if self.share and value is not None else text

    def change(self, value: float | None, *, signed: bool = False) -> str:
        """Return a difference between means; between shares it is in percentage points."""
        text = self.bare(value, signed=signed)
        return f"{text} points" if self.share and value is not None else text

    def between(self, interval: Sequence[float | None] | None) -> str:
        """Return an interval, short enough for a table; one with an open end is "at least" or "at most" the other."""
        if interval is None:
            return "–"
        low, high = interval
        if low is None:
            return "–" if high is None else f"at most {self.bare(high)}"
        if high is None:
            return f"at least {self.bare(low)}"
        return f"{self.bare(low)} to {self.bare(high)}"

    def spoken(self, interval: Sequence[float | None]) -> str:
        """Return an interval in words."""
        return "any number" if tuple(interval) == (None, None) else self.between(interval)


def scaled(value: float | None, share: bool) -> float | None:
    """Return a share in percent, anything else as it is."""
    return value * 100 if share and value is not None else value


def fixed(value: float | None, decimals: int | None, *, signed: bool = False) -> str:
    """Return a number to so many decimals, with a true minus and never a negative zero."""
    if value is None or not math.isfinite(value):
        return "–"
    rounded = value if decimals is None else round(value, decimals)
    if decimals is None or decimals > MOST_DECIMALS or abs(value) >= 1e15:
        text = number(abs(value), 4 if decimals is None else 3)
    else:
        text = f"{abs(rounded):,.{decimals}f}"
    sign = "" if rounded == 0 else "−" if rounded < 0 else "+" if signed else ""
    return sign + text


def metric_figures(data: Mapping[str, Any], metric: str) -> tuple[Digits, Digits]:
    """Return how effects on a metric, and relative ones, are written: in its table and in every sentence alike."""
    rows = [row for row in data["effects"] if row["metric"] == metric]
    return figures_of(rows, share=is_share(data, metric)), relative_figures(rows)


def figures_of(rows: Iterable[Row], *, share: bool) -> Digits:
    """Return enough decimals for the narrowest interval of these rows: two digits of its half-width.

    An interval that stops short of 0 never shows 0 as its end, and a small effect keeps a digit: up to two more.
    """
    return estimate_figures([(row["estimate"], row["interval"]) for row in rows], share=share)


def relative_figures(rows: Iterable[Row]) -> Digits:
    """Return the same for relative effects, which are always in percent."""
    return estimate_figures([(row["relative"], row["relative_interval"]) for row in rows], share=True)


def error_figures(errors: Iterable[float | None], *, share: bool) -> Digits:
    """Return enough decimals for two digits of the smallest standard error."""
    sizes = [_decimals(scaled(error, share)) for error in errors]
    return Digits(share, max((size for size in sizes if size is not None), default=None))


def estimate_figures(
    estimates: Iterable[tuple[float | None, Sequence[float | None] | None]], *, share: bool = False
) -> Digits:
    """Return the same for estimates with their intervals."""
    sizes = []
    for estimate, interval in estimates:
        decimals = _decimals(scaled(half_width(estimate, interval), share))
        if decimals is not None and interval is not None:
            ends = [scaled(end, share) for end in interval if end]
            lost = [end for end in ends if end is not None and round(end, decimals) == 0]
            first = _decimals(scaled(estimate, share)) or 0
            hidden = bool(estimate) and round(scaled(estimate, share) or 0.0, decimals) == 0
            sizes.append(min(first - 1, decimals + 2) if hidden else decimals + bool(lost))
    return Digits(share, max(sizes, default=None))


def half_width(estimate: float | None, interval: Sequence[float | None] | None) -> float | None:
    """Return half the width of an interval; with an open end, from the estimate to the other end."""
    if interval is None:
        return None
    low, high = interval
    if low is not None and high is not None:
        return (high - low) / 2
    end = high if low is None else low
    return None if end is None or estimate is None else abs(estimate - end)


def _decimals(size: float | None) -> int | None:
    if size is None or size == 0 or not math.isfinite(size):
        return None
    return max(0, 1 - int(f"{size:.1e}".partition("e")[2]))


def spoken_p(p: float | None) -> str:
    """Return a p-value with its sign, for a sentence."""
    if p is None or math.isnan(p):
        return "p unknown"
    return "p < 1e-100" if p < _TINY else f"p = {p_value(p)}"


def bind_numbers(sentence: str) -> str:
    """Return the sentence with no-break spaces inside "p = 0.04", "7.7 points" and the like."""
    return _UNBREAKABLE.sub("\N{NO-BREAK SPACE}", sentence)


def percent(value: float, decimals: int = 0) -> str:
    """Return a proportion in percent; as few decimals as tell it from a rounder one."""
    size = value * 100
    return f"{size:.{decimals}f} %" if decimals else f"{size:.6g} %"


def is_share(data: Mapping[str, Any], metric: str) -> bool:
    """Return whether the metric is 0 or 1 for everyone, so that its means are percentages.

    Then and, for whole numbers, only then the plain effect's variance is Σ m (1 − m) / (n − 1) over its two arms;
    where values are missing that fails. Where clusters were assigned or noise was added, rates are named.
    """
    noise = data["privacy"].get("noise")
    if metric in (data.get("clusters") or {}).get("rates", ()) or (noise is not None and metric in noise["rates"]):
        return True
    rows = [row for row in data["effects"] if row["metric"] == metric and row["method"] == "difference"]
    return bool(rows) and all(_of_zeros_and_ones(row, data["arms"]) for row in rows)


def _of_zeros_and_ones(row: Row, arms: Mapping[str, int]) -> bool:
    sides = [(row["mean_control"], arms.get(row["control"], 0)), (row["mean_arm"], arms.get(row["arm"], 0))]
    if not row["se"] or any(mean is None or not 0 <= mean <= 1 or people < 2 for mean, people in sides):
        return False
    variance = math.fsum(mean * (1 - mean) / (people - 1) for mean, people in sides)
    return math.isclose(variance, row["se"] ** 2, rel_tol=1e-9)


def named_with_unit(data: Mapping[str, Any], metric: str) -> str:
    """Return the name of a metric, with the unit of its effects where it is a share."""
    return f"{metric} (points)" if is_share(data, metric) else metric


def adjusted_for(row: Row) -> str:
    """Return for what an effect is adjusted, after a comma; nothing of plain ones."""
    return f", adjusted for {listed(row['covariates'])}" if row["method"] == "adjusted" else ""
