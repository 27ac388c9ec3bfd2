"""The sample ratio (SRM): did people arrive in the planned shares? If not, nothing else can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError
from kanab.stats.distributions import chi2_tail
from kanab.stats.gram import Floats
from kanab.stats.noise_variance import floats
from kanab.tabular import number, p_value
from kanab.tally.cell_arrays import marginal
from kanab.tally.factor import Level, label
from kanab.tally.tally import Tally

SAMPLE_RATIO_ALARM = 0.001
"""A sample ratio less likely than this is an alarm: the limit that experimenters commonly use."""

LIVE_SAMPLE_RATIO_ALARM = 1e-4
"""The same limit where the ratio is tested every hour for weeks: about one false alarm in a hundred experiments."""

FAULTY_RESIDUAL = 3.0
"""A standardised residual beyond this, up or down, names an arm at fault."""


def is_alarm(p: float | None, limit: float = SAMPLE_RATIO_ALARM) -> bool:
    """Return whether a sample ratio with this p-value is an alarm; one that could not be tested is none."""
    return p is not None and p < limit


def alarm_limit(limit: float) -> str:
    """Return the limit of an alarm as it stands beside every p that it judges."""
    return f"alarm below {limit:g}"


@dataclass(frozen=True)
class SampleRatio:
    """χ² of the arms' people against the shares; a residual beyond ±`FAULTY_RESIDUAL` names the arm at fault."""

    chi2: float
    df: int
    p: float
    residuals: dict[Level, float]
    shares: dict[Level, float]
    declared: bool

    def __str__(self) -> str:
        against = "the planned shares" if self.declared else "equal shares (none were declared)"
        parts = ", ".join(f"{label(arm)} {residual:+.2f}" for arm, residual in self.residuals.items())
        return f"sample ratio against {against}: χ²({self.df}) = {number(self.chi2)}, p = {p_value(self.p)}; {parts}"


@check_arguments(skip=("shares",))
def sample_ratio(tally: Tally, shares: Mapping[Any, float] | None = None, experiment: str = "arm") -> SampleRatio:
    """Test people per arm against the planned shares (any positive numbers), or against equal ones.

    Where people were counted with noise, its variance is added to that of chance. Raises `AnalysisError` where there
    are not two arms with people, or not a share for each of them.

    >>> from kanab.datasets import eighteen
    >>> print(sample_ratio(eighteen(), {"A": 2, "B": 1}))
    sample ratio against the planned shares: χ²(1) = 2.250, p = 0.134; A -1.50, B +1.50
    """
    factor = tally.factor(experiment)
    if factor.role != "arm" or len(factor.levels) < 2:
        raise AnalysisError(f"{factor.name!r} does not have two arms to compare", "Name an experiment.")
    people = tally.people_by(factor.name)
    total = sum(people.values())
    if total <= 0:
        raise AnalysisError("nobody has been counted", "Count some people first.")
    planned = dict.fromkeys(people, 1.0) if shares is None else _planned(shares, factor.index, people)
    whole = math.fsum(planned.values())
    share = {arm: planned[arm] / whole for arm in people}
    expected = {arm: total * share[arm] for arm in people}
    chi2 = math.fsum((people[arm] - expected[arm]) ** 2 / expected[arm] for arm in people)
    residuals = {arm: (people[arm] - expected[arm]) / math.sqrt(expected[arm] * (1 - share[arm])) for arm in people}
    df = len(people) - 1
    noise = people_noise(tally, factor.name)
    if noise is not None:
        spread = multinomial(np.array([*share.values()]), total) + noise_off_shares(np.array([*share.values()]), noise)
        off = np.array([people[arm] - expected[arm] for arm in people])
        # deviations add up to 0: the last one is left out, because the others imply it
        chi2 = float(off[:-1] @ np.linalg.solve(spread[:-1, :-1], off[:-1]))
        residuals = dict(zip(people, (off / np.sqrt(np.diag(spread))).tolist(), strict=True))
    return SampleRatio(chi2, df, chi2_tail(chi2, df), residuals, share, shares is not None)


