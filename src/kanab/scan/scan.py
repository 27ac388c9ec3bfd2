"""Scans of many experiments: which pairs interfere, and which effects differ between which segments.

Chooses and calls counting, the gate and statistics; no arithmetic here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from kanab.arguments import check_arguments
from kanab.choices import DEFAULT_K, Correction
from kanab.counted import Counted, floor_to_k
from kanab.counting.dispatch import count
from kanab.errors import AnalysisError, PlanError, SourceError, listed
from kanab.plan.joint_shares import JointShares
from kanab.plan.model import make_plan
from kanab.privacy.class_rules import check_k
from kanab.privacy.gate import release
from kanab.privacy.release import Release
from kanab.scan.count.counting import count_pairs, read_names
from kanab.scan.count.stream import Progress
from kanab.scan.gate import ALMOST_SAME, ReleasedPairs, Spent, release_pairs, shown_pairs, spent_on_pairs, told_apart
from kanab.scan.read_together import (
    FILES_ARE_OUT,
    TableGroup,
    group_tables,
    number_gates,
    withhold_over_budget,
)
from kanab.scan.readout import PairReadout, SegmentReadout
from kanab.scan.stats.effects import PairEffects, effects_within
from kanab.scan.stats.pairs import PairScan, PairTest, scan_pairs
from kanab.scan.stats.segments import scan_covariates
from kanab.scan.stats.verdicts import ALPHA, PAIR_CORRECTION, Family, Rules
from kanab.scan.stats.withheld import withhold_tests
from kanab.stats.multiplicity import SEGMENT_CORRECTION
from kanab.tally.metric import Metric, Missing
from kanab.tally.tally import Tally

Pair = tuple[str, str]
"""The names of two experiments."""

BESIDE_PAIRS = "The pairs that are shown beside take part of the budget; scanned without them, more may be shown"
"""What a scan of segments says where something is withheld, and pairs of the same people are shown."""

MOST_JOINT_TABLES = 12
"""So many tables of segments are checked together by the leverage rule, which takes seconds; more by the budget."""

MOST_SHOWN = 20
"""So many flagged pairs are shown with their tables; more than that is read as a list."""


@check_arguments(skip=("k", "joint_shares"))
def scan_interactions(
    source: Any,
    experiments: Sequence[str] | str = (),
    metrics: Sequence[str] | Mapping[str, Metric] | str = (),
    *,
    k: int = DEFAULT_K,
    override: str = "",
    family: Family = "metric",
    correction: Correction = PAIR_CORRECTION,
    alpha: float = ALPHA,
    tolerance: Mapping[str, float] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    resolution: Mapping[str, float] | None = None,
    missing: Mapping[str, Missing] | None = None,
    where: str | None = None,
    table: str | None = None,
    sql: str | None = None,
    unit: str | None = None,
    aggregate: Mapping[str, str] | str | None = None,
    assignments: Any = None,
    joint_shares: Mapping[tuple[str, str], Mapping[tuple[Any, Any], float]] | None = None,
    progress: Progress | None = None,
) -> PairReadout:
    """Test which pairs of concurrent experiments interfere, all of them together, and correct for their number.

    ``source`` is anything that ``count`` takes, with the experiments' columns (patterns such as
    "test_*" are fine) and metrics; or one or more releases with pair tables. ``family`` "metric"
    corrects over all pairs of one metric, "all" over everything; interactions below ``tolerance``,
    by metric and in its units, do not matter. ``unit`` names the person where one has several rows,
    and ``aggregate`` says how these become one; ``assignments`` is (table, person, experiment, arm)
    where arms are in a table of their own. ``joint_shares`` say how people were meant to be divided over two
    experiments that were not assigned independently: {("checkout", "search"): {("A", "off"): 0.4, …}}, for every
    pair of arms, adding up to 1; releases take them from their plans. ``progress`` is called with the people
    counted so far, and with how many there are, if known.

    Raises `PlanError` where names are missing or contradict each other, `SourceError` where the
    source cannot be counted, `PrivacyError` where fewer than two experiments have k people in every
    arm, `AnalysisError` where a choice makes no sense or the releases hold no pairs, `ArgumentError`
    where one is of the wrong kind.
    """
    rules = Rules(check_k(k, override), family, correction, alpha, {} if tolerance is None else tolerance)
    counting = {
        "bounds": bounds, "resolution": resolution, "missing": missing, "where": where, "table": table, "sql": sql,
        "unit": unit, "aggregate": aggregate, "assignments": assignments,
    }  # fmt: skip
    joint = _read_joint_shares({} if joint_shares is None else joint_shares)
    releases = _as_releases(source)
    if releases is not None:
        _check_nothing_counted(experiments, counting)
        return scan_stored_pairs(releases, read_names(metrics, "metrics"), rules, joint)
    pairs = count_pairs(source, experiments, metrics, progress=progress, **counting)
    released = release_pairs(pairs, k, override=override)
    scan = scan_pairs(released.pairs, rules, joint_shares=joint)
    people = floor_to_k(released.pairs.total, k)
    notes = (*released.left_out, *released.deviations)
    shown = _shown_pairs(scan, released)
    effects = tuple(
        chain.from_iterable(
            _effects(released.pairs.tally(*pair, [metric]), metric) for metric, pairs in shown.items() for pair in pairs
        )
    )
    spent = {metric: spent_on_pairs(released, shown[metric], metric) for metric in shown}
    return PairReadout(
        _without_closed(scan, released, shown), effects, people, k, released.open_metrics, notes, spent=spent
    )


@check_arguments(skip=("k",))
def scan_segments(
    source: Any,
    experiments: Sequence[str] | str = (),
    metrics: Sequence[str] | str = (),
    covariates: Sequence[str] | str = (),
    *,
    k: int = DEFAULT_K,
    override: str = "",
    family: Family = "metric",
    correction: Correction = SEGMENT_CORRECTION,
    alpha: float = ALPHA,
    tolerance: Mapping[str, float] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    resolution: Mapping[str, float] | None = None,
    missing: Mapping[str, Missing] | None = None,
    bins: Mapping[str, int | Sequence[float]] | None = None,
    top: Mapping[str, int] | None = None,
    where: str | None = None,
    table: str | None = None,
    sql: str | None = None,
    unit: str | None = None,
    aggregate: Mapping[str, str] | str | None = None,
    events: Any = None,
    window: str | None = None,
    time: str | None = None,
    exposure_time: str | None = None,
    first_by: str | None = None,
    beside: PairReadout | None = None,
) -> SegmentReadout:
    """Test which effects differ between which levels: every experiment × covariate × metric together.

    ``source`` is as for ``scan_interactions``, and the choices of counting are those of ``count``. All experiments
    pass one gate: by the leverage rule where they are few, else under one budget, over which only flagged tests are
    shown. ``beside`` is a scan of pairs of the same people that is shown as well: both share the budget.

    Raises `PlanError` where names are missing or contradict each other, `SourceError` where the
    source cannot be counted, `PrivacyError` where an arm has fewer than k people, `AnalysisError`
    where a choice makes no sense or no table by a covariate is left, `ArgumentError` where one is of
    the wrong kind.
    """
    rules = Rules(check_k(k, override), family, correction, alpha, {} if tolerance is None else tolerance)
    counting = {
        "bounds": bounds, "resolution": resolution, "missing": missing, "bins": bins, "top": top, "where": where,
        "table": table, "sql": sql, "unit": unit, "aggregate": aggregate, "events": events, "window": window,
        "time": time, "exposure_time": exposure_time, "first_by": first_by,
    }  # fmt: skip
    arms, names = read_names(experiments, "experiments"), read_names(metrics, "metrics")
    segments = read_names(covariates, "covariates")
    stored = _as_releases(source)
    if stored is not None:
        _check_nothing_counted(arms, counting)
        gates = number_gates(stored)
        gated = _Gated(stored, gates, group_tables(stored, gates), checked=1)
    else:
        if not arms or not names or not segments:
            raise PlanError("what to compare is not said", "Name experiments, metrics and covariates.")
        choices: dict[str, Any] = {name: choice for name, choice in counting.items() if choice is not None}
        gated = _gate_segments(_SegmentSource(source, names, segments, choices), arms, k, override, beside)
    tables = [
        (gate, tally)
        for stored_release, gate in zip(gated.releases, gated.gates, strict=True)
        for tally in stored_release.tables.values()
        if len(tally.arms) == 1 and tally.covariates
    ]
    known = dict.fromkeys(tally.covariates[0].name for _, tally in tables)
    for name in segments if stored is not None else ():  # of rows, the notes say why a table is left out
        if name not in known:
            raise AnalysisError(f"no table is left of covariate {name!r}", f"There are: {listed(known) or 'none'}.")
    tables = [(gate, tally) for gate, tally in tables if not segments or tally.covariates[0].name in segments]
    if not tables:
        raise AnalysisError("no table by a covariate is left to compare", "Release with covariates, and more people.")
    rules = replace(rules, k=_least_k(gated.releases))
    scan = scan_covariates([tally for _, tally in tables], rules, metrics=names or None)
    owners = [(gate, tally.keep(factor.name)) for gate, tally in tables for factor in tally.covariates]
    spent = {} if beside is None else beside.spent
    scan = withhold_over_budget(scan, owners, gated.groups, k=rules.k, checked=gated.checked, before=spent)
    notes = (*gated.left_out, *_left_out(gated.releases), *(() if stored is None else _read_together(scan.withheld)))
    if scan.withheld and any(spent.get(name, Spent()) != Spent() for name in scan.withheld):
        notes = (*notes, BESIDE_PAIRS)
    return SegmentReadout(scan, rules.k, notes, chained=_chained(gated.releases))


@dataclass(frozen=True, eq=False)
class _Gated:
    """Releases to scan, the gate that each of them passed, and the tables by gate; ``checked`` of them hold anyway."""

    releases: Sequence[Release]
    gates: Sequence[int]
    groups: Sequence[TableGroup]
    checked: int = 0
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _SegmentSource:
    """What is counted for a scan of segments."""

    source: Any
    metrics: Sequence[str]
    segments: Sequence[str]
    choices: Mapping[str, Any]

    def count(self, arms: Sequence[str], k: int) -> Counted:
        """Count some experiments by all covariates, in one pass."""
        planned = {name: self.choices[name] for name in _PLANNED if name in self.choices}
        plan = make_plan(arms[0], self.metrics, segments=self.segments, k=k, **planned)
        each = tuple(replace(plan.experiments[0], name=arm) for arm in arms)
        others = {name: choice for name, choice in self.choices.items() if name not in _PLANNED}
        return count(self.source, replace(plan, experiments=each), **others)

    def told_apart(self, arms: Sequence[str], k: int) -> list[str]:
        """Return the experiments but for those that differ from an earlier one in fewer than k people of an arm."""
        choices = {name: self.choices[name] for name in ("where", "table", "sql", "unit") if name in self.choices}
        try:
            pairs = count_pairs(self.source, arms, **choices)
        except SourceError:  # nobody is in two of them, or counting them will say what is wrong
            return list(arms)
        kept = told_apart(pairs, [pairs.place(arm) for arm in arms], k)
        return [arm for arm in arms if pairs.place(arm) in kept]


_PLANNED = ("bounds", "resolution", "missing", "bins", "top")


def _gate_segments(
    rows: _SegmentSource, arms: Sequence[str], k: int, override: str, beside: PairReadout | None
) -> _Gated:
    """Pass the experiments through one gate, where they are few; else each by itself, under one budget.

    Where a scan of pairs is shown ``beside``, its gate has told them apart, and no other gate has checked all.
    """
    kept = rows.told_apart(arms, k) if beside is None and len(arms) > 1 else list(arms)
    left_out = tuple(f"{arm} is left out: {ALMOST_SAME.format(k=k)}" for arm in arms if arm not in kept)
    together = len(kept) == 1 or len(kept) * len(rows.segments) <= MOST_JOINT_TABLES
    counted = [rows.count(some, k) for some in ([kept] if together else [[arm] for arm in kept])]
    releases = [release(each, override=override) for each in counted]
    groups = [TableGroup(tuple(released.tables.values())) for released in releases]
    return _Gated(releases, range(len(releases)), groups, int(together and beside is None), left_out)


def _read_together(withheld: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what is withheld of several releases, and that their files are out."""
    verb = "is" if len(withheld) == 1 else "are"
    return (FILES_ARE_OUT.format(metrics=listed(withheld), verb=verb),) if withheld else ()


