"""All pairs of many experiments from any source, in one pass: ``count_pairs``."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from kanab.arguments import check_arguments
from kanab.counting.columns import declare_metrics, name_list
from kanab.counting.dispatch import SourceOptions, open_people
from kanab.counting.files import matching_files, read_files
from kanab.counting.frames import get_column, is_elsewhere, load_frame
from kanab.counting.grids import Profile, check_range, choose_metric
from kanab.counting.levels import place_arms
from kanab.errors import MissingExtraError, PlanError, SourceError, listed
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
from kanab.scan.count.counter import CountTask, PairSums, WantedMetric
from kanab.scan.count.people_batches import FramePeople, ParquetPeople, People, Progress
from kanab.scan.pair_tables import PairMoments, Pairs, fitting
from kanab.tally.metric import Metric, Missing

MOST_EXPERIMENTS = 1_000
"""More are refused: their 499,500 pairs are many to test, and their tables fill the memory."""

DeclaredMetric = MetricPlan | Metric


@check_arguments(skip=("experiments", "metrics", "bounds", "resolution", "missing"))
def count_pairs(
    source: Any,
    experiments: Sequence[str] | str,
    metrics: Sequence[str] | Mapping[str, Metric] | str = (),
    *,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    resolution: Mapping[str, float] | None = None,
    missing: Mapping[str, Missing] | None = None,
    where: str | None = None,
    table: str | None = None,
    sql: str | None = None,
    unit: str | None = None,
    aggregate: Mapping[str, str] | str | None = None,
    progress: Progress | None = None,
) -> Pairs:
    """Count people into the tables of all pairs of experiments, each with every metric.

    ``experiments`` are columns that hold arms, also by patterns such as "test_*"; they come in the order of the
    columns. Somebody without an arm is not in that experiment. Raises `SourceError` where the source cannot be
    counted, `PlanError` where names contradict each other or fewer than two experiments are named.

    >>> people = {"red": [0, 0, 1, 1], "blue": ["a", "b", "a", "b"], "spend": [0.5, 2.0, 1.5, 0.0]}
    >>> pairs = count_pairs(people, ["red", "blue"], ["spend"])
    >>> pairs.people.tolist()
    [[2, 0, 1, 1], [0, 2, 1, 1], [1, 1, 2, 0], [1, 1, 0, 2]]
    """
    metric_names = read_names(metrics, "metrics")
    choices = {"bounds": bounds, "resolution": resolution, "missing": missing}
    declared = list(declare_metrics(metrics, metric_names, choices).values())
    wanted = read_names(experiments, "experiments")
    if unit is not None:
        declared = [_with_rule(plan, aggregate) for plan in declared]
    options = SourceOptions(where=where, table=table, sql=sql, unit=unit, aggregate=aggregate)
    others = [*metric_names, *([unit] if unit is not None else [])]

    def choose(columns: Sequence[str]) -> Plan:
        names = _match_names(wanted, columns, others)
        return Plan(tuple(map(_as_plan, declared)), tuple(ExperimentPlan(name) for name in names))

    with _open(load_frame(source), options, choose) as (names, people):
        sums, chosen = _count(people, names, declared, progress)
    return _finish(sums, names, chosen)


def read_names(names: Any, word: str) -> list[str]:
    """Return column names, of which a single one may be given as a text.

    Raises `SourceError` where they are something else, or one is named twice.
    """
    return name_list([names] if isinstance(names, str) else names, word)


# ── what to count ──────────────────────────────────────────────────────────────────────────────


def _match_names(wanted: Sequence[str], columns: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the experiments that names and patterns mean, in the order of the columns."""
    matched: set[str] = set()
    for name in wanted:
        if name in columns or not any(sign in name for sign in "*?["):
            get_column(dict.fromkeys(columns, ()), name)  # an unknown name fails here, with a hint
            if name in others:
                raise PlanError(
                    f"{name!r} is named as an experiment and as something else", "Name each column for one purpose."
                )
            matched.add(name)
            continue
        matches = {known for known in columns if fnmatchcase(known, name)} - set(others)
        if not matches:
            raise SourceError(f"no column matches the pattern {name!r}", f"There are: {listed(columns)}.")
        matched |= matches
    names = [name for name in columns if name in matched]
    if len(names) < 2:
        raise PlanError("pairs need two experiments or more", "Name further columns that hold arms, or a pattern.")
    if len(names) > MOST_EXPERIMENTS:
        raise PlanError(
            f"{len(names):,} experiments are named; the limit is {MOST_EXPERIMENTS:,}", "Name fewer, or scan in parts."
        )
    return names


# ── counting ───────────────────────────────────────────────────────────────────────────────────