def _planned(shares: Mapping[Any, float], index: Any, people: Mapping[Level, int]) -> dict[Level, float]:
    arms = list(people)
    planned = {arms[index(arm)]: share for arm, share in shares.items()} if isinstance(shares, Mapping) else {}
    numbers = [value for value in planned.values() if isinstance(value, Real) and 0 < value < math.inf]
    if len(numbers) != len(arms):
        raise AnalysisError("shares need one positive number for every arm", "For example {'A': 9, 'B': 1}.")
    return {arm: float(share) for arm, share in planned.items()}


# ── people counted with noise ──────────────────────────────────────────────────────────────────


def people_noise(tally: Tally, name: str) -> Floats | None:
    """Return the variance of the noise in people per level of a factor; None where they were counted exactly."""
    return None if tally.noise is None else floats(marginal(tally.noise.people, tally.axes, (name,)))


def multinomial(shares: Floats, people: float) -> Floats:
    """Return the covariance of people per arm who are drawn by shares."""
    return np.asarray(people * (np.diag(shares) - np.outer(shares, shares)))


def noise_off_shares(shares: Floats, noise: Floats) -> Floats:
    """Return the covariance of the noise in people per arm less their shares of everybody, who are noisy as well."""
    off = np.eye(len(shares)) - shares[:, None]
    return np.asarray((off * noise) @ off.T)


def independence(people: Floats, noise: Floats | None = None) -> tuple[float, int, Floats]:
    """Return χ², its degrees of freedom and standardised residuals of arms by levels: Pearson's, or with noise.

    ``noise`` is the covariance of its cells, row by row. Whether arms and levels are independent is asked of people
    less what both marginals make of them, whose covariance under independence is known; that of the noise is added.
    """
    if noise is None:
        total, rows, columns = people.sum(), people.sum(axis=1), people.sum(axis=0)
        expected = np.outer(rows, columns) / total
        some = expected > 0
        chi2 = float(np.sum((people - expected)[some] ** 2 / expected[some]))
        df = (int(np.count_nonzero(rows)) - 1) * (int(np.count_nonzero(columns)) - 1)
        spread = expected * np.outer(1 - rows / total, 1 - columns / total)
        residuals = np.where(some, (people - expected) / np.sqrt(np.where(some, spread, 1.0)), 0.0)
        return chi2, df, residuals
    rows, columns = (np.maximum(people.sum(axis=side), 0.0) for side in (1, 0))
    p, q = rows / rows.sum(), columns / columns.sum()
    off_rows, off_columns = (np.eye(len(share)) - share[:, None] for share in (p, q))
    project = np.kron(off_rows, off_columns)
    covariance = np.kron(multinomial(p, 1.0), multinomial(q, people.sum())) + project @ noise @ project.T
    off = off_rows @ people @ off_columns.T
    df = (len(p) - 1) * (len(q) - 1)
    free = np.arange(people.size).reshape(people.shape)[:-1, :-1].ravel()
    chi2 = float(off.ravel()[free] @ np.linalg.solve(covariance[np.ix_(free, free)], off.ravel()[free]))
    return chi2, df, off / np.sqrt(np.diag(covariance)).reshape(people.shape)


def log_evidence_with_noise(people: Floats, shares: Floats, noise: Floats, concentration: float) -> float:
    """Return the logarithm of the evidence against planned shares in people per arm that carry noise.

    Deviations from the shares have independent increments with a known covariance V, noise and all, so that
    exp(λ'X − λ'Vλ/2) is a martingale. λ is mixed over a normal distribution that is the narrower, the larger its
    concentration; without noise this is the normal limit of the mixture of multinomials.
    """
    total = float(people.sum())
    off = people - total * shares
    prior = multinomial(shares, concentration)[:-1, :-1]
    spread = multinomial(shares, total) + noise_off_shares(shares, noise)
    wide = prior + spread[:-1, :-1]
    _, wider = np.linalg.slogdet(wide)
    _, narrow = np.linalg.slogdet(prior)
    return float(off[:-1] @ np.linalg.solve(wide, off[:-1]) - wider + narrow) / 2
