"""Which pairs of many experiments interfere? Every pair and metric tested at once (paper §8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from kanab.errors import AnalysisError, LevelError, PlanError, listed
from kanab.plan.joint_shares import JointShares, joint_share_mistakes, share_table, turned
from kanab.scan.pair_tables import Pairs
from kanab.scan.stats.assignment import CHECKS
from kanab.scan.stats.outcomes import Outcome, Scan, broken_note, choose_metrics, scan_blocks
from kanab.scan.stats.scan_verdicts import Rules
from kanab.scan.stats.table_blocks import blocks_of_pairs, blocks_of_tables
from kanab.tally.factor import Level
from kanab.tally.tally import Tally


@dataclass(frozen=True, kw_only=True)
class PairTest(Outcome):
    """Whether experiments a and b interfere with each other in one metric."""

    a: str
    b: str

    def to_dict(self) -> dict[str, Any]:
        """Return the test as plain data."""
        return {"a": self.a, "b": self.b, **super().to_dict()}


@dataclass(frozen=True, eq=False)
class PairScan(Scan[PairTest]):
    """All pairs of some experiments, tested, corrected and judged.

    ``pairs`` are their names, ``enrollment_checked`` says whether everybody of each experiment
    was known, so that being in the other one could be checked against the arm.
    """

    experiments: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    enrollment_checked: bool
    joint_shares: Mapping[tuple[str, str], JointShares] = field(default_factory=dict)

    def _row(self, line: int, values: dict[str, Any]) -> PairTest:
        a, b = self.pairs[line // len(self.metrics)]
        return PairTest(a=a, b=b, **broken_note(values, CHECKS[self.lines.check[line]].format(a, b)))


def scan_pairs(
    pairs: Pairs | Mapping[tuple[str, str], Tally],
    rules: Rules | None = None,
    *,
    metrics: Sequence[str] | None = None,
    alone: Mapping[str, Tally] | None = None,
    joint_shares: Mapping[tuple[str, str], JointShares] | None = None,
) -> PairScan:
    """Test every pair for every metric: pooled and robust F, corrected, with a verdict each.

    ``pairs`` are counted together, or the stored tables of single pairs; with those, ``alone``
    are the experiments' own tables, without which nobody knows who is outside a pair. ``joint_shares`` are
    planned for pairs that are assigned together. Raises `AnalysisError` where there are no two experiments,
    `LevelError` for unknown names, `PlanError` where joint shares do not fit.

    >>> from kanab.datasets import eighteen
    >>> from kanab.tally.factor import Factor
    >>> table = eighteen()
    >>> tier = Factor("tier", table.factor("tier").levels, "arm")     # as if the tier had been assigned
    >>> pair = Tally((table.experiment, tier), table.people, table.moments)
    >>> row = scan_pairs({("treatment", "tier"): pair}, Rules(k=3)).rows[0]
    >>> row.verdict, row.F, row.df
    ('interference', 41.7046498028..., (2.0, 12.0))
    """
    rules = rules or Rules()
    if isinstance(pairs, Pairs):
        experiments = [factor.name for factor in pairs.experiments]
        names = list(combinations(experiments, 2))
        arms = {factor.name: factor.levels for factor in pairs.experiments}
        chosen = choose_metrics([pairs], metrics, rules)
        blocks = blocks_of_pairs(pairs, list(chosen))
        checked = True
    else:
        tables = _named_tables(pairs)
        names = [(table.axes[0], table.axes[1]) for table in tables]
        experiments = list(dict.fromkeys(name for pair in names for name in pair))
        arms = {factor.name: factor.levels for table in tables for factor in table.factors}
        chosen = choose_metrics(tables, metrics, rules)
        blocks = blocks_of_tables(tables, list(chosen), alone)
        checked = set(experiments) <= (alone or {}).keys()
    if not names:
        raise AnalysisError("a scan of pairs needs two experiments", "Name at least two.")
    joint = _oriented(joint_shares or {}, names, arms)
    planned = {names.index(pair): share_table(shares, *(arms[side] for side in pair)) for pair, shares in joint.items()}
    lines = scan_blocks(blocks, len(names), chosen, rules, "interference", planned=planned)
    return PairScan(tuple(chosen.values()), lines, rules, tuple(experiments), tuple(names), checked, joint)


def _oriented(
    declared: Mapping[tuple[str, str], JointShares],
    names: Sequence[tuple[str, str]],
    arms: Mapping[str, Sequence[Level]],
) -> dict[tuple[str, str], JointShares]:
    """Return joint shares by the scan's own names of pairs. Raises `PlanError` where they name others, or are wrong."""
    joint = {}
    for (first, second), shares in declared.items():
        pair = (first, second) if (first, second) in names else (second, first)
        if pair not in names:
            raise PlanError("joint shares name a pair that is not scanned", f"Scanned: {listed(arms)}.")
        for problem in joint_share_mistakes(shares, (arms[first], arms[second])):
            remedy = "Give a share for every pair of arms; they add up to 1."
            raise PlanError(f"the joint plan of {first} and {second} {problem}", remedy)
        joint[pair] = shares if pair == (first, second) else turned(shares)
    return joint


def _named_tables(pairs: Mapping[tuple[str, str], Tally]) -> list[Tally]:
    """Return the tables of two experiments, covariates collapsed, each under its own name."""
    tables = []
    for key, tally in pairs.items():
        table = tally.keep()
        if len(table.axes) != 2 or set(table.axes) != set(key):
            raise LevelError("a table does not belong to its pair", "Give {(a, b): the table of experiments a and b}.")
        tables.append(table)
    return tables
