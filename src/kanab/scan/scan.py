"""Scans of many experiments: which pairs interfere, and which effects differ between which segments.

Chooses and calls counting, the gate and statistics; no arithmetic here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from typing import Any

from kanab.analysis.own_rows import is_gated
from kanab.arguments import check_arguments
from kanab.choices import Correction
from kanab.counted import Counted, floor_to_k
from kanab.counting.dispatch import SourceOptions, count_source
from kanab.counting.frames import load_frame
from kanab.description import (
    DEFAULT_K,
    LEAST_K_WITHOUT_OVERRIDE,
    Covariate,
    Mean,
    Number,
    Rows,
    covariate_values,
    metric_values,
)
from kanab.errors import AnalysisError, PlanError, PrivacyError, SourceError, listed
from kanab.plan.declared import control_of
from kanab.plan.joint_shares import JointShares
from kanab.plan.model import ExperimentPlan, Plan, make_plan
from kanab.privacy.class_rules import check_k, draft_table, published_map
from kanab.privacy.release import Release, missing_bins, refuse_own_rows
from kanab.scan.count.pair_counting import count_pairs, read_names
from kanab.scan.count.people_batches import Progress
from kanab.scan.scan_gate import (
    COPY,
    ask_pairs,
    ask_segments,
    find_copies,
    rests_on_several,
    share_pairs,
    spend,
)
from kanab.scan.scan_readout import PairReadout, SegmentReadout
from kanab.scan.stats.scan_kinds import (
    PairEffects,
    PairScan,
    PairTest,
    SegmentScan,
    effects_within,
    scan_covariates,
    scan_pairs,
)
from kanab.scan.stats.scan_verdicts import ALPHA, PAIR_CORRECTION, Family, Rules
from kanab.stats.cautions import rows_not_people
from kanab.stats.multiplicity import SEGMENT_CORRECTION
from kanab.stats.skewness import Shapes
from kanab.tally.factor import Level
from kanab.tally.tally import Tally

Pair = tuple[str, str]
"""The names of two experiments."""

TABLES_AT_ONCE = 12
"""So many tables of segments are counted in one pass."""

ROWS_OF_PAIRS = ("where", "table", "sql", "unit", "aggregate")
"""What may be said of the rows of a scan of pairs."""

MOST_SHOWN = 20
"""So many flagged pairs are shown with their tables; more than that is read as a list."""


@check_arguments(skip=("k", "joint_shares", "metrics"))
def scan_interactions(
    source: Any,
    experiments: Sequence[str] | str = (),
    metrics: Sequence[str | Mean] | str = (),
    *,
    k: int = DEFAULT_K,
    override: str = "",
    family: Family = "metric",
    correction: Correction = PAIR_CORRECTION,
    alpha: float = ALPHA,
    tolerance: Mapping[str, float] | None = None,
    rows: Rows | None = None,
    joint_shares: Mapping[tuple[str, str], Mapping[tuple[Any, Any], float]] | None = None,
    progress: Progress | None = None,
    ledger: str | PathLike[str] | None = None,
    new_ledger: bool = False,
) -> PairReadout:
    """Test which pairs of concurrent experiments interfere, all of them together, and correct for their number.

    source: anything that `count` takes, or one or more releases with pair tables.
    experiments: the columns that hold arms; patterns such as "test_*" are fine.
    metrics: names or `Mean`.
    k, override: people whom a class holds at least, and the reason for a k below 5.
    family, correction, alpha: "metric" corrects over all pairs of one metric, "all" over everything.
    tolerance: interactions below it, by metric and in its units, do not matter.
    rows: which rows count: a table or query, a filter, the person where one has several rows.
    joint_shares: how people were meant to be divided over two experiments that were not assigned independently:
        {("checkout", "search"): {("A", "off"): 0.4, …}}, for every pair of arms; releases take them from their plans.
    progress: called with the people counted so far, and with how many there are, if known.
    ledger, new_ledger: a scan of rows is internal; one with a ledger (a path; ``new_ledger`` begins one) may be
        shared: it notes there what it tells of every metric, and metrics of which scans have told too much are left
        out.

    Raises `PlanError` where names are missing or contradict each other, `SourceError` where the
    source cannot be counted, `PrivacyError` where nothing may be shared, `LedgerError` where there is no such
    ledger, `AnalysisError` where a choice makes no sense or the releases hold no pairs, `ArgumentError`
    where one is of the wrong kind.
    """
    rules = Rules(check_k(k, override), family, correction, alpha, {} if tolerance is None else tolerance)
    measured = _means(metrics)
    joint = _read_joint_shares({} if joint_shares is None else joint_shares)
    releases = _as_releases(source)
    if releases is not None:
        _check_nothing_counted(experiments, measured.values(), rows, ledger)
        return scan_stored_pairs(releases, [*measured], rules, joint)
    _check_shared(ledger)
    counting = _choices_of_pairs(measured, rows)
    source = load_frame(source)
    pairs = count_pairs(source, experiments, [*measured], progress=progress, **counting)
    repeats: tuple[str, ...] = ()
    if counting.get("unit") is None:
        alone = make_plan(pairs.experiments[0].name, [], k=k)
        seen = count_source(source, alone, SourceOptions(**vars(rows or Rows())), for_release=False).repeats
        repeats = tuple(name for name in seen if name not in {part.name for part in pairs.experiments})
        rules = replace(rules, rows_repeat=bool(repeats))
    notes = (*_repeated(repeats), *_deviations(k, override))
    if ledger is not None:
        pairs, gone = share_pairs(pairs, k)
        names = [factor.name for factor in pairs.experiments]
        left_out = spend(ledger, "pairs", names, ask_pairs(pairs, k), k, new_ledger=new_ledger)
        moments = tuple(part for part in pairs.moments if part.metric.name not in left_out)
        pairs, rules = replace(pairs, moments=moments), rules.without(left_out)
        notes = (*notes, *gone, *left_out.values())
    scan = scan_pairs(pairs, rules, joint_shares=joint)
    tables = [(pairs.tally(pairs.place(row.a), pairs.place(row.b), [row.metric]), row.metric) for row in _flagged(scan)]
    effects = _effects(tables, {}, shared=ledger is not None)
    return PairReadout(scan, effects, floor_to_k(pairs.total, k), k, notes, ledger is not None, ledger is None)


@check_arguments(skip=("k", "metrics", "covariates"))
def scan_segments(
    source: Any,
    experiments: Sequence[str] | str = (),
    metrics: Sequence[str | Mean] | str = (),
    covariates: Sequence[str | Covariate] | str = (),
    *,
    k: int = DEFAULT_K,
    override: str = "",
    family: Family = "metric",
    correction: Correction = SEGMENT_CORRECTION,
    alpha: float = ALPHA,
    tolerance: Mapping[str, float] | None = None,
    rows: Rows | None = None,
    ledger: str | PathLike[str] | None = None,
    new_ledger: bool = False,
) -> SegmentReadout:
    """Test which effects differ between which levels: every experiment × covariate × metric together.

    source: anything that `count` takes, or one or more releases with tables by covariates.
    experiments: the columns that hold arms, by their names.
    metrics: names or `Mean`.
    covariates: names or `Covariate`; sparse levels are merged to k people.
    k, override: people whom a class holds at least, and the reason for a k below 5.
    family, correction, alpha: "metric" corrects over all tests of one metric, "all" over everything.
    tolerance: differences of effects below it, by metric and in its units, do not matter.
    rows: which rows count, and how they become people: `Rows`.
    ledger, new_ledger: a scan of rows is internal; one with a ledger (a path; ``new_ledger`` begins one) may be
        shared, and is noted there.

    Raises `PlanError` where names are missing or contradict each other, `SourceError` where the
    source cannot be counted, `PrivacyError` where nothing may be shared, `LedgerError` where there is no such
    ledger, `AnalysisError` where a choice makes no sense or no table by a covariate is left, `ArgumentError`
    where one is of the wrong kind.
    """
    rules = Rules(check_k(k, override), family, correction, alpha, {} if tolerance is None else tolerance)
    measured, segments = _means(metrics), covariate_values(covariates, "covariates")
    arms = read_names(experiments, "experiments")
    stored = _as_releases(source)
    if stored is not None:
        _check_nothing_counted(arms, [*measured.values(), *segments], rows, ledger)
        return _scan_stored_segments(stored, [*measured], [each.column for each in segments], rules)
    if not arms or not measured or not segments:
        raise PlanError("what to compare is not said", "Name experiments, metrics and covariates.")
    _check_shared(ledger)
    options = SourceOptions(**vars(rows or Rows()))
    notes = _deviations(k, override)
    if ledger is not None:
        copies = _find_copies(source, arms, options, k)
        arms = [arm for arm in arms if arm not in copies]
        notes = (*(COPY.format(copy=copy, of=of, k=k) for copy, of in copies.items()), *notes)
    plan = make_plan(arms[0], [*measured.values()], segments=segments, k=k)
    counted = _count_segments(source, plan, arms, options, for_release=ledger is not None)
    repeats = counted[0].repeats
    rules = replace(rules, rows_repeat=bool(repeats))
    tables, said = _merged_tables(counted)
    if ledger is not None and tables:
        tables = [
            table.select_metrics(part.metric.name for part in table.moments if rests_on_several(part))
            for table in tables
        ]
        asked = ask_segments(counted, tables, k)
        left_out = spend(ledger, "segments", arms, asked, k, new_ledger=new_ledger)
        tables = [table.select_metrics(set(table.metric_names) - left_out.keys()) for table in tables]
        rules, said = rules.without(left_out), (*left_out.values(), *said)
    shapes = {name: shape for part in counted for name, shape in part.shape_classes(k).items()}
    notes = (*_repeated(repeats), *said, *notes)
    return SegmentReadout(_scan_tables(tables, rules, shapes), k, notes, ledger is not None, ledger is None)


def _repeated(columns: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(rows_not_people(column)) for column in columns)


def _means(metrics: Any) -> dict[str, Mean]:
    """Return the metrics of a scan by name; raise `PlanError` for anything but means."""
    values = metric_values(metrics)
    if not all(isinstance(each, Mean) and each.clip is None for each in values):
        raise PlanError("a scan compares means", "Name columns, or give Mean(…) without clip.")
    means = {each.column: each for each in values if isinstance(each, Mean)}
    if len(means) < len(values):
        raise SourceError("metrics names a column twice", "Name each column once.")
    return means


def _choices_of_pairs(measured: Mapping[str, Mean], rows: Rows | None) -> dict[str, Any]:
    """Return what is said of metrics and rows; raise `PlanError` for a choice that a scan of pairs does not have."""
    choices: dict[str, Any] = {}
    for field in ("bounds", "resolution", "missing"):
        said = {name: getattr(each, field) for name, each in measured.items()}
        choices[field] = {name: value for name, value in said.items() if value is not None}
    for name, value in vars(rows or Rows()).items():
        if name in ROWS_OF_PAIRS:
            choices[name] = value
        elif value != getattr(Rows(), name):
            raise PlanError(f"a scan of pairs has no {name}", f"Rows may have: {listed(ROWS_OF_PAIRS)}.")
    return choices


def _deviations(k: int, override: str) -> tuple[str, ...]:
    return (f"k = {k}: {override}",) if k < LEAST_K_WITHOUT_OVERRIDE else ()


def _count_segments(
    source: Any, plan: Plan, arms: Sequence[str], options: SourceOptions, *, for_release: bool
) -> list[Counted]:
    """Count experiments by all covariates of the plan, some of them at a time."""
    each = [replace(plan.experiments[0], name=arm) for arm in arms]
    size = max(1, TABLES_AT_ONCE // len(plan.covariates))
    parts = [tuple(each[start : start + size]) for start in range(0, len(each), size)]
    return [count_source(source, replace(plan, experiments=part), options, for_release=for_release) for part in parts]


def _find_copies(source: Any, arms: Sequence[str], options: SourceOptions, k: int) -> dict[str, str]:
    """Return the experiments that are copies of an earlier one, and which that is."""
    choices = {name: getattr(options, name) for name in ("where", "table", "sql", "unit")}
    try:
        pairs = count_pairs(source, arms, **choices)
    except (SourceError, PlanError):  # nobody is in two of them, or counting them will say what is wrong
        return {}
    names = [factor.name for factor in pairs.experiments]
    return {names[copy]: names[of] for copy, of in find_copies(pairs, range(len(names)), k).items()}


def _merged_tables(counted: Sequence[Counted]) -> tuple[list[Tally], tuple[str, ...]]:
    """Return the tables by a covariate with sparse levels merged to k, and what is not there as it was asked for."""
    tables: list[Tally] = []
    said: dict[str, None] = {}
    for part in counted:
        for linkage in part.plan.linkages:
            tally = part.tallies[linkage.name]
            draft = draft_table(linkage, tally, part.plan, None)
            levels = published_map(draft, part.plan)
            if draft.why:
                said[draft.why] = None
            elif levels is not None:
                tables.append(levels.apply(tally))
                bins = part.plan.covariate(levels.covariate).bins
                said |= dict.fromkeys(missing_bins(levels.covariate, tally.factor(levels.covariate).levels, bins))
    return tables, tuple(said)


def _scan_tables(
    tables: Sequence[Tally],
    rules: Rules,
    shapes: Shapes,
    metrics: Sequence[str] = (),
    controls: Mapping[str, Level] | None = None,
) -> SegmentScan:
    if not tables:
        raise AnalysisError("no table by a covariate is left to compare", "Release with covariates, and more people.")
    return scan_covariates(tables, rules, metrics=metrics or None, shapes=shapes, controls=controls)


def _scan_stored_segments(
    releases: Sequence[Release], metrics: Sequence[str], segments: Sequence[str], rules: Rules
) -> SegmentReadout:
    """Scan stored tables by covariates, all of which are published already."""
    tables = [
        tally for stored in releases for tally in stored.tables.values() if len(tally.arms) == 1 and tally.covariates
    ]
    known = dict.fromkeys(tally.covariates[0].name for tally in tables)
    for name in segments:
        if name not in known:
            raise AnalysisError(f"no table is left of covariate {name!r}", f"There are: {listed(known) or 'none'}.")
    tables = [tally for tally in tables if not segments or tally.covariates[0].name in segments]
    rules, notes, chained = _published(releases, rules)
    shapes = {name: shape for stored in releases for name, shape in stored.receipt.shapes.items()}
    plans = _plans(releases)
    controls = {tally.axes[0]: control_of(plans[tally.axes[0]], tally.arms[0])[0] for tally in tables}
    return SegmentReadout(_scan_tables(tables, rules, shapes, metrics, controls), rules.k, notes, chained)


def _check_shared(ledger: object) -> None:
    """Raise `PrivacyError` where people may ask but not see rows, and a scan is not to be shared."""
    if ledger is None and is_gated():
        raise PrivacyError(
            "a scan of rows is internal, and people here may not read rows (own_rows = gated)",
            "Share it: --ledger FILE (ledger=…).",
        )


def _as_releases(source: Any) -> list[Release] | None:
    """Return releases, if that is what the source is."""
    for stored in source if isinstance(source, (list, tuple)) else (source,):
        refuse_own_rows(stored)
    if isinstance(source, Release):
        return [source]
    if isinstance(source, (list, tuple)) and source and all(isinstance(stored, Release) for stored in source):
        return list(source)
    return None


def _check_nothing_counted(
    names: Sequence[str] | str, columns: Iterable[Mean | Covariate | Number], *others: object
) -> None:
    described_columns = [each for each in columns if each != type(each)(each.column)]
    if names or described_columns or any(choice is not None for choice in others):
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
) -> PairReadout:
    """Scan stored pair tables, all of which are published already.

    Raises `AnalysisError` where the releases hold no pairs, `PlanError` where their joint shares differ.
    """
    pairs: dict[tuple[str, str], Tally] = {}
    alone: dict[str, Tally] = {}
    for stored in releases:
        for table in stored.tables.values():
            names = table.experiment_names
            if len(names) == 2:
                pairs[names[0], names[1]] = table
        for experiment in stored.plan.experiment_names:
            alone.setdefault(experiment, stored.totals(experiment))
    if not pairs:
        raise AnalysisError(
            "these releases hold no table of two experiments",
            'Declare interactions = ["…"] in the plan and release again.',
        )
    joint = joint or _planned_together(releases, pairs)
    rules, notes, chained = _published(releases, rules or Rules())
    scan = scan_pairs(pairs, rules, metrics=metrics or None, alone=alone, joint_shares=joint)
    flagged = ((pairs.get((row.a, row.b)) or pairs[row.b, row.a], row.metric) for row in _flagged(scan))
    effects = _effects(flagged, _plans(releases))
    people = floor_to_k(max(table.total for table in alone.values()), rules.k)
    return PairReadout(scan, effects, people, rules.k, notes, chained)


def _plans(releases: Sequence[Release]) -> dict[str, ExperimentPlan]:
    """Return the plan of every experiment, which may say which arm is the control."""
    return {each.name: each for stored in reversed(releases) for each in stored.plan.experiments}


def _flagged(scan: PairScan) -> list[PairTest]:
    return scan.rows_of(scan.flagged_lines[:MOST_SHOWN])


def _published(releases: Sequence[Release], rules: Rules) -> tuple[Rules, tuple[str, ...], bool]:
    """Return the rules for releases, what is not in them as it was asked for, and whether all are chained."""
    columns = dict.fromkeys(column for stored in releases for column in stored.receipt.repeats)
    left_out = (sentence for stored in releases for sentence in stored.receipt.left_out.values())
    fewer = (sentence for stored in releases for sentence in stored.fewer_bins(stored.plan.experiment_names))
    notes = tuple(dict.fromkeys((*_repeated(columns), *left_out, *fewer)))
    k = min(stored.receipt.k for stored in releases)
    return replace(rules, k=k, rows_repeat=bool(columns)), notes, all(stored.chained for stored in releases)


def _effects(
    tables: Iterable[tuple[Tally, str]], plans: Mapping[str, ExperimentPlan], *, shared: bool = False
) -> tuple[PairEffects, ...]:
    """Return the effects within arms, but of tables where they cannot be computed, or are shared and tell too much."""
    effects = []
    for table, metric in tables:
        if not shared or rests_on_several(table.moments_of(metric)):
            (first, second), chosen = zip(*(control_of(plans.get(arms.name), arms) for arms in table.arms), strict=True)
            controls = dict(zip(table.experiment_names, (first, second), strict=True))
            with suppress(AnalysisError):
                effects.append(replace(effects_within(table, metric, controls=controls), chosen=chosen))
    return tuple(effects)
