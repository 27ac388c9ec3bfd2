"""How long people stay: Kaplan and Meier's curve of every arm, and the log-rank test, from counts per arm and day.

The table is arm × day with a 0/1 metric: 1 for people whose event was on that day, 0 for people who were seen
last on that day without it (censored). Who is at risk on a day is everybody whose day has not passed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError, listed
from kanab.stats.distributions import check_sides, chi2_tail, t_quantile
from kanab.stats.gram import Floats
from kanab.tabular import Table, number, p_value
from kanab.tally.factor import Level, label
from kanab.tally.tally import Tally


@dataclass(frozen=True, eq=False)
class SurvivalCurve:
    """The share of an arm without the event after each day, with Greenwood's error and a log-log interval.

    ``se`` and ``intervals`` are not numbers where nobody is left; intervals neither before the first event.
    """

    arm: Level
    people: int
    days: Floats
    at_risk: Floats
    events: Floats
    share: Floats
    se: Floats
    intervals: Floats

    @property
    def median(self) -> float | None:
        """The first day after which at most half are left; None where more than half stay to the end."""
        gone = np.flatnonzero(self.share <= 0.5 + 1e-12)
        return float(self.days[gone[0]]) if len(gone) else None


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
            (label(c.arm), f"{c.people:,}", f"{int(c.events.sum()):,}", number(c.median), f"{100 * c.share[-1]:.1f} %")
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


@check_arguments()
def survival(
    tally: Tally, covariate: str | None = None, metric: str | None = None, *, confidence: float = 0.95
) -> Survival:
    """Return Kaplan and Meier's curves and the log-rank test from a table of arm × day.

    ``covariate`` is the day of the event or of the last sight, by default the tally's only one; ``metric`` is 1 where
    it was the event. Days that were merged are one day, at their people's mean. Raises `AnalysisError` for a covariate
    that is not a number or that some people lack, and for a metric that is not 0/1.

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
    present = at_risk[:, 0] > 0
    curves = tuple(
        _curve(level, days, left, gone, confidence)
        for level, left, gone, here in zip(arms.levels, at_risk, hit, present, strict=True)
        if here
    )
    chi2, df = _log_rank(at_risk[present], hit[present])
    p = None if chi2 is None else chi2_tail(chi2, df)
    return Survival(part.metric.name, day.name, confidence, curves, chi2, df, p)


def _curve(arm: Level, days: Floats, at_risk: Floats, events: Floats, confidence: float) -> SurvivalCurve:
    """Return the curve of one arm at the days on which somebody was still there."""
    seen = at_risk > 0
    days, left, gone = days[seen], at_risk[seen], events[seen]
    share = np.asarray(np.cumprod(1 - gone / left), dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        hazard = np.cumsum(gone / (left * (left - gone)))
        reach = t_quantile((1 + confidence) / 2, math.inf) * np.sqrt(hazard) / np.abs(np.log(share))
        intervals = np.column_stack([share ** np.exp(reach), share ** np.exp(-reach)])
        se = share * np.sqrt(hazard)
    intervals[(share <= 0) | (share >= 1)] = np.nan
    return SurvivalCurve(arm, int(left[0]), days, left, gone, share, np.where(share > 0, se, np.nan), intervals)


def _log_rank(at_risk: Floats, events: Floats) -> tuple[float | None, int]:
    """Return the log-rank χ² and its df: events against those that one curve for all arms would give."""
    everybody, all_events = at_risk.sum(axis=0), events.sum(axis=0)
    used = (all_events > 0) & (everybody > 1)
    df = len(at_risk) - 1
    if not used.any() or df < 1:
        return None, df
    n, d, left = everybody[used], all_events[used], at_risk[:, used]
    share = left / n
    away = (events[:, used] - share * d).sum(axis=1)[:-1]
    scale = d * (n - d) / (n - 1)
    variance = np.diag((share * scale).sum(axis=1)) - (share * scale) @ share.T
    return float(away @ np.linalg.pinv(variance[:-1, :-1]) @ away), df
