"""Count people in an engine into one tally per linkage of a plan: ``count_table`` over Ibis.

One statement reads the source once. Before it, a sample (or, where the plan leaves much open,
everybody) decides grids, bins and the commonest levels, by the rules that all sources share.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import sqlglot

from kanab.counted import Counted
from kanab.counting.columns import MetricSteps
from kanab.counting.columns import measure as measure_values
from kanab.counting.engine.answer import (
    Places,
    QueryAnswer,
    build_tally,
    membership_of,
    other_than_truths,
    parse_int,
    place_all,
    read_answer,
    shapes_of_answer,
    split_off,
    with_values,
)
from kanab.counting.engine.dialects import (
    asking,
    engine_of,
    first_row,
    kept,
    query_text,
    run_query,
    spark_setting,
    strict_arithmetic,
)
from kanab.counting.engine.filters import filter_rows
from kanab.counting.engine.group_keys import Key, as_values, kind_of
from kanab.counting.engine.measures import (
    Measure,
    as_number,
    careful_measure,
    grid_steps,
    open_range,
    quick_measure,
    range_fits,
    step_range,
)
from kanab.counting.engine.people import (
    Units,
    add_alias_columns,
    changing_covariates,
    outside_flag,
    person_flags,
    restrict_people,
    to_people,
    twice_flag,
)
from kanab.counting.engine.profiles import (
    SampleProfiles,
    count_levels,
    find_bins,
    profile_columns,
    profile_sample,
    sample_values,
    top_levels,
)
from kanab.counting.engine.statement import (
    BinnedCovariate,
    CountQuery,
    CrossSum,
    first_stage,
    query_parts,
    write_statement,
)
from kanab.counting.engine.times import day_number, in_span
from kanab.counting.frames import DAY, days_as_levels
from kanab.counting.grids import Profile, check_zero, coarse_metrics, few_steps, plan_products, too_coarse
from kanab.counting.in_memory import needed_columns
from kanab.counting.levels import Bins, check_arms, check_levels, declare_levels
from kanab.counting.relations import find_relations
from kanab.counting.repeated_ids import id_columns, repeated_by_engine
from kanab.counting.signature_groups import commonest_step, counts_things, make_signatures
from kanab.errors import QueryError
from kanab.plan.joint_plan import Population, column_of, people_of, populations, tables_about, views_of
from kanab.plan.model import MOST_LEVELS, Plan
from kanab.tally.factor import OTHER

_ROWS_ARE_PEOPLE = Units()


def count_table(table: Any, plan: Plan, units: Units = _ROWS_ARE_PEOPLE, *, for_release: bool = True) -> Counted:
    """Count an Ibis table of any engine into every table that the plan needs.

    Without ``for_release`` nothing is counted that only the gate asks for.
    """
    with _prepared(table, plan, units, for_release=for_release) as (people, query, sample):
        answer = _answer(people, query, sample)
        gaps, others = _late_gaps(answer), other_than_truths(answer)
        if gaps or others:  # people without a value, or with another one than 0 and 1, whom the sample did not show
            answer = _answer(people, replace(query, gaps=query.gaps | gaps, other_values=others), sample)
        changing_covariates(answer.everybody(), plan, units)
        counted = replace(_count(people, answer), where=units.where or "")
        ids = id_columns(table.columns, [column_of(plan, name) for name in needed_columns(plan)])
        if units.unit is not None or not ids:
            return counted
        rows = filter_rows(table, units.where) if units.where else table
        return replace(counted, repeats=repeated_by_engine(rows, ids, plan.k))


def show_sql(table: Any, plan: Plan, units: Units = _ROWS_ARE_PEOPLE, *, for_release: bool = True) -> str:
    """Return the statement that ``count_table`` would run, in the engine's own dialect.

    What the plan leaves open (grids, bins, the commonest levels) is looked up first, as it would be. People who are
    made of many rows are a subquery here; DuckDB makes them once for all statements, as a temporary table.
    """
    with _prepared(table, plan, units, for_release=for_release, keep=False) as (people, query, sample):
        chosen = _quick_query(query, sample) or _careful_query(people, query, sample)
        stage = first_stage(people, chosen)
        dialect = people.get_backend().dialect
        text = sqlglot.parse_one(query_text(stage), dialect=dialect).sql(dialect=dialect, pretty=True)
        return write_statement(text, query_parts(stage, chosen), chosen, dialect, pretty=True)


# ── people ─────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _prepared(
    table: Any, plan: Plan, units: Units, *, for_release: bool, keep: bool = True
) -> Iterator[tuple[Any, CountQuery, SampleProfiles]]:
    """Give the people, what to count of them but for the metrics' grids, and a sample of them."""
    for source in (table, *([units.events.table] if units.events else [])):
        with asking(source.get_backend()):
            engine_of(source).check(source, [column_of(plan, name) for name in needed_columns(plan)])
    with strict_arithmetic(table), counted_people(table, plan, units, keep=keep) as people:
        query = replace(_make_query(people, plan, flags=person_flags(plan, units)), for_release=for_release)
        sample = _sample(people, query)
        lacking = [name for name, metric in sample.metrics.items() if metric.profile.gaps]
        everybody = plan.experiment_names  # others lack a value wherever a metric is not about them
        gaps = frozenset(name for name in lacking if people_of(plan, name) == everybody)
        yield people, replace(query, gaps=gaps), sample


