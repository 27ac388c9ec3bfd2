"""The rows of a readout, each as a value and as plain data."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from kanab.description import Role
from kanab.report.words import Kind
from kanab.stats.effect import Effect
from kanab.stats.margins import Better
from kanab.stats.multiplicity import Simultaneous
from kanab.stats.relative import OddsRatio, Relative
from kanab.stats.sequential import AnyTimeLook, PlannedLook
from kanab.tally.factor import Level, label

Plain = dict[str, Any]
R = TypeVar("R")


EFFECT_COLUMNS = (
    "metric", "role", "arm", "method", "mean_control", "mean_arm", "estimate", "interval", "relative",
    "relative_interval", "p", "p_adjusted", "verdict",
)  # fmt: skip
"""What a frame of effects holds unless details are asked for."""


@dataclass(frozen=True)
class EffectRow:
    """One arm against the control on one metric, or another contrast of arms.

    ``means`` are the control's and the arm's, ``relative`` is Fieller's (of two rates the score interval), ``delta``
    the delta method's, ``odds`` the odds ratio of two rates; None for contrasts of more than two arms.
    ``simultaneous`` is the effect within its family: the corrected p, and an interval to go with it;
    ``p_usual_adjusted`` is the corrected p of the usual test alone (Welch's t, of two rates the score test). Of all
    rows of a metric and arm, one carries the verdict; the others stand beside it, uncorrected, and have none.
    ``sample_size_gain`` is of adjusted effects: the share of people more whom the plain effect would need.
    ``role`` is the metric's, None where nobody named any; ``better`` its good direction. ``early``: fewer people than
    planned are in, and p and interval are those of one look at the planned end. ``limit_interval`` is for margins.
    """

    effect: Effect
    relative: Relative | None
    means: tuple[float, float] | None
    delta: Relative | None = None
    simultaneous: Simultaneous | None = None
    look: PlannedLook | AnyTimeLook | None = None
    verdict: Kind | None = None
    carries_verdict: bool = False
    p_usual_adjusted: float | None = None
    odds: OddsRatio | None = None
    role: Role | None = None
    better: Better = "higher"
    sample_size_gain: float | None = None
    early: bool = False
    limit_interval: tuple[float, float] | None = None

    @property
    def worse(self) -> Kind:
        """The verdict that is bad news."""
        return "down" if self.better == "higher" else "up"

    @property
    def p(self) -> float | None:
        """The p that may be acted on: over all looks, where there are several."""
        return self.effect.p if self.look is None else self.look.p

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval that agrees with p: over all looks, where there are several."""
        return self.effect.interval if self.look is None else self.look.interval

    @property
    def p_adjusted(self) -> float | None:
        """The p corrected over its family."""
        return None if self.simultaneous is None else self.simultaneous.p_adjusted

    def to_dict(self) -> Plain:
        """Return the row as plain data."""
        effect, relative, delta, joint = self.effect, self.relative, self.delta, self.simultaneous
        control, arm = self.means or (None, None)
        row: Plain = plain(
            {
                "metric": effect.metric,
                "role": self.role,
                "better": self.better,
                "control": named(effect.control),
                "arm": named(effect.arm),
                "method": effect.method,
                "covariates": effect.covariates,
                "mean_control": control,
                "mean_arm": arm,
                "estimate": effect.estimate,
                "se": effect.se,
                "se_population": effect.se_population,
                "interval": self.interval,
                "interval_welch": effect.interval_welch,
                "test": effect.test,
                "df": effect.df,
                "t": effect.t,
                "p": self.p,
                "p_adjusted": self.p_adjusted,
                "p_usual": effect.p_usual,
                "p_usual_adjusted": self.p_usual_adjusted,
                "interval_adjusted": None if joint is None else joint.interval,
                "level": None if joint is None else joint.level,
                "agrees": None if joint is None or joint.interval is None else joint.agrees,
                "relative": None if relative is None else relative.estimate,
                "relative_interval": None if relative is None else relative.interval,
                "relative_interval_delta": None if delta is None else delta.interval,
                "odds_ratio": None if self.odds is None else self.odds.estimate,
                "odds_ratio_interval": None if self.odds is None else self.odds.interval,
                "sequential": None if self.look is None else _look(self.look),
                "verdict": self.verdict,
                "early": self.early,
                "carries_verdict": self.carries_verdict,
                "sample_size_gain": self.sample_size_gain,
                **({"se_noise": effect.se_noise, "too_noisy": effect.too_noisy} if effect.se_noise else {}),
            }
        )
        return row

    def contrast_dict(self) -> Plain:
        """Return the row as plain data, with the weight of every arm."""
        return {"contrast": {label(arm): weight for arm, weight in self.effect.contrast}} | self.to_dict()


def effect_place(effect: Effect) -> tuple[object, ...]:
    """Return what tells an effect from the others of a readout."""
    return effect.metric, effect.arm, effect.method, effect.covariates


def named(arm: Level) -> str | None:
    """Return the name of an arm; None for none."""
    return None if arm is None else label(arm)


def _look(look: PlannedLook | AnyTimeLook) -> Plain:
    """Return a look as plain data; what belongs to the other method is None."""
    names = (
        "look", "looks", "planned", "fraction", "spent", "nominal", "p", "optimal_at", "until", "begun", "verdict",
        "interval", "chance",
    )  # fmt: skip
    method = "spending" if isinstance(look, PlannedLook) else "always-valid"
    return {"method": method, **{name: getattr(look, name, None) for name in names}}


# ── rows as plain data ─────────────────────────────────────────────────────────────────────────


def plain(value: Any) -> Any:
    """Return rows for JSON: fields are keys, what is infinite is None, and so is no key that is only there if known."""
    if is_dataclass(value):
        return {
            each.name: plain(inner)
            for each in fields(value)
            if (inner := getattr(value, each.name)) is not None or not each.metadata.get(_IF_KNOWN)
        }
    if isinstance(value, Mapping):
        return {label(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_IF_KNOWN = "if known"


def if_known() -> Any:
    """Return a field whose key is absent where there is nothing to say: what noise does, in releases without ε."""
    return field(default=None, kw_only=True, metadata={_IF_KNOWN: True})


def row_of(kind: type[R], result: Any, **others: Any) -> R:
    """Return a result of a statistic as a row: fields of the same name are its, the others are given."""
    same = {each.name for each in fields(kind)} - others.keys()  # type: ignore[arg-type]
    return kind(**{name: getattr(result, name) for name in same}, **others)


def typed(rows: Iterable[Mapping[str, Any]], kind: type[R]) -> list[R]:
    """Return rows of plain data as what they were."""
    return [kind(**row) for row in rows]
