"""How long people stay: Kaplan and Meier's curve of every arm, and the log-rank test, from counts per arm and day.

The table is arm × day with a 0/1 metric: 1 for people whose event was on that day, 0 for people who were seen
last on that day without it (censored). Who is at risk on a day is everybody whose day has not passed. Days that were
merged are one step, where they end; who was last seen on one of m merged days is at risk for (m + 1) / 2m of them on
average, as in a life table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kanab.arguments import check_arguments
from kanab.choices import Alternative
from kanab.errors import AnalysisError, listed
from kanab.stats.distributions import check_sides, chi2_tail, t_quantile, t_tail
from kanab.stats.gram import Floats
from kanab.stats.noise import refuse_noise
from kanab.tabular import Table, number, p_value
from kanab.tally.factor import Level, label
from kanab.tally.tally import Tally


@dataclass(frozen=True, eq=False)
class SurvivalCurve:
    """The share of an arm without the event after each day, with Greenwood's error and a log-log interval.

    ``se`` and ``intervals`` are not numbers where nobody is left; intervals neither before the first event. ``later``
    are the people at risk after the last of the days, on open ones (≥ 90), and how many of them had the event.
    ``exposed`` are those at risk, on merged days without a part, the ``spread``, of those who were last seen on them.
    """

    arm: Level
    people: int
    days: Floats
    at_risk: Floats
    events: Floats
    share: Floats
    se: Floats
    intervals: Floats
    exposed: Floats
    spread: Floats
    later: tuple[int, int] = (0, 0)

    @property
    def median(self) -> float | None:
        """The first day after which at most half are left; None where more than half stay to the end."""
        return self._first_half(self.share)

    @property
    def median_interval(self) -> tuple[float | None, float | None]:
        """The days whose interval holds one half; an end is None where more may stay to the end."""
        low, high = (np.where(self.share <= 0, 0.0, side) for side in self.intervals.T)
        return self._first_half(low), self._first_half(high)

    def _first_half(self, shares: Floats) -> float | None:
        gone = np.flatnonzero(shares <= 0.5 + 1e-12)
        return float(self.days[gone[0]]) if len(gone) else None

    def share_at(self, day: float) -> tuple[float, tuple[float, float]]:
        """Return the share without the event after a day, and its interval: 1 before the first event."""
        place = int(np.searchsorted(self.days, day, side="right")) - 1
        share = 1.0 if place < 0 else float(self.share[place])
        if place < 0 or math.isnan(self.intervals[place, 0]):
            return share, (share, share)
        return share, (float(self.intervals[place, 0]), float(self.intervals[place, 1]))

    def mean_to(self, day: float) -> tuple[float, float]:
        """Return the mean number of days without the event, up to this day, and its standard error."""
        within = self.days <= day
        days, share, spread = self.days[within], self.share[within], self.spread[within]
        widths, before = np.diff(days, prepend=0.0), np.concatenate([[1.0], share])
        areas = widths * (before[:-1] - (before[:-1] - share) * spread)
        rest = (day - days[-1] if len(days) else day) * before[-1]
        left, gone = self.exposed[within], self.events[within]
        after = rest + areas.sum() - areas.cumsum() + widths * share * spread
        staying = left > gone  # where nobody is left there is nothing after
        variance = (after[staying] ** 2 * gone[staying] / (left[staying] * (left[staying] - gone[staying]))).sum()
        return float(areas.sum() + rest), math.sqrt(variance)


@dataclass(frozen=True, eq=False)
class Survival:
    """The curves of all arms, and the log-rank test of whether they are one; None where nobody has the event."""

    metric: str
    covariate: str
    confidence: float
    curves: tuple[SurvivalCurve, ...]
    chi2: float | None
    df: int
    p: float | None

    def __str__(self) -> str:
        rows = tuple(
            (
                label(c.arm),
                f"{c.people:,}",
                f"{int(c.events.sum()) + c.later[1]:,}",
                number(c.median),
                f"{100 * c.share[-1]:.1f} %",
            )
            for c in self.curves
        )
        head = ("arm", "people", "events", "median", "left at the end")
        test = "nobody has the event"
        if self.chi2 is not None:
            test = f"log-rank χ²({self.df}) = {number(self.chi2)}, p = {p_value(self.p)}"
        return f"{Table(head, rows, f'{self.metric} by {self.covariate}')}\n{test}"

    def to_dict(self) -> dict[str, Any]:
        """Return the curves and the test as plain data; what is not a number is None."""
        return {
            "metric": self.metric,
            "covariate": self.covariate,
            "confidence": self.confidence,
            "chi2": self.chi2,
            "df": self.df,
            "p": self.p,
            "curves": [
                {
                    "arm": label(curve.arm),
                    "people": curve.people,
                    "median": curve.median,
                    "median_interval": list(curve.median_interval),
                    "later": {"at_risk": curve.later[0], "events": curve.later[1]},
                    "days": [
                        {
                            "day": day, "at_risk": int(left), "events": int(events), "share": share,
                            "se": None if math.isnan(se) else se,
                            "interval": None if math.isnan(ends[0]) else ends,
                        }
                        for day, left, events, share, se, ends in zip(
                            *(column.tolist() for column in (
                                curve.days, curve.at_risk, curve.events, curve.share, curve.se, curve.intervals,
                            )), strict=True,
                        )
                    ],
                }
                for curve in self.curves
            ],
        }  # fmt: skip


@dataclass(frozen=True)
class SurvivalEffect:
    """Two arms compared: by the log-rank test, by the shares without the event after a day, by days without it.

    ``z`` is above 0 where the event comes sooner in the arm. ``shares`` and ``means`` are the control's and the arm's;
    means are of the days without the event up to ``day``.
    """

    arm: Level
    control: Level
    day: float
    shares: tuple[float, float]
    difference: float
    interval: tuple[float, float]
    means: tuple[float, float]
    mean_difference: float
    mean_interval: tuple[float, float]
    z: float | None
    p: float | None


@check_arguments(skip=("confidence",))
def survival_effect(
    arm: SurvivalCurve,
    control: SurvivalCurve,
    *,
    day: float | None = None,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
) -> SurvivalEffect:
    """Compare the curves of two arms of one table.

    The ``day`` is by default the last after which people without the event are left in both. The interval of the
    difference of shares combines the arms' own (Zou and Donner), so that these set its confidence; ``confidence`` is
    that of days. The ``alternative`` "greater" is that the event comes sooner in the arm; intervals have two sides.
    Raises `AnalysisError` for a day after the last of a curve.

    >>> from kanab.counting.columns import count_columns
    >>> rows = {"arm": list("AAAABBBB"), "day": [1, 2, 3, 4, 2, 4, 5, 6], "left": [1, 1, 0, 1, 0, 1, 0, 1]}
    >>> first, second = survival(count_columns(rows, arm="arm", covariates=["day"], metrics=["left"])).curves
    >>> effect = survival_effect(second, first, day=3)
    >>> effect.shares, effect.means, round(effect.p, 4)
    ((0.5, 1.0), (2.25, 3.0), 0.0686)
    """
    check_sides(confidence, alternative)
    both = min(len(arm.days), len(control.days))
    staying = np.flatnonzero((arm.share[:both] > 0) & (control.share[:both] > 0))
    last = float(arm.days[staying[-1]]) if len(staying) else 0.0
    chosen = last if day is None else float(day)
    if not 0 <= chosen <= min(arm.days[-1], control.days[-1]):
        raise AnalysisError("the day is not within both curves", f"Name one from 0 to {number(last)}.")
    (before, own), (after, other) = control.share_at(chosen), arm.share_at(chosen)
    difference = after - before
    low = difference - math.hypot(after - other[0], own[1] - before)
    high = difference + math.hypot(other[1] - after, before - own[0])
    means = control.mean_to(chosen), arm.mean_to(chosen)
    reach = t_quantile((1 + confidence) / 2, math.inf) * math.hypot(means[0][1], means[1][1])
    stay = means[1][0] - means[0][0]
    z = _log_rank_z((control, arm))
    return SurvivalEffect(
        arm.arm, control.arm, chosen, (before, after), difference, (low, high), (means[0][0], means[1][0]), stay,
        (stay - reach, stay + reach), z, None if z is None else t_tail(z, math.inf, alternative),
    )  # fmt: skip


@check_arguments()
def survival(
    tally: Tally, covariate: str | None = None, metric: str | None = None, *, confidence: float = 0.95
) -> Survival:
    """Return Kaplan and Meier's curves and the log-rank test from a table of arm × day.

    ``covariate`` is the day of the event or of the last sight, by default the tally's only one; ``metric`` is 1 where
    it was the event. Days that were merged are one day, at the score of their level: where they end, if the release
    was asked for survival. Open days (≥ 90) count in the test, and as days of people at risk; curves end before them.
    Raises `AnalysisError` for a covariate that is not a number or that some people lack, for a metric that is
    not 0/1, and where all days are open.

    >>> from kanab.counting.columns import count_columns
    >>> rows = {"arm": list("AAAABBBB"), "day": [1, 2, 3, 4, 2, 4, 5, 6], "left": [1, 1, 0, 1, 0, 1, 0, 1]}
    >>> print(survival(count_columns(rows, arm="arm", covariates=["day"], metrics=["left"])))
    left by day
    arm  people  events  median  left at the end
    ───  ──────  ──────  ──────  ───────────────
    A         4       3   2.000            0.0 %
    B         4       2   6.000            0.0 %
    log-rank χ²(1) = 3.315, p = 0.0686
    """
    refuse_noise(tally, "survival until an event")
    check_sides(confidence, "two-sided")
    names = [factor.name for factor in tally.covariates]
    if covariate is None and len(names) != 1:
        raise AnalysisError("survival needs one covariate, the day", f"This tally has: {listed(names) or 'none'}.")
    arms, day = tally.experiment, tally.factor(covariate or names[0])
    table = tally.keep(day.name)
    part = table.moments_of(metric)
    if day.role == "arm" or day.scores is None:
        raise AnalysisError(f"{day.name} is not a number of days", "Name a covariate whose levels are numbers.")
    if not part.metric.binary:
        raise AnalysisError(f"{part.metric.name} is not a 0/1 metric", "Count 1 for an event and 0 for the last sight.")
    known = sorted((score, place) for place, score in enumerate(day.scores) if score is not None)
    days, order = np.array([score for score, _ in known], dtype=np.float64), [place for _, place in known]
    turned = table.axes.index(arms.name) == 1
    people, events = (cells.T if turned else cells for cells in (part.counts, part.sums))
    if int(people[:, order].sum()) < int(people.sum()):
        raise AnalysisError(
            f"some people have no {day.name}", "Count the day of the last sight where there is no event."
        )
    ended, hit = people[:, order].astype(np.float64), events[:, order].astype(np.float64)
    at_risk = ended[:, ::-1].cumsum(axis=1)[:, ::-1]
    closed = sum("≥ " not in str(day.levels[place]) for place in order)
    if not closed:
        raise AnalysisError(f"{day.name} has no days that end", "Count more people, or declare edges further out.")
    spread = _spread(days, [day.levels[place] for place in order])
    exposed = at_risk - (ended - hit) * spread
    curves = tuple(
        _curve(level, days[:closed], spread, cells, confidence)
        for level, cells in zip(arms.levels, np.stack([at_risk, exposed, hit], axis=1), strict=True)
        if cells[0, 0]
    )
    chi2, df = _log_rank(curves)
    p = None if chi2 is None else chi2_tail(chi2, df)
    return Survival(part.metric.name, day.name, confidence, curves, chi2, df, p)


def _spread(days: Floats, levels: Sequence[Level]) -> Floats:
    """Return the part of merged days that is after a person's last on average: (m - 1) / 2m of m; of open ones none."""
    merged = [isinstance(level, str) and "≥ " not in level for level in levels]
    width = np.maximum(np.diff(days, prepend=0.0), 1.0)
    return np.where(merged, (width - 1) / (2 * width), 0.0)


