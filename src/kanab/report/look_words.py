"""What a look at an effect allows, in words: to stop, to go on and what that can still change, or nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanab.report.digits import Row, is_share, metric_figures
from kanab.report.words import counted_units, headlines, spoken_arm
from kanab.stats.sequential import FUTILE, stop_advice

Data = Mapping[str, Any]


def look_sentences(data: Data, metric: str) -> list[str]:
    """Return whether one may stop, in one line, for a metric that is looked at more than once; then who may give up."""
    rows = [row for row in headlines(data, metric) if row.get("sequential")]
    if not rows:
        return []
    first = rows[0]["sequential"]
    of = f" of {first['looks']}" if first["looks"] else ""
    when = "At any time" if first["method"] == "always-valid" else f"Look {first['look']}{of}"
    advice = [
        f"{spoken_arm(row['arm'])}: {look_words(data, row)}" if len(rows) > 1 else look_words(data, row) for row in rows
    ]
    futile = [sentence for row in rows if (sentence := futility_sentence(data, row))]
    return [f"{when}: {'; '.join(advice)}.", *futile]


def look_words(data: Data, row: Row) -> str:
    """Return what the look at an effect allows: to stop, to go on until when, or nothing more and what is ruled out."""
    if row["sequential"]["verdict"] != "ended":
        return stop_advice(row["sequential"])
    ended = f"ended at {counted_units(data)} without a finding"
    interval = row.get("interval_adjusted") or row.get("interval")
    if interval is None:
        return ended
    figures, _ = metric_figures(data, row["metric"])
    low, high = (None if end is None else figures.bare(end, signed=True) for end in interval)
    ends = f"below {low}" if high is None else f"above {high}" if low is None else f"beyond {low} … {high}"
    return f"{ended}; effects {ends}{' points' * figures.share} are ruled out"


def futility_sentence(data: Data, row: Row) -> str:
    """Return that the rest of the plan can hardly change the answer, where that is so; else nothing."""
    chance = row["sequential"].get("chance")
    going = row["sequential"]["verdict"] == "keep going" and row.get("role") != "guardrail"
    if not going or chance is None or chance >= FUTILE:
        return ""
    arm, metric, worth = spoken_arm(row["arm"]), row["metric"], data.get("rule", {}).get("worth")
    finding = f"the chance of a finding for {arm} on {metric}"
    if worth is not None and row["role"] == "primary":
        number = f"{100 * worth:.6g} points" if is_share(data, metric) and not isinstance(worth, str) else str(worth)
        finding = f"even if {arm} changed {metric} by {number.replace('%', ' %')}, the chance of a finding"
    return (
        f"The rest of the plan can hardly change the answer: {finding} is "
        f"{'below 1' if chance < 0.01 else f'{100 * chance:.0f}'} %. Stopping now costs little."
    )
