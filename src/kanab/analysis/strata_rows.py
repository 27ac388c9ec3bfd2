"""Odds ratios over strata in a readout: which tables they are made of, and their plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kanab.analysis.options import ResolvedOptions
from kanab.analysis.rows import plain_interval
from kanab.errors import AnalysisError, flag, listed
from kanab.plan.model import ExperimentPlan
from kanab.stats.counts.strata import CommonOdds, common_odds
from kanab.tally.factor import label
from kanab.tally.tally import Tally


def strata_rows(
    plan: ExperimentPlan,
    tables: Mapping[str, Tally],
    strata: Sequence[str] | str,
    options: ResolvedOptions,
    notes: list[str],
    *,
    clusters: bool = False,
) -> list[CommonOdds]:
    """Compare every arm with the control over the levels of each covariate that was asked for, on every 0/1 metric.

    Raises `AnalysisError` for a covariate that was not counted, without a 0/1 metric, of clusters, over several looks.
    A table that the gate left out is a note.
    """
    names = [strata] if isinstance(strata, str) else list(dict.fromkeys(strata))
    if not names:
        return []
    if options.looks is not None:
        raise AnalysisError("odds ratios over strata are read at one look", "Leave out the strata (--strata).")
    if clusters:
        raise AnalysisError("strata are of people, and clusters were assigned", "Leave out the strata (--strata).")
    counted = list(dict.fromkeys([*plan.adjust, *plan.segments]))
    for name in [name for name in names if name not in counted]:
        if name in plan.numbers:
            raise AnalysisError(
                f"{name!r} is adjusted for as a number, and a number has no strata",
                f"Cut it into bins ({flag('--bin', f'{name}=5')}), or name a covariate: "
                f"{listed(counted) or 'none is counted'}.",
            )
        raise AnalysisError(
            f"strata name a covariate that is not counted: {name!r}",
            f"Counted are: {listed(counted) or 'none'}. Name it in adjust or segments, too (--adjust, --segment).",
        )
    binary = [metric.name for table in tables.values() for metric in table.metrics if metric.binary]
    wanted = [name for name in dict.fromkeys(binary) if name not in plan.numbers]
    if not wanted:
        raise AnalysisError("odds ratios need a 0/1 metric", "Leave out the strata (--strata), or count such a metric.")
    rows: list[CommonOdds] = []
    for name in names:
        table = tables.get(f"{plan.name}/{name}")
        for metric in wanted:
            if table is None or metric not in table.metric_names:
                notes.append(f"Odds ratios of {metric} over {name} are not given: its table was left out or withheld.")
                continue
            rows += common_odds(
                table, name, metric,
                control=options.control, confidence=options.confidence, alternative=options.alternative_for(metric),
            )  # fmt: skip
    return rows


def strata_dict(row: CommonOdds) -> dict[str, Any]:
    """Return an odds ratio over strata as plain data; an open end of an interval is None."""
    return {
        "metric": row.metric,
        "covariate": row.covariates[0],
        "arm": label(row.arm),
        "control": label(row.control),
        "odds_ratio": row.odds_ratio,
        "odds_ratio_interval": plain_interval(row.interval),
        "se_log": row.se_log,
        "chi2": row.chi2,
        "p": row.p,
        "risk_ratio": row.risk_ratio,
        "risk_ratio_interval": plain_interval(row.risk_ratio_interval),
        "risk_difference": row.risk_difference,
        "risk_difference_interval": plain_interval(row.risk_difference_interval),
        "equal_odds": None if row.equal is None else asdict(row.equal),
        "levels": [
            {
                "level": level.level,
                "people_control": level.people[0],
                "people_arm": level.people[1],
                "events_control": level.events[0],
                "events_arm": level.events[1],
                "odds_ratio": level.odds_ratio,
                "odds_ratio_interval": plain_interval(level.interval),
                "weight": level.weight,
            }
            for level in row.levels
        ],
        "note": row.note,
    }