@contextmanager
def counted_people(table: Any, plan: Plan, units: Units, *, keep: bool = True) -> Iterator[Any]:
    """Give a row per person, with the plan's columns. ``keep``: people made of many rows are made once."""
    rows, span = filter_rows(table, units.where) if units.where else table, units.span
    in_utc = spark_setting(table, "spark.sql.session.timeZone", "UTC")  # which decides the day of an instant there
    with in_utc if span else nullcontext():
        if units.unit is None:
            enrolled = rows.filter(in_span(day_number(rows, span.column), span)) if span else rows
            known, names = add_alias_columns(enrolled, plan), needed_columns(plan)
            if set(names) <= set(known.columns):  # of an unknown name the error needs all the others
                known = known.select(*names)  # Ibis handles few columns the quicker
            yield restrict_people(known, plan)
            return
        made = to_people(rows, plan, units)
        with kept(made) if keep else nullcontext(made) as people:
            yield restrict_people(people, plan)


# ── what to count ──────────────────────────────────────────────────────────────────────────────


def _make_query(people: Any, plan: Plan, *, flags: tuple[str, ...]) -> CountQuery:
    """Return everything to count but for the metrics' grids."""
    kinds = {metric.name: kind_of(people, metric.name, metric=True) for metric in plan.counted_metrics}
    arms = {name: Key(name, f"arm{place}", kind_of(people, name)) for place, name in enumerate(plan.experiment_names)}
    bare = CountQuery(plan, engine_of(people), arms, {}, (), flags=flags, kinds=kinds)
    inside = people.filter(bare.anywhere(people))
    levels, declared, binned = {}, {}, []
    for place, name in enumerate(plan.covariates_in_use):
        key = Key(name, f"level{place}", kind_of(people, name))
        wanted = plan.covariate(name)
        if wanted.bins is not None:
            bins, profile = find_bins(inside, wanted, key.kind)
            key = replace(key, bins=bins)
            binned.append(BinnedCovariate(key, profile.scale))
        elif wanted.top is not None:
            common, rest = top_levels(inside, wanted, key.kind, plan)
            key, wanted = replace(key, named=common), declare_levels(name, common, rest=rest)
        elif wanted.levels is not None and OTHER in wanted.levels:
            key = replace(key, named=as_values(wanted.levels, key.kind))
        levels[name], declared[name] = key, wanted
    for place, name in enumerate(plan.binned_metrics, len(levels)):
        metric = plan.metrics_by_name[name]
        fill = 0.0 if metric.missing == "zero" else None
        levels[name] = Key(name, f"level{place}", kinds[name], bins=Bins(name, metric.edges), fill=fill)
    return replace(bare, levels=levels, declared_levels=declared, binned=tuple(binned))


