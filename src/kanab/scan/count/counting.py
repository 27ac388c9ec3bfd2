"""All pairs of many experiments from any source, in one pass: ``count_pairs``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from kanab.counting.columns import name_list, per_metric
from kanab.counting.csvfile import parse_fields, read_texts
from kanab.counting.frames import get_column
from kanab.counting.grids import Profile, check_range, choose_metric
from kanab.counting.levels import place_arms
from kanab.errors import MissingExtraError, PlanError, SourceError, listed
from kanab.plan.model import ExperimentPlan, MetricPlan
from kanab.scan.count.counter import Task, Wanted
from kanab.scan.count.stream import FramePeople, ParquetPeople, People, Progress, Reading, matching_files
from kanab.scan.count.sums import PairSums
from kanab.scan.pairs import PairMoments, Pairs, fitting
from kanab.tally.metric import Metric, Missing

MOST_EXPERIMENTS = 500
"""More are refused: their 124,750 pairs are many to test, and their tables fill the memory."""

Declared = MetricPlan | Metric
Choose = Callable[[Sequence[str]], People]


def count_pairs(
    source: Any,
    experiments: Sequence[str] | str,
    metrics: Sequence[str] | Mapping[str, Metric] = (),
    *,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    resolution: Mapping[str, float] | None = None,
    missing: Mapping[str, Missing] | None = None,
    where: str | None = None,
    table: str | None = None,
    sql: str | None = None,
    unit: str | None = None,
    aggregate: Mapping[str, str] | str | None = None,
    assignments: Any = None,
    progress: Progress | None = None,
) -> Pairs:
    """Count people into the tables of all pairs of experiments, each with every metric.

    ``source`` is a dict of columns; a pandas, polars or Arrow table; the path or glob of CSV or
    Parquet files; a connection URL with ``table`` or ``sql``; or an Ibis table. ``experiments`` are
    columns that hold arms, also by patterns such as "test_*"; they come in the order of the columns.
    Somebody without an arm is not in that experiment. ``unit`` names the person where one has several
    rows, and ``aggregate`` says how these become one. With ``assignments``, a tuple of a table, its
    column of the person, of the experiment and of the arm, the source holds only the metrics.
    ``progress`` is called with the people counted so far, and with how many there are, if known.

    >>> people = {"red": [0, 0, 1, 1], "blue": ["a", "b", "a", "b"], "spend": [0.5, 2.0, 1.5, 0.0]}
    >>> pairs = count_pairs(people, ["red", "blue"], ["spend"])
    >>> pairs.people.tolist()
    [[2, 0, 1, 1], [0, 2, 1, 1], [1, 1, 2, 0], [1, 1, 0, 2]]
    """
    declared = _declared(metrics, {"bounds": bounds, "resolution": resolution, "missing": missing})
    wanted = name_list([experiments] if isinstance(experiments, str) else experiments, "experiments")
    reading = Reading(where, table, sql, unit, aggregate, assignments)
    with _opened(source, reading, declared) as (columns, choose):
        own = [one.name for one in declared]
        names = _matched(wanted, columns, own if unit is None else [*own, unit])
        people = choose(names)
        sums, chosen = _count(people, names, declared, progress)
    return _finished(sums, names, chosen)


# ── what to count ──────────────────────────────────────────────────────────────────────────────


def _declared(metrics: Any, choices: Mapping[str, Any]) -> list[Declared]:
    """Metrics as they were declared, or what was chosen for each of them."""
    names = name_list([metrics] if isinstance(metrics, str) else metrics, "metrics")
    given = {word: per_metric(choice, names, word) for word, choice in choices.items()}
    if not isinstance(metrics, Mapping):
        return [
            MetricPlan(name, **{word: choice[name] for word, choice in given.items() if name in choice})
            for name in names
        ]
    if any(given.values()):
        raise SourceError(
            "metrics are declared, and bounds, resolution or missing are given besides",
            "Put them into the declared metrics.",
        )
    for name, metric in metrics.items():
        if not isinstance(metric, Metric) or metric.name != name:
            raise SourceError(f"metric {name!r} is not declared under its name", f"Give a Metric({name!r}, …).")
    return list(metrics.values())


def _matched(wanted: Sequence[str], columns: Sequence[str], others: Sequence[str]) -> list[str]:
    """The experiments that names and patterns mean, in the order of the columns."""
    found: set[str] = set()
    for name in wanted:
        if name in columns or not any(sign in name for sign in "*?["):
            get_column(dict.fromkeys(columns, ()), name)  # an unknown name fails here, with a hint
            if name in others:
                raise PlanError(
                    f"{name!r} is named as an experiment and as something else", "Name each column for one purpose."
                )
            found.add(name)
            continue
        matches = {one for one in columns if fnmatchcase(one, name)} - set(others)
        if not matches:
            raise SourceError(f"no column matches the pattern {name!r}", f"There are: {listed(columns)}.")
        found |= matches
    names = [one for one in columns if one in found]
    if len(names) < 2:
        raise PlanError("pairs need two experiments or more", "Name further columns that hold arms, or a pattern.")
    if len(names) > MOST_EXPERIMENTS:
        raise PlanError(
            f"{len(names):,} experiments are named; the limit is {MOST_EXPERIMENTS:,}", "Name fewer, or scan in parts."
        )
    return names


# ── counting ───────────────────────────────────────────────────────────────────────────────────


def _count(
    people: People, names: Sequence[str], declared: Sequence[Declared], progress: Progress | None
) -> tuple[PairSums, list[Metric]]:
    """Count on the grids that the values suggest; again, if those of the people in an experiment want others.

    Grids are chosen by the values of people in an experiment. Most often these are all rows, so
    a glance at all rows of the metrics' few columns comes first, and everybody is read just once.
    """
    guessed = people.guess([one.name for one in declared if not _fixed(one)])
    metrics = [_chosen(one, guessed.get(one.name)) for one in declared]
    while True:
        wanted = tuple(Wanted(one.name, one.missing, metric) for one, metric in zip(declared, metrics, strict=True))
        sums = people.count(Task(tuple(names), wanted), progress)
        seen = [_chosen(one, part.profile) for one, part in zip(declared, sums.metrics, strict=True)]
        for one, metric, part in zip(declared, seen, sums.metrics, strict=True):
            if metric is None or part.profile is None:
                raise SourceError(
                    f"nobody in an experiment has a value of metric {one.name!r}", "Check the column, or leave it out."
                )
            if isinstance(one, MetricPlan):
                check_range(metric, part.profile)
        if seen == metrics:
            return sums, [metric for metric in seen if metric is not None]
        metrics = seen


def _fixed(one: Declared) -> bool:
    """Is its grid known without a look at the values?"""
    return isinstance(one, Metric) or one.declared or one.resolution is not None


def _chosen(one: Declared, profile: Profile | None) -> Metric | None:
    if isinstance(one, Metric):
        return one
    if _fixed(one):
        return one.metric()
    return None if profile is None else choose_metric(one, profile)


def _finished(sums: PairSums, names: Sequence[str], metrics: Sequence[Metric]) -> Pairs:
    """The arms in order, and the sums as they will be used."""
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
        tuple(PairMoments(metric, one.counts, fitting(one.sums), fitting(one.squares)) for metric, one in parts),
        sums.total,
        {metric.name: one.unusual for metric, one in parts},
        {metric.name: one.missing for metric, one in parts},
        {metric.name: one.clamped for metric, one in parts},
        sums.outside,
        sums.excluded,
    )


# ── sources ────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _opened(source: Any, reading: Reading, declared: Sequence[Declared]) -> Iterator[tuple[Sequence[str], Choose]]:
    """The columns among which experiments are named, and the people once they are."""
    simple = _without_engine(source, reading)
    if simple is not None:
        yield simple.columns, lambda _names: simple
        return
    if importlib.util.find_spec("ibis") is None:
        choosing = "choosing rows (where), several rows per person (unit) and assignments"
        raise MissingExtraError(choosing if reading.needs_engine else "reading anything but CSV files", "sql")
    from kanab.scan.count.people import opened_people  # noqa: PLC0415 - needs the [sql] extra

    plans = tuple(one if isinstance(one, MetricPlan) else _as_plan(one) for one in declared)
    with ExitStack() as stack:
        yield opened_people(stack, source, plans, reading)


def _as_plan(metric: Metric) -> MetricPlan:
    return MetricPlan(metric.name, metric.bounds, metric.resolution, missing=metric.missing)


def _without_engine(source: Any, reading: Reading) -> People | None:
    """Frames, dicts and Parquet files, where no engine has to choose rows or to add them up."""
    place = fspath(source) if isinstance(source, (str, PathLike)) else None
    connection = place is not None and "://" in place
    if (reading.table is not None or reading.sql is not None) and not connection:
        raise SourceError("table and sql are for connections", "Give a URL as the source, or leave them out.")
    package = type(source).__module__.partition(".")[0]
    if reading.needs_engine or connection or package in ("ibis", "pyspark"):
        return None
    if place is None:
        return FramePeople(source.collect() if package == "polars" and hasattr(source, "collect") else source)
    files = matching_files(place)
    if files and all(file.suffix.lower() in (".parquet", ".pq") for file in files):
        return ParquetPeople.open(files) if importlib.util.find_spec("pyarrow") is not None else None
    if importlib.util.find_spec("ibis") is None and place.lower().endswith((".csv", ".csv.gz")):
        tables = [read_texts(file) for file in files or [Path(place)]]
        return FramePeople({name: parse_fields(chain.from_iterable(one[name] for one in tables)) for name in tables[0]})
    return None
