"""How does the metric vary? From a rate, from a standard deviation, or from a finished experiment's release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kanab.cli.source_options import level, number, pairs
from kanab.errors import LevelError, PlanError, listed
from kanab.plan.model import ExperimentPlan
from kanab.planning.interactions import CrossedNoise, crossed_noise, crossed_noise_of
from kanab.planning.noise import EVEN, Noise, noise_of_amounts, noise_of_means, noise_of_rate
from kanab.planning.report.power_words import short
from kanab.privacy.release import Release
from kanab.privacy.release_file import read_release
from kanab.stats.adjust import adjusted_means
from kanab.stats.effect import ArmMeans, plain_means
from kanab.stats.ratio import adjusted_ratio_means, ratio_means
from kanab.tally.factor import Level
from kanab.tally.tally import Tally

_MOST_ARMS = 100
_LARGE = 1e100  # its square is still a number
_WRITE = "Write --interaction 2x2, or with shares 9:1x6:3:1."


@dataclass(frozen=True)
class Basis:
    """What sentences need to know beside the noise: the control's mean, whether it is a rate, and where it is from."""

    mean: float | None
    binary: bool
    notes: tuple[str, ...] = ()


def noise_of(given: Mapping[str, Any]) -> tuple[Basis, Noise]:
    """The noise of each arm, by the flags."""
    _check(given)
    shares = {level(arm): number(text, "--shares") for arm, text in pairs(given["shares"], "--shares").items()}
    control = level(given["control"])
    if given["release_file"]:
        return _released(given, shares or None, control)
    return _numbers(given, shares or EVEN, control)


def crossed_noise_from(given: Mapping[str, Any]) -> tuple[Basis, CrossedNoise]:
    """The noise of each cell of two crossed factors, by the flags."""
    _check(given)
    if given["release_file"]:
        return _released_cells(given)
    rows, columns = _sides(given["interaction"])
    if "=" in (given["sd"] or ""):
        raise PlanError("the cells of an interaction share one standard deviation", "Give one number: --sd 30.")
    basis, noise = _numbers(given, EVEN, None)
    return basis, crossed_noise(rows, columns, sd=math.sqrt(float(noise.variances[0])))


def _check(given: Mapping[str, Any]) -> None:
    """Exactly one source, and no flag that belongs to another."""
    sources = {"--rate": given["rate"], "--sd": given["sd"], "--release": given["release_file"]}
    named = [flag for flag, value in sources.items() if value is not None]
    if len(named) != 1:
        fact = f"{' and '.join(named)} contradict each other" if named else "how the metric varies is not said"
        raise PlanError(fact, "Give one of --rate (0/1), --sd (amounts) and --release (a finished experiment).")
    belongs = {"mean": ("--sd",), "r2": ("--rate", "--sd")} | dict.fromkeys(
        ("metric", "experiment", "adjust"), ("--release",)
    )
    if given["multiplies"] and given["rate"] is not None:
        raise PlanError("--multiplies does not go with --rate", "The spread of a 0/1 metric follows from its rate.")
    for flag, owners in belongs.items():
        if given[flag] is not None and named[0] not in owners:
            raise PlanError(f"--{flag} does not go with {named[0]}", f"It belongs to {' or '.join(owners)}.")


def _numbers(given: Mapping[str, Any], shares: Mapping[Any, float], control: Level) -> tuple[Basis, Noise]:
    r2 = given["r2"] or 0.0
    if given["rate"] is not None:
        noise = noise_of_rate(given["rate"], shares=shares, control=control, r2=r2)
    else:
        noise = noise_of_amounts(
            _deviation(given["sd"]), mean=given["mean"], shares=shares, control=control, r2=r2,
            grows=given["multiplies"],
        )  # fmt: skip
    notes = (f"Covariates are taken to explain {short(100 * r2)} % of the variance.",) if r2 else ()
    return Basis(noise.mean, noise.binary, notes + _growth(given)), noise


def _growth(given: Mapping[str, Any]) -> tuple[str, ...]:
    return ("The effect is taken to multiply amounts, and so their spread in the arm.",) if given["multiplies"] else ()


def _deviation(text: str) -> float | dict[Level, float]:
    """``30``, or ``A=20,B=25``."""
    if "=" in text:
        return {level(arm): _size(one) for arm, one in pairs((text,), "--sd").items()}
    return _size(text)