def _sample(people: Any, query: CountQuery) -> SampleProfiles:
    """Profile a few people; raise `SourceError` for columns of names before everybody is grouped by them."""
    inside = people.filter(query.anywhere(people))
    open_keys = [key for key in query.keys if key.bins is None and key.named is None]
    undeclared = [metric.name for metric in query.plan.counted_metrics if not metric.declared]
    sample = profile_sample(inside, query.kinds, open_keys, undeclared)
    if len(populations(query.plan)) > 1:  # rules ask for values of those whom the plan that is asked for is about
        own = inside.filter(query.anywhere(inside, views_of(query.plan)[0].population))
        sample = replace(sample, values=sample_values(own, query.kinds))
    for key in open_keys:
        if sample.levels[key.name] > MOST_LEVELS:
            levels = count_levels(inside, [key])[key.name]
            if key.name in query.arms:
                check_arms(key.name, levels)
            elif query.declared_levels[key.name].levels is None:
                dates = inside[key.name].strip().re_search(DAY).all() if key.kind == "text" else None
                if dates is not None and first_row(inside.aggregate(dates=dates))["dates"] is True:
                    raise days_as_levels(key.name)
                check_levels(key.name, levels, query.plan)
    return sample


def _quick_query(query: CountQuery, sample: SampleProfiles) -> CountQuery | None:
    """Return the query in its quick form, unless a sample shows that it would not be enough."""
    if not query.engine.casts_fail:
        return None
    measures = []
    for place, metric in enumerate(query.plan.counted_metrics):
        seen = sample.metrics[metric.name]
        seen = replace(seen, profile=replace(seen.profile, gaps=metric.name in query.gaps))
        measure = quick_measure(place, metric, query.kinds[metric.name], seen, query.engine)
        if measure is None:
            return None
        measures.append(measure)
    return _with_measures(query, measures, sample)


def _careful_query(people: Any, query: CountQuery, sample: SampleProfiles) -> CountQuery:
    """Return the query in its careful form, the open ranges looked up over everybody."""
    metrics = query.plan.counted_metrics
    undeclared = {metric.name: query.kinds[metric.name] for metric in metrics if not metric.declared}
    profiles = profile_columns(people.filter(query.anywhere(people)), undeclared)
    measures = []
    for place, metric in enumerate(metrics):
        profile = replace(profiles.get(metric.name, Profile()), gaps=metric.name in query.gaps)
        measures.append(careful_measure(place, metric, query.kinds[metric.name], profile))
    return _with_measures(query, measures, sample)


def _with_measures(query: CountQuery, measures: Sequence[Measure], sample: SampleProfiles) -> CountQuery:
    places = {measure.name: measure.place for measure in measures}
    ranges = {
        measure.name: measure.metric.grid_bounds or step_range(measure.metric, measure.profile) for measure in measures
    }
    crosses = []
    some = {measure.name for measure in measures if measure.leaves_out}
    for first, second in dict.fromkeys(query.plan.products):
        pairs = ((first, first), (second, second), (first, second))
        yy, zz, yz = (plan_products(ranges[a], ranges[b]) for a, b in pairs)
        shared = not {first, second} & some
        crosses.append(CrossSum((places[first], places[second]), (yy, zz, yz), shared))
    measures = [_with_commonest(measure, sample) for measure in measures]
    if not query.for_release:
        return replace(query, measures=tuple(measures), crosses=tuple(crosses))
    multiplying = {name for pair in query.plan.products for name in pair} - query.other_values
    cut = frozenset(each.name for each in measures if each.name in multiplying and _seems_true_or_false(each, sample))
    asked = [measure if _unasked(measure, query.plan, cut) else replace(measure, asked=True) for measure in measures]
    related = [measure for measure in measures if measure.name in _comparable(query.plan)]
    relations = find_relations([_sampled(measure, sample) for measure in related])
    return replace(query, measures=tuple(asked), crosses=tuple(crosses), cut=cut, relations=relations)