def _curve(arm: Level, days: Floats, spread: Floats, cells: Floats, confidence: float) -> SurvivalCurve:
    """Return the curve of one arm at the days on which somebody was still there; what comes after is later.

    ``cells`` are those at risk, those exposed, and the events.
    """
    later = int(cells[0, len(days) :].max(initial=0)), int(cells[2, len(days) :].sum())
    seen = cells[0, : len(days)] > 0
    days, spread = days[seen], spread[: len(seen)][seen]
    people, left, gone = cells[:, : len(seen)][:, seen]
    share = np.asarray(np.cumprod(1 - gone / left), dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        hazard = np.cumsum(gone / (left * (left - gone)))
        reach = t_quantile((1 + confidence) / 2, math.inf) * np.sqrt(hazard) / np.abs(np.log(share))
        intervals = np.column_stack([share ** np.exp(reach), share ** np.exp(-reach)])
        se = share * np.sqrt(hazard)
    intervals[(share <= 0) | (share >= 1)] = np.nan
    return SurvivalCurve(
        arm, int(people[0]), days, people, gone, share, np.where(share > 0, se, np.nan), intervals, left, spread, later,
    )  # fmt: skip


def _log_rank(curves: Sequence[SurvivalCurve]) -> tuple[float | None, int]:
    """Return the log-rank χ² and its df."""
    away, variance = _against_one(curves)
    df = len(curves) - 1
    if df < 1 or not variance.any():
        return None, df
    return float(away @ np.linalg.pinv(variance) @ away), df


def _log_rank_z(curves: Sequence[SurvivalCurve]) -> float | None:
    """Return the signed root of the log-rank χ² of two arms: above 0 where the second has more events."""
    away, variance = _against_one(curves)
    return -float(away[0]) / math.sqrt(variance[0, 0]) if variance[0, 0] > 0 else None


def _against_one(curves: Sequence[SurvivalCurve]) -> tuple[Floats, Floats]:
    """Return how many more events all arms but the last have than one curve for all would give, and their variance."""
    longest = max(len(curve.days) for curve in curves)
    at_risk, events = np.zeros((2, len(curves), longest + 1))
    for place, curve in enumerate(curves):
        at_risk[place, : len(curve.days)], events[place, : len(curve.days)] = curve.exposed, curve.events
        at_risk[place, -1], events[place, -1] = curve.later
    everybody, all_events = at_risk.sum(axis=0), events.sum(axis=0)
    used = (all_events > 0) & (everybody > 1)
    n, d, left = everybody[used], all_events[used], at_risk[:, used]
    share = left / n
    away = (events[:, used] - share * d).sum(axis=1)[:-1]
    scale = d * (n - d) / (n - 1)
    variance = np.diag((share * scale).sum(axis=1)) - (share * scale) @ share.T
    return away, variance[:-1, :-1]