def _size(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not 1 / _LARGE <= size <= _LARGE:
        raise PlanError("--sd needs a positive number", "Write --sd 30, or one per arm: --sd A=20,B=25.")
    return size


def _released(given: Mapping[str, Any], shares: Mapping[Any, float] | None, control: Level) -> tuple[Basis, Noise]:
    """Variances as they were found; shares as planned then, unless others are given."""
    released = read_release(given["release_file"])
    plan = released.plan.experiment(given["experiment"])
    means, name = _means(released, plan, given["metric"], given["adjust"])
    planned = None if plan.shares is None else dict(plan.shares)
    binary = _is_binary(released, name)
    if binary and given["multiplies"]:
        raise PlanError("--multiplies is for amounts", "The spread of a 0/1 metric follows from its rate.")
    noise = noise_of_means(
        means, shares=planned if shares is None else shares, control=plan.control if control is None else control,
        rate=binary, grows=given["multiplies"],
    )  # fmt: skip
    return Basis(noise.mean, binary, (_origin(given, plan, name), *_growth(given))), noise


def _means(released: Release, plan: ExperimentPlan, metric: str | None, covariate: str | None) -> tuple[ArmMeans, str]:
    """Plain, adjusted or ratio means, and the metric's name."""
    ratio = _ratio(released, metric)
    tables = released.tables_of(plan.name)
    if covariate is not None:
        table = _with(tables, covariate, plan.name)
        if ratio is not None:
            return adjusted_ratio_means(table, *ratio), "/".join(ratio)
        means = adjusted_means(table, metric)
    elif ratio is not None:
        return ratio_means(_first(tables, plan.name), *ratio), "/".join(ratio)
    else:
        means = plain_means(released.totals(plan.name), metric)
    return means, means.metric


def _ratio(released: Release, metric: str | None) -> tuple[str, str] | None:
    """The two parts of a ratio metric: named in the plan, or written revenue/orders."""
    if metric in released.plan.metrics_by_name:
        return released.plan.metrics_by_name[metric].ratio
    first, slash, second = (metric or "").partition("/")
    return (first, second) if slash else None


def _first(tables: list[Tally], experiment: str) -> Tally:
    if not tables:
        raise PlanError(f"the release holds no table of {experiment}", "Name another experiment, or give numbers.")
    return max(tables, key=lambda tally: len(tally.crosses))


def _with(tables: list[Tally], name: str, experiment: str) -> Tally:
    """The table of an experiment that holds a covariate, or another experiment."""
    for tally in tables:
        if name in [factor.name for factor in tally.factors if factor.name != experiment]:
            return tally
    others = {factor.name for tally in tables for factor in tally.factors} - {experiment}
    raise LevelError(
        f"the release holds no table of {experiment} by that name", f"It has: {listed(sorted(others)) or 'none'}."
    )


def _released_cells(given: Mapping[str, Any]) -> tuple[Basis, CrossedNoise]:
    """Arm × covariate, or two experiments, as they were found."""
    released = read_release(given["release_file"])
    plan = released.plan.experiment(given["experiment"])
    if _ratio(released, given["metric"]) is not None:
        raise PlanError("the interaction of a ratio is not planned from a release", "Name one of its two parts.")
    own = [tally for tally in released.tables.values() if plan.name in tally.experiment_names]
    table = _with(own, given["interaction"], plan.name)
    covariate = None if len(table.arms) == 2 else given["interaction"]
    cells = crossed_noise_of(table, covariate, given["metric"])
    metric = table.moments_of(given["metric"]).metric.name
    means = plain_means(released.totals(plan.name), metric)
    base = means.arms.index(means.control if plan.control is None else plan.control)
    return Basis(float(means.means[base]), _is_binary(released, metric), (_origin(given, plan, metric),)), cells


def _is_binary(released: Release, metric: str) -> bool:
    return any(one.name == metric and one.binary for tally in released.tables.values() for one in tally.metrics)


def _origin(given: Mapping[str, Any], plan: ExperimentPlan, metric: str) -> str:
    adjusted = f", adjusted for {given['adjust']}" if given["adjust"] else ""
    return f"How {metric} varies is as it was found in {plan.name} ({Path(given['release_file']).name}){adjusted}."


def _sides(text: str) -> tuple[dict[Level, float], dict[Level, float]]:
    """``2x2`` or ``9:1x6:3:1`` as the shares of rows and columns.

    >>> _sides("2x3")
    ({'A': 1.0, 'B': 1.0}, {1: 1.0, 2: 1.0, 3: 1.0})
    """
    rows, times, columns = text.lower().replace("×", "x").partition("x")
    if not times:
        raise PlanError("--interaction cannot be read", _WRITE)
    row, column = _shares(rows), _shares(columns)
    named = [chr(ord("A") + place) if len(row) <= 26 else place + 1 for place in range(len(row))]
    return dict(zip(named, row, strict=True)), {place + 1: share for place, share in enumerate(column)}


def _shares(text: str) -> list[float]:
    try:
        parts = [float(part) for part in text.split(":")]
        equal = [1.0] * int(text) if ":" not in text and 0 < int(text) <= _MOST_ARMS else None
    except ValueError:
        raise PlanError("--interaction cannot be read", _WRITE) from None
    if equal is None and len(parts) == 1:
        raise PlanError("--interaction cannot be read", _WRITE)
    return parts if equal is None else equal