def _sampled(measure: Measure, sample: SampleProfiles) -> MetricSteps:
    values = sample.values.get(measure.name, np.empty(0))
    gone = ~np.isfinite(values)
    return measure_values(replace(measure.metric, missing="exclude"), np.where(gone, 0.0, values), gone)


def _unasked(measure: Measure, plan: Plan, cut: Container[str]) -> bool:
    """Return whether no rule asks how far people are off the commonest value: of other plans, and of small counts."""
    view = views_of(plan)[0]
    if measure.name in cut and measure.metric.scale > 1:  # to see that it is 0 or 1
        return False
    own = next((name for name, joint in view.metrics.items() if joint == measure.name), None)
    if own is None:
        return True
    ends = measure.known_ends
    return (
        view.plan.metrics_by_name[own].sensitive == "no" and ends is not None and counts_things(measure.metric, *ends)
    )


def _with_commonest(measure: Measure, sample: SampleProfiles) -> Measure:
    """Return a metric with the value that most people of a sample share."""
    some = _sampled(measure, sample)
    steps = some.steps[some.has] if measure.leaves_out else some.steps
    return replace(measure, commonest=commonest_step(measure.metric, steps))


def _comparable(plan: Plan) -> set[str]:
    """Return the metrics among which relations are looked for: those of a plan, and other columns of earlier plans."""
    own = views_of(plan)[0].metrics
    names = dict(own)
    for metric in plan.counted_metrics:
        names.setdefault(column_of(plan, metric.name), metric.name)
    return {*names.values()}


def _seems_true_or_false(measure: Measure, sample: SampleProfiles) -> bool:
    """Return whether a metric is 0 or 1 for everybody of a sample, whatever bounds it has."""
    values = sample.values.get(measure.name, np.empty(0))
    known = values[np.isfinite(values)]
    return measure.metric.binary or (len(known) > 0 and bool(np.isin(known, (0, 1)).all()))


# ── running the query ──────────────────────────────────────────────────────────────────────────


def _answer(people: Any, query: CountQuery, sample: SampleProfiles) -> QueryAnswer:
    quick = _quick_answer(people, query, sample)
    if quick is not None:
        return quick
    careful = _ask(people, _careful_query(people, query, sample))
    _fits(careful)  # raises where values are infinite
    return careful


def _late_gaps(answer: QueryAnswer) -> frozenset[str]:
    """Return the metrics without a rule for missing values that turned out to have some, and were not expected to."""
    query = answer.query
    unruled = [query.measure(metric.name) for metric in query.plan.counted_metrics if metric.missing is None]
    return frozenset(
        measure.name
        for measure in unruled
        if measure.name not in query.gaps and _people_without(answer, measure, people_of(query.plan, measure.name)) > 0
    )


def _people_without(answer: QueryAnswer, measure: Measure, group: Population) -> int:
    inside = answer.inside(group)
    return parse_int(inside["n"]) - parse_int(inside[f"c{measure.place}"])


def _quick_answer(people: Any, query: CountQuery, sample: SampleProfiles) -> QueryAnswer | None:
    """Return the answer to the quick form; None if it was not enough for everybody's values."""
    quick = _quick_query(query, sample)
    if quick is None:
        return None
    try:
        answer = _ask(people, quick)
        if answer.only("inside").get("exact") == "false" and _fits(answer):
            in_integers = tuple(replace(measure, doubles=False) for measure in quick.measures)
            answer = _ask(people, replace(quick, measures=in_integers))
    except QueryError:
        return None
    return answer if _fits(answer) else None


def _ask(people: Any, query: CountQuery) -> QueryAnswer:
    stage = first_stage(people, query)
    parts = query_parts(stage, query)
    backend = people.get_backend()
    text = write_statement(query_text(stage), parts, query, backend.dialect)
    return read_answer(query.engine.text_rows(run_query(backend, text)), parts, query)


