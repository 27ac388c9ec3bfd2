"""From a source to a readout in one call: count, merge levels to k, analyze."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kanab.analysis.api import analyze_release
from kanab.analysis.looks import clipped_before
from kanab.analysis.options import AnalysisOptions, AnyCorrection, Looks
from kanab.analysis.own_rows import check_choices, is_gated, read_rows
from kanab.analysis.readout import Readout
from kanab.arguments import check_arguments
from kanab.choices import DEFAULT_K, Alternative, RateTest, Slopes, Variance
from kanab.counting.dispatch import SourceOptions, chosen_plan, clip_source, count_source
from kanab.counting.frames import load_frame
from kanab.plan.model import Plan
from kanab.plan.periods import Span
from kanab.stats.bayes import Prior
from kanab.stats.margins import Margin
from kanab.tally.factor import Level
from kanab.tally.metric import Missing


@check_arguments(skip=("plan", "metrics", "covariates", "adjust", "segments", "score", "span", "numbers"))
def readout(
    source: Any,
    plan: Plan | None = None,
    experiment: str | None = None,
    *,
    arm: str | None = None,
    metrics: Sequence[str] = (),
    covariates: Sequence[str] = (),
    adjust: Sequence[str] = (),
    segments: Sequence[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    resolution: Mapping[str, float] | None = None,
    missing: Mapping[str, Missing] | None = None,
    least_events: Mapping[str, int] | None = None,
    bins: Mapping[str, int | Sequence[float]] | None = None,
    top: Mapping[str, int] | None = None,
    score: Sequence[str] = (),
    arms: Sequence[Any] | None = None,
    shares: Mapping[Any, float] | None = None,
    control: Level = None,
    ratios: Sequence[str] = (),
    k: int = DEFAULT_K,
    override: str = "",
    unit: str | None = None,
    aggregate: Mapping[str, str] | str | None = None,
    where: str | None = None,
    table: str | None = None,
    sql: str | None = None,
    events: Any = None,
    window: str | None = None,
    time: str = "time",
    exposure_time: str = "time",
    join: Any = None,
    on: Sequence[str] | str | None = None,
    sep: str | None = None,
    decimal: str = ".",
    first_by: str | None = None,
    span: Span | None = None,
    assigned_by: Sequence[str] | str | None = None,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
    correction: AnyCorrection = "holm",
    looks: Looks | None = None,
    pool: Mapping[Any, Sequence[Any]] | None = None,
    contrasts: Sequence[str | Mapping[Any, float]] = (),
    margins: Mapping[str, Margin | Sequence[Margin]] | None = None,
    lower_is_better: Sequence[str] | str = (),
    prior: Prior | Mapping[str, Prior] | None = None,
    primary: Sequence[str] | str = (),
    guardrails: Sequence[str] | str = (),
    decision: Mapping[str, Any] | None = None,
    test: RateTest = "score",
    variance: Variance = "exact",
    slopes: Slopes = "own",
    numbers: Sequence[str] = (),
    received: str | None = None,
    quantiles: Mapping[str, Sequence[float] | float] | None = None,
    clip: Mapping[str, str | float] | None = None,
) -> Readout:
    """Count a source and analyze it, in one call, for whoever may read the rows.

    ``arm`` to ``span``, and ``numbers``, say what is counted, as for ``count``; ``confidence`` to ``variance``, and
    ``slopes``, how the result is read, as for ``analyze``. Levels are merged to k and nothing else is withheld: the
    result is internal, and says so. Where the plan or the environment says that own rows are gated, it is what a
    release would give, with ``override`` for a k below 5.

    ``received`` is the metric that says who got what was assigned: the effect of receiving is read beside that of being
    assigned. ``quantiles`` of metrics are taken from their ``bins``. ``clip`` ({"spend": "99%"}) counts larger amounts
    as that point of all arms together; a looks file keeps it from the first look on.

    Raises what ``count`` and ``analyze`` raise, and where own rows are gated, what ``release`` raises.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> people = {"variant": rng.choice(["A", "B"], 900), "bought": rng.random(900) < 0.2}
    >>> readout(people, arm="variant", metrics=["bought"]).arms
    {'A': 462, 'B': 438}
    """
    of_plan, of_reading = (None, control) if pool else (control, None)  # a pool may be the control
    plan = chosen_plan(
        plan, arm, metrics=metrics, covariates=covariates, adjust=adjust, segments=segments, ratios=ratios, k=k,
        score=score, bounds=bounds, resolution=resolution, missing=missing, least_events=least_events,
        bins=bins, top=top, arms=arms, shares=shares, control=of_plan, numbers=numbers, received=received,
        quantiles=quantiles,
    )  # fmt: skip
    rows = SourceOptions(
        unit, aggregate, where, table, sql, events, window, time, exposure_time, span, join, on, sep, decimal,
        first_by, assigned_by, clip or {},
    )  # fmt: skip
    options = AnalysisOptions(
        of_reading, confidence, alternative, correction, looks, pool, contrasts, margins, lower_is_better, prior,
        primary, guardrails, decision, test, variance, slopes,
    )  # fmt: skip
    check_choices(plan, rows)
    source = load_frame(source)
    if clip:
        before = clipped_before(looks, plan, experiment)
        plan = clip_source(source, plan, rows, before, for_release=is_gated(plan))
    tables = read_rows(
        plan, lambda for_release: count_source(source, plan, rows, for_release=for_release), override=override
    )
    return analyze_release(tables, experiment, options)
