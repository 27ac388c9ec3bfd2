"""Checks of a release against its ledger: the same people counted again, or the next cohorts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kanab.counted import Counted
from kanab.errors import PrivacyError
from kanab.plan.model import CovariatePlan, Plan, settle_missing
from kanab.plan.paired_covariates import Pair, planned_pairs
from kanab.privacy.batches import continues
from kanab.privacy.covariate_pairs import SingleTables, joint_maps, same_levels, single_tables
from kanab.privacy.merging import LevelMap
from kanab.privacy.numbers.design import weighted_sums
from kanab.privacy.overlap import Column, ReleasedTable, ShownTable, column, columns, linkage_of
from kanab.privacy.release import Batch, Release
from kanab.privacy.request import batch_at
from kanab.tally.tally import Tally


def recount_earlier(counted: Counted, releases: Sequence[Release]) -> tuple[ShownTable, ...]:
    """Return everything released before with its classes, counted again over the same people.

    Raises `PrivacyError` where a digit has changed, for the difference would tell about the few who did, or where they
    were not counted again.
    """
    if not releases:
        return ()
    if counted.signatures is None:
        raise PrivacyError(
            "nobody knows how these tables overlap with those released before",
            "Release everything about these people at once, or by cohorts.",
        )
    if [_terms(again.plan) for again in counted.earlier] != [_terms(old.plan) for old in releases]:
        raise PrivacyError(
            "the ledger holds earlier releases about these people, and they were not counted again",
            "Count with earlier=read_ledger(…).plans, as kanab release does.",
        )
    _check_metrics(counted, releases)
    tables: list[ShownTable] = []
    for again, old in zip(counted.earlier, releases, strict=True):
        if any(_again(again, old, name) != table for name, table in old.tables.items()):
            raise PrivacyError(
                "an earlier release of the ledger comes out differently now: people or values have changed",
                "Release growing data by cohorts (--cohort), and other people into another ledger (--ledger).",
            )
        for name, table in old.tables.items():
            weighted = weighted_sums(again, linkage_of(name, old.plan)[0], table.crosses) if table.crosses else []
            tables.append(ShownTable(table, _columns(again, old, name), tuple(weighted), _cut(again, old, name)))
    return tuple(tables)


def _check_metrics(counted: Counted, releases: Sequence[Release]) -> None:
    """Refuse other bounds or another grid: what changes between two clamped sums is the few beyond the bounds."""
    metrics = {metric.name: metric for tally in counted.tallies.values() for metric in tally.metrics}
    before = [metric for old in releases for table in old.tables.values() for metric in table.metrics]
    for metric in before:
        if metrics.get(metric.name, metric) != metric:
            raise PrivacyError(
                f"{metric.name} was released before with other bounds, another resolution or another rule for missing "
                "values",
                "Declare it as before: the difference would tell about the few people beyond the bounds.",
            )


def _terms(plan: Plan) -> Plan:
    levels = tuple(covariate for covariate in plan.covariates if covariate != CovariatePlan(covariate.name))
    return replace(settle_missing(plan), k=0, covariates=levels)


def _published(old: Release, name: str) -> ReleasedTable:
    linkage, totals = linkage_of(name, old.plan)
    metrics = old.tables[name].metric_names
    return ReleasedTable(linkage, old.receipt.maps.get(name), metrics, totals)


def _columns(again: Counted, old: Release, name: str) -> tuple[Column, ...]:
    """Return everything that an earlier table says about who is in which class."""
    pair = planned_pairs(old.plan).get(name)
    if pair is None:
        return columns(again, _published(old, name))
    singles = _singles(again, old, pair)
    return (singles.column(pair, joint_maps(pair, singles, old.receipt.maps)),)


def _cut(again: Counted, old: Release, name: str) -> tuple[tuple[frozenset[str], Column], ...]:
    """Return who of every arm has a 0/1 metric that multiplies another in an earlier table: its sums are published."""
    crosses = old.tables[name].crosses
    if again.signatures is None or not crosses:
        return ()
    arms = column(again, ReleasedTable(linkage_of(name, old.plan)[0], totals=True))
    return tuple(
        (frozenset(cross.pair), np.where(again.signatures.cut[metric], arms, -1))
        for cross in crosses
        for metric in cross.pair
        if metric in again.signatures.cut
    )


def _singles(again: Counted, old: Release, pair: Pair) -> SingleTables:
    """Return the tables behind an earlier pair as they would be published now."""
    names = [pair.single(covariate) for covariate in pair.covariates]
    tables = {name: _again(again, old, name) for name in names}
    return single_tables(again, {name: _published(old, name) for name in names}, tables)


def _again(again: Counted, old: Release, name: str) -> Tally:
    """Return an earlier table as it would be published now."""
    pair = planned_pairs(old.plan).get(name)
    if pair is not None:
        singles = _singles(again, old, pair)
        return singles.table(pair, joint_maps(pair, singles, old.receipt.maps))
    published = _published(old, name)
    table = published.apply(again.tallies[published.linkage]).select_metrics(published.metrics)
    before = old.tables[name]
    squares = {part.metric.name: part.squares for part in before.moments}
    moments = tuple(part.with_squares_at(squares[part.metric.name], table.axes) for part in table.moments)
    crosses = {(cross.pair, cross.by) for cross in before.crosses}
    kept = tuple(cross for cross in table.crosses if (cross.pair, cross.by) in crosses)
    return replace(table, moments=moments, crosses=kept)


# ── cohorts ────────────────────────────────────────────────────────────────────────────────────


def batch_of(counted: Counted) -> Batch | None:
    """Return the cohorts that were counted, if only some were."""
    return None if counted.span is None else batch_at(counted.span)


def check_batches(counted: Counted, releases: Sequence[Release]) -> Mapping[str, LevelMap | None]:
    """Return the level maps of tables in earlier batches; raise `PrivacyError` where one does not follow."""
    batch = batch_of(counted)
    if not releases:
        return {}
    last = releases[-1]
    if (batch is None) != (last.receipt.batch is None):
        raise PrivacyError(
            "cohorts and releases about everybody do not go into one ledger",
            "Give --cohort as before, or another ledger (--ledger).",
        )
    if batch is None or last.receipt.batch is None:
        return {}
    before = last.receipt.batch
    same = all(continues(counted.plan, old.plan) for old in releases)
    if not same or (batch.every, batch.column) != (before.every, before.column):
        raise PrivacyError(
            "the batches of a ledger are released by one plan",
            "Use the plan of the first batch; experiments may be added to it.",
        )
    if batch.after != before.through:
        raise PrivacyError("these cohorts do not follow the last ones of the ledger", "Seal the periods in order.")
    maps: dict[str, LevelMap | None] = {}
    for old in releases:
        for name in old.plan.linkage_names:
            maps.pop(name, None)  # a table that a batch left out stays out
        for name, table in old.tables.items():
            maps[name] = old.receipt.maps.get(name, same_levels(table)) if table.covariates else None
    return maps
