"""Which pairs of many experiments interfere? Every pair and metric tested at once (paper §8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from kanab.errors import AnalysisError, LevelError
from kanab.plan.model import DEFAULT_K
from kanab.scan.pairs import Pairs
from kanab.scan.stats.assignment import CHECKS
from kanab.scan.stats.cells import blocks_of_pairs, blocks_of_tables
from kanab.scan.stats.lines import scan_blocks
from kanab.scan.stats.table import Outcome, Scan, by_attention, chosen_metrics
from kanab.scan.stats.verdicts import ALARMS, Family, Rules
from kanab.stats.multiplicity import Correction
from kanab.tally.tally import Tally


@dataclass(frozen=True, kw_only=True)
class PairTest(Outcome):
    """Do experiments a and b interfere with each other in one metric?"""

    a: str
    b: str

    def to_dict(self) -> dict[str, Any]:
        """The test as plain data."""
        return {"a": self.a, "b": self.b, **super().to_dict()}


@dataclass(frozen=True, eq=False)
class PairScan(Scan):
    """All pairs of some experiments, tested, corrected and judged.

    ``pairs`` are their names, ``enrollment_checked`` says whether everybody of each experiment
    was known, so that being in the other one could be checked against the arm.
    """

    experiments: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    enrollment_checked: bool

    @cached_property
    def rows(self) -> tuple[PairTest, ...]:
        """One row per pair and metric."""
        return tuple(self._row(line) for line in range(len(self)))

    def _row(self, line: int) -> PairTest:
        a, b = self.pairs[line // len(self.metrics)]
        return PairTest(a=a, b=b, **self.outcome(line, CHECKS[self.lines.check[line]].format(a, b)))

    def __iter__(self) -> Iterator[PairTest]:
        return iter(self.rows)

    @property
    def ranked(self) -> list[PairTest]:
        """The rows, what needs attention first, then by p."""
        return by_attention(self.rows)

    @property
    def flagged(self) -> list[PairTest]:
        """The alarms: "interference" and "watch"."""
        return [row for row in self.ranked if row.verdict in ALARMS]

    def to_dict(self) -> dict[str, Any]:
        """The scan as plain data."""
        rows = [row.to_dict() for row in self.rows]
        return {"pairs": rows, **self.summary(), "enrollment_checked": self.enrollment_checked}


def scan_pairs(
    pairs: Pairs | Mapping[tuple[str, str], Tally],
    *,
    metrics: Sequence[str] | None = None,
    k: int = DEFAULT_K,
    family: Family = "metric",
    correction: Correction = "holm",
    alpha: float = 0.05,
    tolerance: Mapping[str, float] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    alone: Mapping[str, Tally] | None = None,
) -> PairScan:
    """Test every pair for every metric: pooled and robust F, corrected, with a verdict each.

    ``pairs`` are counted together, or the stored tables of single pairs; with those, ``alone``
    are the experiments' own tables, without which nobody knows who is outside a pair.
    ``tolerance`` (in units of a metric) makes small interactions negligible; ``bounds`` are
    those of metrics that declare none, where the curator knows them.

    >>> from kanab.datasets import eighteen
    >>> from kanab.tally.factor import Factor
    >>> table = eighteen()
    >>> tier = Factor("tier", table.factor("tier").levels, "arm")     # as if the tier had been assigned
    >>> pair = Tally((table.experiment, tier), table.people, table.moments)
    >>> row = scan_pairs({("treatment", "tier"): pair}, k=3).rows[0]
    >>> row.verdict, row.F, row.df
    ('interference', 41.7046498028..., (2.0, 12.0))
    """
    rules = Rules(k, family, correction, alpha, dict(tolerance or {}), dict(bounds or {}))
    if isinstance(pairs, Pairs):
        names = [factor.name for factor in pairs.experiments]
        found = list(combinations(names, 2))
        chosen = chosen_metrics([pairs], metrics)
        blocks = blocks_of_pairs(pairs, list(chosen))
        checked = True
    else:
        tables = _tables(pairs)
        found = [(table.axes[0], table.axes[1]) for table in tables]
        names = list(dict.fromkeys(name for pair in found for name in pair))
        chosen = chosen_metrics(tables, metrics)
        blocks = blocks_of_tables(tables, list(chosen), alone)
        checked = set(names) <= (alone or {}).keys()
    if not found:
        raise AnalysisError("a scan of pairs needs two experiments", "Name at least two.")
    rules.check_names(chosen)
    lines = scan_blocks(blocks, len(found), chosen, rules, "interference")
    return PairScan(tuple(chosen.values()), lines, rules, tuple(names), tuple(found), checked)


def _tables(pairs: Mapping[tuple[str, str], Tally]) -> list[Tally]:
    """The tables of two experiments, covariates collapsed, each under its own name."""
    found = []
    for key, tally in pairs.items():
        table = tally.keep()
        if len(table.axes) != 2 or set(table.axes) != set(key):
            raise LevelError("a table does not belong to its pair", "Give {(a, b): the table of experiments a and b}.")
        found.append(table)
    return found
