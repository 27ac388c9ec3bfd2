"""Which effects differ between which levels? Every experiment × covariate × metric at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kanab.errors import AnalysisError
from kanab.scan.stats.outcomes import Outcome, Scan, broken_note, choose_metrics, scan_blocks
from kanab.scan.stats.scan_verdicts import ALARMS, Rules
from kanab.scan.stats.table_blocks import blocks_of_tables
from kanab.stats.ftest import FTest
from kanab.stats.heterogeneity import FollowUp, effect_differs, follow_ups
from kanab.stats.multiplicity import SEGMENT_CORRECTION
from kanab.stats.skewness import Shape, Shapes
from kanab.tally.factor import Level
from kanab.tally.tally import Tally

UNBALANCED = "the arms of {0} are not spread alike over {1}"


@dataclass(frozen=True, kw_only=True)
class SegmentTest(Outcome):
    """Whether an experiment's effect on a metric differs between the levels of a covariate.

    ``follow_ups`` compare each level with the rest, where the test is an alarm.
    """

    experiment: str
    covariate: str
    follow_ups: tuple[FollowUp, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the test as plain data."""
        test = {"experiment": self.experiment, "covariate": self.covariate, **super().to_dict()}
        return {**test, "follow_ups": [asdict(follow_up) for follow_up in self.follow_ups]}


@dataclass(frozen=True, eq=False)
class SegmentScan(Scan[SegmentTest]):
    """All experiments × covariates × metrics, tested, corrected and judged.

    ``tables`` are the names of experiments and covariates, ``followed`` the follow-ups by line.
    """

    tables: tuple[tuple[str, str], ...]
    followed: Mapping[int, tuple[FollowUp, ...]]

    def _row(self, line: int, values: dict[str, Any]) -> SegmentTest:
        experiment, covariate = self.tables[line // len(self.metrics)]
        common = broken_note(values, UNBALANCED.format(experiment, covariate))
        return SegmentTest(experiment=experiment, covariate=covariate, follow_ups=self.followed.get(line, ()), **common)


def scan_covariates(
    tables: Iterable[Tally],
    rules: Rules | None = None,
    *,
    metrics: Sequence[str] | None = None,
    shapes: Shapes | None = None,
    controls: Mapping[str, Level] | None = None,
) -> SegmentScan:
    """Test every arm × covariate of the tables for every metric; follow up on what survives.

    Tables with several covariates are tested for one at a time, as a readout does: by `effect_differs`, which reckons
    with ``shapes`` (skewness and share of unusual people, by experiment and metric) where they are known. ``controls``
    are the arms that are compared with, by experiment. Raises `AnalysisError` where a table has several experiments or
    no covariate is left, `LevelError` for unknown names.

    >>> from kanab.datasets import eighteen
    >>> row = scan_covariates([eighteen()], Rules(k=3, correction="bh")).rows[0]
    >>> row.verdict, row.F, row.follow_ups[1].level
    ('differs', 41.7046498028..., 2)
    """
    rules = rules or Rules(correction=SEGMENT_CORRECTION)
    two_way = list(_by_covariate(tables))
    if not two_way:
        raise AnalysisError("there are no covariates to compare effects between", "Count arms by covariates.")
    chosen = choose_metrics(two_way, metrics, rules)

    def deciding(place: int, metric: str) -> FTest:
        table = two_way[place]
        known = (shapes or {}).get(table.axes[0], {}).get(metric)
        shape = None if known is None else Shape(*known)
        return effect_differs(table, table.axes[1], metric, control=(controls or {}).get(table.axes[0]), shape=shape)

    blocks, names = blocks_of_tables(two_way, list(chosen)), tuple(chosen)
    lines = scan_blocks(blocks, len(two_way), chosen, rules, "differs", deciding=deciding)
    followed = {}
    for line, verdict in enumerate(lines.verdict.tolist()):
        if verdict in ALARMS:
            table = two_way[line // len(names)]
            control = (controls or {}).get(table.axes[0])
            followed[line] = follow_ups(table, table.axes[1], names[line % len(names)], control=control)
    sides = tuple((table.axes[0], table.axes[1]) for table in two_way)
    return SegmentScan(tuple(chosen.values()), lines, rules, sides, followed)


def _by_covariate(tables: Iterable[Tally]) -> Iterator[Tally]:
    """Yield arm × covariate, one at a time, the arm first."""
    for tally in tables:
        if len(tally.arms) != 1 or tally.factors[0].role != "arm":
            raise AnalysisError("effects are compared between levels for one experiment at a time", "Collapse others.")
        for covariate in tally.covariates:
            yield tally.keep(covariate.name)
