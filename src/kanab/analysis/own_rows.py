"""What whoever holds the rows reads on their own screen: classes merged to k, and no other rule.

Analyses and scans of rows come through here, one by one: `read_rows` decides whether that is so, or whether people may
ask here without seeing rows (``own_rows = "gated"`` in a plan, or ``KANAB_OWN_ROWS=gated``), so that the gate answers.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from kanab.choices import INTERNAL
from kanab.counted import Counted
from kanab.counting.dispatch import SourceOptions
from kanab.errors import PlanError, PrivacyError, SourceError, flag, listed
from kanab.plan.model import Plan, published_plan
from kanab.plan.paired_covariates import planned_pairs
from kanab.privacy.class_rules import check_k, draft_table, published_map
from kanab.privacy.covariate_pairs import single_tables
from kanab.privacy.gate import release
from kanab.privacy.merging import LevelMap
from kanab.privacy.overlap import ReleasedTable
from kanab.privacy.recount import batch_of
from kanab.privacy.release import OwnRows, Receipt, Tables
from kanab.tally.factor import label
from kanab.tally.tally import Tally

VARIABLE = "KANAB_OWN_ROWS"
"""The variable of the environment that says whether people here may read what was computed on rows."""

_LEAST_TO_COMPARE = 2
"""People in an arm without whom there is no variance."""

_EVERY_NAME = 0
"""People whom a level needs to be named here: whoever reads it may read the rows."""


def is_gated(plan: Plan | None = None) -> bool:
    """Return whether the gate answers here also where nothing leaves, by the plan or by the environment."""
    said = os.environ.get(VARIABLE, Plan.own_rows)
    if said not in ("internal", "gated"):
        raise PlanError(f"{VARIABLE} is neither internal nor gated", f"Set {VARIABLE}=gated, or leave it out.")
    return "gated" in (said, Plan.own_rows if plan is None else plan.own_rows)


def check_internal(plan: Plan, *flags: str) -> None:
    """Raise `PrivacyError` where own rows are gated and flags were given that would answer without the gate."""
    if flags and is_gated(plan):
        raise PrivacyError(
            f"{flags[0]} shows what the gate would keep back, and people here may not read rows (own_rows = gated)",
            f"Leave out {flags[0]}.",
        )


def check_choices(plan: Plan, options: SourceOptions) -> None:
    """Raise `PrivacyError` where own rows are gated and people are chosen: two answers may differ in one of them."""
    chosen = [f"--{name}" for name in ("where", "sql", "join") if getattr(options, name) is not None]
    if chosen and is_gated(plan):
        raise PrivacyError(
            f"{chosen[0]} chooses who is counted, and people here may not read rows (own_rows = gated)",
            "Release it into a ledger, which compares such choices (kanab release --ledger), and analyze the release.",
        )


def read_rows(
    plan: Plan | None, count: Callable[[bool], Counted], k: int | None = None, *, override: str = ""
) -> Tables:
    """Count, and return what may be read of it here: `OwnRows`, or a `Release` where the gate answers.

    ``count`` is called with whether what only the gate asks for has to be counted, too. Raises `PrivacyError` where
    the gate refuses, or would spend the ε of a plan.
    """
    if not is_gated(plan):
        return own_rows(count(False), k)
    if plan is not None and plan.budget is not None:
        raise PrivacyError(
            "this plan has an ε, and reading the rows would spend it each time, in no ledger",
            "Release them first (kanab release, release()), then analyze what was released.",
        )
    return release(count(True), k, override=override)


def own_rows(counted: Counted, k: int | None = None) -> OwnRows:
    """Return everything that was counted, with levels merged to k as far as that leaves something to compare."""
    rule = check_k(counted.plan.k if k is None else k, INTERNAL)
    counted = replace(counted, plan=published_plan(counted.plan, rule))
    _check_arms(counted)
    tables: dict[str, Tally] = {}
    maps: dict[str, LevelMap] = {}
    left_out: dict[str, str] = {}
    for linkage in counted.plan.linkages:
        name, tally = linkage.name, counted.tallies[linkage.name]
        if linkage.covariate is None:  # arms, however small, are not merged
            tables[name] = tally
            continue
        draft = draft_table(linkage, tally, counted.plan, None)
        levels = published_map(draft, replace(counted.plan, k=_EVERY_NAME))
        if draft.why or levels is None:
            left_out[name] = draft.why
            continue
        tables[name] = levels.apply(tally)
        maps |= {name: levels} if levels.merged else {}
    tables |= _arms_without_table(counted, tables)
    tables |= _crossed(counted, tables, maps)
    return OwnRows(
        counted.plan,
        tables,
        _receipt(counted, tables, maps, left_out),
        ranges=counted.ranges_in_units,
        rates=counted.rates,
    )


def _check_arms(counted: Counted) -> None:
    """Raise `SourceError` where an arm cannot be compared with anything: nobody is in it, or one person.

    Its name is said where it was declared: others may be anything that stands in a column.
    """
    units = "clusters" if "assigned_by" in counted.choices else "people"
    for experiment in counted.plan.experiments:
        arms = counted.tallies[counted.plan.linkages_of(experiment.name)[0].name].people_by(experiment.name)
        empty = [label(arm) for arm, people in arms.items() if people < _LEAST_TO_COMPARE]
        large = [label(arm) for arm, people in arms.items() if people >= counted.plan.k]
        if empty:
            named = "" if experiment.arms is None else f" ({listed(empty)})"
            only = f": {flag('--arms', ','.join(large))}" if len(large) > 1 else ""
            raise SourceError(
                f"fewer than two {units} are in an arm of {experiment.name}{named}: nothing can be compared with it",
                f"Wait for more {units}, or count only the arms that you mean{only}.",
            )


def _arms_without_table(counted: Counted, tables: Mapping[str, Tally]) -> dict[str, Tally]:
    arms = {}
    for experiment in counted.plan.experiment_names:
        measured = [linkage.name for linkage in counted.plan.linkages_of(experiment) if not linkage.people_only]
        if not tables.keys() & {*measured}:
            arms[experiment] = counted.tallies[measured[0]].keep()
    return arms


def _crossed(counted: Counted, tables: Mapping[str, Tally], maps: Mapping[str, LevelMap]) -> dict[str, Tally]:
    """Return people by two covariates at a time, for joint adjustment, with the levels that their tables have."""
    pairs = planned_pairs(counted.plan).values()
    wanted = [pair for pair in pairs if all(pair.single(name) in tables for name in pair.covariates)]
    if counted.signatures is None or not wanted:
        return {}
    names = dict.fromkeys(pair.single(name) for pair in wanted for name in pair.covariates)
    singles = single_tables(counted, {name: ReleasedTable(name, maps.get(name)) for name in names}, tables)
    unmerged = singles.unmerged()
    return {pair.name: singles.table(pair, unmerged) for pair in wanted}


def _receipt(
    counted: Counted, tables: Mapping[str, Tally], maps: Mapping[str, LevelMap], left_out: Mapping[str, str]
) -> Receipt:
    """Say what was merged and left out; numbers of people are exact."""
    people = np.concatenate([table.people.ravel() for table in tables.values()])
    choices = {name: text for name, text in counted.choices.items() if name != "where"}
    return Receipt(
        counted.plan.k, int(people[people > 0].min()), int(np.count_nonzero(people)), maps=maps, left_out=left_out,
        clamped=counted.clamped, missing=counted.missing, excluded=counted.excluded, outside=counted.outside,
        where=counted.where, batch=batch_of(counted), choices=choices,
        shapes=counted.shape_classes(counted.plan.k), repeats=counted.repeats,
    )  # fmt: skip
