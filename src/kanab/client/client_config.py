"""What a client knows of a plan: the config that a collector serves at /v1/config.json."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec

from kanab.collector.counting.lines import MetricGrid
from kanab.collector.protocol.config import FORMAT
from kanab.collector.protocol.encoding import encode, spell
from kanab.errors import KanabError, LevelError, PlanError
from kanab.plan.periods import Periods
from kanab.tally.factor import OTHER, as_level
from kanab.tally.metric import Metric

_DAY = 86_400
_HOUR = 3600


class Experiment(msgspec.Struct, frozen=True):
    """One experiment: arms and shares in the plan's order, and who is not in it."""

    arms: list[tuple[str, float]]
    control: str
    covariates: list[str] = []
    salt: str | None = None
    holdout: float = 0.0
    exclude_with: list[str] = []
    metrics: list[str] | None = None


class Grid(msgspec.Struct, frozen=True):
    """A metric's bounds, steps per unit, and whether people may be without a value."""

    bounds: tuple[float, float]
    scale: int
    missing: str = "zero"


class Window(msgspec.Struct, frozen=True):
    """Days of a period of enrollment, and hours in which people are measured after it."""

    days: int
    window: float


class Config(msgspec.Struct, frozen=True, dict=True):
    """The public part of a plan. ``answers``: the collector signs its answers; ``vouch``: posts need vouchers.

    ``epoch`` is that of the collector's store. ``partial``: others may be planned, too.
    """

    format: str
    nonce_life: float
    metrics: dict[str, Grid]
    experiments: dict[str, Experiment]
    cohorts: Window | None = None
    covariates: dict[str, list[str]] = {}
    ratios: list[tuple[str, str]] = []
    pairs: list[tuple[str, str]] = []
    most_pairs: int = 20
    answers: bool = False
    vouch: bool = False
    epoch: str = ""
    partial: bool = False

    @property
    def life(self) -> int:
        """Seconds for which a post may be sent again."""
        return int(self.nonce_life * _HOUR)

    @cached_property
    def gauges(self) -> dict[str, MetricGrid]:
        """The grids of all metrics, by the collector's own rule."""
        return {
            name: MetricGrid.of(Metric(name, grid.scale, grid.bounds, "zero" if grid.missing == "zero" else "exclude"))
            for name, grid in self.metrics.items()
        }

    @cached_property
    def _ends(self) -> dict[str | None, float]:
        return {}  # few cohorts are open, and every step asks for their ends

    @cached_property
    def _periods(self) -> Periods | None:
        return None if self.cohorts is None else Periods(f"{self.cohorts.days}d")

    def cohort(self, now: datetime) -> str | None:
        """Return the cohort of whoever enrolls now; None where the plan has no cohorts."""
        if self._periods is None:
            return None
        return self._periods.label(self._periods.of_day(now.astimezone(UTC).date()))

    def end(self, cohort: str | None) -> float | None:
        """Return when the people of a cohort have been measured, in seconds; None: never, 0: no such cohort."""
        if self._periods is None or self.cohorts is None:
            return None
        if cohort not in self._ends:
            try:
                following = self._periods.number(cohort) + 1
            except PlanError:
                return 0.0
            self._ends[cohort] = self._periods.first_day(following) * _DAY + self.cohorts.window * _HOUR
        return self._ends[cohort]

    def classes(self, name: str, arm: str, levels: Mapping[str, str], cohort: str | None) -> tuple[str, ...]:
        """Return the classes of somebody in an experiment, as messages write them: checkout/tier:B:3@2026-W46."""
        label = "" if cohort is None else f"@{cohort}"
        experiment = encode(name)
        if not self.experiments[name].covariates:
            return (f"{experiment}:{encode(arm)}{label}",)
        return tuple(
            f"{experiment}/{encode(covariate)}:{encode(arm)}:{encode(levels.get(covariate, ''))}{label}"
            for covariate in self.experiments[name].covariates
        )

    def has_left(self, name: str) -> bool:
        """Return whether an experiment is known to have left the plan."""
        return name not in self.experiments and not self.partial

    def level(self, covariate: str, value: Any) -> tuple[str, bool]:
        """Return a level as it is sent, and whether it is declared (or missing)."""
        declared = self.covariates.get(covariate, [])
        with suppress(LevelError):
            spelled = spell(as_level(value, covariate))
            if not spelled or spelled in declared:
                return spelled, True
        return (OTHER if OTHER in declared else ""), False

    def counts(self, unit: tuple[str, ...], metric: str) -> bool:
        """Return whether an experiment, or all of a pair, counts a metric; not one that came after it began."""
        counted = [self.experiments[name].metrics for name in unit if name in self.experiments]
        return all(metrics is None or metric in metrics for metrics in counted)


def read_config(data: bytes) -> Config:
    """Read a config as a collector serves it; raises `KanabError` where the bytes are something else."""
    problem = KanabError("that is no config of a collector", "Check the address: /v1/config.json is its place.")
    try:
        config = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise problem from None
    names = {name for experiment in config.experiments.values() for name in experiment.exclude_with}
    names |= {name for pair in config.pairs for name in pair}
    parts = {name for ratio in config.ratios for name in ratio}
    whole = names <= set(config.experiments) and parts <= set(config.metrics)
    if config.format != FORMAT or not whole or not all(experiment.arms for experiment in config.experiments.values()):
        raise problem
    return config


_DECODER = msgspec.json.Decoder(Config)
