"""Odds ratios over strata: Mantel and Haenszel's common one, its test, and whether strata differ (Breslow and Day).

People of different levels may differ in their rates. Comparing arms within each level and averaging over levels
removes that, without a model of the rates. It needs people and events per class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kanab.arguments import check_arguments
from kanab.choices import Alternative
from kanab.errors import AnalysisError, listed
from kanab.stats.distributions import check_sides, chi2_tail, t_interval, t_tail
from kanab.stats.gram import Floats
from kanab.stats.noise import refuse_noise
from kanab.stats.score import Rates
from kanab.tabular import Table, number, p_value
from kanab.tally.factor import Level, label
from kanab.tally.tally import Tally

LEAST_REACH = 5.0
"""Mantel and Fleiss: the events of an arm must be able to lie so far from their expectation, on both sides."""

_FEW = "few events are to be expected in these strata, so the χ² test is rough"
_THIN = "few people are to be expected in many cells, so the test of equal odds is rough"
_EMPTY = "no stratum has both arms, and both people with the event and without it"


@dataclass(frozen=True)
class OddsAtLevel:
    """The odds ratio in one stratum, with its score interval; people and events are the control's and the arm's.

    ``weight`` is its share in the common odds ratio. None where nobody or everybody has the event.
    """

    level: str
    people: tuple[int, int]
    events: tuple[int, int]
    odds_ratio: float | None
    interval: tuple[float, float] | None
    weight: float


@dataclass(frozen=True)
class EqualOdds:
    """Breslow and Day's test that all strata have one odds ratio: with Tarone's correction, and plain."""

    chi2: float
    df: int
    p: float
    plain_chi2: float
    plain_p: float


@dataclass(frozen=True)
class CommonOdds:
    """One arm against the control over all strata: Mantel and Haenszel's odds ratio, risk ratio and risk difference.

    ``z`` and ``p`` are the Cochran–Mantel–Haenszel test. ``se_log`` is Robins, Breslow and Greenland's. None where
    events are on one side only, or nowhere; ``equal`` is None with fewer than two informative strata. ``note`` says
    what is rough.
    """

    metric: str
    covariates: tuple[str, ...]
    arm: Level
    control: Level
    confidence: float
    alternative: Alternative
    levels: tuple[OddsAtLevel, ...]
    odds_ratio: float | None = None
    se_log: float | None = None
    interval: tuple[float, float] | None = None
    risk_ratio: float | None = None
    risk_ratio_interval: tuple[float, float] | None = None
    risk_difference: float | None = None
    risk_difference_interval: tuple[float, float] | None = None
    z: float | None = None
    p: float | None = None
    equal: EqualOdds | None = None
    note: str = ""

    @property
    def chi2(self) -> float | None:
        """The Cochran–Mantel–Haenszel χ² with one degree of freedom."""
        return None if self.z is None else self.z**2

    def _table(self) -> Table:
        by = " × ".join(self.covariates)
        head = (by, "events, control", "arm", "people, control", "arm", "odds ratio", f"{self.confidence:.0%} interval")
        rows = [
            (row.level, *map(str, (*row.events, *row.people)), number(row.odds_ratio), _between(row.interval))
            for row in self.levels
        ]
        totals = [str(sum(row.events[side] for row in self.levels)) for side in (0, 1)]
        totals += [str(sum(row.people[side] for row in self.levels)) for side in (0, 1)]
        rows.append(("common", *totals, number(self.odds_ratio), _between(self.interval)))
        return Table((*head,), tuple(rows), f"{self.metric}: {label(self.arm)} against {label(self.control)} over {by}")

    def _sentences(self) -> list[str]:
        if self.z is None:
            return [self.note]
        sentences = [
            f"Mantel–Haenszel χ²(1) = {number(self.chi2)}, p = {p_value(self.p)}; risk ratio "
            f"{number(self.risk_ratio)} ({_between(self.risk_ratio_interval)}), risk difference "
            f"{number(self.risk_difference)} ({_between(self.risk_difference_interval)})"
        ]
        if self.equal is not None:
            sentences.append(
                f"Equal odds in all strata: Breslow–Day χ²({self.equal.df}) = {number(self.equal.chi2)}, "
                f"p = {p_value(self.equal.p)} (Tarone)"
            )
        return sentences + [self.note] * bool(self.note)

    def __str__(self) -> str:
        return "\n".join([str(self._table()), *self._sentences()])

    def _repr_html_(self) -> str:
        return self._table().to_html() + "".join(f"<p>{sentence}</p>" for sentence in self._sentences())


def _between(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else " … ".join(map(number, interval))


@check_arguments()
def common_odds(
    tally: Tally,
    covariates: Sequence[str] | str | None = None,
    metric: str | None = None,
    *,
    control: Any = None,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
) -> tuple[CommonOdds, ...]:
    """Compare every arm with the control over the strata of covariates: all of the tally's, or those that are named.

    Raises `AnalysisError` for a metric that is not 0/1, for a table without covariates or of several experiments, and
    `LevelError` for names that it does not have.

    >>> from kanab.counting.columns import count_columns
    >>> from kanab.datasets import shop_rows
    >>> shop = count_columns(shop_rows(), arm="variant", covariates=["device"], metrics=["bought"])
    >>> print(common_odds(shop)[0])
    bought: B against A over device
    ...
    """
    refuse_noise(tally, "an odds ratio over strata")
    check_sides(confidence, alternative)
    arms = tally.experiment
    names = [factor.name for factor in tally.covariates] if covariates is None else [covariates]
    names = list(covariates) if covariates is not None and not isinstance(covariates, str) else names
    table = tally.keep(*names)
    if not table.covariates or arms.name in names:
        known = [factor.name for factor in tally.covariates]
        raise AnalysisError("odds over strata need a covariate", f"This tally has: {listed(known) or 'none'}.")
    part = table.moments_of(metric)
    if not part.metric.binary:
        raise AnalysisError(
            f"{part.metric.name} is not a 0/1 metric, so it has no odds",
            "Name one that is, or declare its bounds (0, 1) and resolution 1.",
        )
    base = arms.index(control) if control is not None else arms.levels.index(arms.control)
    axis = table.axes.index(arms.name)
    people, events = (np.moveaxis(cells, axis, 0).reshape(len(arms.levels), -1) for cells in (part.counts, part.sums))
    levels = [_joined(table, place) for place in range(people.shape[1])]
    return tuple(
        _compared(
            CommonOdds(
                part.metric.name, tuple(factor.name for factor in table.covariates), arms.levels[arm],
                arms.levels[base], confidence, alternative, (),
            ),
            levels, people[[base, arm]].T, events[[base, arm]].T,
        )
        for arm in range(len(arms.levels))
        if arm != base
    )  # fmt: skip


def _joined(table: Tally, place: int) -> str:
    """Return the levels of one stratum as a text."""
    at = np.unravel_index(place, tuple(len(factor.levels) for factor in table.covariates))
    return ", ".join(factor.labels[int(index)] for factor, index in zip(table.covariates, at, strict=True))


@dataclass(frozen=True, eq=False)
class _Cells:
    """The informative strata: events and others of the arm (a, b) and of the control (c, d), as floats."""

    a: Floats
    b: Floats
    c: Floats
    d: Floats

    @property
    def arm(self) -> Floats:
        return self.a + self.b

    @property
    def control(self) -> Floats:
        return self.c + self.d

    @property
    def events(self) -> Floats:
        return self.a + self.c

    @property
    def n(self) -> Floats:
        return self.arm + self.control


def _compared(base: CommonOdds, levels: Sequence[str], people: Any, events: Any) -> CommonOdds:
    """Return one arm against the control; ``people`` and ``events`` have a row per stratum, the control first."""
    rates = [
        Rates(int(x[1]), int(n[1]), int(x[0]), int(n[0])) if n[0] and n[1] else None
        for x, n in zip(events, people, strict=True)
    ]
    informative = [r is not None and 0 < r.all_events < r.total for r in rates]
    x, n = events[informative].astype(np.float64), people[informative].astype(np.float64)
    cells = _Cells(x[:, 1], n[:, 1] - x[:, 1], x[:, 0], n[:, 0] - x[:, 0])
    weights = iter((cells.b * cells.c / cells.n / max((cells.b * cells.c / cells.n).sum(), 1e-300)).tolist())
    base = replace(
        base,
        levels=tuple(
            OddsAtLevel(
                level, (int(n[0]), int(n[1])), (int(x[0]), int(x[1])),
                _known(rate.odds_ratio) if rate else None,
                rate.odds_ratio_interval(1 - base.confidence, base.alternative) if rate else None,
                next(weights) if inside else 0.0,
            )
            for level, n, x, rate, inside in zip(levels, people, events, rates, informative, strict=True)
            if n.sum()
        ),
    )  # fmt: skip
    return _pooled(base, cells) if len(cells.a) else replace(base, note=_EMPTY)


def _known(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _pooled(base: CommonOdds, cells: _Cells) -> CommonOdds:
    """Add what all strata say together."""
    a, b, c, d, n = cells.a, cells.b, cells.c, cells.d, cells.n
    expected = cells.arm * cells.events / n
    variance = float((expected * cells.control * (n - cells.events) / (n * np.maximum(n - 1, 1))).sum())
    z = float((a - expected).sum()) / math.sqrt(variance)
    base = replace(base, z=z, p=t_tail(z, math.inf, base.alternative), note=_FEW if _few(cells, expected) else "")
    above, below = float((a * cells.control / n).sum()), float((c * cells.arm / n).sum())
    base = replace(base, **_risk_difference(base, cells, above - below))
    if above and below:
        share = float(((cells.arm * cells.control * cells.events - a * c * n) / n**2).sum() / (above * below))
        ratio = above / below
        base = replace(base, risk_ratio=ratio, risk_ratio_interval=_log_interval(base, ratio, math.sqrt(share)))
    r, s = a * d / n, b * c / n
    if not r.sum() or not s.sum():
        return base
    odds = float(r.sum() / s.sum())
    p, q = (a + d) / n, (b + c) / n
    log_variance = (
        (p @ r) / (2 * r.sum() ** 2) + (p @ s + q @ r) / (2 * r.sum() * s.sum()) + (q @ s) / (2 * s.sum() ** 2)
    )
    se = math.sqrt(float(log_variance))
    base = replace(base, odds_ratio=odds, se_log=se, interval=_log_interval(base, odds, se))
    return _with_equal_odds(base, cells, odds) if len(a) > 1 else base


def _few(cells: _Cells, expected: Floats) -> bool:
    """Return whether events cannot lie far enough from what is expected for a χ² (Mantel and Fleiss 1980)."""
    least = np.maximum(0.0, cells.events - cells.control)
    most = np.minimum(cells.arm, cells.events)
    return bool(min((expected - least).sum(), (most - expected).sum()) < LEAST_REACH)


def _log_interval(base: CommonOdds, ratio: float, se: float) -> tuple[float, float]:
    low, high = t_interval(math.log(ratio), se, math.inf, base.confidence, base.alternative)
    return math.exp(low), math.exp(high)


def _risk_difference(base: CommonOdds, cells: _Cells, over: float) -> dict[str, Any]:
    """Return the common difference of rates with Sato's variance, for few large and for many small strata."""
    a, c, n = cells.a, cells.c, cells.n
    of_arm, of_control = cells.arm / n, cells.control / n
    weight = float((cells.arm * of_control).sum())
    difference = over / weight
    slope = c * of_arm**2 - a * of_control**2 + of_arm * of_control * (cells.control - cells.arm) / 2
    rest = (a * cells.d + c * cells.b) / n / 2
    variance = max(0.0, float(difference * slope.sum() + rest.sum())) / weight**2
    interval = t_interval(difference, math.sqrt(variance), math.inf, base.confidence, base.alternative)
    return {"risk_difference": difference, "risk_difference_interval": interval}