def _as_releases(source: Any) -> list[Release] | None:
    """Return releases, if that is what the source is."""
    if isinstance(source, Release):
        return [source]
    if isinstance(source, (list, tuple)) and source and all(isinstance(stored, Release) for stored in source):
        return list(source)
    return None


def _check_nothing_counted(names: Sequence[str] | str, counting: Mapping[str, Any]) -> None:
    if names or any(choice is not None for choice in counting.values()):
        raise PlanError("releases already say what was counted", "Leave out experiments and choices of counting.")


def _read_joint_shares(declared: Any) -> dict[Pair, JointShares]:
    """Read joint shares as they are given in Python. Raises `PlanError` where they have another form."""
    example = 'For example {("checkout", "search"): {("A", "off"): 0.4, ("A", "on"): 0.2, …}}.'
    tables: dict[Any, Any] = dict(declared) if isinstance(declared, Mapping) else {None: None}
    read: dict[Pair, JointShares] = {}
    for pair, shares in tables.items():
        keys = (pair, *shares) if isinstance(shares, Mapping) else ()
        if not keys or not all(isinstance(key, tuple) and len(key) == 2 for key in keys):
            raise PlanError("joint shares must be shares by pair of arms, by pair of experiments", example)
        read[pair] = tuple((*arms, share) for arms, share in shares.items())
    return read


