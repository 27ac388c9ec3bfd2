"""Profile columns before counting: ranges and grids of numbers, quantiles, and the commonest levels.

Always over the people who are in an experiment, all arms together.
"""

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ibis
import numpy as np
from numpy.typing import NDArray

from kanab.counting.engine.dialects import (
    engine_of,
    fetch_numbers,
    fetch_texts,
    first_row,
    strict_arithmetic,
)
from kanab.counting.engine.group_keys import Key, Kind, as_plain, read_level
from kanab.counting.engine.measures import SampledMetric, as_number, floor, grid_steps
from kanab.counting.grids import DECIMAL_SCALES, Profile, check_range, profile_values
from kanab.counting.levels import Bins, check_levels, choose_bins, common_levels, not_numbers, quantile_shares
from kanab.plan.model import CovariatePlan, Plan
from kanab.tally.factor import Level
from kanab.tally.metric import Metric

SAMPLE_SIZE = 10_000
"""So many people show quickly what most columns are like."""

_MOST_TIES = 100_000

_EDGE = 0.01  # a crowded end: so many of the values …
_NEAR = 0.05  # … lie within this part of the range


@dataclass(frozen=True)
class SampleProfiles:
    """The metrics of a few people, how many levels keys have among them, and their values, NaN where there is none."""

    metrics: Mapping[str, SampledMetric]
    levels: Mapping[str, int]
    values: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


def holds_fractions(table: Any, name: str) -> bool:
    """Return whether a column of doubles or decimals holds numbers that are not whole: each would be a level."""
    if name not in table.columns or not (table[name].type().is_floating() or table[name].type().is_decimal()):
        return False
    value = table[name].cast("float64")
    with strict_arithmetic(table):
        row = first_row(table.aggregate(any=(value != floor(value)).fill_null(False).cast("int32").max()))
    return bool(row["any"])


def _ranked(value: Any, shares: Sequence[float]) -> list[float]:
    """Return quantiles where an engine has none that is exact: between the values of two ranks."""
    known = value.name("value").as_table()
    known = known.filter(known.value.notnull())
    people = int(first_row(known.aggregate(n=known.count()))["n"])
    if not people:
        return []
    ranks = [share * (people - 1) for share in shares]
    wanted = sorted({end for rank in ranks for end in (math.floor(rank), math.ceil(rank))})
    ranked = known.mutate(rank=ibis.row_number().over(order_by=known.value))
    ends = ranked.filter(ranked["rank"].isin(wanted)).select("rank", "value")
    values = {int(rank or 0): float(number or 0) for rank, number in fetch_texts(ends)}
    quantiles = []
    for rank in ranks:
        low, high = values[math.floor(rank)], values[math.ceil(rank)]
        quantiles.append(low if low == high else low + (high - low) * (rank % 1))
    return quantiles


def profile_columns(people: Any, columns: Mapping[str, Kind]) -> dict[str, Profile]:
    """Return ranges and grids of number columns."""
    if not columns:
        return {}
    table = _numbers(people, columns)
    aggregates: dict[str, Any] = {}
    for place, kind in enumerate(columns.values()):
        aggregates |= _range_and_grid(table[f"y{place}"], kind, place)
    row = first_row(table.aggregate(**aggregates))
    return {name: _profile(row, place) for place, name in enumerate(columns)}


def count_levels(people: Any, keys: Sequence[Key]) -> dict[str, int]:
    """Return how many levels keys have."""
    if not keys:
        return {}
    levels = {key.column: as_plain(people[key.name], key.kind).nunique() for key in keys}
    row = first_row(people.aggregate(**levels))
    return {key.name: int(row[key.column]) for key in keys}


def profile_sample(
    people: Any, columns: Mapping[str, Kind], keys: Sequence[Key], grids: Container[str]
) -> SampleProfiles:
    """Profile some of the people by their values; ``grids`` are the columns whose grid and ends are looked up."""
    values, levels = sample_values(people, columns), count_levels(people.limit(SAMPLE_SIZE), keys)
    metrics = {}
    for name, kind in columns.items():
        known = values[name][~np.isnan(values[name])]
        if name in grids and kind == "number":
            profile = profile_values(known)
        else:
            profile = Profile(float(known.min()), float(known.max())) if len(known) else Profile()
        profile = replace(profile, gaps=len(known) < len(values[name]))
        low = high = len(values[name]) < SAMPLE_SIZE  # everybody
        with np.errstate(over="ignore", invalid="ignore"):
            square = float(np.mean(known * known)) if len(known) else 0.0
            if name in grids and len(known):
                near = _NEAR * (profile.high - profile.low)
                first, last = float(np.quantile(known, _EDGE)), float(np.quantile(known, 1 - _EDGE))
                low |= first <= profile.low + near and not 0 < profile.low < near
                high |= last >= profile.high - near and not -near < profile.high < 0
        metrics[name] = SampledMetric(profile, square, (low, high))
    return SampleProfiles(metrics, levels, values)


