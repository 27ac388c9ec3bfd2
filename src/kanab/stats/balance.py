"""Balance: do the arms hold alike people, and do they have values equally often? If not, an effect compares others.

χ² of arm × level for covariates and for who has a value; for numbers from before (N − 1) times the share of squares
between arms, which is a χ² too. All checks of an experiment are corrected as one family (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import scipy

from kanab.arguments import check_arguments
from kanab.choices import OPTIMAL_AT
from kanab.errors import AnalysisError
from kanab.stats.distributions import chi2_tail
from kanab.stats.gram import Floats
from kanab.stats.multiplicity import corrected_array
from kanab.stats.noise_variance import class_mean_noise, floats
from kanab.stats.sequential import any_time_f_p, log_evidence_of_counts, tuning
from kanab.stats.srm import independence, sample_ratio
from kanab.tabular import number, p_value
from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.factor import Factor, Level, label
from kanab.tally.metric import Metric
from kanab.tally.tally import Tally

BALANCE_ALARM = 0.001
"""A corrected p below this is an alarm: experiments have many covariates, and are looked at by many people."""

About = Literal["covariate", "values", "number"]
"""A check is about the levels of a covariate, who has a value of a metric, or the mean of a number from before."""

_HAS_VALUE = (True, False)


@dataclass(frozen=True)
class BalanceCheck:
    """χ² of arm × level, and the arm and level that fit least: ``share`` of the arm's people, ``elsewhere`` of others'.

    ``name`` is that of a covariate, or of a metric (about "values"), whose ``level`` then is True: has a value. Of a
    "number" the level is None, and ``share`` and ``elsewhere`` are means.
    ``p_any_time`` holds however often one looks; None where p is for one look. ``p_adjusted`` is the one that decides,
    corrected over all checks. ``differences`` are standardised (Cohen's d), of an arm's mean from the control's.
    """

    about: About
    name: str
    chi2: float
    df: int
    p: float
    level: Level
    arm: Level
    share: float
    elsewhere: float
    differences: Mapping[Level, float] = field(default_factory=dict)
    p_any_time: float | None = None
    p_adjusted: float = 1.0

    @property
    def alarm(self) -> bool:
        """Whether chance does not explain it."""
        return self.p_adjusted < BALANCE_ALARM

    def __str__(self) -> str:
        what = f"{self.name} = {label(self.level)}" if self.about == "covariate" else f"has a value of {self.name}"
        test = f"χ²({self.df}) = {number(self.chi2)}, p = {p_value(self.p)}"
        if self.about == "number":
            return (
                f"{self.name}: {test}; mean: {label(self.arm)} {number(self.share)}, elsewhere {number(self.elsewhere)}"
            )
        most = f"{label(self.arm)} {self.share:.1%}, elsewhere {self.elsewhere:.1%}"
        return f"{self.name}: {test}; {what}: {most}"


@dataclass(frozen=True)
class _Counts:
    """The people of one check: arms down, levels across."""

    about: About
    table: Tally
    arms: Factor
    levels: Factor
    people: Floats
    noise: Floats | None = None
    """The covariance of the noise in people, row by row."""


@check_arguments()
def check_balance(
    tables: Sequence[Tally], experiment: str = "arm", *, control: Level = None, numbers: Sequence[str] = ()
) -> list[BalanceCheck]:
    """Check every covariate of an experiment's tables, and who has a value of metrics that leave missing values out.

    ``numbers`` are metrics from before the experiment, whose means should be alike, too. Where everybody has the same
    level, or a value, there is nothing to check. Raises `AnalysisError` where the name is that of a covariate,
    `LevelError` where it, or the control, is unknown.

    >>> from kanab.datasets import eighteen
    >>> for check in check_balance([eighteen()]):
    ...     print(check)
    tier: χ²(2) = 0, p = 1.000; tier = 1: A 33.3%, elsewhere 33.3%
    """
    checks = [_check(counts, control) for counts in _counts(tables, experiment)]
    return _corrected([*checks, *_number_checks(tables, experiment, control, numbers)])


@check_arguments(skip=("shares",))
def check_balance_any_time(
    tables: Sequence[Tally],
    shares: Mapping[Any, float] | None = None,
    experiment: str = "arm",
    *,
    control: Level = None,
    optimal_at: int = OPTIMAL_AT,
    numbers: Sequence[str] = (),
) -> list[BalanceCheck]:
    """Check the same at any time: the checks may be repeated at every look.

    The arms of each level's people are a mixture of multinomials (as in `sample_ratio_any_time`), set against the
    likeliest shares that are the same at every level: an unplanned sample ratio by itself is no imbalance. Holds for
    any number of looks as long as everyone's arm is drawn independently of the others'. ``shares`` are those planned.
    Means of ``numbers`` are compared as F tests are that may be repeated.
    Raises what `sample_ratio` and `check_balance` raise.
    """
    if type(optimal_at) is not int or optimal_at < 1:
        raise AnalysisError("optimal_at must be a positive whole number", "For example 10_000.")
    checks = []
    for counts in _counts(tables, experiment):
        if counts.noise is not None:  # people are no whole numbers of a multinomial then; χ² is that of a normal
            check = _check(counts, control)
            p = any_time_f_p(check.p, check.df, counts.table.total, confidence=1 - BALANCE_ALARM, optimal_at=optimal_at)
            checks.append(replace(check, p_any_time=p))
            continue
        planned = sample_ratio(counts.table, shares, experiment).shares
        evidence = log_evidence_of_imbalance(counts.people, np.array(list(planned.values())), optimal_at)
        checks.append(replace(_check(counts, control), p_any_time=math.exp(-max(0.0, evidence))))
    people = sum(tables[0].people_by(experiment).values()) if tables else 0
    for check in _number_checks(tables, experiment, control, numbers):
        p = any_time_f_p(check.p, check.df, people, confidence=1 - BALANCE_ALARM, optimal_at=optimal_at)
        checks.append(replace(check, p_any_time=p))
    return _corrected(checks)


def _corrected(checks: Sequence[BalanceCheck]) -> list[BalanceCheck]:
    p = np.array([check.p if check.p_any_time is None else check.p_any_time for check in checks])
    adjusted = corrected_array(p, "holm").tolist() if checks else []
    return [replace(check, p_adjusted=value) for check, value in zip(checks, adjusted, strict=True)]


def _counts(tables: Sequence[Tally], experiment: str) -> Iterator[_Counts]:
    """Yield the people of every check, each once, where there is something to compare."""
    seen: set[tuple[About, str]] = set()
    for table in tables:
        arms = table.factor(experiment)
        if arms.role != "arm":
            raise AnalysisError(f"{arms.name!r} is a covariate, not an experiment", "Name the arm column.")
        everyone = marginal(table.people, table.axes, (arms.name,))
        parts = []
        for factor in table.covariates:
            keep = arms.name, factor.name
            noise = None if table.noise is None else np.diag(_by(table, table.noise.people, keep).ravel())
            parts.append(_Counts("covariate", table, arms, factor, _by(table, table.people, keep), noise))
        for part in table.moments:
            if part.metric.missing == "exclude":
                have = marginal(part.counts, table.axes, (arms.name,))
                people = np.stack([have, everyone - have], axis=1).astype(np.float64)
                levels = Factor(part.metric.name, _HAS_VALUE)
                parts.append(_Counts("values", table, arms, levels, people, _values_noise(table, arms, part.metric)))
        for counts in parts:
            place = counts.about, counts.levels.name
            if place not in seen and min(np.count_nonzero(counts.people.sum(axis=side)) for side in (0, 1)) > 1:
                yield counts
            seen.add(place)


def _values_noise(table: Tally, arms: Factor, metric: Metric) -> Floats | None:
    """Return the covariance of the noise in those who have a value and those who have none, arm by arm."""
    if table.noise is None:
        return None
    cells = table.noise.counts_of(metric.name), table.noise.people
    have, everyone = (floats(marginal(each, table.axes, (arms.name,))) for each in cells)
    blocks = np.zeros((2 * len(have), 2 * len(have)))
    for place, (h, n) in enumerate(zip(have, everyone, strict=True)):
        at = slice(2 * place, 2 * place + 2)
        blocks[at, at] = [[h, -h], [-h, h + n]]
    return blocks


def _by(table: Tally, cells: Cells, keep: tuple[str, str]) -> Floats:
    """Return the people of every arm (rows) and level (columns)."""
    counts = marginal(cells, table.axes, keep).astype(np.float64)
    return counts if table.axes.index(keep[0]) < table.axes.index(keep[1]) else counts.T


def _check(counts: _Counts, control: Level) -> BalanceCheck:
    people = counts.people
    total, rows, columns = people.sum(), people.sum(axis=1), people.sum(axis=0)
    chi2, df, residuals = independence(people, counts.noise)
    base = counts.arms.index(counts.arms.control if control is None else control)
    arm, level = _worst(residuals[:, :1] if counts.about == "values" else residuals, base)
    others = total - rows[arm]
    return BalanceCheck(
        counts.about, counts.levels.name, chi2, df, chi2_tail(chi2, df), counts.levels.levels[level],
        counts.arms.levels[arm], float(people[arm, level] / rows[arm]),
        float((columns[level] - people[arm, level]) / others), _differences(counts, base),
    )  # fmt: skip


def _number_checks(
    tables: Sequence[Tally], experiment: str, control: Level, numbers: Sequence[str]
) -> Iterator[BalanceCheck]:
    """Yield the check of every number's means, where it differs between people of several arms."""
    for name in numbers:
        table = next((each for each in tables if name in each.metric_names), None)
        squares = None if table is None else table.squares(name, (experiment,))
        if table is not None and squares is not None:
            part, arms = table.moments_of(name), table.factor(experiment)
            n, sums = (marginal(cells, table.axes, (arms.name,)) for cells in (part.counts, part.sums))
            total, everything = int(n.sum()), int(sums.sum())
            around = (int(squares.sum()) * total - everything**2) / max(total, 1)
            noise = None if table.noise is None else class_mean_noise(table.keep(), name)
            if (around > 0 or noise is not None) and np.count_nonzero(n > 0) > 1:
                yield _number_check(
                    part.metric, arms, (n, sums, squares), control, around=max(0.0, around), noise=noise
                )


def _number_check(
    metric: Metric,
    arms: Factor,
    cells: tuple[Cells, Cells, Cells],
    control: Level,
    *,
    around: float,
    noise: Floats | None,
) -> BalanceCheck:
    """Compare the arms' means of a number, given its squares around the common mean."""
    people, sums, squares = cells
    total, everything = int(people.sum()), int(sums.sum())
    some = people > 0
    n = people.astype(np.float64)
    off = np.zeros(len(n))  # each arm's sum less what the common mean makes of it, subtracted as integers
    off[some] = [(s * total - everything * k) / total for s, k in zip(sums[some], people[some], strict=True)]
    means = np.divide(off, n, out=np.zeros_like(off), where=some)
    df = int(np.count_nonzero(some)) - 1
    base = arms.index(arms.control if control is None else control)
    if noise is None:
        chi2 = float((total - 1) * np.sum(off * means) / around)
        spread = np.sqrt(np.maximum(n * (1 - n / total), 1e-300) * around / (total - 1))
        residuals = np.where(some, off / spread, 0.0)
    else:
        weights = np.where(some, 1 / (around / (total - 1) / np.maximum(n, 1.0) + noise), 0.0)
        means = means - weights @ means / weights.sum()
        chi2, residuals = float(weights @ means**2), means * np.sqrt(weights)
    arm, _ = _worst(residuals[:, None], base)
    scale = metric.scale
    within = [
        max(0.0, (int(q) * int(k) - int(s) ** 2) / int(k)) if k > 0 else 0.0
        for k, s, q in zip(people, sums, squares, strict=True)
    ]
    differences = {}
    for place, level in enumerate(arms.levels):
        freedom = n[place] + n[base] - 2
        pooled = (within[place] + within[base]) / freedom if freedom > 0 else 0.0
        if place != base and some[place] and some[base] and pooled > 0:
            differences[level] = float((means[place] - means[base]) / math.sqrt(pooled))
    others = total - int(people[arm])
    return BalanceCheck(
        "number", metric.name, chi2, df, chi2_tail(chi2, df), None, arms.levels[arm],
        int(sums[arm]) / int(people[arm]) / scale, (everything - int(sums[arm])) / others / scale, differences,
    )  # fmt: skip


def _worst(residuals: Floats, control: int) -> tuple[int, int]:
    """Return the arm and the level that fit least; of two arms, equally far off, the one that is not the control."""
    sizes = np.abs(residuals)
    sizes[control] *= 1 - 1e-9
    arm, level = np.unravel_index(int(np.argmax(sizes)), sizes.shape)
    return int(arm), int(level)


def _differences(counts: _Counts, control: int) -> dict[Level, float]:
    """Return Cohen's d of every arm from the control: the difference of mean scores over their pooled deviation."""
    scores = counts.levels.scores
    if scores is None:
        return {}
    known = [place for place, score in enumerate(scores) if score is not None]
    score = np.array([scores[place] for place in known], dtype=np.float64)
    people = counts.people[:, known]
    n = people.sum(axis=1)
    sure = np.maximum(n, 1.0)
    score = score - (people.sum(axis=0) @ score) / max(people.sum(), 1.0)
    means = people @ score / sure
    squares = np.sum(people * (score - means[:, None]) ** 2, axis=1)
    differences = {}
    for place, arm in enumerate(counts.arms.levels):
        df = n[place] + n[control] - 2
        pooled = (squares[place] + squares[control]) / df if df > 0 else 0.0
        if place != control and pooled > 0:
            differences[arm] = float((means[place] - means[control]) / math.sqrt(pooled))
    return differences


def log_evidence_of_imbalance(people: Floats, shares: Floats, optimal_at: int) -> float:
    """Return the logarithm of the evidence that the arms' shares differ between levels, whatever they are in all.

    ``people`` have arms down and levels across; ``shares`` of the arms are planned and add up to 1.
    """
    concentration = optimal_at / (people.shape[1] * tuning(BALANCE_ALARM, 2))
    levels = [log_evidence_of_counts(column.tolist(), shares.tolist(), concentration) for column in people.T]
    rows = people.sum(axis=1)
    return math.fsum(levels) - float(scipy.special.kl_div(rows, rows.sum() * shares).sum())