def _planned_together(releases: Sequence[Release], pairs: Iterable[tuple[str, str]]) -> dict[Pair, JointShares]:
    """Return the joint shares of the plans of releases. Raises `PlanError` where two of them differ."""
    joint: dict[Pair, JointShares] = {}
    for first, second in pairs:
        for stored in releases:
            if {first, second} <= set(stored.plan.experiment_names):
                shares = stored.plan.joint_shares(first, second)
                if shares is not None and joint.setdefault((first, second), shares) != shares:
                    raise PlanError(
                        f"the releases have different joint shares of {first} and {second}", "Scan them one by one."
                    )
    return joint


def scan_stored_pairs(
    releases: Sequence[Release],
    metrics: Sequence[str] = (),
    rules: Rules | None = None,
    joint: Mapping[Pair, JointShares] | None = None,
    *,
    gates: Sequence[int] | None = None,
) -> PairReadout:
    """Scan stored pair tables, all of which are published already.

    ``gates`` number the gate that each release passed, where that is known better than from their hashes. Raises
    `AnalysisError` where the releases hold no pairs, `PlanError` where their joint shares differ.
    """
    rules = rules or Rules()
    pairs: dict[tuple[str, str], Tally] = {}
    gate_of: dict[tuple[str, str], int] = {}
    alone: dict[str, Tally] = {}
    gates = number_gates(releases) if gates is None else gates
    for stored, gate in zip(releases, gates, strict=True):
        for table in stored.tables.values():
            names = table.experiment_names
            if len(names) == 2:
                pairs[names[0], names[1]] = table
                gate_of[names[0], names[1]] = gate
        for experiment in stored.plan.experiment_names:
            alone.setdefault(experiment, stored.totals(experiment))
    if not pairs:
        raise AnalysisError(
            "these releases hold no table of two experiments",
            'Declare interactions = ["…"] in the plan and release again.',
        )
    joint = joint or _planned_together(releases, pairs)
    k = _least_k(releases)
    scan = scan_pairs(pairs, replace(rules, k=k), metrics=metrics or None, alone=alone, joint_shares=joint)
    owners = [(gate_of[names], table.keep()) for names, table in pairs.items()]
    scan = withhold_over_budget(scan, owners, group_tables(releases, gates), k=k, checked=1)
    flagged = ((pairs.get((row.a, row.b)) or pairs[row.b, row.a], row.metric) for row in _most_urgent(scan))
    effects = tuple(chain.from_iterable(_effects(*pair) for pair in flagged))
    people = floor_to_k(max(table.total for table in alone.values()), k)
    open_metrics = frozenset(metric.name for metric in scan.metrics if metric.name not in scan.withheld)
    notes = (*_left_out(releases), *_read_together(scan.withheld))
    return PairReadout(scan, effects, people, k, open_metrics, notes, chained=_chained(releases))


