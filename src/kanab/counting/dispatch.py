"""One verb for every source: ``count`` takes frames, files, connections and Ibis tables.

Dicts, frames and Arrow tables need nothing but the core, and so do CSV files where the [sql] extra
is not installed. Everything else is counted by an engine, through Ibis.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

import numpy as np

from kanab.arguments import check_arguments
from kanab.counted import Counted
from kanab.counting.clipping import CLIPPED, clipped_plan, fixed_bounds, point_text, read_shares
from kanab.counting.clusters import bounds_of_people, by_clusters, cluster_columns
from kanab.counting.files import (
    ENDINGS,
    CsvForm,
    file_kind,
    header_of,
    matching_files,
    no_table,
    parse_fields,
    read_files,
    read_texts,
)
from kanab.counting.frames import (
    Array,
    column_names,
    get_column,
    get_columns,
    holds_fractions,
    is_elsewhere,
    load_frame,
)
from kanab.counting.in_memory import count_rows, needed_columns
from kanab.counting.levels import named_level
from kanab.counting.repeated_ids import id_columns
from kanab.description import DEFAULT_K, AnyCovariate, AnyMetric, Mean, Rows, covariate_values, metric_values
from kanab.errors import KanabError, MissingExtraError, NobodyError, PlanError, SourceError, listed, need_extra
from kanab.plan.check import check_plan, path_to, refuse
from kanab.plan.joint_plan import join_plans, own_names
from kanab.plan.model import ExperimentPlan, Plan, make_plan, rules_of, settle_kinds, settle_missing
from kanab.plan.periods import Span
from kanab.tally.factor import EVERYBODY, Level, label

Plans = tuple[Plan, ...]
"""The plan that is asked for, and the earlier ones that are counted again beside it."""

SMALL_CSV = 32 << 20
"""A CSV file of up to so many bytes (about a million rows) is read into memory, which an engine takes longer for."""


@check_arguments(skip=("plan", "metrics", "adjust", "segments", "earlier"))
def count(
    source: Any,
    plan: Plan | None = None,
    *,
    arm: str | None = None,
    metrics: Sequence[AnyMetric] = (),
    adjust: Sequence[AnyCovariate] = (),
    segments: Sequence[AnyCovariate] = (),
    arms: Sequence[Any] | Mapping[Any, float] | None = None,
    control: Level = None,
    treatment_received: str | None = None,
    k: int = DEFAULT_K,
    rows: Rows | None = None,
    earlier: Sequence[Plan] = (),
) -> Counted:
    """Count a source into the tables that a plan, or the named columns, need.

    source: a dict of columns; a pandas, polars or Arrow table or stream; the path, glob or address of files; a
        connection URL (with a table or query in ``rows``); or an Ibis table.
    plan: what to count, instead of ``arm`` to ``k``.
    arm: the column that holds the arm.
    metrics: what is compared: names, `Mean`, `Ratio` or `Quantile`.
    adjust: what effects are adjusted for: names, `Covariate` or `Number`.
    segments: what effects may differ by: names or `Covariate`.
    arms: the arms to count, or a dict with their planned shares.
    control: the arm to compare with.
    treatment_received: the metric that says who got what was assigned.
    k: people whom a class holds at least, or nobody.
    rows: which rows count, and how they become people: `Rows`.
    earlier: plans that are counted again in the same pass; the signatures of all go row by row.

    Raises `SourceError` for a source or a column that cannot be counted, `PlanError` for a plan
    that contradicts itself, `MissingExtraError` where an engine is needed that is not installed.

    >>> people = {"variant": ["A", "B"] * 20, "tier": [1, 2, 2, 1] * 10, "spend": [0.5, 2.0] * 20}
    >>> count(people, arm="variant", metrics=["spend"], adjust=["tier"], segments=["tier"])
    Counted, not yet released:
      variant/tier: Tally of variant (A, B) × tier (1, 2): spend in steps of 0.1, squares by variant, tier
    """
    plan = chosen_plan(
        plan, arm, metrics, adjust, segments,
        arms=arms, control=control, treatment_received=treatment_received, k=k,
    )  # fmt: skip
    options = source_options(rows, metrics)
    source = load_frame(source)
    return count_source(source, clip_source(source, plan, options), options, earlier)


def chosen_plan(
    plan: Plan | None,
    arm: str | None,
    metrics: Sequence[AnyMetric],
    adjust: Sequence[AnyCovariate],
    segments: Sequence[AnyCovariate],
    *,
    k: int,
    **others: Any,
) -> Plan:
    """Return the plan, or the one that single choices make; raise `PlanError` where both or none are given."""
    measured = metric_values(metrics)
    columns = (*measured, *covariate_values(adjust, "adjust"), *covariate_values(segments, "segments"))
    if plan is not None:
        if k != DEFAULT_K or columns or any(choice is not None for choice in (arm, *others.values())):
            raise PlanError("a plan and single choices are given", "Put the choices into the plan, or leave it out.")
        return plan
    if not isinstance(arm, str):
        raise PlanError("the column that holds the arm is not named", "Name it: arm=… (--arm), or give a plan.")
    unclipped = [replace(each, clip=None) if isinstance(each, Mean) else each for each in measured]
    return make_plan(arm, unclipped, adjust, segments, k=k, **others)


def source_options(rows: Rows | None, metrics: Sequence[AnyMetric] = ()) -> SourceOptions:
    """Return the rows to count, with the points at which metrics are clipped."""
    clip = {
        each.column: each.clip for each in metric_values(metrics) if isinstance(each, Mean) and each.clip is not None
    }
    return SourceOptions(**vars(rows or Rows()), clip=clip)


def count_source(
    source: Any, plan: Plan, options: SourceOptions, earlier: Sequence[Plan] = (), *, for_release: bool = True
) -> Counted:
    """Count a source by a plan, and by earlier plans in the same pass. What ``count`` does with its keywords.

    Without ``for_release`` nothing is counted that only the gate asks for: it is for `kanab.analysis.own_rows`.
    """
    source = load_frame(source)
    plans, options = _ready(plan, earlier, replace(options, for_release=for_release))
    try:
        counted = _count_any(source, plans, options)
    except NobodyError:
        if options.cluster is not None:
            by = listed(cluster_columns(options.cluster))
            fact = f"every value of {by} has people of several arms, so that arms were not assigned by it"
            raise SourceError(fact, "Name what arms were assigned by, or leave it out.") from None
        raise _nobody(source, plan, options) from None
    except SourceError as problem:
        older = {*needed_columns(*earlier)} - {*needed_columns(plan)}
        if not any(repr(name) in problem.fact for name in older):
            raise
        remedy = "Count the rows that the ledger is about, or release into another one (--ledger FILE --new-ledger)."
        raise SourceError(f"{problem.fact}, which earlier releases of the ledger were counted by", remedy) from None
    again = tuple(replace(older, plan=_as_counted(older), span=options.span) for older in counted.earlier)
    undecided = tuple(metric.name for metric in counted.plan.counted_metrics if metric.missing is None)
    return replace(
        counted,
        plan=_as_counted(counted),
        earlier=again,
        span=options.span,
        choices=options.choices,
        undecided=undecided,
    )


def clip_source(
    source: Any,
    plan: Plan,
    options: SourceOptions,
    before: Mapping[str, tuple[str, float]] | None = None,
    *,
    for_release: bool = True,
) -> Plan:
    """Return the plan with bounds at the points of the data that the options name, or at those of before."""
    if not options.clip:
        return plan
    if options.cluster is not None:
        raise PlanError(
            "clip is a point of people's values, and arms were assigned to groups of people", "Give bounds (--bounds)."
        )
    whole, fixed = replace(options, clip={}), fixed_bounds(before or {}, options.clip)

    def count_probe(probe: Plan) -> Counted:
        return count_source(source, probe, whole, for_release=False)

    return clipped_plan(plan, options.clip, count_probe, fixed, plan.k if for_release else 0)


def _nobody(source: Any, plan: Plan, options: SourceOptions) -> NobodyError:
    """Return the error of a source without anybody; it names the arms that k people are in, where others are declared.

    Nothing is said of cohorts: those of nobody and of a few people are refused alike.
    """
    if options.span is not None:
        return NobodyError()
    if _is_empty(source, options):
        return NobodyError("There are no rows to count: check the file, the query or the filter.")
    for experiment in plan.experiments:
        if experiment.arms is not None:
            alone = Plan((), (ExperimentPlan(experiment.name),), k=plan.k)
            with suppress(KanabError):
                arms = _count_any(source, (alone,), options).tallies[experiment.name].people_by(experiment.name)
                holds = listed(label(arm) for arm, people in arms.items() if people >= plan.k)
                declared = listed(map(label, experiment.arms))
                if holds:
                    return NobodyError(f"Declared: {declared}. Column {experiment.name!r} holds: {holds}.")
    return NobodyError()


def _is_empty(source: Any, options: SourceOptions) -> bool:
    """Return whether an engine finds no row at all; in memory that was an error before."""
    if not _installed("ibis") or not isinstance(source, (str, PathLike)):
        return False
    from kanab.counting.engine.dialects import first_row  # noqa: PLC0415 - needs the [sql] extra
    from kanab.counting.engine.filters import filter_rows  # noqa: PLC0415

    with suppress(KanabError), _opened(source, options) as (rows, _):
        some = (filter_rows(rows, options.where) if options.where else rows).limit(1)
        return not int(first_row(some.aggregate(rows=some.count()))["rows"])
    return False


@dataclass(frozen=True)
class SourceOptions(Rows):
    """Which rows of a source count, with what metrics and gates add to it."""

    clip: Mapping[str, str | float] = field(default_factory=dict)
    """Points of all people at which metrics are clipped; `clip_source` makes bounds of them."""
    clamp: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Bounds of a person's values, where those of clusters are added up."""
    for_release: bool = True
    """Whether what only the gate asks for is counted, too."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", load_frame(self.events))
        object.__setattr__(self, "join", load_frame(self.join))

    @property
    def form(self) -> CsvForm:
        """How CSV files are written."""
        return CsvForm(self.sep, self.decimal)

    @property
    def choices(self) -> dict[str, str]:
        """What decides who is counted and how, as texts: what a receipt records, and a ledger compares.

        Of files the names, not their folders.
        """
        how = {"": self.aggregate} if isinstance(self.aggregate, str) else dict(self.aggregate or {})
        texts = {
            "where": self.where,
            "unit": self.unit,
            "first_by": self.first_by,
            **{f"aggregate of {name}" if name else "aggregate": text for name, text in how.items()},
            "table": self.table,
            "sql": self.sql,
            "join": None if self.join is None else _name_of(self.join),
            "on": self.on if isinstance(self.on, str) else ", ".join(self.on or ()),
            "events": None if self.events is None else _name_of(self.events),
            "window": self.window,
            "time": self.time if self.time != "time" else None,
            "exposure_time": self.exposure_time if self.exposure_time != "time" else None,
            "sep": self.sep,
            "decimal": self.decimal if self.decimal != "." else None,
            "assigned_by": ", ".join(cluster_columns(self.cluster)) if self.cluster is not None else None,
            **{CLIPPED.format(name): point_text(share) for name, share in read_shares(self.clip).items()},
        }
        return {name: text for name, text in texts.items() if text}

    @property
    def needs_engine(self) -> bool:
        """Whether there is more to do than to count rows."""
        names = ("unit", "aggregate", "where", "sql", "events", "window", "join", "on", "first_by", "cluster")
        return any(getattr(self, name) is not None for name in names)

    def check(self) -> None:
        """Raise `SourceError` where something that exposures and events need is missing."""
        if (self.join is None) != (self.on is None):
            raise SourceError(
                "a join needs a second table and the column that both name alike",
                "Give join=… and on=… (--join countries.csv --on user_id).",
            )
        if self.cluster is not None and (self.unit or self.events is not None or self.span is not None):
            raise SourceError(
                "arms were assigned to groups of people, so that rows, not people, are added up",
                "Leave out the person (--unit), events and cohorts; make one row per person in a query (--sql).",
            )
        if self.events is None and self.window is not None:
            raise SourceError(
                "a window says how long events count, and no events are named",
                "Name them: events=… (--events), or leave the window out.",
            )
        if self.events is not None and self.window is None:
            raise SourceError("how long events count is not said", "Give window='14d' (--window 14d).")
        if self.events is not None and self.unit is None:
            raise SourceError(
                "whose events they are is not said",
                "Name the column of the person, alike in both tables: unit=… (--unit).",
            )


def _name_of(table: Any) -> str:
    """Return the name of a table, without its folder."""
    return Path(fspath(table)).name if isinstance(table, (str, PathLike)) else "a table in memory"


def explain(
    source: Any, plan: Plan, options: SourceOptions, earlier: Sequence[Plan] = (), *, for_release: bool = True
) -> str:
    """Return the statement that counting would run, in the engine's own dialect."""
    if not _installed("ibis"):
        raise MissingExtraError("showing the statement", "sql")
    from kanab.counting.engine.sql import show_sql  # noqa: PLC0415 - needs the [sql] extra

    plans, options = _ready(plan, earlier, replace(options, for_release=for_release))
    with _joined(source, plans, options) as (people, joint, units):
        return show_sql(people, joint, units, for_release=for_release)


