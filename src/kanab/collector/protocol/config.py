"""What clients must know of a plan: the public part, as JSON whose name is its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kanab.collector.protocol.encoding import spell
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
from kanab.plan.values import duration

FORMAT = "kanab-config/1"
MOST_PAIRS = 20
"""A client reports at most so many pairs of experiments, drawn once at random."""


def public_config(plan: Plan, began: Mapping[str, Sequence[str]] | None = None) -> bytes:
    """The plan as clients read it: arms and shares, levels, grids, linkages; nothing about hosts or k.

    ``began`` are the metrics that experiments began with, where the plan has grown since.

    >>> from kanab.plan.model import ExperimentPlan, MetricPlan
    >>> shop = ExperimentPlan("checkout", (("A", 1), ("B", 1)), "A")
    >>> msgspec.json.decode(public_config(Plan((MetricPlan("bought", binary=True),), (shop,))))["experiments"]
    {'checkout': {'arms': [['A', 1], ['B', 1]], 'control': 'A', 'covariates': []}}
    """
    return msgspec.json.encode(_document(plan, began or {}), order="deterministic")


def config_digest(config: bytes) -> str:
    """The name of a config: clients may keep it for ever under this name."""
    return hashlib.sha256(config).hexdigest()[:32]


def _document(plan: Plan, began: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    used = plan.covariates_in_use
    return {
        "format": FORMAT,
        "cohorts": plan.cohorts and {"days": duration(plan.cohorts.every).days, "window": _hours(plan.cohorts.window)},
        "nonce_life": _hours(plan.nonce_life),
        "covariates": {
            one.name: [spell(level) for level in one.levels or ()] for one in plan.covariates if one.name in used
        },
        "metrics": {metric.name: _metric(metric) for metric in plan.counted_metrics},
        "ratios": [list(ratio) for ratio in plan.ratios],
        "experiments": {one.name: _experiment(one, plan, began.get(one.name)) for one in plan.experiments},
        "pairs": [list(link.experiments) for link in plan.linkages if len(link.experiments) > 1],
        "most_pairs": MOST_PAIRS,
    }


def _metric(one: MetricPlan) -> dict[str, Any]:
    metric = one.metric()
    bounds = metric.bounds or (0.0, 1.0)
    found: dict[str, Any] = {"bounds": list(bounds), "scale": metric.scale}
    if one.missing != "zero":
        found["missing"] = one.missing
    return found


def _experiment(one: ExperimentPlan, plan: Plan, began: Sequence[str] | None) -> dict[str, Any]:
    """Arms stand in the plan's order, which draws go by: a JSON object would lose it."""
    found: dict[str, Any] = {
        "arms": [[spell(arm), share] for arm, share in one.shares or ()],
        "control": spell(one.control),
        "covariates": list(one.covariates),
    }
    if began is not None and set(began) != set(plan.metric_names):
        found["metrics"] = [name for name in plan.metric_names if name in began]
    optional = {"salt": one.salt, "holdout": one.holdout, "exclude_with": _excluded(one, plan)}
    return found | {name: value for name, value in optional.items() if value}


def _excluded(one: ExperimentPlan, plan: Plan) -> list[str]:
    """The experiments that share nobody with this one, whichever of the two says so."""
    return [
        other.name for other in plan.experiments if other.name in one.exclude_with or one.name in other.exclude_with
    ]


def _hours(text: str) -> float:
    return duration(text).total_seconds() / 3600
