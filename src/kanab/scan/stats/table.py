"""What every scan returns: its tests as rows and as columns, what was expected, what was found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kanab.errors import LevelError, listed
from kanab.scan.pairs import Pairs
from kanab.scan.stats.lines import Lines
from kanab.scan.stats.verdicts import ORDER, Rules, Verdict
from kanab.stats.gram import Floats
from kanab.tally.metric import Metric
from kanab.tally.tally import Tally


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One test of a scan. Numbers are None where the test cannot be done; ``note`` says why.

    ``F``, ``df`` and ``p`` are the paper's pooled test; the robust one carries the verdict, and
    ``p_adjusted`` is its p, corrected over the family. ``could_miss`` is the largest difference
    of effects that the corrected interval does not rule out.
    """

    metric: str
    F: float | None
    df: tuple[float, float] | None
    p: float | None
    variance: str
    F_robust: float | None
    df_robust: tuple[float, float] | None
    p_robust: float | None
    p_adjusted: float | None
    assignment_p: float | None
    could_miss: float | None
    verdict: Verdict
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The test as plain data."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


@dataclass(frozen=True, eq=False)
class Quantiles:
    """Sorted p-values beside what as many tests without any effect would show."""

    expected: Floats
    observed: Floats


@dataclass(frozen=True, eq=False)
class Scan:
    """Lines and the rules by which they were judged."""

    metrics: tuple[Metric, ...]
    lines: Lines
    rules: Rules

    def __len__(self) -> int:
        return len(self.lines.p)

    @property
    def metric_of(self) -> NDArray[np.intp]:
        """The number of each line's metric."""
        return np.arange(len(self)) % len(self.metrics)

    @property
    def tested(self) -> int:
        """How many tests could be done."""
        return int(np.sum(~np.isnan(self.lines.p_adjusted)))

    @property
    def families(self) -> dict[str, int]:
        """Tests per family of the correction."""
        done = ~np.isnan(self.lines.p_adjusted)
        numbers = self.rules.families(self.metric_of)
        names = [metric.name for metric in self.metrics] if self.rules.family == "metric" else ["all"]
        return {name: int(np.sum(done & (numbers == number))) for number, name in enumerate(names)}

    @property
    def expected(self) -> float:
        """How many raw p-values below alpha are to be expected if there is nothing to find."""
        return self.tested * self.rules.alpha

    @property
    def observed(self) -> int:
        """How many raw p-values of the robust test lie below alpha."""
        with np.errstate(invalid="ignore"):
            return int(np.sum(self.lines.p_robust[~np.isnan(self.lines.p_adjusted)] < self.rules.alpha))

    def verdicts(self) -> dict[Verdict, int]:
        """How many lines have each verdict."""
        names, counts = np.unique(self.lines.verdict.astype(str), return_counts=True)
        return dict(zip(names.tolist(), counts.tolist(), strict=True))

    def quantiles(self, metric: str | None = None, most: int = 500) -> Quantiles:
        """Observed against expected p-values; of more than ``most`` all small ones and some of the others."""
        chosen = ~np.isnan(self.lines.p_adjusted)
        if metric is not None:
            chosen &= np.array([one.name == metric for one in self.metrics])[self.metric_of]
        observed = np.sort(self.lines.p_robust[chosen])
        expected = (np.arange(len(observed)) + 0.5) / max(1, len(observed))
        if len(observed) > most:
            spaced = np.geomspace(1, len(observed), most).astype(np.intp) - 1
            kept = np.unique(np.concatenate([spaced, np.linspace(0, len(observed) - 1, most).astype(np.intp)]))
            observed, expected = observed[kept], expected[kept]
        return Quantiles(expected, observed)

    def summary(self) -> dict[str, Any]:
        """What the whole scan was, as plain data."""
        return {
            "family": self.rules.family,
            "correction": self.rules.correction,
            "alpha": self.rules.alpha,
            "k": self.rules.k,
            "tests": self.families,
            "expected": self.expected,
            "observed": self.observed,
        }

    def outcome(self, line: int, broken: str) -> dict[str, Any]:
        """The common part of one line; ``broken`` is what a failed assignment check means here."""
        found = self._outcomes[line]
        return {**found, "note": broken} if found["verdict"] == "assignment broken" else found

    @cached_property
    def _outcomes(self) -> list[dict[str, Any]]:
        """All lines, with None instead of not a number."""
        lines = self.lines
        columns: dict[str, list[Any]] = {"metric": [self.metrics[number].name for number in self.metric_of]}
        for name in ("F", "p", "F_robust", "p_robust", "p_adjusted", "assignment_p", "could_miss"):
            columns[name] = [None if math.isnan(value) else value for value in getattr(lines, name).tolist()]
        for name in ("df", "df_robust"):
            columns[name] = [None if math.isnan(a) else (a, b) for a, b in getattr(lines, name).tolist()]
        for name in ("variance", "verdict", "note"):
            columns[name] = getattr(lines, name).tolist()
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


Row = TypeVar("Row", bound=Outcome)


def by_attention(rows: Iterable[Row]) -> list[Row]:
    """What needs attention first, then by p."""

    def key(row: Row) -> tuple[int, float, float]:
        adjusted, raw = (1.0 if p is None else p for p in (row.p_adjusted, row.p_robust))
        return ORDER.index(row.verdict), adjusted, raw

    return sorted(rows, key=key)


def chosen_metrics(tables: Iterable[Pairs | Tally], wanted: Sequence[str] | None) -> dict[str, Metric]:
    """The metrics to test: all that were counted, or the named ones."""
    known = {part.metric.name: part.metric for table in tables for part in table.moments}
    names = list(known) if wanted is None else list(dict.fromkeys(wanted))
    if not names or not set(names) <= known.keys():
        raise LevelError("unknown metric" if names else "no metric to test", f"Counted are: {listed(known) or 'none'}.")
    return {name: known[name] for name in names}