def _with_equal_odds(base: CommonOdds, cells: _Cells, odds: float) -> CommonOdds:
    """Add Breslow and Day's test: events of the arm against those that the common odds ratio would give."""
    fitted = _fitted_events(cells, odds)
    four = np.array([fitted, cells.arm - fitted, cells.events - fitted, cells.control - cells.events + fitted])
    variances = 1 / (1 / four).sum(axis=0)
    away = cells.a - fitted
    plain = float((away**2 / variances).sum())
    chi2 = max(0.0, plain - float(away.sum()) ** 2 / float(variances.sum()))
    df = len(fitted) - 1
    note = _THIN if (four < LEAST_REACH).mean() > 0.2 else ""
    equal = EqualOdds(chi2, df, chi2_tail(chi2, df), plain, chi2_tail(plain, df))
    return replace(base, equal=equal, note="; ".join(filter(None, (base.note, note))))


def _fitted_events(cells: _Cells, odds: float) -> Floats:
    """Return the events of the arm in each stratum at which its odds ratio is the common one: a root of a quadratic."""
    square = 1 - odds
    linear = cells.control - cells.events + odds * (cells.arm + cells.events)
    constant = odds * cells.arm * cells.events
    root = np.sqrt(np.maximum(0.0, linear**2 + 4 * square * constant))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(linear > 0, 2 * constant / (linear + root), (root - linear) / (2 * square)))