def sample_values(people: Any, columns: Mapping[str, Kind]) -> dict[str, NDArray[np.float64]]:
    """Return the values of some of the people, NaN where there is none."""
    if not columns:
        return {}
    table = _numbers(people.limit(SAMPLE_SIZE), columns)
    numbers = fetch_numbers(table.select(**{name: table[name].cast("float64") for name in table.columns}))
    return {name: numbers[f"y{place}"] for place, name in enumerate(columns)}


def _numbers(people: Any, columns: Mapping[str, Kind]) -> Any:
    numbers = (as_number(people[name], kind, careful=True) for name, kind in columns.items())
    return people.select(**{f"y{place}": number for place, number in enumerate(numbers)})


def _range_and_grid(value: Any, kind: Kind, place: int) -> dict[str, Any]:
    aggregates = {f"lo{place}": value.min(), f"hi{place}": value.max()}
    if kind == "number":
        aggregates[f"whole{place}"] = (floor(value) == value).all()
        for scale in DECIMAL_SCALES:
            exact = grid_steps(value, scale) / float(scale) == value
            aggregates[f"dec{place}_{scale}"] = exact.all()
    return aggregates


def _profile(row: Mapping[str, Any], place: int) -> Profile:
    """Return the profile of a column; all zeros where it holds nothing but missing values."""
    low, high = row[f"lo{place}"], row[f"hi{place}"]
    if low is None or high is None:
        return Profile()
    if f"whole{place}" not in row or row[f"whole{place}"]:
        return Profile(float(low), float(high))
    decimal = next((scale for scale in DECIMAL_SCALES if row[f"dec{place}_{scale}"]), None)
    return Profile(float(low), float(high), False, decimal)


def find_bins(people: Any, plan: CovariatePlan, kind: Kind) -> tuple[Bins, Profile]:
    """Return the bins of a covariate, at declared edges or at quantiles of everybody, and its profile."""
    if kind == "text":
        raise not_numbers(plan.name)
    shares = quantile_shares(plan)
    table = people.select(value=as_number(people[plan.name], kind, careful=True))
    value = table.value.cast("float64")
    exact = engine_of(people).quantiles
    wanted = {f"cut{place}": value.quantile(share) for place, share in enumerate(shares if exact else ())}
    row = first_row(table.aggregate(**_range_and_grid(table.value, kind, 0), **wanted))
    profile = _profile(row, 0)
    if not (math.isfinite(profile.low) and math.isfinite(profile.high)):
        raise not_numbers(plan.name)
    check_range(Metric(plan.name, profile.scale), profile)
    quantiles = [float(cut) for name in wanted if (cut := row[name]) is not None]
    if not exact and shares:
        quantiles = _ranked(value, shares)
    return choose_bins(plan, quantiles, profile.low, profile.high), profile


def top_levels(people: Any, covariate: CovariatePlan, kind: Kind, plan: Plan) -> tuple[tuple[Level, ...], bool]:
    """Return the commonest levels of a covariate, and whether there are others."""
    top = covariate.top or 1
    level = as_plain(people[covariate.name], kind)
    counts = people.select(level=level).filter(ibis._.level.notnull()).group_by("level").aggregate(n=ibis._.count())
    order = ibis.desc(counts.n)  # the same for both: of two, MariaDB heeds one
    everything = ibis.window(order_by=order, rows=(None, None))
    ranked = counts.mutate(place=ibis.rank().over(order_by=order), levels=ibis._.count().over(everything))
    ties = ranked.filter(ranked.place < top).select("level", "n", "levels")
    rows = [(text, int(n or 0), int(levels or 0)) for text, n, levels in fetch_texts(ties.limit(_MOST_TIES + 1))]
    if len(rows) > _MOST_TIES:
        check_levels(covariate.name, rows[0][2], plan)
    people_with: dict[Level, int] = {}
    for text, number_of_people, _ in rows:
        name = read_level(text, kind, covariate.name)
        if name is not None:
            people_with[name] = people_with.get(name, 0) + number_of_people
    common = common_levels(people_with, top)
    return common, bool(rows) and rows[0][2] > len(common)