def _count(
    people: People, names: Sequence[str], declared: Sequence[DeclaredMetric], progress: Progress | None
) -> tuple[PairSums, list[Metric]]:
    """Count on the grids that the values suggest; again, if those of the people in an experiment want others.

    Grids are chosen by the values of people in an experiment. Most often these are all rows, so
    a glance at all rows of the metrics' few columns comes first, and everybody is read just once.
    """
    guessed = people.guess([plan.name for plan in declared if not _grid_known(plan)])
    metrics = [_choose_metric(plan, guessed.get(plan.name)) for plan in declared]
    while True:
        wanted = tuple(WantedMetric(plan.name, metric) for plan, metric in zip(declared, metrics, strict=True))
        sums = people.count(CountTask(tuple(names), wanted), progress)
        seen = [_choose_metric(plan, part.profile) for plan, part in zip(declared, sums.metrics, strict=True)]
        for plan, metric, part in zip(declared, seen, sums.metrics, strict=True):
            if metric is None or part.profile is None:
                raise SourceError(
                    f"nobody in an experiment has a value of metric {plan.name!r}", "Check the column, or leave it out."
                )
            if isinstance(plan, MetricPlan):
                check_range(metric, part.profile)
        if seen == metrics:
            parts = zip(declared, seen, sums.metrics, strict=True)
            return sums, [_without_gaps(plan, metric, part.missing) for plan, metric, part in parts if metric]
        metrics = seen


def _with_rule(plan: DeclaredMetric, aggregate: Mapping[str, str] | str | None) -> DeclaredMetric:
    """Return a metric of people made of several rows with its rule for missing values: a sum over no rows is 0."""
    how = aggregate if isinstance(aggregate, str) else (aggregate or {}).get(plan.name)
    return replace(plan, missing="zero") if plan.missing is None and how != "mean" else plan


def _as_plan(metric: DeclaredMetric) -> MetricPlan:
    if isinstance(metric, MetricPlan):
        return metric
    return MetricPlan(metric.name, metric.bounds, metric.resolution, missing=metric.missing)


def _grid_known(plan: DeclaredMetric) -> bool:
    """Tell whether the grid is known before any value is seen."""
    return isinstance(plan, Metric) or plan.declared or plan.resolution is not None


def _choose_metric(plan: DeclaredMetric, profile: Profile | None) -> Metric | None:
    """Return the metric on its grid, if that is known; whom to leave out is seen at the end."""
    if isinstance(plan, Metric):
        return plan
    if profile is None and not _grid_known(plan):
        return None
    return choose_metric(plan, replace(profile or Profile(), gaps=True))


def _without_gaps(plan: DeclaredMetric, metric: Metric, missing: int) -> Metric:
    """Return the metric as it would be without a rule for missing values, where there turned out to be none."""
    return metric if plan.missing is not None or missing else replace(metric, missing="zero")


def _finish(sums: PairSums, names: Sequence[str], metrics: Sequence[Metric]) -> Pairs:
    """Put the arms in order, and the sums as they will be used."""
    if not sums.total:
        raise SourceError("nobody is in an arm of the experiments", "Check the columns and the filter.")
    factors = tuple(
        place_arms(levels, ExperimentPlan(name)).factor for name, levels in zip(names, sums.levels, strict=True)
    )
    ordered = sums.with_levels(tuple(factor.levels for factor in factors))
    if ordered.people.sum() == np.trace(ordered.people):
        raise SourceError(
            "no two of the experiments have people in common", "Name experiments that ran at the same time."
        )
    parts = list(zip(metrics, ordered.metrics, strict=True))
    return Pairs(
        factors,
        ordered.people,
        tuple(PairMoments(metric, part.counts, fitting(part.sums), fitting(part.squares)) for metric, part in parts),
        sums.total,
        {metric.name: part.unusual for metric, part in parts},
        {metric.name: part.missing for metric, part in parts},
    )


# ── sources ────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _open(
    source: Any, options: SourceOptions, choose: Callable[[Sequence[str]], Plan]
) -> Iterator[tuple[Sequence[str], People]]:
    """Return the experiments that are chosen from the columns of a source, and its people."""
    simple = _open_without_engine(source, options)
    if simple is not None:
        yield choose(simple.columns).experiment_names, simple
        return
    if importlib.util.find_spec("ibis") is None:
        choosing = "choosing rows (where) and several rows per person (unit)"
        raise MissingExtraError(choosing if options.needs_engine else "reading anything but CSV files", "sql")
    from kanab.scan.count.engine_people import EnginePeople  # noqa: PLC0415 - needs the [sql] extra

    with open_people(source, options, choose) as (plan, table):
        yield plan.experiment_names, EnginePeople(table)


def _open_without_engine(source: Any, options: SourceOptions) -> FramePeople | ParquetPeople | None:
    """Open frames, dicts and Parquet files, where no engine has to choose rows or to add them up."""
    place = fspath(source) if isinstance(source, (str, PathLike)) else None
    if options.needs_engine or options.table or (place is not None and "://" in place) or is_elsewhere(source):
        return None
    if place is None:
        return FramePeople(source)
    files = [file for file in matching_files(place) if file.is_file()]
    if files and all(file.suffix.lower() in (".parquet", ".pq") for file in files):
        return ParquetPeople.open(files) if importlib.util.find_spec("pyarrow") is not None else None
    if importlib.util.find_spec("ibis") is None and place.lower().endswith((".csv", ".csv.gz")):
        return FramePeople(read_files(files or [Path(place)]))
    return None