def _ready(plan: Plan, earlier: Sequence[Plan], options: SourceOptions) -> tuple[Plans, SourceOptions]:
    """Return all plans, checked, with the rules for missing values that do not depend on who lacks one.

    Of clusters also the options, with the bounds of a person's values. A sum over a person's rows is 0 where there are
    none, and so is a maximum, but not a mean. Batches have one rule, whoever is in them.
    """
    span = options.span
    if span is not None and not isinstance(span, Span):
        raise PlanError("cohorts are given by something other than a Span", "Give Span(column, every, after, through).")
    if not isinstance(earlier, (tuple, list)):
        raise PlanError("earlier plans must be a list of plans", "For example earlier=[plan].")
    plans = [check_plan(each) for each in (plan, *earlier)]
    if options.cluster is not None:
        options = replace(options, clamp=bounds_of_people(plan))
        plans = [check_plan(by_clusters(each)) for each in plans]
    plans = [settle_missing(each, dict.fromkeys(each.numbers, "zero")) for each in plans]
    for each in plans if span is not None else ():
        refuse(list(_open_choices(each)), "the plan of the cohorts")
    plans[0] = settle_missing(plans[0], rules_of(plans[1:]))
    return tuple(_settled(each, options) for each in plans), options


def _settled(plan: Plan, options: SourceOptions) -> Plan:
    if options.cluster is not None:
        plan = settle_missing(plan, "zero")
    if options.unit is not None:
        how = options.aggregate
        means = [m.name for m in plan.metrics if (how if isinstance(how, str) else (how or {}).get(m.name)) == "mean"]
        plan = settle_missing(plan, {name: "zero" for name in plan.metric_names if name not in means})
    return plan if options.span is None else settle_missing(plan, "exclude")


