"""Which effects differ between which levels? Every experiment × covariate × metric at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from kanab.errors import AnalysisError
from kanab.plan.model import DEFAULT_K
from kanab.scan.stats.cells import blocks_of_tables
from kanab.scan.stats.lines import scan_blocks
from kanab.scan.stats.table import Outcome, Scan, by_attention, chosen_metrics
from kanab.scan.stats.verdicts import ALARMS, Family, Rules
from kanab.stats.multiplicity import Correction
from kanab.stats.segments import FollowUp, follow_ups
from kanab.tally.tally import Tally

UNBALANCED = "the arms of {0} are not spread alike over {1}"


@dataclass(frozen=True, kw_only=True)
class SegmentTest(Outcome):
    """Does an experiment's effect on a metric differ between the levels of a covariate?

    ``follow_ups`` compare each level with the rest, where the test rings.
    """

    experiment: str
    covariate: str
    follow_ups: tuple[FollowUp, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The test as plain data."""
        found = {"experiment": self.experiment, "covariate": self.covariate, **super().to_dict()}
        return {**found, "follow_ups": [asdict(one) for one in self.follow_ups]}


@dataclass(frozen=True, eq=False)
class SegmentScan(Scan):
    """All experiments × covariates × metrics, tested, corrected and judged.

    ``tables`` are the names of experiments and covariates, ``followed`` the follow-ups by line.
    """

    tables: tuple[tuple[str, str], ...]
    followed: Mapping[int, tuple[FollowUp, ...]]

    @cached_property
    def rows(self) -> tuple[SegmentTest, ...]:
        """One row per experiment, covariate and metric."""
        return tuple(self._row(line) for line in range(len(self)))

    def _row(self, line: int) -> SegmentTest:
        experiment, covariate = self.tables[line // len(self.metrics)]
        common = self.outcome(line, UNBALANCED.format(experiment, covariate))
        return SegmentTest(experiment=experiment, covariate=covariate, follow_ups=self.followed.get(line, ()), **common)

    def __iter__(self) -> Iterator[SegmentTest]:
        return iter(self.rows)

    @property
    def ranked(self) -> list[SegmentTest]:
        """The rows, what needs attention first, then by p."""
        return by_attention(self.rows)

    @property
    def flagged(self) -> list[SegmentTest]:
        """The alarms: "differs" and "watch"."""
        return [row for row in self.ranked if row.verdict in ALARMS]

    def to_dict(self) -> dict[str, Any]:
        """The scan as plain data."""
        return {"segments": [row.to_dict() for row in self.rows], **self.summary()}


def segment_scan(
    tables: Mapping[str, Tally] | Iterable[Tally],
    *,
    metrics: Sequence[str] | None = None,
    k: int = DEFAULT_K,
    family: Family = "metric",
    correction: Correction = "bh",
    alpha: float = 0.05,
    tolerance: Mapping[str, float] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    controls: Mapping[str, Any] | None = None,
) -> SegmentScan:
    """Test every arm × covariate of the tables for every metric; follow up on what survives.

    Tables with several covariates are tested for one at a time. By default the share of false
    alarms among alarms is bounded (Benjamini–Hochberg) over all tests of a metric: segments are
    searched to discover, not to be safe. ``controls`` name the arm that follow-ups compare with.

    >>> from kanab.datasets import eighteen
    >>> row = segment_scan([eighteen()], k=3).rows[0]
    >>> row.verdict, row.F, row.follow_ups[1].level
    ('differs', 41.7046498028..., 2)
    """
    rules = Rules(k, family, correction, alpha, dict(tolerance or {}), dict(bounds or {}))
    found = list(_one_covariate(tables.values() if isinstance(tables, Mapping) else tables))
    if not found:
        raise AnalysisError("there are no covariates to compare effects between", "Count arms by covariates.")
    chosen = chosen_metrics(found, metrics)
    rules.check_names(chosen)
    lines = scan_blocks(blocks_of_tables(found, list(chosen)), len(found), chosen, rules, "differs")
    names = tuple(chosen)
    followed = {
        line: _followed(found[line // len(names)], names[line % len(names)], controls or {})
        for line, verdict in enumerate(lines.verdict.tolist())
        if verdict in ALARMS
    }
    pairs = tuple((table.axes[0], table.axes[1]) for table in found)
    return SegmentScan(tuple(chosen.values()), lines, rules, pairs, followed)


def _one_covariate(tables: Iterable[Tally]) -> Iterator[Tally]:
    """Arm × covariate, one at a time, the arm first."""
    for tally in tables:
        if len(tally.arms) != 1 or tally.factors[0].role != "arm":
            raise AnalysisError("effects are compared between levels for one experiment at a time", "Collapse others.")
        for covariate in tally.covariates:
            yield tally.keep(covariate.name)


def _followed(table: Tally, metric: str, controls: Mapping[str, Any]) -> tuple[FollowUp, ...]:
    return follow_ups(table, table.axes[1], metric, control=controls.get(table.axes[0]))
