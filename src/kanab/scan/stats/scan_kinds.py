"""Which pairs of many experiments interfere (paper §8), and which effects differ between which levels: all at once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from kanab.errors import AnalysisError, LevelError, PlanError, listed
from kanab.plan.joint_shares import JointShares, joint_share_mistakes, share_table, turned
from kanab.scan.pair_tables import Pairs
from kanab.scan.stats.assignment import CHECKS
from kanab.scan.stats.outcomes import Outcome, Scan, broken_note, choose_metrics, scan_blocks
from kanab.scan.stats.scan_verdicts import ALARMS, Rules
from kanab.scan.stats.table_blocks import blocks_of_pairs, blocks_of_tables
from kanab.stats.distributions import satterthwaite_df, t_quantile
from kanab.stats.ftest import FTest, TwoWay, cell_spread, finest_variance, two_way
from kanab.stats.gram import Floats
from kanab.stats.heterogeneity import FollowUp, effect_differs, follow_ups
from kanab.stats.multiplicity import SEGMENT_CORRECTION
from kanab.stats.skewness import Shape, Shapes
from kanab.tally.factor import Level
from kanab.tally.tally import Tally

CONFIDENCE = 0.95
"""Of every interval."""

UNBALANCED = "the arms of {0} are not spread alike over {1}"


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


# ── segments ───────────────────────────────────────────────────────────────────────────────────


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


# ── what an interaction looks like ─────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class EffectWithin:
    """The effect of an arm of one experiment among the people of one arm of the other."""

    experiment: str
    arm: Level
    control: Level
    within: str
    level: Level
    effect: float
    se: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class PairEffects:
    """A pair's class means, and both experiments' effects within the arms of the other.

    ``means[i][j]`` belongs to arm i of the first and arm j of the second; None in an empty class.
    """

    metric: str
    experiments: tuple[str, str]
    arms: tuple[tuple[Level, ...], tuple[Level, ...]]
    means: tuple[tuple[float | None, ...], ...]
    effects: tuple[EffectWithin, ...]
    chosen: tuple[str, ...] = ()


def effects_within(
    tally: Tally,
    metric: str | None = None,
    *,
    controls: Mapping[str, Level] | None = None,
) -> PairEffects:
    """Return the means of a pair's classes, and effects within arms with the robust test's variances.

    Effects are measured against each experiment's control, or the one in ``controls``, with intervals of 95 %. Raises
    `AnalysisError` where the table is not of two experiments, or cannot be tested.
    """
    cells = two_way(tally, None, metric)
    if len(cells.tally.arms) != 2:
        raise AnalysisError("this is not a table of two experiments", "Give the table of a pair.")
    spread = cell_spread(cells, finest_variance(cells))
    if spread.problem:
        raise AnalysisError(f"not testable: {spread.problem}", "Merge arms, or wait for more people.")
    variances, df = spread.variances[spread.group], spread.df[spread.group]
    classes, factors = cells.classes, cells.tally.factors
    shape = cells.tally.shape
    tables = [np.full(shape, np.nan) for _ in range(3)]
    for table, values in zip(tables, (classes.means, variances / classes.n, df), strict=True):
        table[tuple(classes.places.T)] = values
    effects: list[EffectWithin] = []
    for axis in (0, 1):
        base = (controls or {}).get(factors[axis].name, factors[axis].control)
        mean, noise, freedom = (table if axis == 0 else table.T for table in tables)
        effects += _effects(cells, axis, factors[axis].index(base), (mean, noise, freedom))
    scale = classes.scale
    means = tuple(
        tuple(None if np.isnan(value) else float(value + classes.centre) / scale for value in row) for row in tables[0]
    )
    arms = (factors[0].levels, factors[1].levels)
    return PairEffects(cells.metric, (factors[0].name, factors[1].name), arms, means, tuple(effects))


def _effects(cells: TwoWay, axis: int, control: int, tables: tuple[Floats, Floats, Floats]) -> list[EffectWithin]:
    """Compare every arm with the control, within every arm of the other experiment."""
    factor, other = cells.tally.factors[axis], cells.tally.factors[1 - axis]
    mean, noise, freedom = tables
    scale = cells.classes.scale
    effects = []
    for arm in range(len(factor.levels)):
        for level in range(len(other.levels)):
            if arm == control or np.isnan(mean[arm, level]) or np.isnan(mean[control, level]):
                continue
            parts = noise[[arm, control], level]
            df = satterthwaite_df(parts, freedom[[arm, control], level])
            effect = float(mean[arm, level] - mean[control, level]) / scale
            se = float(np.sqrt(parts.sum())) / scale
            half = t_quantile((1 + CONFIDENCE) / 2, df) * se
            sides = (factor.name, factor.levels[arm], factor.levels[control], other.name, other.levels[level])
            effects.append(EffectWithin(*sides, effect, se, (effect - half, effect + half)))
    return effects