def _most_urgent(scan: PairScan) -> list[PairTest]:
    return scan.rows_of(scan.flagged_lines[:MOST_SHOWN])


def _least_k(releases: Sequence[Release]) -> int:
    return min(stored.receipt.k for stored in releases)


def _left_out(releases: Sequence[Release]) -> tuple[str, ...]:
    """Return what is not in the releases as it was asked for, each sentence once."""
    left_out = (sentence for stored in releases for sentence in stored.receipt.left_out.values())
    fewer = (sentence for stored in releases for sentence in stored.fewer_bins(stored.plan.experiment_names))
    return tuple(dict.fromkeys((*left_out, *fewer)))


def _chained(releases: Sequence[Release]) -> bool:
    return all(stored.chained for stored in releases)


def _shown_pairs(scan: PairScan, released: ReleasedPairs) -> dict[str, list[tuple[int, int]]]:
    """Return by metric the flagged pairs that the gate lets through with their tables, most urgent first."""
    place = {factor.name: at for at, factor in enumerate(released.pairs.experiments)}
    shown = {}
    for at, metric in enumerate(scan.metrics):
        lines = scan.flagged_lines[scan.metric_of[scan.flagged_lines] == at][:MOST_SHOWN]
        flagged = [(place[row.a], place[row.b]) for row in scan.rows_of(lines)]
        shown[metric.name] = shown_pairs(released, flagged, metric.name)
    return shown


def _without_closed(
    scan: PairScan, released: ReleasedPairs, shown: Mapping[str, Sequence[tuple[int, int]]]
) -> PairScan:
    """Return the scan without the tests of metrics over the budget, but for the pairs that are shown."""
    lines = {
        metric.name: [released.pairs.number_of(*pair) * len(scan.metrics) + at for pair in shown[metric.name]]
        for at, metric in enumerate(scan.metrics)
        if metric.name not in released.open_metrics
    }
    return withhold_tests(scan, lines, released.k) if lines else scan


def _effects(table: Tally, metric: str) -> list[PairEffects]:
    """Return the effects within arms, or nothing where they cannot be tested."""
    try:
        return [effects_within(table, metric)]
    except AnalysisError:
        return []
