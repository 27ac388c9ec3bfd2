"""From a source to a readout in one call: count, merge levels to k, analyze."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kanab.analysis.api import analyze_release
from kanab.analysis.looks import clipped_before
from kanab.analysis.own_rows import check_choices, is_gated, read_rows
from kanab.analysis.readout import Readout
from kanab.arguments import check_arguments
from kanab.counting.dispatch import chosen_plan, clip_source, count_source, source_options
from kanab.counting.frames import load_frame
from kanab.description import DEFAULT_K, AnyCovariate, AnyMetric, Reading, Rows
from kanab.plan.model import Plan
from kanab.tally.factor import Level


@check_arguments(skip=("plan", "metrics", "adjust", "segments"))
def readout(
    source: Any,
    plan: Plan | None = None,
    experiment: str | None = None,
    *,
    arm: str | None = None,
    metrics: Sequence[AnyMetric] = (),
    adjust: Sequence[AnyCovariate] = (),
    segments: Sequence[AnyCovariate] = (),
    arms: Sequence[Any] | Mapping[Any, float] | None = None,
    control: Level = None,
    treatment_received: str | None = None,
    k: int = DEFAULT_K,
    override: str = "",
    rows: Rows | None = None,
    reading: Reading | None = None,
) -> Readout:
    """Count a source and analyze it, in one call, for whoever may read the rows.

    source: what `count` takes: a frame, files, a database.
    plan: what to count, instead of ``arm`` to ``k``.
    experiment: one of the experiments of the plan, where it has several.
    arm: the column that holds the arm.
    metrics: what is compared: names, `Mean`, `Ratio` or `Quantile`.
    adjust: what effects are adjusted for: names, `Covariate` or `Number`.
    segments: what effects may differ by: names or `Covariate`.
    arms: the arms to count, or a dict with their planned shares.
    control: the arm to compare with.
    treatment_received: the metric that says who got what was assigned (the effect of receiving, CACE).
    k: people whom a class holds at least; levels are merged to it, and nothing else is withheld.
    override: the reason for a k below 5, where own rows are gated.
    rows: which rows count, and how they become people: `Rows`.
    reading: how results are read: `Reading`.

    The result is internal, and says so. Where the plan or the environment says that own rows are gated, it is what a
    release would give. Raises what `count` and `analyze` raise, and where own rows are gated, what `release` raises.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> people = {"variant": rng.choice(["A", "B"], 900), "bought": rng.random(900) < 0.2}
    >>> readout(people, arm="variant", metrics=["bought"]).arms
    {'A': 462, 'B': 438}
    """
    reading = reading or Reading()
    if control is not None and reading.pool:  # a pool may be the control
        control, reading = None, replace(reading, control=control)
    plan = chosen_plan(
        plan, arm, metrics, adjust, segments,
        arms=arms, control=control, treatment_received=treatment_received, k=k,
    )  # fmt: skip
    options, source = source_options(rows, metrics), load_frame(source)
    check_choices(plan, options)
    if options.clip:
        before = clipped_before(reading.looks, plan, experiment)
        plan = clip_source(source, plan, options, before, for_release=is_gated(plan))
    tables = read_rows(
        plan, lambda for_release: count_source(source, plan, options, for_release=for_release), override=override
    )
    return analyze_release(tables, experiment, reading)