def _open_choices(plan: Plan) -> Iterator[str]:
    """Yield what would be taken from the people of each batch, so that batches could not be added."""
    for experiment in plan.experiments:
        if experiment.arms is None:
            yield f"{path_to('experiments', experiment.name)} takes its arms from the data; declare them (--shares)"
    for name in plan.covariates_in_use:
        covariate = plan.covariate(name)
        if covariate.levels is None and not isinstance(covariate.bins, tuple):
            path = path_to("covariates", name)
            yield (
                f"{path} takes its levels from the data; declare levels, or the edges of bins, in a plan file, or that "
                "it is a number (--number)"
            )


def _as_counted(counted: Counted) -> Plan:
    """Return the plan with what the rows decided: how controls are spelled ("0" may be the number 0), who is left out.

    Missing values without a rule are left out, wherever somebody has none.
    """
    for factor in (factor for tally in counted.tallies.values() for factor in tally.covariates):
        if counted.plan.covariate(factor.name).score and factor.scores is None:
            raise SourceError(
                f"covariate {factor.name!r} has no slope: it holds something other than numbers",
                f"Leave it out of score (--score): {factor.name} is adjusted for as categories.",
            )
    experiments = []
    for experiment in counted.plan.experiments:
        tally = next(tally for tally in counted.tallies.values() if tally.axes[0] == experiment.name)
        control = experiment.control
        people = tally.people_by(experiment.name)
        shown = [arm for arm, number in people.items() if experiment.arms is not None or number >= counted.plan.k]
        named = None if control is None else named_level(control, tally.factor(experiment.name), shown)
        experiments.append(replace(experiment, control=named))
    rules = {metric.name: metric.missing for tally in counted.tallies.values() for metric in tally.metrics}
    return replace(settle_missing(counted.plan, rules), experiments=tuple(experiments))