def _fits(answer: QueryAnswer) -> bool:
    """Return whether everybody's values keep what the query took for granted."""
    totals = answer.only("inside")
    plans = answer.query.plan.metrics_by_name
    return totals.get("ok") in (None, "true") and all(
        range_fits(measure, plans[measure.name], totals.get(f"lo{measure.place}"), totals.get(f"hi{measure.place}"))
        for measure in answer.query.measures
    )


# ── counts ─────────────────────────────────────────────────────────────────────────────────────


def _count(people: Any, answer: QueryAnswer) -> Counted:
    """Return the count of the plan, and of the earlier ones that were joined to it."""
    plan = answer.query.plan
    placed = {group: place_all(answer, group) for group in populations(plan)}
    groups = {group: _count_group(people, answer, group, places) for group, places in placed.items()}
    views = views_of(plan)
    members = [membership_of(answer, view, placed[view.population]) for view in views]
    own = views[0].population
    if answer.query.for_release:
        members[0] = with_values(members[0], answer, views[0], placed[own], groups[own])
    signed = make_signatures(members, answer.of("signatures", answer.query.keys).array("n"))
    counted, *others = (
        replace(split_off(groups[view.population], view), signatures=signatures)
        for view, signatures in zip(views, signed, strict=True)
    )
    shapes = shapes_of_answer(answer, views[0], counted, placed[own])
    return replace(counted, earlier=tuple(others), shapes=shapes)


def _rounded_visibly(people: Any, measure: Measure) -> bool:
    """Return whether values within the bounds lie between the steps of a grid, and differ or are few steps from 0."""
    if measure.kind != "number" or measure.metric.bounds is None:
        return False
    low, high = measure.metric.bounds
    value = as_number(people[measure.name], measure.kind, careful=True)
    within = value.between(low, high)
    between = within & (grid_steps(value, measure.metric.scale) / float(measure.metric.scale) != value)
    row = first_row(
        people.aggregate(
            between=between.fill_null(False).cast("int32").max(),
            low=value.min(where=within),
            high=value.max(where=within),
        )
    )
    return bool(row["between"]) and few_steps(float(row["low"]), float(row["high"]), measure.metric)


def _count_group(people: Any, answer: QueryAnswer, group: Population, places: Mapping[str, Places]) -> Counted:
    """Return everything that is about one group of people, but for signatures."""
    query = answer.query
    holding = tables_about(query.plan, group)
    measures = [measure for measure in query.measures if any(measure.name in names for names in holding.values())]
    inside, everybody = answer.inside(group), answer.everybody()
    missing = {measure.name: _people_without(answer, measure, group) for measure in measures}
    for measure in measures:
        if missing[measure.name]:
            check_zero(measure.metric)
    linkages = [linkage for linkage in query.plan.linkages if linkage.name in holding]
    tallies = {linkage.name: build_tally(answer, linkage, places) for linkage in linkages}
    for metric in coarse_metrics(query.plan, tallies.values()).values():
        if _rounded_visibly(people.filter(query.anywhere(people)), query.measure(metric.name)):
            raise too_coarse(metric)
    ranges = {}
    for measure in measures:
        if measure.metric.bounds is None:
            low, high = inside.get(f"lo{measure.place}"), inside.get(f"hi{measure.place}")
            ranges[measure.name] = open_range(measure, low, high, missing=missing[measure.name] > 0)
    declared = {metric.name for metric in query.plan.counted_metrics if metric.declared}
    place = populations(query.plan).index(group)
    return Counted(
        query.plan,
        tallies,
        None,
        all(measure.name in declared or measure.metric.binary for measure in measures),
        {measure.name: parse_int(inside.get(f"cl{measure.place}")) for measure in measures},
        missing,
        everybody.get(twice_flag(place), 0),
        everybody.get(outside_flag(place), everybody["n"] - parse_int(inside["n"])),
        ranges=ranges,
        for_release=query.for_release,
    )
