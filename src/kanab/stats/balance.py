"""Balance: do the arms hold alike people, and do they have values equally often? If not, an effect compares others.

Two kinds of checks, each a χ² of arm × level on counts of people: every covariate, its missing level among the
others, and for every metric whose missing values are left out, who has a value. Levels that were merged are merged
alike in all arms, so that χ² holds for them, too. All checks of an experiment are corrected as one family (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy import special

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError
from kanab.stats.distributions import chi2_tail
from kanab.stats.gram import Floats
from kanab.stats.multiplicity import corrected_array
from kanab.stats.sequential import TUNED_AT, log_evidence_of_counts, tuning
from kanab.stats.srm import sample_ratio
from kanab.tabular import number, p_value
from kanab.tally.cells import Cells, marginal
from kanab.tally.factor import Factor, Level, label
from kanab.tally.tally import Tally

BALANCE_ALARM = 0.001
"""A corrected p below this is an alarm: experiments have many covariates, and are looked at by many people."""

About = Literal["covariate", "values"]
"""A check is about the levels of a covariate, or about who has a value of a metric."""

_HAS_VALUE = (True, False)


@dataclass(frozen=True)
class BalanceCheck:
    """χ² of arm × level, and the arm and level that fit least: ``share`` of the arm's people, ``elsewhere`` of others'.

    ``name`` is that of a covariate, or of a metric (about "values"), whose ``level`` then is True: has a value.
    ``p_any_time`` holds however often one looks; None where p is for one look. ``p_adjusted`` is the one that decides,
    corrected over all checks. ``differences`` are standardised (Cohen's d), of an arm's mean score from the control's.
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


@check_arguments()
def check_balance(tables: Sequence[Tally], experiment: str = "arm", *, control: Level = None) -> list[BalanceCheck]:
    """Check every covariate of an experiment's tables, and who has a value of metrics that leave missing values out.

    Where everybody has the same level, or a value, there is nothing to check. Raises `AnalysisError` where the name is
    that of a covariate, `LevelError` where it, or the control, is unknown.

    >>> from kanab.datasets import eighteen
    >>> for check in check_balance([eighteen()]):
    ...     print(check)
    tier: χ²(2) = 0, p = 1.000; tier = 1: A 33.3%, elsewhere 33.3%
    """
    return _corrected([_check(counts, control) for counts in _counts(tables, experiment)])


@check_arguments(skip=("shares",))
def check_balance_any_time(
    tables: Sequence[Tally],
    shares: Mapping[Any, float] | None = None,
    experiment: str = "arm",
    *,
    control: Level = None,
    tuned_at: int = TUNED_AT,
) -> list[BalanceCheck]:
    """Check the same at any time: the checks may be repeated at every look.

    The arms of each level's people are a mixture of multinomials (as in `sample_ratio_any_time`), set against the
    likeliest shares that are the same at every level: an unplanned sample ratio by itself is no imbalance. Holds for
    any number of looks as long as everyone's arm is drawn independently of the others'. ``shares`` are those planned.
    Raises what `sample_ratio` and `check_balance` raise.

    >>> from kanab.datasets import eighteen
    >>> [check.p_any_time for check in check_balance_any_time([eighteen()])]
    [1.0]
    """
    if type(tuned_at) is not int or tuned_at < 1:
        raise AnalysisError("tuned_at must be a positive whole number", "For example 10_000.")
    checks = []
    for counts in _counts(tables, experiment):
        planned = sample_ratio(counts.table, shares, experiment).shares
        evidence = log_evidence_of_imbalance(counts.people, np.array(list(planned.values())), tuned_at)
        checks.append(replace(_check(counts, control), p_any_time=math.exp(-max(0.0, evidence))))
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
        parts = [
            _Counts("covariate", table, arms, factor, _by(table, table.people, (arms.name, factor.name)))
            for factor in table.covariates
        ]
        for part in table.moments:
            if part.metric.missing == "exclude":
                have = marginal(part.counts, table.axes, (arms.name,))
                people = np.stack([have, everyone - have], axis=1).astype(np.float64)
                parts.append(_Counts("values", table, arms, Factor(part.metric.name, _HAS_VALUE), people))
        for counts in parts:
            place = counts.about, counts.levels.name
            if place not in seen and min(np.count_nonzero(counts.people.sum(axis=side)) for side in (0, 1)) > 1:
                yield counts
            seen.add(place)


def _by(table: Tally, cells: Cells, keep: tuple[str, str]) -> Floats:
    """Return the people of every arm (rows) and level (columns)."""
    counts = marginal(cells, table.axes, keep).astype(np.float64)
    return counts if table.axes.index(keep[0]) < table.axes.index(keep[1]) else counts.T


def _check(counts: _Counts, control: Level) -> BalanceCheck:
    people = counts.people
    total, rows, columns = people.sum(), people.sum(axis=1), people.sum(axis=0)
    expected = np.outer(rows, columns) / total
    some = expected > 0
    chi2 = float(np.sum((people - expected)[some] ** 2 / expected[some]))
    df = (np.count_nonzero(rows) - 1) * (np.count_nonzero(columns) - 1)
    spread = expected * np.outer(1 - rows / total, 1 - columns / total)
    residuals = np.where(some, (people - expected) / np.sqrt(np.where(some, spread, 1.0)), 0.0)
    base = counts.arms.index(counts.arms.control if control is None else control)
    arm, level = _worst(residuals[:, :1] if counts.about == "values" else residuals, base)
    others = total - rows[arm]
    return BalanceCheck(
        counts.about, counts.levels.name, chi2, int(df), chi2_tail(chi2, int(df)), counts.levels.levels[level],
        counts.arms.levels[arm], float(people[arm, level] / rows[arm]),
        float((columns[level] - people[arm, level]) / others), _differences(counts, base),
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


def log_evidence_of_imbalance(people: Floats, shares: Floats, tuned_at: int) -> float:
    """Return the logarithm of the evidence that the arms' shares differ between levels, whatever they are in all.

    ``people`` have arms down and levels across; ``shares`` of the arms are planned and add up to 1.
    """
    concentration = tuned_at / (people.shape[1] * tuning(BALANCE_ALARM, 2))
    levels = [log_evidence_of_counts(column.tolist(), shares.tolist(), concentration) for column in people.T]
    rows = people.sum(axis=1)
    return math.fsum(levels) - float(special.kl_div(rows, rows.sum() * shares).sum())