def _count_any(source: Any, plans: Plans, options: SourceOptions) -> Counted:
    if isinstance(source, (str, PathLike)):
        return _count_place(fspath(source), plans, options)
    if is_elsewhere(source) or options.needs_engine:
        return _by_engine(source, plans, options)
    if options.table is not None:
        raise no_table()
    return _by_rows(source, plans, options)


def _by_rows(data: Any, plans: Plans, options: SourceOptions) -> Counted:
    if plans[0].experiment_names == (EVERYBODY,):
        names = needed_columns(*plans, span=options.span)[1:]
        table = get_columns(data, [*names, *id_columns(column_names(data), names)])
        data = {EVERYBODY: np.full(len(table[names[0]]), EVERYBODY)} | table
    plan, *earlier = (
        check_plan(settle_kinds(each, lambda name: holds_fractions(get_column(data, name)))) for each in plans
    )
    return count_rows(data, plan, earlier, options.span, for_release=options.for_release)


def _count_place(place: str, plans: Plans, options: SourceOptions) -> Counted:
    """Count files and connections by an engine, or CSV files by the core where there is none, or they are small."""
    if _installed("ibis") and not _is_small_csv(place, options):
        return _by_engine(place, plans, options)
    if "://" in place:
        raise MissingExtraError("reading from a database", "sql")
    files = matching_files(place)
    if file_kind(files[0]) in ("parquet", "lake"):
        raise MissingExtraError("reading Parquet files", "sql")
    if options.needs_engine:
        raise MissingExtraError("choosing rows (where, sql) or adding up several rows per person (unit)", "sql")
    form = options.form
    if options.table is not None and file_kind(files[0]) != "excel":
        raise no_table()
    if file_kind(files[0]) == "csv":
        wanted = [name for name in needed_columns(*plans, span=options.span) if name != EVERYBODY]
        table: dict[str, Any] = _read_csv(files, wanted, form)
    else:
        table = read_files(files, options.table, form)
    return _by_rows(table, plans, options)


