"""Experiments subtracted from experiments: two whose people are the same but for a few tell about those few.

Where it is known who is in which experiment, the leverage rule decides on their arms. A collector does not know it: its
promise holds within an experiment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kanab.counted import Counted
from kanab.plan.model import Plan
from kanab.privacy.joint_rules import first_linkages, published_totals
from kanab.privacy.leverage import holds, leverage
from kanab.privacy.overlap import Column, column


def without_experiments(plan: Plan, names: Sequence[str]) -> Plan:
    """Return the plan without some experiments, and without the pairs that they are in."""
    experiments = [
        replace(
            experiment,
            interactions=tuple(other for other in experiment.interactions if other not in names),
            exclude_with=tuple(other for other in experiment.exclude_with if other not in names),
            joint_shares={other: shares for other, shares in experiment.joint_shares.items() if other not in names},
        )
        for experiment in plan.experiments
        if experiment.name not in names
    ]
    return replace(plan, experiments=tuple(experiments))


def without_people_of(counted: Counted, names: Sequence[str]) -> Counted:
    """Return what was counted without some experiments."""
    plan = without_experiments(counted.plan, names)
    tallies = {name: counted.tallies[name] for name in plan.linkage_names}
    signatures = counted.signatures
    if signatures is not None:
        kept = [name for name in signatures.tables if name in tallies]
        cells = signatures.cells[:, [signatures.tables.index(name) for name in kept]]
        signatures = replace(signatures, tables=tuple(kept), cells=cells)
    return replace(counted, plan=plan, tallies=tallies, signatures=signatures)


def leave_out_experiments(counted: Counted, earlier: Sequence[Column]) -> tuple[Counted, dict[str, str]]:
    """Leave out later experiments whose arms, beside those of others, would single people out; with the reasons.

    What was released before stays. Where nothing could be left, nothing is left out: the other rules refuse.
    """
    names = counted.plan.experiment_names
    apart = _apart(counted, earlier) if counted.spans_experiments else {}
    if not apart or len(apart) == len(names):
        return counted, {}
    sentences = {
        name: f"{name} is left out: its people and those of {other} differ by fewer than k, who would be told apart"
        for name, other in apart.items()
    }
    return without_people_of(counted, list(apart)), sentences


def _apart(counted: Counted, earlier: Sequence[Column]) -> dict[str, str]:
    """Return the experiments whose arms would single people out, and beside whose."""
    signatures, k = counted.signatures, counted.plan.k
    assert signatures is not None, "it spans experiments"
    arms = {
        link.experiments[0]: column(counted, published_totals(link, counted)) for link in first_linkages(counted.plan)
    }
    if len(arms) == 1 or holds(leverage(np.stack([*earlier, *arms.values()], axis=1), signatures.people), k):
        return {}
    kept: dict[str, Column] = {}
    apart: dict[str, str] = {}
    for name, classes in arms.items():
        if holds(leverage(np.stack([*earlier, *kept.values(), classes], axis=1), signatures.people), k):
            kept[name] = classes
        else:
            apart[name] = " and ".join(kept) or "earlier releases"
    return apart
