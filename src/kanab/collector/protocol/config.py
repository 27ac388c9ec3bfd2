"""The config of clients: the public part of a plan, as JSON whose name is its digest."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from kanab.collector.protocol.encoding import spell
from kanab.collector.protocol.limits import MOST_PAIRS
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
from kanab.plan.values import duration

FORMAT = "kanab-config/1"


def public_config(plan: Plan, began: Mapping[str, Sequence[str]] | None = None, epoch: str = "") -> bytes:
    """Return the plan as clients read it: arms and shares, levels, grids, linkages; nothing about hosts or k."""
    document = _document(plan, began or {})
    return msgspec.json.encode(document | {"epoch": epoch} if epoch else document, order="deterministic")


def config_digest(config: bytes) -> str:
    """Return the name of a config: clients may keep it for ever under this name."""
    return hashlib.sha256(config).hexdigest()[:32]


def config_part(config: bytes, names: Collection[str]) -> bytes:
    """Return what pages with some experiments need of a config: these, and those that are decided together with them.

    They exclude each other, or are counted in pairs. Experiments that do not count every metric are always there: who
    tracks has to know. Where pairs are drawn from all experiments, the config stays whole.
    """
    document, near = _read(config)
    if len(document["pairs"]) > MOST_PAIRS:
        return config
    waiting = [name for name, each in document["experiments"].items() if name in names or "metrics" in each]
    needed: dict[str, Any] = {}
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = document["experiments"][name]
            waiting += near[name]
    used = {covariate for each in needed.values() for covariate in each["covariates"]}
    part = {
        "experiments": needed,
        "pairs": [pair for pair in document["pairs"] if pair[0] in needed],
        "covariates": {name: levels for name, levels in document["covariates"].items() if name in used},
    }
    return msgspec.json.encode(document | part, order="deterministic")


@lru_cache(maxsize=1)
def _read(config: bytes) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return a config as a document, and the experiments that are decided together with each one."""
    document = msgspec.json.decode(config)
    near = {name: [*each.get("exclude_with", ())] for name, each in document["experiments"].items()}
    for first, second in document["pairs"]:
        near[first].append(second)
        near[second].append(first)
    return document, near


def _document(plan: Plan, began: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    used = plan.covariates_in_use
    vouch = {"vouch": True} if plan.vouch else {}
    return vouch | {
        "format": FORMAT,
        "cohorts": plan.cohorts and {"days": duration(plan.cohorts.every).days, "window": _hours(plan.cohorts.window)},
        "nonce_life": _hours(plan.nonce_life),
        "covariates": {
            covariate.name: [spell(level) for level in covariate.levels or ()]
            for covariate in plan.covariates
            if covariate.name in used
        },
        "metrics": {metric.name: _metric(metric) for metric in plan.counted_metrics},
        "ratios": [list(ratio) for ratio in plan.ratios],
        "experiments": {
            experiment.name: _experiment(experiment, plan, began.get(experiment.name))
            for experiment in plan.experiments
        },
        "pairs": [list(link.experiments) for link in plan.linkages if len(link.experiments) > 1],
        "most_pairs": MOST_PAIRS,
        "answers": True,
    }


def _metric(plan: MetricPlan) -> dict[str, Any]:
    metric = plan.metric()
    document: dict[str, Any] = {"bounds": list(metric.bounds or (0.0, 1.0)), "scale": metric.scale}
    return document if metric.missing == "zero" else document | {"missing": metric.missing}


def _experiment(experiment: ExperimentPlan, plan: Plan, began: Sequence[str] | None) -> dict[str, Any]:
    """Return an experiment's part. Arms stand in the plan's order, which draws go by: a JSON object would lose it."""
    document: dict[str, Any] = {
        "arms": [[spell(arm), share] for arm, share in experiment.shares or ()],
        "control": spell(experiment.control),
        "covariates": list(experiment.covariates),
    }
    if began is not None and set(began) != set(plan.metric_names):
        document["metrics"] = [name for name in plan.metric_names if name in began]
    optional = {"salt": experiment.salt, "holdout": experiment.holdout, "exclude_with": _excluded(experiment, plan)}
    return document | {name: value for name, value in optional.items() if value}


def _excluded(experiment: ExperimentPlan, plan: Plan) -> list[str]:
    """Return the experiments that share nobody with this one, whichever of the two says so."""
    return [
        other.name
        for other in plan.experiments
        if other.name in experiment.exclude_with or experiment.name in other.exclude_with
    ]


def _hours(text: str) -> float:
    return duration(text).total_seconds() / 3600