def source_columns(place: str, options: SourceOptions) -> list[str]:
    """Return the names of the columns of files or of a connection; raise `SourceError` where they cannot be read."""
    if "://" not in place and not options.needs_engine:
        file = matching_files(place)[0]
        if not file.exists() or file_kind(file) == "csv":
            return header_of(file, options.form)
    need_extra("reading anything but CSV files", "sql", "ibis")
    with _opened(place, options) as (people, _):
        return list(people.columns)


def _is_small_csv(place: str, options: SourceOptions) -> bool:
    """Return whether a source is one CSV file that memory holds easily: an engine takes several times as long."""
    file = Path(place)
    if "://" in place or options.needs_engine or options.table is not None or not file.is_file():
        return False
    return ENDINGS.get(file.suffix.lower()) == "csv" and file.stat().st_size <= SMALL_CSV


def _read_csv(files: Sequence[Path], names: Sequence[str], form: CsvForm) -> dict[str, Array]:
    """Read some columns of CSV files, one below the other, and those that look like a person's id and repeat."""
    shared = set.intersection(*(set(header_of(file, form)) for file in files))
    ids = id_columns((name for name in header_of(files[0], form) if name in shared), names)
    tables = [read_texts(file, [*names, *ids], form) for file in files]
    fields = {name: list(chain.from_iterable(table[name] for table in tables)) for name in (*names, *ids)}
    repeated = [name for name in ids if len(set(map(str.strip, fields[name]))) < len(fields[name])]
    return {name: parse_fields(fields[name], form) for name in (*names, *repeated)}


def _by_engine(source: Any, plans: Plans, options: SourceOptions) -> Counted:
    if not _installed("ibis"):
        choosing = "choosing rows (where) or adding up several rows per person (unit)"
        raise MissingExtraError(choosing if options.needs_engine else f"reading a {type(source).__name__}", "sql")
    from kanab.counting.engine.people import find_rates  # noqa: PLC0415 - needs the [sql] extra
    from kanab.counting.engine.sql import count_table  # noqa: PLC0415

    with _joined(source, plans, options) as (people, plan, units):
        counted = count_table(people, plan, units, for_release=options.for_release)
        if options.cluster is None:
            return counted
        return replace(counted, rates=find_rates(people, counted.plan, options.where))


@contextmanager
def _joined(source: Any, plans: Plans, options: SourceOptions) -> Iterator[tuple[Any, Plan, Any]]:
    """Open the source as an Ibis table for a while, with the plan, or the joint one of several, and the `Units`."""
    import ibis  # noqa: PLC0415 - needs the [sql] extra

    from kanab.counting.engine.profiles import holds_fractions  # noqa: PLC0415

    with _opened(source, options) as (opened, units):
        alone = plans[0].experiment_names == (EVERYBODY,)
        people = opened.mutate(**{EVERYBODY: ibis.literal(EVERYBODY)}) if alone else opened
        is_number = cache(lambda name: options.cluster is None and holds_fractions(people, name))
        joint, *others = (check_plan(settle_kinds(plan, is_number)) for plan in plans)
        if others:  # aliases are no columns of the tables
            taken = [*people.columns, *(units.events.table.columns if units.events else [])]
            joint = join_plans([joint, *others], taken, apart=units.events is not None)
        with own_names(joint):
            yield people, joint, units


@contextmanager
def _opened(source: Any, options: SourceOptions) -> Iterator[tuple[Any, Any]]:
    """Open the source as an Ibis table for a while, with how its rows become people: `Units`."""
    from kanab.counting.connect import open_beside, opened_table  # noqa: PLC0415 - needs the [sql] extra
    from kanab.counting.engine.filters import join_table  # noqa: PLC0415
    from kanab.counting.engine.people import CLUSTER, Events, Units, cluster_rows, window_seconds  # noqa: PLC0415

    options.check()
    if options.window is not None:
        window_seconds(options.window)
    with opened_table(source, table=options.table, sql=options.sql, form=options.form) as rows:
        people = rows
        if options.join is not None:
            people = join_table(rows, open_beside(rows, options.join, options.form), options.on)
        events = options.events
        if events is not None:
            beside = open_beside(people, events, options.form)
            events = Events(beside, options.window or "", options.time, options.exposure_time)
        unit, how = options.unit, cast(Any, options.aggregate)  # `Units` checks its words
        if options.cluster is not None:
            people = cluster_rows(people, cluster_columns(options.cluster), options.clamp)
            unit, how = CLUSTER, "sum"
        yield people, Units(unit, how, events, options.first_by, options.where, options.span)


@contextmanager
def open_people(
    source: Any, options: SourceOptions, choose: Callable[[Sequence[str]], Plan]
) -> Iterator[tuple[Plan, Any]]:
    """Open any source as the Ibis table that counting reads: filtered, joined, a row per person, a plan's columns.

    ``choose`` makes the plan, given the names of the columns. `arrow_batches` yields its rows.
    """
    from kanab.counting.engine.dialects import strict_arithmetic  # noqa: PLC0415 - needs the [sql] extra
    from kanab.counting.engine.sql import counted_people  # noqa: PLC0415

    with _opened(source, options) as (rows, units), strict_arithmetic(rows):
        plan = choose(rows.columns)
        with counted_people(rows, plan, units) as people:
            yield plan, people.select(*needed_columns(plan))


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
